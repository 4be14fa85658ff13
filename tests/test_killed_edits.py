"""annotate, drop and gc, killed before each of their changes to the file system: one whole snapshot, and a rerun that
ends as if nothing had happened."""

from __future__ import annotations

import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from datasets import make_dataset, rows_of
from killed_steps import OPERATIONS, annotated, dropped
from shortgop.manifests.layout import open_current, snapshots
from shortgop.manifests.parts import finished_parts
from shortgop.manifests.verify import verify
from shortgop.storage.disk import DiskStorage
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


def state(dataset: Path) -> tuple[dict[str, Any], set[str], set[str]]:
    """All that a dataset holds, apart from the numbers of its snapshots."""
    shards = {file.name for file in (dataset / "shards").iterdir()}
    return rows_of(dataset), shards, finished_parts(DiskStorage(dataset))


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_killed_at_every_step(labelled: Path, tmp_path: Path, operation: str) -> None:
    act = OPERATIONS[operation]
    start = tmp_path / "start"
    shutil.copytree(labelled, start)
    if operation == "collected":
        annotated(start)
        dropped(start)
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(start, undisturbed)
    before = rows_of(start)
    act(undisturbed)
    expected = state(undisturbed)
    copies = tmp_path / "copies"
    program = Path(__file__).with_name("killed_steps.py")
    subprocess.run([sys.executable, program, start, copies, operation], check=True)

    killed = sorted(copies.iterdir(), key=lambda copy: int(copy.name))[:-1]
    assert len(killed) >= 15
    seen = set()
    for copy in killed:
        root, manifest = open_current(DiskStorage(copy))
        assert list(verify(DiskStorage(copy), manifest, snapshot=root.snapshot)) == [], copy.name
        found = rows_of(copy)
        assert found in (before, expected[0]), copy.name
        seen.add(found == before)

        act(copy)

        assert state(copy) == expected, copy.name
        assert not (copy / ".tmp").exists()
        if operation == "collected":
            assert len(snapshots(DiskStorage(copy))) == 1
    # Both are there: killed too early to have an effect, and late enough.
    assert seen == {True, False}
