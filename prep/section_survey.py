"""Surveys a long source that is encoded in sections: where it is cut, and what each section needs of the file.

The source is surveyed once. All sections follow from one frame grid, that of the whole source, so that each tick shows
the frame that it would show without cuts. What does not fit, such as a container that cannot be seeked exactly, raises
NotCutError: the source is then encoded whole, as if it had never been cut.

Of a file in a store, the survey reads the index, and each section fetches the packets that it decodes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ..errors import SourceError
from .decoding import as_filtered
from .encode import plan_video
from .encode_run import Plan
from .given_up import given_up
from .options import Options
from .part_of_file import (
    Needed,
    NeedsWholeFileError,
    PartlyFetched,
    at_its_entry,
    needed_of,
    noted_need,
    opening_ranges,
    probe_by_index,
)
from .pictures.picture_filters import least_lead_frames
from .probing.headers.access_units import HeaderReader
from .probing.opening import open_contents, open_source, packets_from, packets_of, video_stream
from .probing.probe import probe
from .probing.source_video import EMPTY, SourceVideo
from .running.attempts import tried_again
from .running.mounts import read_in_time
from .running.stalls import stall_limit
from .section_plan import expected_seconds, lead_frames, section_starts
from .timing.grid import FrameGrid
from .timing.pieces import Piece, Run, runs_of
from .timing.source_times import gaps_of, plan_stretch, rhythm_of, times_of
from .timing.stretch import Stretch, reaches_end

# How many packets the decoder may need for one frame, at most.
_PACKETS_TO_A_FRAME = 64
# A file is not cut if its sections together would fetch more than this many times its bytes, not counting the first
# MiB of each.
_MAX_TIMES_FETCHED = 1.5
_MIN_SECTION_BYTES = 1 << 20
# How often the cuts are planned anew because a keyframe proved to be none from which everything decodes.
_MAX_PLANS = 10


class NotCutError(Exception):
    """The source cannot be encoded in sections, for the reason given."""


@dataclass(frozen=True, eq=False)
class Section:
    """One section: the plan of its encode, without the times of frames outside it. `needed`: what it needs of a file
    that is in a store; None for a local file."""

    plan: Plan
    given_up: tuple[str, ...]
    needed: Needed | None = None


@dataclass(frozen=True, eq=False)
class SourceSurvey:
    """How a source is cut. `key` is the same for equal cuts of equal frames that are shown alike, at equal times;
    `dropped` and `repeated` are those of the whole video."""

    key: str
    sections: tuple[Section, ...]
    dropped: int
    repeated: int


def survey(
    path: str,
    options: Options,
    ffmpeg_path: str,
    part: PartlyFetched | None = None,
    *,
    stretch: Stretch | None = None,
    is_copy: bool = False,
) -> SourceSurvey:
    """Read the source's packets, plan the frame grid of all of it, or of a `stretch`, and cut it. NotCutError if it is
    better encoded whole.

    With `part`, only the index of the file is fetched, and the pictures with which sections begin: NeedsWholeFileError
    where that is not enough. The cuts are those of the whole file. With `is_copy`, all of the file is there, and each
    section says what it needs of it.
    """
    with stall_limit(float(options.policy.max_stall_seconds)):
        try:
            return _survey(path, options, ffmpeg_path, part, stretch, is_copy=is_copy)
        except SourceError as error:
            # Encoding it whole finds the same reason, or a way.
            raise NotCutError(error.message) from error


def _survey(
    path: str,
    options: Options,
    ffmpeg_path: str,
    part: PartlyFetched | None,
    stretch: Stretch | None,
    *,
    is_copy: bool,
) -> SourceSurvey:
    look = partial(probe, path) if part is None else partial(probe_by_index, part)
    source = as_filtered(tried_again(path, lambda: read_in_time(path, look, "reading it")), ffmpeg_path)
    if source.pts is None or source.suspicion or not len(source.entries):
        raise NotCutError("its container has no index of exact times, or shows signs of damage")
    grid, policy = None, options.policy
    if stretch is not None:
        rhythm = rhythm_of(source, options.profile.fps, policy)
        grid = plan_stretch(source, stretch, rhythm, gaps_of(source, policy), policy)
        # It may not lack the end of the file.
        is_cut_off = source.is_cut_off and reaches_end(stretch, source.pts, source.timebase)
        source = replace(source, is_cut_off=is_cut_off)
    plan = plan_video(source, options, ffmpeg_path, grid=grid)
    for _ in range(_MAX_PLANS):
        starts = _starts(source, plan, options)
        if len(starts) < 2:
            raise NotCutError("it is short, or has few frames at which decoding can start")
        sections = _sections(source, plan, starts, options)
        seeks = [each.plan.encode.seek for each in sections]
        entries = [round(seek.seconds / source.timebase) for seek in seeks if seek is not None]
        check = partial(_wrong_entries, source, entries, part)
        wrong = read_in_time(path, check, "reading it")
        if not wrong:
            if part is not None or is_copy:
                sections = read_in_time(path, partial(_with_needs, source, sections, part), "reading it")
            return SourceSurvey(_key(plan, starts), sections, plan.grid.dropped, plan.grid.repeated)
        # An entry that is left out changes only the cuts before which it lies. So those that are left in the end are
        # the cuts that knowing all packets would have given.
        source = replace(source, entries=np.setdiff1d(source.entries, wrong))
    raise NotCutError("its keyframes are not what its index calls them")


def _starts(source: SourceVideo, plan: Plan, options: Options) -> list[int]:
    """The numbers of the segments with which sections begin."""
    pts = times_of(source)
    encode = plan.encode
    segment_frames = encode.segment_gops * options.profile.gop_frames
    source_pixels, pixels = source.width * source.height, encode.width * encode.height
    first_pts, last_pts = plan.grid.source_pts[[0, -1]]
    frames = int(np.count_nonzero((pts >= first_pts) & (pts <= last_pts)))
    work = expected_seconds(frames, source_pixels, len(plan.grid), pixels)
    leads = lead_frames(
        plan.grid.source_pts[::segment_frames], pts, source.entries, least_lead_frames(source, options.profile)
    )
    return section_starts(leads.tolist(), frames, round(work / options.section_seconds))


def _sections(source: SourceVideo, plan: Plan, starts: Sequence[int], options: Options) -> tuple[Section, ...]:
    pts = times_of(source)
    segment_frames = plan.encode.segment_gops * options.profile.gop_frames
    ticks = [start * segment_frames for start in starts]
    texts = given_up(source, options.profile)
    bare = replace(source, pts=None, entries=EMPTY, places=EMPTY)
    sections = []
    for first, stop in zip(ticks, [*ticks[1:], len(plan.grid)], strict=True):
        grid = FrameGrid(plan.grid.rule, plan.grid.source_pts[first:stop], dropped=0, repeated=0)
        piece = Piece(0, grid, first)
        (run,) = runs_of([piece], pts, source.entries, source.timebase, least_lead_frames(source, options.profile))
        encode = replace(plan.encode, source=bare, num_frames=len(grid), pieces=run.pieces, seek=run.seek)
        sections.append(Section(Plan(encode, grid), texts))
    return tuple(sections)


def _with_needs(source: SourceVideo, sections: Sequence[Section], part: PartlyFetched | None) -> tuple[Section, ...]:
    """The sections with what each needs of the file. NotCutError if that is far more than the file."""
    opening = () if part is None else opening_ranges(part, source)
    found = []
    spared_bytes = int(_MAX_TIMES_FETCHED * Path(source.path).stat().st_size) + _MIN_SECTION_BYTES * len(sections)
    for section in sections:
        encode = section.plan.encode
        run = Run(encode.pieces, encode.seek)
        if part is not None:
            run = at_its_entry(run)
        needed = noted_need(source, times_of(source), run) if part is None else needed_of(run, source, opening)
        plan = replace(section.plan, encode=replace(encode, seek=run.seek))
        found.append(replace(section, plan=plan, needed=needed))
        spared_bytes -= sum(stop - start for start, stop in needed.ranges)
    if spared_bytes < 0:
        raise NotCutError("its sections lie all over the file")
    return tuple(found)


def _key(plan: Plan, starts: Sequence[int]) -> str:
    encode, rule, source = plan.encode, plan.grid.rule, plan.encode.source
    settings = [list(starts), str(rule.timebase), str(rule.fps), encode.width, encode.height, encode.pipeline.encoder]
    # A program may change the header of a file in place, which its fingerprint does not show.
    tags = [source.primaries, source.transfer, source.matrix]
    crop = repr(source.crop)
    shown_as = [source.stream_index, source.rotation, repr(source.picture), crop, tags, source.cut.begin]
    digest = hashlib.blake2b(json.dumps([settings, shown_as]).encode(), digest_size=4)
    digest.update(np.ascontiguousarray(plan.grid.source_pts, dtype="<i8").tobytes())
    return digest.hexdigest()


def _wrong_entries(source: SourceVideo, entries: Sequence[int], part: PartlyFetched | None) -> list[int]:
    """Those of the packets with these pts whose headers say that a decoder may not start there.

    NotCutError if reading does not start at each of them, or at the entry before, or if the picture there is unlike the
    first one: ffmpeg builds its filters for the first picture of a run. Reading an MP4 starts an entry earlier where
    frames are decoded less ahead of their time than at its beginning, as in footage of a variable rate with B-frames.
    Which packets are to be fetched is then known only from the whole file: NeedsWholeFileError.
    """
    kinds: set[tuple[int, int, str]] = set()
    wrong = []
    entry_before = {after: before for before, after in pairwise(source.entries.tolist())}
    try:
        with open_source(source.path) if part is None else open_contents(part.reader()) as container:
            stream = video_stream(source.path, container)
            stream.codec_context.thread_count = 1
            headers = HeaderReader(source.codec, stream.codec_context.extradata)
            for entry in (None, *entries):
                if entry is not None:
                    _seek(container, stream, entry, entry_before.get(entry), part)
                packets = packets_from(container, stream, entry)
                first = next(packets, None)
                if first is None:
                    continue
                if headers.read(bytes(first)).is_entry is False and entry is not None:
                    wrong.append(entry)
                    continue
                decoded = (packet.decode() for packet in islice(chain([first], packets), _PACKETS_TO_A_FRAME + 1))
                frames = (frame for each in decoded for frame in each if isinstance(frame, VideoFrame))
                kinds.update((frame.width, frame.height, frame.format.name) for frame in islice(frames, 1))
                stream.codec_context.flush_buffers()
    except av.error.FFmpegError as error:
        raise NotCutError(f"reading it from another place fails: {error}") from error
    if len(kinds) > 1 or headers.aspect_changes:
        raise NotCutError("its pictures change")
    return wrong


def _seek(
    container: InputContainer, stream: VideoStream, entry: int, entry_before: int | None, part: PartlyFetched | None
) -> None:
    """Seek to an entry. NotCutError and NeedsWholeFileError as of `_wrong_entries`."""
    container.seek(entry, stream=stream)
    landed = next((packet.pts for packet in packets_of(container, stream)), None)
    if landed not in (entry, entry_before):
        raise NotCutError("its container cannot be seeked exactly")
    if landed != entry and part is not None:
        raise NeedsWholeFileError("reading starts before its entries")
