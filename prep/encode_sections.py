"""Encodes a long source in sections: several workers at once, each from a keyframe shortly before its section on.

The source is surveyed once. All sections follow from one frame grid, that of the whole source, so that each tick shows
the frame that it would show without cuts. Each section's encode is compared with its part of the grid as any other
encode is (`encode_run.py`). Whatever does not fit, such as a container that cannot be seeked exactly or damage, raises
NotCutError: the source is then encoded whole, as if it had never been cut.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import av
import numpy as np
from av.video.frame import VideoFrame

from ..errors import SourceError
from ..manifests.ragged import Array
from ..manifests.tables import Manifest
from .attempts import tried_again
from .encode import DamageFoundError, look_closer, plan_video
from .encode_run import Count, Plan, of_piece
from .ffmpeg import crops_by_itself
from .given_up import given_up
from .gpu_attempts import attempt
from .grid import FrameGrid
from .manifest_rows import Identity, video_manifest
from .mounts import read_in_time
from .opening import open_source, packets_of, video_stream
from .options import Options
from .picture_filters import least_lead_frames
from .pieces import Piece, runs_of
from .probe import NO_ENTRIES, SourceVideo, probe
from .section_plan import expected_seconds, lead_frames, section_starts
from .shards import ShardWriter
from .stalls import stall_limit
from .tool_choice import pipeline_for

# The decoder may need as many packets for one frame.
_PACKETS_TO_A_FRAME = 64


class NotCutError(Exception):
    """The source cannot be encoded in sections, for the reason given."""


@dataclass(frozen=True, eq=False)
class Section:
    """One section: the plan of its encode, without the times of frames outside it."""

    plan: Plan
    given_up: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Survey:
    """How a source is cut. `key` is the same for equal cuts of equal frames; `dropped` and `repeated` are those of the
    whole video."""

    key: str
    sections: tuple[Section, ...]
    dropped: int
    repeated: int


def survey(path: str, options: Options, ffmpeg_path: str) -> Survey:
    """Read the source's packets, plan its frame grid and cut it. NotCutError if it is better encoded whole."""
    with stall_limit(float(options.policy.max_stall_seconds)):
        try:
            source = tried_again(path, lambda: read_in_time(path, lambda: probe(path), "reading it"))
            if source.pts is None or source.suspicion or not len(source.entries):
                raise NotCutError("its container has no index of exact times, or shows signs of damage")
            plan = plan_video(source, options, ffmpeg_path)
            starts = _starts(source, source.pts, plan, options)
            if len(starts) < 2:
                raise NotCutError("it is short, or has few frames at which decoding can start")
            sections = _sections(source, source.pts, plan, starts, options)
            entries = [each.plan.encode.seek for each in sections]
            where = [round(seek.seconds / source.timebase) for seek in entries if seek is not None]
            read_in_time(path, lambda: _check_seeks(source, where), "reading it")
        except SourceError as error:
            # Encoding it whole finds the same reason, or a way.
            raise NotCutError(error.message) from error
    return Survey(_key(plan, starts), sections, plan.grid.dropped, plan.grid.repeated)


def _starts(source: SourceVideo, pts: Array, plan: Plan, options: Options) -> list[int]:
    """The numbers of the segments with which sections begin."""
    encode = plan.encode
    segment_frames = encode.segment_gops * options.profile.gop_frames
    source_pixels, pixels = source.width * source.height, encode.width * encode.height
    work = expected_seconds(len(pts), source_pixels, len(plan.grid), pixels)
    leads = lead_frames(
        plan.grid.source_pts[::segment_frames], pts, source.entries, least_lead_frames(source, options.profile)
    )
    return section_starts(leads.tolist(), len(pts), round(work / options.section_seconds))


