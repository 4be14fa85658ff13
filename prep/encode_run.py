"""Runs one planned encode: checks each fragment that ffmpeg writes, and compares ffmpeg's report with the plan."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO

import numpy as np

from ..errors import CorruptDataError, EncodeError
from ..manifests.gop_check import check_gop
from ..manifests.mp4 import Init, parse_init, restamp_fragment
from ..manifests.ragged import Array
from ..manifests.records import SourceChanges
from .command import Encode, encode_argv
from .given_up import given_up
from .kept_frames.complaints import first_complaint
from .manifest_rows import EncodedGop, EncodedSegment, EncodedVideo
from .running.attempts import (
    raise_if_changed,
    raise_if_failed,
    raise_if_grain,
    raise_if_killed,
    raise_if_picture_lost,
    tried_again,
)
from .running.ffmpeg import RunningFfmpeg, running
from .running.frame_report import Shown, parse_stats, pts_by_number
from .shards import ShardWriter
from .timing.grid import FrameGrid

STATS = "<stats>"

Count = Callable[[int], None]


@dataclass(frozen=True)
class Plan:
    """The command to run and the frames it must show. The grid is that of all of the encode's pieces, one after the
    other.

    ffmpeg's report identifies each frame by the pts of its packet. Where packets have no usable pts, it identifies them
    by the number of the decoded frame, and `decoded_pts` has the pts for each number.
    """

    encode: Encode
    grid: FrameGrid
    decoded_pts: Array | None = None


@dataclass(frozen=True)
class _Place:
    """The place of a GOP in an encode: its piece, its number in this piece, its first tick in the encode, and how many
    frames it has."""

    piece: int
    number: int
    first_tick: int
    num_frames: int


@dataclass
class _Written:
    """The segments and GOPs of one piece that an encode has written so far."""

    segments: list[EncodedSegment] = field(default_factory=list)
    gops: list[EncodedGop] = field(default_factory=list)


def attempt(
    plan: Plan,
    ffmpeg_path: str,
    shards: ShardWriter,
    on_frames: Count,
    *,
    on_complaint: Callable[[], None] | None,
    on_difference: Callable[[str], None] | None = None,
) -> tuple[EncodedVideo, ...] | None:
    """Run the encode: a video for each of its pieces. None, with the shards as before, when ffmpeg showed other frames
    than planned; `on_difference` is then called with where they differ, and with what ffmpeg said.

    Where ffmpeg logs lines about damage, `on_complaint` is called, and raises if there is damage. With None, only the
    frames that were shown matter.
    """
    mark = shards.mark()

    def run() -> tuple[EncodedVideo, ...] | None:
        done: list[int] = []

        def count(frames: int) -> None:
            done.append(frames)
            on_frames(frames)

        videos = None
        try:
            videos = _run_encode(plan, ffmpeg_path, shards, count, on_complaint, on_difference)
        finally:
            if videos is None:
                shards.rollback(mark)
                on_frames(-sum(done))
        return videos

    return tried_again(plan.encode.source.path, run)


def _run_encode(  # noqa: PLR0917  # six unrelated inputs
    plan: Plan,
    ffmpeg_path: str,
    shards: ShardWriter,
    on_frames: Count,
    on_complaint: Callable[[], None] | None,
    on_difference: Callable[[str], None] | None,
) -> tuple[EncodedVideo, ...] | None:
    encode, path = plan.encode, plan.encode.source.path
    places = _places(encode)
    written = [_Written() for _ in encode.piece_frames]
    wrong, init = None, None
    with running(ffmpeg_path, encode_argv(encode, STATS), STATS) as run:
        try:
            for number, (init_bytes, init, fragment) in enumerate(_fragments(run.stdout)):
                place = _place_of(places, number)
                _append_gop(encode, (init_bytes, init), fragment, shards, written[place.piece], place)
                on_frames(place.num_frames)
                if encode.pipeline.decoding == "nvdec":
                    # The rest would be in vain, and of a film that is most of it.
                    raise_if_grain(run, path)
        except CorruptDataError as error:
            wrong = error
    _raise_of_ffmpeg(encode, run, on_complaint, hung_up=wrong is not None)
    shown = parse_stats(run.stats, encode.source.timebase)
    pts = shown.packet_pts if plan.decoded_pts is None else pts_by_number(plan.decoded_pts, shown.numbers)
    # Where the output was wrong, ffmpeg was ended before it had shown all frames.
    planned = plan.grid.source_pts if wrong is None else plan.grid.source_pts[: len(pts)]
    if not np.array_equal(pts, planned) or not _started_as_planned(encode, shown):
        if on_difference is not None:
            on_difference(_difference(plan, pts, run))
        return None
    if wrong is not None or init is None:
        raise EncodeError(
            f"{path}: {encode.pipeline.encoder} did not write what was planned: {wrong or 'no frame at all'}",
            file=path,
        ) from wrong
    return _videos(plan, init, written, pts, given_up(encode.source, encode.profile, run.changes))


def _raise_of_ffmpeg(
    encode: Encode, run: RunningFfmpeg, on_complaint: Callable[[], None] | None, *, hung_up: bool
) -> None:
    """Raise what an ffmpeg that has ended says of itself, unless only the frames that it showed matter.

    That comes before what is wrong with its output, because an output that breaks off follows from it. After an error
    in the output, though, prep closed the pipe (`hung_up`), and ffmpeg fails because of that.
    """
    path = encode.source.path
    raise_if_killed(run, path)
    if encode.pipeline.uses_gpu:
        # What ffmpeg says of the GPU is not about damage.
        raise_if_failed(run, path, hung_up=hung_up)
        raise_if_picture_lost(run, path)
        raise_if_grain(run, path)
    if encode.pipeline.scaling == "scale_cuda":
        raise_if_changed(run, path)
    if on_complaint is not None:
        if first_complaint(run.stderr.splitlines()):
            on_complaint()
        raise_if_failed(run, path, hung_up=hung_up)


def _videos(
    plan: Plan, init: Init, written: Sequence[_Written], pts: Array, texts: tuple[str, ...]
) -> tuple[EncodedVideo, ...]:
    """The video of each piece, of what was written of it. `pts` are those of the source frames that were shown, of all
    pieces, and `texts` say what was given up."""
    encode = plan.encode
    starts = np.cumsum([0, *encode.piece_frames])
    grids = [piece.grid for piece in encode.pieces] or [plan.grid]
    return tuple(
        EncodedVideo(
            init=init,
            segments=tuple(each.segments),
            gops=tuple(each.gops),
            # Players count from the cut, and so does the sound.
            timeline=pts[start : start + len(grid)] - encode.source.cut.begin,
            changes=SourceChanges(given_up=texts, dropped=grid.dropped, repeated=grid.repeated),
            pipeline=encode.pipeline.to_json(),
        )
        for each, grid, start in zip(written, grids, starts.tolist(), strict=False)
    )


def _difference(plan: Plan, pts: Array, run: RunningFfmpeg) -> str:
    """From which source frame on ffmpeg's frames, at `pts`, are others than planned, and what it said."""
    planned = plan.grid.source_pts
    common = min(len(pts), len(planned))
    others = np.flatnonzero(pts[:common] != planned[:common])
    first = int(others[0]) if len(others) else common
    at = "the end on"
    if first < len(planned):
        at = f"{float(int(planned[first] - planned[0]) * plan.encode.source.timebase):.3f} s on"
    lines = [line for line in run.stderr.splitlines() if line.strip()]
    if not lines:
        return f"from {at}"
    said = first_complaint(lines) or lines[0]
    return f"from {at}; ffmpeg {'failed' if run.returncode > 0 else 'said'}: {said}"


