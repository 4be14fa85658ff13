"""When the frames of a stream are shown, by its packets, and whether these times are those of decoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ...manifests.ragged import Array
from .codec_names import codec_of
from .picture import FRAMES_LOOKED_AT
from .signs import PacketLog

# Demuxers of containers that give each packet one time, at which it is decoded. FFmpeg works out when frames are shown,
# wrongly for the first and the last one around B-frames.
_ONE_TIME = ("avi", "asf", "gxf")
# Of how many intervals the rate of a stream is known, and how many frames an encoder holds back for B-frames at most.
_FEWEST_STEPS, _MOST_HELD_BACK = 8, 4
# Chunks of sound last some time, so that what lies before a frame may be longer or shorter than it is late.
_SOUND_PART = 1.25
# FFmpeg copies a time that it does not know as the least number of 64 bits. Distances have to have 64 bits as well.
_MOST_APART = (1 << 63) - 1
_NO_STEPS = np.zeros(0, dtype=np.int64)


def may_be_times_of_decoding(packets: PacketLog, stream: VideoStream) -> bool:
    """Whether the first frames have to be decoded to tell if pts are times of decoding: although there may be B-frames,
    pts rise in the order of decoding, and they are later than dts."""
    return packets.rises and bool(stream.codec_context.has_b_frames) and not packets.has_decode_times


def frame_times(
    packets: PacketLog, stream: VideoStream, demuxer: str, frames: Sequence[VideoFrame], *, sound_before: int = 0
) -> tuple[Array | None, bool]:
    """The times of a stream's frames, int64, rising, or None where packets do not tell them, and whether they are those
    of decoding. `frames`: the first ones that decode; `sound_before`: for how long, in units of the timebase, the sound
    lasts that lies before them in an AVI."""
    order = rising(packets.pts)
    if not stream.codec_context.has_b_frames:
        # FFmpeg expected them, and took each time for that of decoding, and the next one for that at which it is shown.
        even = _only_times(packets, order, sound_before) if demuxer in _ONE_TIME else order
        even = _as_browsers(order) if demuxer == "gif" else even
        return even, _differ(even, order)
    if demuxer in _ONE_TIME:
        stated, order = order, _with_even_end(_in_order(packets.pts))
        if codec_of(stream.codec_context) == "h264":
            # Its slices say in which order frames are shown, and FFmpeg reads them.
            order = _with_their_chunks(order, packets) if demuxer == "avi" else order
            return order, order is not None and (packets.has_decode_times or _differ(order, stated))
        decoded = decode_times(packets, order) if None not in packets.pts else order
        if _differ(decoded, stated):
            return decoded, True
    even = decode_times(packets, order)
    is_late = may_be_times_of_decoding(packets, stream) and falls([frame.pts for frame in frames[:FRAMES_LOOKED_AT]])
    # FFmpeg takes the first frame of raw MPEG-1 for one that is shown when it is decoded, and others for later ones.
    is_first_early = demuxer == "mpegvideo" and packets.rises and _differ(even, order)
    # Of packed frames FFmpeg takes the time of the packet that they are in, and not of the one that stands for them.
    # Where it unpacked them, it counted times as if each had its own.
    was_packed = packets.is_packed or packets.is_unpacked
    has_decode_times = order is not None and bool(packets.has_decode_times or was_packed or is_late or is_first_early)
    return (even if has_decode_times else order), has_decode_times


def _with_their_chunks(times: Array | None, packets: PacketLog) -> Array | None:
    """The times of B-frames in an AVI, an interval earlier where FFmpeg gives each packet the time of the next chunk:
    the sound, which has no times, is not as late. That of the first chunk may be 0 where the video begins later."""
    decoded = rising(packets.dts)
    if times is None or len(times) < 2 or decoded is None or _differ(times[:-1], decoded[1:]):
        return times
    return times - int(np.median(np.diff(times)))


def _only_times(packets: PacketLog, order: Array | None, sound_before: int) -> Array | None:
    """The one time of each packet, in rising order, of a stream without B-frames. `order`: the pts of packets, if they
    rise when they are sorted."""
    decoded = rising(packets.dts)
    if decoded is None or not _differ(decoded, order):
        return _with_even_end(_in_order(packets.pts))
    steps = np.diff(decoded)
    # FFmpeg writes the first frame of an AVI as if it began at 0, however late that is, but behind the sound before it.
    # Where there is no sound before it, the first frame lasts so long.
    interval = np.median(steps) if len(steps) > 1 else 0
    if len(steps) > 1 and interval / 2 < steps[0] - interval <= _SOUND_PART * sound_before:
        return np.concatenate([[decoded[1] - int(interval)], decoded[1:]])
    return decoded


def begins_with_leading(packets: PacketLog) -> bool:
    """Whether frames that are decoded behind the first one are shown before it: they may refer to frames before the
    file's start, and then no decoder shows them."""
    known = packets.known_pts
    return len(known) == len(packets.pts) and min(known) < known[0]


