"""Two attempts at one unit that both run to their end: nothing that is published is ever replaced or taken away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_paths import shard_path
from dataset_places import Places, names, place_of
from datasets import current_manifest, rows_of
from example_manifests import failure, rows, video
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.units_of_work.units import Item, Unit, plan_units
from shortgop.jobs.working.work import run_unit
from shortgop.manifests.dataset_files.layout import shard_key, snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshots import open_current, open_manifest
from shortgop.manifests.dataset_files.tidy import remove_stray_shards, tidy
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.tables import Manifest, Timeline, shards_table
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.prep.shards import ShardWriter
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.whole_files import commit, commit_bytes, temporary_path
from source_arguments import find_sources
from sweep import SWEEP, only_in_a_sweep
from synthetic import SyntheticVideo

UNIT = "0123456789abcdef"
DAY_SECONDS = 24 * 3600


# What is there stays as it is


def test_a_published_file_is_never_replaced(empty_dataset: Path) -> None:
    final = empty_dataset / "shards" / "a.shard"
    assert commit_bytes(empty_dataset, final, b"the first")
    assert not commit_bytes(empty_dataset, final, b"the second")
    assert final.read_bytes() == b"the first"
    assert not any((empty_dataset / ".tmp").iterdir())


def test_a_link_that_nfs_made_twice_is_no_other_file(empty_dataset: Path) -> None:
    """The answer was lost, the client asked again, and the server says that the name is taken."""
    temporary, final = temporary_path(empty_dataset, "a"), empty_dataset / "a.shard"
    temporary.write_bytes(b"data")
    os.link(temporary, final)
    assert commit(temporary, final)
    assert final.read_bytes() == b"data"
    assert not temporary.exists()


def test_without_hard_links_nothing_is_replaced_either(empty_dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    final = empty_dataset / "shards" / "unit-0.shard"
    assert commit_bytes(empty_dataset, final, b"the first")
    assert not commit_bytes(empty_dataset, final, b"the second")
    assert final.read_bytes() == b"the first"
    write_part(DiskStorage(empty_dataset), UNIT, video("a"))
    write_part(DiskStorage(empty_dataset), UNIT, video("b"))
    assert publish(DiskStorage(empty_dataset)) == "000001"
    assert current_manifest(empty_dataset).ids == ["a", "b"]


def write(dataset: Path | Storage, data: bytes) -> ShardWriter:
    shards = ShardWriter(place_of(dataset), UNIT, shard_bytes=1 << 20)
    shards.start_segment()
    shards.append(data)
    return shards


def test_attempts_with_other_bytes_have_other_names_and_with_the_same_bytes_the_same(empty_dataset: Path) -> None:
    names = []
    for data in (b"one", b"two", b"one"):
        with closing(write(empty_dataset, data)) as shards:
            names += [file.name for file in shards.commit().values()]
    assert names[0] == names[2] != names[1]
    assert [shard_path(empty_dataset, name).read_bytes() for name in names] == [b"one", b"two", b"one"]
    assert not any((empty_dataset / ".tmp").iterdir())


def test_a_shard_that_was_damaged_under_the_same_name_is_not_taken_for_it(empty_dataset: Path) -> None:
    with closing(write(empty_dataset, b"good")) as shards:
        (first,) = shards.commit().values()
    shard_path(empty_dataset, first.name).write_bytes(b"evil")
    with closing(write(empty_dataset, b"good")) as shards:
        (second,) = shards.commit().values()
    assert shard_path(empty_dataset, second.name).read_bytes() == b"good"
    assert shard_path(empty_dataset, first.name).read_bytes() == b"evil"


# Whatever the order


class Attempt:
    """One worker's attempt at the unit, step by step."""

    def __init__(self, dataset: Storage, data: bytes, frames: int) -> None:
        self._dataset = dataset
        self._shards = write(dataset, data)
        self._frames = frames
        self.names: list[tuple[str, int]] = []

    def commit(self) -> None:
        self.names = [(file.name, file.length) for file in self._shards.commit().values()]

    def close(self) -> None:
        self._shards.close()

    def report(self) -> None:
        found = video("a", frames=self._frames)
        write_part(self._dataset, UNIT, replace(found, shards=shards_table(self.names)))


@contextmanager
def two_attempts(dataset: Storage) -> Iterator[tuple[Attempt, Attempt]]:
    """Two attempts in a new dataset, which encode the unit to other bytes."""
    create(dataset, {})
    with (
        closing(Attempt(dataset, b"the bytes of one", 10)) as one,
        closing(Attempt(dataset, b"the other's", 12)) as other,
    ):
        yield one, other


