"""What LeRobotClips makes of the pictures of each camera, and of an item of which one camera cannot be read.

The frames of the first camera show the number of their row, those of the second one 10,000 more.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from lerobot_files import CAMERAS, write_lerobot
from shortgop import Output
from shortgop.errors import DatasetError, DatasetWarning, UsageError, WrongTypeError
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number
from training_videos import damaged_copy

FRONT, WRIST = CAMERAS
FPS = 30
LENGTHS = [9, 12]
# Two times of one camera, and one of the other.
DELTAS = {FRONT: [-1 / FPS, 0], "action": [0, 1 / FPS]}
# Below the 64 x 96 of the frames, so that there are 5 x 9 places at even lines and columns.
RANDOM = Output(size=(56, 80), crop="random", flip=0.5)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A dataset with GOPs of 4 frames, and the LeRobot dataset that it was made of."""
    folder = tmp_path_factory.mktemp("robot")
    robot = write_lerobot(folder / "robot", LENGTHS, fps=FPS)
    report = prepare([str(robot)], DiskStorage(folder / "out"), Profile(gop_frames=4), where=Where("inline"))
    assert report.failures == ()
    return folder / "out", robot


def clips(places: tuple[Path, Path], **options: Any) -> shortgop.LeRobotClips:
    return shortgop.LeRobotClips(*places, delta_timestamps=DELTAS, **options)


def seen(frames: torch.Tensor, crop: torch.Tensor, flip: torch.Tensor) -> torch.Tensor:
    """What a transform of torchvision with this crop and flip makes of whole frames, (..., height, width)."""
    top, left, height, width = crop.tolist()
    part = frames[..., top : top + height, left : left + width]
    return part.flip(-1) if flip else part


@pytest.mark.parametrize("transform", [torch.nn.Upsample, {WRIST: torch.nn.Upsample}])
def test_a_class_in_place_of_a_transform_is_refused(transform: Any, places: tuple[Path, Path]) -> None:
    with pytest.raises(WrongTypeError, match=r"class Upsample, .*; give it an object of that class: "):
        clips(places, transform=transform)


def test_each_camera_has_a_crop_of_its_own_which_its_times_share(places: tuple[Path, Path]) -> None:
    whole, cropped = clips(places), clips(places, outputs=RANDOM)
    drawn = []
    for one, other in zip(whole, cropped, strict=True):
        for camera in CAMERAS:
            crop, flip = other[f"{camera}_crop"], other[f"{camera}_flip"]
            assert torch.equal(other[camera], seen(one[camera], crop, flip))
        drawn.append([(*other[f"{camera}_crop"].tolist(), other[f"{camera}_flip"].item()) for camera in CAMERAS])
        # All else is as it was.
        assert one.keys() == other.keys() - {f"{camera}_{name}" for camera in CAMERAS for name in ("crop", "flip")}
        assert torch.equal(one[f"{FRONT}_is_pad"], other[f"{FRONT}_is_pad"])
        assert torch.equal(one["action"], other["action"])
    # Of 90 choices two cameras have the same one now and then.
    assert sum(front == wrist for front, wrist in drawn) <= 4
    assert len({front for front, _ in drawn}) > 10


@pytest.mark.parametrize("same_for", ["clip", "video"])
def test_all_cameras_may_have_the_same_crop(same_for: Literal["clip", "video"], places: tuple[Path, Path]) -> None:
    for item in clips(places, outputs=replace(RANDOM, same_for=same_for), same_for_cameras=True):
        assert torch.equal(item[f"{FRONT}_crop"], item[f"{WRIST}_crop"])
        assert torch.equal(item[f"{FRONT}_flip"], item[f"{WRIST}_flip"])


def test_cameras_have_outputs_of_their_own(places: tuple[Path, Path]) -> None:
    """As for openpi, which crops and jitters the camera that looks on, and not the wrist's."""
    outputs = {FRONT: RANDOM, WRIST: Output(size=(32, 48), dtype=torch.float32, layout="CTHW")}
    dataset = clips(places, outputs=outputs, transform={FRONT: torch.ones_like})
    item = dataset[3]
    assert (item[FRONT].shape, item[FRONT].dtype) == ((2, 3, 56, 80), torch.uint8)
    assert item[FRONT].unique().tolist() == [1]
    assert (item[WRIST].shape, item[WRIST].dtype) == ((3, 32, 48), torch.float32)
    assert item[WRIST].unique().numel() > 10


# A crop and a small picture of that, of the last time alone; and a crop beside a plain view.
VIEWS = {
    FRONT: {"frames": RANDOM, "small": Output(size=(28, 40), shared="frames", frames=[-1])},
    WRIST: {"frames": RANDOM, "plain": Output(size=(32, 48), layout="CTHW")},
}


