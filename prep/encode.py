"""Turns a source video into segments and their manifest rows: probe, plan, run ffmpeg, check its output.

Each fragment that ffmpeg writes is checked at once. When ffmpeg has ended, the source frames that it reports for each
tick are compared with the plan; a difference is an error of that source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..errors import DamagedSourceError, EncodeError
from ..manifests.ragged import Array
from ..manifests.tables import Manifest
from .command import Encode
from .decoding import DamageFoundError, as_filtered, decode_shown, decoded, look_closer
from .encode_run import Count, Plan
from .gpu_attempts import attempt
from .kept_frames.damage import Damage
from .kept_frames.joins import Join, continued_times, joins_of
from .kept_frames.kept import Kept, kept_numbers, kept_range
from .kept_frames.salvage import check_salvage, salvaged_frames, salvaged_runs
from .manifest_rows import EncodedVideo, Identity, video_manifest
from .options import Options
from .pictures.picture_check import check_picture
from .pictures.sizes import check_taken, picture_layout
from .probing.probe import probe
from .probing.recordings import on_one_clock
from .probing.source_video import SourceVideo, with_pts
from .running.attempts import tried_again
from .running.ffmpeg import crops_by_itself
from .running.frame_report import NO_PTS
from .running.mounts import read_in_time
from .running.stalls import stall_limit
from .shards import ShardWriter
from .timing.grid import FrameGrid
from .timing.mended_times import mended_times
from .timing.rising_times import longest_rise, spaced
from .timing.source_times import (
    at_times,
    check_order,
    grid_of,
    may_have_lost,
    plan_times,
    states_times,
    used_numbers,
)
from .tools.pipelines import decoded_on_cpu
from .tools.tool_choice import pipeline_for

# Where more frames than these move by another time than the one before, ffmpeg counts frames.
_MOST_MOVES = 100


@dataclass(frozen=True)
class _Watcher:
    """The callbacks for progress."""

    on_plan: Count
    on_frames: Count


@dataclass(frozen=True)
class _SoundPlan:
    """The plan for the sound frames of a damaged source. `due`: the grid of the undamaged one. `not_shown`: how many
    sound frames ffmpeg does not show."""

    plan: Plan
    due: FrameGrid
    not_shown: int = 0


def _ignore(_count: int) -> None:
    """The callback where no progress is wanted."""


def prepare_video(
    path: str,
    identity: Identity,
    options: Options,
    ffmpeg_path: str,
    shards: ShardWriter,
    *,
    on_plan: Count = _ignore,
    on_frames: Count = _ignore,
) -> Manifest:
    """Encode one source into `shards` and return its rows.

    `on_plan` is called with the number of frames that the video will have, `on_frames` with the number of frames of
    each finished GOP, and with a negative number when frames are discarded. After an error the shards are as they were
    before.
    """
    mark = shards.mark()
    try:
        with stall_limit(float(options.policy.max_stall_seconds)):
            plan, video = _prepare(path, options, ffmpeg_path, shards, _Watcher(on_plan, on_frames))
        return video_manifest(identity, plan.encode, video)
    except BaseException:
        shards.rollback(mark)
        raise


def _prepare(
    path: str, options: Options, ffmpeg_path: str, shards: ShardWriter, watcher: _Watcher
) -> tuple[Plan, EncodedVideo]:
    source = as_filtered(tried_again(path, lambda: read_in_time(path, lambda: probe(path), "reading it")), ffmpeg_path)
    try:
        return _prepare_whole(source, options, ffmpeg_path, shards, watcher)
    except DamageFoundError as found:
        check_salvage(path, found.damage, source.timebase, options.policy)
        return _prepare_sound_part(found, options, ffmpeg_path, shards, watcher)


def _prepare_whole(
    source: SourceVideo, options: Options, ffmpeg_path: str, shards: ShardWriter, watcher: _Watcher
) -> tuple[Plan, EncodedVideo]:
    """Encode all frames of a source; DamageFoundError when some are damaged or missing."""
    path = source.path
    if source.suspicion:
        look_closer(source)
    if states_times(source):
        plan = plan_video(source, options, ffmpeg_path)
        video = _encoded(plan, ffmpeg_path, shards, watcher, on_complaint=partial(look_closer, source))
        if video is not None:
            return plan, video
    # The packets do not determine which frames the decoder shows: timestamps are missing, occur twice, or are those of
    # decoding, the fields of a frame are in two packets, or the first frames refer to earlier ones. So decode once to
    # find out.
    source, decoded_pts = decoded(source, ffmpeg_path)
    if may_have_lost(source, decoded_pts):
        look_closer(source)
    plan = _plan_decoded(source, options, ffmpeg_path, decoded_pts)
    video = _encoded(plan, ffmpeg_path, shards, watcher, on_complaint=partial(look_closer, source))
    if video is None:
        raise others_than_planned(path)
    return plan, video


def others_than_planned(path: str) -> EncodeError:
    """The error of a source without damage for which no plan came true."""
    return EncodeError(
        f"{path}: ffmpeg shows other frames than planned, because the timestamps are out of order; remux or re-encode "
        "the file first",
        file=path,
    )


def _encoded(
    plan: Plan,
    ffmpeg_path: str,
    shards: ShardWriter,
    watcher: _Watcher,
    *,
    on_complaint: Callable[[], None] | None = None,
    on_difference: Callable[[str], None] | None = None,
) -> EncodedVideo | None:
    """The video of a plan, which has one piece; None where ffmpeg shows other frames."""
    watcher.on_plan(len(plan.grid))
    videos = attempt(
        plan, ffmpeg_path, shards, watcher.on_frames, on_complaint=on_complaint, on_difference=on_difference
    )
    return None if videos is None else videos[0]


def _prepare_sound_part(
    found: DamageFoundError, options: Options, ffmpeg_path: str, shards: ShardWriter, watcher: _Watcher
) -> tuple[Plan, EncodedVideo]:
    """Encode the sound frames of a damaged source, and in place of each lost frame between them the frame before it."""
    source, damage = found.source, found.damage
    differences: list[str] = []
    for sound in _sound_plans(found, options, ffmpeg_path):
        plan = sound.plan
        video = _encoded(plan, ffmpeg_path, shards, watcher, on_difference=differences.append)
        if video is not None:
            changes = replace(
                video.changes,
                dropped=plan.grid.dropped + damage.lost + sound.not_shown,
                salvaged=salvaged_runs(plan.grid.source_pts, sound.due.source_pts),
            )
            return plan, replace(video, changes=changes)
    raise not_as_planned(source.path, damage, differences)


def _sound_plans(found: DamageFoundError, options: Options, ffmpeg_path: str) -> Iterator[_SoundPlan]:
    """The plans for the sound frames of a damaged source: where ffmpeg shows other frames, the next one counts."""
    source, damage = found.source, found.damage
    if not damage.has_times:
        source, decoded_pts = decoded(source, ffmpeg_path, tolerant=True, is_only_cut=damage.is_only_cut)
        run = damage.sound_run_of(len(decoded_pts))
        if run is None:
            return
        plan = _plan_decoded(source, options, ffmpeg_path, decoded_pts, run, is_damaged=not damage.is_only_cut)
        kept = plan.encode.kept or kept_range(run)
        yield _SoundPlan(_of_damaged(plan, kept), plan.grid)
        return
    if found.joined is None:
        # Rate and ticks follow from the frames that the undamaged file had.
        whole = with_pts(source, damage.due_pts)
        due = plan_video(whole, options, ffmpeg_path)
        plan = replace(due, grid=grid_of(whole, damage.sound_pts, due.grid.rule))
        yield _SoundPlan(_of_damaged(plan, damage.kept), due.grid)
    shown = tried_again(source.path, lambda: decode_shown(source, ffmpeg_path, tolerant=True))
    frames = salvaged_frames(shown, damage, found.joined)
    if frames is None:
        return
    whole = with_pts(source, damage.due_pts[damage.due_pts >= frames.pts[0]])
    is_by_number = found.joined is not None or bool((shown.packet_pts == NO_PTS).any())
    due = plan_video(whole, options, ffmpeg_path, frames.decoded_pts if is_by_number else None)
    plan = replace(due, grid=grid_of(whole, frames.pts, due.grid.rule))
    plan = _moved(plan, frames.joins, frames.pts)
    yield _SoundPlan(_of_damaged(plan, frames.kept), due.grid, len(damage.sound_pts) - len(frames.pts))


def _of_damaged(plan: Plan, kept: Kept) -> Plan:
    """The plan with the selection of a damaged source."""
    pipeline = decoded_on_cpu(plan.encode.pipeline)
    return replace(plan, encode=replace(plan.encode, kept=kept, pipeline=pipeline))


def not_as_planned(path: str, damage: Damage, differences: list[str]) -> DamagedSourceError:
    """The error of a damaged source for which no plan came true. `differences`: how ffmpeg's frames differed."""
    how = f" ({differences[-1]})" if differences else ""
    return DamagedSourceError(
        f"{path} is damaged ({damage.complaint}), and ffmpeg does not show the frames that are left as planned{how}; "
        "remux or re-encode the file first, or give another copy of it",
        file=path,
    )


