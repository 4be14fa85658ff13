"""A dataset in memory: a handful of tables, each a struct of numpy arrays.

    videos      a row for each video: its source, its frame rate, its number of frames, its cuts into GOPs
    segments    a row for each segment: about ten seconds of a video, a playable MP4 inside a shard
    gops        a row for each GOP: the byte range to read, its CRC-32 and its pattern
    patterns    which frame each sample of a GOP shows, and whether another frame refers to it
    configs     codec configurations: what a decoder needs once
    shards      the files that hold the segments
    failures    sources that are not in the dataset, and why
    edits       columns of videos that were set or removed after the videos were stored
    drops       videos that were taken out of the dataset
    timeline    for every frame the pts of the source frame it shows

The rows of `segments`, `gops` and `timeline` are in the order of their videos. So a video's rows are one run, whose
start is a running sum and needs no column. `docs/format.md` gives the meaning of every column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..errors import CorruptDataError, VideoNotFoundError
from ..lazy import lazy
from .near_ids import did_you_mean, near_ids
from .ragged import Array, Ragged, from_rows, from_texts, offsets_of
from .records import CodecConfig, Pattern, SourceChanges, VideoRow
from .row_of_id import RowOfId
from .schema import SCHEMA

# Columns of videos whose values are at least 1.
POSITIVE = ("num_frames", "gop_frames", "segment_gops", "fps_num", "fps_den", "timebase_den")
# What reading needs besides the tables, and is worked out of them when a manifest is opened.
DERIVED = ("first_gops", "first_segments", "first_frames")


@dataclass(frozen=True, eq=False)
class Table:
    """Base of all tables. Every column has one entry for each row."""

    def __post_init__(self) -> None:
        lengths = {field.name: len(getattr(self, field.name)) for field in fields(self)}
        if len(set(lengths.values())) > 1:
            raise CorruptDataError(
                f"the columns of table {type(self).__name__} differ in length: {lengths}; the manifest is damaged"
            )

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def same_rows(self, other: Table) -> bool:
        """Whether both hold the same values."""
        return all(_same_column(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))


def _same_column(one: Any, other: Any) -> bool:
    if isinstance(one, Ragged):
        return np.array_equal(one.offsets, other.offsets) and np.array_equal(one.values, other.values)
    return np.array_equal(one, other)


@dataclass(frozen=True, eq=False)
class Videos(Table):
    id: Ragged
    source: Ragged
    attributes: Ragged
    identity: Array
    fps_num: Array
    fps_den: Array
    num_frames: Array
    gop_frames: Array
    segment_gops: Array
    config: Array
    timebase_num: Array
    timebase_den: Array
    path: Ragged
    given_up: Ragged
    dropped: Array
    repeated: Array
    salvaged: Ragged
    revision: Array
    after_edit: Array


@dataclass(frozen=True, eq=False)
class Segments(Table):
    shard: Array
    offset: Array
    init_length: Array
    init_crc32: Array


@dataclass(frozen=True, eq=False)
class Gops(Table):
    offset: Array
    length: Array
    crc32: Array
    pattern: Array


@dataclass(frozen=True, eq=False)
class Patterns(Table):
    frames: Ragged
    referenced: Ragged


@dataclass(frozen=True, eq=False)
class Configs(Table):
    codec: Ragged
    extradata: Ragged
    width: Array
    height: Array
    primaries: Array
    transfer: Array
    matrix: Array
    full_range: Array
    pipeline: Ragged


@dataclass(frozen=True, eq=False)
class Shards(Table):
    name: Ragged
    length: Array


@dataclass(frozen=True, eq=False)
class Failures(Table):
    id: Ragged
    source: Ragged
    reason: Ragged
    attempted_ns: Array
    path: Ragged


@dataclass(frozen=True, eq=False)
class Edits(Table):
    id: Ragged
    number: Array
    attributes: Ragged
    removed: Ragged


@dataclass(frozen=True, eq=False)
class Drops(Table):
    id: Ragged
    number: Array
    revision: Array


@dataclass(frozen=True, eq=False)
class Timeline(Table):
    pts: Array


@dataclass(frozen=True, eq=False)
class Origins(Table):
    """Where the videos of a snapshot in layers lie: the number of the layer, counted from the oldest, and there the row
    of the video and the first row of its timeline. It is no table of the format: it is made when one is opened."""

    layer: Array
    video: Array
    first_frame: Array


TABLES_OF_IDS = ("failures", "edits", "drops")
"""The tables whose rows belong to an id, which need not be one of a video."""

TABLE_TYPES: dict[str, Any] = {
    "videos": Videos,
    "segments": Segments,
    "gops": Gops,
    "patterns": Patterns,
    "configs": Configs,
    "shards": Shards,
    "failures": Failures,
    "edits": Edits,
    "drops": Drops,
    "timeline": Timeline,
}


@dataclass(frozen=True, eq=False)
class Manifest:
    """All tables of one snapshot, or of one unit of work.

    `timeline` is None if it was not read. It is the only table that grows with frames rather than GOPs. `origins` is
    None but for the manifest of a snapshot in layers, without its timeline.
    """

    videos: Videos
    segments: Segments
    gops: Gops
    patterns: Patterns
    configs: Configs
    shards: Shards
    failures: Failures
    edits: Edits
    drops: Drops
    timeline: Timeline | None
    origins: Origins | None = None

    def __post_init__(self) -> None:
        for column in POSITIVE:
            if getattr(self.videos, column).min(initial=1) < 1:
                raise CorruptDataError(f"column videos/{column} has a value below 1; the manifest is damaged")
        expected = {
            "segments": int(self.first_segments[-1]),
            "gops": int(self.first_gops[-1]),
            "timeline": int(self.first_frames[-1]),
        }
        for name, rows in expected.items():
            table = getattr(self, name)
            if table is not None and len(table) != rows:
                raise CorruptDataError(
                    f"table {name} has {len(table)} rows, but the videos need {rows}; the manifest is damaged"
                )
        for table_name, column, target in (
            ("videos", "config", self.configs),
            ("segments", "shard", self.shards),
            ("gops", "pattern", self.patterns),
        ):
            references = getattr(getattr(self, table_name), column)
            if len(references) and (references.min() < 0 or references.max() >= len(target)):
                raise CorruptDataError(
                    f"column {table_name}/{column} refers to rows that do not exist; the manifest is damaged"
                )

    @lazy
    def gop_counts(self) -> Array:
        """GOPs of each video."""
        return -(-self.videos.num_frames // self.videos.gop_frames)

    @lazy
    def segment_counts(self) -> Array:
        """Segments of each video."""
        return -(-self.gop_counts // self.videos.segment_gops)

    @lazy
    def first_gops(self) -> Array:
        """First row of each video in `gops`; then the total number of rows."""
        return offsets_of(self.gop_counts)

    @lazy
    def first_segments(self) -> Array:
        """First row of each video in `segments`; then the total number of rows."""
        return offsets_of(self.segment_counts)

    @lazy
    def first_frames(self) -> Array:
        """First row of each video in `timeline`; then the total number of rows."""
        return offsets_of(self.videos.num_frames)

    @lazy
    def ids(self) -> list[str]:
        """Every video's id, in row order. Of a large dataset that is seconds and gigabytes: see `row_of_id`."""
        return self.videos.id.texts()

    @lazy
    def row_of_id(self) -> RowOfId:
        """The rows of videos, by their ids."""
        return RowOfId(self.videos.id)

    def row_of(self, video_id: str) -> int:
        """The row of the video with this id; VideoNotFoundError when there is none."""
        row = self.row_of_id.get(video_id)
        if row is None:
            raise VideoNotFoundError(
                f"the dataset has no video {video_id!r}; `shortgop info` lists the ids",
                video=video_id,
                more=lambda: self._near_text(video_id),
            )
        return row

    def _near_text(self, video_id: str) -> str:
        return did_you_mean(video_id, near_ids(self.videos.id, video_id))

    def video(self, row: int) -> VideoRow:
        """A row of `videos` as Python values."""
        videos = self.videos
        return VideoRow(
            id=videos.id.text(row),
            source=videos.source.text(row),
            path=videos.path.text(row),
            attributes_json=videos.attributes.text(row),
            fps_num=int(videos.fps_num[row]),
            fps_den=int(videos.fps_den[row]),
            num_frames=int(videos.num_frames[row]),
            gop_frames=int(videos.gop_frames[row]),
            segment_gops=int(videos.segment_gops[row]),
            config=int(videos.config[row]),
            timebase_num=int(videos.timebase_num[row]),
            timebase_den=int(videos.timebase_den[row]),
            first_gop=int(self.first_gops[row]),
            first_segment=int(self.first_segments[row]),
            first_frame=int(self.first_frames[row]),
        )

    def changes(self, row: int) -> SourceChanges:
        """How a video's frames differ from those of its source."""
        videos = self.videos
        dropped, repeated = int(videos.dropped[row]), int(videos.repeated[row])
        return SourceChanges(
            given_up=tuple(json.loads(videos.given_up.text(row) or "[]")),
            dropped=None if dropped < 0 else dropped,
            repeated=None if repeated < 0 else repeated,
            salvaged=tuple(tuple(run) for run in videos.salvaged.row(row).reshape(-1, 2).tolist()),
        )

    def config(self, index: int) -> CodecConfig:
        """A row of `configs` as Python values."""
        configs = self.configs
        return CodecConfig(
            codec=configs.codec.text(index),
            extradata=configs.extradata.bytes(index),
            width=int(configs.width[index]),
            height=int(configs.height[index]),
            primaries=int(configs.primaries[index]),
            transfer=int(configs.transfer[index]),
            matrix=int(configs.matrix[index]),
            full_range=bool(configs.full_range[index]),
        )

    def pipeline(self, index: int) -> dict[str, str]:
        """What decoded, scaled and encoded the videos with this row of `configs`; {} if that is not known."""
        return dict(json.loads(self.configs.pipeline.text(index) or "{}"))

    def pattern(self, index: int) -> Pattern:
        """A row of `patterns` as Python values."""
        return Pattern(
            frames=tuple(self.patterns.frames.row(index).tolist()),
            referenced=tuple(bool(value) for value in self.patterns.referenced.row(index)),
        )


