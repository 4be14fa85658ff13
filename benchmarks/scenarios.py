"""Scenarios 1 to 4 and 8: shortgop and its peers do the same random requests in turn, on one thread each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import footage
from results import OURS, Case, Row

import shortgop
from shortgop.comparison.accesses import Access, Request, draw
from shortgop.comparison.peers import PEERS, load
from shortgop.comparison.tasks import FileSet, our_task, peer_task
from shortgop.comparison.timing import Task, alternate
from shortgop.prep.profile import PROFILES

# Without those that decode a GOP anew for each frame, which takes seconds for a clip; scenario 4 has them.
CLIP_PEERS = tuple(name for name in PEERS if name not in {"imageio", "opencv-seek"})
EXPORTED_PEERS = ("torchcodec", "torchcodec-approximate", "torchcodec-open", "pyav", "opencv", "decord", "spdl")
FEW_PEERS = ("torchcodec", "torchcodec-open", "opencv")
QUICK_PEERS = ("torchcodec", "pyav", "opencv", "decord")
TORCHCODEC = ("torchcodec", "torchcodec-open")
DATASET, SOURCES, EXPORTED = "dataset", "sources", "dataset as MP4"
BY_LENGTH = "128 such clips, by length: the shortest in ms, the others against it"
LONG_AT_256, LONG_AT_720 = (f"16 frames one second apart from 720p60, in the dataset at {size}" for size in (256, 720))
LONG_FRAMES, LONG_STRIDE, LONG_CLIPS, LONG_WORKERS = 16, 60, 128, 4
OTHER_PROFILE = "balanced" if next(iter(PROFILES)) == "fast" else "fast"

Note = Callable[[str], object]


@dataclass(frozen=True)
class Sizes:
    """How much is measured. `seconds_per_case` is shared by the readers of a case; `full` adds cases and readers."""

    videos: int
    seconds: int
    seconds_per_case: float
    frame_videos: int
    long_seconds: tuple[int, ...]
    full: bool


# The quick run fits ten minutes on two cores, its material included.
QUICK = Sizes(videos=4, seconds=15, seconds_per_case=40, frame_videos=12, long_seconds=(60, 120), full=False)
FULL = Sizes(videos=6, seconds=30, seconds_per_case=120, frame_videos=200, long_seconds=(60, 300, 3000), full=True)
MOST_REQUESTS = 2000


@dataclass(frozen=True)
class Material:
    """A dataset, and the files that peers read instead."""

    dataset: Path
    files: Mapping[str, FileSet]

    @classmethod
    def of(cls, dataset: Path) -> Material:
        files = {
            SOURCES: FileSet.of_sources(SOURCES, list(shortgop.open(dataset))),
            EXPORTED: FileSet.of_exported(EXPORTED, footage.make_exported(dataset)),
        }
        return cls(dataset, files)

    def lengths(self) -> list[int]:
        return [len(video) for video in shortgop.open(self.dataset)]


def read_through(material: Material) -> None:
    """Read all files once, so that bytes come from memory for every reader."""
    files = [file.path for file_set in material.files.values() for file in file_set.files]
    for path in (*map(Path, files), *(material.dataset / "shards").iterdir()):
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass


def tasks_of(
    material: Material,
    peers: Mapping[str, Sequence[str]],
    requests: Sequence[Request],
    missing: dict[str, str],
    *,
    pool: Executor | None = None,
    threads: int = 1,
) -> dict[tuple[str, str], Task]:
    """A task for shortgop and one for each peer on each kind of files; what does not load goes to `missing`."""
    dataset = shortgop.open(material.dataset, threads=threads)
    tasks = {(OURS, DATASET): our_task(dataset, range(len(dataset)), requests)}
    for files, names in peers.items():
        readers, lacking = load(names)
        missing.update(lacking)
        tasks |= {
            (name, files): peer_task(read, material.files[files], requests, pool) for name, read in readers.items()
        }
    return tasks


def measured(
    tasks: Mapping[tuple[str, str], Task], missing: dict[str, str], *, requests: int, seconds: float | None = None
) -> tuple[Row, ...]:
    """Do them in turn, as `alternate` does; the first one is what the others are compared with, and may not fail."""
    labels = {f"{reader}, {files}": (reader, files) for reader, files in tasks}
    result = alternate(dict(zip(labels, tasks.values(), strict=True)), requests=requests, seconds=seconds)
    missing.update(result.problems)
    return tuple(Row.of(*labels[each.name], each) for each in result.figures())


def case(
    table: tuple[int, str],
    name: str,
    material: Material,
    access: Access,
    peers: Mapping[str, Sequence[str]],
    *,
    seconds: float,
) -> Case:
    """One pattern of access on one thread; `table` is the scenario and what the table is called."""
    missing: dict[str, str] = {}
    read_through(material)
    drawn = draw(material.lengths(), access, MOST_REQUESTS, seed=table[0])
    tasks = tasks_of(material, peers, drawn, missing)
    return Case(*table, name, measured(tasks, missing, requests=len(drawn), seconds=seconds), missing)


def clips_group(height: int, size: int) -> str:
    """What the table of scenario 1 is called."""
    return f"16 frames from {height}p, in the dataset at {size}"


_CLIPS = {"stride 4": Access(16, 4), "single frame": Access(1)}
_MORE_CLIPS = {"stride 1": Access(16, 1), "stride 8": Access(16, 8)}


def clips(sizes: Sizes, note: Note) -> list[Case]:
    """1. Clips of 16 frames from sources with long GOPs, in the dataset at the sources' size and at 256."""
    cases = []
    pairs = ((256, "source"), (480, "256"), (720, "source"), (720, "256"))
    for height, out in pairs if sizes.full else (pairs[0], pairs[-1]):
        material = Material.of(footage.make_dataset(_sources(height, sizes), out))
        all_peers, peers_of_exported = (CLIP_PEERS, EXPORTED_PEERS) if sizes.full else (QUICK_PEERS, TORCHCODEC)
        peers = {SOURCES: all_peers if height == 256 else FEW_PEERS, EXPORTED: peers_of_exported}
        group = clips_group(height, height if out == "source" else int(out))
        accesses = _CLIPS | (_MORE_CLIPS if sizes.full and height == 256 else {})
        for name, access in accesses.items():
            note(f"1. {group}, {name}")
            cases.append(case((1, group), name, material, access, peers, seconds=sizes.seconds_per_case))
    return cases