def _started_as_planned(encode: Encode, shown: Shown) -> bool:
    """Whether the decoder's output began at a frame from which on everything decodes as it was encoded. The number of
    the first frame that is shown says how many the decoder put out before."""
    return encode.seek is None or (len(shown.numbers) > 0 and int(shown.numbers[0]) in encode.seek.frames_before)


def _places(encode: Encode) -> list[_Place]:
    gop_frames = encode.profile.gop_frames
    places, first_tick = [], 0
    for piece, num_frames in enumerate(encode.piece_frames):
        places += [
            _Place(piece, number, first_tick + start, min(gop_frames, num_frames - start))
            for number, start in enumerate(range(0, num_frames, gop_frames))
        ]
        first_tick += num_frames
    return places


def _place_of(places: list[_Place], number: int) -> _Place:
    if number == len(places):
        raise CorruptDataError(f"there are more than the {number} GOPs that were planned")
    return places[number]


def _append_gop(  # noqa: PLR0917  # six unrelated inputs
    encode: Encode, inits: tuple[bytes, Init], fragment: bytes, shards: ShardWriter, written: _Written, place: _Place
) -> None:
    """Check one fragment against the plan and append it; where a new segment starts, append the init first."""
    init_bytes, init = inits
    gop_frames, frame_ticks = encode.profile.gop_frames, encode.frame_ticks
    _, pattern = check_gop(
        fragment,
        config=init.config,
        num_frames=place.num_frames,
        decode_ticks=place.first_tick * frame_ticks,
        media_time_ticks=init.media_time_ticks,
        frame_ticks=frame_ticks,
    )
    if (init.width, init.height, init.timescale) != (encode.width, encode.height, encode.timescale):
        raise CorruptDataError(
            f"a track of {init.width}x{init.height} at timescale {init.timescale} where {encode.width}x{encode.height} "
            f"at {encode.timescale} was planned"
        )
    in_segment = place.number % encode.segment_gops
    if in_segment == 0:
        shard, offset = shards.start_segment()
        shards.append(init_bytes)
        written.segments.append(EncodedSegment(shard, offset, len(init_bytes), zlib.crc32(init_bytes)))
    # Each segment is an MP4 file, so its times and sequence numbers start at its first GOP.
    data = restamp_fragment(fragment, in_segment + 1, in_segment * gop_frames * frame_ticks)
    written.gops.append(EncodedGop(shards.append(data), len(data), zlib.crc32(data), pattern))


def _fragments(stream: IO[bytes]) -> Iterator[tuple[bytes, Init, bytes]]:
    """(init bytes, the parsed init, moof + mdat) of each fragment in a stream of fragmented MP4."""
    init_bytes, init, moof = b"", None, b""
    for kind, box in _boxes(stream):
        if kind in (b"ftyp", b"moov"):
            init_bytes += box
            init = parse_init(init_bytes) if kind == b"moov" else None
        elif kind == b"moof":
            moof = box
        elif kind == b"mdat":
            if init is None or not moof:
                raise CorruptDataError("an mdat without moov and moof before it")
            yield init_bytes, init, moof + box
            moof = b""


def _boxes(stream: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Type and bytes of each top-level box."""
    while header := stream.read(8):
        if len(header) < 8:
            raise CorruptDataError("ffmpeg's output ends inside a box header")
        size, kind = struct.unpack(">I4s", header)
        if size < 8:
            raise CorruptDataError(f"a box {kind!r} of {size} bytes in ffmpeg's output")
        body = stream.read(size - 8)
        if len(body) < size - 8:
            raise CorruptDataError(f"ffmpeg's output ends inside its box {kind!r}")
        yield kind, header + body


def of_piece(encode: Encode, piece: int) -> Encode:
    """The encode as if this piece were all of it."""
    return replace(encode, num_frames=encode.piece_frames[piece], pieces=())