def _sections(
    source: SourceVideo, pts: Array, plan: Plan, starts: Sequence[int], options: Options
) -> tuple[Section, ...]:
    segment_frames = plan.encode.segment_gops * options.profile.gop_frames
    ticks = [start * segment_frames for start in starts]
    texts = given_up(source, options.profile)
    bare = replace(source, pts=None, entries=NO_ENTRIES)
    sections = []
    for first, stop in zip(ticks, [*ticks[1:], len(plan.grid)], strict=True):
        grid = FrameGrid(plan.grid.rule, plan.grid.source_pts[first:stop], dropped=0, repeated=0)
        piece = Piece(0, grid, first)
        (run,) = runs_of([piece], pts, source.entries, source.timebase, least_lead_frames(source, options.profile))
        encode = replace(plan.encode, source=bare, num_frames=len(grid), pieces=run.pieces, seek=run.seek)
        sections.append(Section(Plan(encode, grid), texts))
    return tuple(sections)


def _key(plan: Plan, starts: Sequence[int]) -> str:
    encode, rule = plan.encode, plan.grid.rule
    settings = [list(starts), str(rule.timebase), str(rule.fps), encode.width, encode.height, encode.pipeline.encoder]
    digest = hashlib.blake2b(json.dumps(settings).encode(), digest_size=4)
    digest.update(np.ascontiguousarray(plan.grid.source_pts, dtype="<i8").tobytes())
    return digest.hexdigest()


def _check_seeks(source: SourceVideo, entries: Sequence[int]) -> None:
    """NotCutError if reading does not start at each of these pts, or the picture there is unlike the first one: ffmpeg
    builds its filters for the first picture of a run."""
    kinds = set()
    try:
        with open_source(source.path) as container:
            stream = video_stream(source.path, container)
            stream.codec_context.thread_count = 1
            for entry in (None, *entries):
                if entry is not None:
                    container.seek(entry, stream=stream)
                packets = packets_of(container, stream)
                for number, packet in enumerate(packets):
                    if number == 0 and entry is not None and packet.pts != entry:
                        raise NotCutError("its container cannot be seeked exactly")
                    frames = [frame for frame in packet.decode() if isinstance(frame, VideoFrame)]
                    if frames:
                        kinds.add((frames[0].width, frames[0].height, frames[0].format.name))
                    if frames or number == _PACKETS_TO_A_FRAME:
                        break
                stream.codec_context.flush_buffers()
    except av.error.FFmpegError as error:
        raise NotCutError(f"reading it from another place fails: {error}") from error
    if len(kinds) > 1:
        raise NotCutError("its pictures change")


def encode_section(  # noqa: PLR0917  # six unrelated inputs
    section: Section,
    identity: Identity,
    options: Options,
    ffmpeg_path: str,
    shards: ShardWriter,
    on_frames: Count,
) -> Manifest:
    """Encode one section into `shards`: its rows, as if it were a video. NotCutError if it does not fit the plan."""
    encode = section.plan.encode
    source = encode.source
    try:
        with stall_limit(float(options.policy.max_stall_seconds)):
            # All sections need one encoder, but each machine has its own decoder.
            pipeline = pipeline_for(ffmpeg_path, source, options.profile, use_gpu=options.use_gpu)
            if pipeline.encoder != encode.pipeline.encoder:
                raise NotCutError(f"{encode.pipeline.encoder} does not run on this machine")
            crops = source.crop is not None and crops_by_itself(ffmpeg_path)
            plan = replace(section.plan, encode=replace(encode, pipeline=pipeline, crops_by_itself=crops))
            videos = attempt(plan, ffmpeg_path, shards, on_frames, on_complaint=lambda: look_closer(source))
    except (SourceError, DamageFoundError) as error:
        raise NotCutError(str(error)) from error
    if videos is None:
        raise NotCutError("ffmpeg shows other frames than planned")
    if videos[0].changes.given_up != section.given_up:
        raise NotCutError("its pictures change")
    return video_manifest(identity, of_piece(encode, 0), videos[0])
