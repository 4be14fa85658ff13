"""Export of a video, or a part of it, as an ordinary MP4. GOPs are copied and renumbered, not encoded again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from ...arguments import integer, number
from ...errors import CorruptDataError, DatasetError, FrameIndexError, UsageError, VideoNotFoundError
from ...storage.interface import Storage
from ..dataset_files.layout import shard_key
from ..gop_check import frame_ticks
from ..mp4 import Init, parse_init, restamp_fragment
from ..records import VideoRow
from ..tables import Manifest
from .lost import damage_remedy, lost_remedy
from .output_files import check_output, new_file, sources_of
from .shard_bytes import ShardBytes, gop_piece, init_piece

# Suffixes of the MP4 container. A .mov is a QuickTime file, which starts with another box.
SUFFIXES = (".m4v", ".mp4")


def frame_range(
    video: VideoRow, start_seconds: Fraction | float = 0, end_seconds: Fraction | float | None = None
) -> tuple[int, int]:
    """The frames [start, stop) that are shown at some time in [start_seconds, end_seconds).

    An end after the video's means the video's end. UsageError if no frame is left.
    """
    end = number(video.duration if end_seconds is None else end_seconds, "the end", video=video.id)
    start = number(start_seconds, "the start", video=video.id)
    # This form of the condition refuses NaN.
    if not (0 <= start < end and start < video.duration):
        raise UsageError(
            f"video {video.id!r} lasts {_shown(video.duration)}; it has no frames from {_shown(start)} "
            f"to {_shown(end)}",
            video=video.id,
        )
    return math.floor(Fraction(start) * video.fps), math.ceil(Fraction(min(end, video.duration)) * video.fps)


def _shown(seconds: float | Fraction) -> str:
    try:
        return f"{float(seconds):.3f} s"
    except OverflowError:
        return "a time beyond any float"


def export(
    dataset: Storage,
    manifest: Manifest,
    row: int,
    out: Path,
    *,
    start_frame: int = 0,
    stop_frame: int | None = None,
    overwrite: bool = False,
    new_folders: bool = False,
    sources: Iterable[str] | None = None,
) -> tuple[int, int]:
    """Write frames [start_frame, stop_frame) of a video to the file `out`. An existing file is replaced only with
    `overwrite`. With `new_folders` the folders that it lies in are made. `sources` are those of the dataset that `out`
    may be, where they are known.

    Returns the range of frames written. It covers whole GOPs, since nothing is encoded again. An edit list cannot hide
    the extra frames: in a fragmented MP4 ffmpeg applies it as a shift in time and shows all frames.

    The file is fragmented like the segments, one fragment per GOP, and its times start at 0. Every GOP is checked
    against its CRC-32.

    Raises VideoNotFoundError or FrameIndexError for a row or frames outside the dataset, CorruptDataError or
    MissingDataError if the dataset is damaged, OutputError if `out` cannot be written, and UsageError if `out` must not
    be written: it exists, lies within a dataset, is the source of a video, or does not end in .mp4 or .m4v. After an
    error `out` is as it was before.
    """
    row = integer(row, "row")
    if not 0 <= row < len(manifest.videos):
        raise VideoNotFoundError(
            f"the dataset has no video number {row}; numbers start at 0 and end below {len(manifest.videos)}"
        )
    video = manifest.video(row)
    start_frame = integer(start_frame, "start_frame", video=video.id)
    stop_frame = video.num_frames if stop_frame is None else integer(stop_frame, "stop_frame", video=video.id)
    if not 0 <= start_frame < stop_frame <= video.num_frames:
        raise FrameIndexError(
            f"video {video.id!r} has frames 0 to {video.num_frames - 1}; choose frames within these, not "
            f"{start_frame} to {stop_frame - 1}",
            video=video.id,
        )
    gops = range(start_frame // video.gop_frames, -(-stop_frame // video.gop_frames))
    check_output(
        out, suffixes=SUFFIXES, overwrite=overwrite, sources=sources_of(manifest) if sources is None else sources
    )
    # Errors in reading arrive as errors of this package, so an OSError here concerns `out`.
    with new_file(out, overwrite=overwrite, new_folders=new_folders) as temporary, temporary.open("xb") as file:
        file.writelines(_pieces(dataset, manifest, video, gops))
    return gops.start * video.gop_frames, min(gops.stop * video.gop_frames, video.num_frames)


def _pieces(dataset: Storage, manifest: Manifest, video: VideoRow, gops: range) -> Iterator[bytes]:
    """The init of the first segment, then the fragments of `gops` (numbers of GOPs in the video), with times and
    sequence numbers that start anew."""
    init: Init | None = None
    gop_ticks = 0
    source = ShardBytes(dataset, lost_remedy=lost_remedy(dataset), damage_remedy=damage_remedy(dataset))
    for gop in gops:
        segment = video.first_segment + gop // video.segment_gops
        shard = shard_key(manifest.shards.name.text(int(manifest.segments.shard[segment])))
        with _place_in_errors(dataset.place(shard), video, segment):
            if gop == gops.start or gop % video.segment_gops == 0:
                data = source.piece(shard, init_piece(manifest, segment))
                known, init = init, parse_init(data)
                if known is None:
                    gop_ticks = video.gop_frames * frame_ticks(init.timescale, video.fps)
                    yield data
                elif init != known:
                    raise CorruptDataError("the inits of this video's segments differ")
            data = source.piece(shard, gop_piece(manifest, video.first_gop + gop))
            place = gop - gops.start
            yield restamp_fragment(data, place + 1, place * gop_ticks)


@contextmanager
def _place_in_errors(shard: str, video: VideoRow, segment: int) -> Iterator[None]:
    """Adds the video, the segment and the shard to errors about a shard."""
    try:
        yield
    except DatasetError as error:
        named = error.message if shard in error.message else f"{shard}: {error.message}"
        raise type(error)(
            f"video {video.id!r}: {named}",
            video=video.id,
            segment=segment,
            file=shard,
            byte_range=error.byte_range,
        ) from error
