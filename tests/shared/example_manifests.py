"""Small manifests made up on the spot: their rows are consistent, and there are no files behind them."""

import dataclasses
import json
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shortgop.manifests.merging.edits import Drop, Edit, drops_table, edits_table
from shortgop.manifests.ragged import Ragged, from_rows, from_texts
from shortgop.manifests.tables import (
    Configs,
    Gops,
    Manifest,
    Segments,
    Shards,
    Timeline,
    Videos,
    empty,
    failures_table,
    patterns_table,
)

GOP_FRAMES = 4
SEGMENT_GOPS = 2


def video(
    video_id: str,
    *,
    shard: str = "unit-0.shard",
    offset: int = 0,
    frames: int = 10,
    codec: str = "h264",
    revision: int = 0,
    after_edit: int = 0,
    attributes: str = "{}",
) -> Manifest:
    """A manifest with one video, in GOPs of 4 frames and segments of 2 GOPs, that starts at `offset`."""
    in_gops = [min(GOP_FRAMES, frames - first) for first in range(0, frames, GOP_FRAMES)]
    n_gops, n_segments = len(in_gops), -(-len(in_gops) // SEGMENT_GOPS)
    # Every segment is an init of 100 bytes and GOPs of 1000 bytes.
    segment_starts = offset + np.arange(n_segments, dtype="<i8") * (100 + 1000 * SEGMENT_GOPS)
    gop_starts = [segment_starts[g // SEGMENT_GOPS] + 100 + 1000 * (g % SEGMENT_GOPS) for g in range(n_gops)]
    lengths = sorted(set(in_gops), reverse=True)

    def column(value: int, dtype: str) -> Any:
        return np.array([value], dtype=dtype)

    return Manifest(
        videos=Videos(
            id=from_texts([video_id]),
            source=from_texts([f"/videos/{video_id}"]),
            attributes=from_texts([attributes]),
            identity=column(offset, "<u8"),
            fps_num=column(30000, "<i8"),
            fps_den=column(1001, "<i8"),
            num_frames=column(frames, "<i8"),
            gop_frames=column(GOP_FRAMES, "<i4"),
            segment_gops=column(SEGMENT_GOPS, "<i4"),
            config=column(0, "<i4"),
            timebase_num=column(1, "<i8"),
            timebase_den=column(30000, "<i8"),
            path=from_texts([f"/videos/{video_id}"]),
            given_up=from_texts(['["audio dropped"]']),
            dropped=column(0, "<i8"),
            repeated=column(0, "<i8"),
            salvaged=from_rows([[1, 3]], "<i8"),
            revision=column(revision, "<i4"),
            after_edit=column(after_edit, "<i8"),
        ),
        segments=Segments(
            shard=np.zeros(n_segments, dtype="<i4"),
            offset=segment_starts,
            init_length=np.full(n_segments, 100, dtype="<i4"),
            init_crc32=np.full(n_segments, 7, dtype="<u4"),
        ),
        gops=Gops(
            offset=np.array(gop_starts, dtype="<i8"),
            length=np.full(n_gops, 1000, dtype="<i4"),
            crc32=np.arange(n_gops, dtype="<u4"),
            pattern=np.array([lengths.index(length) for length in in_gops], dtype="<i4"),
        ),
        patterns=patterns_table([(range(length), [True] * length) for length in lengths]),
        configs=Configs(
            codec=from_texts([codec]),
            extradata=from_rows([codec.encode() * 3]),
            width=column(64, "<i4"),
            height=column(48, "<i4"),
            primaries=column(1, "u1"),
            transfer=column(1, "u1"),
            matrix=column(1, "u1"),
            full_range=column(0, "u1"),
            pipeline=from_texts([f'{{"encoder": "of {codec}"}}']),
        ),
        shards=Shards(name=from_texts([shard]), length=column(1 << 20, "<i8")),
        failures=failures_table([]),
        edits=edits_table([]),
        drops=drops_table({}),
        timeline=Timeline(pts=offset + np.arange(frames, dtype="<i8") * 1001),
    )


def failure(source_id: str, reason: str, attempted_ns: int = 0) -> Manifest:
    """A manifest of one source that could not be prepared."""
    row = (source_id, f"/videos/{source_id}", reason, attempted_ns, f"/videos/{source_id}")
    return dataclasses.replace(empty(), failures=failures_table([row]))


def edit(video_id: str, number: int, *removed: str, **columns: Any) -> Manifest:
    """A manifest of one edit: columns that are set, and names of columns that are removed."""
    return dataclasses.replace(empty(), edits=edits_table([Edit(video_id, number, columns, removed)]))


def drop(video_id: str, number: int, revision: int = 0) -> Manifest:
    """A manifest of one drop."""
    return dataclasses.replace(empty(), drops=drops_table({video_id: Drop(number, revision)}))


def colliding_parts(*ids: str) -> st.SearchStrategy[Manifest]:
    """Parts of one video, edit, drop or failure of these ids. Ranges are small, so that numbers, revisions and shards
    collide."""
    any_id = st.sampled_from(ids)
    columns = st.dictionaries(st.sampled_from(["label", "split"]), st.sampled_from([1, "1", None, [2]]), max_size=2)
    return st.one_of(
        st.builds(
            lambda video_id, shard, after_edit, revision, columns, frames: video(
                video_id,
                shard=shard,
                after_edit=after_edit,
                revision=revision,
                attributes=json.dumps(columns),
                frames=frames,
            ),
            any_id,
            st.sampled_from(["1.shard", "2.shard"]),
            st.integers(0, 4),
            st.integers(0, 1),
            columns,
            st.sampled_from([3, 9]),
        ),
        st.builds(
            lambda video_id, number, removed, columns: edit(video_id, number, *(removed - columns.keys()), **columns),
            any_id,
            st.integers(1, 4),
            st.sets(st.sampled_from(["label", "split"])),
            columns,
        ),
        st.builds(drop, any_id, st.integers(1, 4), st.integers(0, 2)),
        st.builds(failure, any_id, st.sampled_from(["cut", ""]), st.integers(0, 2)),
    )


def rows(manifest: Manifest) -> dict[str, list[Any]]:
    """Every column as a list, for comparing two manifests and seeing the difference."""
    columns: dict[str, list[Any]] = {}
    for table_field in dataclasses.fields(manifest):
        table = getattr(manifest, table_field.name)
        # A timeline that was not read, and origins of a snapshot that is not in layers.
        for field in () if table is None else dataclasses.fields(table):
            column = getattr(table, field.name)
            plain = [column.bytes(row) for row in range(len(column))] if isinstance(column, Ragged) else column.tolist()
            columns[f"{table_field.name}.{field.name}"] = plain
    return columns
