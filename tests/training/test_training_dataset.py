"""ClipDataset: the right frames of the right videos in any process, through DataLoaders of every kind."""

from __future__ import annotations

import copy
import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import DatasetWarning, UsageError, VideoNotFoundError, WrongTypeError
from sweep import sample
from training_videos import VIDEOS, check_item, make_videos, numbers, read_by


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


def test_items_are_the_frames_of_their_clips(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.AllClips(3, stride=2, step=3), metadata=["label", "kind", "id"])
    assert len(dataset) == 12 + 7 + 2
    for index, item in enumerate(dataset):
        check_item(item, dataset.clip_index.clips([index])[0])
        columns = list(VIDEOS.values())[item["video"]][2]
        assert int(item["label"]) == columns["label"]
        assert item["label"].dtype == torch.int64
        assert item["kind"] == columns["kind"]
        assert item["id"] == list(VIDEOS)[item["video"]]
        assert "mask" not in item
    assert dataset[-1]["draw"] == len(dataset) - 1


def test_a_negative_index_counts_from_the_end_also_in_a_subset(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.AllClips(3))
    last = torch.utils.data.Subset(dataset, [0, -1])
    draws = [batch["draw"].tolist() for batch in DataLoader(last, batch_size=2)]
    assert draws == [[0, len(dataset) - 1]]
    dataset.set_epoch(2)
    assert [item["draw"] for item in dataset.__getitems__([0, -1])] == [2 * len(dataset), 3 * len(dataset) - 1]
    with pytest.raises(UsageError, match="there is no clip -1000"):
        dataset.__getitems__([-1000])


def test_a_dataset_from_which_all_videos_are_dropped_warns(folder: Path) -> None:
    with pytest.warns(DatasetWarning, match="has no clips: no video has .* all have fewer frames than a clip spans"):
        dataset = shortgop.ClipDataset(folder, shortgop.RandomClips(1000, ends="drop"))
    assert len(dataset) == 0
    assert dataset.too_short == tuple(VIDEOS)


def test_numbers_of_a_column_are_of_one_type(folder: Path, tmp_path: Path) -> None:
    """Also where some of them are written without a point, in any process and loader."""
    shutil.copytree(folder, tmp_path / "dataset")
    values = {"a.mp4": 0, "b.mp4": 0.5, "c.mp4": 1}
    shortgop.annotate(tmp_path / "dataset", {name: {"score": score, "hash": 2**64} for name, score in values.items()})
    clips = shortgop.ClipDataset(tmp_path / "dataset", shortgop.CenterClips(2), metadata=["score", "label", "hash"])
    for each in (clips, pickle.loads(pickle.dumps(clips))):
        assert [(item["score"].item(), item["score"].dtype) for item in each] == [
            (value, torch.float64) for value in values.values()
        ]
        assert {item["label"].dtype for item in each} == {torch.int64}
        assert each[0]["hash"] == 2**64


@pytest.mark.parametrize("outputs", [None, {"frames": shortgop.Output(size=(32, 48), crop="random", flip=0.5)}])
def test_items_are_on_the_cpu_whatever_torchs_default_device_is(folder: Path, outputs: Any) -> None:
    """Scripts set it to the GPU, where a forked worker cannot put anything."""
    clips = shortgop.ClipDataset(
        folder, shortgop.RandomClips(12, ends="black"), outputs=outputs, metadata=["label", "weight", "id"]
    )
    item = clips[2]
    sampler = shortgop.ElasticSampler(clips, 3, order=shortgop.Sequential())
    torch.set_default_device("meta")
    try:
        found = clips[2]
        of_no_clips = clips._read([], None, several=False)
        (batch,) = shortgop.ClipLoader(clips, sampler, workers=0)
    finally:
        torch.set_default_device(None)
    assert {each.device.type for each in of_no_clips.values() if isinstance(each, torch.Tensor)} == {"cpu"}
    for name, value in item.items():
        assert found[name] == value if not isinstance(value, torch.Tensor) else torch.equal(found[name], value), name
        assert batch[name][2] == value if not isinstance(value, torch.Tensor) else torch.equal(batch[name][2], value)


def test_a_batch_shares_one_tensor_and_one_plan(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.AllClips(4))
    before = dataset.source.stats()
    items = dataset.__getitems__([0, 1, 2, 3])
    assert len({item["frames"].untyped_storage().data_ptr() for item in items}) == 1
    # Frames 0 to 6 lie in one GOP.
    assert dataset.source.stats().gops_decoded - before.gops_decoded == 1


