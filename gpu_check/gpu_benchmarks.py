"""Frames/s of the reader on a GPU beside TorchCodec, PyNvVideoCodec and the CPU reader, in the same run.

Other libraries read the dataset's own videos as MP4s, and keep each file open. Videos are made on the spot of a few
seconds (`bench_footage`), and small enough that their bytes come from memory.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench_footage import CLIPS, HEVC_BY_GOP, LONG, LONG_SMALL, copied, exported, footage_of, repeated, source_of
from bench_readers import (
    DIFFERENCE,
    NOT_MEASURED,
    Answer,
    Draw,
    a_frame_of_all,
    comparing,
    opened,
    ours,
    ours_at_once,
    peers,
    random_clips,
    share,
)
from check_record import OutOfTime, Record
from gpu_decoding import ready
from gpu_engines import engines_of

import shortgop
from shortgop.machine_cpus import usable_cpus
from shortgop.wording import counted

OURS = "shortgop"
_CUDA = "cuda"
_SECONDS = 0.35
_CAMERAS, _CAMERA_REPEATS = 6, 30
_LONG_SECONDS = (60, 3000)
_READERS_AT_ONCE = 4

_Figures = Iterator[tuple[str, Any]]
_Readers = Mapping[str, Callable[[], Answer]]


def random_frames(record: Record) -> None:
    """Random frames of six HEVC videos of 1600x900 in GOPs of 12 and 30, as in NVIDIA's ACCV-Lab."""
    ready()
    _record_versions(record)
    lacking = []
    for number, (gop_frames, name) in enumerate(HEVC_BY_GOP.items()):
        deadline = _share_of(record, number, len(HEVC_BY_GOP))
        found = frames_of_cameras(footage_of(record, name), _CUDA, deadline=deadline)
        lacking += recorded(record, f"GOPs of {gop_frames}", found)
    check_measured(lacking)


def frames_of_cameras(
    dataset: Path,
    device: str,
    *,
    repeats: int = _CAMERA_REPEATS,
    seconds: float = _SECONDS,
    deadline: float = math.inf,
) -> _Figures:
    """Frames/s where a request is for the same frame of all videos, and for 64 random frames."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "dataset")
        repeated(dataset, folder, [repeats] * _CAMERAS)
        lengths = lengths_of(folder)
        draws: dict[str, Draw] = {
            "the same frame of six videos": partial(a_frame_of_all, lengths=lengths),
            "64 random frames": partial(random_clips, lengths=lengths, count=64, frames=1, stride=1),
        }
        yield from _compared(_readers(folder, device, Path(temporary)), folder, draws, seconds, deadline)


def long_videos(record: Record) -> None:
    """Clips of 16 frames one second apart from 720p60 videos of 60 and 3000 s, as in DALI's issue #5888."""
    ready()
    _record_versions(record)
    lacking = []
    for number, seconds in enumerate(_LONG_SECONDS):
        deadline = _share_of(record, 2 * number, 2 * len(_LONG_SECONDS))
        found = clips_of_long(footage_of(record, LONG), _CUDA, seconds, deadline=deadline)
        lacking += recorded(record, f"{seconds} s", found)
        deadline = _share_of(record, 2 * number + 1, 2 * len(_LONG_SECONDS))
        found = clips_of_small(footage_of(record, LONG_SMALL), _CUDA, seconds, deadline=deadline)
        lacking += recorded(record, f"{seconds} s at 256p", found)
    check_measured(lacking)


def clips_of_long(
    dataset: Path, device: str, video_seconds: int, *, seconds: float = _SECONDS, deadline: float = math.inf
) -> _Figures:
    """Frames/s from a video of this length, beside others that read it as an MP4, and others that read its source."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, source = Path(temporary, "dataset"), Path(temporary, "source.mp4")
        times = _times(dataset, video_seconds)
        repeated(dataset, folder, [times])
        copied(source_of(dataset), source, times)
        of_source = peers([source], device, peer_threads(folder, device))
        readers = _readers(folder, device, Path(temporary)) | {
            f"{name}, on the source": open_peer for name, open_peer in of_source.items()
        }
        yield from _compared(readers, folder, _a_second_apart(folder), seconds, deadline)


def clips_of_small(
    dataset: Path, device: str, video_seconds: int, *, seconds: float = _SECONDS, deadline: float = math.inf
) -> _Figures:
    """The same clips from a dataset of smaller frames, which others do not have."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "dataset")
        repeated(dataset, folder, [_times(dataset, video_seconds)])
        yield from _compared(_our_readers(folder, device), folder, _a_second_apart(folder), seconds, deadline)


def _times(dataset: Path, video_seconds: int) -> int:
    return round(video_seconds / shortgop.open(dataset)[0].metadata.duration_seconds)


def _a_second_apart(dataset: Path) -> dict[str, Draw]:
    stride = round(shortgop.open(dataset)[0].metadata.fps)
    clips = partial(random_clips, lengths=lengths_of(dataset), count=8, frames=16, stride=stride)
    return {"8 clips of 16 frames one second apart": clips}


