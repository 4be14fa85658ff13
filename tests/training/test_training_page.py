"""What docs/training.md and docs/trainers.md show runs as it stands there, the three seeds of practice among it."""

from __future__ import annotations

import hashlib
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from datasets import make_dataset
from synthetic import constant_rate_pts, make_video, read_number

DOCS = Path(__file__).parents[2] / "docs"
PAGE, TRAINERS = DOCS / "training.md", DOCS / "trainers.md"


@pytest.fixture(scope="module")
def loaders(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The loaders that the page makes, of three videos of 200 frames, 20 s each, and one that is too short."""
    root = tmp_path_factory.mktemp("page")
    for number in range(4):
        count = 200 if number else 40
        name = root / f"{number}.mp4"
        make_video(
            name, pts=constant_rate_pts(Fraction(10), count), timebase=Fraction(1, 10), first_number=500 * number
        )
    make_dataset(sorted(root.glob("*.mp4")), root / "dataset")
    block = re.search(r"Three common needs:\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    text = block[1].replace('"DATASET"', repr(str(root / "dataset"))).replace("num_workers=8", "num_workers=0")
    # Some of it is too large for the videos of a test.
    text = text.replace("size=(224, 224)", "size=(64, 96)")
    text = re.sub(r"batch_size=8|rates, 8|clips, 8", lambda found: found[0].replace("8", "3"), text)
    made: list[Any] = []
    for part in text.split("\n\n"):
        names: dict[str, Any] = {"shortgop": shortgop, "DataLoader": DataLoader}
        exec(part, names)
        made.append(names["loader"])
        assert len([line for line in part.splitlines() if line and not line.startswith("#")]) <= 5
    return made


def test_batches_of_random_frames(loaders: list[Any]) -> None:
    shown = [read_number(frame[0]) for batch in loaders[0] for frame in batch["frames"]]
    assert sorted(shown) == [*range(40), *range(500, 700), *range(1000, 1200), *range(1500, 1700)]
    first = next(iter(loaders[0]))["frames"]
    assert first.shape == (128, 1, 3, 64, 96)
    assert len({read_number(frame[0]) // 500 for frame in first}) == 4


def test_a_rule_of_ones_own(tmp_path: Path) -> None:
    """Clips at all four strides, from the whole video, padded where it is too short; and a crop of its own for each
    clip of an item."""
    for number, count in enumerate((80, 20)):
        pts = constant_rate_pts(Fraction(10), count)
        make_video(tmp_path / f"{number}.mp4", pts=pts, timebase=Fraction(1, 10), first_number=1000 * number)
    make_dataset(sorted(tmp_path.glob("*.mp4")), tmp_path / "dataset")
    block = re.search(r"```python\n(def any_stride.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"shortgop": shortgop, "np": np}
    exec(block[1].replace('"DATASET"', repr(str(tmp_path / "dataset"))).replace("(224, 224)", "(64, 96)"), names)
    strides = set()
    for item in names["clips"].items(range(20)):
        numbers, first = item["frame_numbers"], 1000 * item["video"]
        assert [read_number(frame) for frame in item["frames"]] == (first + numbers).tolist()
        strides.add(int(numbers[1] - numbers[0]))
        assert item["mask"].all() or (item["video"] == 1 and numbers[-1] == numbers[item["mask"]].max())
    assert strides == {1, 2, 3, 4}
    shown = re.search(r"`outputs=(\{f\"clip.*?\})`", PAGE.read_text())
    assert shown is not None
    own = eval(shown[1].replace("...", 'size=(64, 64), crop="random-resized"'), {"shortgop": shortgop})
    policy = shortgop.RandomClips(16, clips_per_video=2, joined=True)
    item = shortgop.ClipDataset(tmp_path / "dataset", policy, outputs=own)[0]
    assert item["clip0"].shape == item["clip1"].shape == (16, 3, 64, 64)
    assert item["crop_clip0"].tolist() != item["crop_clip1"].tolist()


def test_frames_between_a_start_and_a_goal(tmp_path: Path) -> None:
    make_video(tmp_path / "v.mp4", pts=constant_rate_pts(Fraction(10), 12), timebase=Fraction(1, 10))
    make_dataset([tmp_path / "v.mp4"], tmp_path / "dataset")
    block = re.search(r"```python\n(def start_and_goal.*?)```", TRAINERS.read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"shortgop": shortgop}
    exec(block[1].replace('"DATASET"', repr(str(tmp_path / "dataset"))).replace("(224, 224)", "(64, 96)"), names)
    found = {tuple(item["frame_numbers"].tolist()) for item in names["clips"].items(range(200))}
    assert len(found) > 80
    assert all(0 <= start <= frame < after <= goal < 12 and after == frame + 1 for start, goal, frame, after in found)
    for item in names["clips"].items(range(3)):
        assert [read_number(frame) for frame in item["frames"]] == item["frame_numbers"].tolist()


def test_parts_of_videos(tmp_path: Path) -> None:
    kitchen = tmp_path / "videos" / "kitchen"
    kitchen.mkdir(parents=True)
    for number, count in enumerate((130, 80), 1):
        pts = constant_rate_pts(Fraction(10), count)
        make_video(kitchen / f"00{number}.mp4", pts=pts, timebase=Fraction(1, 10), first_number=1000 * number)
    make_dataset([tmp_path / "videos"], tmp_path / "dataset")
    block = re.search(r"```python\n(videos = shortgop[^`]*annotated.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    text = block[1].replace('"DATASET"', repr(str(tmp_path / "dataset"))).replace("8, order", "3, order")
    names: dict[str, Any] = {"shortgop": shortgop, "torch": torch, "DataLoader": DataLoader}
    exec(text.replace("batch_size=8", "batch_size=3").replace("(224, 224)", "(64, 96)"), names)
    found = sorted(zip(names["batch"]["stretch"].tolist(), names["label"].tolist(), strict=True))
    assert found == [(0, 3), (1, 4), (2, 4)]
    for stretch, frames in zip(names["batch"]["stretch"].tolist(), names["batch"]["frames"], strict=True):
        first, stop = ((1000, 1045), (1045, 1120), (2030, 2080))[stretch]
        assert all(first <= read_number(frame) < stop for frame in frames)
    # 13 s without the first and the last five are three: two windows of 16 frames at 8 a second.
    assert [item["start"] for item in names["trimmed"]] == [50, 60]


def test_clips_of_several_sizes(tmp_path: Path) -> None:
    for number, size in enumerate(((96, 64), (128, 64)), 1):
        make_video(
            tmp_path / f"{number}.mp4", pts=constant_rate_pts(Fraction(10), 80), timebase=Fraction(1, 10), size=size,
            first_number=1000 * number,
        )  # fmt: skip
    make_dataset(sorted(tmp_path.glob("*.mp4")), tmp_path / "dataset")
    block = re.search(r"```python\n(class AnySize.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"shortgop": shortgop, "DataLoader": DataLoader}
    exec(block[1].replace('"DATASET"', repr(str(tmp_path / "dataset"))), names)
    [batch] = names["loader"]
    batch.sort(key=lambda item: item["video"])
    assert [item["frames"].shape for item in batch] == [(16, 3, 64, 96), (16, 3, 64, 128)]
    for item in batch:
        shown = [read_number(frame) - 1000 * (item["video"] + 1) for frame in item["frames"]]
        assert shown == item["frame_numbers"].tolist()


def test_buckets(tmp_path: Path) -> None:
    """Wide, square and tall videos, some of which are too short for the longer clips."""
    for number, (size, count) in enumerate([((112, 64), 80), ((64, 116), 80), ((92, 88), 20), ((118, 64), 40)]):
        pts = constant_rate_pts(Fraction(15), count)
        make_video(tmp_path / f"{number}.mp4", pts=pts, timebase=Fraction(1, 15), size=size, first_number=100 * number)
    make_dataset(sorted(tmp_path.glob("*.mp4")), tmp_path / "dataset")
    block = re.search(r"```python\n(videos = [^`]*BucketSampler.*?)```", TRAINERS.read_text(), re.DOTALL)
    assert block is not None
    text = (
        block[1].replace('"DATASET"', repr(str(tmp_path / "dataset"))).replace("(33, 16), (9, 64)", "(33, 2), (9, 1)")
    )
    text = text.replace("(256, 448), (336, 336), (448, 256)", "(64, 112), (88, 88), (112, 64)")
    names: dict[str, Any] = {"shortgop": shortgop, "np": np}
    with pytest.warns(shortgop.DatasetWarning, match="the dataset has no clips"):
        exec(text.replace("ClipLoader(mixed, sampler)", "ClipLoader(mixed, sampler, workers=0)"), names)
    # The square one has 20 frames, and of the tall ones there is one, so that both have no batch of long clips.
    assert names["batch_sizes"] == [2, 1, 1, 1]
    names["sampler"].set_epoch(1)
    shapes = []
    for batch in names["loader"]:
        shapes.append(tuple(batch["frames"].shape))
        for clip, video, first in zip(batch["frames"], batch["id"], batch["start"].tolist(), strict=True):
            shown = [read_number(frame) for frame in clip]
            assert shown == [100 * int(video[0]) + first + frame for frame in range(len(clip))]
    wide, square, tall = (3, 64, 112), (3, 88, 88), (3, 112, 64)
    assert sorted(shapes) == sorted([(2, 33, *wide), *[(1, 9, *each) for each in (wide, wide, square, tall)]])


def test_several_views_at_test_time(tmp_path: Path) -> None:
    """Of videos with other shapes, on one rank and on four: each view of a video counts once."""
    for number, size in enumerate(((96, 64), (64, 128), (160, 64))):
        pts = constant_rate_pts(Fraction(10), 70)
        make_video(tmp_path / f"{number}.mp4", pts=pts, timebase=Fraction(1, 10), size=size, first_number=100 * number)
    make_dataset(sorted(tmp_path.glob("*.mp4")), tmp_path / "dataset")
    block = re.search(r"```python\n(def three_crops.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    seen: list[torch.Tensor] = []

    def model(clips: torch.Tensor) -> torch.Tensor:
        seen.append(clips)
        return torch.zeros(len(clips), 4)

    names: dict[str, Any] = {"shortgop": shortgop, "torch": torch, "DataLoader": DataLoader}
    names |= {"model": model, "num_classes": 4, "world_size": 1}
    text = block[1].replace('"DATASET"', repr(str(tmp_path / "dataset"))).replace("224", "64")
    exec(text, names)
    assert torch.allclose(names["scores"], torch.full((3, 4), 15 / 4))
    assert {tuple(clips.shape[1:]) for clips in seen} == {(16, 3, 64, 64)}
    crops = names["three_crops"](torch.arange(100).expand(2, 3, 64, 100))
    assert crops[:, 0, 0, 0, 0].tolist() == [0, 18, 36]
    of_ranks = torch.zeros(3, 4)
    for rank in range(4):
        ranks = text.replace("drop_last=False", f"drop_last=False, rank={rank}, world_size=4")
        exec(ranks, own := names | {"world_size": 4})
        of_ranks += own["scores"]
    assert torch.allclose(of_ranks, torch.full((3, 4), 15 / 4))


def test_columns_and_some_of_the_videos(tmp_path: Path) -> None:
    rows = [{"label": 2, "split": "train"}, {"label": 3, "split": "train"}, {"label": 5, "split": "val"}]
    lines = []
    for number, row in enumerate(rows):
        make_video(tmp_path / f"{number}.mp4", pts=constant_rate_pts(Fraction(10), 110), timebase=Fraction(1, 10))
        lines.append(json.dumps({"path": f"{number}.mp4", **row}))
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    make_dataset([tmp_path / "list.jsonl"], tmp_path / "dataset")
    block = re.search(r"```python\n(videos = shortgop.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"shortgop": shortgop, "np": np}
    exec(block[1].replace('"DATASET"', repr(str(tmp_path / "dataset"))), names)
    assert list(names["train"].ids) == ["0.mp4", "1.mp4"]
    assert list(names["long_ones"].ids) == ["1.mp4"]
    assert list(names["some"].ids) == ["1.mp4", "2.mp4"]
    assert [item["label"].item() for item in names["dataset"]] == [2, 3]
    block = re.search(r"```python\n(number_of = .*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names |= {"torch": torch, "batch": {"label": [5, 2, 2, 3]}}
    exec(block[1], names)
    assert names["target"].tolist() == [2, 0, 0, 1]


def test_training_and_validation_have_no_file_in_common(tmp_path: Path) -> None:
    rows = ["path,start,end"]
    for number in range(8):
        make_video(tmp_path / f"{number}.mp4", pts=constant_rate_pts(Fraction(10), 20), timebase=Fraction(1, 10))
        rows += [f"{number}.mp4,0,1", f"{number}.mp4,1,2"]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    shortgop.prepare(tmp_path / "list.csv", tmp_path / "dataset", cuts="start,end", runner="inline")
    block = re.search(r"```python\n(files = .*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"np": np, "hashlib": hashlib, "videos": shortgop.open(tmp_path / "dataset")}
    exec(block[1].replace("< 26", "< 128"), names)
    train, val = (list(names[name].ids) for name in ("train", "val"))
    assert len(train) + len(val) == 16
    assert train
    assert val
    assert not {name.partition("@")[0] for name in train} & {name.partition("@")[0] for name in val}


def test_clips_of_frames_one_second_apart(loaders: list[Any]) -> None:
    (batch,) = loaders[1]
    assert sorted(batch["video"].tolist()) == [1, 2, 3]
    for clip in batch["frames"]:
        shown = [read_number(frame) for frame in clip]
        assert shown == list(range(shown[0], shown[0] + 151, 10))


def test_two_rates_in_one_clip(loaders: list[Any]) -> None:
    (batch,) = loaders[2]
    for clip in batch["frames"]:
        shown = [read_number(frame) - read_number(clip[0]) for frame in clip]
        assert shown == [*range(0, 80, 10), *range(80, 120, 5)]
