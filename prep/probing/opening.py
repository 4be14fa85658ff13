"""Opens a source as one file, whatever its contents and its name.

Some of FFmpeg's formats are scripts and playlists that name other files, and FFmpeg takes some image names for a
sequence of files. Neither is opened: PyAV and ffmpeg get a whitelist of the formats that read a single file, and of
protocols only `file`. Scripts with the suffix of their format were given on purpose, see `playlists.py`; for them the
whitelist has their own format as well.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import dropwhile, islice, pairwise
from pathlib import Path
from typing import Any, Protocol

import av
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition
from av.video.stream import VideoStream

from ...errors import NotAVideoError, SourceError
from .codec_names import codec_of
from .containers.edit_list import changes_speed, hides_decoded_first, track_edits
from .containers.file_kinds import HEAD_BYTES, TAIL_BYTES, archive, lost_beginning, what_else
from .containers.mp4_fragments import ends_in_moof
from .containers.sample_entry import DAMAGED_BOXES, track_box
from .containers.transport_packets import has_transport_packets
from .headers.access_units import has_only_headers
from .playlists import OF_ANY_SUFFIX, SCRIPT_DEMUXERS, kind_of, script_demuxer
from .pyav_version import check_pyav
from .signs import promised_end, why_mp4_does_not_open

# The demuxers of FFmpeg 8.1 and 9.0 that read only the given file. Left out are concat, hls, dash, imf, sdp, rtp, rtsp,
# sap, image2, mlv, vobsub, avisynth, vapoursynth, dvdvideo, webm_dash_manifest, devices, and formats without pictures:
# text, and samples without a header.
_FORMATS = """
    3dostr 3g2 3gp 4xm aa aac aax ac3 ac4 ace acm act adf adp ads adx aea afc aiff aix alias_pix alp amr amrnb amrwb
    anm apac apc ape apm apng apv argo_asf argo_brp argo_cvg asf ast au av1 avi avr avs avs2 avs3 bethsoftvid bfi
    bfstm bin bink binka bit bmp_pipe bmv boa bonk brender_pix brstm c93 caf cavsvideo cdg cdxl cine codec2 cri_pipe
    daud dcstr dds_pipe derf dfa dfpwm dhav dirac dnxhd dpx_pipe dsf dsicin dss dts dtshd dv dxa ea ea_cdata eac3
    epaf evc exr_pipe film_cpk filmstrip fits flac flic flv frm fsb fwse g723_1 g728 g729 gdv gem_pipe genh gif
    gif_pipe gsm gxf h261 h263 h264 hcom hdr_pipe hevc hnm hxvs iamf ico idcin idf iff ifv ilbc image2pipe ingenient
    ipmovie ipu ircam iss iv8 ivf ivr j2k_pipe jpeg_pipe jpegls_pipe jpegxl_anim jpegxl_pipe jpegxs_pipe jv kux kvag
    laf lc3 live_flv lmlm4 loas luodat lvf lxf m4a m4v matroska mca mgsts mj2 mjpeg mjpeg_2000 mlp mm mmf mods
    moflex mov mp3 mp4 mpc mpc8 mpeg mpegts mpegtsraw mpegvideo mpjpeg msf msnwctcp msp mtaf mtv musx mv mvi mxf mxg
    nc nistsphere nsp nsv nut nuv obu ogg oma osq oss paf pam_pipe pbm_pipe pcx_pipe pdv pfm_pipe pgm_pipe
    pgmyuv_pipe pgx_pipe phm_pipe photocd_pipe pictor_pipe pmp png_pipe pp_bnk ppm_pipe psd_pipe psxstr pva pvf qcp
    qdraw_pipe qoa qoi_pipe r3d rcwt redspark rka rl2 rm roq rpl rsd rso s337m sbg scd sdns sdr2 sds sdx ser sga
    sgi_pipe shn siff simbiosis_imx smjpeg smk smush sol sox spdif sunrast_pipe svag svg_pipe svs swf tak thp
    tiertexseq tiff_pipe tmv truehd tta tty txd ty usm v210 v210x vag vbn_pipe vc1 vc1test vividas vivo vmd voc vpk
    vqf vvc w64 wady wav wavarc wc3movie webm webp_anim webp_pipe wsaud wsd wsvqa wtv wv wve xa xbin xbm_pipe xmd
    xmv xpm_pipe xvag xwd_pipe xwma yop yuv4mpegpipe
