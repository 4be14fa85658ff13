"""Colours: HDR and light are brought to BT.709, alpha over black, and tags say of each video what is known of it."""

from __future__ import annotations

import itertools
import stat
import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import av
import imageio_ffmpeg
import numpy as np
import pytest
from av.sidedata.sidedata import SideData
from numpy.typing import NDArray
from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]

import shortgop
from datasets import current_manifest, make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered, with_entry_box
from shortgop.manifests.operations.export import export
from shortgop.prep.profile import Size
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

PQ, HLG = 16, 18
# Linear light of BT.709 primaries to those of BT.2020, ITU-R BT.2087.
TO_BT2020 = np.array([[0.6274, 0.3293, 0.0433], [0.0691, 0.9195, 0.0114], [0.0164, 0.0880, 0.8956]])
WHITE_NITS = 203


def pq(nits: NDArray[Any]) -> NDArray[Any]:
    """Signal of SMPTE ST 2084 for light in cd/m2."""
    light = (np.clip(nits, 0, 10_000) / 10_000) ** (2610 / 16384)
    return np.asarray(((3424 / 4096 + 2413 / 128 * light) / (1 + 2392 / 128 * light)) ** (2523 / 32))


def hlg(nits: NDArray[Any]) -> NDArray[Any]:
    """Signal of ITU-R BT.2100 HLG for light in cd/m2 on a display of 1000."""
    display = nits / 1000
    luma = (display @ np.array([0.2627, 0.6780, 0.0593]))[..., None]
    scene = display * np.where(luma > 0, luma, 1) ** (1 / 1.2 - 1)
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    return np.where(scene <= 1 / 12, np.sqrt(3 * scene), a * np.log(np.maximum(12 * scene - b, 1e-9)) + c)


def hdr_source(path: Path, nits: NDArray[Any], transfer: int, *options: str) -> Path:
    """A 10-bit HEVC video of one still picture, given as the light of BT.2020 primaries."""
    signal = (pq if transfer == PQ else hlg)(nits)
    picture = np.round(np.clip(signal, 0, 1) * 65535).astype("<u2").view(np.uint8).reshape(*nits.shape[:2], 6)
    name = {PQ: "smpte2084", HLG: "arib-std-b67"}[transfer]
    filters = (
        "scale=out_color_matrix=bt2020:out_range=tv:flags=accurate_rnd+full_chroma_int,format=yuv420p10le,"
        f"setparams=color_primaries=bt2020:color_trc={name}:colorspace=bt2020nc:range=tv"
    )
    params = "log-level=error:pools=none:frame-threads=1:crf=4"
    return encode_pictures(
        path, [picture] * 3, "-vf", filters, "-c:v", "libx265", "-preset", "ultrafast", "-x265-params",
        ":".join([params, *options]), pix_fmt="rgb48le",
    )  # fmt: skip


def prepare(sources: Sequence[Path], tmp_path: Path, **options: Any) -> tuple[shortgop.Dataset, list[tuple[str, ...]]]:
    report = make_dataset(sources, tmp_path / "dataset", **options)
    assert report.failures == ()
    manifest = current_manifest(tmp_path / "dataset")
    return shortgop.open(tmp_path / "dataset"), [manifest.changes(row).given_up for row in range(len(sources))]


def tags(dataset: Path, row: int = 0) -> tuple[int, int, int]:
    config = current_manifest(dataset).config(current_manifest(dataset).video(row).config)
    return config.primaries, config.transfer, config.matrix


COLOURS = [(255, 255, 255), (128, 128, 128), (200, 40, 40), (40, 160, 60), (30, 60, 200), (220, 200, 30)]