@pytest.mark.parametrize("ends", ["repeat_last", "clamp", "wrap_clip", "loop_video"])
def test_short_videos_are_padded_and_masked(folder: Path, ends: Any) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.CenterClips(6, stride=3, ends=ends))
    assert dataset.too_short == ("c.mp4",)
    item = dataset[2]
    check_item(item, dataset.clip_index.clips([2])[0])
    assert item["mask"].tolist() == [True, True, True, False, False, False]
    assert dataset[0]["mask"].all()


@pytest.mark.parametrize(
    ("reading", "black"),
    [
        ({}, [0, 0, 0]),
        ({"dtype": torch.float32}, [0.0, 0.0, 0.0]),
        ({"normalize": ((0.5, 0.4, 0.3), (0.25, 0.5, 1.0)), "dtype": torch.float32}, [-2.0, -0.8, -0.3]),
        (
            {"normalize": ((0.5, 0.4, 0.3), (0.25, 0.5, 1.0)), "dtype": torch.float32, "dimension_order": "NHWC"},
            [-2.0, -0.8, -0.3],
        ),
    ],
)
def test_black_frames(folder: Path, reading: Any, black: list[float]) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.CenterClips(4, stride=4, ends="black"), **reading)
    frames, mask = dataset[2]["frames"], dataset[2]["mask"]
    assert mask.tolist() == [True, True, True, False]
    last = frames[3] if reading.get("dimension_order") == "NHWC" else frames[3].permute(1, 2, 0)
    assert torch.allclose(last.double(), torch.tensor(black, dtype=torch.float64).expand(last.shape))
    assert frames[2].float().std() > 0.05


def test_black_planes_are_black(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.CenterClips(4, stride=4, ends="black"), color="yuv420")
    planes = dataset[2]["frames"][3, 0]
    assert set(planes[:64].unique().tolist()) == {16}
    assert set(planes[64:].unique().tolist()) == {128}


def test_equal_steps_in_time_in_videos_of_different_rates(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.CenterClips(3, fps=5, ends="drop"))
    assert [numbers(dataset[index]["frames"]) for index in range(3)] == [
        [17, 19, 21],
        [1006, 1012, 1018],
        [2002, 2004, 2006],
    ]
    for item in dataset:
        assert torch.allclose(item["pts_seconds"].diff(), torch.tensor(0.2, dtype=torch.float64))


def test_aligned_clips_start_where_fewer_packets_are_needed(folder: Path) -> None:
    packets = {}
    align: Any
    for align in (None, "reference"):
        dataset = shortgop.ClipDataset(folder, shortgop.AllClips(4, stride=4, align=align), videos=["a.mp4"])
        before = dataset.source.stats().packets_decoded
        for index in range(len(dataset)):
            check_item(dataset[index], dataset.clip_index.clips([index])[0])
        packets[align] = (dataset.source.stats().packets_decoded - before) / len(dataset)
    assert packets["reference"] < 0.8 * packets[None]


def test_some_of_the_videos(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.AllClips(9), videos=["c.mp4", 0])
    assert numbers(dataset[0]["frames"]) == list(range(2000, 2009))
    assert numbers(dataset[1]["frames"]) == list(range(9))
    assert len(dataset) == 1 + 32
    with pytest.raises(VideoNotFoundError):
        shortgop.ClipDataset(folder, shortgop.AllClips(9), videos=["d.mp4"])
    # As where some of the videos of a list could not be prepared. What the message advises leaves them out.
    names = ["d.mp4", "c.mp4", "e.mp4", "a.mp4"]
    with pytest.raises(
        VideoNotFoundError, match=r"'d.mp4'; .* 2 of 4 videos are wrong: 'd.mp4', 'e.mp4'; .* in dataset\]"
    ):
        shortgop.ClipDataset(folder, shortgop.AllClips(9), videos=names)
    videos = shortgop.open(folder)
    there = shortgop.ClipDataset(videos, shortgop.AllClips(9), videos=[name for name in names if name in videos])
    assert [there.source[number].id for number in there.video_numbers] == ["c.mp4", "a.mp4"]
    # A dataset of some videos has the names of these alone.
    few = videos[:1]
    with pytest.raises(VideoNotFoundError, match=r"3 of 4 videos are wrong: .* the one that you gave"):
        shortgop.ClipDataset(few, shortgop.AllClips(9), videos=names)
    one = shortgop.ClipDataset(few, shortgop.AllClips(9), videos=[name for name in names if name in few])
    assert [one.source[number].id for number in one.video_numbers] == ["a.mp4"]
    # A number that no video has is told as it is, also among such names.
    with pytest.raises(VideoNotFoundError, match="no video number 99: it has 3 videos$"):
        shortgop.ClipDataset(folder, shortgop.AllClips(9), videos=[99, *names])