def test_a_camera_has_several_outputs_of_one_decode(places: tuple[Path, Path]) -> None:
    whole, resized, cropped, several = (
        clips(places),
        clips(places, outputs=Output(size=(32, 48), layout="CTHW")),
        clips(places, outputs=RANDOM),
        clips(places, outputs=VIEWS),
    )
    for one, plain, crops, item in zip(whole, resized, cropped, several, strict=True):
        # What is drawn does not depend on the outputs beside it.
        assert all(torch.equal(item[name], crops[name]) for name in (FRONT, WRIST, f"{FRONT}_crop", f"{FRONT}_is_pad"))
        assert torch.equal(item[f"{WRIST}_plain"], plain[WRIST])
        assert torch.equal(item[FRONT], seen(one[FRONT], item[f"{FRONT}_crop"], item[f"{FRONT}_flip"]))
        small = item[f"{FRONT}_small"]
        assert small.shape == (3, 28, 40)
        # Half as large, by swscale: its mean colour is that of the crop.
        assert torch.allclose(small.float().mean((1, 2)), item[FRONT][-1].float().mean((1, 2)), atol=6)
        drawn = {f"{WRIST}_crop_frames", f"{WRIST}_flip_frames", f"{WRIST}_crop_plain", f"{WRIST}_flip_plain"}
        added = drawn | {f"{FRONT}_small", f"{WRIST}_plain", f"{FRONT}_crop", f"{FRONT}_flip"}
        assert item.keys() == one.keys() | added
    assert several.stats().packets_decoded == whole.stats().packets_decoded