@pytest.mark.parametrize("transfer", [PQ, HLG])
def test_hdr_shows_the_colours_that_were_graded_and_is_tagged_bt709(transfer: int, tmp_path: Path) -> None:
    """Colours of BT.709 at the level of white that HDR is graded at (ITU-R BT.2408) come back as they were."""
    patches = np.repeat(np.repeat(np.array(COLOURS)[None], 64, axis=0), 16, axis=1)
    light = ((patches / 255) ** 2.4 * WHITE_NITS) @ TO_BT2020.T
    source = hdr_source(
        tmp_path / "x.mp4", light, transfer,
        "master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)", "max-cll=1000,400",
    )  # fmt: skip
    dataset, given_up = prepare([source], tmp_path, crf=5)
    assert given_up == [("tone-mapped", "10 bits to 8")]
    assert tags(tmp_path / "dataset") == (1, 1, 1)
    frame = dataset[0][0].numpy()
    for index, colour in enumerate(COLOURS[1:], start=1):
        patch = frame[:, 8:56, 16 * index + 5 : 16 * index + 11].mean(axis=(1, 2))
        assert np.abs(patch - colour).max() < 9
    # White gives way to what is brighter than white.
    assert 220 < frame[:, 8:56, 5:11].mean() < 235
    export(DiskStorage(tmp_path / "dataset"), current_manifest(tmp_path / "dataset"), 0, tmp_path / "out.mp4")
    with av.open(tmp_path / "out.mp4") as container:
        shown = next(container.decode(video=0))
        kinds = {side_data.type.name for side_data in cast("Iterable[SideData]", shown.side_data)}
        assert (int(shown.color_primaries), int(shown.color_trc), int(shown.colorspace)) == (1, 1, 1)
    assert not kinds & {"MASTERING_DISPLAY_METADATA", "CONTENT_LIGHT_LEVEL", "DYNAMIC_HDR_PLUS"}


@pytest.mark.parametrize("transfer", [PQ, HLG])
def test_highlights_of_hdr_are_still_told_apart(transfer: int, tmp_path: Path) -> None:
    nits = (
        np.repeat(np.array([50, 100, 203, 400, 1000])[None, :, None], 16, axis=1).repeat(64, axis=0).repeat(3, axis=2)
    )
    dataset, _ = prepare([hdr_source(tmp_path / "x.mp4", nits.astype(float), transfer)], tmp_path, crf=5)
    frame = dataset[0][0].numpy().mean(axis=0)
    levels = [frame[8:56, 16 * index + 5 : 16 * index + 11].mean() for index in range(5)]
    assert all(later - earlier > 4 for earlier, later in itertools.pairwise(levels))
    assert levels[-1] > 250


def test_hdr_is_tone_mapped_at_any_size(tmp_path: Path) -> None:
    grey = np.full((6, 14, 3), 20.0)
    sources = [hdr_source(tmp_path / "small.mkv", np.tile(grey, (8, 4, 1)), PQ)]
    dataset, given_up = prepare(sources, tmp_path, size=Size(short_side=2))
    assert dataset[0][0].shape == (3, 2, 2)
    assert {"tone-mapped", "scaled"} <= set(given_up[0])


