"""Reading from a store beside reading from a disk: clips a second, bytes for each clip, and time to the first batch.

    python benchmarks/stores.py

An S3 server on loopback holds a dataset, behind nginx, which adds latency to each request: that of the tests, or with
--endpoint another one, with the credentials of the environment (docs/design/storage.md says how to start Ceph's).
Batches of 8 random clips, 16 frames at stride 4, 224x224; one worker with one thread, so that the other core is left to
the server. Loaders are timed in turn, round by round, between two batches in the middle of a round:

- ClipLoader over the dataset on the disk, in the store, and in the store behind a full local cache;
- the same without workers, for the time to the first batch: starting a worker takes seconds;
- whole shards first, as MosaicML Streaming does: each shard that a batch needs is fetched whole, once, to a local
  disk, and read there with the same decoder (written here for the comparison);
- WebDataset over the same videos as MP4s in tars, one random clip of each video, decoded by TorchCodec. It streams a
  tar from its start, so its order is that of the tars;
- MosaicML Streaming itself over the same videos as MP4s in MDS shards as long as the tars, shuffled, one random clip of
  a video, decoded by TorchCodec; left out where the package `mosaicml-streaming` cannot be imported.

Bytes and requests are those that nginx saw. `make bench` leaves this out; the figures in docs/design/readers.md
come from here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import Any

import footage
from nginx import LateStore, late_store
from s3_place import means, s3_at

import shortgop
from shortgop.readers.cache_filling import fill_cache
from shortgop.readers.dataset import reader_of
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at

SIZE = (224, 224)
FRAMES, STRIDE, BATCH = 16, 4, 8
AHEAD = 4


@dataclass(frozen=True)
class Row:
    """What a way of reading took at a latency. `ratio` is how many times as long as ClipLoader on the disk,
    `first_batch_bytes` what was fetched until the first batch was there; NaN for loaders, which read ahead."""

    way: str
    latency_ms: float
    clips_per_second: float
    ratio: float
    bytes_per_clip: float
    requests_per_clip: float
    first_batch_seconds: float
    first_batch_bytes: float = float("nan")


def put_up(folder: Path, url: str) -> None:
    store = storage_at(url)
    for each in DiskStorage(folder).files(""):
        if each.key != "complete":
            store.put_new_file(each.key, folder / each.key)


def loader_of(path: str, **options: Any) -> shortgop.ClipLoader:
    policy = shortgop.RandomClips(FRAMES, stride=STRIDE, clips_per_video=200)
    clips = shortgop.ClipDataset(path, policy, size=SIZE, crop="center", **options)
    return shortgop.ClipLoader(clips, shortgop.ElasticSampler(clips, BATCH), workers=1, threads=1)


def epochs_of(loader: shortgop.ClipLoader) -> Callable[[int], Iterator[Any]]:
    def batches(epoch: int) -> Iterator[Any]:
        loader.sampler.set_epoch(epoch)  # type: ignore[union-attr]
        return iter(loader)

    return batches


def timed(batches: Iterator[Any], count: int) -> float:
    """Clips a second once the loader runs."""
    for _ in range(AHEAD):
        next(batches)
    started = time.perf_counter()
    for _ in range(count):
        next(batches)
    return count * BATCH / (time.perf_counter() - started)


def in_this_process(url: str) -> Iterator[Any]:
    """The same batches without workers, and nothing read ahead."""
    far = shortgop.open(url, size=SIZE, crop="center")
    clips = shortgop.ClipDataset(far, shortgop.RandomClips(FRAMES, stride=STRIDE, clips_per_video=200))
    for batch in shortgop.ElasticSampler(clips, BATCH).planned_batches():
        yield far.get_clips([(clip.video, clip.frames.tolist()) for clip in clips.clip_index.clips(batch.draws)])


def whole_shards(url: str, scratch: Path) -> Iterator[Any]:
    """The same batches, each read after the shards that it needs were fetched whole."""
    store, far = storage_at(url), shortgop.open(url, size=SIZE, crop="center")
    policy = shortgop.RandomClips(FRAMES, stride=STRIDE, clips_per_video=200)
    clips = shortgop.ClipDataset(far, policy)
    manifest = reader_of(far).manifest
    names = manifest.shards.name.texts()
    for each in store.files(""):
        if not each.key.startswith("shards/"):
            (scratch / each.key).parent.mkdir(parents=True, exist_ok=True)
            (scratch / each.key).write_bytes(store.read(each.key))
    (scratch / "shards").mkdir()
    near = None
    for batch in shortgop.ElasticSampler(clips, BATCH).planned_batches():
        wanted = clips.clip_index.clips(batch.draws)
        for clip in wanted:
            first = int(manifest.first_segments[clip.video])
            last = manifest.first_segments[clip.video + 1] if clip.video + 1 < len(far) else len(manifest.segments)
            for shard in set(manifest.segments.shard[first : int(last)].tolist()):
                file = scratch / "shards" / names[shard]
                if not file.exists():
                    file.write_bytes(store.read(f"shards/{names[shard]}"))
        if near is None:
            # It warns of shards that are missing. They are fetched before they are read.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                near = shortgop.open(scratch, size=SIZE, crop="center")
        yield near.get_clips([(clip.video, clip.frames.tolist()) for clip in wanted])


def write_tars(dataset: Path, url: str, videos_each: int) -> list[str]:
    """The dataset's videos as MP4s in tars, in the store; returns their keys."""
    store = storage_at(url)
    exported = footage.make_exported(dataset)
    keys = []
    for first in range(0, len(exported), videos_each):
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            with tarfile.open(file.name, "w") as tar:
                for path in exported[first : first + videos_each]:
                    tar.add(path, f"{path.stem}.mp4")
            keys.append(f"tars/{first:04}.tar")
            store.put_new_file(keys[-1], Path(file.name))
    return keys


