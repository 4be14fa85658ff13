"""The checks of `make gpu-check` that need a torch with CUDA, on the driver in software and a torch.cuda in software:
`test_soft_gpu.py` runs these cases in a child that finds the driver.

They show wrong names, arguments and devices, and that checks come to their end. Nothing of them shows what torch, a GPU
or another library does.
"""

from __future__ import annotations

import importlib
import math
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import bench_footage
import gpu_benchmarks
import gpu_decoding
import gpu_engines
import gpu_loading
import gpu_reader
import gpu_samples
import gpu_torchcodec
import pytest
import sample_gops
import torch
from bench_readers import random_clips
from check_record import OutOfTime, Record, Skipped
from check_report import Check
from checks import CHECKS
from gpu_decoding import clips_of
from torch.nn.utils.rnn import pack_sequence

import shortgop
from shortgop.errors import DatasetWarning, UsageError
from shortgop.readers import open_dataset
from shortgop.readers.decoders.choose import caps_of
from shortgop.readers.gpu.nvdec_caps import NvdecCaps
from soft_peers import ON_CPU, Peers
from soft_torch import kept, pretend, waited_for, waits

pytestmark = pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning", "ignore::DeprecationWarning")

# HEVC is decoded from 144x144 on.
VIDEOS = {"a.mp4": (160, 144, 100), "b.mp4": (160, 146, 40), "c.mp4": (160, 150, 40), "d.mp4": (176, 144, 100)}
TESTED_ELSEWHERE = ("environment", "nvdec-", "pyav-", "nvcuvid-p", "nvenc-", "ffmpeg-", "prep-")
REHEARSED = [check for check in CHECKS if check.name == "pyav-speed" or not check.name.startswith(TESTED_ELSEWHERE)]
# What a check says where it needs what is not here: Triton, another library, or another library with CUDA.
LACKING = {
    "convert-equal": "Triton",
    "convert-speed": "Triton",
    "sanitizer": "compute-sanitizer|Triton",
    "torchcodec": "Unsupported device: cuda|TorchCodec cannot be used",
}
# A slow GPU has no time for all that these measure.
MAY_LACK_TIME = ("bench-long-videos", "bench-random-frames", "bench-scenarios", "reader-engines")
SECONDS, SECONDS_OF_OTHERS = 12.0, 60.0
# As few as a look at memory needs.
SOAK_BATCHES = 100


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Small samples and footage, a pretended GPU, and checks that ask for less than on a real one."""
    folder = tmp_path_factory.mktemp("samples")
    gpu_samples.make_samples(folder, VIDEOS)
    kinds = {name: replace(kind, size=(160, 144)) for name, kind in bench_footage.KINDS.items()}
    bench_footage.make_benchmark_footage(folder / bench_footage.FOLDER, kinds)
    torch.set_num_threads(1)
    pretend()
    order_of, random_requests = gpu_loading.order_of, gpu_reader.random_requests

    def fewer_batches(num_clips: int, batches: int) -> list[int]:
        return order_of(num_clips, batches if batches == SOAK_BATCHES else min(batches, 4))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gpu_loading, "SIZE", (64, 64))
        patched.setattr(gpu_engines, "_WAYS", ((1, 1), (2, 1)))
        patched.setattr(gpu_engines, "use_of_engines", partial(gpu_engines.use_of_engines, seconds=0.02, rounds=2))
        # A request is not ended when the time is up, and on a busy machine a large one takes seconds.
        for module in (gpu_benchmarks, gpu_engines):
            patched.setattr(module, "random_clips", lambda rng, **asked: random_clips(rng, **{**asked, "count": 2}))
        patched.setattr(gpu_decoding, "clips_of", lambda gops, count: clips_of(gops, 1))
        patched.setattr(gpu_reader, "random_requests", lambda *given, **_: random_requests(*given, clips=1, frames=2))
        patched.setattr(gpu_loading, "_SOAK_BATCHES", SOAK_BATCHES)
        patched.setattr(gpu_benchmarks, "_LONG_SECONDS", (20, 60))
        for module in (gpu_loading, gpu_reader):
            patched.setattr(module, "order_of", fewer_batches)
        yield folder


@pytest.mark.parametrize("check", REHEARSED, ids=lambda check: check.name)
def test_a_check_comes_to_its_end(samples: Path, tmp_path: Path, check: Check) -> None:
    """It passes, or names what is not here, or had no time for all, and ends before it would be killed."""
    module, _, name = check.function.partition(":")
    record = Record(tmp_path / "report", samples, SECONDS if check.name in MAY_LACK_TIME else SECONDS_OF_OTHERS)
    try:
        getattr(importlib.import_module(module), name)(record)
    except OutOfTime:
        if check.name not in MAY_LACK_TIME:
            raise
    except (Skipped, RuntimeError) as error:
        if not re.search(LACKING.get(check.name, "(?!)"), str(error)):
            raise
    assert time.perf_counter() < record.deadline, "it would be killed, and taken for one that hangs"


def test_the_host_waits_for_nothing_while_frames_are_read(samples: Path, tmp_path: Path) -> None:
    """Also where plain torch converts, as here: the GPU may be a training step behind."""
    folder = sample_gops.samples(Record(tmp_path / "report", samples), "h264")
    formats: tuple[dict[str, Any], ...] = ({}, {"size": (64, 80), "dtype": torch.float16, "normalize": (0.5, 0.25)})
    for options in formats:
        dataset = shortgop.open(folder, device="cuda", **options)
        dataset[0].get_frames_at([0])
        before = len(waits())
        frames = dataset[0].get_frames_at([3, 7, 4]).data
        assert waits()[before:] == []
        expected = shortgop.open(folder, **options)[0].get_frames_at([3, 7, 4]).data
        assert torch.equal(frames.cpu(), expected)


def test_fallback_says_so_where_the_cpu_decodes_all(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container without the driver's video library: who asked for it meant a few small videos."""
    folder = sample_gops.samples(Record(tmp_path / "report", samples), "h264")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DatasetWarning)
        shortgop.open(folder, device="cuda", fallback=True)
    missing = NvdecCaps({}, missing="libnvcuvid.so.1 cannot be loaded")
    monkeypatch.setattr(open_dataset, "caps_of", lambda device: missing)
    with pytest.raises(UsageError, match="cuda:0 cannot decode 4 of 4 videos .* libnvcuvid.so.1 cannot be loaded"):
        shortgop.open(folder, device="cuda")
    said = "the CPU decodes all videos of .*, on {}, and cuda:0 only converts them, .*: libnvcuvid"
    with pytest.warns(DatasetWarning, match=said.format("8 threads")):
        shortgop.open(folder, device="cuda", fallback=True, threads=8)
    with pytest.warns(DatasetWarning, match=said.format("1 thread by default")):
        dataset = shortgop.open(folder, device="cuda", fallback=True)
    expected = shortgop.open(folder)[0].get_frames_at([5]).data
    assert torch.equal(dataset[0].get_frames_at([5]).data.cpu(), expected)


