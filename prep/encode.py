"""A source video into segments and their rows: probe, plan, run ffmpeg, check what it wrote.

The heart of prep. Each fragment that ffmpeg writes is checked as it comes; when ffmpeg is done, the source frame it
says it showed at each tick is held against the plan. A difference is an error of that source.
"""

from __future__ import annotations

import re
import signal
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..manifests.errors import CorruptDataError, DamagedSourceError, EncodeError
from ..manifests.mp4 import Init, restamp_fragment
from ..manifests.ragged import Array
from ..manifests.structure import check_gop, nal_length_bytes
from ..manifests.tables import Manifest
from ..manifests.video import SourceChanges
from .command import Encode, decode_argv, encode_argv
from .encoders import choose_encoder, choose_nvdec
from .ffmpeg import Run, first_reason, running
from .fragments import fragments
from .given_up import given_up
from .grid import FrameGrid, constant_rate, nominal_rate, plan_grid
from .options import Options
from .picture_check import check_picture
from .probe import SourceVideo, probe, with_pts
from .profile import MAX_FPS, Profile
from .rows import EncodedGop, EncodedSegment, EncodedVideo, Identity, video_manifest
from .shards import ShardWriter
from .shown import parse_stats, pts_by_number
from .sizes import check_taken, picture_layout, takes

_STATS = "<stats>"
# An ffmpeg that a signal ended (someone's kill, the kernel short of memory) says nothing about its source.
_ATTEMPTS_WHEN_KILLED = 3
# What decoders and demuxers say when data is missing or wrong; other complaints are about matters of taste.
_DAMAGE = re.compile(
    r"error while decoding|Invalid data found|corrupt|partial file|truncat|Invalid NAL|missing picture|"
    r"Error submitting packet|ended prematurely|bytestream|overread|damaged|concealing",
    re.IGNORECASE,
)

Count = Callable[[int], None]


@dataclass(frozen=True)
class Plan:
    """The command to run and the frames it must show.

    Which it showed is told by the pts of the source's packets, or, where those say nothing, by the number of the
    decoded frame, whose pts is then in `decoded_pts`.
    """

    encode: Encode
    grid: FrameGrid
    decoded_pts: Array | None = None


@dataclass
class _Written:
    """What is in the shards of an encode that is under way."""

    segments: list[EncodedSegment] = field(default_factory=list)
    gops: list[EncodedGop] = field(default_factory=list)


@dataclass(frozen=True)
class _Watcher:
    """Who wants to know how far an encode is."""

    on_plan: Count
    on_frames: Count


class _KilledError(EncodeError):
    """ffmpeg was ended by a signal."""


