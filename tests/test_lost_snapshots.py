"""A snapshot that is lost or damaged is made again of the parts, as errors and docs/format.md say: `verify --repair`.

In a folder, with layers, and in S3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import shortgop
from dataset_places import Places, copied, names, overwrite, place_of
from datasets import make_dataset, rows_of
from killed_steps import Killer, killer
from shortgop.cli import app
from shortgop.errors import DatasetBusyError, DatasetError, MissingDataError
from shortgop.manifests.dataset_files.layout import part_key, read_root, snapshot_key, snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, read_part
from shortgop.manifests.operations import recovery
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.history import history
from shortgop.manifests.operations.recovery import repair_snapshot
from shortgop.manifests.operations.rollback import rollback
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
NAMES = "abcd"
FRAMES = 20


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make four videos whose frames show 0, 100, 200 and 300 on, a file that is none, and a dataset of them: one shard
    of three videos with a label, in whose unit the other file failed, and one of its own."""
    root = tmp_path_factory.mktemp("lost")
    for number, name in enumerate(NAMES):
        make_video(
            root / f"{name}.mp4", pts=constant_rate_pts(RATE, FRAMES), timebase=1 / RATE, first_number=100 * number
        )
    (root / "broken.mp4").write_text("not a video")
    for chosen in (("a", "b", "c", "broken"), ("d",)):
        lines = [f'{{"path": "{name}.mp4", "id": "{name}", "label": 0}}\n' for name in chosen]
        (root / "list.jsonl").write_text("".join(lines))
        make_dataset([root / "list.jsonl"], root / "dataset")
    return root


@pytest.fixture
def dataset(videos: Path, places: Places) -> Storage:
    return copied(videos / "dataset", places.new())


def current_key(dataset: Storage) -> str:
    return snapshot_key(read_root(dataset).snapshot or "")


def lost(dataset: Storage) -> None:
    dataset.remove(current_key(dataset))


def cut(dataset: Storage) -> None:
    key = current_key(dataset)
    overwrite(dataset, key, dataset.read(key)[:100])


def with_a_wrong_byte(dataset: Storage) -> None:
    """One that is not read when the dataset is opened: in the timeline, which with layers is in the oldest."""
    member = b"timeline/pts/c/0"
    keys = [snapshot_key(name) for name in sorted(snapshots(dataset))]
    key = next(key for key in reversed(keys) if member in dataset.read(key))
    data = bytearray(dataset.read(key))
    data[data.index(member) + len(member) + 12] ^= 0xFF
    overwrite(dataset, key, bytes(data))


def edited(dataset: Storage) -> None:
    """Set labels, and take a video out."""
    annotate(dataset, {"a": {"label": 3}, "d": {"label": "é", "split": "train"}})
    drop(dataset, ["b"])


def verified(dataset: Storage, *arguments: str) -> tuple[int, str]:
    """The exit status of `shortgop verify` and all that it prints."""
    done = CliRunner().invoke(app, ["verify", dataset.url, *arguments])
    return done.exit_code, done.output


def shown(dataset: Storage) -> dict[str, list[int]]:
    """The numbers that the first and the last frame of each video show."""
    opened = shortgop.open(dataset.url)
    return {video_id: [read_number(frame) for frame in opened[video_id][:: FRAMES - 1]] for video_id in opened.ids}


def cleaned(dataset: Storage) -> None:
    """Take what was dropped out of shards and parts, and remove all earlier snapshots."""
    edited(dataset)
    collect(dataset)


def compacted(dataset: Storage) -> None:
    """Go back to before a video was dropped, drop another, and put the shards together: the part of the rollback, which
    drops `d` and stores `b` again, names a shard that is gone then, and so does the one that says what failed."""
    drop(dataset, ["b"])
    before = read_root(dataset).snapshot
    drop(dataset, ["d"])
    annotate(dataset, {"c": {"label": 5}})
    rollback(dataset, before or "")
    drop(dataset, ["a"])
    rollback(dataset, "000001")
    drop(dataset, ["d"])
    collect(dataset)


def put_together(dataset: Storage) -> None:
    """Write all videos into one shard."""
    edited(dataset)
    compact(dataset, keep_snapshots_seconds=0)


HISTORIES = [edited, cleaned, compacted, put_together]


class LostSnapshots:
    where: str

    @pytest.mark.parametrize("damage", [lost, cut, with_a_wrong_byte])
    def test_it_is_made_of_the_parts_and_nothing_is_encoded(
        self, videos: Path, dataset: Storage, damage: Callable[[Storage], None]
    ) -> None:
        edited(dataset)
        before, shards, damaged = rows_of(dataset), names(dataset, "shards"), read_root(dataset).snapshot
        damage(dataset)
        if damage is not with_a_wrong_byte:
            with pytest.raises(DatasetError, match=f"or run `shortgop verify {dataset} --repair`, which makes it again"):
                make_dataset([videos / "list.jsonl"], dataset)
        status, said = verified(dataset)
        assert status == 1
        assert f"shortgop verify {dataset} --repair" in said

        status, said = verified(dataset, "--repair")
        assert status == 0, said
        assert f"snapshot {damaged} was lost or damaged" in said
        assert rows_of(dataset) == before
        assert names(dataset, "shards") == shards
        assert shown(dataset) == {"a": [0, 19], "c": [200, 219], "d": [300, 319]}
        assert make_dataset([videos / "list.jsonl"], dataset).frames_added == 0
        assert verified(dataset, "--repair") == verified(dataset)

    @pytest.mark.parametrize("happened", HISTORIES)
    def test_all_rows_are_as_they_were(self, dataset: Storage, happened: Callable[[Storage], None]) -> None:
        """Also those of parts whose shards are gone, because their videos were written into others since."""
        happened(dataset)
        before = rows_of(dataset)
        for each in snapshots(dataset):
            dataset.remove(snapshot_key(each))
        assert repair_snapshot(dataset) is not None
        assert rows_of(dataset) == before


class TestOnADisk(LostSnapshots):
    where = "disk"


class TestWithLayers(LostSnapshots):
    where = "layered"


class TestInS3(LostSnapshots):
    where = "s3"