"""
_WHITELIST = ",".join(_FORMATS.split())
# What playlists name beside videos.
_SUBTITLES = "webvtt"
_PROTOCOLS = {"protocol_whitelist": "file"}
_LIMITS = {"format_whitelist": _WHITELIST, **_PROTOCOLS}

# With this option the decoder of H.264 holds back as many frames as the stream's level allows to, where the stream does
# not say how many.
HOLDING_BACK = {"strict": "1"}

WITHOUT_EDITS = {"ignore_editlist": "1"}
# With this option fragments of an MP4 are read one after the other. Otherwise FFmpeg looks at all of them first, and
# does not open a file that ends within the index of the last one.
FRAGMENT_BY_FRAGMENT = {"fflags": "+ignidx"}

_RAW_FORMATS = ("mpegvideo", "m4v", "h264", "hevc", "vvc", "mp3", "aac", "ac3", "eac3")

# The kind of a track, in the box that says it (ISO/IEC 14496-12, 8.4.3 and 12.1).
_HANDLER, _AUXILIARY = slice(8, 12), b"auxv"
_NO_VIDEO = "it is not a video, or its index is cut off; check it, or copy it again"
# With what headers begin that Ogg has as packets, of codecs whose pictures begin otherwise.
_OGG_HEADERS = {
    "theora": re.compile(rb"[\x80-\x82]theora"),
    "vp8": re.compile(rb"OVP80"),
}
# Packets of H.264 and HEVC that have headers alone are shorter.
_MOST_HEADER_BYTES = 256
# So many frames tell whether an encoder made B-frames, and are looked for in so many packets.
_FRAMES_LOOKED_AT, _PACKETS_LOOKED_AT = 64, 256
# Decoders that leave out a damaged frame in silence: what an edit hides is not looked at, and others may refer to it.
_SILENT = ("mpeg1video", "mpeg2video", "mpeg4")
_NOT_THE_FILES_FAULT = (errno.EMFILE, errno.ENFILE, errno.EACCES)


def open_source(path: str) -> InputContainer:
    """Open the file at `path` with PyAV. Other files are opened only if a script given on purpose names them.

    NotAVideoError for a format that names other files, or that FFmpeg does not know; SourceError for a file that cannot
    be read.
    """
    check_pyav()
    follower = script_demuxer(path)
    try:
        if follower is not None:
            return _open(f"file:{path}", follower, limits=_limits_of(follower))
        return _of_mp4(path, _of_transport(path, _of_multipart(path, _open(f"file:{path}"))))
    except av.error.ArgumentError as error:
        # FFmpeg may have taken the name for a pattern of image names, so only the contents determine the format.
        demuxer = _format_by_contents(path)
        if demuxer is None:
            raise _refusal(path, error) from error
        return _open(f"file:{path}", demuxer)
    except av.error.FFmpegError as error:
        if error.errno in _NOT_THE_FILES_FAULT or not ends_in_moof(path):
            raise _refusal(path, error) from error
        return _open(f"file:{path}", limits={**_LIMITS, **FRAGMENT_BY_FRAGMENT})


def _of_multipart(path: str, container: InputContainer) -> InputContainer:
    """The container, or another one: of Motion JPEG with lines between its pictures, which are found without them."""
    if demuxer_of(container) != "mpjpeg":
        return container
    container.close()
    return _open(f"file:{path}", "mjpeg")


def _of_transport(path: str, container: InputContainer) -> InputContainer:
    """The container, or another one: FFmpeg may take a transport stream that begins in the middle of a packet for the
    raw stream that is in it. NotAVideoError for a file that lost its beginning, if it is taken for such a stream: what
    FFmpeg reads as one are also the headers and the sound between its packets."""
    if demuxer_of(container) not in _RAW_FORMATS:
        return container
    if has_transport_packets(path):
        container.close()
        return _open(f"file:{path}", "mpegts")
    if lost := lost_beginning(_head_and_tail(path)[0]):
        container.close()
        raise NotAVideoError(f"{path} does not open as a video: {lost}", file=path)
    return container


def _of_mp4(path: str, container: InputContainer) -> InputContainer:
    """The container, or one without edits that hide what is decoded first, or that FFmpeg shows at another speed."""
    stream = best_video(container) if "mp4" in container.format.name else None
    if stream is None:
        return container
    edits = track_edits(path, stream)
    if not (changes_speed(edits) or hides_decoded_first(path, stream, edits, partial(_shows_as_decoded, path))):
        return container
    container.close()
    return open_without_edits(path)


def _shows_as_decoded(path: str) -> bool:
    """Whether the first frames of an MP4 are shown in the order of their packets: those that decode, as only a part of
    the file may be here. False as well where a decoder leaves out damaged frames in silence."""
    shown: list[int] = []
    with open_without_edits(path) as container, suppress(av.error.FFmpegError):
        stream = video_stream(path, container)
        if codec_of(stream.codec_context) in _SILENT:
            return False
        stream.codec_context.thread_count = 1
        for packet in islice(container.demux(stream), _PACKETS_LOOKED_AT):
            # One that does not decode says nothing of the others.
            with suppress(av.error.FFmpegError):
                shown += [frame.pts for frame in packet.decode() if frame.pts is not None]
            if len(shown) >= _FRAMES_LOOKED_AT:
                break
    return len(shown) > 1 and all(pts < later for pts, later in pairwise(shown))


def open_without_edits(path: str) -> InputContainer:
    """Open an MP4 so that its edits do not count. Errors are FFmpeg's own."""
    return _open(f"file:{path}", limits={**_LIMITS, **WITHOUT_EDITS})


