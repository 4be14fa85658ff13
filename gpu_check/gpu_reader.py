"""`shortgop.open(device="cuda")` and a loader over it: right frames, right order of streams, how fast, no growth."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from check_record import Record
from differences import EQUAL, difference
from gpu_decoding import CLIP_FRAMES, CLIP_STRIDE, ready
from gpu_loading import BATCH_SIZE, clips, expected_frames, in_batches, order_of
from gpu_memory import Growth
from gpu_samples import FIRST_NUMBERS
from sample_gops import check_each_codec, samples, shown_number

import shortgop
from shortgop.errors import CorruptDataError, UsageError
from shortgop.manifests.dataset_files.layout import shard_key
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.readers.dataset import Dataset, reader_of
from shortgop.readers.decoders.choose import DeviceChoice
from shortgop.readers.frame_format import FrameFormat
from shortgop.readers.reader import ReadOptions, SnapshotReader
from shortgop.storage.disk import DiskStorage

CUDA = "cuda"
# A matrix of what frames may become. Unscaled frames equal the CPU's; scaled ones may differ by one level.
FORMATS: tuple[dict[str, Any], ...] = (
    {"size": (224, 224)},
    {"size": (224, 224), "crop": "center", "dimension_order": "NHWC"},
    {"size": (224, 224), "crop": "center", "dtype": torch.float16, "normalize": ((0.485, 0.456, 0.406), (0.25,) * 3)},
    {"size": (300, 500), "color": "ycbcr"},
    {"size": (128, 160), "color": "grey", "dtype": torch.bfloat16},
    {"size": (128, 160), "color": "yuv420"},
)
_LEVEL = 1 / 255
_THREADS = (1, 7, 14, 28)
# One request of small videos has too few GOPs for many threads. So many threads request at once, with readers of their
# own, each of which decodes on seven threads.
_REQUESTING, _THREADS_OF_EACH = (2, 4), 7
_SOAK_CLIPS = 10_000
_SLEEP_CYCLES = 20_000_000
_SEED = 0

Requests = list[tuple[int, list[int]]]


def equal(record: Record) -> None:
    """Every frame shows its number and equals the CPU reader's; random requests in several formats, many threads."""
    ready()

    def check(codec: str) -> None:
        for name, value in compared(samples(record, codec), CUDA):
            record.figure(f"{codec}, {name}", value)

    check_each_codec(check)


def compared(dataset: Path, device: str) -> Iterator[tuple[str, Any]]:
    """How frames of a device compare with the CPU's. RuntimeError where they are others."""
    on_cpu = shortgop.open(dataset)
    for threads in (1, None):
        opened = shortgop.open(dataset, device=device, threads=threads)
        for row, (video, expected) in enumerate(zip(opened, on_cpu, strict=True)):
            frames = video.get_frames_at(range(len(video))).data
            if frames.device.type != torch.device(device).type:
                raise RuntimeError(f"frames are on {frames.device}")
            differs = difference(frames, expected.get_frames_at(range(len(video))).data)
            for number, frame in enumerate(frames):
                shown = shown_number(frame)
                if shown != FIRST_NUMBERS * row + number:
                    raise RuntimeError(
                        f"{opened.ids[row]}: frame {number} shows {shown}. All frames of the video: {differs}"
                    )
            if differs != EQUAL:
                raise RuntimeError(
                    f"{opened.ids[row]}: frames differ from the CPU's, which they should equal: {differs}"
                )
        yield f"frames equal to the CPU's, threads={threads}", sum(map(len, on_cpu))
    rng = random.Random(_SEED)  # noqa: S311  # no secrets
    for options in FORMATS:
        requests = random_requests(on_cpu, rng, clips=24, frames=4)
        converted = shortgop.open(dataset, device=device, **options).get_clips(requests).data.cpu()
        right = shortgop.open(dataset, **options).get_clips(requests).data
        levels = (converted.float() - right.float()).abs()
        if options.get("dtype", torch.uint8) != torch.uint8:
            std = min(options["normalize"][1]) if "normalize" in options else 1.0
            levels = levels * std / _LEVEL
        figures = [round(float(levels.max()), 2), float((levels > 0).float().mean())]
        yield f"largest difference and part that differs, {options}", figures
        # float16 has a rounding error of its own.
        if levels.max() > 1.5:
            raise RuntimeError(
                f"frames of {options} differ from the CPU's by {float(levels.max())} levels: "
                f"{difference(converted, right)}"
            )