def random_clip(mp4: bytes, draws: random.Random) -> Any:
    """A clip of a video, decoded by TorchCodec: float32 [frames, channels, height, width]."""
    import torch
    from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]

    decoder = VideoDecoder(mp4, seek_mode="approximate")
    start = draws.randrange(len(decoder) - (FRAMES - 1) * STRIDE)
    frames = decoder.get_frames_at(list(range(start, start + FRAMES * STRIDE, STRIDE))).data
    side = min(frames.shape[-2:])
    middle = frames[..., :side, (frames.shape[-1] - side) // 2 :][..., :side]
    return torch.nn.functional.interpolate(middle, SIZE, mode="bilinear", antialias=True)


def batches_of_clips(mp4s: Iterator[bytes]) -> Iterator[Any]:
    """Batches of a random clip of each video."""
    import torch

    draws = random.Random(0)  # noqa: S311  # which clips
    while len(batch := [random_clip(mp4, draws) for mp4 in islice(mp4s, BATCH)]) == BATCH:
        yield torch.stack(batch)


def web_dataset(url: str, keys: list[str]) -> Iterator[Any]:
    """Batches of one random clip of each video of the tars, streamed with curl, as WebDataset does for http."""
    import obstore
    import webdataset
    from obstore.store import S3Store

    place = S3Store.from_url(url)
    urls = [f"pipe:curl -s -L '{obstore.sign(place, 'GET', key, timedelta(hours=1))}'" for key in keys]
    samples = webdataset.WebDataset(urls, shardshuffle=False, empty_check=False)
    return batches_of_clips(sample["mp4"] for sample in samples)


def why_no_mosaic() -> str | None:
    """Why MosaicML Streaming cannot be measured; None if it can."""
    try:
        import streaming  # noqa: F401
    # Its torchvision may not fit torch.
    except (ImportError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def write_mds(dataset: Path, url: str, videos_each: int) -> None:
    """The dataset's videos as MP4s in MDS shards of about so many, in the store."""
    from streaming import MDSWriter

    store, exported = storage_at(url), footage.make_exported(dataset)
    num_bytes = sum(path.stat().st_size for path in exported) * videos_each // len(exported)
    with tempfile.TemporaryDirectory() as folder:
        with MDSWriter(out=folder, columns={"mp4": "bytes"}, size_limit=int(1.1 * num_bytes)) as writer:
            for path in exported:
                writer.write({"mp4": path.read_bytes()})
        for file in sorted(Path(folder).iterdir()):
            store.put_new_file(file.name, file)


def mosaic(url: str, scratch: Path) -> Iterator[Any]:
    """Batches of one random clip of a video, for as many epochs as are asked for, as MosaicML Streaming gives them."""
    from streaming import StreamingDataset

    dataset = StreamingDataset(remote=url, local=str(scratch), shuffle=True, batch_size=BATCH)
    return batches_of_clips(sample["mp4"] for _ in count_from(0) for sample in dataset)


def measure(latency: float, rounds: int, count: int, world: World) -> list[Row]:
    world.server.answer_after(latency)
    rows = timed_loaders(latency, rounds, count, world) if rounds else []
    rows.append(one_pass("this process, store", latency, count, world, lambda: in_this_process(world.url)))
    rows.append(one_pass("whole shards first", latency, count, world, lambda: whole_shards(world.url, world.scratch())))
    rows.append(
        one_pass(
            "WebDataset over MP4s", latency, count, world,
            lambda: web_dataset(f"{world.url}-tars", world.tars),
        )
    )  # fmt: skip
    if world.has_mds:
        url = f"{world.url}-mds"
        rows.append(one_pass("MosaicML Streaming", latency, count, world, lambda: mosaic(url, world.scratch())))
    return rows


def timed_loaders(latency: float, rounds: int, count: int, world: World) -> list[Row]:
    """The loaders in turn, round by round."""
    loaders = {
        "ClipLoader, disk": loader_of(str(world.disk)),
        "ClipLoader, store": loader_of(world.url),
        "ClipLoader, store behind a full cache": loader_of(world.url, cache_dir=world.cache, cache_bytes=1 << 34),
    }
    first = dict.fromkeys(loaders, 0.0)
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    spent: dict[str, tuple[int, int, int]] = {}
    for turn in range(rounds + 1):
        for name, loader in loaders.items():
            world.server.forget()
            started = time.perf_counter()
            batches = epochs_of(loader)(turn)
            if turn == 0:
                next(batches)
                first[name] = time.perf_counter() - started
            rate = timed(batches, count)
            del batches
            if turn:
                rates[name].append(rate)
            else:
                # What was read ahead and not delivered counts as well: a few batches of those.
                spent[name] = (*settled_traffic(world.server, latency), (1 + AHEAD + count) * BATCH)
    for loader in loaders.values():
        loader.close()
    rows = []
    for name in loaders:
        ratios = [disk / other for disk, other in zip(rates["ClipLoader, disk"], rates[name], strict=True)]
        num_bytes, requests, clips = spent[name]
        rows.append(
            Row(
                name, latency * 1000, statistics.median(rates[name]), statistics.median(ratios),
                num_bytes / clips, requests / clips, first[name],
            )
        )  # fmt: skip
    return rows


def settled_traffic(server: LateStore, latency: float) -> tuple[int, int]:
    """The traffic, once nothing of a loader that was left is on its way any more."""
    before = None
    while (now := server.traffic()) != before:
        before = now
        time.sleep(0.2 + 2 * latency)
    return now


def one_pass(way: str, latency: float, count: int, world: World, make: Callable[[], Iterator[Any]]) -> Row:
    """A way without a loader and workers. Its bytes and the time to its first batch are compared, its rate is not."""
    world.server.forget()
    started = time.perf_counter()
    batches = make()
    next(batches)
    first = time.perf_counter() - started
    first_bytes, _ = world.server.traffic()
    clips = BATCH * (1 + sum(1 for _ in islice(batches, count)))
    num_bytes, requests = world.server.traffic()
    nan = float("nan")
    return Row(way, latency * 1000, nan, nan, num_bytes / clips, requests / clips, first, first_bytes)


@dataclass
class World:
    """The places of one run."""

    server: LateStore
    disk: Path
    url: str
    cache: Path
    tars: list[str]
    has_mds: bool
    root: Path

    def scratch(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.root))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="0: without the loaders that are timed in turn.")
    parser.add_argument("--batches", type=int, default=12, help="Batches that are timed in each round.")
    parser.add_argument("--latency-ms", type=float, nargs="*", default=[1.0, 10.0, 50.0])
    parser.add_argument("--endpoint", help="http://HOST:PORT of an S3 server, in place of that of the tests.")
    options = parser.parse_args()
    disk = footage.make_dataset(footage.make_sources("stores", 12, 256, 20, preset="veryfast"), "256", name="-stores")
    with (
        s3_at(options.endpoint) as endpoint,
        late_store(endpoint) as server,
        means(server.endpoint) as place,
        tempfile.TemporaryDirectory() as folder,
    ):
        url = f"{place}/clips"
        put_up(disk, url)
        tars = write_tars(disk, f"{url}-tars", 3)
        # Of two names for the same setting, this is the one that MosaicML Streaming reads.
        os.environ["S3_ENDPOINT_URL"] = server.endpoint
        why = why_no_mosaic()
        if why is None:
            write_mds(disk, f"{url}-mds", 3)
        else:
            print(f"without MosaicML Streaming: {why}")
        cache = Path(folder) / "cache"
        fill_cache(shortgop.open(url, cache_dir=cache, cache_bytes=1 << 34))
        # The fork server and the libraries start once for all.
        next(iter(loader_of(str(disk))))
        next(web_dataset(f"{url}-tars", tars))
        if why is None:
            next(mosaic(f"{url}-mds", Path(folder) / "mds"))
        world = World(server, disk, url, cache, tars, why is None, Path(folder))
        shards = [each.num_bytes for each in storage_at(url).files("shards/")]
        print(f"{sum(shards) / 1e6:.1f} MB in {len(shards)} shards, 12 videos of 20 s")
        rows = [
            row
            for latency in options.latency_ms
            for row in measure(latency / 1000, options.rounds, options.batches, world)
        ]
    for row in rows:
        print(json.dumps(asdict(row)))


if __name__ == "__main__":
    main()
