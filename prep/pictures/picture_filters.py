"""The ffmpeg filters for the pictures of a source, as pure functions of source and profile.

ffmpeg builds the filter graph once, for the first frame: with `-reinit_filter 0` it does not build another, whose
timestamps would start anew, when the pictures change. Of these filters only `scale` adapts to changed input, so it
comes first and gives all later filters frames of one size and format.
"""

from __future__ import annotations

from ..probing.picture_properties import Fields
from ..probing.source_video import SourceVideo
from ..profile import Profile
from .sizes import PictureLayout, picture_layout

BT709, BT2020 = 1, 9
PQ, HLG = 16, 18
LINEAR = 8

_RGB_MATRIX = 0
_QUALITY = "flags=bicubic+accurate_rnd+full_chroma_int"
# H.273 matrix -> its name in `scale`; without a name, libswscale assumes BT.601.
_MATRICES = {1: "bt709", 4: "fcc", 5: "bt470", 6: "smpte170m", 7: "smpte240m", 9: "bt2020", 10: "bt2020"}
# The values that zscale supports; any other is taken for BT.2020 in HDR, and for BT.709 in linear light.
_ZSCALE_MATRICES = {1, 4, 5, 6, 7, 9, 10, 14}
_ZSCALE_PRIMARIES = {1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 22}

# The luminance of white in a graded HDR picture (ITU-R BT.2408), and of the brightest highlights, in cd/m2.
_WHITE_NITS, _PEAK_NITS = 203, 1000

# (degrees counterclockwise, mirrored) -> filters: the same ones with which ffmpeg applies a display matrix.
_TURNS = {
    (0, False): [], (0, True): ["vflip"],
    (90, False): ["transpose=cclock"], (90, True): ["transpose=clock_flip"],
    (180, False): ["hflip", "vflip"], (180, True): ["hflip"],
    (270, False): ["transpose=clock"], (270, True): ["transpose=cclock_flip"],
}  # fmt: skip

_BYTE_BITS = 8

# bwdif needs pictures of at least this many pixels a side.
_MIN_DEINTERLACED_SIDE = 4


def tone_maps(source: SourceVideo) -> bool:
    """Whether the source is HDR: its tags name the transfer function PQ or HLG."""
    return source.transfer in (PQ, HLG)


def deinterlaces(source: SourceVideo, profile: Profile) -> bool:
    """Whether frames of two fields are deinterlaced."""
    large_enough = min(source.width, source.height) >= _MIN_DEINTERLACED_SIDE
    return profile.deinterlace == "auto" and source.picture.fields != Fields.NO and large_enough


def least_lead_frames(source: SourceVideo, profile: Profile) -> int:
    """How many frames before the first one shown have to be decoded: bwdif interpolates lines from the frame before."""
    return 2 if deinterlaces(source, profile) else 0


def needs_zscale(source: SourceVideo) -> bool:
    """Whether colours are converted in linear light, for which prep uses the filter zscale."""
    return tone_maps(source) or source.picture.linear


def colour_tags(source: SourceVideo) -> tuple[int, int, int]:
    """Primaries, transfer and matrix (H.273) of the encoded video. They are the source's own, unless prep converts the
    colours, so that readers convert them as they would have converted the source's."""
    if needs_zscale(source):
        return BT709, BT709, BT709
    converted = source.picture.rgb or source.matrix == _RGB_MATRIX
    return source.primaries, source.transfer, BT709 if converted else source.matrix


def steady_filters(source: SourceVideo) -> list[str]:
    """Filters that give every frame the size, format and matrix of the first one. A frame that has them passes
    unchanged.

    Primaries and transfer are removed, so that no filter converts by them.
    """
    width, height = source.coded_size
    return [
        without_colours(source),
        f"scale={width}:{height}:{_QUALITY}:interl=-1",
    ]


def without_colours(source: SourceVideo) -> str:
    """The filter that removes primaries and transfer, and a matrix that cannot be true."""
    matrix = ":colorspace=unknown" if source.picture.false_matrix else ""
    return f"setparams=color_primaries=unknown:color_trc=unknown{matrix}"


def deinterlace_filters(source: SourceVideo, profile: Profile) -> list[str]:
    """Filters that turn each frame of two fields into one picture at the same time. They come before the filters that
    drop frames, since bwdif interpolates lines from the neighbouring frames."""
    if not deinterlaces(source, profile):
        return []
    fields = source.picture.fields
    told = [] if fields == Fields.FLAGGED else [f"setfield={fields.value}"]
    return [*told, "bwdif=mode=send_frame:parity=auto:deint=interlaced"]


