"""annotate, drop, gc, compact, rollback, publishing, copy and merge, killed before each of their changes: one whole
snapshot, and a rerun that ends as if nothing had happened. In a folder, in S3, and in S3 over a flaky network."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dataset_places import Places, copied, left_over, place_of, shard_names
from datasets import make_dataset, rows_of
from example_manifests import failure
from killed_steps import EDITS, MOVES, OPERATIONS, Killer, annotated, dropped
from shortgop.manifests.dataset_files.layout import snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, write_part
from shortgop.manifests.dataset_files.root_file import is_dataset, read_root, set_id_roots, set_profile
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from sweep import SWEEP, only_in_a_sweep, sample
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

RATE = Fraction(25)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make seven videos, and a file that is none."""
    root = tmp_path_factory.mktemp("killed")
    for number, name in enumerate("abcdefg"):
        pts = constant_rate_pts(RATE, 20)
        make_video(root / f"{name}.mp4", pts=pts, timebase=1 / RATE, first_number=100 * number)
    (root / "broken.mp4").write_text("not a video")
    return root


def make_shards(videos: Path, dataset: Path, *shards: tuple[str, ...]) -> Path:
    """Make a dataset of one shard for each tuple of names."""
    for names in shards:
        lines = [f'{{"path": "{name}.mp4", "id": "{name}", "old": "x", "label": 0}}\n' for name in names]
        (videos / "list.jsonl").write_text("".join(lines))
        make_dataset([videos / "list.jsonl"], dataset)
    return dataset


@pytest.fixture(scope="module")
def labelled(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset of three videos in one shard, one of its own, and a failure."""
    return make_shards(videos, tmp_path_factory.mktemp("labelled") / "dataset", ("a", "b", "c", "broken"), ("d",))


@pytest.fixture(scope="module")
def datasets(labelled: Path, videos: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Storage]:
    """Make three datasets that become one, each of their shards by itself: one that was edited and from which a video
    was dropped, one of two shards, and one of another."""
    root = tmp_path_factory.mktemp("datasets")
    edited = copied(labelled, storage_at(str(root / "edited")))
    annotated(edited)
    dropped(edited)
    others = [make_shards(videos, root / "two", ("e",), ("f",)), make_shards(videos, root / "one", ("g",))]
    found = [edited, *map(place_of, others)]
    for each in found:
        set_profile(each, {**read_root(each).profile, "shard_bytes": 1})
        set_id_roots(each, ("/corpus",))
    return found


def rows_there(dataset: Storage) -> dict[str, Any] | None:
    """The rows of the current snapshot; None before the first one."""
    return rows_of(dataset) if is_dataset(dataset) and read_root(dataset).snapshot else None


def state(dataset: Storage, *, numbers: bool = True) -> tuple[Any, ...]:
    """All that a dataset holds, apart from the numbers of its snapshots, and without those of its edits if not
    `numbers`."""
    root, there = read_root(dataset), rows_of(dataset)
    left_out = () if numbers else ("videos.after_edit", "drops.number")
    there = {name: column for name, column in there.items() if name not in left_out}
    return there, shard_names(dataset), finished_parts(dataset), root.profile, root.id_roots


def before_the_operation(operation: str, dataset: Storage) -> None:
    if operation == "collected":
        annotated(dataset)
        dropped(dataset)
    if operation == "rolled_back":
        dropped(dataset)
    if operation == "published":
        write_part(dataset, "later", failure("later", "cut short"))


class Killed:
    where: str
    # Fewer would mean that changes are not counted.
    fewest_changes: int
    # It is killed before this change, and before every so many later ones.
    first, stride = 1, 1

    def check(
        self, operation: str, start: Storage, sources: Sequence[Storage], places: Places, killed_copies: Killer
    ) -> None:
        """Have an operation killed at many places, each time on a copy of `start`, and then run to its end."""
        act = OPERATIONS[operation]
        undisturbed = copied(start, places.new())
        before = rows_there(start)
        act(undisturbed, *sources)
        # A copy that goes on finds that what it had brought is there, so what it brings then has later numbers.
        numbers = operation not in MOVES
        expected, after = state(undisturbed, numbers=numbers), rows_of(undisturbed)
        copies = places.new().url
        urls = [each.url for each in sources]
        # Over a flaky network requests are made again, and the last change is none of a certain number.
        is_flaky = self.where == "flaky"
        killed = killed_copies(start.url, copies, operation, self.first, self.stride, not is_flaky, *urls)

        assert int(killed[-1]) >= self.fewest_changes
        seen = set()
        for number in killed:
            copy = storage_at(f"{copies}/{number}")
            found = rows_there(copy)
            assert found in (before, after), number
            seen.add(found == before)
            if found is not None:
                assert_whole(copy, number)

            act(copy, *sources)

            assert state(copy, numbers=numbers) == expected, number
            assert_whole(copy, number)
            assert left_over(copy) == [], number
            if operation == "collected":
                assert len(snapshots(copy)) == 1
        # Both are there: killed too early to have an effect, and late enough.
        assert seen == {True, False} or is_flaky


def assert_whole(dataset: Storage, number: str) -> None:
    root, manifest = open_current(dataset)
    assert list(verify(dataset, manifest, snapshot=root.snapshot)) == [], number


class KilledEdits(Killed):
    @pytest.mark.parametrize("operation", EDITS)
    def test_killed_at_every_step(self, labelled: Path, places: Places, killed_copies: Killer, operation: str) -> None:
        start = copied(labelled, places.new())
        before_the_operation(operation, start)
        self.check(operation, start, (), places, killed_copies)


class KilledMoves(Killed):
    @pytest.mark.parametrize("operation", MOVES)
    def test_killed_at_every_step(
        self, datasets: list[Storage], places: Places, killed_copies: Killer, operation: str
    ) -> None:
        """A copy to a new place, and two datasets that become part of a third."""
        sources = [copied(each, places.new()) for each in (datasets[:1] if operation == "filled" else datasets[:2])]
        start = places.new()
        start.make()
        if operation == "merged":
            copied(datasets[2], start)
        self.check(operation, start, sources, places, killed_copies)


class TestKilledEditsOnADisk(KilledEdits):
    where = "disk"
    fewest_changes = 12
    stride = 1 if SWEEP else 5


class TestKilledEditsInS3(KilledEdits):
    where = "s3"
    fewest_changes = 6
    # The changes before the sixth take the lock.
    first, stride = (1, 1) if SWEEP else (6, 5)


class TestKilledMovesOnADisk(KilledMoves):
    where = "disk"
    fewest_changes = 12
    stride = 1 if SWEEP else 12


class TestKilledMovesInS3(KilledMoves):
    where = "s3"
    fewest_changes = 12
    first, stride = (1, 1) if SWEEP else (6, 12)


class TestKilledEditsOverAFlakyNetwork(KilledEdits):
    where = "flaky"
    fewest_changes = 6
    first, stride = (1, 4) if SWEEP else (12, 12)

    @pytest.mark.parametrize("operation", sample(["annotated"], more=[each for each in EDITS if each != "annotated"]))
    def test_killed_at_every_step(self, labelled: Path, places: Places, killed_copies: Killer, operation: str) -> None:
        super().test_killed_at_every_step(labelled, places, killed_copies, operation)


@only_in_a_sweep
class TestKilledMovesOverAFlakyNetwork(KilledMoves):
    where = "flaky"
    fewest_changes = 12
    first, stride = 1, 6