def is_without_edits(container: InputContainer) -> bool:
    """Whether the container was opened so that the edits of an MP4 do not count."""
    return WITHOUT_EDITS.items() <= container.container_options.items()


def is_by_fragment(container: InputContainer) -> bool:
    """Whether the container was opened so that fragments of an MP4 are read one after the other."""
    return FRAGMENT_BY_FRAGMENT.items() <= container.container_options.items()


class Readable(Protocol):
    """What PyAV asks of a file object."""

    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, whence: int, /) -> int: ...

    def tell(self) -> int: ...


def open_contents(file: Readable) -> InputContainer:
    """Open a file object with PyAV, whatever its name. Errors are FFmpeg's own."""
    return _open(_Nameless(file))


def refuse_archive(path: str) -> None:
    """NotAVideoError for an archive, in the middle of which FFmpeg may find a video."""
    packed = archive(_head_and_tail(path)[0])
    if packed:
        raise NotAVideoError(f"{path} does not open as a video: it is {packed}", file=path)


def input_argv(path: str, demuxer: str) -> list[str]:
    """Arguments for ffmpeg to read this one file with the demuxer that PyAV used ("": any on the whitelist)."""
    forced = ["-f", demuxer] if demuxer else []
    limits = _limits_of(demuxer)
    return [*forced, *(word for name, value in limits.items() for word in (f"-{name}", value)), "-i", f"file:{path}"]


def _limits_of(demuxer: str) -> dict[str, str]:
    """The options that limit what a demuxer opens: its own format and, for a script, also the whitelist."""
    if not demuxer:
        return _LIMITS
    if demuxer not in SCRIPT_DEMUXERS:
        return {"format_whitelist": demuxer, **_PROTOCOLS}
    return {"format_whitelist": f"{demuxer},{_WHITELIST},{_SUBTITLES}", **_PROTOCOLS, **SCRIPT_DEMUXERS[demuxer]}