def without_zscale(folder: Path) -> Path:
    """An ffmpeg as some systems build it: the same program, but for one filter."""
    program = folder / "ffmpeg"
    real = imageio_ffmpeg.get_ffmpeg_exe()
    program.write_text(
        "#!/bin/bash\n"
        f'case "$*" in\n  *-filters*) "{real}" "$@" | grep -v zscale ;;\n'
        f'  *zscale=*) echo "No such filter: \'zscale\'" >&2; exit 8 ;;\n  *) exec "{real}" "$@" ;;\nesac\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_an_ffmpeg_without_zscale_refuses_hdr_alone_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(without_zscale(tmp_path)))
    find_ffmpeg.cache_clear()
    try:
        plain = encode_pictures(tmp_path / "a.mp4", numbered(range(3)), "-pix_fmt", "yuv420p", *X264)
        hdr = hdr_source(tmp_path / "b.mp4", np.full((64, 96, 3), 100.0), PQ)
        failures = make_dataset([plain, hdr], tmp_path / "dataset").failures
    finally:
        find_ffmpeg.cache_clear()
    assert [failure.id for failure in failures] == ["b.mp4"], failures
    (failure,) = failures
    assert "lacks the filter zscale; run `pip install imageio-ffmpeg`" in failure.reason
    assert len(shortgop.open(tmp_path / "dataset")) == 1


def test_dolby_vision_of_profile_5_is_refused_by_name(tmp_path: Path) -> None:
    params = ("-x265-params", "log-level=error:pools=none:frame-threads=1")
    source = encode_pictures(
        tmp_path / "x.mp4", numbered(range(3)), "-c:v", "libx265", *params, "-pix_fmt", "yuv420p10le", "-tag:v", "hvc1"
    )
    source.write_bytes(source.read_bytes().replace(b"hvc1", b"dvh1"))
    (failure,) = make_dataset([source], tmp_path / "dataset").failures
    assert "Dolby Vision profile 5" in failure.reason


@pytest.fixture(scope="module")
def hevc_hdr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HEVC that calls itself PQ, as some Dolby Vision does that is not."""
    params = ("-x265-params", "log-level=error:pools=none:frame-threads=1")
    tags = ("-color_trc", "smpte2084", "-color_primaries", "bt2020", "-colorspace", "bt2020nc", "-tag:v", "hvc1")
    path = tmp_path_factory.mktemp("dolby") / "x.mp4"
    return encode_pictures(path, numbered(range(3)), "-c:v", "libx265", *params, "-pix_fmt", "yuv420p10le", *tags)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize(
    ("profile", "base", "refused"), [(5, 0, True), (10, 0, True), (10, 1, False), (8, 1, False), (7, 6, False)]
)
def test_dolby_vision_without_a_base_layer_is_known_by_what_the_container_says(
    profile: int, base: int, refused: bool, suffix: str, hevc_hdr: Path, tmp_path: Path
) -> None:
    """Nothing in its frames tells, and their tags are those of HDR."""
    level = 1
    content = bytes([1, 0, profile << 1, level << 3 | 0b101, base << 4]) + bytes(19)
    box = struct.pack(">I4s", 8 + len(content), b"dvvC") + content
    source = tmp_path / "x.mp4"
    source.write_bytes(with_entry_box(hevc_hdr.read_bytes(), box))
    if suffix == "mkv":
        ffmpeg("-i", source, "-c", "copy", "-strict", "unofficial", tmp_path / "x.mkv")
        source = tmp_path / "x.mkv"
    failures = make_dataset([source], tmp_path / "dataset").failures
    assert [f"is Dolby Vision profile {profile}, whose colours" in each.reason for each in failures] == [True] * refused


def test_dolby_vision_of_av1_with_a_name_of_its_own_is_called_that(tmp_path: Path) -> None:
    """FFmpeg does not know that name, and it was said to be of an unknown codec."""
    source = encode_pictures(
        tmp_path / "x.mp4", numbered(range(3)), "-c:v", "libaom-av1", "-cpu-used", "8", "-pix_fmt", "yuv420p10le"
    )
    profile = 10
    content = bytes([1, 0, profile << 1, 0b1101, 0]) + bytes(19)
    box = struct.pack(">I4s", 8 + len(content), b"dvvC") + content
    source.write_bytes(with_entry_box(source.read_bytes(), box).replace(b"av01\0", b"dav1\0"))
    (failure,) = make_dataset([source], tmp_path / "dataset").failures
    assert "is Dolby Vision profile 10, whose colours ffmpeg cannot convert" in failure.reason


@pytest.mark.parametrize("transfer", [1, 2, 14])
def test_sdr_of_wide_gamut_keeps_its_tags_and_its_pixels(transfer: int, tmp_path: Path) -> None:
    source = make_video(
        tmp_path / "x.mkv", pts=constant_rate_pts(Fraction(30), 5), timebase=Fraction(1, 30), pix_fmt="yuv420p10le",
        colorspace=9, color_primaries=9, color_trc=transfer,
    )  # fmt: skip
    dataset, given_up = prepare([source.path], tmp_path)
    assert given_up == [("10 bits to 8",)]
    assert tags(tmp_path / "dataset") == (9, transfer, 9)
    assert [read_number(frame) for frame in dataset[0]] == list(range(5))


COMBINATIONS: list[dict[str, Any]] = [
    dict(zip(("color_primaries", "color_trc", "colorspace"), values, strict=True))
    for values in [*itertools.product((2, 9), (2, 14), (2, 9)), (2, 2, 1), (2, 2, 6), (1, 2, 1), (2, 13, 5), (1, 13, 2)]
]


@pytest.mark.long
def test_every_combination_of_tags_comes_through(tmp_path: Path) -> None:
    """To the manifest, to `metadata`, and to an exported file as other readers see it."""
    sources = [
        make_video(
            tmp_path / f"{number:02}.mkv", pts=constant_rate_pts(Fraction(30), 2), timebase=Fraction(1, 30), **tagged
        ).path
        for number, tagged in enumerate(COMBINATIONS)
    ]
    dataset, _ = prepare(sources, tmp_path)
    names = {2: None, 1: "bt709", 5: "bt470bg", 6: "smpte170m", 9: "bt2020nc"}
    for row, tagged in enumerate(COMBINATIONS):
        expected = (tagged["color_primaries"], tagged["color_trc"], tagged["colorspace"])
        assert tags(tmp_path / "dataset", row) == expected
        assert dataset[row].metadata.color_space == names[tagged["colorspace"]]
        file = tmp_path / f"{row:02}.mp4"
        export(DiskStorage(tmp_path / "dataset"), current_manifest(tmp_path / "dataset"), row, file)
        with av.open(file) as container:
            frame = next(container.decode(video=0))
            assert (int(frame.color_primaries), int(frame.color_trc), int(frame.colorspace)) == expected
        decoder = VideoDecoder(file)
        assert decoder.metadata.color_space == dataset[row].metadata.color_space
        assert (decoder[:1][0] == dataset[row][0]).all()


HEVC_WITH_ALPHA = ("-c:v", "libx265", "-x265-params", "alpha=1:crf=5:log-level=none:pools=none")
OVER_BLACK = {
    "Animation": ("x.mov", "argb", ("-c:v", "qtrle")),
    "PNG": ("x.mov", "rgba", ("-c:v", "png")),
    "PNG of 16 bits": ("x.mov", "rgba64be", ("-c:v", "png")),
    "ProRes 4444": ("x.mov", "yuva444p10le", ("-c:v", "prores_ks", "-profile:v", "4444", "-q:v", "1")),
    "FFV1": ("x.mkv", "yuva420p", ("-c:v", "ffv1")),
    "FFV1, gray": ("x.mkv", "ya8", ("-c:v", "ffv1")),
    "UtVideo": ("x.mkv", "gbrap", ("-c:v", "utvideo")),
    "HEVC in MP4": ("x.mp4", "yuva420p", (*HEVC_WITH_ALPHA, "-tag:v", "hvc1")),
    "HEVC in Matroska": ("x.mkv", "yuva420p", HEVC_WITH_ALPHA),
    "VP9": ("x.webm", "yuva420p", ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-crf", "5")),
    "VP8": ("x.webm", "yuva420p", ("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-auto-alt-ref", "0")),
}  # fmt: skip


@pytest.mark.first_case_short
@pytest.mark.parametrize("kind", OVER_BLACK)
def test_alpha_is_put_over_black(kind: str, tmp_path: Path) -> None:
    """From left to right: opaque, half transparent, and something bright that is not to be seen."""
    name, pix_fmt, options = OVER_BLACK[kind]
    picture = np.full((64, 96, 4), 200, np.uint8)
    picture[:, :32, 3], picture[:, 32:64, 3], picture[:, 64:, 3] = 255, 128, 0
    source = encode_pictures(tmp_path / name, [picture] * 3, "-pix_fmt", pix_fmt, *options, pix_fmt="rgba")
    dataset, given_up = prepare([source], tmp_path, crf=5)
    assert "alpha over black" in given_up[0]
    frame = dataset[0][0].numpy()
    for left, level in ((0, 200), (32, 100), (64, 0)):
        assert np.abs(frame[:, 4:60, left + 6 : left + 26].mean() - level) < 4


def test_a_fourth_byte_that_is_no_alpha_is_not_taken_for_it(tmp_path: Path) -> None:
    """AVI's pictures of 32 bits have one, usually 0."""
    picture = np.full((64, 96, 4), 200, np.uint8)
    picture[..., 3] = 0
    source = encode_pictures(tmp_path / "x.avi", [picture] * 3, "-c:v", "rawvideo", "-pix_fmt", "bgra", pix_fmt="rgba")
    dataset, given_up = prepare([source], tmp_path)
    assert given_up == [("RGB to 4:2:0",)]
    assert np.abs(dataset[0][0].numpy().mean() - 200) < 4


PIXELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gray": ("-c:v ffv1", ()),
    "gray10le": ("-c:v ffv1", ("10 bits to 8",)),
    "yuv410p": ("-c:v ffv1", ()),
    "yuv411p": ("-c:v ffv1", ("chroma 4:1:1 to 4:2:0",)),
    "yuv422p": ("-c:v ffv1", ("chroma 4:2:2 to 4:2:0",)),
    "yuv440p": ("-c:v ffv1", ("chroma 4:4:0 to 4:2:0",)),
    "yuv444p": ("-c:v ffv1", ("chroma 4:4:4 to 4:2:0",)),
    "yuv420p12le": ("-c:v ffv1", ("12 bits to 8",)),
    "yuv444p16le": ("-c:v ffv1", ("16 bits to 8", "chroma 4:4:4 to 4:2:0")),
    "yuvj420p": ("-c:v mjpeg -q:v 2", ("full range to limited",)),
    "bgr0": ("-c:v ffv1", ("RGB to 4:2:0",)),
    "gbrp16le": ("-c:v ffv1", ("16 bits to 8", "RGB to 4:2:0")),
    "rgb555le": ("-c:v rawvideo", ("RGB to 4:2:0",)),
    "pal8": ("-c:v png", ("RGB to 4:2:0",)),
    "monob": ("-c:v png", ()),
    "uyvy422": ("-c:v rawvideo", ("chroma 4:2:2 to 4:2:0",)),
}