def _ignore(_count: int) -> None:
    """Nobody watches."""


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

    `on_plan` is called with the number of frames it is going to have, `on_frames` with that of each finished GOP, and
    with a negative one when they are taken back. Any error leaves the shards as they were.
    """
    mark = shards.mark()
    try:
        plan, video = _prepare(path, options, ffmpeg_path, shards, _Watcher(on_plan, on_frames))
        return video_manifest(identity, plan.encode, video)
    except BaseException:
        shards.rollback(mark)
        raise


def _prepare(
    path: str, options: Options, ffmpeg_path: str, shards: ShardWriter, watcher: _Watcher
) -> tuple[Plan, EncodedVideo]:
    source = probe(path)
    if source.pts is not None:
        plan = plan_video(source, options.profile, ffmpeg_path)
        watcher.on_plan(len(plan.grid))
        video = _attempt(plan, ffmpeg_path, shards, watcher.on_frames)
        if video is not None:
            return plan, video
    # The packets did not tell which frames the decoder shows: timestamps missing or double, two fields in two
    # packets, frames at the start that refer to ones before it. So ask the decoder.
    decoded_pts = decode_pts(source, ffmpeg_path)
    # A frame that does not come after the one before it is never shown.
    source = with_pts(source, np.unique(decoded_pts))
    plan = plan_video(source, options.profile, ffmpeg_path, decoded_pts)
    watcher.on_plan(len(plan.grid))
    video = _attempt(plan, ffmpeg_path, shards, watcher.on_frames)
    if video is None:
        raise EncodeError(
            f"{path}: ffmpeg shows other frames at some ticks than the plan calls for: its timestamps are in disorder; "
            "remux or re-encode it first",
            file=path,
        )
    return plan, video


def plan_video(source: SourceVideo, profile: Profile, ffmpeg_path: str, decoded_pts: Array | None = None) -> Plan:
    """What to encode a source to: rate, number of frames, size, and the source frame at each tick."""
    if source.pts is None:
        raise ValueError("a source without timestamps cannot be planned")
    fps = profile.fps or constant_rate(source.pts, source.timebase, source.rate_hints)
    if fps is None or fps > MAX_FPS:
        fps = nominal_rate(source.pts, source.timebase)
    grid = plan_grid(source.pts, source.end_pts, source.timebase, fps)
    check_picture(source, ffmpeg_path)
    layout = picture_layout(source, profile)
    encoder = choose_encoder(ffmpeg_path, profile, lambda name: takes(name, layout))
    check_taken(encoder, layout, source, profile)
    nvdec = choose_nvdec(ffmpeg_path, profile)
    encode = Encode(source, fps, len(grid), layout.width, layout.height, profile, encoder, nvdec)
    return Plan(encode, grid, decoded_pts)


def decode_pts(source: SourceVideo, ffmpeg_path: str) -> Array:
    """The pts of every frame as ffmpeg's decoder puts them out, in the source's timebase, never falling.

    DamagedSourceError when frames are missing between the first and the last one that decode.
    """
    with running(ffmpeg_path, decode_argv(source, _STATS), _STATS) as run:
        while run.stdout.read(1 << 16):
            pass
    _raise_for_ffmpeg(run, source.path)
    pts = parse_stats(run.stats, source.timebase).pts
    if len(pts) == 0:
        raise DamagedSourceError(f"{source.path}: not one frame of it decodes", file=source.path)
    if source.pts is not None:
        lost = np.setdiff1d(source.pts[source.pts > pts[0]], pts)
        if len(lost) and len(np.setdiff1d(pts, source.pts)) == 0:
            at = float((int(lost[0]) - int(source.pts[0])) * source.timebase)
            raise DamagedSourceError(
                f"{source.path} is damaged: {len(lost)} of its {len(source.pts)} frames do not decode, "
                f"the first of them at {at:.3f} s",
                file=source.path,
            )
    return np.asarray(np.maximum.accumulate(pts))


def _attempt(plan: Plan, ffmpeg_path: str, shards: ShardWriter, on_frames: Count) -> EncodedVideo | None:
    """Run the encode; None, with nothing left in the shards, when ffmpeg showed other frames than planned."""
    mark = shards.mark()
    for attempts_left in reversed(range(_ATTEMPTS_WHEN_KILLED)):
        done: list[int] = []

        def count(frames: int, done: list[int] = done) -> None:
            done.append(frames)
            on_frames(frames)

        video = None
        try:
            video = _run_encode(plan, ffmpeg_path, shards, count)
        except _KilledError:
            if attempts_left == 0:
                raise
            continue
        finally:
            if video is None:
                shards.rollback(mark)
                on_frames(-sum(done))
        return video
    return None


def _run_encode(plan: Plan, ffmpeg_path: str, shards: ShardWriter, on_frames: Count) -> EncodedVideo | None:
    encode, path = plan.encode, plan.encode.source.path
    structure_error = None
    written = _Written()
    init = None
    with running(ffmpeg_path, encode_argv(encode, _STATS), _STATS) as run:
        try:
            for init_bytes, init, fragment in fragments(run.stdout):
                _append_gop(encode, (init_bytes, init), fragment, shards, written)
                on_frames(len(written.gops[-1].pattern))
        except CorruptDataError as error:
            structure_error = error
    # ffmpeg's own words come first: an output that breaks off is only the consequence. Unless it was this side that
    # stopped listening.
    _raise_for_ffmpeg(run, path, hung_up=structure_error is not None)
    shown = parse_stats(run.stats, encode.source.timebase)
    pts = shown.packet_pts if plan.decoded_pts is None else pts_by_number(plan.decoded_pts, shown.numbers)
    planned = plan.grid.source_pts if structure_error is None else plan.grid.source_pts[: len(pts)]
    if not np.array_equal(pts, planned):
        return None
    if structure_error is not None or init is None:
        raise EncodeError(
            f"{path}: {encode.encoder} did not write what was planned: {structure_error or 'nothing came'}", file=path
        ) from structure_error
    return EncodedVideo(
        init=init,
        segments=tuple(written.segments),
        gops=tuple(written.gops),
        timeline=pts,
        changes=SourceChanges(given_up=given_up(encode.source, encode.profile, run.changes)),
    )


def _append_gop(
    encode: Encode, inits: tuple[bytes, Init], fragment: bytes, shards: ShardWriter, written: _Written
) -> None:
    """Check one fragment against the plan and append it, with a new segment's init before it where one begins."""
    init_bytes, init = inits
    gop_frames, frame_ticks = encode.profile.gop_frames, encode.frame_ticks
    number = len(written.gops)
    _, pattern = check_gop(
        fragment,
        codec=init.codec,
        length_bytes=nal_length_bytes(init.codec, init.extradata),
        num_frames=min(gop_frames, encode.num_frames - number * gop_frames),
        decode_ticks=number * gop_frames * frame_ticks,
        media_time_ticks=init.media_time_ticks,
        frame_ticks=frame_ticks,
    )
    if (init.width, init.height, init.timescale) != (encode.width, encode.height, encode.timescale):
        raise CorruptDataError(
            f"a track of {init.width}x{init.height} at timescale {init.timescale} where {encode.width}x{encode.height} "
            f"at {encode.timescale} was planned"
        )
    in_segment = number % encode.segment_gops
    if in_segment == 0:
        shard, offset = shards.start_segment()
        shards.append(init_bytes)
        written.segments.append(EncodedSegment(shard, offset, len(init_bytes), zlib.crc32(init_bytes)))
    # Each segment is a file of its own, so its times and sequence numbers start anew.
    data = restamp_fragment(fragment, in_segment + 1, in_segment * gop_frames * frame_ticks)
    written.gops.append(EncodedGop(shards.append(data), len(data), zlib.crc32(data), pattern))


def _raise_for_ffmpeg(run: Run, path: str, *, hung_up: bool = False) -> None:
    """An error for a run that failed, or that went on over data it complained about. With `hung_up` it may have
    failed because nobody read its output any more."""
    lines = [line for line in run.stderr.splitlines() if line.strip()]
    if run.returncode < 0:
        name = signal.Signals(-run.returncode).name
        raise _KilledError(f"{path}: ffmpeg was ended by {name}, {_ATTEMPTS_WHEN_KILLED} times over", file=path)
    damage = next((line for line in lines if _DAMAGE.search(line)), None)
    if damage is not None:
        raise DamagedSourceError(f"{path} is damaged; ffmpeg says: {first_reason([damage])}", file=path)
    if run.returncode > 0 and not (hung_up and "Broken pipe" in run.stderr):
        raise EncodeError(f"{path}: ffmpeg failed: {first_reason(lines)}", file=path)