ORDERS = [
    order
    for order in permutations([("commit", 0), ("report", 0), ("commit", 1), ("report", 1)])
    if all(order.index(("commit", number)) < order.index(("report", number)) for number in (0, 1))
]


def named(manifest: Manifest) -> list[tuple[str, int]]:
    return list(zip(manifest.shards.name.texts(), manifest.shards.length.tolist(), strict=True))


@pytest.fixture
def unit(constant_video: SyntheticVideo) -> Unit:
    (source,) = find_sources([str(constant_video.path)])
    (planned,) = plan_units([Item(source, *identity_of(source.path))], profile_key="", done={}, shard_bytes=10**9)
    return planned


# Merging


@given(
    st.lists(
        st.builds(
            video,
            st.sampled_from(["a", "b"]),
            shard=st.sampled_from(["1.shard", "2.shard"]),
            offset=st.sampled_from([0, 5000]),
            frames=st.integers(1, 12),
            codec=st.sampled_from(["h264", "hevc"]),
            revision=st.integers(0, 2),
        ),
        max_size=6,
    ),
    st.randoms(use_true_random=False),
    st.lists(st.integers(1, 4)),
)
@settings(max_examples=60 if SWEEP else 30, deadline=None)
def test_of_parts_of_one_unit_the_same_wins_in_any_order_and_any_steps(
    found: list[Manifest], random: Any, steps: list[int]
) -> None:
    """Also of those that version 1 wrote, whose shards have one name."""
    shuffled = found.copy()
    random.shuffle(shuffled)
    merged = merge([])
    for step in [*steps, len(found)]:
        merged, shuffled = merge([merged, *shuffled[:step]]), shuffled[step:]
    assert rows(merged) == rows(merge(found))


def test_videos_that_differ_in_their_timelines_only_have_an_order_too() -> None:
    one = video("a")
    other = replace(one, timeline=Timeline(pts=np.arange(10, dtype="<i8")))
    assert rows(merge([one, other])) == rows(merge([other, one]))


def test_a_video_that_was_made_again_wins_against_earlier_ones() -> None:
    both = [video("a", shard="1.shard"), video("a", shard="2.shard", revision=1), video("a", shard="0.shard")]
    for order in permutations(both):
        assert merge(order).shards.name.texts() == ["2.shard"]


def test_failures_that_differ_in_their_paths_only_have_an_order_too() -> None:
    one, other = failure("a", "cut"), failure("a", "cut")
    other = replace(other, failures=replace(other.failures, path=video("elsewhere").videos.path))
    assert rows(merge([one, other])) == rows(merge([other, one]))


# What loses goes


def orphan(dataset: Path, name: str, *, age_seconds: float = 0) -> Path:
    path = shard_path(dataset, name)
    commit_bytes(dataset, path, b"of nobody")
    then = time.time() - age_seconds
    os.utime(path, (then, then))
    return path


def test_shards_that_lost_go_and_those_of_a_unit_at_work_stay(published: Path) -> None:
    lost = orphan(published, "u1-0-0000.shard")
    at_work, abandoned = (
        orphan(published, "u7-0-0000.shard"),
        orphan(published, "u8-0-0.shard", age_seconds=DAY_SECONDS),
    )
    failed = orphan(published, "u9-0-0000.shard")
    somebodys = orphan(published, "README.md", age_seconds=DAY_SECONDS)
    write_part(DiskStorage(published), "u9", failure("f", "cut short"))
    for name in ("u1-0.shard", "u2-0.shard"):
        orphan(published, name, age_seconds=DAY_SECONDS)
    publish(DiskStorage(published))
    assert remove_stray_shards(DiskStorage(published)) == [lost.name, abandoned.name]
    assert at_work.exists()
    assert failed.exists()
    assert somebodys.exists()
    assert shard_path(published, "u1-0.shard").exists()


def test_shards_of_a_part_that_is_not_published_yet_stay(published: Path) -> None:
    path = orphan(published, "u3-0.shard", age_seconds=DAY_SECONDS)
    write_part(DiskStorage(published), "u3", video("x", shard=path.name))
    assert remove_stray_shards(DiskStorage(published)) == []
    assert path.exists()


def test_shards_of_an_earlier_snapshot_stay_as_long_as_it_does(published: Path) -> None:
    for name in ("u1-0.shard", "u2-0.shard", "u3-0.shard"):
        orphan(published, name)
    write_part(DiskStorage(published), "u3", video("c", shard="u3-0.shard", revision=1))
    publish(DiskStorage(published))
    tidy(DiskStorage(published))
    assert shard_path(published, "u2-0.shard").exists()
    tidy(DiskStorage(published), keep_seconds=0)
    assert not shard_path(published, "u2-0.shard").exists()
    assert open_current(DiskStorage(published))[1].shards.name.texts() == ["u1-0.shard", "u3-0.shard"]


