"""A source video into segments and their rows: probe, plan, run ffmpeg, check what it wrote.

The heart of prep. Each fragment that ffmpeg writes is checked as it comes; when ffmpeg is done, the source frame it
says it showed at each tick is held against the plan. A difference is an error of that source.
"""

from __future__ import annotations

import re
import signal
import zlib
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from ..manifests.errors import CorruptDataError, DamagedSourceError, EncodeError, ToolError
from ..manifests.mp4 import Init, restamp_fragment
from ..manifests.ragged import Array
from ..manifests.structure import check_gop, nal_length_bytes
from ..manifests.tables import Manifest
from .command import Encode, decode_argv, encode_argv, output_size
from .ffmpeg import Run, first_reason, running, try_encoder, try_nvdec
from .fragments import fragments
from .grid import FrameGrid, constant_rate, nominal_rate, plan_grid
from .probe import SourceVideo, probe, with_pts
from .profile import ENCODERS, Profile
from .rows import EncodedGop, EncodedSegment, EncodedVideo, Identity, video_manifest
from .shards import ShardWriter

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


def prepare_video(
    path: str,
    identity: Identity,
    profile: Profile,
    ffmpeg_path: str,
    shards: ShardWriter,
    on_plan: Count = lambda count: None,
    on_frames: Count = lambda count: None,
) -> Manifest:
    """Encode one source into `shards` and return its rows.

    `on_plan` is called with the number of frames it is going to have, `on_frames` with that of each finished GOP, and
    with a negative one when they are taken back. A SourceError leaves the shards as they were.
    """
    source = probe(path)
    encoder, nvdec = choose_encoder(ffmpeg_path, profile), try_nvdec_for(ffmpeg_path, profile)
    if source.pts is not None:
        encode, grid = plan_encode(source, profile, encoder, nvdec)
        on_plan(len(grid))
        video = _attempt(encode, grid, ffmpeg_path, shards, on_frames)
        if video is not None:
            return video_manifest(identity, encode, video)
    # The packets did not tell which frames the decoder shows: timestamps missing or double, two fields in two
    # packets, frames at the start that refer to ones before it. So ask the decoder.
    source = decoded_source(source, ffmpeg_path)
    encode, grid = plan_encode(source, profile, encoder, nvdec)
    on_plan(len(grid))
    video = _attempt(encode, grid, ffmpeg_path, shards, on_frames)
    if video is None:
        raise EncodeError(f"{path}: ffmpeg shows other frames at some ticks than the plan calls for", file=path)
    return video_manifest(identity, encode, video)


def choose_encoder(ffmpeg_path: str, profile: Profile) -> str:
    """The encoder to use: the one asked for, or with "auto" NVENC where it really runs, else x264 or x265."""
    if profile.encoder != "auto":
        trial = try_encoder(ffmpeg_path, profile.encoder)
        if not trial.works:
            raise ToolError(f"encoder {profile.encoder} does not run here: {trial.detail}; see `shortgop doctor`")
        return profile.encoder
    fitting = sorted((name for name, codec in ENCODERS.items() if codec == profile.codec), key=lambda n: "nvenc" not in n)
    for name in fitting:
        if try_encoder(ffmpeg_path, name).works:
            return name
    raise ToolError(f"none of {', '.join(fitting)} runs with {ffmpeg_path}; see `shortgop doctor`")


def try_nvdec_for(ffmpeg_path: str, profile: Profile) -> bool:
    """Whether to decode on the GPU: where that really runs, unless the CPU was asked for."""
    return not profile.encoder.startswith("lib") and try_nvdec(ffmpeg_path).works


def plan_encode(source: SourceVideo, profile: Profile, encoder: str, nvdec: bool) -> tuple[Encode, FrameGrid]:
    """The command to run and the frames it must show."""
    if source.pts is None:
        raise ValueError("a source without timestamps cannot be planned")
    fps = profile.fps or constant_rate(source.pts, source.timebase, source.rate_hints)
    if fps is None or fps > 1000:
        fps = nominal_rate(source.pts, source.timebase)
    grid = plan_grid(source.pts, source.end_pts, source.timebase, fps)
    width, height = output_size(source, profile.size)
    return Encode(source, fps, len(grid), width, height, profile, encoder, nvdec), grid


def decoded_source(source: SourceVideo, ffmpeg_path: str) -> SourceVideo:
    """The source with the pts that ffmpeg's decoder gives its frames. DamagedSourceError when frames are missing
    between the first and the last one that decode."""
    with running(ffmpeg_path, decode_argv(source, _STATS), _STATS) as run:
        while run.stdout.read(1 << 16):
            pass
    _raise_for_ffmpeg(run, source.path)
    pts = _source_pts(run.stats, source.timebase)
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
    # A frame that does not come after the one before it is never shown by a player either.
    return with_pts(source, np.unique(np.maximum.accumulate(pts)))


