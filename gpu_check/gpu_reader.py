"""`shortgop.open(device="cuda")` and a loader over it: right frames, right order of streams, no growth."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from busy_gpu import long_kernel, streams
from check_record import Record
from differences import EQUAL, difference
from gpu_decoding import ready
from gpu_loading import BATCH_SIZE, clips, expected_frames, in_batches, order_of, said_in_fork
from gpu_memory import Growth
from gpu_samples import FIRST_NUMBERS
from sample_gops import check_each_codec, samples, shown_number

import shortgop
from shortgop.errors import CorruptDataError
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
_SOAK_CLIPS, _CLIPS_AT_ONCE = 10_000, 50
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
    for name, stream in streams().items():
        kept = []
        requests = [random_requests(on_cpu, rng, clips=8, frames=8) for _ in range(20)]
        with torch.cuda.stream(stream):
            for each in requests:
                frames = opened.get_clips(each).data
                long_kernel()
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


def _read(dataset: Dataset) -> None:
    dataset[0].get_frames_at([0])


def forked(record: Record) -> None:
    """A forked process that reads gets an error that says what to do."""
    ready()
    opened = shortgop.open(samples(record, "h264"), device=CUDA)
    opened[0].get_frames_at([0])
    message = said_in_fork(_read, opened)
    record.figure("said", message)
    # torch's own error, of a process that uses CUDA, has this word too.
    if not message.startswith("UsageError: this process was forked"):
        raise RuntimeError(f"a forked process says: {message}")


def loader(record: Record) -> None:
    """ClipLoader over a dataset that is decoded on the GPU: batches are the CPU's, also behind a long kernel."""
    ready()
    folder = samples(record, "h264")
    on_cpu, on_gpu = clips(folder), clips(folder, device=CUDA)
    # Each clip is read once: the CPU is slower than what it is compared with.
    expected, order = expected_frames(on_cpu), order_of(len(on_cpu), 60)
    for name, stream in streams().items():
        reading = shortgop.ClipLoader(on_gpu, order, batch_size=BATCH_SIZE)
        kept = []
        with torch.cuda.stream(stream):
            for batch in reading:
                long_kernel()
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


def soak(record: Record) -> None:
    """Up to ten thousand clips, with the memory of the GPU and of the process in between."""
    ready()
    # As few as open all the decoders that they will ever need in the first clips.
    opened = shortgop.open(samples(record, "h264"), device=CUDA, size=(224, 224), threads=2)
    rng = random.Random(_SEED)  # noqa: S311  # no secrets
    growth = Growth(record)
    for number in growth.rounds(_SOAK_CLIPS // _CLIPS_AT_ONCE):
        opened.get_clips(random_requests(opened, rng, clips=_CLIPS_AT_ONCE, frames=4))
        done = (number + 1) * _CLIPS_AT_ONCE
        if done % 1000 == 0:
            growth.look()
            record.figure("clips", done)
            record.figure("memory after each 1000 clips, MB: GPU, process", growth.megabytes())
    growth.check()
    stats = reader_of(opened).stats()
    record.figure("decoders opened, and used again", [stats.decoder_misses, stats.decoder_hits])
