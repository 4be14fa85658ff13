"""`frame_numbers`: which frames of its video an item's frames are, by the numbers in the pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import UsageError
from training_videos import make_videos, numbers

PADDING = ["repeat_last", "clamp", "wrap_clip", "loop_video", "black"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


def shown(item: Any) -> list[int]:
    """The frames of its video that an item shows, by the numbers in the pictures."""
    return [number - 1000 * int(item["video"]) for number in numbers(item["frames"])]


@pytest.mark.parametrize(
    "policy",
    [
        shortgop.RandomClips(4, stride=2, jitter=1),
        shortgop.CenterClips(3, fps=5, ends="drop"),
        shortgop.AllClips(shortgop.Offsets(frames=[-3, 0, 2]), step=7),
        shortgop.RandomFrames(),
        shortgop.SegmentFrames(5, place="random"),
        shortgop.ClipsAt(["c.mp4", "a.mp4"], frames=[3, 30], num_frames=2),
    ],
    ids=repr,
)
def test_they_are_the_frames_that_are_shown(folder: Path, policy: Any) -> None:
    for item in shortgop.ClipDataset(folder, policy):
        assert item["frame_numbers"].dtype == torch.int64
        assert item["frame_numbers"].tolist() == shown(item)


@pytest.mark.parametrize("ends", PADDING)
def test_where_clips_are_padded_they_are_the_frames_that_stand_in(folder: Path, ends: Any) -> None:
    """Clips of 6 frames, 3 apart, that start at frame 0 of c.mp4, which has 9; and one frame before each video."""
    padded: list[Any] = [shortgop.CenterClips(6, stride=3, ends=ends)]
    padded.append(shortgop.AllClips(shortgop.Offsets(frames=[-1, 0, 1]), step=4, whole=False, ends=ends))
    for policy in padded:
        items = list(shortgop.ClipDataset(folder, policy))
        assert not all(item["mask"].all() for item in items)
        for item in items:
            video = shortgop.open(folder)[item["video"]]
            assert torch.allclose(item["frame_numbers"].double() / float(video.metadata.fps), item["pts_seconds"])
            visible = item["mask"] if ends == "black" else torch.ones_like(item["mask"])
            frames = item["frames"][visible]
            assert shown({**item, "frames": frames}) == item["frame_numbers"][visible].tolist()
    last = {"repeat_last": 6, "clamp": 8, "wrap_clip": 6, "loop_video": 6, "black": None}[ends]
    short = shortgop.ClipDataset(folder, padded[0])[2]
    assert short["frame_numbers"][:3].tolist() == [0, 3, 6]
    assert last is None or short["frame_numbers"][-1] == last


@pytest.mark.first_case_short
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_both_loaders_have_them(folder: Path, workers: int) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.CenterClips(6, stride=3, ends="wrap_clip"))
    with shortgop.ClipLoader(dataset, range(3), batch_size=3, workers=workers) as loader:
        (batch,) = loader
    options: Any = {"multiprocessing_context": "spawn"} if workers else {}
    (stacked,) = DataLoader(dataset, batch_size=3, num_workers=workers, **options)
    assert batch["frame_numbers"].shape == (3, 6)
    assert torch.equal(batch["frame_numbers"], stacked["frame_numbers"])
    for place in range(3):
        item = {name: batch[name][place] for name in batch}
        assert item["frame_numbers"].tolist() == shown(item)


def test_with_outputs_they_are_those_of_the_whole_clip(folder: Path) -> None:
    outputs = {"all": shortgop.Output(), "middle": shortgop.Output(frames=[1])}
    for item in shortgop.ClipDataset(folder, shortgop.AllClips(3, step=5), outputs=outputs):
        assert item["frame_numbers"].tolist() == shown({**item, "frames": item["all"]})
        assert item["frame_numbers"][[1]].tolist() == shown({**item, "frames": item["middle"]})


def test_a_change_of_them_reaches_no_other_item(folder: Path) -> None:
    table = shortgop.ClipTable(["a.mp4"], torch.tensor([3]).numpy(), torch.tensor([[3, 5]]).numpy())
    dataset = shortgop.ClipDataset(folder, table)
    dataset[0]["frame_numbers"] += 7
    assert dataset[0]["frame_numbers"].tolist() == shown(dataset[0]) == [3, 5]


def test_no_column_and_no_output_may_have_their_name(folder: Path) -> None:
    with pytest.raises(UsageError, match="'frame_numbers', which items have already"):
        shortgop.ClipDataset(folder, shortgop.AllClips(1), metadata=["frame_numbers"])
    with pytest.raises(UsageError, match="frame_numbers"):
        shortgop.ClipDataset(folder, shortgop.AllClips(1), outputs={"frame_numbers": shortgop.Output()})


def test_a_column_of_their_name_is_read_by_the_number_of_the_video(tmp_path: Path) -> None:
    """As `start` of a list that `prep --cuts start,end` took."""
    folder = make_videos(tmp_path)
    shortgop.annotate(folder, {"a.mp4": {"start": 1.5}, "b.mp4": {"start": 2.5}, "c.mp4": {"start": 4.0}})
    with pytest.raises(UsageError) as refused:
        shortgop.ClipDataset(folder, shortgop.CenterClips(1), metadata=["start"])
    told = re.search(r"(dataset\.source\.columns\['start'\]) has its values, by .* `video`", str(refused.value))
    assert told is not None
    dataset = shortgop.ClipDataset(folder, shortgop.CenterClips(1), videos=["c.mp4", "a.mp4"])
    batch = next(iter(DataLoader(dataset, batch_size=2)))
    assert eval(told[1])[batch["video"]].tolist() == [4.0, 1.5]


def test_windows_that_have_every_frame_once(folder: Path) -> None:
    """In the order of videos and frames; what stands in behind the end of a video has no mask."""
    windows = shortgop.AllClips(4, step=4, whole=False, ends="repeat_last")
    read = [
        (item["video"], number)
        for item in shortgop.ClipDataset(folder, windows)
        for number, there in zip(shown(item), item["mask"].tolist(), strict=True)
        if there
    ]
    assert read == [(video, frame) for video, count in enumerate([40, 25, 9]) for frame in range(count)]


def test_windows_at_a_rate_follow_one_another(folder: Path) -> None:
    """Those of a video have its frames at each quarter of a second, from its start to its end."""
    windows = shortgop.AllClips(4, fps=4, step_seconds=1, whole=False, ends="repeat_last")
    read: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for item in shortgop.ClipDataset(folder, windows):
        read[item["video"]] += np.array(shown(item))[item["mask"].numpy()].tolist()
    assert read[0] == [10 * second + frame for second in range(4) for frame in (0, 3, 5, 8)]
    assert read[1] == [0, 8, 15, 23]
    assert read[2] == [0, 3, 5, 8]
