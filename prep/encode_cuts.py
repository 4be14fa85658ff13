"""Turns stretches of one source into videos: the source is probed once, and decoded once for all that do not overlap.

Each run of ffmpeg encodes several stretches, one after the other, and its report of the frames that it shows is
compared with the plan as for a whole video (`encode.py`). A run may start reading at a keyframe shortly before its
first stretch. The report also says how many frames the decoder put out before the first one that is shown. If that
does not fit the keyframe, the container cannot be seeked exactly, and the run is repeated from the source's start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ..errors import DamagedSourceError, OutputError, ToolError
from ..manifests.lacking import CUT_OFF
from ..manifests.ragged import Array
from ..manifests.tables import Manifest
from .command import Encode
from .decoding import DamageFoundError, as_filtered, decode_shown, decoded, look_closer
from .encode import not_as_planned, others_than_planned, plan_video
from .encode_run import Count, Plan, of_piece
from .gpu_attempts import attempt
from .kept_frames.damage import Damage
from .kept_frames.joins import Join, joins_of
from .kept_frames.kept import Kept, kept_numbers
from .kept_frames.salvage import check_salvage, salvaged_frames, salvaged_runs
from .manifest_rows import EncodedVideo, Identity, video_manifest
from .options import Options
from .part_of_file import NeedsWholeFileError, PartlyFetched, fetched_runs, probe_by_index
from .pictures.picture_filters import least_lead_frames
from .probing.probe import probe
from .probing.recordings import on_one_clock, recordings
from .probing.source_video import EMPTY, SourceVideo, with_pts
from .running.attempts import tried_again
from .running.mounts import read_in_time
from .running.stalls import stall_limit
from .shards import ShardWriter
from .timing.grid import FrameGrid
from .timing.mended_times import mended_times
from .timing.pieces import Piece, Run, joined_grid, runs_of
from .timing.rising_times import longest_rise
from .timing.source_times import (
    at_times,
    check_order,
    gaps_of,
    may_have_lost,
    plan_stretch,
    rhythm_of,
    states_times,
    times_of,
    used_numbers,
)
from .timing.stretch import Stretch, reaches_end
from .tools.pipelines import decoded_on_cpu


@dataclass(frozen=True)
class CutOut:
    """A video to make from a stretch of a source."""

    identity: Identity
    stretch: Stretch


def prepare_cuts(
    path: str,
    cuts: Sequence[CutOut],
    options: Options,
    ffmpeg_path: str,
    shards: ShardWriter,
    *,
    on_plan: Count,
    on_frames: Count,
    part: PartlyFetched | None = None,
) -> list[Manifest | Exception]:
    """Encode stretches of one source into `shards`: the rows of each, or the reason why there are none.

    `on_plan` is called with the number of frames that all videos together will have, `on_frames` as by
    `prepare_video`. OutputError and ToolError are raised, with the shards as they were before. With `part` only what
    the stretches need of the file is fetched; NeedsWholeFileError is raised where that is not enough.
    """
    mark = shards.mark()
    try:
        with stall_limit(float(options.policy.max_stall_seconds)):
            work = _Work(path, cuts, options, ffmpeg_path, shards, on_plan, on_frames, part)
            try:
                work.run()
            except (OutputError, ToolError, NeedsWholeFileError):
                raise
            except Exception as error:
                if part is not None:
                    raise NeedsWholeFileError(str(error)) from error
                # What is done is kept; the reason stands for all others.
                work.refuse(work.left(), error)
            return [work.results[number] for number in range(len(cuts))]
    except BaseException:
        shards.rollback(mark)
        raise


@dataclass
class _Work:
    """The cuts of one source, and the results so far by the number of the cut."""

    path: str
    cuts: Sequence[CutOut]
    options: Options
    ffmpeg_path: str
    shards: ShardWriter
    on_plan: Count
    on_frames: Count
    part: PartlyFetched | None = None
    results: dict[int, Manifest | Exception] = field(default_factory=dict)
    looked_closer: bool = False
    differences: list[str] = field(default_factory=list)

    def left(self) -> list[int]:
        return [number for number in range(len(self.cuts)) if number not in self.results]

    def refuse(self, numbers: Iterable[int], error: Exception) -> None:
        self.results.update(dict.fromkeys(numbers, error))

    def run(self) -> None:
        path = self.path
        part = self.part
        look = partial(probe, path) if part is None else partial(probe_by_index, part)
        source = as_filtered(tried_again(path, lambda: read_in_time(path, look, "reading it")), self.ffmpeg_path)
        try:
            self._cut_whole(source)
        except DamageFoundError as found:
            check_salvage(path, found.damage, source.timebase, self.options.policy)
            self._cut_sound_part(found)

    def _cut_whole(self, source: SourceVideo) -> None:
        """Cut a source of which all frames are sound; DamageFoundError when some are damaged or missing."""

        def look() -> None:
            # Once is enough: what is sound stays sound.
            if self.part is not None:
                raise NeedsWholeFileError("it may be damaged")
            if not self.looked_closer:
                look_closer(source)
                self.looked_closer = True

        if source.suspicion:
            look()
        if states_times(source):
            pieces = self._pieces(source)
            lead_frames = least_lead_frames(source, self.options.profile)
            if self.part is None:
                runs = runs_of(pieces, times_of(source), source.entries, source.timebase, lead_frames)
            else:
                runs = fetched_runs(self.part, source, pieces, lead_frames)
            self._encode(source, runs, look)
        if not self.left():
            return
        if self.part is not None:
            raise NeedsWholeFileError("ffmpeg shows other frames than planned")
        source, decoded_pts = decoded(source, self.ffmpeg_path)
        if may_have_lost(source, decoded_pts):
            look()
        self._cut_decoded(source, decoded_pts, range(len(decoded_pts)), look)
        self.refuse(self.left(), others_than_planned(self.path))

    def _cut_decoded(
        self, source: SourceVideo, decoded_pts: Array, used: range, look: Callable[[], None] | None
    ) -> None:
        """Cut from the frames numbered in `used` of those that the decoder puts out at `decoded_pts`, without as few of
        them as possible, so that times rise."""
        part = used_numbers(source, used, len(decoded_pts))
        times = mended_times(source, decoded_pts, part)
        if source.is_joined:
            times = on_one_clock(times, source.period)
        rising = longest_rise(times)
        self._check_is_one_recording(source, times, rising)
        known, keeps = decoded_pts.copy(), np.zeros(len(decoded_pts), dtype=bool)
        known[part], keeps[part] = times, rising
        kept = None if keeps.all() else kept_numbers(keeps.tolist())
        joins = joins_of(decoded_pts[part][rising], times[rising])
        source = at_times(source, times[rising])
        runs = runs_of(self._pieces(source), times_of(source), EMPTY, source.timebase, 0)
        self._encode(source, runs, look, decoded_pts=known, kept=kept, joins=joins)

    def _cut_sound_part(self, found: DamageFoundError) -> None:
        """Cut from the sound frames of a damaged source; in place of each lost frame there is the sound one before."""
        source, damage = found.source, found.damage
        if not damage.is_only_cut:
            self.refuse(
                [number for number in self.left() if self.cuts[number].stretch.in_frames],
                DamagedSourceError(
                    f"{self.path} is damaged ({damage.complaint}), so that programs count its frames differently; give "
                    "this stretch in seconds, or remux or re-encode the file first",
                    file=self.path,
                ),
            )
            if not self.left():
                return
        if damage.is_only_cut and (source.has_bursts or not damage.has_times):
            # All frames up to the first one that was cut off, and from the first that decodes on.
            source, decoded_pts = decoded(source, self.ffmpeg_path, tolerant=True, is_only_cut=True)
            run = damage.sound_run_of(len(decoded_pts))
            if run is not None:
                self._cut_decoded(source, decoded_pts, run, None)
        elif found.joined is not None or not damage.has_times:
            raise DamagedSourceError(
                f"{self.path} is damaged ({damage.complaint}), and its packets do not say for certain when the frames "
                "that are left are shown, so no stretch of it can be cut out; remux or re-encode the file first",
                file=self.path,
            )
        else:
            self._cut_timed(source, damage)
        self.refuse(self.left(), not_as_planned(self.path, damage, self.differences))

    def _cut_timed(self, source: SourceVideo, damage: Damage) -> None:
        """Cut from the sound frames of a source whose packets say when they are shown."""
        self._encode_sound(with_pts(source, damage.due_pts), damage.sound_pts, damage.kept)
        if self.left():
            shown = tried_again(self.path, lambda: decode_shown(source, self.ffmpeg_path, tolerant=True))
            frames = salvaged_frames(shown, damage, None)
            if frames is not None:
                whole = with_pts(source, damage.due_pts[damage.due_pts >= frames.pts[0]])
                self._encode_sound(whole, frames.pts, frames.kept, frames.joins)

    def _encode_sound(self, source: SourceVideo, sound_pts: Array, kept: Kept, joins: tuple[Join, ...] = ()) -> None:
        """Encode the cuts that are left, of a source whose frames are sound at `sound_pts` only."""
        due = {piece.number: piece for piece in self._pieces(source)}
        pieces = [replace(piece, grid=_of_sound(piece.grid, sound_pts)) for piece in due.values()]
        runs = runs_of(pieces, sound_pts, EMPTY, source.timebase, 0)
        self._encode(source, runs, None, kept=kept, joins=joins, due=due)

    def _check_is_one_recording(self, source: SourceVideo, decoded_pts: Array, rising: Array) -> None:
        is_joined = source.is_joined or len(recordings(decoded_pts.tolist(), source.timebase)) > 1
        if self.options.policy.salvage and is_joined:
            raise DamagedSourceError(
                f"{self.path} consists of several recordings, each with times of its own, so no stretch of it can be "
                "cut out; remux it first",
                file=self.path,
            )
        check_order(source, decoded_pts, rising)

    def _pieces(self, source: SourceVideo) -> list[Piece]:
        """The cuts that are left, as pieces. Those that cannot be cut from this source get their reason."""
        policy = self.options.policy
        rhythm, gaps = rhythm_of(source, self.options.profile.fps, policy), gaps_of(source, policy)
        pieces = []
        for number in self.left():
            try:
                grid = plan_stretch(source, self.cuts[number].stretch, rhythm, gaps, policy)
            except Exception as error:  # noqa: BLE001  # one bad cut must not fail the others
                self.refuse([number], error)
            else:
                pieces.append(Piece(number, grid))
        done = sum(int(each.videos.num_frames[0]) for each in self.results.values() if isinstance(each, Manifest))
        self.on_plan(sum(len(piece.grid) for piece in pieces) + done)
        return pieces

    def _encode(
        self,
        source: SourceVideo,
        runs: Sequence[Run],
        look: Callable[[], None] | None,
        *,
        decoded_pts: Array | None = None,
        kept: Kept | None = None,
        joins: tuple[Join, ...] = (),
        due: dict[int, Piece] | None = None,
    ) -> None:
        """Encode the runs. The cuts of a run in which ffmpeg shows other frames than planned are left."""
        for run in runs:
            grid = joined_grid(run.pieces)
            plan = plan_video(source, self.options, self.ffmpeg_path, decoded_pts, grid)
            encode = replace(plan.encode, pieces=run.pieces, seek=run.seek, kept=kept, joins=joins)
            if look is None:
                encode = replace(encode, pipeline=decoded_on_cpu(encode.pipeline))
            videos = self._attempt(replace(plan, encode=encode), look)
            if videos is None and run.seek is not None and self.part is None:
                videos = self._attempt(replace(plan, encode=replace(encode, seek=None)), look)
            for index, (piece, video) in enumerate(zip(run.pieces, videos or (), strict=False)):
                self.results[piece.number] = self._rows(
                    encode, index, video, None if due is None else due[piece.number]
                )

    def _attempt(self, plan: Plan, look: Callable[[], None] | None) -> tuple[EncodedVideo, ...] | None:
        return attempt(
            plan,
            self.ffmpeg_path,
            self.shards,
            self.on_frames,
            on_complaint=look,
            on_difference=self.differences.append,
        )

    def _rows(self, encode: Encode, index: int, video: EncodedVideo, due: Piece | None) -> Manifest:
        piece, changes = encode.pieces[index], video.changes
        source, stretch = encode.source, self.cuts[piece.number].stretch
        if not reaches_end(stretch, times_of(source), source.timebase):
            # It does not lack the end of the file.
            changes = replace(changes, given_up=tuple(text for text in changes.given_up if text != CUT_OFF))
        if due is not None:
            lost = np.setdiff1d(due.grid.source_pts, piece.grid.source_pts)
            changes = replace(
                changes,
                dropped=piece.grid.dropped + len(lost),
                salvaged=salvaged_runs(piece.grid.source_pts, due.grid.source_pts),
            )
        video = replace(video, changes=changes)
        return video_manifest(self.cuts[piece.number].identity, of_piece(encode, index), video)


def _of_sound(due: FrameGrid, sound_pts: Array) -> FrameGrid:
    """The grid with the last sound frame in place of each frame that is lost."""
    places = np.searchsorted(sound_pts, due.source_pts, side="right") - 1
    return replace(due, source_pts=sound_pts[places])
