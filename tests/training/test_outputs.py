"""Outputs of ClipDataset: crops, sizes, flips, layouts and frames of their own, all from one decode."""

from __future__ import annotations

import itertools
import pickle
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from dataset_paths import shard_path
from datasets import current_manifest, make_dataset
from shortgop import Output
from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from synthetic import constant_rate_pts, make_video, read_number

# Width and height of each video; video v shows the numbers from 1000 * v on.
SIZES = {"a.mp4": (96, 64), "b.mp4": (128, 96), "c.mp4": (66, 98)}
FRAMES = 24
MEAN_STD = ((0.5, 0.4, 0.3), (0.25, 0.5, 1.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("outputs")
    for number, (name, size) in enumerate(SIZES.items()):
        pts = constant_rate_pts(Fraction(10), FRAMES)
        make_video(root / name, pts=pts, timebase=Fraction(1, 10), size=size, first_number=1000 * number)
    report = make_dataset([root / name for name in SIZES], root / "dataset", gop_frames=8)
    assert report.failures == ()
    return root / "dataset"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video whose pixels say where they are: red grows by 2 with each column, blue by 2 with each line."""
    root = tmp_path_factory.mktemp("places")
    lines, columns = np.mgrid[:96, :120]
    picture = np.stack([8 + 2 * columns, np.full_like(lines, 128), 8 + 2 * lines], axis=2).astype(np.uint8)
    with av.open(root / "places.mkv", "w") as container:
        stream: Any = container.add_stream("libx264", rate=10, options={"crf": "0", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 120, 96, "yuv444p"
        for _ in range(4):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
        container.mux(stream.encode())
    report = make_dataset([root / "places.mkv"], root / "dataset", gop_frames=4, crf=1)
    assert report.failures == ()
    return root / "dataset"


def clips_of(folder: Path, clips: Any = None, **outputs: Output) -> shortgop.ClipDataset:
    return shortgop.ClipDataset(folder, clips or shortgop.AllClips(4, stride=2, step=3), outputs=outputs)


def whole(folder: Path, item: dict[str, Any], positions: Any = slice(None)) -> torch.Tensor:
    """The frames of an item's clip as they are: uint8, (frames, 3, height, width)."""
    video = shortgop.open(folder)[int(item["video"])]
    seconds = item["pts_seconds"][positions].tolist()
    return video.get_frames_at([round(time * 10) for time in seconds]).data


def numbers(frames: torch.Tensor) -> list[int]:
    return [read_number(frame) for frame in frames]


def test_several_outputs_come_from_one_decode(folder: Path) -> None:
    dataset = clips_of(
        folder,
        small=Output(size=(48, 64), dtype=torch.float16),
        target=Output(frames=[1]),
        grey=Output(size=(64, 96), color="grey", layout="CTHW", frames=[0, -1]),
    )
    before = dataset.source.stats()
    item = dataset[4]
    after = dataset.source.stats() - before
    clip = dataset.clip_index.clips([4])[0]
    first = int(clip.frames[0])
    assert numbers(item["small"]) == clip.frames.tolist()
    assert numbers(item["target"]) == [first + 2]
    assert numbers(item["grey"].permute(1, 0, 2, 3)) == [first, first + 6]
    assert item["small"].dtype == torch.float16
    assert (item["small"].shape, item["grey"].shape) == ((4, 3, 48, 64), (1, 2, 64, 96))
    # NVVL's case: a small clip, and its middle frame as it is.
    assert torch.equal(item["target"], whole(folder, item, [1]))
    assert after.gops_decoded == len({frame // 8 for frame in clip.frames.tolist()})
    assert after.frames_delivered == 4 + 1 + 2


def test_frames_that_no_output_has_are_not_decoded(folder: Path) -> None:
    dataset = clips_of(folder, shortgop.AllClips(24), last=Output(frames=[8]))
    before = dataset.source.stats()
    assert numbers(dataset[0]["last"]) == [8]
    after = dataset.source.stats() - before
    assert (after.gops_decoded, after.packets_decoded) == (1, 1)


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        ("".join(order), (torch.uint8, torch.bfloat16)[number % 2])
        for number, order in enumerate(itertools.permutations("TCHW"))
    ],
)
def test_crops_and_flips_are_parts_of_the_whole_frame_in_any_layout(
    folder: Path, layout: str, dtype: torch.dtype
) -> None:
    dataset = clips_of(folder, frames=Output(size=(32, 46), crop="random", flip=0.5, layout=layout, dtype=dtype))
    items = dataset.__getitems__(list(range(len(dataset))))
    for item in items:
        top, left, height, width = item["crop"].tolist()
        part = whole(folder, item)[:, :, top : top + height, left : left + width]
        expected = part.flip(3) if item["flip"] else part
        frames = item["frames"]
        lengths = dict(zip("TCHW", expected.shape, strict=True))
        assert list(frames.shape) == [lengths[dimension] for dimension in layout]
        found = frames.permute([layout.index(dimension) for dimension in "TCHW"])
        if dtype == torch.uint8:
            assert torch.equal(found, expected)
        else:
            assert torch.equal(found, (expected.float() * torch.tensor(1 / 255)).to(dtype))
    # In memory too: each clip is contiguous in its own layout, and all are one tensor.
    assert all(item["frames"].is_contiguous() for item in items)
    assert len({item["frames"].untyped_storage().data_ptr() for item in items}) == 1
    assert {bool(item["flip"]) for item in items} == {True, False}


def test_outputs_that_draw_each_by_itself_have_a_crop_and_a_flip_of_their_own(folder: Path) -> None:
    """Those that share one have no names for it, as where there is one output."""
    cropped = Output(size=(32, 46), crop="random", flip=0.5)
    item = clips_of(folder, one=cropped, two=Output(size=(32, 46)))[0]
    top, left, height, width = item["crop_one"].tolist()
    part = whole(folder, item)[:, :, top : top + height, left : left + width]
    assert torch.equal(item["one"], part.flip(3) if item["flip_one"] else part)
    assert (item["crop_two"].tolist()[:2], item["flip_two"].item()) == ([0, 0], False)
    assert {"crop", "flip"} <= set(clips_of(folder, one=cropped, two=Output(size=(16, 24), shared="one"))[0])


def test_the_same_frame_in_two_crops_of_one_batch(folder: Path) -> None:
    """Overlapping clips share frames, and each clip has a crop of its own."""
    dataset = clips_of(folder, shortgop.AllClips(6), frames=Output(size=(40, 50), crop="random", flip=0.5))
    before = dataset.source.stats()
    items = dataset.__getitems__(list(range(10)))
    assert (dataset.source.stats() - before).gops_decoded == 2
    assert len({tuple(item["crop"].tolist()) for item in items}) > 5
    for item in items:
        top, left, height, width = item["crop"].tolist()
        part = whole(folder, item)[:, :, top : top + height, left : left + width]
        assert torch.equal(item["frames"], part.flip(3) if item["flip"] else part)


def test_pixels_say_where_a_crop_was_taken(places: Path) -> None:
    dataset = clips_of(
        places,
        shortgop.RandomClips(2, clips_per_video=40),
        cut=Output(size=(40, 60), crop="random", flip=0.5),
        resized=Output(size=(64, 80), crop="random-resized", flip=0.5),
    )
    for item in dataset:
        for name in ("cut", "resized"):
            top, left, height, width = item[f"crop_{name}"].tolist()
            assert top % 2 == left % 2 == 0
            frames = item[name].double()
            if item[f"flip_{name}"]:
                frames = frames.flip(3)
            lines, columns = frames.shape[2:]
            # The middle of each pixel of the result, in pixels of the frame.
            at_lines = top + (torch.arange(lines) + 0.5) * height / lines - 0.5
            at_columns = left + (torch.arange(columns) + 0.5) * width / columns - 0.5
            inner = frames[:, :, 4:-4, 4:-4]
            # Chroma of half the size, and lossy: a pixel or two at most, less on average.
            assert ((inner[:, 0].mean(dim=1) - 8) / 2 - at_columns[4:-4]).abs().mean() < 1.0
            assert ((inner[:, 2].mean(dim=2) - 8) / 2 - at_lines[4:-4]).abs().mean() < 1.0


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("crop", ["random-resized", "random-scaled"])
def test_a_resized_crop_is_near_to_the_same_done_by_torch(folder: Path, crop: Any, mode: Any) -> None:
    dataset = clips_of(folder, frames=Output(size=(48, 56), crop=crop, scale=(0.4, 1.0), interpolation=mode))
    for item in (dataset[index] for index in range(0, len(dataset), 3)):
        top, left, height, width = item["crop"].tolist()
        part = whole(folder, item)[:, :, top : top + height, left : left + width].float()
        expected = torch.nn.functional.interpolate(part, size=(48, 56), mode=mode, antialias=True).clamp(0, 255)
        difference = (item["frames"].float() - expected.round()).abs()
        # A crop two pixels off differs by 8 and more.
        assert difference.mean() < 3


def test_outputs_may_share_a_crop(folder: Path) -> None:
    dataset = clips_of(
        folder,
        input=Output(size=(16, 24), shared="target", dtype=torch.float32),
        target=Output(size=(32, 48), crop="random", flip=0.5, frames=[1]),
    )
    for item in dataset:
        own = ["draw", "frame_numbers", "pts_seconds", "start", "video"]
        assert sorted(item) == sorted(["crop", "flip", "input", "target", *own])
        large = item["target"][0].float()
        small = torch.nn.functional.interpolate(large[None], size=(16, 24), mode="bilinear", antialias=True)[0]
        # One pixel off, it differs by 12 and more.
        assert (item["input"][1] * 255 - small).abs().mean() < 5
    dataset = clips_of(folder, one=Output(size=(8, 8), crop="random"), other=Output(size=(8, 8), crop="random"))
    assert {"crop_one", "crop_other", "flip_one", "flip_other"} < set(dataset[0])
    assert any(not torch.equal(item["crop_one"], item["crop_other"]) for item in dataset)


def test_items_have_the_crop_where_it_is_not_random_too(folder: Path) -> None:
    item = clips_of(folder, frames=Output(size=(32, 32), crop="center"))[0]
    assert item["crop"].tolist() == [0, 16, 64, 64]
    assert not item["flip"]
    item = clips_of(folder, frames=Output(crop=(10, 20, 30, 40)))[0]
    assert torch.equal(item["frames"], whole(folder, item)[:, :, 10:40, 20:60])


def test_normalized_and_black(folder: Path) -> None:
    dataset = clips_of(
        folder,
        shortgop.CenterClips(14, stride=2, ends="black"),
        frames=Output(size=(32, 48), dtype=torch.float32, normalize=MEAN_STD, layout="CTHW"),
        last=Output(size=(32, 48), color="ycbcr", frames=[-1, 0]),
    )
    item = dataset[0]
    assert item["mask"].tolist() == [True] * 12 + [False] * 2
    assert torch.allclose(item["frames"][:, 13].mean(dim=(1, 2)), torch.tensor([-2.0, -0.8, -0.3]))
    assert item["frames"][:, 11].std() > 0.1
    assert [set(plane.unique().tolist()) for plane in item["last"][0]] == [{0}, {128}, {128}]
    assert len(item["last"][1, 0].unique()) > 10


def test_videos_of_different_sizes_in_one_batch(folder: Path) -> None:
    dataset = clips_of(folder, frames=Output(size=(32, 40), crop="random-resized", scale=(0.9, 1.0)))
    batch = next(iter(DataLoader(dataset, batch_size=len(dataset))))
    assert batch["frames"].shape == (len(dataset), 4, 3, 32, 40)
    assert set(batch["video"].tolist()) == {0, 1, 2}
    with pytest.raises(
        UsageError, match=r"output 'frames': frames of sizes .* do not go into one batch; give it size="
    ):
        next(iter(DataLoader(clips_of(folder, frames=Output()), batch_size=len(dataset))))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_draw_the_same(folder: Path) -> None:
    dataset = clips_of(
        folder,
        shortgop.RandomClips(3, clips_per_video=4),
        frames=Output(size=(30, 42), crop="random", flip=0.5, dtype=torch.float16),
        small=Output(size=(20, 20), crop="random-resized", flip=0.5),
    )
    sampler = shortgop.ElasticSampler(dataset, 4, seed=1)

    def read(**options: Any) -> dict[int, list[Any]]:
        found = {}
        loader = DataLoader(dataset, batch_size=4, sampler=sampler, **options)
        for epoch in (0, 1):
            sampler.set_epoch(epoch)
            for batch in loader:
                for place, draw in enumerate(batch["draw"].tolist()):
                    found[draw] = [batch[name][place].tolist() for name in sorted(batch) if name != "draw"]
        return found

    alone = read()
    assert read(num_workers=2, multiprocessing_context="fork", persistent_workers=True) == alone
    copied = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copied[3]["frames"], dataset[3]["frames"])
    # The epoch draws again: the first of each item's values is its crop.
    assert sum(alone[clip][0] != alone[clip + 12][0] for clip in range(12)) > 6


def test_transforms_get_all_outputs(folder: Path) -> None:
    def halved(item: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        assert set(item) == {"one", "other"}
        return {"one": item["one"] // 2, "sum": item["other"].float().sum()}

    outputs = {"one": Output(frames=[0]), "other": Output(frames=[1], size=(8, 8))}
    plain = clips_of(folder, **outputs)[2]
    item = shortgop.ClipDataset(folder, shortgop.AllClips(4, stride=2, step=3), outputs=outputs, transform=halved)[2]
    assert torch.equal(item["one"], plain["one"] // 2)
    assert item["sum"] == plain["other"].float().sum()
    assert "other" not in item
    broken = shortgop.ClipDataset(folder, shortgop.AllClips(4), outputs=outputs, transform=lambda item: item["one"])
    with pytest.raises(WrongTypeError, match="the transform returned a Tensor"):
        broken[0]


def test_a_flipped_frame_shows_its_number_once_it_is_turned_back(folder: Path) -> None:
    item = clips_of(folder, frames=Output(flip=1.0))[0]
    with pytest.raises(AssertionError):
        read_number(item["frames"][0])
    assert numbers(item["frames"].flip(3)) == [0, 2, 4, 6]


def test_errors_name_the_output_and_the_remedy(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"output 'target': frames is \[4\], and clips have 4 frames, 0 to 3"):
        clips_of(folder, target=Output(frames=[4]))
    dataset = clips_of(folder, big=Output(size=(80, 80), crop="random"))
    with pytest.raises(
        UsageError,
        match="output 'big', video 'a.mp4': a random crop of 80 lines and 80 columns does not fit into frames of "
        "height 64 and width 96: make size smaller",
    ):
        dataset[0]
    with pytest.raises(UsageError, match="output 'big', video 'a.mp4': crop .* does not fit"):
        clips_of(folder, big=Output(crop=(60, 0, 10, 10)))[0]
    with pytest.raises(UsageError, match="output 'draw': items have something else of that name"):
        clips_of(folder, draw=Output())
    # MixedClips put the number of the dataset in its place.
    with pytest.raises(UsageError, match="output 'dataset': items have something else of that name"):
        clips_of(folder, dataset=Output())
    with pytest.raises(UsageError, match="output 'stretch': items have something else of that name"):
        shortgop.ClipDataset(
            folder,
            shortgop.AllClips(4),
            outputs={"stretch": Output()},
            videos=shortgop.Stretches([0], frames=[(0, None)]),
        )
    with pytest.raises(UsageError, match="'crop_a' is what items call a crop or a flip"):
        clips_of(folder, a=Output(), b=Output(), crop_a=Output())
    with pytest.raises(UsageError, match="'flip' is what items call a crop or a flip"):
        shortgop.ClipDataset(folder, shortgop.AllClips(4), outputs={"a": Output()}, metadata=["flip"])
    with pytest.raises(UsageError, match="output 'a': shared is 'b'; it can be the name of an output .*: c"):
        clips_of(folder, a=Output(shared="b"), b=Output(shared="c"), c=Output())
    with pytest.raises(UsageError, match="there is none"):
        clips_of(folder, a=Output(shared="a"))
    with pytest.raises(UsageError, match="leave size, crop, dtype, .* out, and give them to each shortgop.Output"):
        shortgop.ClipDataset(folder, shortgop.AllClips(4), outputs={"frames": Output()}, size=(8, 8))
    wrongs: Any = ({}, [Output()], {"frames": {}}, {3: Output()})
    for wrong in wrongs:
        with pytest.raises(WrongTypeError, match="shortgop.Output"):
            shortgop.ClipDataset(folder, shortgop.AllClips(4), outputs=wrong)


@pytest.mark.filterwarnings("ignore:draw .* is skipped")
def test_a_clip_in_place_of_a_damaged_one_has_the_crop_of_its_own_draw(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    manifest = current_manifest(copy)
    shard = shard_path(copy, manifest.shards.name.text(int(manifest.segments.shard[0])))
    data = bytearray(shard.read_bytes())
    data[int(manifest.gops.offset[0]) + int(manifest.gops.length[0]) // 2] ^= 1
    shard.write_bytes(data)
    outputs = {"frames": Output(size=(32, 32), crop="random"), "small": Output(size=(8, 8), shared="frames")}
    whole_again = shortgop.ClipDataset(folder, shortgop.AllClips(2), outputs=outputs)
    dataset = shortgop.ClipDataset(copy, shortgop.AllClips(2), outputs=outputs, on_error="skip")
    items = dataset.__getitems__([30, 0])
    assert (items[0]["draw"], items[1]["draw"] == 0, dataset.skipped > 0) == (30, False, True)
    for item in items:
        expected = whole_again[int(item["draw"])]
        assert all(torch.equal(item[name], expected[name]) for name in ("frames", "small", "crop"))


def test_outputs_that_cannot_fit_into_memory_are_refused(folder: Path) -> None:
    dataset = clips_of(folder, huge=Output(size=(2_000_000, 2_000_000)))
    with pytest.raises(UsageError, match="this process can have"):
        dataset[0]


def test_random_crops_that_repeat_in_every_epoch_cause_a_warning(folder: Path) -> None:
    dataset = clips_of(folder, shortgop.AllClips(24), frames=Output(size=(32, 32), crop="random"))
    for _ in range(2):
        dataset.__getitems__([0, 1, 2])
    with pytest.warns(DatasetWarning, match="call dataset.set_epoch"):
        dataset.__getitems__([0, 1, 2])


def test_threads_and_batches_change_nothing(folder: Path) -> None:
    outputs = {
        "cut": Output(size=(32, 46), crop="random", flip=0.5, layout="CTHW"),
        "resized": Output(size=(40, 40), crop="random-resized", dtype=torch.bfloat16, layout="THWC"),
        "last": Output(size=(20, 30), frames=[-1], color="grey"),
    }
    alone, threads = (
        shortgop.ClipDataset(folder, shortgop.AllClips(5), outputs=outputs, threads=count) for count in (1, 3)
    )
    draws = [7, 0, 3, 59, 21, 20, 0]
    with pytest.warns(DatasetWarning, match="index 0 comes several times"):
        together = threads.__getitems__(draws)
    for one, other in zip([alone[draw] for draw in draws], together, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in ("cut", "resized", "last", "crop_cut", "flip_cut"))