def picture_filters(source: SourceVideo, profile: Profile) -> list[str]:
    """Filters that turn the source's pictures into those of the encoded video: upright, of the planned size, 8 bits,
    4:2:0, limited range."""
    layout = picture_layout(source, profile)
    turns = [*_TURNS[source.rotation, source.picture.mirrored]]
    cut, at = layout.cut, layout.cut_at
    crop = [f"crop={cut[0]}:{cut[1]}:{at[0]}:{at[1]}:exact=1"] if cut != layout.upright else []
    shown = source.crop
    return [
        *([f"crop={shown.width}:{shown.height}:{shown.left}:{shown.top}:exact=1"] if shown else []),
        *_alpha_filters(source), *turns, *crop,
        *_scale_filters(source, layout.scaled), "format=yuv420p", *pad_filters(layout), *closing_filters(source),
    ]  # fmt: skip


def pad_filters(layout: PictureLayout) -> list[str]:
    """Filters that add black borders."""
    left, top = layout.pad_at
    return [f"pad={layout.width}:{layout.height}:{left}:{top}:black"] if layout.is_padded else []


def closing_filters(source: SourceVideo) -> list[str]:
    """Filters that describe the pictures as they are by now, and change none."""
    primaries, transfer, matrix = colour_tags(source)
    return [
        "setsar=1",
        f"setparams=range=tv:color_primaries={primaries}:color_trc={transfer}:colorspace={matrix}:field_mode=prog",
        # The side data are applied by now: players must not rotate the picture again, nor take it for HDR.
        f"sidedata=mode=delete{'' if needs_zscale(source) else ':type=DISPLAYMATRIX'}",
    ]


def _alpha_filters(source: SourceVideo) -> list[str]:
    """Filters that blend pictures with alpha over black, in RGB, where 0 is black in either range. Alpha is straight in
    all formats except OpenEXR, where it is premultiplied."""
    picture = source.picture
    if not picture.alpha or picture.linear:
        return []
    with_alpha, without = ("gbrap", "gbrp") if picture.bits <= _BYTE_BITS else ("gbrap16le", "gbrp16le")
    to_rgb = [] if picture.rgb else [f"scale=in_color_matrix={_matrix(source)}:{_QUALITY}"]
    return [*to_rgb, f"format={with_alpha}", "premultiply=inplace=1", f"format={without}"]


def _scale_filters(source: SourceVideo, size: tuple[int, int]) -> list[str]:
    scale = f"scale={size[0]}:{size[1]}:{_QUALITY}"
    if needs_zscale(source):
        return [f"{scale}:out_range=tv", *_light_filters(source)]
    picture = source.picture
    matrix = ""
    if picture.rgb or source.matrix == _RGB_MATRIX:
        matrix = ":out_color_matrix=bt709"
    elif picture.alpha:
        matrix = f":out_color_matrix={_matrix(source)}"
    return [f"{scale}:out_range=tv{matrix}"]


def _matrix(source: SourceVideo) -> str:
    return _MATRICES.get(source.matrix, "bt601")


def _light_filters(source: SourceVideo) -> list[str]:
    """Filters that convert HDR and linear light to BT.709. All videos get the same curve, whatever their mastering
    metadata, so that equal pixels stay equal; docs/design/prep.md has the comparison behind it."""
    picture = source.picture
    if picture.rgb or picture.alpha:
        samples, matrix, signal_range = "gbrpf32le" if picture.floating else "gbrp16le", _RGB_MATRIX, "pc"
    else:
        matrix = source.matrix if source.matrix in _ZSCALE_MATRICES else BT2020
        samples, signal_range = "yuv444p12le", "tv"
    if tone_maps(source):
        transfer, gamut = source.transfer, BT2020
        tone_map = [f"tonemap=mobius:param=0.5:desat=0:peak={_PEAK_NITS / _WHITE_NITS:.4f}"]
    else:
        transfer, gamut, tone_map = LINEAR, BT709, []
    primaries = source.primaries if source.primaries in _ZSCALE_PRIMARIES else gamut
    return [
        f"format={samples}",
        f"setparams=range={signal_range}:color_primaries={primaries}:color_trc={transfer}:colorspace={matrix}",
        # agamma=0: zscale's approximation would apply HLG's gain to each colour separately.
        f"zscale=t=linear:npl={_WHITE_NITS}:agamma=0", "format=gbrpf32le", "zscale=p=bt709", *tone_map,
        "zscale=t=bt709:m=bt709:r=tv",
    ]  # fmt: skip
