"""A whole dataset read through a device's decoder, on the CPU: all but NVDEC and CUDA, with the CPU reader's frames."""

from __future__ import annotations

import random
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import shortgop
from dataset_paths import shard_path
from datasets import current_manifest, make_dataset
from fake_gpu import device_decoder_on_cpu, opened_through
from shortgop.errors import CorruptDataError, ToolError
from shortgop.readers.decoders.pyav_cuda import check_pyav
from shortgop.readers.gops import GopStore, longest_first
from shortgop.readers.plan import GopPlan, VideoGops, plan_frames
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.usefixtures("one_torch_thread")

# Coded sizes of a and b are equal, and their crops are not.
SIZES = {"a.mp4": (96, 66), "b.mp4": (96, 70), "c.mp4": (128, 96)}
FRAMES, GOP_FRAMES = 30, 8


@pytest.fixture(scope="module", params=["h264", "hevc"])
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    root = tmp_path_factory.mktemp("device")
    for number, (name, size) in enumerate(SIZES.items()):
        pts = constant_rate_pts(Fraction(10), FRAMES)
        make_video(root / name, pts=pts, timebase=Fraction(1, 10), size=size, first_number=1000 * number)
    report = make_dataset([root / name for name in SIZES], root / "dataset", gop_frames=GOP_FRAMES, codec=request.param)
    assert report.failures == ()
    return root / "dataset"


@pytest.mark.first_case_short
@pytest.mark.parametrize("threads", [1, 4])
def test_every_frame_shows_its_number_and_equals_the_cpus(folder: Path, threads: int) -> None:
    dataset = opened_through(device_decoder_on_cpu(), folder, threads=threads)
    for number, (video, expected) in enumerate(zip(dataset, shortgop.open(folder), strict=True)):
        frames = video.get_frames_at(range(FRAMES)).data
        assert [read_number(frame) for frame in frames] == list(range(1000 * number, 1000 * number + FRAMES))
        assert torch.equal(frames, expected.get_frames_at(range(FRAMES)).data)


@pytest.mark.parametrize(
    "options",
    [
        {"size": (48, 64)},
        {"size": (48, 64), "crop": "center"},
        {"size": (80, 112), "dtype": torch.float16, "normalize": ((0.5,) * 3, (0.25,) * 3)},
        {"size": (48, 64), "color": "ycbcr", "dimension_order": "NHWC"},
        {"size": (48, 64), "color": "yuv420"},
        {"size": (48, 64), "color": "grey", "dtype": torch.bfloat16},
    ],
    ids=str,
)
def test_random_clips_of_all_videos_at_once(folder: Path, options: dict[str, Any]) -> None:
    """Repeated frames, clips in any order, all sizes in one batch: as the CPU reader reads them."""
    rng = random.Random(str(options))  # no secrets
    requests = [(rng.randrange(3), [rng.randrange(FRAMES) for _ in range(5)]) for _ in range(6)]
    dataset = opened_through(device_decoder_on_cpu(), folder, threads=3, **options)
    found, expected = dataset.get_clips(requests), shortgop.open(folder, **options).get_clips(requests)
    assert torch.equal(found.data, expected.data)
    assert torch.equal(found.pts_seconds, expected.pts_seconds)


def test_only_needed_packets_are_decoded_by_decoders_that_stay_open(folder: Path) -> None:
    dataset, expected = opened_through(device_decoder_on_cpu(), folder), shortgop.open(folder)
    for opened in (dataset, expected):
        for frame in (3, 11, 3):
            opened[0].get_frames_at([frame])
    assert dataset.stats().packets_decoded == expected.stats().packets_decoded
    assert (dataset.stats().decoder_misses, dataset.stats().decoder_hits) == (1, 2)


def test_a_damaged_gop_is_an_error_and_the_next_one_decodes(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    manifest = current_manifest(copy)
    first = int(manifest.gops.offset[0])
    with shard_path(copy, manifest.shards.name.text(0)).open("r+b") as file:
        file.seek(first + int(manifest.gops.length[0]) - 20)
        file.write(bytes(20))
    dataset = opened_through(device_decoder_on_cpu(), copy)
    with pytest.raises(CorruptDataError, match="frames 0 to 7 of video 'a.mp4'"):
        dataset.get_clips([(0, [0, 9]), (0, [4, 20])])
    assert [read_number(frame) for frame in dataset[0].get_frames_at([9, 20]).data] == [9, 20]


def test_what_is_made_on_the_cpu_is_made_there_whatever_torchs_default_device_is(folder: Path) -> None:
    """Scripts set it to the GPU: a tensor there is not locked in the CPU's memory, which was an error."""
    # Factors that no other test has asked for.
    options: dict[str, Any] = {"size": (48, 64), "dtype": torch.float32, "normalize": (0.41, 0.23)}
    torch.set_default_device("meta")
    try:
        frames = opened_through(device_decoder_on_cpu(), folder, **options)[0].get_frames_at([3, 9]).data
    finally:
        torch.set_default_device(None)
    again = opened_through(device_decoder_on_cpu(), folder, **options)[0].get_frames_at([3, 9]).data
    assert torch.equal(frames, again)


def test_frames_are_read_in_inference_mode(folder: Path) -> None:
    """Other threads than the one that asks write into the tensors that were made in it."""
    expected = shortgop.open(folder)[0].get_frames_at(range(FRAMES)).data
    dataset = opened_through(device_decoder_on_cpu(), folder, threads=4)
    with torch.inference_mode():
        frames = dataset[0].get_frames_at(range(FRAMES)).data
    assert torch.equal(frames, expected)


def test_only_a_pyav_whose_planes_stay_on_the_gpu_reads_there() -> None:
    check_pyav()
    with pytest.raises(
        ToolError, match=r'device="cuda" needs PyAV 17 or newer, and .* installed: pip install "av>=17"'
    ):
        check_pyav(object)


def test_the_longest_reads_come_first(folder: Path) -> None:
    """So that no engine is left alone with a long one at the end."""
    manifest = current_manifest(folder)
    plan = plan_frames(VideoGops.of(manifest), [(0, [0]), (1, range(FRAMES)), (2, [3, 9, 17])])
    reads = GopStore(DiskStorage(folder), manifest).reads(plan.gops, max_parts=1)

    def cost(gop: GopPlan) -> int:
        return len(gop.frames)

    costs = [sum(cost(gop) for gop, _ in read.gops) for read in longest_first(reads, cost)]
    assert costs == sorted(costs, reverse=True) == [8, 8, 8, 6, 1, 1, 1, 1]
