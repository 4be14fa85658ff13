"""How tables are stored: the columns of each, their types, and the format version that introduced them.

`docs/format.md` gives the meaning of every column.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """How a column is stored: its dtype, whether it is ragged, and whether it is stored as differences (`delta`), for
    columns whose neighbouring rows differ by little.

    `since` is the format version that introduced the column. In tables of an earlier version every row is `before`, or
    empty if the column is ragged. An `optional` column came within a version: tables without it are read alike.
    """

    dtype: str
    ragged: bool = False
    delta: bool = False
    since: int = 1
    before: int = 0
    optional: bool = False


TEXT = Column("u1", ragged=True)
TEXT_SINCE_2 = Column("u1", ragged=True, since=2)
TEXT_SINCE_3 = Column("u1", ragged=True, since=3)
# The second array of a ragged column.
OFFSETS = Column("<i8", delta=True)

SCHEMA: dict[str, dict[str, Column]] = {
    "videos": {
        "id": TEXT,
        "source": TEXT,
        "attributes": TEXT,
        "identity": Column("<u8"),
        "fps_num": Column("<i8"),
        "fps_den": Column("<i8"),
        "num_frames": Column("<i8"),
        "gop_frames": Column("<i4"),
        "segment_gops": Column("<i4"),
        "config": Column("<i4"),
        "timebase_num": Column("<i8"),
        "timebase_den": Column("<i8"),
        "path": TEXT_SINCE_2,
        "given_up": TEXT_SINCE_2,
        "dropped": Column("<i8", since=2, before=-1),
        "repeated": Column("<i8", since=2, before=-1),
        "salvaged": Column("<i8", ragged=True, since=2),
        "revision": Column("<i4", since=2),
        "after_edit": Column("<i8", since=3),
    },
    "segments": {
        "shard": Column("<i4", delta=True),
        "offset": Column("<i8", delta=True),
        "init_length": Column("<i4"),
        "init_crc32": Column("<u4"),
    },
    "gops": {
        "offset": Column("<i8", delta=True),
        "length": Column("<i4"),
        "crc32": Column("<u4"),
        "pattern": Column("<i4"),
    },
    "patterns": {
        "frames": Column("<i4", ragged=True),
        "referenced": Column("u1", ragged=True),
    },
    "configs": {
        "codec": TEXT,
        "extradata": TEXT,
        "width": Column("<i4"),
        "height": Column("<i4"),
        "primaries": Column("u1"),
        "transfer": Column("u1"),
        "matrix": Column("u1"),
        "full_range": Column("u1"),
        "pipeline": Column("u1", ragged=True, since=3, optional=True),
    },
    "shards": {
        "name": TEXT,
        "length": Column("<i8"),
    },
    "failures": {
        "id": TEXT,
        "source": TEXT,
        "reason": TEXT,
        "attempted_ns": Column("<i8", delta=True),
        "path": TEXT_SINCE_2,
    },
    "edits": {
        "id": TEXT_SINCE_3,
        "number": Column("<i8", since=3),
        "attributes": TEXT_SINCE_3,
        "removed": TEXT_SINCE_3,
    },
    "drops": {
        "id": TEXT_SINCE_3,
        "number": Column("<i8", since=3),
        "revision": Column("<i4", since=3),
    },
    "timeline": {
        "pts": Column("<i8", delta=True),
    },
}


def tables_of(version: int) -> dict[str, dict[str, Column]]:
    """The tables that a manifest of this format version has, with the columns that it has of each."""
    there = {
        table: {name: column for name, column in columns.items() if column.since <= version}
        for table, columns in SCHEMA.items()
    }
    return {table: columns for table, columns in there.items() if columns}