def _plan_decoded(
    source: SourceVideo,
    options: Options,
    ffmpeg_path: str,
    decoded_pts: Array,
    used: range | None = None,
    *,
    is_damaged: bool = False,
) -> Plan:
    """The plan for frames in the order of the decoder's output, of those numbered in `used` (None: all). As few as
    possible are left out so that times rise."""
    run = range(len(decoded_pts)) if used is None else used
    part = used_numbers(source, run, len(decoded_pts))
    stated_pts = decoded_pts[part]
    times = mended_times(source, decoded_pts, part, is_damaged=is_damaged)
    if source.is_joined:
        times = on_one_clock(times, source.period)
    if options.policy.salvage:
        times = continued_times(times, source.timebase)
        times = spaced(times) if source.is_joined and source.repeats_times else times
    rising = longest_rise(times)
    if not options.policy.salvage:
        check_order(source, times, rising)
    known = decoded_pts.copy()
    known[part] = times
    plan = plan_video(at_times(source, times[rising]), options, ffmpeg_path, known)
    plan = _moved(plan, joins_of(stated_pts[rising], times[rising]), times[rising])
    keeps = np.zeros(len(decoded_pts), dtype=bool)
    keeps[part] = rising
    if keeps.all():
        return plan
    grid = replace(plan.grid, dropped=plan.grid.dropped + int(np.count_nonzero(~rising)))
    return replace(plan, grid=grid, encode=replace(plan.encode, kept=kept_numbers(keeps.tolist())))


