"""Reading a dataset: the same as TorchCodec on the exported file, and errors that say what is wrong where."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shortgop
from datasets import make_dataset
from shortgop.manifests.dataset_files.root_file import create
from shortgop.readers.decoder_trial import try_decoders, versions
from shortgop.readers.decoders import pyav
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, read_number


@pytest.fixture(scope="module")
def folder(three_videos: Path) -> Path:
    return three_videos


@pytest.fixture(scope="module")
def dataset(folder: Path) -> shortgop.Dataset:
    return shortgop.open(folder)


@pytest.fixture(scope="module")
def video(dataset: shortgop.Dataset) -> shortgop.Video:
    return dataset["ntsc.mp4"]


@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_dimension_order(folder: Path, order: Any) -> None:
    for video in shortgop.open(folder, dimension_order=order):
        height, width = video.metadata.height, video.metadata.width
        frame = (3, height, width) if order == "NCHW" else (height, width, 3)
        assert video[0].shape == frame
        assert video.get_frames_at([5, 1]).data.shape == (2, *frame)
        assert video[3:3].shape == (0, *frame)
        assert video.get_frames_at([]).data.shape == (0, *frame)
        assert [read_number(picture) for picture in video[::10]] == list(range(0, len(video), 10))


def test_frames_and_batches(video: shortgop.Video) -> None:
    data, pts_seconds, duration_seconds = video.get_frame_at(3)
    assert torch.equal(torch.as_tensor(data), video[3])
    assert (pts_seconds, duration_seconds) == (3003 / 30000, 1001 / 30000)
    batch = video.get_frames_at([4, 2, 9])
    assert len(batch) == 3
    assert [read_number(item.data) for item in batch] == [4, 2, 9]
    assert [read_number(picture) for picture in batch[1:].data] == [2, 9]
    assert batch[0].pts_seconds.item() == 4004 / 30000
    assert repr(batch).startswith("FrameBatch:\n  data (shape): (3, 3, 66, 98)\n  pts_seconds: tensor([")
    with pytest.raises(ValueError, match="leading dimensions differ"):
        shortgop.FrameBatch(batch.data, batch.pts_seconds[:2], batch.duration_seconds)
    with pytest.raises(ValueError, match="3 dimensions"):
        shortgop.Frame(batch.data, 0.0, 0.0)


def test_the_time_of_each_frame_leads_to_it(video: shortgop.Video) -> None:
    batch = video.get_all_frames()
    again = video.get_frames_played_at(batch.pts_seconds)
    assert [read_number(picture) for picture in again.data] == list(range(75))
    assert read_number(video.get_frame_played_at(batch.pts_seconds[7].item()).data) == 7
    assert read_number(video.get_frame_played_at(Fraction(7007, 30000)).data) == 7


def test_iterating_keeps_no_gop_alive(video: shortgop.Video) -> None:
    frame = next(iter(video))
    assert frame.untyped_storage().nbytes() == frame.numel()


def test_sources(folder: Path, video: shortgop.Video) -> None:
    assert video.source.endswith("ntsc.mp4")
    pts = video.source_pts([3, 0, -1])
    assert pts.dtype == torch.int64
    assert (pts * float(video.source_timebase)).tolist() == pytest.approx([0.1001, 0, 74 * 1001 / 30000])
    assert video.source_seconds([3, 0]).tolist() == [3003 / 30000, 0.0]
    assert video.source_seconds([3]).dtype == torch.float64
    with pytest.raises(shortgop.FrameIndexError):
        video.source_pts([75])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda v: v[75], shortgop.FrameIndexError, "video 'ntsc.mp4' has no frame 75: it has 75 frames, 0 to 74"),
        (lambda v: v.get_frames_at([0, -76]), shortgop.FrameIndexError, "no frame -76: it has 75 frames, 0 to 74"),
        (lambda v: v[10:0:-1], shortgop.UsageError, "step is -1; it has to be 1 or more"),
        (lambda v: v[::0], shortgop.UsageError, "step is 0"),
        (lambda v: v.get_frames_in_range(0, 9, -2), shortgop.UsageError, "step is -2"),
        (lambda v: v[[0, 1]], shortgop.UsageError, "[0, 1] is no frame; several are video.get_frames_at"),
        (lambda v: v[np.array([0, 1])], shortgop.UsageError, "several are video.get_frames_at"),
        (lambda v: v.get_frames_at([0.5]), shortgop.UsageError, "a frame is 0.5; it has to be an integer"),
        (
            lambda v: v.get_frames_at([[1, 2], [3, 4]]),
            shortgop.UsageError,
            "a frame is [1, 2]; it has",
        ),
        (
            lambda v: v.get_frames_at(np.array([2**64 - 1])),
            shortgop.FrameIndexError,
            "has no frame 18446744073709551615",
        ),
        (lambda v: v.get_frame_played_at(2.5025), shortgop.FrameIndexError, "from 0 s to just before 2.5025 s"),
        (lambda v: v.get_frame_played_at(float("nan")), shortgop.FrameIndexError, "no frame at nan s"),
        (lambda v: v.get_frame_played_at(float("inf")), shortgop.FrameIndexError, "no frame at inf s"),
        (lambda v: v.get_frames_played_in_range(0, float("nan")), shortgop.UsageError, "its stop is no number"),
        (
            lambda v: v.get_all_frames(fps="fast"),
            shortgop.UsageError,
            "fps is 'fast'; it has to be a number, or a text",
        ),
        (lambda v: v.get_all_frames(fps=0), shortgop.UsageError, "fps is 0; it has to be positive"),
        (
            lambda v: v.get_all_frames(fps=Fraction(10**400)),
            shortgop.UsageError,
            "it has to be positive and fit into a float",
        ),
        (lambda v: v.get_all_frames(fps=Fraction(1, 10**400)), shortgop.UsageError, "it has to be positive"),
    ],
)
def test_what_is_asked_for_has_to_exist(
    video: shortgop.Video, call: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        call(video)
    assert message in str(caught.value)
    assert getattr(caught.value, "video", None) == "ntsc.mp4"


@pytest.mark.parametrize(
    "make",
    [
        list, tuple, iter, np.array, torch.tensor, lambda frames: np.array(frames, dtype=np.int8),
        lambda frames: [np.int64(frame) for frame in frames], lambda frames: range(frames[0], frames[1] + 1, 71),
    ],
)  # fmt: skip
def test_frames_may_be_named_by_whatever_holds_integers(
    dataset: shortgop.Dataset, make: Callable[[list[int]], Any]
) -> None:
    frames = [3, 74]
    assert [read_number(picture) for picture in dataset["ntsc.mp4"].get_frames_at(make(frames)).data] == frames
    assert [read_number(picture) for picture in dataset.get_clips([("ntsc.mp4", make(frames))]).data[0]] == frames


@pytest.mark.parametrize("indices", [[0.0], [True], ["0"], [[0]], 3.0, [None], torch.tensor([0.5])])
def test_frames_named_by_anything_else_are_refused(dataset: shortgop.Dataset, indices: Any) -> None:
    for call in (dataset["ntsc.mp4"].get_frames_at, lambda frames: dataset.get_clips([("ntsc.mp4", frames)])):
        with pytest.raises((shortgop.UsageError, TypeError)):
            call(indices)


@pytest.mark.parametrize("frame", [75, -76, 2**63, -(2**64)])
def test_frames_that_do_not_exist_are_named_however_large(dataset: shortgop.Dataset, frame: int) -> None:
    for call in (dataset["ntsc.mp4"].get_frames_at, lambda frames: dataset.get_clips([("ntsc.mp4", frames)])):
        with pytest.raises(shortgop.FrameIndexError, match=f"'ntsc.mp4' has no frame {frame}: it has 75"):
            call([0, frame])


def test_videos_by_id_and_number(dataset: shortgop.Dataset) -> None:
    assert sorted(dataset.ids) == ["film.mkv", "ntsc.mp4", "rotated.mp4"]
    assert [video.id for video in dataset] == list(dataset.ids)
    assert len(dataset) == 3
    assert dataset[-1].id == dataset[2].id == dataset.ids[2]
    assert "film.mkv" in dataset
    assert "other.mkv" not in dataset
    assert 0 not in dataset
    assert repr(dataset["film.mkv"]) == "<Video 'film.mkv': 75 frames at 24 frames/s>"
    for missing in ("other.mkv", 3, -4):
        with pytest.raises(shortgop.VideoNotFoundError, match="no video"):
            dataset[missing]


def test_dataset_metadata(dataset: shortgop.Dataset, folder: Path) -> None:
    metadata = dataset.metadata
    assert (metadata.format_version, metadata.num_videos, metadata.num_frames) == (4, 3, 190)
    assert metadata.num_gops == 10 + 10 + 5
    assert metadata.num_bytes == sum(file.stat().st_size for file in (folder / "shards").iterdir())
    assert metadata.duration_seconds == pytest.approx(75 / 24 + 75 * 1001 / 30000 + 40 / 30)
    assert metadata.profile["gop_frames"] == 8
    assert metadata.failures == dataset.failures == ()


class TestOpening:
    """What is checked before the first frame is read."""

    def test_no_dataset(self, tmp_path: Path) -> None:
        with pytest.raises(shortgop.NotADatasetError, match="holds no dataset"):
            shortgop.open(tmp_path)

    def test_no_snapshot_yet(self, tmp_path: Path) -> None:
        create(DiskStorage(tmp_path / "new"), {})
        with pytest.raises(shortgop.NotADatasetError, match="has no snapshot yet"):
            shortgop.open(tmp_path / "new")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"snapshot": "999999"}, "has no snapshot '999999'; its current one is '0"),
            ({"dimension_order": "CHWN"}, 'dimension_order is \'CHWN\'; it can be "NCHW" or "NHWC"'),
        ],
    )
    def test_wrong_options(self, folder: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(shortgop.UsageError) as caught:
            shortgop.open(folder, **options)
        assert message in str(caught.value)

    def test_a_missing_and_a_cut_shard(self, folder: Path, tmp_path: Path) -> None:
        copy = shutil.copytree(folder, tmp_path / "copy")
        shard = next((copy / "shards").iterdir())
        data = shard.read_bytes()
        shard.write_bytes(data[:-1])
        with pytest.raises(shortgop.MissingDataError, match=shard.name):
            shortgop.open(copy, strict=True)
        shard.unlink()
        with pytest.raises(shortgop.MissingDataError, match=shard.name):
            shortgop.open(copy, strict=True)

    def test_a_relative_path_stays_the_same_place(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder.parent)
        dataset = shortgop.open(folder.name)
        monkeypatch.chdir(tmp_path)
        assert read_number(pickle.loads(pickle.dumps(dataset))[0][9]) == read_number(dataset[0][9]) == 9

    def test_a_snapshot_stays_as_it_is_while_the_dataset_grows(
        self, constant_video: SyntheticVideo, variable_video: SyntheticVideo, tmp_path: Path
    ) -> None:
        folder = tmp_path / "growing"
        make_dataset([constant_video.path], folder)
        before = shortgop.open(folder)
        make_dataset([constant_video.path, variable_video.path], folder)
        assert len(before) == len(pickle.loads(pickle.dumps(before))) == 1
        assert len(shortgop.open(folder)) == 2
        assert len(shortgop.open(folder, snapshot=before.metadata.snapshot)) == 1


def test_decoders_and_versions_for_doctor() -> None:
    trials = try_decoders()
    names = ("pyav (decoder)", "pyav (decoder of AV1)")
    assert [(trial.name, trial.works) for trial in trials] == [(name, True) for name in names]
    assert {"python", "torch", "av", "libavcodec", "numpy", "zarr"} <= versions().keys()


def test_a_pyav_without_dav1d_is_told_with_what_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyAV may be built with the FFmpeg of a system, which need not have it. H.264 is read all the same."""
    monkeypatch.setitem(pyav._CPU_DECODERS, "av1", "none_such")
    h264, av1 = try_decoders()
    assert (h264.works, av1.works) == (True, False)
    assert "PyAV's FFmpeg has no decoder none_such, which reads av1; install PyAV from its wheel" in av1.detail


@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("color", ["rgb", "ycbcr", "grey"])
def test_colours_and_numbers_of_every_kind(three_videos: Path, color: Any, dtype: torch.dtype, order: Any) -> None:
    video = shortgop.open(three_videos, color=color, dtype=dtype, dimension_order=order)["ntsc.mp4"]
    # Frame 3 twice: the second is a copy.
    frames = video.get_frames_at([3, 20, 3]).data
    channels = 1 if color == "grey" else 3
    assert frames.shape == ((3, channels, 66, 98) if order == "NCHW" else (3, 66, 98, channels))
    assert frames.dtype == dtype
    assert torch.equal(frames[0], frames[2])
    luma = frames if order == "NCHW" else frames.permute(0, 3, 1, 2)
    levels = (luma[:, :1] if color != "rgb" else luma).float() * (1 if dtype == torch.uint8 else 255)
    shown = levels.round().to(torch.uint8).expand(-1, 3, -1, -1)
    assert [read_number(each) for each in shown] == [3, 20, 3]
