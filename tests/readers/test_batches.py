"""Clips of many videos in one batch: bit for bit what single frames are, however they are read."""

from __future__ import annotations

import multiprocessing
import random
import shutil
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shortgop
from dataset_paths import shard_path
from datasets import current_manifest, make_dataset
from shortgop.readers.decoders.base import Buffer
from shortgop.readers.plan import GopPlan
from shortgop.readers.reader import SnapshotReader
from shortgop.readers.stats import Stats
from sweep import SWEEP, sample
from synthetic import constant_rate_pts, make_video
from torchcodec_yardstick import all_frames

SIZE = (98, 66)
FRAMES = 40


KINDS = sample([("h264", 4), ("hevc", 1)], more=[("h264", 1), ("hevc", 4)])


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: f"{kind[0]}, threads {kind[1]}")
def kind(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Say which codec the dataset has, and how many threads read it."""
    codec, threads = request.param
    return codec, threads


@pytest.fixture(scope="module")
def folder(kind: tuple[str, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos of one size and one of another, in GOPs of eight frames."""
    root = tmp_path_factory.mktemp("batches")
    rates = {"a": Fraction(30), "b": Fraction(30000, 1001), "c": Fraction(24), "large": Fraction(30)}
    for name, rate in rates.items():
        size = (128, 96) if name == "large" else SIZE
        make_video(root / f"{name}.mp4", pts=constant_rate_pts(rate, FRAMES), timebase=1 / rate, size=size)
    sources = sorted(root.glob("*.mp4"))
    report = make_dataset(sources, root / "dataset", gop_frames=8, codec=kind[0])
    assert report.failures == ()
    return root / "dataset"


@pytest.fixture(scope="module")
def dataset(folder: Path, kind: tuple[str, int]) -> shortgop.Dataset:
    return shortgop.open(folder, threads=kind[1])


@pytest.fixture(scope="module")
def everything(folder: Path) -> dict[str, torch.Tensor]:
    """All frames of each video, decoded by another decoder from whole GOPs."""
    return {video.id: all_frames(folder, video.id) for video in shortgop.open(folder)}


REQUESTS = st.integers(1, 6).flatmap(
    lambda count: st.lists(
        st.tuples(
            st.sampled_from(["a.mp4", "b.mp4", "c.mp4", 0, 1, -2]),
            st.lists(st.integers(-FRAMES, FRAMES - 1), min_size=count, max_size=count),
        ),
        max_size=5,
    )
)


@pytest.mark.first_case_short
@settings(max_examples=60 if SWEEP else 25, deadline=None)
@given(requests=REQUESTS)
def test_any_clips(
    dataset: shortgop.Dataset, everything: dict[str, torch.Tensor], requests: list[tuple[str | int, list[int]]]
) -> None:
    batch = dataset.get_clips(requests)
    assert len(batch) == len(requests)
    for clip, (key, frames) in zip(batch, requests, strict=True):
        single = dataset[key].get_frames_at(frames)
        assert torch.equal(clip.data, everything[dataset[key].id][frames])
        assert torch.equal(clip.data, single.data)
        assert torch.equal(clip.data, torch.stack([dataset[key].get_frame_at(frame).data for frame in frames]))
        assert torch.equal(clip.pts_seconds, single.pts_seconds)
        assert torch.equal(clip.duration_seconds, single.duration_seconds)


def test_what_a_batch_looks_like(dataset: shortgop.Dataset) -> None:
    batch = dataset.get_clips([("a.mp4", range(0, 16, 4)), ("b.mp4", torch.tensor([1, 2, 3, 4]))])
    assert batch.data.shape == (2, 4, 3, 66, 98)
    assert batch.data.is_contiguous()
    assert batch.pts_seconds.shape == batch.duration_seconds.shape == (2, 4)
    assert repr(batch).startswith("ClipBatch:\n  data (shape): (2, 4, 3, 66, 98)\n  pts_seconds: tensor([[")
    assert isinstance(batch[1], shortgop.FrameBatch)
    assert batch[1].pts_seconds.tolist() == [frame * 1001 / 30000 for frame in (1, 2, 3, 4)]
    with pytest.raises(ValueError, match="leading dimensions differ"):
        shortgop.ClipBatch(batch.data, batch.pts_seconds[0], batch.duration_seconds)
    assert dataset.get_clips([]).data.shape[:2] == (0, 0)
    assert dataset.get_clips([("a.mp4", []), ("c.mp4", [])]).data.shape == (2, 0, 3, 66, 98)


@pytest.mark.parametrize(
    ("requests", "error", "message"),
    [
        ([("a.mp4", [0]), ("b.mp4", [0, 1])], shortgop.UsageError, "2 frames of video 'b.mp4', 1 of video 'a.mp4'"),
        ([("a.mp4", [0]), ("large.mp4", [0])], shortgop.UsageError, "of video 'large.mp4' have shape (3, 96, 128)"),
        ([("a.mp4", [0, 1]), ("b.mp4", [0, 40])], shortgop.FrameIndexError, "video 'b.mp4' has no frame 40"),
        ([("a.mp4", [0, -41])], shortgop.FrameIndexError, "video 'a.mp4' has no frame -41"),
        ([("a.mp4", [0.5])], shortgop.UsageError, "a frame is 0.5; it has to be an integer"),
        ([("z.mp4", [0])], shortgop.VideoNotFoundError, "no video 'z.mp4'"),
        ([(7, [0])], shortgop.VideoNotFoundError, "no video number 7"),
        (["a.mp4"], shortgop.UsageError, "a request is 'a.mp4'; it has to be (video's id or number, its frames)"),
        ([3], shortgop.UsageError, "a request is 3"),
    ],
)
def test_what_cannot_be_one_batch(
    dataset: shortgop.Dataset, requests: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        dataset.get_clips(requests)
    assert message in str(caught.value)


def test_one_size_for_all(folder: Path) -> None:
    dataset = shortgop.open(folder, size=(48, 64), crop="center", dtype=torch.float32)
    data = dataset.get_clips([(video.id, [0, 9]) for video in dataset]).data
    assert data.shape == (4, 2, 3, 48, 64)
    assert data.dtype == torch.float32
    for video, clip in zip(dataset, data, strict=True):
        assert torch.equal(video.get_frames_at([0, 9]).data, clip)


def test_a_crop_that_does_not_fit_names_the_video(folder: Path) -> None:
    dataset = shortgop.open(folder, crop=(0, 0, 80, 100))
    assert dataset["large.mp4"][0].shape == (3, 80, 100)
    with pytest.raises(shortgop.UsageError, match="video 'a.mp4': crop .* does not fit"):
        dataset["a.mp4"][0]


def test_planes(folder: Path) -> None:
    dataset = shortgop.open(folder, color="yuv420")
    assert dataset[0].get_frame_at(3).data.shape == (1, 99, 98)
    assert dataset[0].get_frames_at([3, 4]).data.shape == (2, 1, 99, 98)
    assert dataset.get_clips([(0, [3, 4])]).data.shape == (1, 2, 1, 99, 98)


def test_an_output_of_the_callers(dataset: shortgop.Dataset, everything: dict[str, torch.Tensor]) -> None:
    out = torch.empty((2, 3, 3, 66, 98), dtype=torch.uint8)
    for start in (0, 10):
        requests = [(name, range(start, start + 3)) for name in ("a.mp4", "c.mp4")]
        batch = dataset.get_clips(requests, out=out)
        assert batch.data.data_ptr() == out.data_ptr()
        for (name, frames), clip in zip(requests, out, strict=True):
            assert torch.equal(clip, everything[name][list(frames)])
    for wrong in (
        out[:1],
        out.float(),
        out.permute(0, 1, 2, 4, 3).contiguous().permute(0, 1, 2, 4, 3),
        torch.empty((4, 3, 3, 66, 98), dtype=torch.uint8)[::2],
    ):
        with pytest.raises(shortgop.UsageError, match=r"the frames take torch.uint8 \(2, 3, 3, 66, 98\) on cpu"):
            dataset.get_clips(requests, out=wrong)
    for unfit in (out.to_sparse(), out.float().requires_grad_()):
        with pytest.raises(shortgop.UsageError, match="it has to be an ordinary tensor"):
            dataset.get_clips(requests, out=unfit)
    with pytest.raises(shortgop.UsageError, match="out is a ndarray; it has to be a tensor"):
        dataset.get_clips(requests, out=out.numpy())  # type: ignore[arg-type]


class TestStats:
    """Known requests, and what they have to cost."""

    def test_figures(self, folder: Path) -> None:
        dataset = shortgop.open(folder)
        assert dataset.stats() == Stats()
        assert dataset.stats().waste_ratio == 0
        manifest = current_manifest(folder)
        # Two clips that share GOPs 0 and 1; frame 8 begins GOP 1. They lie side by side.
        dataset.get_clips([("a.mp4", [0, 8, 8]), ("a.mp4", [8, 0, 16])])
        stats = dataset.stats()
        assert stats.gops_decoded == 3
        assert stats.packets_read == 24
        assert stats.packets_decoded == 3
        assert stats.frames_delivered == 6
        assert stats.waste_ratio == 0.5
        assert stats.reads == 1
        row = manifest.video(manifest.row_of("a.mp4"))
        first, last = row.first_gop, row.first_gop + 2
        ends = manifest.gops.offset + manifest.gops.length
        assert stats.bytes_read == ends[last] - manifest.gops.offset[first]
        assert (stats.file_hits, stats.file_misses) == (0, 1)
        assert (stats.decoder_hits, stats.decoder_misses) == (2, 1)
        assert min(stats.io_seconds, stats.decode_seconds, stats.conversion_seconds) > 0

        dataset["a.mp4"][0]
        since = dataset.stats() - stats
        assert (since.reads, since.gops_decoded, since.packets_decoded, since.frames_delivered) == (1, 1, 1, 1)
        assert (since.file_hits, since.file_misses, since.decoder_hits, since.decoder_misses) == (1, 0, 1, 0)
        assert since + stats == dataset.stats()

    def test_threads_lose_nothing(self, folder: Path) -> None:
        dataset = shortgop.open(folder, threads=4)
        for _ in range(20):
            dataset.get_clips([(name, range(FRAMES)) for name in ("a.mp4", "b.mp4", "c.mp4")])
        stats = dataset.stats()
        assert stats.frames_delivered == stats.packets_decoded == stats.packets_read == 20 * 3 * FRAMES
        assert stats.gops_decoded == stats.decoder_hits + stats.decoder_misses == 20 * 3 * 5
        # One for each thread and frame rate: encoders write it into the configuration.
        assert stats.decoder_misses <= 12


def test_each_gop_is_fed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = shortgop.open(folder, threads=2)
    gops: list[int] = []
    decode = SnapshotReader._decode

    def counting(self: SnapshotReader, fetched: Iterable[tuple[GopPlan, Buffer]], *into: Any) -> None:
        read = list(fetched)
        gops.extend(gop.gop for gop, _ in read)
        decode(self, read, *into)

    monkeypatch.setattr(SnapshotReader, "_decode", counting)
    rng = random.Random(0)
    dataset.get_clips([("a.mp4", rng.choices(range(FRAMES), k=8)) for _ in range(30)])
    assert sorted(gops) == list(range(5))


def test_with_threads_the_first_error_is_raised_and_nothing_runs_on(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    manifest = current_manifest(copy)
    row = manifest.video(manifest.row_of("b.mp4"))
    shard = shard_path(copy, manifest.shards.name.text(int(manifest.segments.shard[row.first_segment])))
    data = bytearray(shard.read_bytes())
    for gop in (2, 4):
        data[int(manifest.gops.offset[row.first_gop + gop]) + 200] ^= 1
    shard.write_bytes(data)
    dataset = shortgop.open(copy, threads=4)
    for _ in range(20):
        with pytest.raises(shortgop.CorruptDataError) as caught:
            dataset.get_clips([(name, range(FRAMES)) for name in ("a.mp4", "b.mp4", "c.mp4")])
        assert (caught.value.video, caught.value.frame) == ("b.mp4", 16)
    assert dataset.get_clips([("a.mp4", range(FRAMES))]).data.shape[1] == FRAMES


@pytest.mark.parametrize("threads", [0, -1, 1.5, "4"])
def test_threads_are_a_number(folder: Path, threads: Any) -> None:
    with pytest.raises(shortgop.UsageError, match="threads is"):
        shortgop.open(folder, threads=threads)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", sample(["fork", "spawn"], more=["forkserver"]))
def test_other_processes_read_the_same(dataset: shortgop.Dataset, method: str) -> None:
    """A dataset that was read from before, with its threads running."""
    expected = [sum(clip.data.flatten().tolist()) for clip in clips_of(dataset)]
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_read_sums, args=(dataset, queue))
    process.start()
    found, frames = queue.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    assert found == expected
    # Counted from nothing.
    assert frames == 12


def clips_of(dataset: shortgop.Dataset) -> shortgop.ClipBatch:
    return dataset.get_clips([(name, [1, 9, 17, 39]) for name in ("a.mp4", "b.mp4", "c.mp4")])


def _read_sums(dataset: shortgop.Dataset, queue: Any) -> None:
    sums = [sum(clip.data.flatten().tolist()) for clip in clips_of(dataset)]
    queue.put((sums, dataset.stats().frames_delivered))
