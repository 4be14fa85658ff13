"""Finds the properties of a source before ffmpeg runs: reads all packets with PyAV and decodes only a few frames."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ...errors import DamagedSourceError, EncodeError, NotAVideoError, SourceError, SourceNotFoundError
from ...manifests.ragged import Array
from ...wording import missing
from .bursts import without_bursts
from .container_crop import ContainerCrop, container_crop
from .cut_end import is_cut_off
from .dolby_vision import profile_without_base
from .edit_list import TrackEdits, changes_speed, frames_before_cut, track_edits, why_edits_are_misread
from .edited_times import edited_times, retimed
from .opening import (
    best_video,
    demuxer_of,
    is_without_edits,
    open_source,
    packets_of,
    refuse_archive,
    video_stream,
)
from .ordered_chapters import has_other_order
from .packet_times import decode_times, falls, frame_times, may_be_times_of_decoding, rising, stated_times
from .picture import FRAMES_LOOKED_AT, MIXED_FIELDS, PLAIN_PICTURE, UNSPECIFIED, SourcePicture, picture_of
from .recordings import is_joined, period_of
from .sample_entry import is_index_cut_off
from .signs import JOIN_SEGMENTS, MOOV_IS_CUT, PacketLog, suspicion_of_end
from .still_pictures import why_motion_photo, why_still

# Where frames are decoded besides the start, as parts of the duration, and how many packets a decoder may take for one
# frame.
_LATER_PARTS = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
_PACKETS_TO_A_FRAME = 64
_MIXED_FROM_SECONDS = 2
NO_ENTRIES = np.zeros(0, dtype=np.int64)
# Formats of streams without times, whose frames FFmpeg puts at 25 frames/s where the stream does not state a rate.
_WITHOUT_TIMES = ("apv", "avs2", "avs3", "cavsvideo", "dnxhd", "evc", "h264", "hevc", "mjpeg", "obu", "vc1", "vvc")
_WITHOUT_CHAPTERS = "ffmpeg -i FILE -map 0 -c copy -map_chapters -1 OUT.mkv"
UNREADABLE_REMEDY = "copy or download it again, or decrypt it if it is encrypted"


@dataclass(frozen=True, eq=False)
class SourceVideo:
    """The video stream of a source that prep encodes. Arrays are int64, and empty where there is nothing of their kind.

    What it is:

    - `demuxer`: FFmpeg's name for the format; with "" ffmpeg detects it.
    - `width`, `height`: of the coded pictures after the container's `crop`, before `rotation` (degrees, a multiple of
      90) and `sample_aspect_ratio`. `primaries`, `transfer`, `matrix`: code points of ISO/IEC 23091-2.
    - `suspicion`: a sign of damage, "" if there is none. `is_cut_off`: the file ends before the end that it states.
    - `num_packets`: how many packets have frames that are shown. `places`: where it is probed by the index, a row (pts,
      position, bytes) for each packet, in decode order.

    When its frames are shown, in units of `timebase` seconds:

    - `pts`: of every frame, strictly rising; None when the container does not state them, so that the source has to be
      decoded. `end_pts`: where the last frame ends. `rate_hints`: the rates that the container states.
    - `entries`: those of frames that are shown, rising; a decoder that starts at one of them shows all later frames as
      they were encoded.
    - `not_coded`: those of packets of which FFmpeg shows nothing: the frame before is to be shown again.

    Where packets do not simply say that:

    - `has_decode_times`: although there are B-frames, pts rise in the order of decoding, so that no pts is that of its
      own frame. `decode_times`: the times of frames, rising, if they are those of decoding; none where there are no
      B-frames. `pts_falls`: how often the pts of packets do not rise in the order of decoding.
    - `has_unknown_delay`: H.264 that does not say how many frames a decoder has to hold back for its B-frames. FFmpeg
      then finds out as it goes, and leaves out a frame each time that it was too few.
    - `repeats_times`: every packet states a time, and some the same one; ffmpeg is told to keep to these times.
    - `has_guessed_rate`: it has neither times nor a rate, and pts are FFmpeg's guess. `estimated_times`: those of all
      frames, where it states the times of some only, and not the rate of the others.
    - `arrivals`: the pts of packets, where these are the times at which frames arrived, several at once, and `pts` are
      evened. `is_joined`: recordings were joined in it, whose times start anew, in a container of which that is looked
      for.

    What edits of an MP4 do:

    - `has_hidden`: FFmpeg hides the frames of some packets.
    - `is_without_edits`: edits do not count, as they hide what is decoded first, or as FFmpeg shows parts at another
      speed than they say; of the frames in the order shown, the first `num_hidden` are left out in their place.
    - `in_pauses`: the numbers of the frames that FFmpeg shows in place of pauses or between the parts of edits, where
      pts are those of several edits; None where FFmpeg's own are right.
    """

    path: str
    stream_index: int
    codec: str
    width: int
    height: int
    sample_aspect_ratio: Fraction
    rotation: int
    primaries: int
    transfer: int
    matrix: int
    timebase: Fraction
    pts: Array | None
    end_pts: int
    rate_hints: tuple[Fraction, ...]
    num_packets: int = 0
    demuxer: str = ""
    suspicion: str = ""
    picture: SourcePicture = PLAIN_PICTURE
    crop: ContainerCrop | None = None
    entries: Array = field(default_factory=NO_ENTRIES.copy)
    places: Array = field(default_factory=NO_ENTRIES.copy)
    has_decode_times: bool = False
    decode_times: Array = field(default_factory=NO_ENTRIES.copy)
    pts_falls: int = 0
    not_coded: Array = field(default_factory=NO_ENTRIES.copy)
    is_cut_off: bool = False
    has_unknown_delay: bool = False
    repeats_times: bool = False
    is_without_edits: bool = False
    num_hidden: int = 0
    has_hidden: bool = False
    in_pauses: Array | None = None
    has_guessed_rate: bool = False
    estimated_times: Array = field(default_factory=NO_ENTRIES.copy)
    arrivals: Array = field(default_factory=NO_ENTRIES.copy)
    is_joined: bool = False

    @property
    def period(self) -> int | None:
        """After how many units its times begin anew; None if they do not."""
        return period_of(self.demuxer)

    @property
    def has_bursts(self) -> bool:
        """Whether frames arrived several at once, and are put at even times."""
        return len(self.arrivals) > 0

    @property
    def coded_size(self) -> tuple[int, int]:
        """Width and height of the decoded pictures."""
        return (self.crop.coded_width, self.crop.coded_height) if self.crop else (self.width, self.height)


def probe(path: str, *, by_index: bool = False) -> SourceVideo:
    """Read a source's streams and packets. With `by_index` the content of packets is not looked at: keyframes are those
    that the container calls so, and only the container shows signs of damage.

    SourceNotFoundError, NotAVideoError, DamagedSourceError or another SourceError when it cannot be used.
    """
    file = Path(path)
    if not file.exists():
        raise SourceNotFoundError(f"{path} {missing(path, 'check the name')}", file=path)
    if not file.is_file():
        what = "a folder" if file.is_dir() else "not a regular file"
        raise NotAVideoError(f"{path} is {what}, but sources are video files; give one", file=path)
    if not os.access(file, os.R_OK):
        raise SourceError(f"{path} cannot be read: permission denied; change its permissions", file=path)
    if file.stat().st_size == 0:
        raise NotAVideoError(f"{path} is an empty file; copy or download it again", file=path)
    refuse_archive(path)
    if photo := why_motion_photo(path):
        raise NotAVideoError(f"{path} is {photo}", file=path)
    with open_source(path) as container:
        best = best_video(container)
        if "mp4" in container.format.name and is_index_cut_off(path, best.id if best else None):
            raise NotAVideoError(f"{path} does not open as a video: {MOOV_IS_CUT}", file=path)
        stream = video_stream(path, container)
        if stream.codec_context is None:
            raise NotAVideoError(f"{path} has a video codec that FFmpeg does not know; convert it first", file=path)
        if "matroska" in container.format.name and has_other_order(path):
            raise EncodeError(
                f"{path} has ordered chapters: players show its parts in another order, or with parts of other files, "
                f"and FFmpeg shows the file as it lies; to have it so, give OUT.mkv of `{_WITHOUT_CHAPTERS}`",
                file=path,
            )
        edits = track_edits(path, stream) if "mp4" in container.format.name else TrackEdits()
        are_followed = not is_without_edits(container)
        if are_followed and (why := why_edits_are_misread(edits)):
            raise EncodeError(f"{path} {why}", file=path)
        source = _probe_stream(path, container, stream, edits, by_index=by_index)
        edited = None
        if are_followed:
            edited = edited_times(path, stream, edits)
        elif source.pts is not None and changes_speed(edits):
            edited = retimed(path, edits, source.pts)
        if edited is None:
            return source
        return replace(
            with_pts(source, edited.pts, edited.last_duration),
            has_decode_times=True,
            entries=NO_ENTRIES,
            in_pauses=edited.in_pauses,
            arrivals=NO_ENTRIES,
        )


def _probe_stream(
    path: str, container: InputContainer, stream: VideoStream, edits: TrackEdits, *, by_index: bool
) -> SourceVideo:
    if stream.time_base is None:
        raise NotAVideoError(f"{path} has a video stream without a timebase; remux it first", file=path)
    keyframes_at = frozenset(entry.pos for entry in stream.index_entries if entry.is_keyframe) if by_index else None
    packets = PacketLog(stream.codec_context, keyframes_at=keyframes_at)
    places: list[tuple[int | None, int | None, int]] = []
    first: Packet[VideoStream] | None = None
    try:
        for packet in packets_of(container, stream):
            if packet.size and by_index:
                places.append((packet.pts, packet.pos, packet.size))
            if packet.size and packet.has_sidedata("encryption_info"):
                raise NotAVideoError(f"{path} is encrypted; decrypt it first, with its key", file=path)
            if packet.size:
                packets.see(packet)
            if packet.size and not packet.is_discard:
                packets.add(packet)
                first = first or packet
            elif packet.size:
                packets.has_hidden = True
    except av.error.FFmpegError as error:
        packets.suspect(f"reading stops at packet {len(packets.pts)} of its video ({error.strerror})")
    pts, durations = packets.pts, packets.durations
    if not pts:
        if "mp4" in container.format.name and not stream.frames:
            raise NotAVideoError(f"{path} is only the initialization segment of a stream; {JOIN_SEGMENTS}", file=path)
        raise DamagedSourceError(
            f"{path} has a video stream without data; copy or download it again, or unscramble it if it is a broadcast",
            file=path,
        )
    if why := packets.why_out_of_order(container.format.name):
        raise EncodeError(f"{path} is {why}", file=path)
    if len(pts) == 1 and (still := why_still(path, container)):
        raise NotAVideoError(f"{path} is {still}", file=path)
    packets.suspect(suspicion_of_end(path, container, stream, packets))
    is_one_enough = packets.has_only_frames and not may_be_times_of_decoding(packets, stream)
    frames = (_frame_of(first, stream) if first and is_one_enough else []) or first_frames(path, stream.index)
    frame = frames[0]
    coded = (frame.width, frame.height)
    crop = container_crop(path, container.format.name, stream.index, stream.id, coded)
    demuxer = demuxer_of(container)
    joined = is_joined(packets.dts, stream.time_base, period_of(demuxer))
    order, has_decode_times = (None, False) if joined else frame_times(packets, stream, demuxer, frames)
    has_decoded = stream.codec_context.has_b_frames and not joined
    decoded = decode_times(packets, rising(pts)) if has_decoded else None
    last = max(range(len(pts)), key=lambda index: pts[index] or 0)
    picture = picture_of(
        frames, stream, container, has_alpha_layer=packets.has_alpha_layer, aspect_changes=packets.aspect_changes,
        dolby_vision_profile=profile_without_base(path, container.format.name, stream.index, stream.id),
    )  # fmt: skip
    source = SourceVideo(
        path=path,
        stream_index=stream.index,
        codec=stream.codec_context.name,
        width=crop.width if crop else frame.width,
        height=crop.height if crop else frame.height,
        sample_aspect_ratio=_sample_aspect_ratio(stream),
        rotation=round(frame.rotation / 90) * 90 % 360,
        # 0 is reserved, and no encoder takes it.
        primaries=int(frame.color_primaries) or UNSPECIFIED,
        transfer=int(frame.color_trc) or UNSPECIFIED,
        matrix=UNSPECIFIED if picture.false_matrix else int(frame.colorspace),
        timebase=stream.time_base,
        pts=order,
        end_pts=0,
        rate_hints=tuple(
            Fraction(rate) for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate) if rate
        ),
        num_packets=len(pts),
        demuxer=demuxer,
        suspicion=packets.suspicion,
        picture=picture,
        crop=crop,
        entries=NO_ENTRIES if order is None or has_decode_times else packets.entries(container.format.name),
        has_decode_times=has_decode_times,
        decode_times=NO_ENTRIES if decoded is None else decoded,
        pts_falls=falls(pts),
        not_coded=np.array(packets.not_coded, dtype=np.int64),
        is_cut_off=is_cut_off(path, container.format.name),
        has_unknown_delay=packets.has_unknown_delay,
        repeats_times=order is None and None not in pts,
        is_joined=joined,
        is_without_edits=is_without_edits(container),
        num_hidden=frames_before_cut(path, stream, edits) if is_without_edits(container) else 0,
        has_hidden=packets.has_hidden,
        has_guessed_rate=demuxer in _WITHOUT_TIMES and not stream.codec_context.framerate,
        places=np.array([] if order is None else places, dtype=np.int64).reshape(-1, 3),
    )
    source = source if order is None else with_pts(source, order, durations[last])
    return _without_bursts(source, stated_times(packets, stream, order))


def _without_bursts(source: SourceVideo, times: Array) -> SourceVideo:
    """The source with those of its frames that arrived in bursts, by their `times`, at even ones. Then they are known
    by their order."""
    evened = without_bursts(times, source.timebase, source.rate_hints)
    if evened is times:
        return source
    source = replace(with_pts(source, evened), has_decode_times=True, repeats_times=False)
    return replace(source, entries=NO_ENTRIES, arrivals=times)


def with_pts(source: SourceVideo, pts: Array, last_duration: int = 0) -> SourceVideo:
    """The source with its frames at `pts`. The last frame lasts `last_duration` or, where that is 0, the median
    interval."""
    if not last_duration:
        rate = source.rate_hints[0] if source.rate_hints else Fraction(25)
        last_duration = int(np.median(np.diff(pts))) if len(pts) > 1 else max(1, round(1 / (rate * source.timebase)))
    return replace(source, pts=pts, end_pts=int(pts[-1]) + last_duration)


def _sample_aspect_ratio(stream: VideoStream) -> Fraction:
    ratio = stream.sample_aspect_ratio
    return Fraction(ratio) if ratio and ratio > 0 else Fraction(1)


def _video(container: InputContainer, stream_index: int) -> VideoStream:
    stream = container.streams[stream_index]
    if not isinstance(stream, VideoStream):
        raise TypeError(f"stream {stream_index} is no video")
    return stream


def _frame_of(packet: Packet[VideoStream], stream: VideoStream) -> list[VideoFrame]:
    """The frame of a keyframe's packet, if it decodes; nothing else can be decoded with the stream then. It is enough
    for a stream that has only frames, which have no fields to look for, and takes far less than `first_frames`."""
    if not packet.is_keyframe:
        return []
    decoder = stream.codec_context
    # Only its properties are wanted, and threads take longer to start than they save.
    decoder.thread_count, decoder.options = 1, {"skip_loop_filter": "all"}
    found: list[object] = []
    with contextlib.suppress(av.error.FFmpegError):
        # Without the end of the stream a decoder gives the frame only after several packets.
        found = [*packet.decode(), *decoder.decode(None)]
    return _sound(found)[:1]


def first_frames(path: str, stream_index: int, opened: InputContainer | None = None) -> list[VideoFrame]:
    """The first frames that decode: size, rotation, colours and fields are taken from them, not from the container.
    They are read from `opened`, if it is given, and it is closed."""
    frames: list[VideoFrame] = []
    with opened or open_source(path) as container, contextlib.suppress(av.error.FFmpegError):
        for frame in _sound_frames(container, stream_index):
            frames.append(frame)
            if len(frames) == FRAMES_LOOKED_AT or frame.interlaced_frame:
                break
        if frames and not frames[-1].interlaced_frame:
            frames.extend(_later_frames(container, stream_index))
    if not frames:
        raise DamagedSourceError(f"{path}: not one frame decodes; {UNREADABLE_REMEDY}", file=path)
    return frames


def _sound_frames(container: InputContainer, stream_index: int) -> Iterator[VideoFrame]:
    for packet in packets_of(container, _video(container, stream_index)):
        found: Sequence[object] = ()
        with contextlib.suppress(av.error.InvalidDataError):
            found = packet.decode()
        yield from _sound(found)


def _sound(decoded: Sequence[object]) -> list[VideoFrame]:
    return [frame for frame in decoded if isinstance(frame, VideoFrame) and not frame.is_corrupt]


def _later_frames(container: InputContainer, stream_index: int) -> Iterator[VideoFrame]:
    """A frame from each of the later parts of the source: broadcasts switch between film and video. Errors of the
    decoder are ignored here; the checks for damage find them."""
    stream = _video(container, stream_index)
    duration = Fraction(container.duration or 0, av.time_base)
    if stream.codec_context.name not in MIXED_FIELDS or duration < _MIXED_FROM_SECONDS:
        return
    for part in _LATER_PARTS:
        with contextlib.suppress(av.error.FFmpegError):
            container.seek(int((container.start_time or 0) + part * duration * av.time_base))
            for packet in itertools.islice(packets_of(container, stream), _PACKETS_TO_A_FRAME):
                found = [frame for frame in packet.decode() if isinstance(frame, VideoFrame)]
                if found:
                    yield found[-1]
                    break