def scenarios(record: Record) -> None:
    """Clips and single frames of small videos, as in scenarios 1, 2 and 4 of `make bench`, and the same of 720p."""
    ready()
    _record_versions(record)
    kinds, lacking = ((CLIPS, 10), (LONG, 6)), []
    for number, (name, repeats) in enumerate(kinds):
        deadline = _share_of(record, number, len(kinds))
        found = clips_and_frames(footage_of(record, name), _CUDA, repeats=repeats, deadline=deadline)
        lacking += recorded(record, name, found)
    check_measured(lacking)


def clips_and_frames(
    dataset: Path, device: str, *, repeats: int, seconds: float = _SECONDS / 2, deadline: float = math.inf
) -> _Figures:
    """Frames/s for each way in which training code asks for frames, of eight videos."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "dataset")
        repeated(dataset, folder, [repeats] * 8)
        shapes = {
            "16 clips of 16 frames, 4 apart": (16, 16, 4),
            "one clip of 16 frames, 4 apart": (1, 16, 4),
            "one random frame": (1, 1, 1),
            "128 random frames": (128, 1, 1),
            "16 clips of 10 frames in a row": (16, 10, 1),
            "16 clips of 10 frames, 20 apart": (16, 10, 20),
        }
        draws: dict[str, Draw] = {
            what: partial(random_clips, lengths=lengths_of(folder), count=count, frames=frames, stride=stride)
            for what, (count, frames, stride) in shapes.items()
        }
        yield from _compared(_readers(folder, device, Path(temporary)), folder, draws, seconds, deadline)


def recorded(record: Record, where: str, found: _Figures) -> list[str]:
    """Record what came of each way to ask, as often as more is known of it, and return what was not measured."""
    last: dict[str, Any] = {}
    for what, figures in found:
        record.figure(f"{where}, {what}", figures)
        last[what] = figures
    return [
        f"{where}, {what}: {name}"
        for what, figures in last.items()
        for name, each in figures.items()
        if NOT_MEASURED in each
    ]


def check_measured(lacking: Sequence[str]) -> None:
    """OutOfTime where something was not measured: a benchmark without figures has not passed."""
    if lacking:
        raise OutOfTime(f"there was no time to measure {counted(len(lacking), 'reader')}: {'; '.join(lacking)}")


def _share_of(record: Record, done: int, parts: int) -> float:
    """The deadline of the next of so many parts of a check, of which these are done."""
    return share(record.measure_until, parts - done)


def _compared(readers: _Readers, dataset: Path, draws: Mapping[str, Draw], seconds: float, deadline: float) -> _Figures:
    """What came of each way to ask. RuntimeError behind it where our frames are not the CPU reader's."""
    expected = ours(dataset, threads=usable_cpus())
    answers, failed = opened(readers)
    if failed:
        yield "readers that do not open", failed
    for number, (what, draw) in enumerate(draws.items()):
        found: dict[str, dict[str, Any]] = {}
        until = share(deadline, len(draws) - number)
        for found in comparing(answers, expected, draw, seconds=seconds, deadline=until):
            yield what, found
        if wrong := wrong_of_ours(found):
            raise RuntimeError(f"{what}: {', '.join(wrong)}: not the frames of the CPU reader, or none")


def wrong_of_ours(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which of our readers gave other frames than the CPU reader, or failed. One that was not asked did neither."""
    return [
        name
        for name, figures in found.items()
        if name.startswith(OURS) and figures.get(DIFFERENCE, 0 if NOT_MEASURED in figures else None) != 0
    ]


def _our_readers(dataset: Path, device: str) -> dict[str, Callable[[], Answer]]:
    return {
        OURS: partial(ours, dataset, device=device),
        f"{OURS}, {_READERS_AT_ONCE} at once": partial(ours_at_once, dataset, _READERS_AT_ONCE, device=device),
        f"{OURS} on the CPU, {usable_cpus()} threads": partial(ours, dataset, threads=usable_cpus()),
    }


def _readers(dataset: Path, device: str, folder: Path) -> dict[str, Callable[[], Answer]]:
    """Ours, and others on the dataset's videos as MP4s, which are written into `folder`."""
    return _our_readers(dataset, device) | peers(exported(dataset, folder), device, peer_threads(dataset, device))


def peer_threads(dataset: Path, device: str) -> list[int]:
    """One for each engine, and as many as our reader takes by default."""
    engines = engines_of(dataset, device)
    return [engines, 2 * engines]


def lengths_of(dataset: Path) -> list[int]:
    return [len(video) for video in shortgop.open(dataset)]


def _record_versions(record: Record) -> None:
    for library in ("torchcodec", "PyNvVideoCodec"):
        try:
            record.figure(library, version(library))
        except PackageNotFoundError:
            record.figure(library, "not installed")