def _moved(plan: Plan, joins: tuple[Join, ...], times: Array) -> Plan:
    """The plan with frames at these times, to which `joins` move them. Where these are too many for a filter, most
    frames are a tick after the one before, and their numbers say at which."""
    steps = None
    if len(joins) > _MOST_MOVES:
        ticks = plan.grid.rule.ticks(times)
        joins, steps = (), joins_of(np.arange(len(ticks)), ticks)
    return replace(plan, encode=replace(plan.encode, joins=joins, steps=steps))


def plan_video(
    source: SourceVideo,
    options: Options,
    ffmpeg_path: str,
    decoded_pts: Array | None = None,
    grid: FrameGrid | None = None,
) -> Plan:
    """Plan the encode of a source: rate, number of frames, size, and the source frame at each tick, by `grid` or else
    all of the source."""
    profile = options.profile
    grid = grid or plan_times(source, profile.fps, options.policy)
    check_picture(source, ffmpeg_path)
    layout = picture_layout(source, profile)
    pipeline = pipeline_for(ffmpeg_path, source, profile, use_gpu=options.use_gpu)
    check_taken(pipeline.encoder, layout, source, profile)
    encode = Encode(
        source, grid.rule, len(grid), layout.width, layout.height, profile, pipeline,
        crops_by_itself=source.crop is not None and crops_by_itself(ffmpeg_path), converts_first=grid.converts_first,
    )  # fmt: skip
    return Plan(encode, grid, decoded_pts)