def test_a_transform_gets_the_outputs_of_a_camera_by_name(places: tuple[Path, Path]) -> None:
    def augment(pictures: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return pictures | {"frames": noise(pictures["frames"]), "of_both": torch.ones(2)}

    views = {"frames": Output(), "plain": Output(size=(32, 48))}
    dataset = clips(places, outputs=dict.fromkeys(CAMERAS, views), transform={FRONT: augment})
    plain = clips(places, outputs=Output(size=(32, 48)))
    for item, one in zip(dataset, plain, strict=True):
        assert item[FRONT].unique().numel() == 1
        assert torch.equal(item[f"{FRONT}_plain"], one[FRONT])
        assert item[f"{FRONT}_of_both"].tolist() == [1, 1]
        assert item[WRIST].shape == (3, 64, 96)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "outputs", [VIEWS, {FRONT: RANDOM, WRIST: Output(crop="random-resized", size=(32, 48), layout="CTHW")}]
)
def test_both_loaders_deliver_what_single_items_have(
    workers: int, outputs: dict[str, Any], places: tuple[Path, Path]
) -> None:
    dataset = clips(places, outputs=outputs)
    in_order = shortgop.ElasticSampler(dataset, 7, order=shortgop.Sequential())
    with shortgop.ClipLoader(dataset, in_order, workers=workers) as loader:
        batches = list(loader)
    context = "forkserver" if workers else None
    batches += DataLoader(dataset, batch_size=7, num_workers=workers, multiprocessing_context=context)
    expected = list(dataset) * 2
    assert len(batches) == 6
    for number, item in enumerate(expected):
        batch = batches[number // 7]
        assert batch.keys() == item.keys()
        for name, value in item.items():
            found = batch[name][number % 7]
            assert torch.equal(found, value) if isinstance(value, torch.Tensor) else found == value, name


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("outputs", [None, {FRONT: {"frames": Output(), "small": Output(size=(8, 8))}, WRIST: RANDOM}])
def test_a_camera_may_be_kept_apart_as_a_list(workers: int, outputs: Any, places: tuple[Path, Path]) -> None:
    """The loader said of its pictures that the first item lacks them."""
    dataset = clips(places, outputs=outputs)
    in_order = shortgop.ElasticSampler(dataset, 7, order=shortgop.Sequential())
    with shortgop.ClipLoader(dataset, in_order, workers=workers, collate={FRONT: list}) as loader:
        batches = list(loader)
    assert {type(batch[FRONT]) for batch in batches} == {list}
    for number, item in enumerate(dataset):
        for name, value in item.items():
            found = batches[number // 7][name][number % 7]
            assert torch.equal(found, value) if isinstance(value, torch.Tensor) else found == value, name


def noise(frames: torch.Tensor) -> torch.Tensor:
    """A transform that draws once for all times, as ColorJitter of torchvision does."""
    return frames.float() * 0 + torch.rand(())


@pytest.mark.parametrize("outputs", [None, RANDOM])
def test_a_transform_draws_once_for_each_camera_or_for_all(outputs: Output | None, places: tuple[Path, Path]) -> None:
    for alike in (False, True):
        dataset = clips(places, outputs=outputs, transform=noise, same_for_cameras=alike)
        for item in dataset:
            values = [item[camera].unique().tolist() for camera in CAMERAS]
            assert [len(each) for each in values] == [1, 1]
            assert (values[0] == values[1]) == alike
        assert torch.equal(dataset[5][FRONT], dataset[5][FRONT])


def test_another_epoch_and_another_seed_have_other_crops(places: tuple[Path, Path]) -> None:
    def crops(dataset: shortgop.LeRobotClips) -> list[list[int]]:
        return [item[f"{FRONT}_crop"].tolist() for item in dataset]

    dataset = clips(places, outputs=RANDOM)
    first = crops(dataset)
    assert crops(dataset) == first
    assert crops(clips(places, outputs=RANDOM, seed=1)) != first
    dataset.set_epoch(1)
    assert crops(dataset) != first
    assert dataset.is_random
    assert not clips(places).is_random


@pytest.fixture
def damaged(places: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Without frames 4 to 7 of the second camera in the first episode."""
    wrist = list(shortgop.open(places[0]).ids).index(f"{WRIST}/episode_000000")
    return damaged_copy(places[0], tmp_path / "copy", video=wrist), places[1]


def shown(item: dict[str, Any]) -> list[int]:
    """The row of an item as the picture of each camera and the state say it."""
    return [read_number(item[FRONT][-1]), read_number(item[WRIST]) - 10_000, int(item["observation.state"])]


def test_an_item_of_which_a_camera_cannot_be_read_is_replaced_as_a_whole(damaged: tuple[Path, Path]) -> None:
    with pytest.raises(DatasetError):
        clips(damaged)[5]
    dataset = clips(damaged, on_error="skip")
    with pytest.warns(DatasetWarning, match="draw 5 is skipped, draw [0-9]* comes in its place"):
        items = dataset.__getitems__([3, 5, 8])
    rows = [int(item["index"]) for item in items]
    assert (rows[0], rows[2]) == (3, 8)
    assert rows[1] not in range(4, 8)
    assert [item["draw"] for item in items] == rows
    assert [shown(item) for item in items] == [[row] * 3 for row in rows]
    assert dataset.skipped == 1
    with pytest.warns(DatasetWarning), pytest.raises(DatasetError, match="2 clips could not be read, more than"):
        clips(damaged, on_error="skip", max_skipped=1).__getitems__([4, 5])
    chosen = clips(damaged, on_error=lambda _error, draw: draw - 1)
    with pytest.warns(DatasetWarning):
        assert chosen[6]["index"] == 3


def test_the_loader_goes_on_where_an_item_is_replaced(damaged: tuple[Path, Path]) -> None:
    dataset = clips(damaged, on_error="skip", outputs=Output(size=(64, 96)))
    in_order = shortgop.ElasticSampler(dataset, 7, order=shortgop.Sequential())
    with pytest.warns(DatasetWarning):
        batches = list(shortgop.ClipLoader(dataset, in_order, workers=0))
    for batch in batches:
        for place, row in enumerate(batch["index"].tolist()):
            assert shown({name: values[place] for name, values in batch.items()}) == [row] * 3
            assert row not in range(4, 8)
    assert dataset.skipped >= 4


def test_an_output_may_have_the_name_of_what_mixed_clips_add(places: tuple[Path, Path]) -> None:
    """Its entry is another one, and the name was refused."""
    outputs = {FRONT: {"frames": Output(), "dataset": Output(size=(8, 16))}, WRIST: Output()}
    dataset = shortgop.MixedClips([clips(places, outputs=outputs)])
    assert dataset[3][f"{FRONT}_dataset"].shape[-2:] == (8, 16)
    assert dataset[3]["dataset"] == 0
    with pytest.raises(UsageError, match="'dataset'"):
        clips(places, metadata=["dataset"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"outputs": {FRONT: RANDOM}}, "outputs has none for the camera 'observation.images.wrist'"),
        (
            {"outputs": {"top": RANDOM}},
            "outputs has 'top', which is no camera; the cameras are observation.*front, ",
        ),
        (
            {"transform": {"top": noise}},
            "transform has 'top', which is no camera; the cameras are observation.*front, ",
        ),
        ({"outputs": {FRONT: RANDOM, WRIST: 224}}, "outputs has 224 for 'observation.images.wrist'; it has to be a"),
        ({"outputs": {FRONT: {}, WRIST: RANDOM}}, "outputs has {} for 'observation.images.front'; it has to be a"),
        ({"outputs": {FRONT: {"is_pad": RANDOM}, WRIST: RANDOM}}, "'observation.images.front_is_pad' already: rename"),
        (
            {"outputs": {FRONT: {"small": Output(shared="large")}, WRIST: RANDOM}},
            "output 'small': shared is 'large'; it can be the name of an output with a crop of its own: there is none",
        ),
        ({"outputs": Output(frames=[0])}, r"has frames=\(0,\): delta_timestamps says which frames a camera has"),
        ({"outputs": Output(shared=FRONT)}, "same_for_cameras=True gives all cameras the same crops and flips"),
        ({"outputs": RANDOM, "size": (64, 64)}, "outputs say what frames become: leave size, .* out"),
        ({"crop": "random"}, r"give LeRobotClips outputs=shortgop.Output\(size"),
        ({"image_transforms": noise}, "LeRobotClips has no parameter 'image_transforms': transform= is that"),
        ({"tolerance_s": 1}, "LeRobotClips has no parameter 'tolerance_s': leave it out"),
        ({"on_error": "ignore"}, 'on_error is \'ignore\'; it can be "raise", "skip" or a callable'),
    ],
)
def test_what_makes_no_sense_is_named(options: dict[str, Any], said: str, places: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match=said):
        clips(places, **options)
