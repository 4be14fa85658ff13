"""Clips that have a size and a number of frames of their own, as vision-language models take them."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import math
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from datasets import make_dataset
from shortgop.errors import UsageError, WrongTypeError
from synthetic import constant_rate_pts, make_video, read_number

PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"

# Videos of 1 s, 4.5 s and 9 s; (width, height).
LENGTHS, SIZES, RATE = (10, 45, 90), ((96, 64), (64, 128), (160, 64)), 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clips")
    lines = []
    for number, (count, size) in enumerate(zip(LENGTHS, SIZES, strict=True)):
        pts = constant_rate_pts(Fraction(RATE), count)
        make_video(
            root / f"{number}.mp4", pts=pts, timebase=Fraction(1, RATE), size=size, first_number=1000 * number
        )  # fmt: skip
        # As lists of captions have it: the number of frames of another file, which the column is named after.
        lines.append(json.dumps({"path": f"{number}.mp4", "question": f"What is in {number}?", "num_frames": 7}))
    (root / "list.jsonl").write_text("\n".join(lines))
    make_dataset([root / "list.jsonl"], root / "dataset", gop_frames=8)
    return root / "dataset"


def of_transformers(model: str, *names: str) -> dict[str, Any]:
    """Functions and methods of a video processor, taken out of its module: to import that takes torchvision, which is
    not to be had beside a torch without CUDA."""
    package = importlib.util.find_spec("transformers")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "models" / model / f"video_processing_{model}.py"
    found = [
        each
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, ast.FunctionDef) and each.name in names
    ]
    module = ast.Module([ast.parse("from __future__ import annotations").body[0], *found], [])
    own: dict[str, Any] = {"math": math, "np": np, "torch": torch}
    exec(compile(ast.fix_missing_locations(module), str(file), "exec"), own)
    return {name: own[name] for name in names}


def as_long_as_the_video(video: Any) -> list[int]:
    """A frame of each second."""
    return list(range(0, video.num_frames, RATE))


def by_chance(video: Any, random: np.random.Generator) -> Any:
    return random.integers(video.num_frames, size=2)


def in_steps(num_frames: int, height: int, width: int, step: int = 32) -> tuple[int, int]:
    """The more frames, the smaller they are."""
    smaller = 2 if num_frames > 4 else 1
    return height // smaller // step * step, width // smaller // step * step


def numbers_in(item: Any, name: str = "frames") -> list[int]:
    return [read_number(frame) - 1000 * int(item["video"]) for frame in item[name]]


@pytest.mark.parametrize("workers", [0, 1])
def test_each_clip_has_the_frames_and_the_size_that_functions_choose(folder: Path, workers: int) -> None:
    outputs = {
        "frames": shortgop.Output(size=in_steps),
        "last": shortgop.Output(frames=[-1], size=functools.partial(in_steps, step=16)),
        "shared": shortgop.Output(shared="frames", size=functools.partial(in_steps, step=16)),
    }
    clips = shortgop.ClipDataset(folder, shortgop.ClipsBy(as_long_as_the_video), outputs=outputs, metadata=["question"])
    loader = DataLoader(clips, batch_size=3, collate_fn=list, num_workers=workers)
    (batch,) = loader
    assert [numbers_in(item) for item in batch] == [list(range(0, count, RATE)) for count in LENGTHS]
    assert [numbers_in(item) for item in batch] == [item["frame_numbers"].tolist() for item in batch]
    assert [tuple(item["frames"].shape) for item in batch] == [(1, 3, 64, 96), (5, 3, 64, 32), (9, 3, 32, 64)]
    # One frame, so that it is as large as can be.
    assert [tuple(item["last"].shape) for item in batch] == [(1, 3, 64, 96), (1, 3, 128, 64), (1, 3, 64, 160)]
    assert [tuple(item["shared"].shape)[2:] for item in batch] == [(64, 96), (64, 32), (32, 80)]
    assert [item["pts_seconds"].tolist() for item in batch] == [list(range(-(-count // RATE))) for count in LENGTHS]
    assert [item["question"] for item in batch] == [f"What is in {number}?" for number in range(3)]
    alone = [clips[draw] for draw in range(3)]
    for item, other in zip(batch, alone, strict=True):
        assert all(torch.equal(item[name], other[name]) for name in outputs)


def test_crops_and_flips_are_drawn_within_the_size_of_the_clip(folder: Path) -> None:
    for crop in ("random", "random-scaled", "random-resized", "center"):
        output = shortgop.Output(size=in_steps, crop=cast(Any, crop), flip=0.5)
        clips = shortgop.ClipDataset(folder, shortgop.RandomClips(2), outputs={"frames": output})
        items = clips.items(range(12))
        assert {tuple(item["frames"].shape[2:]) for item in items} == {(64, 96), (128, 64), (64, 160)}
        assert {bool(item["flip"]) for item in items} == {False, True}
        if crop == "random":
            assert all(item["crop"][2:].tolist() == list(item["frames"].shape[2:]) for item in items)


def test_a_transform_gets_clips_of_all_sizes_of_outputs_one_by_one(folder: Path) -> None:
    outputs = {"frames": shortgop.Output(size=32)}
    options: dict[str, Any] = {"outputs": outputs, "transform": lambda read: {"size": read["frames"].shape[-1]}}
    items = shortgop.ClipDataset(folder, shortgop.RandomClips(2), **options).items(range(3))
    assert [item["size"] for item in items] == [48, 32, 80]
    together = shortgop.ClipDataset(
        folder,
        shortgop.ClipsBy(as_long_as_the_video),
        outputs=outputs,
        transform=lambda read: read,
        transform_batch=True,
    )
    with pytest.raises(UsageError, match=r"'frames' of clips .* has shapes .*transform_batch .*leave that out"):
        together.items(range(3))


def test_what_stands_in_for_missing_frames_is_told_clip_by_clip(folder: Path) -> None:
    def beyond(video: Any) -> range:
        return range(0, video.num_frames + RATE, RATE)

    clips = shortgop.ClipDataset(folder, shortgop.ClipsBy(beyond, ends="black"), outputs={"frames": shortgop.Output()})
    for item, count in zip(clips.items(range(3)), LENGTHS, strict=True):
        assert item["mask"].tolist() == [frame < count for frame in beyond(SimpleNamespace(num_frames=count))]
        assert numbers_in({**item, "frames": item["frames"][item["mask"]]}) == list(range(0, count, RATE))
        assert not item["frames"][~item["mask"]].any()


def test_a_clip_loader_makes_batches_where_clips_are_alike_and_says_what_to_take_where_not(folder: Path) -> None:
    several = shortgop.ClipDataset(folder, shortgop.ClipsBy(as_long_as_the_video), size=(64, 96))
    with pytest.raises(UsageError, match=r"9 frames, .*video '2.mp4', .*collate_fn of a DataLoader"):
        list(shortgop.ClipLoader(several, shortgop.ElasticSampler(several, 3), workers=0))
    sizes = {"frames": shortgop.Output(size=in_steps)}
    several = shortgop.ClipDataset(folder, shortgop.RandomClips(2), outputs=sizes)
    with pytest.raises(UsageError, match=r"output 'frames': frames of sizes .*size is a function: .*collate_fn"):
        list(shortgop.ClipLoader(several, shortgop.ElasticSampler(several, 3), workers=0))
    alike = shortgop.ClipDataset(folder, shortgop.ClipsBy(as_long_as_the_video), outputs=sizes, videos=[1, 1])
    (batch,) = shortgop.ClipLoader(alike, shortgop.ElasticSampler(alike, 2), workers=0)
    assert batch["frames"].shape == (2, 5, 3, 64, 32)


class Boxed(shortgop.ClipDataset):
    """As many boxes as frames, and a word that is text."""

    def items(self, draws: Any, rows: Any = None) -> list[Any]:
        items = super().items(draws, rows)
        for item in items:
            item["boxes"] = torch.arange(100.0).view(25, 4)[: len(item["frame_numbers"])]
            item["words"] = ["box"] * int(item["video"])
        return items


@pytest.mark.parametrize("workers", [0, 2])
def test_a_clip_loader_gathers_entries_that_differ_by_functions(folder: Path, workers: int) -> None:
    pad = functools.partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    names = dict.fromkeys(("frames", "last", "pts_seconds", "frame_numbers", "words"), list)
    outputs = {"frames": shortgop.Output(size=in_steps), "last": shortgop.Output(frames=[-1], size=(32, 32))}
    clips = Boxed(folder, shortgop.ClipsBy(as_long_as_the_video), outputs=outputs, metadata=["question"])
    sampler = shortgop.ElasticSampler(clips, 3, order=shortgop.Sequential())
    with shortgop.ClipLoader(clips, sampler, workers=workers, collate={**names, "boxes": pad}) as loader:
        for _ in range(2):
            (batch,) = loader
            assert [tuple(frames.shape) for frames in batch["frames"]] == [
                (1, 3, 64, 96),
                (5, 3, 64, 32),
                (9, 3, 32, 64),
            ]
            for video, frames in enumerate(batch["frames"]):
                assert numbers_in({"video": video, "frames": frames}) == list(range(0, LENGTHS[video], RATE))
            assert [tuple(frames.shape) for frames in batch["last"]] == [(1, 3, 32, 32)] * 3
            assert batch["boxes"].shape == (3, 9, 4)
            assert batch["boxes"][1, 5:].sum() == 0
            assert batch["words"] == [[], ["box"], ["box"] * 2]
            assert batch["question"] == [f"What is in {number}?" for number in range(3)]
            assert batch["draw"].tolist() == [0, 1, 2]
            assert batch.state is not None
            assert list(batch) == list(clips[0])


def test_clips_of_their_own_sizes_are_gathered_without_a_function_of_the_size(folder: Path) -> None:
    clips = shortgop.ClipDataset(folder, shortgop.RandomClips(2))
    loader = shortgop.ClipLoader(clips, shortgop.ElasticSampler(clips, 3), workers=0, collate={"frames": list})
    (batch,) = loader
    found = {
        video: tuple(frames.shape[2:]) for video, frames in zip(batch["video"].tolist(), batch["frames"], strict=True)
    }
    assert found == {number: size[::-1] for number, size in enumerate(SIZES)}
    # Nothing else is kept with a clip.
    assert all(frames.untyped_storage().nbytes() == frames.numel() for frames in batch["frames"])


def test_what_a_clip_loader_cannot_gather(folder: Path) -> None:
    clips = shortgop.ClipDataset(folder, shortgop.RandomClips(2), size=(64, 64))
    sampler = shortgop.ElasticSampler(clips, 3)
    for given in (list, {"frames": "list"}):
        with pytest.raises(WrongTypeError, match=r"collate is .*dict of functions .*take a DataLoader"):
            shortgop.ClipLoader(clips, sampler, collate=cast(Any, given))
    with pytest.raises(WrongTypeError, match=r"no parameter 'collate_fn': here it is collate=\{name: function\}"):
        shortgop.ClipLoader(clips, sampler, collate_fn=cast(Any, list))
    with pytest.raises(UsageError, match=r"collate has 'boxes', and items have no such entry; they have frames"):
        list(shortgop.ClipLoader(clips, sampler, workers=0, collate={"boxes": list}))
    with pytest.raises(ZeroDivisionError) as caught:
        list(shortgop.ClipLoader(clips, sampler, workers=0, collate={"start": lambda starts: 1 // len(starts[:0])}))
    assert "its function for 'start' with those of 3 clips" in caught.value.__notes__[0]


def test_what_takes_clips_of_one_length_says_so(folder: Path) -> None:
    clips = shortgop.ClipDataset(folder, shortgop.ClipsBy(as_long_as_the_video))
    with pytest.raises(UsageError, match="clips have 1 to 9 frames, and those of a ClipTable as many each"):
        clips.clip_table()
    assert shortgop.ClipDataset(folder, shortgop.ClipsBy(as_long_as_the_video), videos=[1]).clip_table().frames.shape


def test_sizes_that_are_none(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"size as a function: an output has this; give ClipDataset outputs="):
        shortgop.ClipDataset(folder, shortgop.RandomClips(2), size=in_steps)
    with pytest.raises(UsageError, match="crop is 'middle'; it can be \"center\""):
        shortgop.Output(size=in_steps, crop=cast(Any, "middle"))
    for returned in (None, (0, 5), "64"):
        output = shortgop.Output(size=cast(Any, lambda *_, found=returned: found), crop="random")
        clips = shortgop.ClipDataset(folder, shortgop.RandomClips(2), outputs={"frames": output})
        message = r"output 'frames', video '1.mp4': the function size was called with 2 frames, height 128 and width 64"
        with pytest.raises(UsageError, match=message):
            clips[1]


def test_a_function_without_random_numbers_makes_clips_that_are_the_same_in_each_epoch(folder: Path) -> None:
    """No loader reminds of an epoch that none of them needs."""
    plain = shortgop.ClipDataset(folder, shortgop.ClipsBy(as_long_as_the_video), videos=[1])
    drawn = shortgop.ClipDataset(folder, shortgop.ClipsBy(by_chance), videos=[1])
    assert (plain.is_random, drawn.is_random) == (False, True)
    assert shortgop.ClipsBy(lambda video, most=3: range(most)).is_random is False
    assert shortgop.ClipsBy(functools.partial(by_chance)).is_random is True
    assert shortgop.ClipsBy(lambda *given: [given[0].num_frames - 1]).is_random is True
    for _ in range(4):
        (batch,) = DataLoader(plain, batch_size=1)
    assert batch["frame_numbers"].tolist() == [[0, 10, 20, 30, 40]]


def test_the_page_has_the_frames_and_sizes_of_a_vision_language_model(folder: Path) -> None:
    """What a processor gets is what that of Qwen3-VL would have chosen itself."""
    theirs = of_transformers("qwen3_vl", "sample_frames", "smart_resize")
    block = re.search(r"```python\n(def two_per_second.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    got: dict[str, Any] = {}

    def processor(**given: Any) -> dict[str, Any]:
        got.update(given)
        return given

    names: dict[str, Any] = {
        "shortgop": shortgop, "np": np, "partial": functools.partial, "DataLoader": DataLoader, "processor": processor,
        "smart_resize": theirs["smart_resize"],
    }  # fmt: skip
    text = block[1].replace('"DATASET"', repr(str(folder))).replace("clips, 4", "clips, 3")
    exec(re.sub(r"num_workers=\d+", "num_workers=0", text), names)
    list(names["loader"])
    assert (got["do_sample_frames"], got["do_resize"]) == (False, False)
    options = SimpleNamespace(fps=2, num_frames=None, min_frames=4, max_frames=768)
    for question, frames, metadata in zip(got["text"], got["videos"], got["video_metadata"], strict=True):
        number = int(question.removeprefix("What is in ").removesuffix("?"))
        (width, height), count = SIZES[number], LENGTHS[number]
        assert (metadata["total_num_frames"], metadata["fps"]) == (count, RATE)
        chosen = theirs["sample_frames"](options, SimpleNamespace(total_num_frames=count, fps=RATE)).tolist()
        assert metadata["frames_indices"] == chosen
        assert numbers_in({"frames": frames, "video": number}) == chosen
        bounds = {"factor": 32, "min_pixels": 128 * 32**2, "max_pixels": 768 * 32**2}
        assert tuple(frames.shape[2:]) == theirs["smart_resize"](len(chosen), height, width, **bounds)
    assert sorted(len(frames) for frames in got["videos"]) == [4, 9, 18]


def test_several_questions_of_a_video_are_rows_of_the_users_own(folder: Path) -> None:
    rows = [{"video": f"{number}.mp4", "question": str(place)} for place, number in enumerate((1, 0, 1, 2, 0, 1))]
    text = PAGE.read_text()
    taken, row_of = (re.search(shown, text) for shown in (r"`(videos=\[row.*? rows\])`", r"`(rows\[item.*?\])`"))
    assert taken is not None
    assert row_of is not None
    names: dict[str, Any] = {"shortgop": shortgop, "rows": rows, "folder": folder, "by": as_long_as_the_video}
    clips = eval(f"shortgop.ClipDataset(folder, shortgop.ClipsBy(by), {taken[1]})", names)
    sampler, asked = shortgop.ElasticSampler(clips, 3), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for item in (item for batch in DataLoader(clips, 3, sampler=sampler, collate_fn=list) for item in batch):
            row = eval(row_of[1], {"item": item, "clips": clips, "rows": rows})
            assert numbers_in(item) == list(range(0, LENGTHS[int(row["video"][0])], RATE))
            asked.append(row["question"])
    assert sorted(asked) == sorted(2 * [row["question"] for row in rows])


def test_a_row_with_a_start_and_an_end_has_the_frames_of_qwen_vl_utils(folder: Path) -> None:
    """That takes frames from ceil(start * fps) to floor(end * fps), both included, at equal distances."""
    found = re.search(r"with `frames=` of `(\(math.*?\))`, `fps`", PAGE.read_text().replace("\n", " "))
    assert found is not None
    last = LENGTHS[2]
    rows = [("2.mp4", 0.25, 3.0), ("2.mp4", 1.01, 2.19), ("2.mp4", 1.0, last / RATE)]
    names = {"math": math, "fps": RATE, "count": last}
    frames = [eval(found[1], names | {"start": start, "end": end}) for _, start, end in rows]
    stretches = shortgop.Stretches([name for name, *_ in rows], frames=frames)
    clips = shortgop.ClipDataset(folder, shortgop.ClipsBy(first_and_last), videos=stretches)
    for number, (_, start, end) in enumerate(rows):
        assert numbers_in(clips[number]) == [math.ceil(start * RATE), min(math.floor(end * RATE), last - 1)]


def first_and_last(video: Any) -> Any:
    return [0, video.num_frames - 1]


def test_rows_of_several_videos_or_none_are_a_dataset_of_the_users_own(folder: Path) -> None:
    block = re.search(r"```python\n(class Rows.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"torch": torch}
    exec(block[1], names)
    clips = shortgop.ClipDataset(folder, shortgop.ClipsBy(as_long_as_the_video), metadata=["id"])
    rows = [
        {"text": "one", "videos": ["2.mp4"]},
        {"text": "none", "videos": []},
        {"text": "two", "videos": ["1.mp4", "0.mp4"]},
    ]
    (found,) = DataLoader(names["Rows"](clips, rows), 3, collate_fn=list)
    assert [row["text"] for row in found] == ["one", "none", "two"]
    for row, items in zip(rows, [each["items"] for each in found], strict=True):
        assert [item["id"] for item in items] == row["videos"]
        for item in items:
            assert numbers_in(item) == list(range(0, LENGTHS[int(item["id"][0])], RATE))
    # Random clips are others in each epoch, and what is too short for one is no row of another video.
    clips = shortgop.ClipDataset(folder, shortgop.RandomClips(20, ends="drop"), metadata=["id"])
    dataset, starts = names["Rows"](clips, rows), set()
    for epoch in range(4):
        clips.set_epoch(epoch)
        (item,) = dataset[0]["items"]
        assert item["id"] == "2.mp4"
        starts.add(item["start"])
    assert len(starts) > 1
    with pytest.raises(KeyError, match="0.mp4"):
        dataset[2]


def test_other_samplings_of_vision_language_models_are_functions_too() -> None:
    """That of Qwen2-VL, beside their own: an even number of frames, at equal distances."""
    sample = of_transformers("qwen2_vl", "sample_frames")["sample_frames"]
    options = SimpleNamespace(fps=2, num_frames=None, min_frames=4, max_frames=12, temporal_patch_size=2)

    def two_per_second(video: Any) -> Any:
        count = min(max(2 * video.num_frames / video.fps, 4), min(12, video.num_frames) // 2 * 2) // 2 * 2
        return np.arange(0, video.num_frames, video.num_frames / count).astype(int)

    for count in (5, 17, 44, 45, 100, 1000):
        theirs = sample(options, SimpleNamespace(total_num_frames=count, fps=10)).tolist()
        assert two_per_second(SimpleNamespace(num_frames=count, fps=10)).tolist() == theirs