def other_profile(sizes: Sizes, note: Note) -> list[Case]:
    """8. Scenario 1 at 256p, from a dataset of the profile that is not the default."""
    dataset = footage.make_dataset(_sources(256, sizes), "source", "--profile", OTHER_PROFILE, name=f"-{OTHER_PROFILE}")
    material, group = Material.of(dataset), f"16 frames from 256p, in the dataset with `--profile {OTHER_PROFILE}`"
    cases = []
    for name, access in _CLIPS.items():
        note(f"8. {name}")
        peers = {SOURCES: TORCHCODEC, EXPORTED: TORCHCODEC}
        cases.append(case((8, group), name, material, access, peers, seconds=sizes.seconds_per_case / 2))
    return cases


def _sources(height: int, sizes: Sizes) -> list[Path]:
    return footage.make_sources("clips", sizes.videos, height, sizes.seconds)


def frames(sizes: Sizes, note: Note) -> list[Case]:
    """2. Batches of 128 single frames: uniform over all frames, and for peers in runs of 16 neighbours as well."""
    sources = footage.make_sources("frames", sizes.frame_videos, 256, 10)
    material = Material.of(footage.make_dataset(sources, "source"))
    missing: dict[str, str] = {}
    peers = ("torchcodec", "torchcodec-open", "opencv", "decord", "pyav") if sizes.full else ("torchcodec",)
    uniform = draw(material.lengths(), Access(1, batch=128), MOST_REQUESTS // 10, seed=2)
    tasks = tasks_of(material, {SOURCES: peers, EXPORTED: ("torchcodec",)}, uniform, missing)
    in_runs = draw(material.lengths(), Access(16, batch=8), len(uniform), seed=2)
    for (reader, files), task in tasks_of(material, {SOURCES: peers}, in_runs, missing).items():
        if reader != OURS:
            tasks[reader, f"{files}, in runs of 16"] = task
    read_through(material)
    note(f"2. batches of 128 frames from {sizes.frame_videos} videos")
    rows = measured(tasks, missing, requests=len(uniform), seconds=sizes.seconds_per_case)
    return [Case(2, f"128 random frames from {sizes.frame_videos} videos of 256p", "a batch", rows, missing)]


def long_videos(sizes: Sizes, note: Note) -> list[Case]:
    """3. Clips of 16 frames one second apart from ever longer videos of 720p60."""
    paths = footage.make_long(sizes.long_seconds)
    material = Material.of(footage.make_dataset(paths, "256"))
    access = Access(LONG_FRAMES, LONG_STRIDE)
    dataset = shortgop.open(material.dataset)
    lengths, cases = material.lengths(), []
    few = {SOURCES: ("torchcodec", "opencv-seek"), EXPORTED: ("torchcodec",)}
    many = {SOURCES: ("torchcodec", "torchcodec-approximate", "opencv", "opencv-seek", "decord"), EXPORTED: FEW_PEERS}

    def only(video: int, count: int, batch: int = 1) -> list[Request]:
        """Requests for one of the videos."""
        asked = Access(access.frames, access.stride, batch)
        return draw([length * (number == video) for number, length in enumerate(lengths)], asked, count, seed=3)

    for video, seconds in enumerate(sizes.long_seconds if sizes.full else sizes.long_seconds[:1]):
        note(f"3. {seconds} s of 720p60")
        missing: dict[str, str] = {}
        read_through(material)
        asked = only(video, MOST_REQUESTS)
        tasks = tasks_of(material, many if sizes.full else few, asked, missing)
        rows = measured(tasks, missing, requests=len(asked), seconds=sizes.seconds_per_case)
        cases.append(Case(3, LONG_AT_256, f"{seconds} s", rows, missing))
    note("3. the shortest, in the dataset at 720")
    same_size = Material.of(footage.make_dataset(paths[:1], "source"))
    table, name = (3, LONG_AT_720), f"{sizes.long_seconds[0]} s"
    cases.append(case(table, name, same_size, access, few, seconds=sizes.seconds_per_case))
    note("3. the same by length, shortgop alone")
    # The picture counts seconds, so that later clips take more bits: those of the first minute show length alone.
    for name, of in (("anywhere", range(len(lengths))), ("the same of the first minute", [0] * len(lengths))):
        alone: dict[tuple[str, str], Task] = {}
        for video, seconds in enumerate(sizes.long_seconds):
            clips_of_one: list[Request] = [((video, clip[0][1]),) for clip in only(of[video], LONG_CLIPS)]
            alone[OURS, f"{seconds} s"] = task = our_task(dataset, range(len(dataset)), clips_of_one)
            for number in range(len(clips_of_one)):
                # So that no file comes from the disk.
                task(number)
        cases.append(Case(3, BY_LENGTH, name, measured(alone, {}, requests=LONG_CLIPS)))
    return [*cases, _on_threads(material, only, sizes, note)] if sizes.full else cases


def _on_threads(material: Material, only: Callable[[int, int, int], list[Request]], sizes: Sizes, note: Note) -> Case:
    note(f"3. {LONG_WORKERS} threads")
    longest, missing = len(sizes.long_seconds) - 1, dict[str, str]()
    with ThreadPoolExecutor(LONG_WORKERS) as pool:
        asked = only(longest, MOST_REQUESTS, 8)
        tasks = tasks_of(material, {SOURCES: ("opencv-seek",)}, asked, missing, pool=pool, threads=LONG_WORKERS)
        rows = measured(tasks, missing, requests=len(asked), seconds=sizes.seconds_per_case)
    name = f"{LONG_WORKERS} threads each, {sizes.long_seconds[longest]} s"
    return Case(3, "Batches of 8 such clips", name, rows, missing)


def near_and_far(sizes: Sizes, note: Note) -> list[Case]:
    """4. Ten frames in a row, and every twentieth, by every reader."""
    material = Material.of(footage.make_dataset(_sources(256, sizes), "source"))
    group, cases = "Ten frames from 256p, in the dataset at 256", []
    for name, stride in (("in a row", 1), ("every twentieth", 20)):
        note(f"4. ten frames {name}")
        peers = {SOURCES: tuple(PEERS), EXPORTED: EXPORTED_PEERS}
        cases.append(case((4, group), name, material, Access(10, stride), peers, seconds=sizes.seconds_per_case))
    return cases
