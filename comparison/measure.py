"""`shortgop bench`: shortgop reads a dataset at random, and other libraries read its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from ..arguments import integer
from ..errors import ShortGopError, UsageError
from ..manifests.dataset_files.snapshots import open_manifest
from ..manifests.operations.export import export
from ..manifests.ragged import Array
from ..readers.dataset import Dataset
from ..readers.open_dataset import open as open_dataset
from ..storage.locate import storage_at
from .accesses import Access, draw
from .files import VideoFile, scan
from .machine import Machine, this_machine
from .peers import load
from .tasks import FileSet, our_task, peer_task, shown, source_of
from .timing import LEAST_REQUESTS, Figures, alternate

OURS = "shortgop"
DEFAULT_PEERS = ("torchcodec", "pyav", "opencv", "decord")
# Enough for random access. The packets of each source are read before anything is timed, which takes time.
_MAX_VIDEOS = 200
# They are drawn before anything is read. A clip takes some 250 bytes, however many frames it has.
_MOST_REQUESTS, _MOST_CLIPS = 5000, 200_000
_MOST_BATCH = _MOST_CLIPS // LEAST_REQUESTS
_MOST_SECONDS = 86_400
_SEED = 0

OnNote = Callable[[str], object]


@dataclass(frozen=True)
class Options:
    """What to measure, and for how many seconds each pattern of access, all readers together.

    With `exported` the peers also read the dataset's own videos, exported as MP4s.
    """

    accesses: tuple[Access, ...] = (Access(16, 4), Access(1))
    threads: int = 1
    seconds: float = 20.0
    peers: tuple[str, ...] = DEFAULT_PEERS
    exported: bool = False

    def __post_init__(self) -> None:
        if integer(self.threads, "--threads") < 1:
            raise UsageError(f"--threads is {self.threads}; it takes at least 1")
        for access in self.accesses:
            if access.batch > _MOST_BATCH:
                raise UsageError(f"--batch is {access.batch}; it takes up to {_MOST_BATCH}")
        if not 0 < self.seconds <= _MOST_SECONDS:
            raise UsageError(f"--seconds is {self.seconds}; it takes more than 0, up to {_MOST_SECONDS}")


@dataclass(frozen=True)
class Row:
    """One reader of one kind of files. `frames_per_second` is that of all its requests together."""

    reader: str
    files: str
    frames_per_second: float
    figures: Figures


@dataclass(frozen=True)
class Result:
    """One access pattern, shortgop first."""

    access: Access
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Report:
    """What was measured. What was not is in `missing` (readers) and `left_out` (videos), each with its reason."""

    dataset: str
    videos: int
    threads: int
    seconds: float
    results: tuple[Result, ...]
    missing: dict[str, str]
    left_out: dict[str, str]
    machine: Machine


def measure(path: str, options: Options, on_note: OnNote = lambda _: None) -> Report:
    """Measure; only temporary files are written. UsageError for what cannot be measured at all."""
    torch.set_num_threads(1)
    dataset = open_dataset(path, threads=options.threads, strict=True)
    if not len(dataset):
        raise UsageError(f"{path} has no video to read; prepare some first", file=str(path))
    readers, missing = load(options.peers)
    on_note("looking at the sources")
    numbers, sources, left_out = _sources(dataset, _sample(dataset))
    if sources is None:
        reason = f"no source can be read: {next(iter(left_out.values()))}"
        missing.update({f"{name} (sources)": reason for name in readers})
        left_out = {}
    results = []
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(options.threads)) if options.threads > 1 else None
        exported = stack.enter_context(_exported(path, dataset, numbers, options))
        of_peers = [files for files in (sources, exported) if files is not None]
        for access in options.accesses:
            on_note(f"reading {access}")
            lengths = [len(dataset[number]) for number in numbers]
            requests = draw(lengths, access, num_requests(access), _SEED)
            tasks = {(OURS, "dataset"): our_task(dataset, numbers, requests)}
            for files in of_peers:
                tasks |= {(name, files.name): peer_task(read, files, requests, pool) for name, read in readers.items()}
            measured = alternate(
                {f"{name} ({files})": task for (name, files), task in tasks.items()},
                requests=len(requests),
                seconds=options.seconds,
            )
            missing.update({f"{name}, {access}": why for name, why in measured.problems.items()})
            figures = {figure.name: figure for figure in measured.figures()}
            rows = [
                Row(name, files, _frames_per_second(access, figures[label]), figures[label])
                for name, files in tasks
                if (label := f"{name} ({files})") in figures
            ]
            results.append(Result(access, tuple(rows)))
    return Report(
        str(path), len(numbers), options.threads, options.seconds, tuple(results), missing, left_out, this_machine()
    )


def num_requests(access: Access) -> int:
    """How many batches to draw."""
    return min(_MOST_REQUESTS, _MOST_CLIPS // access.batch)


def _frames_per_second(access: Access, figures: Figures) -> float:
    return 1000 * access.batch * access.frames / figures.mean_milliseconds


def _sample(dataset: Dataset) -> list[int]:
    count = len(dataset)
    if count <= _MAX_VIDEOS:
        return list(range(count))
    return sorted(np.random.default_rng(_SEED).choice(count, _MAX_VIDEOS, replace=False).tolist())


def _sources(dataset: Dataset, numbers: list[int]) -> tuple[list[int], FileSet | None, dict[str, str]]:
    """The videos to read and their sources. Videos without a source are left out, unless none would be left."""
    found: list[tuple[int, VideoFile, Array]] = []
    left_out: dict[str, str] = {}
    for number in numbers:
        video = dataset[number]
        try:
            if not Path(source_of(video)).is_file():
                raise UsageError(f"{source_of(video)} is no file on this machine")
            file = scan(source_of(video))
            found.append((number, file, shown(video, file)))
        except ShortGopError as error:
            left_out[video.id] = str(error)
    if not found:
        return numbers, None, left_out
    kept = [number for number, _, _ in found]
    return kept, FileSet("sources", [file for _, file, _ in found], [frames for _, _, frames in found]), left_out


@contextmanager
def _exported(path: str, dataset: Dataset, numbers: Sequence[int], options: Options) -> Iterator[FileSet | None]:
    """The dataset's videos as MP4s, in a temporary folder."""
    if not options.exported:
        yield None
        return
    storage = storage_at(path)
    manifest = open_manifest(storage, dataset.metadata.snapshot)
    with TemporaryDirectory(prefix="shortgop-bench-") as folder:
        paths = [Path(folder) / f"{number}.mp4" for number in numbers]
        for number, out in zip(numbers, paths, strict=True):
            export(storage, manifest, number, out)
        yield FileSet.of_exported("exported", paths)