# In a folder, and in S3


class Attempts:
    where: str

    @pytest.mark.parametrize("order", ORDERS, ids=lambda order: " ".join(f"{step}{number}" for step, number in order))
    def test_whatever_the_order_of_two_attempts_the_rows_are_the_same(
        self, places: Places, order: list[tuple[str, int]]
    ) -> None:
        dataset = places.new()
        with two_attempts(dataset) as attempts:
            for step, number in order:
                getattr(attempts[number], step)()
            publish(dataset)
            assert named(open_current(dataset)[1]) == min(attempt.names for attempt in attempts)

    @pytest.mark.first_case_short
    @pytest.mark.parametrize("order", ORDERS, ids=lambda order: " ".join(f"{step}{number}" for step, number in order))
    def test_whatever_the_order_of_two_attempts_what_a_snapshot_names_stays(
        self, places: Places, order: list[tuple[str, int]]
    ) -> None:
        """Also where strays are removed at every moment, which a job does before its units and after them."""
        dataset = places.new()
        with two_attempts(dataset) as attempts:
            for step, number in order:
                getattr(attempts[number], step)()
                publish(dataset)
                remove_stray_shards(dataset)
                for snapshot in snapshots(dataset):
                    for name, length in named(open_manifest(dataset, snapshot)):
                        content = dataset.read(shard_key(name))
                        assert content in (b"the bytes of one", b"the other's")
                        assert len(content) == length
            assert open_current(dataset)[1].ids == ["a"]

    @pytest.mark.long
    def test_a_stale_worker_that_ends_after_its_retry_changes_nothing(self, unit: Unit, places: Places) -> None:
        """Both encode at the same time, to other bytes as hardware does. Which has its way is no matter of time."""
        outcomes = []
        # Only on a disk the two are compared.
        for order in ((20, 30), (30, 20)) if self.where == "disk" or SWEEP else ((20, 30),):
            dataset = places.new()
            create(dataset, {})
            with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
                attempts = [
                    pool.submit(run_unit, dataset, unit, Options(Profile(crf=crf)), str)  # type: ignore[arg-type]
                    for crf in order
                ]
                assert [attempt.result().videos for attempt in attempts] == [1, 1]
            publish(dataset)
            before = rows_of(dataset)
            tidy(dataset)
            assert rows_of(dataset) == before
            assert names(dataset, "shards") == set(open_current(dataset)[1].shards.name.texts())
            outcomes.append((len(finished_parts(dataset)), before))
        # Where one was so late that it saw the other's part, it left it at that. Which has its way depends on the
        # names of the shards: on a disk on their content, in a store on random numbers.
        if self.where == "disk" and outcomes[0][0] == outcomes[1][0] == 2:
            assert outcomes[0][1] == outcomes[1][1]

    def test_a_part_that_comes_after_its_shards_went_is_not_published_and_its_unit_is_done_again(
        self, unit: Unit, places: Places
    ) -> None:
        dataset = places.new()
        create(dataset, {})
        run_unit(dataset, unit, Options(Profile()), lambda _: None)
        for shard in names(dataset, "shards"):
            dataset.remove(shard_key(shard))
        # Without any shard it would be a copy of tables alone.
        dataset.put_new(shard_key("another-0-0000.shard"), b"of another unit")
        assert publish(dataset) is None
        run_unit(dataset, unit, Options(Profile()), lambda _: None)
        publish(dataset)
        assert len(open_current(dataset)[1].videos) == 1

    def test_a_shard_that_lost_goes_and_one_of_a_unit_at_work_stays(self, published_place: Storage) -> None:
        lost, at_work = (shard_key(f"{unit}-0-0000.shard") for unit in ("u1", "u7"))
        for key in (lost, at_work, *(shard_key(f"{unit}-0.shard") for unit in ("u1", "u2"))):
            published_place.put_new(key, b"of nobody")
        assert remove_stray_shards(published_place) == ["u1-0-0000.shard"]
        assert published_place.find(lost) is None
        assert published_place.find(at_work) is not None


class TestAttemptsOnADisk(Attempts):
    where = "disk"


@only_in_a_sweep
class TestAttemptsOverAFlakyNetwork(Attempts):
    where = "flaky"


class TestAttemptsInS3(Attempts):
    where = "s3"