def test_every_kind_of_pixel_is_read_right_and_what_it_loses_is_told(tmp_path: Path) -> None:
    sources = []
    for pix_fmt, (codec, _) in PIXELS.items():
        suffix = "mov" if "rawvideo" in codec or "png" in codec else "mkv"
        file = tmp_path / f"{pix_fmt}.{suffix}"
        sources.append(encode_pictures(file, numbered(range(3)), "-pix_fmt", pix_fmt, *codec.split()))
    dataset, given_up = prepare(sources, tmp_path)
    for source, (_, expected) in zip(sources, PIXELS.values(), strict=True):
        row = dataset.ids.index(source.name)
        assert [read_number(frame) for frame in dataset[row]] == [0, 1, 2], source.name
        lost = {text for text in given_up[row] if text != "full range to limited" or "yuvj" in source.name}
        assert lost == set(expected), source.name


def test_rgb_without_tags_becomes_bt709(tmp_path: Path) -> None:
    colour = np.full((64, 96, 3), (192, 64, 32), np.uint8)
    source = encode_pictures(tmp_path / "x.mov", [colour] * 3, "-c:v", "qtrle", "-pix_fmt", "rgb24")
    dataset, _ = prepare([source], tmp_path, crf=5)
    assert tags(tmp_path / "dataset")[2] == 1
    assert np.abs(dataset[0][0].numpy().mean(axis=(1, 2)) - (192, 64, 32)).max() < 3


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_pictures_that_call_themselves_rgb_and_are_not_have_no_known_colours(codec: str, tmp_path: Path) -> None:
    """All three tags are 0, which is RGB as a matrix, and reserved as primaries and transfer."""
    encoder = {"h264": "libx264", "hevc": "libx265"}[codec]
    plain = encode_pictures(tmp_path / "plain.mkv", numbered(range(3)), "-c:v", encoder, "-pix_fmt", "yuv420p")
    tagged = f"{codec}_metadata=colour_primaries=0:transfer_characteristics=0:matrix_coefficients=0"
    source = tmp_path / "x.ts"
    ffmpeg("-i", plain, "-c", "copy", "-bsf:v", tagged, source)
    dataset, _ = prepare([source], tmp_path)
    assert [read_number(frame) for frame in dataset[0]] == [0, 1, 2]
    assert tags(tmp_path / "dataset") == (2, 2, 2)


