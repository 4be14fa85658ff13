"""Verification of a dataset's bytes against its manifest: `shortgop verify` without decoding.

Shards are read from their first byte to their last, one GOP in memory at a time. A problem does not end the check.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from ...errors import CorruptDataError, DatasetError, MissingDataError
from ...storage.interface import Storage
from ..dataset_files.layout import file_at, listed, shard_key, unit_of_shard
from ..dataset_files.parts import parts_of_unit
from ..gop_check import check_gop, frame_ticks
from ..mp4 import Init, parse_init
from ..records import VideoRow
from ..tables import Manifest
from .lost import lost_videos, where_it_is
from .problem import Problem, is_unread
from .shard_bytes import ShardBytes, gop_piece, init_piece
from .snapshot_check import verify_snapshot


def verify(
    dataset: Storage,
    manifest: Manifest,
    *,
    snapshot: str | None = None,
    on_gop: Callable[[], object] = lambda: None,
) -> Iterator[Problem]:
    """Check every shard, segment and GOP; with `snapshot`, the name of the manifest's snapshot, also the timeline, the
    order of ids and the label columns.

    `on_gop` is called once for each row of the GOP table.
    """
    checker = _Checker(dataset, manifest, on_gop, partial(_superseded, dataset, manifest))
    order = np.lexsort((manifest.segments.offset, manifest.segments.shard))
    bounds = np.searchsorted(manifest.segments.shard[order], np.arange(len(manifest.shards) + 1)).tolist()
    for shard, (first, last) in enumerate(pairwise(bounds)):
        key = shard_key(manifest.shards.name.text(shard))
        yield from checker.shard(key, int(manifest.shards.length[shard]), order[first:last].tolist())
    if snapshot is not None:
        yield from verify_snapshot(dataset, manifest, snapshot)


def stray_files(dataset: Storage, manifest: Manifest) -> list[str]:
    """Files in the shards folder that the manifest does not name. They do no harm, and are of use only to a running
    job."""
    known = {shard_key(name) for name in manifest.shards.name.texts()}
    return sorted(dataset.place(stored.key) for stored in listed(dataset, "shards") if stored.key not in known)


def damaged_videos(manifest: Manifest, problems: Iterable[Problem]) -> dict[str, str]:
    """The videos that must be made again to repair these problems: id -> the first problem.

    A problem of a whole shard concerns every video in it. A problem of the manifest itself, such as a damaged timeline,
    concerns no video.
    """
    damaged: dict[str, str] = {}
    for problem in problems:
        ids = [problem.video] if problem.video is not None else _videos_in(manifest, problem.file.rpartition("/")[2])
        for video_id in ids:
            damaged.setdefault(video_id, str(problem))
    return damaged


def _videos_in(manifest: Manifest, shard: str) -> list[str]:
    rows = [row for row, name in enumerate(manifest.shards.name.texts()) if name == shard]
    return [manifest.videos.id.text(video) for video in lost_videos(manifest, rows).tolist()]


class _Checker:
    """Checks one shard after the other. What all checks share is computed once."""

    def __init__(
        self,
        dataset: Storage,
        manifest: Manifest,
        on_gop: Callable[[], object],
        superseded: Callable[[str], dict[int, int]],
    ) -> None:
        self._dataset = dataset
        self._manifest = manifest
        self._on_gop = on_gop
        self._superseded = superseded
        self._source = ShardBytes(dataset)
        self._patterns = [manifest.pattern(index) for index in range(len(manifest.patterns))]
        self._configs = [manifest.config(index) for index in range(len(manifest.configs))]
        # Nearly all segments of a dataset share a few inits.
        self._parse_init = lru_cache(maxsize=64)(parse_init)

    def shard(self, key: str, length: int, segments: list[int]) -> Iterator[Problem]:
        """Problems of a shard and of its segments, which come in the order of their offsets."""
        file = self._dataset.place(key)
        try:
            # Reading nothing tells whether the file can be read.
            self._source.read(key, 0, 0)
            stored = file_at(self._dataset, key)
            # In a store it took no request to read nothing.
            if stored is None:
                raise MissingDataError("is missing", file=file)
        except DatasetError as error:
            yield Problem(_without_file(error, file), file, is_unread=is_unread(error))
            for segment in segments:
                for _ in self._gops(segment):
                    self._on_gop()
            return
        if stored.num_bytes != length:
            yield Problem(f"has {stored.num_bytes} bytes, the manifest says {length}", file)
        end = 0
        for segment in segments:
            end = yield from self._segment(key, segment, end)
        yield from self._between(key, end, length)

    def _between(self, key: str, end: int, start: int) -> Iterator[Problem]:
        """The problem, if any, of a segment that starts at `start` after one that ends at `end`."""
        if end < start:
            stops = self._superseded(key.rpartition("/")[2])
            while end < start and end in stops:
                end = stops[end]
        if end != start:
            yield _gap(self._dataset.place(key), end, start)

    def _video_of(self, segment: int) -> int:
        return int(np.searchsorted(self._manifest.first_segments, segment, side="right")) - 1

    def _gops(self, segment: int) -> range:
        """The segment's rows in the GOP table."""
        manifest = self._manifest
        video = self._video_of(segment)
        number = segment - int(manifest.first_segments[video])
        per_segment = int(manifest.videos.segment_gops[video])
        first = int(manifest.first_gops[video]) + number * per_segment
        return range(first, min(first + per_segment, int(manifest.first_gops[video + 1])))

    def _segment(self, key: str, segment: int, end: int) -> Generator[Problem, None, int]:
        """Problems of a segment that should start at `end`; returns where it ends."""
        file = self._dataset.place(key)
        table = self._manifest.segments
        video = self._manifest.video(self._video_of(segment))
        offset, length = int(table.offset[segment]), int(table.init_length[segment])
        yield from self._between(key, end, offset)
        end = offset + length

        init = None
        try:
            init = self._checked_init(self._source.piece(key, init_piece(self._manifest, segment)), video)
        except DatasetError as error:
            what = f"the init: {_without_file(error, file)}"
            yield Problem(what, file, (offset, end), segment, video.id, is_unread=is_unread(error))
        for gop in self._gops(segment):
            start, length = int(self._manifest.gops.offset[gop]), int(self._manifest.gops.length[gop])
            if start != end:
                yield _gap(file, end, start)
            end = start + length
            try:
                self._check_gop(key, video, gop, init)
            except DatasetError as error:
                first = (gop - video.first_gop) * video.gop_frames
                frames = (first, first + video.frames_in_gop(gop - video.first_gop))
                what = _without_file(error, file)
                yield Problem(what, file, (start, end), segment, video.id, frames, is_unread(error))
            self._on_gop()
        return end

    def _checked_init(self, data: bytes, video: VideoRow) -> Init:
        init = self._parse_init(data)
        if init.config != self._configs[video.config]:
            raise CorruptDataError(f"it does not match codec configuration {video.config} of the video")
        frame_ticks(init.timescale, video.fps)
        return init

    def _check_gop(self, key: str, video: VideoRow, gop: int, init: Init | None) -> None:
        data = self._source.piece(key, gop_piece(self._manifest, gop))
        if init is None:
            return
        number = gop - video.first_gop
        in_segment = number % video.segment_gops
        ticks = frame_ticks(init.timescale, video.fps)
        fragment, pattern = check_gop(
            data,
            config=init.config,
            num_frames=video.frames_in_gop(number),
            decode_ticks=in_segment * video.gop_frames * ticks,
            media_time_ticks=init.media_time_ticks,
            frame_ticks=ticks,
        )
        if fragment.sequence_number != in_segment + 1:
            raise CorruptDataError(f"the fragment has sequence number {fragment.sequence_number}, not {in_segment + 1}")
        if pattern != self._patterns[expected := int(self._manifest.gops.pattern[gop])]:
            raise CorruptDataError(f"its samples do not follow pattern {expected}")