def _attempt(
    encode: Encode, grid: FrameGrid, ffmpeg_path: str, shards: ShardWriter, on_frames: Count
) -> EncodedVideo | None:
    """Run the encode; None, with nothing left in the shards, when ffmpeg showed other frames than planned."""
    mark = shards.mark()
    for attempt in range(_ATTEMPTS_WHEN_KILLED):
        done = 0

        def count(frames: int) -> None:
            nonlocal done
            done += frames
            on_frames(frames)

        try:
            video = _run_encode(encode, grid, ffmpeg_path, shards, count)
        except BaseException as error:
            shards.rollback(mark)
            on_frames(-done)
            if isinstance(error, _KilledError) and attempt + 1 < _ATTEMPTS_WHEN_KILLED:
                continue
            raise
        if video is None:
            shards.rollback(mark)
            on_frames(-done)
        return video
    raise AssertionError("unreachable")


class _KilledError(EncodeError):
    """ffmpeg was ended by a signal."""


def _run_encode(
    encode: Encode, grid: FrameGrid, ffmpeg_path: str, shards: ShardWriter, on_frames: Count
) -> EncodedVideo | None:
    path = encode.source.path
    structure_error = None
    segments: list[EncodedSegment] = []
    gops: list[EncodedGop] = []
    init = None
    with running(ffmpeg_path, encode_argv(encode, _STATS), _STATS) as run:
        try:
            for init_bytes, init, fragment in fragments(run.stdout):
                _append_gop(encode, init_bytes, init, fragment, shards, segments, gops)
                on_frames(len(gops[-1].pattern))
        except CorruptDataError as error:
            structure_error = error
    # ffmpeg's own words come first: an output that breaks off is only the consequence.
    _raise_for_ffmpeg(run, path)
    shown = _source_pts(run.stats, encode.source.timebase)
    if structure_error is None and init is not None and np.array_equal(shown, grid.source_pts):
        return EncodedVideo(init=init, segments=tuple(segments), gops=tuple(gops), timeline=shown)
    if structure_error is not None and np.array_equal(shown, grid.source_pts):
        raise EncodeError(
            f"{path}: {encode.encoder} did not write what was planned: {structure_error}", file=path
        ) from structure_error
    return None


def _append_gop(
    encode: Encode,
    init_bytes: bytes,
    init: Init,
    fragment: bytes,
    shards: ShardWriter,
    segments: list[EncodedSegment],
    gops: list[EncodedGop],
) -> None:
    """Check one fragment against the plan and append it, with a new segment's init before it where one begins."""
    gop_frames = encode.profile.gop_frames
    number = len(gops)
    num_frames = min(gop_frames, encode.num_frames - number * gop_frames)
    _, pattern = check_gop(
        fragment,
        codec=init.codec,
        length_bytes=nal_length_bytes(init.codec, init.extradata),
        num_frames=num_frames,
        decode_ticks=number * gop_frames * encode.frame_ticks,
        media_time_ticks=init.media_time_ticks,
        frame_ticks=encode.frame_ticks,
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
        segments.append(EncodedSegment(shard, offset, len(init_bytes), zlib.crc32(init_bytes)))
    # Each segment is a file of its own, so its times and sequence numbers start anew.
    data = restamp_fragment(fragment, in_segment + 1, in_segment * gop_frames * encode.frame_ticks)
    gops.append(EncodedGop(shards.append(data), len(data), zlib.crc32(data), pattern))


def _source_pts(stats: list[str], timebase: Fraction) -> Array:
    """The pts of the source frame behind each encoded one, in the source's timebase; lines are STATS_FORMAT."""
    pts = np.empty(len(stats), dtype=np.int64)
    scale: dict[str, Fraction] = {}
    for index, line in enumerate(stats):
        value, base = line.split()
        if base not in scale:
            scale[base] = Fraction(base) / timebase
        exact = int(value) * scale[base]
        # Never true for ffmpeg's own decoders; a pts between two ticks would match no plan.
        pts[index] = exact.numerator // exact.denominator if exact.denominator == 1 else np.iinfo(np.int64).min
    return pts


def _raise_for_ffmpeg(run: Run, path: str) -> None:
    """An error for a run that failed, or that went on over data it complained about."""
    lines = [line for line in run.stderr.splitlines() if line.strip()]
    if run.returncode < 0:
        name = signal.Signals(-run.returncode).name
        raise _KilledError(f"{path}: ffmpeg was ended by {name}, {_ATTEMPTS_WHEN_KILLED} times over", file=path)
    damage = next((line for line in lines if _DAMAGE.search(line)), None)
    if damage is not None:
        raise DamagedSourceError(f"{path} is damaged; ffmpeg says: {first_reason([damage])}", file=path)
    if run.returncode > 0:
        raise EncodeError(f"{path}: ffmpeg failed: {first_reason(lines)}", file=path)


