"""Datasets that lose their snapshots, and what tests of them look at."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from typer.testing import CliRunner

import shortgop
from dataset_places import overwrite
from datasets import make_dataset
from shortgop.cli import app
from shortgop.manifests.dataset_files.layout import snapshot_key, snapshots
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.rollback import rollback
from shortgop.storage.interface import Storage
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
NAMES = "abcd"
FRAMES = 20


def make_four_videos(root: Path) -> Path:
    """Make four videos whose frames show 0, 100, 200 and 300 on, a file that is none, and a dataset of them, in
    three snapshots: a shard of two videos with a label, in whose unit the other file failed, and two of one each."""
    for number, name in enumerate(NAMES):
        make_video(
            root / f"{name}.mp4", pts=constant_rate_pts(RATE, FRAMES), timebase=1 / RATE, first_number=100 * number
        )
    (root / "broken.mp4").write_text("not a video")
    for chosen in (("a", "b", "broken"), ("c",), ("d",)):
        lines = [f'{{"path": "{name}.mp4", "id": "{name}", "label": 0}}\n' for name in chosen]
        (root / "list.jsonl").write_text("".join(lines))
        make_dataset([root / "list.jsonl"], root / "dataset")
    return root


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


def went_back(dataset: Storage) -> None:
    """Store `b` again and drop `d`, in one part, and then put the shards together. The shard that this part names is
    gone then, and so is the one of the part that says what failed."""
    drop(dataset, ["b"])
    annotate(dataset, {"c": {"label": 5}})
    rollback(dataset, "000002")
    compact(dataset, keep_snapshots_seconds=0)


HISTORIES = [edited, cleaned, went_back]