def test_columns_make_labels_and_weights(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.RandomClips(4, clips_per_video=5))
    order = shortgop.ClassBalanced(dataset.column("kind"), num_samples=60)
    sampler = shortgop.ElasticSampler(dataset, 60, order=order)
    videos = Counter(clip.video for clip in dataset.clip_index.clips(list(sampler)))
    assert (videos[0], videos[1] + videos[2]) == (30, 30)
    chosen = shortgop.ClipDataset(folder, shortgop.RandomClips(4), videos=["c.mp4", "a.mp4"])
    assert chosen.column("weight") == [2.0, 0.5]


@pytest.mark.first_case_short
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:epoch 5 begins for the third time")
@pytest.mark.parametrize("context", sample(["fork", "spawn"], more=["forkserver"]))
def test_workers_read_the_same(folder: Path, context: str) -> None:
    dataset = shortgop.ClipDataset(
        folder, shortgop.RandomClips(4, stride=2, clips_per_video=4, jitter=1), metadata=["weight"]
    )
    sampler = shortgop.ElasticSampler(dataset, 4, seed=3)
    sampler.set_epoch(5)
    alone = read_by(DataLoader(dataset, batch_size=4, sampler=sampler), dataset)
    assert alone == list(sampler)
    assert min(alone) >= 5 * 12
    loader = DataLoader(
        dataset, batch_size=4, sampler=sampler, num_workers=2, multiprocessing_context=context, persistent_workers=True
    )
    assert read_by(loader, dataset) == alone
    # Persistent workers see the next epoch, for it is in the draws.
    sampler.set_epoch(6)
    assert [draw // 12 for draw in read_by(loader, dataset)] == [6] * 12


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_epoch_reaches_workers_under_other_samplers(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.RandomClips(4))
    loader = DataLoader(dataset, batch_size=3, num_workers=1, multiprocessing_context="fork", persistent_workers=True)
    assert read_by(loader, dataset) == [0, 1, 2]
    dataset.set_epoch(7)
    assert read_by(loader, dataset) == [21, 22, 23]


def test_draws_of_a_sampler_hold_their_epoch_whatever_the_dataset_was_told(folder: Path) -> None:
    """Some trainers call set_epoch of the sampler and of the dataset."""
    both = shortgop.MixedClips([shortgop.ClipDataset(folder, shortgop.RandomClips(3)) for _ in range(2)])
    # Of the second dataset an epoch sees a few clips: its rounds are not the epochs.
    sampler = shortgop.ElasticSampler(both, 4, order=shortgop.Mixture([3, 1], num_blocks=1))
    sampler.set_epoch(1)
    before = [batch["draw"].tolist() for batch in DataLoader(both, batch_size=4, sampler=sampler)]
    assert min(before[0]) < len(both)
    both.set_epoch(1)
    assert [batch["draw"].tolist() for batch in DataLoader(both, batch_size=4, sampler=sampler)] == before


def test_it_pickles_as_a_path_and_a_policy(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.RandomClips(4), metadata=["label"])
    dumped = pickle.dumps(dataset)
    # Most of it the numbers that are shared.
    assert len(dumped) < 5000
    copied = pickle.loads(dumped)
    assert torch.equal(copied[4]["frames"], dataset[4]["frames"])
    assert copied.clip_index.fingerprint == dataset.clip_index.fingerprint


@pytest.mark.parametrize("order", [shortgop.Chunked(3), shortgop.ClassBalanced([0, 1, 1])], ids=repr)
def test_a_sampler_pickles_as_its_dataset_and_order_and_the_copy_is_at_the_same_place(folder: Path, order: Any) -> None:
    """As for `torch.multiprocessing.spawn`: what an order bound to a dataset is does not pickle."""
    clips = shortgop.ClipDataset(folder, shortgop.RandomClips(4, clips_per_video=8, ends="drop"))
    for dataset in (clips, shortgop.MixedClips([clips])):
        sampler = shortgop.ElasticSampler(dataset, 4, order=order, seed=3)
        resumed = shortgop.ElasticSampler(dataset, 4, order=order, seed=3)
        sampler.set_epoch(2)
        running = iter(sampler)
        taken = [next(running) for _ in range(8)]
        dumped = pickle.dumps(sampler)
        assert len(dumped) < 7000
        copies = [pickle.loads(dumped), copy.copy(sampler), copy.deepcopy(sampler)]
        state, whole = sampler.state_dict(), list(sampler)
        assert state["position"] == 8
        for copied in copies:
            assert copied.state_dict() == state
            assert list(copied) == whole
        # A copy of a sampler that goes on in mid-epoch goes on there as well.
        resumed.load_state_dict(state)
        assert taken + list(pickle.loads(pickle.dumps(resumed))) == whole


def no_cuda(frames: torch.Tensor) -> torch.Tensor:
    """What torch says in a forked process."""
    raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must ...")


def test_cuda_in_a_forked_worker_says_what_to_do(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.AllClips(2), transform=no_cuda)
    with pytest.raises(UsageError, match='multiprocessing_context="forkserver"'):
        dataset[0]


def test_several_datasets_in_fixed_proportions(folder: Path) -> None:
    first = shortgop.ClipDataset(folder, shortgop.RandomClips(3), videos=["a.mp4"])
    second = shortgop.ClipDataset(folder, shortgop.AllClips(3), videos=["c.mp4", "b.mp4"])
    both = shortgop.MixedClips([first, second])
    assert len(both) == 1 + 7 + 23
    sampler = shortgop.ElasticSampler(both, 6, order=shortgop.Mixture([1, 2]))
    for batch in DataLoader(both, batch_size=6, sampler=sampler):
        assert Counter(batch["dataset"].tolist()) == {0: 2, 1: 4}
        for place, part in enumerate(batch["dataset"].tolist()):
            shown = numbers(batch["frames"][place])
            assert shown == list(range(shown[0], shown[0] + 3))
            assert (shown[0] < 1000) == (part == 0)
            assert shown[0] // 1000 == int(batch["video"][place])
    assert both[0]["dataset"] == 0
    assert torch.equal(both[30]["frames"], second[29]["frames"])
    item = both[31 + 30]
    assert item["draw"] == 61


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda f: shortgop.ClipDataset(f, cast(Any, 16)), WrongTypeError, "clips is 16; it is a policy such as"),
        (lambda f: shortgop.ClipDataset(f, shortgop.AllClips(12)), UsageError, "1 of 3 videos have fewer frames"),
        (
            lambda f: shortgop.ClipDataset(f, shortgop.AllClips(2), metadata=["colour"]),
            UsageError,
            "no column 'colour'",
        ),
        (lambda f: shortgop.ClipDataset(f, shortgop.AllClips(2), metadata="label"), WrongTypeError, "metadata is"),
        (lambda f: shortgop.ClipDataset(f, shortgop.AllClips(2), metadata=["draw"]), UsageError, "which items have"),
        (
            lambda f: shortgop.ClipDataset(f, shortgop.AllClips(2), on_error=cast(Any, "ignore")),
            UsageError,
            "on_error is 'ignore'",
        ),
        (
            lambda f: shortgop.ClipDataset(
                cast(Any, shortgop.ClipDataset(f, shortgop.AllClips(2))), shortgop.AllClips(3)
            ),
            WrongTypeError,
            "the dataset is of the type ClipDataset; .* `source` of what you gave is the dataset that it reads",
        ),
        (
            lambda f: shortgop.ClipDataset(cast(Any, shortgop.AllClips(2)), cast(Any, f)),
            WrongTypeError,
            "the dataset is of the type AllClips; ClipDataset takes the folder that .* before all else$",
        ),
        (
            lambda f: shortgop.ClipDataset(shortgop.open(f)[:1], shortgop.AllClips(2), size=(8, 8), crop="center"),
            UsageError,
            r"size, crop: an open dataset is read as it was opened; write shortgop.open\(\.\.\., size=\(8, 8\), "
            r"crop='center'\), before where\(\) or a slice chooses",
        ),
        (
            lambda f: shortgop.ClipDataset(f, shortgop.AllClips(2), size=(8, 8), crop="random", flip=0.5),
            UsageError,
            r"crop='random', flip: an output has this; give ClipDataset outputs=\{\"frames\": "
            r"shortgop.Output\(size=\(8, 8\), crop='random', flip=0.5\)\} in place of size, crop, flip$",
        ),
        (lambda f: shortgop.MixedClips(cast(Any, [shortgop.open(f)])), WrongTypeError, "MixedClips takes ClipDatasets"),
        (
            lambda f: shortgop.ClipDataset(f, shortgop.AllClips(2), videos=[])[0],
            UsageError,
            "the dataset has no clips",
        ),
        (
            lambda f: shortgop.ElasticSampler(
                shortgop.ClipDataset(shortgop.open(f).where(label=0, kind="dog"), shortgop.AllClips(2)), 1
            ),
            UsageError,
            r": 0 of \d+ videos>: 0 clips, .* has no clips: give it videos",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(folder: Path, make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make(folder)
