"""A corpus's life: made, relabelled, grown, a source replaced, a video dropped, a shard lost and made again, collected.

A reader opens the dataset all the while, and has had it open from the start: it sees nothing but whole snapshots. Then
each step again, killed early, in the middle and late. With the dataset in a folder, in S3, and in S3 over a network
where requests fail.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from dataset_places import Places, copied
from killed_command import CommandRunner, command_runner
from shortgop.errors import MissingDataError
from shortgop.manifests.dataset_files.layout import shard_key, snapshots
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.manifests.dataset_files.snapshot_files import layers_below
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.storage.interface import Storage
from sweep import SWEEP, only_in_a_sweep, sample
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.long

RATE = Fraction(25)
FRAMES = 20
# For each video its label, and the number that its first frame shows. `a` is replaced by a file that shows others.
State = dict[str, tuple[Any, int]]
STATES: list[State] = [
    {"a.mp4": (1, 0), "b.mp4": (1, 100), "c.mp4": (1, 200)},
    {"a.mp4": (2, 0), "b.mp4": (2, 100), "c.mp4": (2, 200)},
    {"a.mp4": (3, 0), "b.mp4": (2, 100), "c.mp4": (2, 200)},
    {"a.mp4": (3, 0), "b.mp4": (2, 100), "c.mp4": (2, 200), "d.mp4": (None, 300)},
    {"a.mp4": (3, 500), "b.mp4": (2, 100), "c.mp4": (2, 200), "d.mp4": (None, 300)},
    {"a.mp4": (3, 500), "c.mp4": (2, 200), "d.mp4": (None, 300)},
]


@dataclass(frozen=True)
class Step:
    """Something that happens to a corpus: a change of its files or of its dataset, and then a command, in which DATASET
    stands for the dataset."""

    name: str
    command: tuple[str, ...]
    change: Callable[[Path, Storage], None] = lambda root, dataset: None


def write_list(root: Path, label: int) -> None:
    (root / "videos" / "list.csv").write_text(
        "path,label\n" + "".join(f"{name}.mp4,{label}\n" for name in ("a", "b", "c"))
    )


def make(root: Path, name: str, first_number: int) -> None:
    pts = constant_rate_pts(RATE, FRAMES)
    make_video(root / "videos" / f"{name}.mp4", pts=pts, timebase=1 / RATE, first_number=first_number)


def relabel(root: Path, _: Storage) -> None:
    write_list(root, 2)


def write_labels(root: Path, _: Storage) -> None:
    (root / "labels.jsonl").write_text('{"id": "a.mp4", "label": 3}\n')


def grow(root: Path, _: Storage) -> None:
    make(root, "d", 300)


def change_a(root: Path, _: Storage) -> None:
    make(root, "a", 500)


def lose_a_shard(_: Path, dataset: Storage) -> None:
    """Of a video that is still there."""
    manifest = open_current(dataset)[1]
    row = manifest.row_of("c.mp4")
    shard = int(manifest.segments.shard[manifest.first_segments[row]])
    dataset.remove(shard_key(manifest.shards.name.text(shard)))


PREP = ("prep", "videos", "--out", "DATASET", "--runner", "inline", "--keep-snapshots", "1d")
LIST = ("prep", "videos/list.csv", *PREP[2:])
# The first one makes the dataset.
STEPS = (
    Step("relabelled by a list", LIST, relabel),
    Step("annotated", ("annotate", "DATASET", "labels.jsonl"), write_labels),
    Step("grown", PREP, grow),
    Step("replaced", (*PREP, "--changed", "replace"), change_a),
    Step("dropped", ("drop", "DATASET", "b.mp4")),
    Step("collected", ("gc", "DATASET", "--keep-snapshots", "1d")),
    Step("lost and made again", PREP, lose_a_shard),
    Step("collected at last", ("gc", "DATASET")),
)


def run(commands: CommandRunner, root: Path, dataset: Storage, command: tuple[str, ...]) -> Any:
    """Run a command to its end; what it prints as JSON."""
    done = commands.run(root, dataset.url, [*_of(dataset, command), "--json"])
    assert done.status == 0, done.errors
    return json.loads(done.output)


def run_killed(commands: CommandRunner, root: Path, dataset: Storage, command: tuple[str, ...], change: int) -> int:
    """Run a command that is killed before its change number `change` to the dataset. Without such a change it ends,
    and the result is how many there were."""
    done = commands.run(root, dataset.url, _of(dataset, command), change)
    assert done.killed or done.status == 0, done.errors
    return 0 if done.killed else done.changes


def _of(dataset: Storage, command: tuple[str, ...]) -> list[str]:
    return [dataset.url if each == "DATASET" else each for each in command]


def born(commands: CommandRunner, root: Path, dataset: Storage) -> None:
    (root / "videos").mkdir(parents=True)
    for number, name in enumerate(("a", "b", "c")):
        make(root, name, 100 * number)
    write_list(root, 1)
    run(commands, root, dataset, LIST)


def state_of(dataset: shortgop.Dataset) -> State:
    """What a reader sees: labels, and numbers in pixels."""
    found: State = {}
    for video in dataset:
        label = video.attributes.get("label")
        numbers = [read_number(video[frame]) for frame in (0, FRAMES - 1)]
        assert numbers[1] == numbers[0] + FRAMES - 1, "frames of two files in one video"
        found[video.id] = label, numbers[0]
    return found


class Reader(threading.Thread):
    """Opens a dataset again and again, and reads all its videos. One dataset stays open from the start."""

    def __init__(self, dataset: Storage) -> None:
        super().__init__()
        self._place, self._stop_event = dataset.url, threading.Event()
        self._first = shortgop.open(dataset.url)
        self._first_state = state_of(self._first)
        self.states: list[State] = []
        self._passes = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stop_event.is_set():
                # A shard may be missing that this test removed, or that gc did since the dataset was opened.
                with contextlib.suppress(MissingDataError):
                    self.states.append(state_of(shortgop.open(self._place)))
                with contextlib.suppress(MissingDataError):
                    assert state_of(self._first) == self._first_state, "a dataset that was open changed"
                self._passes += 1
                # It need not take all the time that there is.
                time.sleep(0.03)
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self.failure = error

    def pass_over_it(self) -> None:
        """Wait until the reader has opened and read the dataset as it is now."""
        # The pass under way may have begun before.
        enough = self._passes + 2
        while self._passes < enough and self.failure is None:
            time.sleep(0.005)

    def end(self) -> None:
        self._stop_event.set()
        self.join()
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def reading(dataset: Storage) -> Iterator[Reader]:
    reader = Reader(dataset)
    reader.start()
    try:
        yield reader
    finally:
        reader.end()


def bytes_of_videos(dataset: Storage) -> dict[str, list[int]]:
    """The checksums of the GOPs of each video."""
    manifest = open_current(dataset)[1]
    ends = manifest.first_gops.tolist()
    return {
        video_id: manifest.gops.crc32[ends[row] : ends[row + 1]].tolist() for row, video_id in enumerate(manifest.ids)
    }


def assert_whole(dataset: Storage) -> None:
    root, manifest = open_current(dataset)
    assert list(verify(dataset, manifest, snapshot=root.snapshot)) == []


def rows_without_place(dataset: Storage) -> dict[str, Any]:
    """What a dataset says of its videos, but for where their bytes lie: that depends on what was written when."""
    manifest = open_current(dataset)[1]
    checksums = bytes_of_videos(dataset)
    return {
        video_id: (
            manifest.videos.attributes.text(row),
            int(manifest.videos.identity[row]),
            int(manifest.videos.num_frames[row]),
            checksums[video_id],
        )
        for row, video_id in enumerate(manifest.ids)
    }


@dataclass(frozen=True)
class Moment:
    """A corpus at some time: a copy of its files, and one of its dataset."""

    files: Path
    dataset: Storage


@dataclass(frozen=True)
class Life:
    """A corpus at `root`, and what it was before the first step and after each. `changes` is how many changes to the
    dataset each step made."""

    root: Path
    moments: list[Moment]
    changes: list[int]

    def go_back(self, number: int, places: Places) -> Storage:
        """To before a step: the files at their place, where they were prepared, and a new copy of the dataset."""
        shutil.rmtree(self.root)
        shutil.copytree(self.moments[number].files, self.root)
        return copied(self.moments[number].dataset, places.new())


@pytest.fixture(scope="class")
def commands(places: Places) -> Iterator[CommandRunner]:
    """Start the process that runs commands, where the URLs of these places mean the same as here."""
    with command_runner() as runner:
        yield runner


@pytest.fixture(scope="class")
def life(commands: CommandRunner, tmp_path_factory: pytest.TempPathFactory, places: Places) -> Life:
    folder, dataset = tmp_path_factory.mktemp("life"), places.new()
    found = Life(folder / "corpus", [], [])
    born(commands, found.root, dataset)

    def keep(number: int) -> None:
        files = shutil.copytree(found.root, folder / str(number))
        found.moments.append(Moment(files, copied(dataset, places.new())))

    keep(0)
    for number, step in enumerate(STEPS, 1):
        step.change(found.root, dataset)
        found.changes.append(run_killed(commands, found.root, dataset, step.command, change=0))
        keep(number)
    return found


# While a shard is lost, opening the dataset says so.
@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
class CorpusLife:
    where: str

    def test_a_corpus_that_lives(self, commands: CommandRunner, places: Places, tmp_path: Path) -> None:
        root, dataset = tmp_path / "corpus", places.new()
        born(commands, root, dataset)
        reports: dict[str, Any] = {}
        with reading(dataset) as reader:
            for step in STEPS:
                before = bytes_of_videos(dataset)
                step.change(root, dataset)
                reports[step.name] = run(commands, root, dataset, step.command)
                reader.pass_over_it()
                after = bytes_of_videos(dataset)
                concerned = {"a.mp4"} if step.name == "replaced" else set()
                for video_id in before.keys() & after.keys() - concerned:
                    assert before[video_id] == after[video_id], f"{step.name}: the bytes of {video_id} changed"
        assert reports["relabelled by a list"]["relabelled"] == 3
        assert reports["annotated"]["changed"] == ["a.mp4"]
        assert reports["grown"]["videos_added"] == 1
        assert reports["replaced"]["replaced"] == ["a.mp4"]
        assert reports["dropped"]["ids"] == ["b.mp4"]
        assert "c.mp4" in reports["lost and made again"]["repaired"]
        assert reports["lost and made again"]["dropped"] == ["b.mp4"]
        assert [state for state in reader.states if state not in STATES] == [], "a mixed snapshot was seen"
        # In the order of the steps.
        numbers = [STATES.index(state) for state in reader.states]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(len(STATES)))
        assert state_of(shortgop.open(dataset.url)) == STATES[-1]
        assert_whole(dataset)
        assert len(snapshots(dataset)) == 1


@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
class KilledSteps:
    where: str
    # Fewer would mean that changes are not counted.
    fewest_changes: int
    # When each step is killed: shares of its changes.
    killed_at: tuple[tuple[float, ...], ...]

    @pytest.mark.parametrize("number", range(len(STEPS)), ids=[step.name for step in STEPS])
    def test_each_step_killed(self, number: int, commands: CommandRunner, life: Life, places: Places) -> None:
        """Readers see the state before or the one after, and the same command again ends as the undisturbed one did.
        `test_killed_edits.py` kills at every change."""
        step, before, after = STEPS[number], life.moments[number], life.moments[number + 1]
        states = [state_of(shortgop.open(moment.dataset.url)) for moment in (before, after)]
        expected = rows_without_place(after.dataset)
        last = life.changes[number]
        assert last >= self.fewest_changes
        for share in self.killed_at[number % len(self.killed_at)]:
            change = min(int(last * share), last - 2)
            dataset = life.go_back(number, places)
            step.change(life.root, dataset)
            assert run_killed(commands, life.root, dataset, step.command, change) == 0, "it was not killed"
            # A shard that the step's change removed may be missing still.
            with contextlib.suppress(MissingDataError):
                assert state_of(shortgop.open(dataset.url)) in states, f"killed before change {change} of {last}"
            run(commands, life.root, dataset, step.command)
            assert rows_without_place(dataset) == expected, f"killed before change {change} of {last}"
            assert_whole(dataset)


EARLY_IN_THE_MIDDLE_AND_LATE = (1 / 4, 1 / 2, 1.0)
_PREPARING = [number for number, step in enumerate(STEPS) if step.command[0] == "prep"]
_EDITING = [number for number in range(len(STEPS)) if number not in _PREPARING]


# In layers it is on a disk too, and over a flaky network without layers.
@only_in_a_sweep
class TestCorpusLifeOnADisk(CorpusLife):
    where = "disk"


class TestCorpusLifeInLayers(CorpusLife):
    where = "layered"

    def test_each_command_adds_a_layer(self, commands: CommandRunner, places: Places, tmp_path: Path) -> None:
        root, dataset = tmp_path / "corpus", places.new()
        born(commands, root, dataset)
        STEPS[0].change(root, dataset)
        run(commands, root, dataset, STEPS[0].command)
        assert layers_below(dataset, read_root(dataset).snapshot or "")


class TestCorpusLifeInS3(CorpusLife):
    where = "s3"


# It is the same store. `test_killed_edits.py` and `test_publish.py` have commands over such a network.
@only_in_a_sweep
class TestCorpusLifeOverAFlakyNetwork(CorpusLife):
    where = "flaky"


class TestKilledStepsOnADisk(KilledSteps):
    where = "disk"
    fewest_changes = 10
    # One for each step, others than in S3; with SHORTGOP_SWEEP=1 all of them.
    killed_at = (EARLY_IN_THE_MIDDLE_AND_LATE,) if SWEEP else ((1 / 2,), (1.0,), (1 / 4,))


@only_in_a_sweep
class TestKilledStepsInLayers(KilledSteps):
    where = "layered"
    fewest_changes = 10
    killed_at = (EARLY_IN_THE_MIDDLE_AND_LATE,)


class TestKilledStepsInS3(KilledSteps):
    where = "s3"
    fewest_changes = 8
    killed_at = (EARLY_IN_THE_MIDDLE_AND_LATE,) if SWEEP else tuple((share,) for share in EARLY_IN_THE_MIDDLE_AND_LATE)

    # `test_killed_edits.py` kills what the other commands do there.
    @pytest.mark.parametrize("number", sample(_PREPARING, more=_EDITING), ids=lambda number: STEPS[number].name)
    def test_each_step_killed(self, number: int, commands: CommandRunner, life: Life, places: Places) -> None:
        super().test_each_step_killed(number, commands, life, places)
