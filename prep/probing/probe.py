"""Finds the properties of a source before ffmpeg runs: reads all packets with PyAV and decodes only a few frames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from ...errors import DamagedSourceError, EncodeError, NotAVideoError, SourceError, SourceNotFoundError
from ...manifests.ragged import Array
from ...wording import missing
from .bursts import without_bursts
from .codec_names import codec_of
from .containers.chains import bytes_before
from .containers.container_crop import container_crop
from .containers.cut_end import is_cut_off
from .containers.dolby_vision import NOT_CONVERTIBLE, profile_without_base
from .containers.edit_list import TrackEdits, changes_speed, cut_of, track_edits, why_edits_are_misread
from .containers.matroska_elements import has_file_behind
from .containers.next_file import Chain, chain_of
from .containers.ordered_chapters import has_other_order
from .containers.reference_movies import why_reference_movie
from .containers.sample_entry import is_index_cut_off
from .containers.track_cut import NO_CUT
from .containers.unread import is_fragmented
from .edited_times import edited_times, retimed
from .headers.motion_jpeg import is_field
from .headers.stated_rates import RAW_DEMUXERS, counted_times
from .listed_parts import why_misread_part
from .opening import (
    best_video,
    demuxer_of,
    is_by_fragment,
    is_without_edits,
    open_source,
    packets_of,
    refuse_archive,
    video_stream,
)
from .other_beginnings import why_misread_fragments, why_misread_joined, why_misread_segments
from .packet_times import (
    begins_with_leading,
    decode_times,
    falls,
    frame_times,
    may_be_times_of_decoding,
    rising,
    stated_times,
    without_leading,
)
from .picture import UNSPECIFIED, picture_of
from .probed_frames import first_frames, frame_of, states_rate
from .recordings import is_joined, period_of
from .signs import JOIN_SEGMENTS, MOOV_IS_CUT, UNSIZED, PacketLog, suspicion_of_end
from .source_video import EMPTY, SourceVideo, with_pts
from .still_pictures import why_motion_photo, why_not_decoded, why_still

# Formats of streams without times, whose frames FFmpeg puts at 25 frames/s where the stream does not state a rate.
_WITHOUT_TIMES = ("apv", "avs2", "avs3", "cavsvideo", "dnxhd", "evc", "h264", "hevc", "mjpeg", "obu", "vc1", "vvc")
# Two frames may well have one time, as where a recorder was stopped at once.
_FEWEST_AT_ONE_TIME = 3
_GIVEN_TIMES = "ffmpeg -i FILE -map 0:v:0 -c copy -f {codec} - | ffmpeg -r RATE -f {codec} -i - -c copy OUT.mp4"
_WITHOUT_CHAPTERS = "ffmpeg -i FILE -map 0 -c copy -map_chapters -1 OUT.mkv"


def probe(path: str, *, by_index: bool = False) -> SourceVideo:
    """Read a source's streams and packets. With `by_index` the content of packets is not looked at: keyframes are those
    that the container calls so, and only the container shows signs of damage.

    SourceNotFoundError, NotAVideoError, DamagedSourceError or another SourceError when it cannot be used.
    """
    _refuse_other_files(path)
    with open_source(path) as container:
        stream = _stream_to_encode(path, container)
        edits = track_edits(path, stream) if "mp4" in container.format.name else TrackEdits()
        if not is_without_edits(container) and (why := why_edits_are_misread(edits)):
            raise EncodeError(f"{path} {why}", file=path)
        # Fragments that are read one after the other have no index yet.
        by_index = by_index and not is_by_fragment(container)
        source = _probe_stream(path, container, stream, edits, by_index=by_index)
        return _with_edited_times(source, stream, edits)


def _refuse_other_files(path: str) -> None:
    """Refuse a file that cannot be read, or that its first bytes show to be no video."""
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


def _unknown_codec(path: str, container: InputContainer, stream: VideoStream) -> SourceError:
    # AV1 with Dolby Vision that nothing else shows has a name of its own.
    if profile := profile_without_base(path, container.format.name, stream.index, stream.id):
        return EncodeError(f"{path} {NOT_CONVERTIBLE.format(profile=profile)}", file=path)
    return NotAVideoError(f"{path} {why_not_decoded(container)}", file=path)


def _stream_to_encode(path: str, container: InputContainer) -> VideoStream:
    """The video stream of a container that FFmpeg shows as players do."""
    best = best_video(container)
    if "mp4" in container.format.name and is_index_cut_off(path, best.id if best else None):
        raise NotAVideoError(f"{path} does not open as a video: {MOOV_IS_CUT}", file=path)
    if "mp4" in container.format.name and (why := why_reference_movie(path, best)):
        raise NotAVideoError(f"{path} is {why}", file=path)
    stream = video_stream(path, container)
    if stream.codec_context is None:
        raise _unknown_codec(path, container, stream)
    if "matroska" in container.format.name and has_other_order(path):
        raise EncodeError(
            f"{path} has ordered chapters: players show its parts in another order, or with parts of other files, "
            f"and FFmpeg shows the file as it lies; to have it so, give OUT.mkv of `{_WITHOUT_CHAPTERS}`",
            file=path,
        )
    if is_fragmented(container, stream) and (why := why_misread_fragments(path)):
        raise EncodeError(f"{path} {why}", file=path)
    if why := why_misread_joined(path, container.format.name, stream):
        raise EncodeError(f"{path} {why}", file=path)
    if container.format.name == "concat" and (why := why_misread_part(path, stream.index)):
        raise EncodeError(f"{path} {why}", file=path)
    return stream


def _with_edited_times(source: SourceVideo, stream: VideoStream, edits: TrackEdits) -> SourceVideo:
    """The source with its frames at the times that the edits of its MP4 say, where FFmpeg gives others."""
    edited = None
    if not source.is_without_edits:
        edited = edited_times(source.path, stream, edits)
    elif source.pts is not None and changes_speed(edits):
        edited = retimed(source.path, edits, source.pts)
    if edited is None:
        return source
    return replace(
        with_pts(source, edited.pts, edited.last_duration),
        has_decode_times=True,
        entries=EMPTY,
        in_pauses=edited.in_pauses,
        arrivals=EMPTY,
    )


@dataclass(frozen=True, eq=False)
class _Read:
    """What the packets of a stream say. `first` is the first one with a frame that is shown, `keyframe` the first of
    those that are keyframes. `places`: where it is probed by the index, (pts, position, bytes) of each packet.
    `keyframes`: the numbers of frames."""

    packets: PacketLog
    first: Packet[VideoStream] | None
    keyframe: Packet[VideoStream] | None
    places: list[tuple[int | None, int | None, int]]
    keyframes: list[int]


def _read_packets(path: str, container: InputContainer, stream: VideoStream, chain: Chain, *, by_index: bool) -> _Read:
    keyframes_at = _keyframes_at(stream) if by_index else None
    is_unsized = container.format.name in UNSIZED and not by_index
    packets = PacketLog(stream.codec_context, keyframes_at=keyframes_at, is_unsized=is_unsized)
    places: list[tuple[int | None, int | None, int]] = []
    keyframes: list[int] = []
    first: Packet[VideoStream] | None = None
    keyframe: Packet[VideoStream] | None = None
    try:
        for packet in packets_of(container, stream, chain.next_begin):
            if not packet.size:
                continue
            if by_index:
                places.append((packet.pts, packet.pos, packet.size))
            if packet.has_sidedata("encryption_info"):
                raise NotAVideoError(f"{path} is encrypted; decrypt it first, with its key", file=path)
            packets.see(packet)
            if packet.is_discard:
                packets.has_hidden = True
            else:
                if packet.is_keyframe:
                    keyframes.append(len(packets.pts))
                    keyframe = keyframe or packet
                packets.add(packet)
                first = first or packet
    except av.error.FFmpegError as error:
        packets.suspect(f"reading stops at packet {len(packets.pts)} of its video ({error.strerror})")
    return _Read(packets, first, keyframe, places, keyframes)


def _keyframes_at(stream: VideoStream) -> frozenset[int]:
    """The positions of keyframes by the index of an MP4; none where it lists none of MPEG-4, so that each frame counts
    as one: FFmpeg would decode from there on, with grey in place of what is missing."""
    positions = [(entry.pos, entry.is_keyframe) for entry in stream.index_entries]
    if codec_of(stream.codec_context) == "mpeg4" and len(positions) > 1 and all(is_key for _, is_key in positions):
        return frozenset()
    return frozenset(position for position, is_keyframe in positions if is_keyframe)


def _refuse_packets(
    path: str, container: InputContainer, stream: VideoStream, packets: PacketLog, chain: Chain
) -> None:
    """Refuse a stream whose packets show that it is no video, or none that FFmpeg shows in order."""
    if not packets.pts:
        if "mp4" in container.format.name and not stream.frames:
            raise NotAVideoError(f"{path} is only the initialization segment of a stream; {JOIN_SEGMENTS}", file=path)
        raise DamagedSourceError(
            f"{path} has a video stream without data; copy or download it again, or unscramble it if it is a broadcast",
            file=path,
        )
    if why := packets.why_out_of_order(container.format.name):
        raise EncodeError(f"{path} is {why}", file=path)
    if _have_one_time(container, stream, packets):
        codec = codec_of(stream.codec_context)
        remedy = _GIVEN_TIMES.format(codec=codec) if codec in ("h264", "hevc") else "ffmpeg -r RATE -i FILE OUT.mp4"
        raise EncodeError(
            f"{path} gives all of its frames one time, as if each lasted 0 s, so it is not known "
            f"when they are shown; give OUT.mp4 of `{remedy}`, with the rate that they have",
            file=path,
        )
    if len(packets.pts) == 1 and chain.broken is None and (still := why_still(path, container)):
        raise NotAVideoError(f"{path} is {still}", file=path)


def _have_one_time(container: InputContainer, stream: VideoStream, packets: PacketLog) -> bool:
    """Whether all frames have one time. Of an MP4 the index says so; FFmpeg may give its packets other times, each as
    much later as all of the track lasts."""
    times: Sequence[int | None] = packets.dts
    if "mp4" in container.format.name and stream.frames:
        times = [entry.timestamp for entry in stream.index_entries]
    return len(times) >= _FEWEST_AT_ONE_TIME and times[0] is not None and len({*times}) == 1


def _probe_stream(
    path: str, container: InputContainer, stream: VideoStream, edits: TrackEdits, *, by_index: bool
) -> SourceVideo:
    if stream.time_base is None:
        raise NotAVideoError(f"{path} has a video stream without a timebase; remux it first", file=path)
    demuxer = demuxer_of(container)
    chain = chain_of(path, demuxer)
    read = _read_packets(path, container, stream, chain, by_index=by_index)
    packets, first = read.packets, read.first
    _refuse_packets(path, container, stream, packets, chain)
    pts, durations = packets.pts, packets.durations
    packets.suspect(suspicion_of_end(path, container, stream, packets, chain))
    leads = begins_with_leading(packets)
    is_one_enough = packets.has_only_frames and not (leads or may_be_times_of_decoding(packets, stream))
    frames = (frame_of(first, stream) if first and is_one_enough else []) or first_frames(path, stream.index)
    frame = frames[0]
    coded = (frame.width, frame.height)
    crop = container_crop(path, container.format.name, stream.index, stream.id, coded)
    joined = is_joined(packets.dts, stream.time_base, period_of(demuxer))
    may_be_joined = demuxer == "matroska" and (falls(packets.dts) or has_file_behind(path))
    if may_be_joined and (why := why_misread_segments(path, stream)):
        raise EncodeError(f"{path} {why}", file=path)
    sound_before = _sound_before(path, container, stream) if demuxer == "avi" else 0
    order, has_decode_times = (
        (None, False) if joined else frame_times(packets, stream, demuxer, frames, sound_before=sound_before)
    )
    order = without_leading(order, frames) if leads and order is not None and not has_decode_times else order
    has_decoded = stream.codec_context.has_b_frames and not joined
    decoded = decode_times(packets, rising(pts)) if has_decoded else None
    last = max(range(len(pts)), key=lambda index: pts[index] or 0)
    codec = codec_of(stream.codec_context)
    picture = picture_of(
        frames, stream, container, has_alpha_layer=packets.has_alpha_layer, aspect_changes=packets.aspect_changes,
        dolby_vision_profile=profile_without_base(path, container.format.name, stream.index, stream.id),
        has_field_pairs=codec == "mjpeg" and bool(first and is_field(bytes(first), frame.height)),
    )  # fmt: skip
    source = SourceVideo(
        path=path,
        stream_index=stream.index,
        codec=codec,
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
        entries=EMPTY if order is None or has_decode_times else packets.entries(container.format.name),
        has_decode_times=has_decode_times,
        decode_times=EMPTY if decoded is None else decoded,
        pts_falls=falls(pts),
        not_coded=np.array(packets.not_coded, dtype=np.int64),
        is_cut_off=is_cut_off(path, container.format.name),
        has_unknown_delay=packets.has_unknown_delay,
        repeats_times=order is None and None not in pts,
        is_joined=joined,
        is_without_edits=is_without_edits(container),
        cut=cut_of(path, stream, edits) if is_without_edits(container) else NO_CUT,
        has_hidden=packets.has_hidden,
        is_by_fragment=is_by_fragment(container),
        has_guessed_rate=demuxer in _WITHOUT_TIMES and not _states_rate(stream, read.keyframe),
        places=np.array([] if order is None else read.places, dtype=np.int64).reshape(-1, 3),
    )
    if demuxer in RAW_DEMUXERS and (counted := counted_times(durations, read.keyframes)) is not None:
        return _at_stated_rates(source, *counted, first=read.keyframes[0])
    source = source if order is None else with_pts(source, order, durations[last])
    return _without_bursts(source, stated_times(packets, stream, order))


def _sound_before(path: str, container: InputContainer, stream: VideoStream) -> int:
    """For how long the sound lasts that lies before the first frame of an AVI, in units of the stream's timebase."""
    seconds = [Fraction(0)]
    for index, length in bytes_before(path, stream.index).items():
        decoder = container.streams[index].codec_context if index < len(container.streams) else None
        if decoder is not None and decoder.type == "audio" and decoder.bit_rate:
            seconds.append(Fraction(8 * length, decoder.bit_rate))
    return int(max(seconds) / (stream.time_base or 1))


