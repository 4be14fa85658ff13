"""What the benchmarks on a GPU read: datasets, and the same videos as files for other libraries.

`make gpu-wheels` makes some seconds of each kind, which are carried to the machine with the GPU. There `repeated` makes
videos of any length of them, by writing the same GOPs again. They are closed, so each costs a decoder what it cost the
first time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import av
import footage
import numpy as np
from check_record import Record, Skipped

from shortgop.errors import ToolError
from shortgop.jobs.prepare import Where, prepare
from shortgop.manifests.dataset_files.layout import shard_key
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshots import open_current, timeline_of
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations.export import export
from shortgop.manifests.ragged import Array, from_texts
from shortgop.manifests.stacking import take
from shortgop.manifests.tables import Manifest, Timeline
from shortgop.prep.profile import PROFILES, Profile, parse_size
from shortgop.storage.disk import DiskStorage

FOLDER, SOURCES, MADE = "benchmarks", "sources", "made"
_NEARLY_LOSSLESS = "10"


@dataclass(frozen=True)
class Kind:
    """Videos of `frames` frames, one of each of `pictures` (ffmpeg's sources, as in `footage.PICTURES`), and what the
    profile of their dataset has beside its defaults. A video is one segment of whole GOPs. With `keyint` its source has
    GOPs of so many frames and x264's usual quality, and is carried too."""

    pictures: Sequence[str]
    size: tuple[int, int]
    rate: int
    frames: int
    profile: Mapping[str, Any]
    keyint: int | None = None


_HEVC = PROFILES["small"] | {"encoder": "libx265"}
_X264: dict[str, Any] = {"encoder": "libx264"}
_TEST_PICTURE = ("testsrc=s={size}:r={rate}",)
CLIPS, LONG, LONG_SMALL = "clips-256p", "long-720p60", "long-720p60-to-256"
HEVC_BY_GOP = {12: "hevc-1600x900-gop12", 30: "hevc-1600x900-gop30"}
KINDS: dict[str, Kind] = {
    # The sizes and GOPs of NVIDIA's ACCV-Lab, for its figures of random frames.
    **{
        name: Kind(footage.PICTURES[:1], (1600, 900), 30, 60, _HEVC | {"gop_frames": gop})
        for gop, name in HEVC_BY_GOP.items()
    },
    # Those of DALI's issue #5888.
    LONG: Kind(_TEST_PICTURE, (1280, 720), 60, 240, _X264, keyint=240),
    LONG_SMALL: Kind(_TEST_PICTURE, (1280, 720), 60, 240, _X264 | {"size": parse_size("256")}),
    CLIPS: Kind(footage.PICTURES, (456, 256), 30, 96, _X264),
}


def make_benchmark_footage(folder: Path, kinds: Mapping[str, Kind] = KINDS) -> None:
    """Write a dataset for each kind below `folder`. ToolError without an ffmpeg."""
    for name, kind in kinds.items():
        with tempfile.TemporaryDirectory() as temporary:
            sources = Path(temporary, SOURCES)
            sources.mkdir()
            for number, picture in enumerate(kind.pictures):
                _draw(sources / f"{number:03}.mp4", picture, kind, seed=number + 1)
            profile = Profile(segment_seconds=Fraction(kind.frames, kind.rate), **kind.profile)
            report = prepare([str(sources)], DiskStorage(folder / name), profile, where=Where(runner="inline"))
            if report.failures:
                raise RuntimeError(f"the footage of benchmarks was not made: {report.failures}")
            if kind.keyint:
                (folder / SOURCES).mkdir(exist_ok=True)
                shutil.move(sources / "000.mp4", source_of(folder / name))
    (folder / MADE).touch()


def footage_of(record: Record, kind: str) -> Path:
    """The dataset of a kind. All are made where they did not come along; Skipped where that cannot be."""
    folder = record.samples / FOLDER
    if not (folder / MADE).exists():
        try:
            make_benchmark_footage(folder)
        except (ImportError, ToolError) as error:
            raise Skipped(f"there is no footage, and none can be made: {error}") from error
    return folder / kind


def source_of(dataset: Path) -> Path:
    """The source of a dataset whose kind keeps it."""
    return dataset.parent / SOURCES / f"{dataset.name}.mp4"


def _draw(path: Path, picture: str, kind: Kind, seed: int) -> None:
    width, height = kind.size
    fields = {"size": f"{width}x{height}", "scale": f"{width}:{height}", "rate": kind.rate, "seed": seed}
    coding = ("-g", str(kind.keyint)) if kind.keyint else ("-crf", _NEARLY_LOSSLESS, "-preset", "ultrafast")
    footage.ffmpeg(
        *("-v", "error", "-f", "lavfi", "-i", f"{picture},format=yuv420p".format(**fields)),
        *("-frames:v", str(kind.frames), "-c:v", "libx264", *coding, str(path)),
    )


def repeated(dataset: Path, out: Path, times: Sequence[int]) -> None:
    """Write a dataset of `len(times)` videos: number k is video k of `dataset`, `times[k]` times in a row. After the
    last one they begin again with the first. ValueError where a video does not end with a segment of whole GOPs."""
    source, target = DiskStorage(dataset), DiskStorage(out)
    root, known = open_current(source)
    videos = known.videos
    if root.snapshot is None or any(
        videos.num_frames != videos.gop_frames * videos.segment_gops * known.segment_counts
    ):
        raise ValueError(f"{dataset} has videos that do not end with a whole segment")
    count = len(videos)
    # The videos of a round lie in the same copies of the shards, each video in as many as it is long.
    rounds = [times[start : start + count] for start in range(0, len(times), count)]
    first_copies = [0, *accumulate(max(each) for each in rounds)]
    places = [_Place(number % count, first_copies[number // count], each) for number, each in enumerate(times)]
    pts = timeline_of(source, root.snapshot, known, range(count))
    create(target, root.profile)
    for name in known.shards.name.texts():
        shard = out / shard_key(name)
        shard.parent.mkdir(parents=True, exist_ok=True)
        data = (dataset / shard_key(name)).read_bytes()
        with shard.open("wb") as file:
            for _ in range(first_copies[-1]):
                file.write(data)
    shards = replace(known.shards, length=known.shards.length * first_copies[-1])
    write_part(target, "repeated", merge([replace(_repeated_rows(known, pts, places), shards=shards)]), root.profile)
    publish(target, root.profile)


class _Place(NamedTuple):
    """Where a video of repeated ones comes from: its number, the first copy of its shard, and how many there are."""

    video: int
    first_copy: int
    times: int


def _repeated_rows(known: Manifest, pts: Array, places: Sequence[_Place]) -> Manifest:
    first_segments, first_gops, first_frames = known.first_segments, known.first_gops, known.first_frames
    # A video lies in one shard.
    shard_bytes = known.shards.length[known.segments.shard[first_segments[:-1]]]

    def repeated_rows(table: Any, first: Array) -> Any:
        """The rows of a table in which videos start at `first`, at their offsets in the copies."""
        rows, starts = [], []
        for video, first_copy, times in places:
            of_video = np.arange(first[video], first[video + 1])
            rows.append(np.tile(of_video, times))
            starts.append(shard_bytes[video] * np.repeat(np.arange(first_copy, first_copy + times), len(of_video)))
        taken = take(table, np.concatenate(rows))
        return replace(taken, offset=taken.offset + np.concatenate(starts))

    videos = take(known.videos, np.array([each.video for each in places]))
    times = np.array([each.times for each in places], videos.num_frames.dtype)
    frames = [pts[first_frames[each.video] : first_frames[each.video + 1]] for each in places]
    return replace(
        known,
        videos=replace(
            videos,
            id=from_texts([f"{number:03}.mp4" for number in range(len(places))]),
            num_frames=videos.num_frames * times,
        ),
        segments=repeated_rows(known.segments, first_segments),
        gops=repeated_rows(known.gops, first_gops),
        timeline=Timeline(
            np.concatenate([_repeated_pts(of_one, each.times) for of_one, each in zip(frames, places, strict=True)])
        ),
    )


def _repeated_pts(pts: Array, repeats: int) -> Array:
    """Times of frames at a constant rate, going on."""
    period = (pts[-1] - pts[0]) + (pts[1] - pts[0])
    going_on: Array = np.tile(pts, repeats) + np.repeat(period * np.arange(repeats), len(pts))
    return going_on


def exported(dataset: Path, folder: Path) -> list[Path]:
    """The videos of a dataset as ordinary MP4s, in their order. They are not fragmented: PyNvVideoCodec takes the
    number of frames from the file's table of samples."""
    _, manifest = open_current(DiskStorage(dataset))
    files = []
    for row in range(len(manifest.videos)):
        fragmented, file = folder / f"{row:03}.fragmented.mp4", folder / f"{row:03}.mp4"
        export(DiskStorage(dataset), manifest, row, fragmented)
        copied(fragmented, file)
        fragmented.unlink()
        files.append(file)
    return files


def copied(source: Path, out: Path, times: int = 1) -> None:
    """Write the packets of a video to an MP4, so many times one after the other. It has to have a constant rate."""
    with av.open(str(out), "w") as target:
        stream: Any = None
        start = 0
        for _ in range(times):
            with av.open(str(source)) as container:
                template = container.streams.video[0]
                if stream is None:
                    stream = target.add_stream_from_template(template)
                end = start
                for packet in container.demux(template):
                    if packet.pts is None or packet.dts is None:
                        continue
                    packet.pts += start
                    packet.dts += start
                    end = max(end, packet.pts + (packet.duration or 0))
                    packet.stream = stream
                    target.mux(packet)
            start = end
