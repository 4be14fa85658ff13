"""What docs/training.md shows of items: boxes, pairs of clips, other cameras, tables and sound, as it stands there."""

from __future__ import annotations

import importlib
import json
import math
import re
import subprocess
import sys
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from datasets import make_dataset
from shortgop.prep.profile import Size
from shortgop.prep.running.ffmpeg import find_ffmpeg
from synthetic import GRID_MARGIN, constant_rate_pts, make_video, read_number
from training_videos import LENGTHS, damaged_copy, make_videos

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def example(part: str) -> str:
    """The block of docs/training.md that has this in it, with small sizes."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = (text for text in blocks if part in text)
    return block.replace("(224, 224)", "(64, 96)").replace("RandomClips(16, stride=4", "RandomClips(4, stride=2")


def with_a_damaged_gop(root: Path) -> Path:
    """A dataset of three videos, of which frames 8 to 15 of the first cannot be read."""
    return damaged_copy(make_videos(root), root / "damaged")


@pytest.mark.filterwarnings("ignore:draw .* is skipped")
def test_pairs_of_clips_are_of_one_video(tmp_path: Path) -> None:
    """Also where one of the two cannot be read. Each has a crop and a flip of its own."""
    names: dict[str, Any] = {"shortgop": shortgop, "partial": partial}
    block = example("view = partial").replace('"DATASET"', repr(str(with_a_damaged_gop(tmp_path / "videos"))))
    block = block.replace("range(16)", "range(4)").replace("range(16, 32)", "range(4, 8)")
    block = block.replace("metadata=", 'on_error="skip", metadata=')
    exec(block, names)
    items = names["pairs"].items(range(30))
    assert {int(item["label"]) for item in items} == {0, 1}
    assert len({tuple(item["crop_first"].tolist()) for item in items}) > 15
    assert all(item["crop_first"].tolist() != item["crop_second"].tolist() for item in items)
    assert {(bool(item["flip_first"]), bool(item["flip_second"])) for item in items} == {
        *product((False, True), repeat=2)
    }
    exec(block.replace('crop="random-resized", flip=0.5', ""), names)
    starts = set()
    for item in names["pairs"].items(range(90)):
        shown = numbers_in(torch.stack([item["first"], item["second"]]))
        assert shown[0] + shown[1] == (1000 * item["video"] + item["frame_numbers"]).tolist()
        starts.add((shown[0][0], shown[1][0]))
    assert len(starts) > 40
    assert names["pairs"].skipped


def test_pairs_at_different_speeds(tmp_path: Path) -> None:
    names: dict[str, Any] = {"shortgop": shortgop, "np": np, "view": shortgop.Output, "batches": []}
    block = example("def two_speeds").replace('"DATASET"', repr(str(make_videos(tmp_path / "videos"))))
    for there, here in (
        ("15 *", "3 *"), ("arange(16)", "arange(4)"), ("range(16)", "range(4)"), ("range(16, 32)", "range(4, 8)"),
        (", 32, ends", ", 8, ends"), ("(2, 16)", "(2, 4)"), ("(speeds, 32))", "(speeds, 3), workers=0)"),
        ("    numbers =", "    batches.append(batch)\n    numbers ="),
    ):  # fmt: skip
        assert there in block
        block = block.replace(there, here)
    exec(block, names)
    (batch,) = names["batches"]
    assert {tuple(sorted(pair)) for pair in names["stride"].tolist()} <= {(1, 2), (1, 4), (2, 4)}
    for row, (video, strides) in enumerate(zip(batch["video"].tolist(), names["stride"].tolist(), strict=True)):
        for view, stride in zip(("first", "second"), strides, strict=True):
            shown = [read_number(frame) - 1000 * video for frame in batch[view][row]]
            last = LENGTHS[video] - 1
            assert shown[1] - shown[0] == stride
            assert all(after - before in (stride, 0) for before, after in pairwise(shown))
            assert all(after > before or before + stride > last for before, after in pairwise(shown))
    items = names["speeds"].items(range(90))
    steps = {tuple((item["frame_numbers"][[1, 5]] - item["frame_numbers"][[0, 4]]).tolist()) for item in items}
    assert steps == {(1, 2), (2, 1), (1, 4), (4, 1), (2, 4), (4, 2)}


@pytest.mark.filterwarnings("ignore:draw .* is skipped")
def test_clips_of_other_stretches_of_the_same_video(tmp_path: Path) -> None:
    dataset = with_a_damaged_gop(tmp_path / "videos")
    parts = [(video, part) for video in ("a.mp4", "b.mp4") for part in ((0, 8), (16, 25))]
    captions = ["a from 0", "a from 16", "b from 0", "b from 16"]
    names: dict[str, Any] = {"shortgop": shortgop, "other_of": [1, 0, 3, 2], "captions": captions}
    exec(example("class WithNegatives"), names)
    stretches = shortgop.Stretches([video for video, _ in parts], frames=[part for _, part in parts])
    clips = names["WithNegatives"](dataset, shortgop.RandomClips(4), videos=stretches, size=(64, 96))
    sampler = shortgop.ElasticSampler(clips, 4)
    sampler.set_epoch(3)
    for loader in (shortgop.ClipLoader(clips, sampler, workers=0), DataLoader(clips, 4, sampler=sampler)):
        (batch,) = loader
        assert sorted(batch["text"]) == captions
        for name, text in (("frames", "text"), ("negative", "negative_text")):
            for shown, caption in zip(numbers_in(batch[name]), batch[text], strict=True):
                first = 1000 * "ab".index(caption[0]) + int(caption.split()[-1])
                assert first <= shown[0] <= shown[-1] < first + 9
        pairs = zip(batch["text"], batch["negative_text"], strict=True)
        assert all(one[0] == other[0] and one != other for one, other in pairs)


def test_boxes_follow_crops_and_flips(tmp_path: Path) -> None:
    """The numbers are read off what lies in the boxes."""
    source, box = tmp_path / "v.mp4", [GRID_MARGIN, GRID_MARGIN, 1 - GRID_MARGIN, 1 - GRID_MARGIN]
    make_video(source, pts=constant_rate_pts(Fraction(10), 20), timebase=Fraction(1, 10), size=(192, 128))
    (tmp_path / "list.jsonl").write_text(json.dumps({"path": "v.mp4", "boxes": [[box, [0.5, 0, 1, 1]]] * 20}))
    make_dataset([tmp_path / "list.jsonl"], tmp_path / "dataset", size=Size(short_side=96))
    names: dict[str, Any] = {"shortgop": shortgop, "torch": torch}
    block = example("class WithBoxes").replace('"DATASET"', repr(str(tmp_path / "dataset")))
    # All of the box is in each of these crops, as a number is read only where it is whole.
    exec(block.replace("(64, 96)", "(120, 180)").replace('"random-resized"', '"random-scaled", scale=(0.9, 1)'), names)
    sizes, flips = set(), set()
    for item in names["clips"].items(range(40)):
        for frame, number, (grid, half) in zip(item["frames"], item["frame_numbers"], item["boxes"], strict=True):
            left, top, right, bottom = (grid * torch.tensor([180, 120, 180, 120])).round().int().tolist()
            cut = frame[:, top:bottom, left:right]
            cut = cut.flip(-1) if item["flip"] else cut
            beside, above = (round(side * GRID_MARGIN / (1 - 2 * GRID_MARGIN)) for side in (cut.shape[2], cut.shape[1]))
            assert read_number(torch.nn.functional.pad(cut, (beside, beside, above, above))) == number
            # The right half of the picture, which is its left one in the mirror.
            middle = (grid[0] + grid[2]) / 2
            assert (half[2] if item["flip"] else half[0]) == pytest.approx(float(middle), abs=1e-5)
        sizes.add((right - left, bottom - top))
        flips.add(bool(item["flip"]))
    assert len(sizes) > 3
    assert flips == {False, True}


def test_a_camera_of_another_rate_and_a_table_with_a_clock_of_its_own(tmp_path: Path) -> None:
    """The wrist is filmed at 25 frames a second and ends earlier, and actions come 50 times a second."""
    for number, (camera, rate, count) in enumerate([("front", 30, 60), ("wrist", 25, 45)]):
        name = tmp_path / "videos" / camera / "0.mp4"
        name.parent.mkdir(parents=True)
        pts = constant_rate_pts(Fraction(rate), count)
        make_video(name, pts=pts, timebase=Fraction(1, rate), first_number=1000 * number)
    make_dataset([tmp_path / "videos"], tmp_path / "dataset")
    times = np.arange(100) / 50
    names: dict[str, Any] = {"shortgop": shortgop, "torch": torch, "np": np}
    names["rows_of"] = {"front/0.mp4": (times, np.stack([times, -times], axis=1))}.__getitem__
    exec(example("class WithOtherClocks"), names)
    policy, front = shortgop.AllClips(2, stride=3), ["front/0.mp4"]
    clips = names["WithOtherClocks"](tmp_path / "dataset", policy, videos=front, metadata=["id"])
    assert len(clips) == 57
    for start, item in enumerate(clips):
        frames = [start, start + 3]
        assert numbers_in(item["frames"][None]) == [frames]
        assert numbers_in(item["wrist"][None]) == [[1000 + min(frame * 25 // 30, 44) for frame in frames]]
        first = math.ceil(frames[1] * 50 / 30)
        expected = [min(row, 99) / 50 for row in range(first, first + 16)]
        assert item["action"].tolist() == [[time, -time] for time in expected]
        assert item["action_is_pad"].tolist() == [row >= 100 for row in range(first, first + 16)]


@pytest.mark.first_case_short
@pytest.mark.parametrize("workers", [0, 1])
def test_labels_for_each_frame_and_several_cameras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    lines = []
    for number in range(3):
        name = ("front/episode_000012.mp4", "wrist/episode_000012.mp4", "other.mp4")[number]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        rate = Fraction(10) if number < 2 else Fraction(30000, 1001)
        make_video(tmp_path / name, pts=constant_rate_pts(rate, 70), timebase=1 / rate, first_number=1000 * number)
        actions = [[1000 * number + frame, 0.5] for frame in range(70)]
        lines.append(json.dumps({"path": name, "id": name.removesuffix(".mp4"), "actions": actions}))
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    make_dataset([tmp_path / "list.jsonl"], tmp_path / "dataset")
    actions, cameras = re.findall(
        r"```python\n((?:class WithActions|class WithWrist).*?)```", PAGE.read_text(), re.DOTALL
    )
    wrist, made = cameras.split("\n\n\n")

    # Workers import the classes.
    (tmp_path / "classes_of_the_page.py").write_text(f"import shortgop\nimport torch\n\n\n{actions}\n\n{wrist}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = dict(vars(importlib.import_module("classes_of_the_page")))
    with_actions = names["WithActions"](tmp_path / "dataset", shortgop.RandomClips(8, fps=5), size=(64, 96))
    exec(made.replace('"DATASET"', repr(str(tmp_path / "dataset"))).replace("(224, 224)", "(64, 96)"), names)
    with_wrist = names["dataset"]
    loaded: list[list[Any]] = []
    for dataset in (with_actions, with_wrist):
        sampler = shortgop.ElasticSampler(dataset, len(dataset))
        with shortgop.ClipLoader(dataset, sampler, workers=workers) as loader:
            loaded.append([*loader, *DataLoader(dataset, len(dataset), sampler=sampler, num_workers=workers)])
    sys.modules.pop("classes_of_the_page")
    assert list(map(len, loaded)) == [2, 2]
    for batch in loaded[0]:
        assert batch["action"].shape == (3, 8, 2)
        assert batch["action"][..., 0].tolist() == numbers_in(batch["frames"])
    for batch in loaded[1]:
        assert batch["id"] == ["front/episode_000012"]
        assert batch["wrist"].shape == (1, 8, 3, 64, 96)
        assert numbers_in(batch["wrist"]) == [
            [1000 + number for number in clip] for clip in numbers_in(batch["frames"])
        ]


@pytest.mark.parametrize("begins", [0, 2, 10])
def test_the_sound_of_a_clip_is_what_is_heard_while_it_is_shown(begins: int, tmp_path: Path) -> None:
    """A tone sounds while frames 25 to 34 are shown. The picture begins after the sound, in one file, and before it in
    another one."""
    rate, late = Fraction(10), Fraction(5, 10)
    picture, source = tmp_path / "picture.mkv", tmp_path / "sources" / "a.mkv"
    source.parent.mkdir()
    make_video(picture, pts=constant_rate_pts(rate, 60), timebase=1 / rate)
    tone = f"aevalsrc=if(between(t\\,{float(late) + 2.5}\\,{float(late) + 3.5})\\,sin(2000*t)\\,0):d=7:s=48000"
    # The beginning of the sound is cut off: its first samples have the time of frame `begins`.
    cut = f"{tone},atrim=start={float(late) + begins / 10}" if begins else tone
    subprocess.run(
        [find_ffmpeg().path, "-v", "error", "-itsoffset", str(float(late)), "-i", str(picture), "-f", "lavfi",
         "-i", cut, "-map", "0:v", "-map", "1:a", "-c:v", "copy", "-c:a", "flac", "-copyts", str(source)],
        check=True,
    )  # fmt: skip
    make_dataset([source.parent], tmp_path / "dataset")
    block = re.search(r"```python\n(from torchcodec.*?class WithSound.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"shortgop": shortgop, "torch": torch}
    exec(block[1], names)
    dataset = names["WithSound"](tmp_path / "dataset", shortgop.AllClips(16, step=7))
    with shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 7), workers=0) as loader:
        (batch,) = loader
    assert batch["sound"].shape == (7, 25_600)
    for clip, sound in zip(batch["frames"], batch["sound"], strict=True):
        loudness = sound.view(16, 1_600).abs().mean(dim=1)
        sounds = [2 / math.pi if 25 <= read_number(frame) < 35 else 0.0 for frame in clip]
        assert loudness.tolist() == pytest.approx(sounds, abs=0.02)


def numbers_in(clips: torch.Tensor) -> list[list[int]]:
    return [[read_number(frame) for frame in clip] for clip in clips]
