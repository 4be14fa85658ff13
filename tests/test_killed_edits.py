"""annotate, drop, gc, compact, rollback and publishing, killed before each of their changes: one whole snapshot, and a
rerun that ends as if nothing had happened. In a folder, and in S3."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dataset_places import Places, copied, left_over, shard_names
from datasets import make_dataset, rows_of
from example_manifests import failure
from killed_steps import OPERATIONS, Killer, annotated, dropped, killer
from shortgop.manifests.layout import snapshots
from shortgop.manifests.parts import finished_parts, write_part
from shortgop.manifests.snapshots import open_current
from shortgop.manifests.verify import verify
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from sweep import SWEEP
from synthetic import constant_rate_pts, make_video

RATE = Fraction(25)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset of three videos in one shard, one of its own, and a failure."""
    root = tmp_path_factory.mktemp("killed")
    for number, name in enumerate("abcd"):
        pts = constant_rate_pts(RATE, 20)
        make_video(root / f"{name}.mp4", pts=pts, timebase=1 / RATE, first_number=100 * number)
    (root / "broken.mp4").write_text("not a video")
    for names in (("a", "b", "c", "broken"), ("d",)):
        lines = [f'{{"path": "{name}.mp4", "id": "{name}", "old": "x", "label": 0}}\n' for name in names]
        (root / "list.jsonl").write_text("".join(lines))
        make_dataset([root / "list.jsonl"], root / "dataset")
    return root / "dataset"


def state(dataset: Storage) -> tuple[dict[str, Any], set[str], set[str]]:
    """All that a dataset holds, apart from the numbers of its snapshots."""
    return rows_of(dataset), shard_names(dataset), finished_parts(dataset)


def before_the_operation(operation: str, dataset: Storage) -> None:
    if operation == "collected":
        annotated(dataset)
        dropped(dataset)
    if operation == "rolled_back":
        dropped(dataset)
    if operation == "published":
        write_part(dataset, "later", failure("later", "cut short"))


@pytest.fixture(scope="class")
def killed_copies(places: Places) -> Iterator[Killer]:
    """Start the process that has operations killed, where the URLs of these places mean the same as here."""
    with killer() as run:
        yield run


class KilledEdits:
    where: str
    # Fewer would mean that changes are not counted.
    fewest_changes: int
    # It is killed before this change, and before every so many later ones.
    first, stride = 1, 1

    @pytest.mark.parametrize("operation", list(OPERATIONS))
    def test_killed_at_every_step(self, labelled: Path, places: Places, killed_copies: Killer, operation: str) -> None:
        act = OPERATIONS[operation]
        start = copied(labelled, places.new())
        before_the_operation(operation, start)
        undisturbed = copied(start, places.new())
        before = rows_of(start)
        act(undisturbed)
        expected = state(undisturbed)
        copies = places.new().url
        killed = killed_copies(start.url, copies, operation, self.first, self.stride)

        assert int(killed[-1]) >= self.fewest_changes
        seen = set()
        for number in killed:
            copy = storage_at(f"{copies}/{number}")
            root, manifest = open_current(copy)
            assert list(verify(copy, manifest, snapshot=root.snapshot)) == [], number
            found = rows_of(copy)
            assert found in (before, expected[0]), number
            seen.add(found == before)

            act(copy)

            assert state(copy) == expected, number
            assert left_over(copy) == [], number
            if operation == "collected":
                assert len(snapshots(copy)) == 1
        # Both are there: killed too early to have an effect, and late enough.
        assert seen == {True, False}


class TestKilledEditsOnADisk(KilledEdits):
    where = "disk"
    fewest_changes = 12
    stride = 1 if SWEEP else 3


class TestKilledEditsInS3(KilledEdits):
    where = "s3"
    fewest_changes = 6
    # The changes before the sixth take the lock.
    first, stride = (1, 1) if SWEEP else (6, 3)