def without_leading(order: Array, frames: Sequence[VideoFrame]) -> Array:
    """The times of those frames that are shown. `frames`: the first ones that decode."""
    decoded = [frame.pts for frame in frames[:FRAMES_LOOKED_AT]]
    known = [pts for pts in decoded if pts is not None]
    return order[order >= min(known)] if len(known) == len(decoded) else order


def stated_times(packets: PacketLog, stream: VideoStream, order: Array | None) -> Array:
    """The times of all frames, int64, in their order, which may be the same for some; none if packets do not tell."""
    if order is not None:
        return order
    known = packets.known_pts
    # Around B-frames, times that never fall in the order of decoding are those at which packets arrived.
    is_known = len(known) == len(packets.pts) and (not stream.codec_context.has_b_frames or known == sorted(known))
    return np.array(known if is_known else [], dtype=np.int64)


def _differ(times: Array | None, others: Array | None) -> bool:
    if times is None or others is None:
        return times is not others
    return not np.array_equal(times, others)


def decode_times(packets: PacketLog, order: Array | None) -> Array | None:
    """The times of frames, int64, rising, that are shown when packets are decoded; None where packets do not tell.
    `order`: the pts of packets, if they rise when they are sorted. They may be uneven, as may the times of decoding:
    FFmpeg makes some of them up."""
    decoded = None if packets.not_coded else rising(packets.dts)
    is_evener = decoded is not None and (order is None or _unevenness(decoded) < _unevenness(order))
    found = decoded if is_evener else order
    return _without_delay(found) if packets.is_unpacked else found


def falls(times: Iterable[int | None]) -> int:
    """How many times do not rise, of those that are known."""
    return sum(later <= time for time, later in pairwise(time for time in times if time is not None))


def rising(times: Sequence[int | None]) -> Array | None:
    """The times in rising order, or None when some are missing or occur twice, or are too far apart to be times."""
    known = [value for value in times if value is not None]
    if len(known) < len(times) or max(known, default=0) - min(known, default=0) > _MOST_APART:
        return None
    ordered = np.sort(np.array(known, dtype=np.int64))
    return None if (np.diff(ordered) == 0).any() else ordered


def _in_order(times: Sequence[int | None]) -> Array | None:
    """The times in rising order, of which the last two may be the same, as FFmpeg copies its guess of the last one;
    None when some are missing, or others occur twice."""
    known = sorted(time for time in times if time is not None)
    is_same = len(known) > 2 and known[-1] == known[-2]
    order = rising(known[: len(known) - is_same]) if len(known) == len(times) else None
    return np.append(order, order[-1]) if order is not None and is_same else order


def _with_even_end(times: Array | None) -> Array | None:
    """The times, or others where the last one is a guess of the demuxer, which knows no packet behind it: shortly after
    the one before."""
    if times is None or len(times) < 3 or 2 * (times[-1] - times[-2]) >= times[-2] - times[-3]:
        return times
    return np.concatenate([times[:-1], [2 * times[-2] - times[-3]]])


def _without_delay(times: Array | None) -> Array | None:
    """The times of B-frames that were packed, with the first one an interval before the next. In AVI, the chunks that
    an encoder left empty until it had the frames that it needs for the first B-frame lie between these two."""
    steps = np.diff(times) if times is not None else _NO_STEPS
    if times is None or len(steps) < _FEWEST_STEPS or np.ptp(steps[1:]) > 1:
        return times
    interval = int(steps[1:].min())
    is_delay = interval < steps[0] <= _MOST_HELD_BACK * (interval + 1)
    return np.concatenate([[times[1] - interval], times[1:]]) if is_delay else times


def _as_browsers(times: Array | None) -> Array | None:
    """The times of a GIF, in hundredths of a second, each of whose pictures is shown for a tenth of a second where the
    GIF says one hundredth."""
    if times is None or (np.diff(times) > 1).all():
        return times
    delays = np.diff(times)
    return np.asarray(times[0] + np.cumsum(np.concatenate([[0], np.where(delays > 1, delays, 10)])))


def _unevenness(times: Array) -> int:
    return int(np.ptp(np.diff(times))) if len(times) > 1 else 0