def _states_rate(stream: VideoStream, keyframe: Packet[VideoStream] | None) -> bool:
    """Whether a stream without times states its rate, from its first keyframe on."""
    decoder = stream.codec_context
    return bool(decoder.framerate) and (keyframe is None or states_rate(bytes(keyframe), codec_of(decoder)))


def _at_stated_rates(source: SourceVideo, times: Array, last_duration: int, *, first: int) -> SourceVideo:
    """The source, a raw stream of several rates, with its frames at these times. `first`: the first keyframe."""
    intervals = dict.fromkeys([*np.diff(times).tolist(), last_duration])
    rates = tuple(1 / (interval * source.timebase) for interval in intervals)
    source = replace(source, first_counted=first, has_decode_times=True, repeats_times=False, entries=EMPTY)
    return with_pts(replace(source, rate_hints=rates), times, last_duration)


def _without_bursts(source: SourceVideo, times: Array) -> SourceVideo:
    """The source with those of its frames that arrived in bursts, by their `times`, at even ones. Then they are known
    by their order."""
    evened = without_bursts(times, source.timebase, source.rate_hints)
    if evened is times:
        return source
    source = replace(with_pts(source, evened), has_decode_times=True, repeats_times=False)
    return replace(source, entries=EMPTY, arrivals=times)


def _sample_aspect_ratio(stream: VideoStream) -> Fraction:
    ratio = stream.sample_aspect_ratio
    return Fraction(ratio) if ratio and ratio > 0 else Fraction(1)