def demuxer_of(container: InputContainer) -> str:
    """The first of the demuxer's names, which ffmpeg accepts for -f."""
    return container.format.name.split(",")[0]


def video_stream(path: str, container: InputContainer) -> VideoStream:
    """The video stream of `best_video`. NotAVideoError when there is none."""
    stream = best_video(container)
    if stream is None:
        what = "no video, only a cover picture" if container.streams.best("video") else "no video stream"
        raise NotAVideoError(f"{path} has {what}", file=path)
    return stream


def stream_at(container: InputContainer, index: int) -> VideoStream:
    """The video stream of this index. TypeError if another one has it."""
    stream = container.streams[index]
    if not isinstance(stream, VideoStream):
        raise TypeError(f"stream {index} is no video")
    return stream


def best_video(container: InputContainer) -> VideoStream | None:
    """FFmpeg's best video stream, without cover art, thumbnails, and tracks of depth or alpha, or the first one that is
    as large: of two lenses FFmpeg would take the one that has more bits, in each file another one. None where there is
    none."""
    pictures = Disposition.attached_pic | Disposition.timed_thumbnails
    streams = [stream for stream in container.streams.video if not stream.disposition & pictures]
    best = container.streams.best("video")
    if best is None or not streams:
        return None
    # A thumbnail may be an ordinary track with one frame, even the default track.
    moving = [stream for stream in streams if not _is_one_frame(stream)] or streams
    moving = [stream for stream in moving if not (len(moving) > 1 and _is_auxiliary(container, stream))] or moving
    chosen = next((stream for stream in moving if stream.index == best.index), moving[0])
    return next(stream for stream in moving if stream is chosen or _is_alike(stream, chosen))


def _is_auxiliary(container: InputContainer, stream: VideoStream) -> bool:
    """Whether a track of an MP4 has what belongs to the pictures of another one, such as depth or alpha."""
    if "mp4" not in container.format.name:
        return False
    with suppress(*DAMAGED_BOXES, OSError):
        return track_box(container.name.removeprefix("file:"), stream.id, b"mdia", b"hdlr")[_HANDLER] == _AUXILIARY
    return False


def _is_alike(one: VideoStream, other: VideoStream) -> bool:
    """Whether two streams have pictures of one size, and are both default tracks, or neither is."""
    # A codec that FFmpeg does not know has no decoder.
    sizes = [(decoder.width, decoder.height) for decoder in (one.codec_context, other.codec_context) if decoder]
    return sizes[:1] == sizes[1:] and not (one.disposition ^ other.disposition) & Disposition.default


def _is_one_frame(stream: VideoStream) -> bool:
    """Whether a track has a single frame, by its header or, in Matroska, by what its tags say of it."""
    if stream.frames:
        return stream.frames == 1
    end, rate = promised_end(stream), stream.average_rate
    return end is not None and rate is not None and end * rate < 2


def packets_of(
    container: InputContainer, stream: VideoStream, stop: int | None = None
) -> Iterator[Packet[VideoStream]]:
    """The packets of a stream in decode order, usually with an empty one at the end. `stop`: the position in the file
    at which it has no more of them, if that is known.

    Instead of the empty one, PyAV raises IndexError where a stream was found after the file was opened, as in transport
    streams whose programme changes. Left out are packets without a picture: some recorders of cameras write parameter
    sets as samples of their own, of ASF, FFmpeg splits headers of H.264 from the frame behind them, an Ogg stream
    behind another one in a file begins with headers too, and a GIF may end in comments.
    """
    decoder = stream.codec_context
    codec = codec_of(decoder)
    may_be_split, is_gif = codec in ("h264", "hevc"), codec == "gif"
    headers = _OGG_HEADERS.get(codec)
    with suppress(IndexError):
        for number, packet in enumerate(_demuxed(container, stream)):
            if stop is not None and packet.pos is not None and packet.pos >= stop:
                return
            # Packets are not copied to look at them, but for those of a GIF, the shortest ones, and the first: some
            # encoders say in it at length what they are.
            if headers is not None and packet.size and headers.match(memoryview(packet)):
                continue
            is_copied = is_gif or (may_be_split and (packet.size <= _MOST_HEADER_BYTES or number == 0))
            if not (is_copied and has_only_headers(codec, bytes(packet), decoder.extradata)):
                yield packet


