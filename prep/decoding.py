"""What only decoding says of a source: when its frames are shown, and which of them are damaged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import DamagedSourceError, EncodeError
from ..manifests.ragged import Array
from .command import decode_argv
from .encode_run import STATS
from .kept_frames.complaints import first_complaint
from .kept_frames.damage import Damage, assess
from .kept_frames.joins import Evened, Joined, continued_scan
from .kept_frames.scan import scan
from .kept_frames.scanned import Scan
from .probing.bursts import without_bursts
from .probing.containers.edit_list import WITHOUT_EDITS_REMEDY
from .probing.probed_frames import UNREADABLE_REMEDY
from .probing.source_video import EMPTY, SourceVideo, with_pts
from .running.attempts import STATED_ONCE, raise_if_failed, raise_if_killed, raise_if_stated_twice, tried_again
from .running.ffmpeg import is_from_8_on, running
from .running.frame_report import Shown, parse_stats
from .running.mounts import read_in_time
from .stated_twice import WITHOUT_MESSAGES, check_damaged
from .timing.source_times import with_decode_times
from .timing.stated_times import copied_times, estimated_times

# A hole beside damage counts as lost frames up to this length; a longer one is a gap, which the policy decides on.
_MAX_HOLE_SECONDS = 10


class DamageFoundError(Exception):
    """Frames of the source are damaged or missing. `source`: with its times as they are, if only those of damaged
    frames made it look like a recording whose frames arrived several at once."""

    def __init__(self, source: SourceVideo, damage: Damage, joined: Joined | Evened | None) -> None:
        super().__init__(damage.complaint)
        self.source = source
        self.damage = damage
        self.joined = joined


def as_filtered(source: SourceVideo, ffmpeg_path: str) -> SourceVideo:
    """The source, of which ffmpeg is told to keep to the times of packets, and to leave out messages that state what
    the container states too, only if it can be. Versions that cannot do that take what the container states."""
    if is_from_8_on(ffmpeg_path):
        return source
    return replace(source, repeats_times=False, picture=replace(source.picture, stated_twice=False))


def _scanned(source: SourceVideo) -> Scan:
    path, stream_index, delay = source.path, source.stream_index, source.has_unknown_delay
    return tried_again(
        path, lambda: read_in_time(path, lambda: scan(path, stream_index, has_unknown_delay=delay), "reading it")
    )


def look_closer(source: SourceVideo) -> None:
    """Scan the source; DamageFoundError when the scan finds damage."""
    path = source.path
    found, joined = continued_scan(_scanned(source), source.timebase, source.period)
    source = replace(source, begins_unmarked=found.begins_unmarked)
    evened = None
    if joined is None and source.has_bursts and source.pts is not None:
        if _has_bursts_anyhow(source, found):
            evened = Evened(source.arrivals, source.pts)
            found = evened.scan(found)
        else:
            source = replace(with_pts(source, source.arrivals), arrivals=EMPTY, has_decode_times=found.lacks_times)
    damage = assess(found, max_hole_units=int(_MAX_HOLE_SECONDS / source.timebase))
    if damage is not None and source.in_pauses is not None:
        raise DamagedSourceError(
            f"{path} has several edits, and what they show does not decode ({damage.complaint}): it is damaged, or a "
            f"part begins where frames refer to earlier ones; {WITHOUT_EDITS_REMEDY}",
            file=path,
        )
    if damage is not None:
        check_damaged(source, damage.complaint)
        damage = replace(damage, is_only_cut=damage.is_only_cut and joined is None)
        raise DamageFoundError(source, damage, joined or evened)


def _has_bursts_anyhow(source: SourceVideo, found: Scan) -> bool:
    """Whether frames of a source arrived several at once by the times of those packets that are not damaged, of which
    any may be wrong."""
    times = [packet.pts for packet in found.packets if not packet.complaint]
    stated = np.array(sorted(each for each in times if each is not None), dtype=np.int64)
    return len(times) == len(found.packets) or without_bursts(stated, source.timebase, source.rate_hints) is not stated


def decoded(
    source: SourceVideo, ffmpeg_path: str, *, tolerant: bool = False, is_only_cut: bool = False
) -> tuple[SourceVideo, Array]:
    """The source, perhaps with the times of decoding, and the pts that ffmpeg gives to every frame; see
    `decode_shown`. `is_only_cut`: it lacks frames at its start or its end, and none between."""
    shown = tried_again(source.path, lambda: decode_shown(source, ffmpeg_path, tolerant=tolerant))
    is_one = not (tolerant or source.is_joined)
    if is_one and len(copied := copied_times(source, shown)):
        return replace(source, estimated_times=copied), shown.pts
    known = with_decode_times(source, shown.packet_pts)
    if source.repeats_times and not known.repeats_times:
        # ffmpeg is no longer told to keep to the times of packets.
        shown = tried_again(source.path, lambda: decode_shown(known, ffmpeg_path, tolerant=tolerant))
    if is_one or (is_only_cut and not source.is_joined):
        known = replace(known, estimated_times=estimated_times(known, shown))
    return known, shown.pts


def _num_shown_with_messages(source: SourceVideo) -> int:
    """How many frames decoders show of a whole source: of HEVC not those that lead to a first keyframe of open GOPs."""
    found = _scanned(source)
    return len({*found.shown} - found.corrupt)


def _check_all_are_shown(source: SourceVideo, shown: Shown) -> None:
    """EncodeError for a source without whose messages ffmpeg shows fewer frames: they tell where decoding may start."""
    if len(shown.pts) != source.num_packets and len(shown.pts) < _num_shown_with_messages(source):
        remedy = STATED_ONCE if source.codec == "h264" else f"for the others {WITHOUT_MESSAGES}"
        raise EncodeError(
            f"{source.path} says both in its headers and in its container how it is turned, or that it is stereo 3D: "
            f"ffmpeg fails on both, and does not show all frames without the headers' messages; {remedy}",
            file=source.path,
        )


def decode_shown(source: SourceVideo, ffmpeg_path: str, *, tolerant: bool = False) -> Shown:
    """Every frame in the order of ffmpeg's decoder.

    Log lines about damage lead to a scan unless `tolerant`.
    """
    with running(ffmpeg_path, decode_argv(source, STATS), STATS) as run:
        while run.stdout.read(1 << 16):
            pass
    raise_if_killed(run, source.path)
    shown = parse_stats(run.stats, source.timebase)
    complaint = first_complaint(run.stderr.splitlines())
    if complaint and not tolerant:
        look_closer(source)
    if source.picture.stated_twice and not tolerant:
        _check_all_are_shown(source, shown)
    if len(shown.pts) == 0:
        raise_if_stated_twice(run, source.path)
        said = f" ({complaint})" if complaint else ""
        raise DamagedSourceError(f"{source.path}: not one frame decodes{said}; {UNREADABLE_REMEDY}", file=source.path)
    if not tolerant:
        raise_if_failed(run, source.path)
    return shown