def manifest_as_is(derived: Mapping[str, Array], **tables: Any) -> Manifest:
    """A manifest of tables that are known to fit each other, with what reading needs worked out of them (`DERIVED`).
    Working that out, and checking them, reads whole columns."""
    made = Manifest.__new__(Manifest)
    vars(made).update({"timeline": None, "origins": None, **tables, **{name: derived[name] for name in DERIVED}})
    return made


def empty() -> Manifest:
    """The manifest of an empty dataset."""
    tables: dict[str, Any] = {
        name: kind(
            **{
                column: from_rows([], spec.dtype) if spec.ragged else np.zeros(0, dtype=spec.dtype)
                for column, spec in SCHEMA[name].items()
            }
        )
        for name, kind in TABLE_TYPES.items()
    }
    return Manifest(**tables)


def failures_table(rows: list[tuple[str, str, str, int, str]]) -> Failures:
    """A failures table of rows (id, source, reason, time of the attempt in nanoseconds since 1970, absolute path)."""
    return Failures(
        id=from_texts(row[0] for row in rows),
        source=from_texts(row[1] for row in rows),
        reason=from_texts(row[2] for row in rows),
        attempted_ns=np.array([row[3] for row in rows], dtype="<i8"),
        path=from_texts(row[4] for row in rows),
    )


def patterns_table(rows: Sequence[tuple[Sequence[int], Sequence[bool]]]) -> Patterns:
    """A patterns table of rows (frames, referenced)."""
    return Patterns(
        frames=from_rows((frames for frames, _ in rows), "<i4"),
        referenced=from_rows((referenced for _, referenced in rows), "u1"),
    )


def shards_table(rows: list[tuple[str, int]]) -> Shards:
    """A shards table of rows (name, length in bytes)."""
    return Shards(
        name=from_texts(row[0] for row in rows),
        length=np.array([row[1] for row in rows], dtype="<i8"),
    )