def random_requests(dataset: Dataset, rng: random.Random, *, clips: int, frames: int) -> Requests:
    rows = [rng.randrange(len(dataset)) for _ in range(clips)]
    return [(row, [rng.randrange(len(dataset[row])) for _ in range(frames)]) for row in rows]


def busy_streams(record: Record) -> None:
    """Batches that are used behind a long kernel, and dropped at once, on the default stream and on another one."""
    ready()
    dataset = samples(record, "h264")
    on_cpu, opened = (shortgop.open(dataset, size=(256, 256), device=device) for device in ("cpu", CUDA))
    rng = random.Random(_SEED)  # noqa: S311  # no secrets
    cuda: Any = torch.cuda
    for name, stream in (("default stream", torch.cuda.default_stream()), ("side stream", cuda.Stream())):
        kept = []
        requests = [random_requests(on_cpu, rng, clips=8, frames=8) for _ in range(20)]
        with torch.cuda.stream(stream):
            for each in requests:
                frames = opened.get_clips(each).data
                cuda._sleep(_SLEEP_CYCLES)  # noqa: SLF001  # about ten milliseconds; torch's own tests take it
                kept.append(frames + 0)
                del frames
        torch.cuda.synchronize()
        wrong = sum(
            int((found.cpu().int() - on_cpu.get_clips(each).data.int()).abs().max()) > 1
            for found, each in zip(kept, requests, strict=True)
        )
        record.figure(f"batches behind a busy {name}: all, wrong", [len(requests), wrong])
        if wrong:
            raise RuntimeError(f"{wrong} of {len(requests)} batches are wrong behind a busy {name}")


def damaged(record: Record) -> None:
    """A damaged GOP between good ones is an error for its request, and the reader goes on."""
    ready()
    with tempfile.TemporaryDirectory() as folder:
        record.figure("error", read_damaged(samples(record, "h264"), Path(folder, "copy"), CUDA))