def _demuxed(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """The packets of a stream. FFmpeg's demuxer of transport streams wants to be asked again where it found none in
    some kilobytes, as in zeros at the end of a file."""
    while True:
        try:
            yield from container.demux(stream)
        except av.error.BlockingIOError:
            continue
        return


def packets_from(container: InputContainer, stream: VideoStream, pts: int | None) -> Iterator[Packet[VideoStream]]:
    """The packets of a stream in decode order, from the one at `pts` on (None: the first), to which the container can
    seek. Some containers begin to read before it."""
    if pts is not None:
        container.seek(pts, stream=stream)
    return dropwhile(lambda packet: pts is not None and packet.pts != pts, packets_of(container, stream))


def is_picture_format(demuxer: str) -> bool:
    """Whether files of this format are a sequence of pictures: one picture alone is no video."""
    return demuxer.endswith("_pipe") or demuxer == "image2pipe"


def _open(file: Any, demuxer: str | None = None, *, limits: dict[str, str] = _LIMITS) -> InputContainer:
    container: InputContainer = av.open(file, format=demuxer, container_options=limits, metadata_errors="replace")
    return container


class _Nameless:
    """A file object without a name, so that FFmpeg sees only the contents."""

    def __init__(self, file: Readable) -> None:
        self.read: Callable[[int], bytes] = file.read
        self.seek: Callable[[int, int], int] = file.seek
        self.tell: Callable[[], int] = file.tell


def _head_and_tail(path: str) -> tuple[bytes, bytes]:
    """The first and the last bytes of a file; none where it cannot be read, of which FFmpeg says why."""
    head = tail = b""
    with suppress(OSError), Path(path).open("rb") as file:
        head = file.read(HEAD_BYTES)
        file.seek(-min(TAIL_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
        tail = file.read(TAIL_BYTES)
    return head, tail


def _format_by_contents(path: str) -> str | None:
    """The demuxer that fits the contents of the file; None when none on the whitelist does."""
    with Path(path).open("rb") as file:
        try:
            with _open(_Nameless(file)) as container:
                return demuxer_of(container)
        except av.error.FFmpegError:
            return None


def _refusal(path: str, error: av.error.FFmpegError) -> SourceError:
    if error.errno in _NOT_THE_FILES_FAULT:
        return SourceError(f"cannot read {path}: {error.strerror}; fix that and run the same command again", file=path)
    kind = kind_of(path)
    if kind is None:
        head, tail = _head_and_tail(path)
        what = what_else(path, head, tail)
        if what:
            return NotAVideoError(f"{path} does not open as a video: {what}", file=path)
        what = why_mp4_does_not_open(path) or _NO_VIDEO
        return NotAVideoError(f"{path} does not open as a video ({error.strerror}): {what}", file=path)
    name, suffix = kind
    if suffix and Path(path).suffix.lower() == suffix:
        what = f"correct it; {OF_ANY_SUFFIX}" if suffix == ".m3u8" else "correct it"
        return NotAVideoError(f"{path} is {name} that does not open: {error.strerror}; {what}", file=path)
    give_it = f"; or, to prepare the files that it names, rename it so that it ends in {suffix}" if suffix else ""
    return NotAVideoError(
        f"{path} is {name}, which refers to other files, and a source is one file; give those files, or join them "
        f"into one (`ffmpeg -i ... -c copy one.mkv`) and give that{give_it}",
        file=path,
    )