def _superseded(dataset: Storage, manifest: Manifest, shard: str) -> dict[int, int]:
    """Bytes of a shard that the dataset does not use, because their videos were made again or their source failed:
    start -> end. The part of the shard's unit still has them."""
    stops = {}
    with suppress(DatasetError):
        for part, attributes in parts_of_unit(dataset, unit_of_shard(shard)):
            if shard in (unused := attributes.get("unused", {})):
                stops[int(unused[shard][0])] = int(unused[shard][1])
            owners = np.repeat(np.arange(len(part.videos)), part.segment_counts).tolist()
            names = part.shards.name.texts()
            for segment, (video, number) in enumerate(zip(owners, part.segments.shard.tolist(), strict=True)):
                video_id, start = part.ids[video], int(part.segments.offset[segment])
                if names[number] == shard and where_it_is(manifest, video_id) != where_it_is(part, video_id):
                    stops[start] = _end_of_segment(part, video, segment)
    return stops


def _end_of_segment(manifest: Manifest, video: int, segment: int) -> int:
    in_video = segment - int(manifest.first_segments[video])
    last = int(manifest.first_gops[video]) + (in_video + 1) * int(manifest.videos.segment_gops[video])
    last = min(last, int(manifest.first_gops[video + 1])) - 1
    return int(manifest.gops.offset[last] + manifest.gops.length[last])


def _without_file(error: DatasetError, file: str) -> str:
    """What an error says, where the file is named anyway."""
    return error.message.removeprefix(f"{file} ")


def _gap(file: str, end: int, start: int) -> Problem:
    """The problem of a segment or GOP that starts at `start` after one that ends at `end`."""
    what = "no segment or GOP covers these bytes" if end < start else "two segments or GOPs cover these bytes"
    return Problem(what, file, (min(start, end), max(start, end)))
