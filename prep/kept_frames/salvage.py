"""Decides whether a damaged source is prepared, and which frames of the video are marked as salvaged."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...errors import DamagedSourceError
from ...manifests.ragged import Array
from ...wording import counted
from ..options import SourcePolicy
from ..probing.containers.transport_packets import REPEATED
from ..running.frame_report import NO_PTS, Shown
from .damage import Damage
from .joins import Evened, Join, Joined, joins_of
from .kept import Kept, kept_numbers

_REMEDIES = {REPEATED: "remove the repeats, with a program for broadcasts, and give what it writes"}


@dataclass(frozen=True, eq=False)
class Salvaged:
    """The frames of a damaged source that are used, as ffmpeg's decoder puts them out.

    `decoded_pts`: the right time of each frame of its output, NO_PTS where it is unknown. `pts`: those of the frames
    that are used, rising. `kept` selects these frames by their number, and `joins` moves them from the times that
    ffmpeg gives them to the right ones.
    """

    decoded_pts: Array
    pts: Array
    kept: Kept
    joins: tuple[Join, ...]


def salvaged_frames(shown: Shown, damage: Damage, joined: Joined | Evened | None) -> Salvaged | None:
    """The sound frames in the output of ffmpeg's decoder, `shown`; None where there are none, or not in their order.

    Once more pts than dts have fallen in the decoder's output, as they may at a damaged place, libavcodec guesses the
    times of frames from dts. These differ from the pts where a packet is missing among B-frames. So a frame is known by
    the pts of its packet, and not by the time that ffmpeg's filters get.
    """
    pts = _packet_pts(shown, damage) if joined is None else joined.of(shown.packet_pts)
    keeps = np.isin(pts, damage.sound_pts)
    used = pts[keeps]
    if not len(used) or (np.diff(used) <= 0).any():
        return None
    return Salvaged(pts, used, kept_numbers(keeps.tolist()), joins_of(shown.pts[keeps], used))


def _packet_pts(shown: Shown, damage: Damage) -> Array:
    """The pts of frames' packets. Of formats without times, and of some without an index, ffmpeg gives some packets
    none. If it shows as many frames as the scan, with the same times where it gives them, they are those of the
    scan."""
    known = shown.packet_pts != NO_PTS
    is_alike = len(known) == len(damage.shown_pts) and not known.all()
    if is_alike and (shown.packet_pts[known] == damage.shown_pts[known]).all():
        return damage.shown_pts
    return shown.packet_pts


def salvaged_runs(shown: Array, due: Array) -> tuple[tuple[int, int], ...]:
    """Runs [first, stop) of frames that show another source frame (`shown`) than they would without damage (`due`); one
    pts for each frame."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], shown != due, [False]]).astype(np.int8)))
    return tuple((int(first), int(stop)) for first, stop in edges.reshape(-1, 2))


def check_salvage(path: str, damage: Damage, timebase: Fraction, policy: SourcePolicy) -> None:
    """DamagedSourceError if no sound frame is left, or if the policy does not accept the damage."""
    first, stop = damage.sound_run
    if not (len(damage.sound_pts) if damage.has_times else stop - first):
        raise DamagedSourceError(
            f"{path} is damaged ({damage.complaint}): not one frame is certain to decode as it was encoded; "
            f"{_REMEDIES.get(damage.complaint, 'copy or download it again')}",
            file=path,
        )
    if damage.is_only_cut or policy.salvage:
        return
    lost = "is lost or refers to a lost one" if damage.lost == 1 else "are lost or refer to lost ones"
    where = ""
    if damage.has_times and damage.first_lost_pts is not None:
        seconds = (damage.first_lost_pts - int(min(damage.sound_pts[0], damage.first_lost_pts))) * timebase
        where = f", {'' if damage.lost == 1 else 'the first of them '}at {float(seconds):.3f} s"
    if damage.lost == 0:
        raise DamagedSourceError(
            f"{path} is damaged: all of the {counted(damage.total, 'frame')} that are found decode, but others may be "
            f"missing ({damage.complaint}); --salvage prepares those that are found",
            file=path,
        )
    raise DamagedSourceError(
        f"{path} is damaged: {damage.lost} of its {counted(damage.total, 'frame')} {lost}{where} "
        f"({damage.complaint}); --salvage prepares the others",
        file=path,
    )