def test_light_of_openexr_is_shown_as_a_signal(tmp_path: Path) -> None:
    """Half the light of white is 191 of 255 on a display of gamma 2.4."""
    light = np.full((64, 96, 3), 0.5, "<f4")
    raw = ("-f", "rawvideo", "-pix_fmt", "gbrpf32le", "-s", "96x64", "-r", "30", "-i", "-")
    ffmpeg(*raw, "-c:v", "exr", tmp_path / "x.mov", stdin=light.tobytes() * 3)
    dataset, given_up = prepare([tmp_path / "x.mov"], tmp_path, crf=5)
    assert given_up == [("linear light to BT.709", "floating point to 8 bits", "RGB to 4:2:0")]
    assert np.abs(dataset[0][0].numpy().mean() - 191) < 3


def test_streams_that_are_left_behind_are_told(tmp_path: Path) -> None:
    video = encode_pictures(tmp_path / "v.mp4", numbered(range(10)), "-pix_fmt", "yuv420p", *X264)
    (tmp_path / "s.srt").write_text("1\n00:00:00,000 --> 00:00:00,200\nHello\n")
    ffmpeg(
        *("-i", video, "-i", tmp_path / "s.srt", "-f", "lavfi", "-i", "sine=duration=0.3"),
        *("-map", "0:v", "-map", "0:v", "-map", "2:a", "-map", "1:s", "-c:v", "copy", tmp_path / "x.mkv"),
    )
    _, given_up = prepare([tmp_path / "x.mkv"], tmp_path)
    assert given_up == [("audio dropped", "subtitles dropped", "other video dropped")]


def test_the_log_of_ffmpeg_goes_where_the_user_sent_it_no_more_than_anywhere_else(tmp_path: Path) -> None:
    """What ffmpeg is made to report goes through a pipe: no file is left beside the dataset or where the job runs."""
    source = encode_pictures(tmp_path / "x.mp4", numbered(range(3)), "-pix_fmt", "yuv420p", *X264)
    before = set(Path.cwd().iterdir())
    prepare([source], tmp_path)
    assert set(Path.cwd().iterdir()) == before
    assert {path.name for path in tmp_path.iterdir()} == {"x.mp4", "dataset"}
