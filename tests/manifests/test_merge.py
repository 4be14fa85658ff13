"""Putting together what units of work found: the result depends on what went in, and on nothing else."""

from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_manifests import failure, rows, video
from shortgop.errors import CorruptDataError
from shortgop.manifests.merging.frame_runs import FrameRuns, timeline_blocks
from shortgop.manifests.merging.merge import merge, merge_tables
from shortgop.manifests.tables import Manifest, Videos, empty


@st.composite
def units(draw: st.DrawFn) -> list[Manifest]:
    """What some units of work may have found: ids and failures collide, every video has a shard of its own."""
    ids = st.sampled_from(["a", "b", "c", "d/e", "é"])
    found = [
        video(
            draw(ids),
            shard=f"{number:02}.shard",
            offset=draw(st.sampled_from([0, 5000])),
            frames=draw(st.integers(1, 20)),
            codec=draw(st.sampled_from(["h264", "hevc", "av1"])),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    failed = draw(
        st.lists(st.builds(failure, ids, st.sampled_from(["cut", "no video"]), st.integers(0, 2)), max_size=4)
    )
    return [*found, *failed]


def test_videos_stand_by_id_and_everything_follows_them() -> None:
    merged = merge([video("b", shard="1.shard", offset=5000, frames=3), video("a", shard="2.shard", frames=10)])
    assert merged.ids == ["a", "b"]
    assert merged.gop_counts.tolist() == [3, 1]
    assert merged.gops.offset.tolist() == [100, 1100, 2200, 5100]
    assert merged.timeline is not None
    assert merged.timeline.pts.tolist() == [1001 * k for k in range(10)] + [5000, 6001, 7002]


def test_patterns_configurations_and_shards_are_numbered_by_first_use() -> None:
    merged = merge([video("b", shard="z", frames=4, codec="h264"), video("a", shard="y", frames=6, codec="hevc")])
    assert merged.videos.config.tolist() == [0, 1]
    assert [merged.config(index).codec for index in range(2)] == ["hevc", "h264"]
    assert merged.shards.name.texts() == ["y", "z"]
    # Both videos have GOPs of four frames: that is one pattern.
    assert merged.gops.pattern.tolist() == [0, 1, 0]
    assert [len(merged.pattern(index)) for index in range(len(merged.patterns))] == [4, 2]


@given(units(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_order_does_not_matter(found: list[Manifest], random: Random) -> None:
    shuffled = found.copy()
    random.shuffle(shuffled)
    assert rows(merge(shuffled)) == rows(merge(found))


@given(units(), st.lists(st.integers(1, 4)))
@settings(max_examples=50, deadline=None)
def test_step_by_step_is_the_same_as_all_at_once(found: list[Manifest], steps: list[int]) -> None:
    snapshot, rest = empty(), found
    for step in [*steps, len(found)]:
        snapshot, rest = merge([snapshot, *rest[:step]]), rest[step:]
    assert rows(snapshot) == rows(merge(found))


@given(units())
@settings(max_examples=50, deadline=None)
def test_merging_the_same_again_changes_nothing(found: list[Manifest]) -> None:
    assert rows(merge([*found, *found])) == rows(merge(found))


def test_of_two_videos_with_one_id_the_shard_whose_name_sorts_first_has_it() -> None:
    both = [video("a", shard="2.shard", frames=3), video("a", shard="1.shard", frames=7)]
    for order in permutations(both):
        merged = merge(order)
        assert merged.shards.name.texts() == ["1.shard"]
        assert merged.videos.num_frames.tolist() == [7]
        assert len(merged.gops) == 2


def test_a_failure_ends_when_the_source_is_prepared() -> None:
    assert merge([failure("a", "cut"), failure("b", "cut")]).failures.id.texts() == ["a", "b"]
    assert merge([failure("a", "cut"), video("a")]).failures.id.texts() == []


def test_the_latest_reason_stands() -> None:
    attempts = [failure("a", "no such file", 1), failure("a", "cut", 3), failure("a", "no video", 2)]
    for order in permutations(attempts):
        assert merge(order).failures.reason.texts() == ["cut"]


def test_nothing_merged_is_nothing() -> None:
    assert rows(merge([])) == rows(empty())


def test_a_manifest_without_its_timeline_cannot_be_merged() -> None:
    tables, _ = merge_tables([video("a")])
    with pytest.raises(ValueError, match="timeline"):
        merge([tables])


@given(units(), st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_a_timeline_comes_the_same_in_blocks_of_any_size(found: list[Manifest], block_rows: int) -> None:
    whole = merge(found)
    _, runs = merge_tables(found)
    readers = [lambda start, stop, m=m: m.timeline.pts[start:stop] for m in found]
    blocks = list(timeline_blocks(runs, readers, block_rows=block_rows))
    assert all(len(block) == block_rows for block in blocks[:-1])
    assert whole.timeline is not None
    assert [pts for block in blocks for pts in block.tolist()] == whole.timeline.pts.tolist()


def test_a_block_asks_each_timeline_once_and_only_for_what_it_needs() -> None:
    asked = []

    def read(start: int, stop: int) -> np.ndarray:
        asked.append((start, stop))
        return np.arange(start, stop)

    # Three videos of ten frames out of one timeline; the second of them is left out.
    runs = FrameRuns(manifest=np.zeros(2, int), start=np.array([0, 20]), length=np.array([10, 10]))
    blocks = list(timeline_blocks(runs, [read], block_rows=5))
    assert asked == [(0, 5), (5, 10), (20, 25), (25, 30)]
    assert np.concatenate(blocks).tolist() == [*range(10), *range(20, 30)]


# What a damaged manifest may say


def replaced(manifest: Manifest, table: str, **columns: object) -> dict[str, object]:
    tables = {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__}
    values = {name: getattr(tables[table], name) for name in type(tables[table]).__dataclass_fields__}
    return {**tables, table: type(tables[table])(**{**values, **columns})}


@pytest.mark.parametrize(
    ("table", "column", "value", "complaint"),
    [
        ("videos", "config", 1, "videos/config refers to rows that do not exist"),
        ("segments", "shard", -1, "segments/shard refers to rows that do not exist"),
        ("gops", "pattern", 9, "gops/pattern refers to rows that do not exist"),
        ("videos", "num_frames", 100, "table segments has 2 rows, but the videos need 13"),
        ("videos", "num_frames", 12, "table timeline has 10 rows, but the videos need 12"),
        ("videos", "num_frames", -5, "videos/num_frames has a value below 1"),
        ("videos", "gop_frames", 0, "videos/gop_frames has a value below 1"),
        ("videos", "fps_den", 0, "videos/fps_den has a value below 1"),
    ],
)
def test_rows_that_contradict_each_other_are_refused(table: str, column: str, value: int, complaint: str) -> None:
    whole = video("a")
    damaged = np.full_like(getattr(getattr(whole, table), column), value)
    with pytest.raises(CorruptDataError, match=complaint):
        Manifest(**replaced(whole, table, **{column: damaged}))  # type: ignore[arg-type]


def test_columns_of_different_lengths_are_refused() -> None:
    columns = {name: getattr(video("a").videos, name) for name in Videos.__dataclass_fields__}
    with pytest.raises(CorruptDataError, match="differ in length"):
        Videos(**{**columns, "identity": np.zeros(2, dtype="<u8")})