def read_damaged(dataset: Path, copy: Path, device: str) -> str:
    """The error of a request with a damaged GOP. RuntimeError where there is none, or later frames are others."""
    shutil.copytree(dataset, copy)
    manifest = open_current(DiskStorage(copy))[1]
    row = int(manifest.videos.num_frames.argmax())
    gop = int(manifest.first_gops[row]) + 1
    shard = int(manifest.segments.shard[manifest.first_segments[row]])
    with (copy / shard_key(manifest.shards.name.text(shard))).open("r+b") as file:
        file.seek(int(manifest.gops.offset[gop]) + int(manifest.gops.length[gop]) // 2)
        file.write(bytes(100))
    opened = shortgop.open(copy, device=device)
    gop_frames = int(manifest.videos.gop_frames[row])
    third = range(2 * gop_frames, 3 * gop_frames)
    try:
        opened[row].get_frames_at(range(3 * gop_frames))
    except CorruptDataError as error:
        said = error.message
    else:
        raise RuntimeError("a damaged GOP is no error")
    shown = [shown_number(frame) for frame in opened[row].get_frames_at(third).data]
    if shown != [FIRST_NUMBERS * row + number for number in third]:
        raise RuntimeError(f"the GOP behind a damaged one gives other frames: {shown}")
    return said


def fallback(record: Record) -> None:
    """What is decoded on the CPU for a GPU, where NVDEC cannot: uploaded planes, the same frames."""
    ready()
    for codec in ("h264", "hevc"):
        record.figure(codec, read_by_fallback(samples(record, codec), torch.device(CUDA, 0)))


def read_by_fallback(folder: Path, device: torch.device) -> int:
    """How many frames are right if the CPU decodes all of a dataset. RuntimeError where they are others."""
    root, manifest = open_current(DiskStorage(folder))
    choice = DeviceChoice(device, 0, frozenset(range(len(manifest.configs))))
    reader = SnapshotReader(
        DiskStorage(folder), str(root.snapshot), ReadOptions(FrameFormat(), 4, pool_bytes=0, device=choice), manifest
    )
    count = 0
    for video, expected in zip(Dataset(reader, root.profile), shortgop.open(folder), strict=True):
        wanted = range(0, len(video), 3)
        if not torch.equal(video.get_frames_at(wanted).data.cpu(), expected.get_frames_at(wanted).data):
            raise RuntimeError("frames that the CPU decoded for the GPU differ from the CPU reader's")
        count += len(wanted)
    return count


def _read_in_child(dataset: Dataset, said: Any) -> None:
    try:
        dataset[0].get_frames_at([0])
        said.put("no error")
    except UsageError as error:
        said.put(error.message)
    except Exception as error:  # noqa: BLE001  # what it is instead, is what is asked
        said.put(f"{type(error).__name__}: {error}")


def forked(record: Record) -> None:
    """A forked process that reads gets an error that says what to do."""
    ready()
    opened = shortgop.open(samples(record, "h264"), device=CUDA)
    opened[0].get_frames_at([0])
    fork = multiprocessing.get_context("fork")
    said = fork.Queue()
    child = fork.Process(target=_read_in_child, args=(opened, said))
    child.start()
    message = said.get(timeout=20)
    child.join()
    record.figure("said", message)
    if "forked" not in message:
        raise RuntimeError(f"a forked process says: {message}")


def loader(record: Record) -> None:
    """ClipLoader over a dataset that is decoded on the GPU: batches are the CPU's, also behind a long kernel."""
    ready()
    folder = samples(record, "h264")
    on_cpu, on_gpu = clips(folder), clips(folder, device=CUDA)
    # Each clip is read once: the CPU is slower than what it is compared with.
    expected, order = expected_frames(on_cpu), order_of(len(on_cpu), 60)
    cuda: Any = torch.cuda
    for name, stream in (("default stream", torch.cuda.default_stream()), ("side stream", cuda.Stream())):
        reading = shortgop.ClipLoader(on_gpu, order, batch_size=BATCH_SIZE)
        kept = []
        with torch.cuda.stream(stream):
            for batch in reading:
                cuda._sleep(_SLEEP_CYCLES)  # noqa: SLF001  # as above
                kept.append(batch["frames"] + 0)
                del batch
        torch.cuda.synchronize()
        wrong = sum(
            int((found.cpu().int() - torch.stack([expected[clip] for clip in draws]).int()).abs().max()) > 1
            for found, draws in zip(kept, in_batches(order), strict=True)
        )
        record.figure(f"batches on a {name}: all, wrong", [len(kept), wrong])
        record.figure(f"advice on a {name}", reading.stats().advice)
        reading.close()
        if wrong or len(kept) != len(list(in_batches(order))):
            raise RuntimeError(f"{wrong} of {len(kept)} batches are wrong, on a {name}")


class Rates(NamedTuple):
    """Each second. A request decodes a packet once for all frames that need it, so where requests are large and videos
    few there are more frames than packets, and the packets say what decoders did."""

    frames: float
    packets: float


def speed(record: Record) -> None:
    """Frames/s and packets/s of clips and of random frames, by threads, beside the CPU reader on all cores. Nothing is
    compared."""
    ready()
    for codec in ("h264", "hevc"):
        for name, figures in speeds(samples(record, codec), CUDA, seconds=0.6):
            record.figure(f"{codec}, {name}", figures)


def speeds(folder: Path, device: str, seconds: float, rounds: int = 4) -> Iterator[tuple[str, Any]]:
    """Each scenario with the `Rates` of each reader, in turns; then how many decoders were at work for each engine."""
    cores = len(os.sched_getaffinity(0))
    open_one = partial(shortgop.open, folder, size=(224, 224))
    readers: dict[str, list[Dataset]] = {f"CPU, {cores} threads": [open_one(threads=cores)]}
    for threads in _THREADS:
        readers[f"{device}, {threads} threads"] = [open_one(device=device, threads=threads)]
    for requesting in _REQUESTING:
        name = f"{device}, {requesting} readers at once, {_THREADS_OF_EACH} threads each"
        readers[name] = [open_one(device=device, threads=_THREADS_OF_EACH) for _ in range(requesting)]
    scenarios: dict[str, Callable[..., Requests]] = {
        "clips of 16 frames, 4 apart, 16 at a time": partial(_clips, clips=16),
        "random frames, 64 at a time": partial(random_requests, clips=64, frames=1),
        "one clip": partial(_clips, clips=1),
        "one random frame": partial(random_requests, clips=1, frames=1),
    }
    for scenario, requests_of in scenarios.items():
        rates: dict[str, list[Rates]] = {name: [] for name in readers}
        # The first round opens decoders and compiles kernels, and does not count.
        for turn in range(rounds):
            for name, opened in readers.items():
                rate = measured_rates(opened, requests_of, turn, seconds / rounds)
                rates[name] += [rate] if turn else []
        found = {}
        for name, each in rates.items():
            frames, packets = (round(median(values)) for values in zip(*each, strict=True))
            found[name] = {"frames/s": frames, "packets/s": packets}
        yield scenario, found
    # Several readers work at the same time, so theirs add up.
    busy = {
        name: round(sum(each.stats().decoders_per_engine for each in opened), 2) for name, opened in readers.items()
    }
    yield "decoders at work for each engine", busy


def _clips(dataset: Dataset, rng: random.Random, clips: int) -> Requests:
    span = (CLIP_FRAMES - 1) * CLIP_STRIDE + 1
    rows = [row for row, video in enumerate(dataset) if len(video) >= span]
    starts = [(row, rng.randrange(len(dataset[row]) - span + 1)) for row in (rng.choice(rows) for _ in range(clips))]
    return [(row, list(range(start, start + span, CLIP_STRIDE))) for row, start in starts]


def measured_rates(
    datasets: Sequence[Dataset], requests_of: Callable[..., Requests], seed: int, seconds: float
) -> Rates:
    """What these readers give together while each answers requests for so long, in a thread of its own."""
    before = [dataset.stats().packets_decoded for dataset in datasets]
    started = time.perf_counter()

    def answer(number: int) -> int:
        rng, dataset, count = random.Random(f"{seed} {number}"), datasets[number], 0  # noqa: S311  # no secrets
        # One request at the least, also where this thread starts late.
        while not count or time.perf_counter() - started < seconds:
            requests = requests_of(dataset, rng)
            dataset.get_clips(requests)
            count += sum(len(frames) for _, frames in requests)
        return count

    with ThreadPoolExecutor(len(datasets)) as pool:
        frames = sum(pool.map(answer, range(len(datasets))))
    if datasets[0].device.type == "cuda":
        torch.cuda.synchronize()
    taken = time.perf_counter() - started
    packets = sum(dataset.stats().packets_decoded for dataset in datasets) - sum(before)
    return Rates(frames / taken, packets / taken)


def soak(record: Record) -> None:
    """Ten thousand clips, with the memory of the GPU and of the process in between."""
    ready()
    # As few as open all the decoders that they will ever need in the first clips.
    opened = shortgop.open(samples(record, "h264"), device=CUDA, size=(224, 224), threads=2)
    rng = random.Random(_SEED)  # noqa: S311  # no secrets
    growth, done = Growth(), 0
    while done < _SOAK_CLIPS:
        opened.get_clips(random_requests(opened, rng, clips=50, frames=4))
        done += 50
        if done % 1000 == 0:
            growth.look()
            record.figure("clips", done)
            record.figure("memory after each 1000 clips, MB: GPU, process", growth.megabytes())
    growth.check()
    stats = reader_of(opened).stats()
    record.figure("decoders opened, and used again", [stats.decoder_misses, stats.decoder_hits])