def test_fallback_for_some_videos_needs_no_word(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are what it is for."""
    folder = sample_gops.samples(Record(tmp_path / "report", samples), "h264")
    caps = caps_of(torch.device("cuda", 0))
    larger = replace(caps.codecs["h264", 8], min_size=(160, 148))
    partly = NvdecCaps({**caps.codecs, ("h264", 8): larger})
    monkeypatch.setattr(open_dataset, "caps_of", lambda device: partly)
    with pytest.raises(UsageError, match="cuda:0 cannot decode 2 of 4 videos .* is below the 160x148"):
        shortgop.open(folder, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DatasetWarning)
        dataset = shortgop.open(folder, device="cuda", fallback=True)
    same = shortgop.open(folder)
    for video, expected in zip(dataset, same, strict=True):
        assert torch.equal(video.get_frames_at([5]).data.cpu(), expected.get_frames_at([5]).data)


class WithBoxes(shortgop.ClipDataset):
    """Entries that are a list in a dict, and tensors of several shapes."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        items = super().items(draws)
        for number, item in enumerate(items):
            item["views"] = {"halves": [item["frames"][:1] * 1, item["frames"][1:] * 1]}
            item["boxes"] = torch.arange(4.0).repeat(number + 1, 1)
        return items


def there_already(boxes: list[torch.Tensor]) -> list[torch.Tensor]:
    """A function of the user's may use the device."""
    return [each.cuda() for each in boxes]


@pytest.mark.parametrize(("workers", "collate"), [(0, there_already), (1, list)])
def test_tensors_within_entries_are_copied_to_the_device_as_well(
    samples: Path, tmp_path: Path, workers: int, collate: Any
) -> None:
    folder = sample_gops.samples(Record(tmp_path / "report", samples), "h264")
    dataset = WithBoxes(folder, shortgop.AllClips(2), size=(32, 32))
    options: dict[str, Any] = {"batch_size": 2, "workers": workers, "collate": {"boxes": collate}}
    with shortgop.ClipLoader(dataset, range(6), device="cuda", **options) as loader:
        for batch in loader:
            tensors = [batch["frames"], *batch["views"]["halves"], *batch["boxes"]]
            assert [tensor.device.type for tensor in tensors] == ["cuda"] * 5
            assert torch.equal(batch["views"]["halves"][0].cpu(), batch["frames"][:, :1].cpu())
            assert len(batch["boxes"][0]) in (1, 2)


class InManyForms(shortgop.ClipDataset):
    """Entries that are collated to tensors of several layouts and strides."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        return [{**item, **dict.fromkeys(FORMS, torch.arange(3.0))} for item in super().items(draws, rows)]


FORMS: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "expanded": lambda values: torch.ones(1, 1).expand(len(values), 3),
    "with_gaps": lambda values: torch.stack(values)[:, ::2],
    "turned": lambda values: torch.stack(values).mT,
    "sparse": lambda values: {"each": [torch.diag(value).to_sparse() for value in values]},
    "nested": lambda values: [torch.nested.nested_tensor([values[0], values[1][:2]])],
    "packed": lambda values: {"text": pack_sequence([values[0][:1], values[1]], enforce_sorted=False)},
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_tensors_of_any_form_reach_the_device_or_stay(samples: Path, tmp_path: Path) -> None:
    """Streams follow no sparse and no nested tensor. Sizes of a packed sequence belong on the CPU, where RNNs look."""
    folder = sample_gops.samples(Record(tmp_path / "report", samples), "h264")
    dataset, before = InManyForms(folder, shortgop.AllClips(2), size=(32, 32)), len(waits())
    on_device = shortgop.ClipLoader(dataset, range(4), batch_size=2, workers=0, collate=FORMS, device="cuda")
    on_cpu = shortgop.ClipLoader(dataset, range(4), batch_size=2, workers=0, collate=FORMS)
    with on_device, on_cpu:
        for batch, expected in zip(on_device, on_cpu, strict=True):
            assert waits()[before:] == []
            for name in ("expanded", "with_gaps", "turned"):
                assert batch[name].device.type == "cuda"
                assert torch.equal(batch[name].cpu(), expected[name])
            assert [each.device.type for each in [*batch["sparse"]["each"], *batch["nested"]]] == ["cpu"] * 3
            packed = batch["packed"]["text"]
            assert (packed.data.device.type, packed.sorted_indices.device.type) == ("cuda", "cuda")
            assert packed.batch_sizes.device.type == "cpu"
            assert torch.equal(packed.data.cpu(), expected["packed"]["text"].data)
            before = len(waits())


def test_memory_of_a_batch_stays_until_the_stream_of_the_training_loop_has_used_it(
    samples: Path, tmp_path: Path
) -> None:
    """And that stream waits for the copies, which run on another one."""
    folder = sample_gops.samples(Record(tmp_path / "report", samples), "h264")
    cuda: Any = torch.cuda
    dataset, stream = WithBoxes(folder, shortgop.AllClips(2), size=(32, 32)), cuda.Stream()
    options: dict[str, Any] = {"batch_size": 2, "workers": 0, "collate": {"boxes": list}}
    with shortgop.ClipLoader(dataset, range(6), device="cuda", **options) as loader, torch.cuda.stream(stream):
        kept_before, waited_before = len(kept()), len(waited_for())
        for batch in loader:
            tensors = [batch["frames"], *batch["views"]["halves"], *batch["boxes"]]
            assert {(each.data_ptr(), stream.cuda_stream) for each in tensors} <= set(kept()[kept_before:])
            ((waiting, awaited),) = waited_for()[waited_before:]
            assert waiting == stream.cuda_stream != awaited
            kept_before, waited_before = len(kept()), len(waited_for())


def test_the_host_waits_for_no_copy_of_a_batch(samples: Path, tmp_path: Path) -> None:
    """Numbers and short tensors of a batch do not lie in the loader's page-locked memory."""
    folder = sample_gops.samples(Record(tmp_path / "report", samples), "h264")
    dataset = WithBoxes(folder, shortgop.AllClips(2), size=(160, 160))
    collate, before = {"boxes": list}, len(waits())
    with shortgop.ClipLoader(dataset, range(6), batch_size=2, workers=0, collate=collate, device="cuda") as loader:
        on_device = [batch["frames"] for batch in loader]
        assert waits()[before:] == []
    assert len(on_device) == 3


BY_US = ("shortgop", "shortgop, 4 at once")


def beside(samples: Path, peers: Peers, seconds: float = math.inf) -> dict[str, dict[str, Any]]:
    """What a benchmark with two ways to ask tells of each reader, last."""
    footage = samples / bench_footage.FOLDER / bench_footage.HEVC_BY_GOP[12]
    with peers.installed():
        deadline = time.perf_counter() + seconds
        return dict(gpu_benchmarks.frames_of_cameras(footage, "cuda", repeats=1, seconds=0.02, deadline=deadline))


def figures_of_peers(found: Mapping[str, Mapping[str, Any]], library: str) -> list[dict[str, Any]]:
    return [figures for each in found.values() for name, figures in each.items() if name.startswith(library)]


LIBRARIES = ("TorchCodec", "PyNvVideoCodec")


def test_other_libraries_are_measured(samples: Path) -> None:
    """On as many threads as engines and on twice as many, each with six files at most."""
    peers = Peers()
    found = beside(samples, peers)
    assert "readers that do not open" not in found
    for library in LIBRARIES:
        figures = figures_of_peers(found, library)
        assert len(figures) == 2 * 2
        assert all(each["frames/s"] > 0 for each in figures)
        assert all(each["mean difference"] < 2 for each in figures)
    assert max(Counter(peers.opened).values()) <= 6, "a decoder stays open"


def test_wrong_frames_of_other_libraries_are_seen_and_ours_are_not_blamed(samples: Path) -> None:
    peers = Peers()
    peers.late = 20
    found = beside(samples, peers)
    for library in LIBRARIES:
        assert all(each["mean difference"] > 2 for each in figures_of_peers(found, library))
    assert all(each[name]["mean difference"] == 0 for each in found.values() for name in BY_US)


def test_decoders_that_cannot_be_opened_cost_one_library_its_figures(samples: Path) -> None:
    peers = Peers()
    peers.on_cpu = True
    found = beside(samples, peers)
    assert {each["failed"] for each in figures_of_peers(found, "TorchCodec")} == {
        f"RuntimeError: it decodes on the CPU: {ON_CPU}"
    }
    assert all(each["frames/s"] > 0 for each in figures_of_peers(found, "PyNvVideoCodec"))
    peers = Peers()
    peers.fail_at = 8
    found = beside(samples, peers)
    assert {each["failed"] for library in LIBRARIES for each in figures_of_peers(found, library)} == {
        "RuntimeError: cuvidCreateDecoder: CUDA_ERROR_OUT_OF_MEMORY (2)"
    }
    assert all(each[name]["frames/s"] > 0 for each in found.values() for name in BY_US)


def test_the_check_of_torchcodec_passes(samples: Path, tmp_path: Path) -> None:
    with Peers().installed():
        gpu_torchcodec.pictures(Record(tmp_path / "report", samples))
    assert "largest and mean difference from our reader" in (tmp_path / "report").read_text()
    peers = Peers()
    peers.late = 1
    with peers.installed(), pytest.raises(RuntimeError, match="frame 0 shows 1, not 0"):
        gpu_torchcodec.pictures(Record(tmp_path / "report", samples))
