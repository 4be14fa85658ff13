"""A job that is killed at any moment and run again ends with the dataset of an undisturbed run: in a folder,
and in S3."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

import shortgop
from dataset_places import Places, copied, left_over, names, place_of, shard_names
from datasets import make_dataset, rows_of
from own_units import make_own_units
from shortgop.manifests.dataset_files.layout import shard_key
from shortgop.manifests.dataset_files.parts import finished_parts, finished_units
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from started_processes import descendants, kill_workers
from store_helpers import put
from sweep import only_in_a_sweep, sample

pytestmark = pytest.mark.long

# Seven units of work that take some tenths of a second each, and one source that always fails.
_VIDEOS = 7
_FRAMES = 60
_PATIENCE_SECONDS = 120

_TOLD = """
import abc, os, signal, sys, time, typer
from shortgop.cli.app import end_if_told, end_tidily_on_signals, errors

# A shell has its background programs ignore SIGINT, and nohup has SIGHUP ignored; tests may run in either.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
end_tidily_on_signals()


class Closing:
    # What this raises, Python ignores.
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(1)


try:
    with errors():
        try:
            if sys.argv[2] == "ignored":
                Closing()
            elif sys.argv[2] == "in a text":
                exec("os.kill(os.getpid(), int(sys.argv[1]))")
            elif sys.argv[2] == "passed over":
                def register(cls, other, really=abc.ABCMeta.register):
                    if other.__module__.startswith("numcodecs."):
                        os.kill(os.getpid(), int(sys.argv[1]))
                    return really(cls, other)

                abc.ABCMeta.register = register
                from numcodecs import _shuffle
                end_if_told()
            elif sys.argv[2] == "ignored while Ray starts":
                from shortgop.jobs.cluster.ray_connection import _restored_sigterm
                with _restored_sigterm():
                    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
                    Closing()
                    time.sleep(60)
            else:
                os.kill(os.getpid(), int(sys.argv[1]))
            time.sleep(60)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None
except typer.Exit as ended:
    sys.exit(ended.exit_code)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_own_units(tmp_path_factory.mktemp("sources") / "videos", _VIDEOS, _FRAMES)
    (folder / "broken.mp4").write_text("not a video")
    return folder


@pytest.fixture(scope="module")
def undisturbed(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = tmp_path_factory.mktemp("undisturbed") / "dataset"
    make_dataset([sources], dataset)
    assert len(finished_units(DiskStorage(dataset))) >= _VIDEOS
    return dataset


def start(
    sources: Path | str, dataset: Path | Storage, runner: str, log_file: Path | None = None
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "shortgop", "prep", str(sources), "--out", str(dataset), "--runner", runner]
    # Where the tests run in the background, a shell may have told them to ignore Ctrl-C.
    with_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with (log_file or Path(str(dataset)).with_suffix(".log")).open("w") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=with_interrupts,  # noqa: PLW1509  # no threads here
        )


def wait_until(job: subprocess.Popen[bytes], condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        assert job.poll() is None, f"the job ended before there was {what}"
        time.sleep(0.01)


def wait_until_gone(pids: Sequence[int]) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "processes of the job live on"
        time.sleep(0.05)


def kill_one(pid: int, what: str) -> bool:
    """SIGKILL a process below `pid` whose command line has `what` in it, if there is one."""
    for child, command in descendants(pid):
        if what in command:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
    return False


def assert_undisturbed(dataset: Path | Storage, undisturbed: Path | Storage) -> None:
    one, other = place_of(dataset), place_of(undisturbed)
    assert rows_of(one) == rows_of(other)
    assert left_over(one) == []
    assert shard_names(one) == shard_names(other)
    assert finished_parts(one) == finished_parts(other)


@pytest.mark.parametrize(
    ("runner", "number"),
    # Ray has a handler of its own for SIGTERM, and none for SIGINT. In S3, a job without Ray is told by SIGTERM.
    sample(
        [("inline", signal.SIGINT), ("ray", signal.SIGTERM)],
        more=[("inline", signal.SIGTERM), ("ray", signal.SIGINT)],
    ),
    ids=lambda value: getattr(value, "name", value),
)
def test_told_to_end(
    sources: Path, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str, number: signal.Signals
) -> None:
    """Ctrl-C, or what a job manager sends: a tidy end, with all that was finished in the dataset, and no copy of a
    source left. Ray kills its workers, which leave theirs."""
    dataset, temporary = tmp_path / "dataset", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    for file in sources.iterdir():
        put(f"{s3_url}/sources/{file.name}", file)

    def is_in_the_middle() -> bool:
        return len(finished_units(DiskStorage(dataset))) >= 2 and any(temporary.glob("shortgop-*/*.copy/*"))

    job = start(f"{s3_url}/sources", dataset, runner)
    wait_until(job, is_in_the_middle, "units of work and a copy")
    below = [pid for pid, _ in descendants(job.pid)]
    job.send_signal(number)
    assert job.wait(_PATIENCE_SECONDS) == 128 + number
    assert "interrupted; finished work is kept" in dataset.with_suffix(".log").read_text()
    assert "Traceback" not in dataset.with_suffix(".log").read_text()
    assert not (dataset / ".tmp").exists()
    # All that was finished is published, not just the first result.
    assert len(shortgop.open(dataset)) >= 2
    wait_until_gone(below)
    assert list(temporary.glob("shortgop-*/*")) == []


@pytest.mark.parametrize(
    ("number", "what"),
    [
        *itertools.product([signal.SIGINT, signal.SIGTERM], ["raised", "ignored", "in a text"]),
        # It has the handler of SIGTERM.
        (signal.SIGHUP, "ignored"),
        (signal.SIGTERM, "passed over"),
        (signal.SIGTERM, "ignored while Ray starts"),
    ],
)
def test_the_exit_status_says_which_signal_came_whatever_was_raised_for_it(
    number: signal.Signals, what: str, tmp_path: Path
) -> None:
    """Where Ray waits, it raises a KeyboardInterrupt of its own in place of the handler's. Python ignores what is
    raised in a `__del__`, and in what it calls beside a fork: such a signal was lost. With one that leaves code in a
    text, such as a dataclass that is made while modules are loaded, `python -m shortgop` ended itself by SIGINT.
    Modules made by Cython pass over it while they are loaded, and Ray's own handler of SIGTERM raises SystemExit: the
    job went on."""
    (tmp_path / "told.py").write_text(_TOLD)
    command = [sys.executable, "-m", "told", str(int(number)), what]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, check=False, cwd=tmp_path)
    # Python ends itself by SIGINT where one has left code in a text. To a shell that is the same as the status 130.
    expected = -signal.SIGINT if (what, number) == ("in a text", signal.SIGINT) else 128 + number
    assert (done.returncode, "Traceback" in done.stderr) == (expected, False)


def test_told_to_end_while_ray_starts(sources: Path, tmp_path: Path) -> None:
    """Ray has a handler for SIGTERM of its own, and processes that no list has yet."""
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "ray")
    wait_until(job, lambda: any("gcs_server" in command for _, command in descendants(job.pid)), "Ray")
    below = [pid for pid, _ in descendants(job.pid)]
    job.send_signal(signal.SIGTERM)
    assert job.wait(_PATIENCE_SECONDS) == 143
    log = dataset.with_suffix(".log").read_text()
    assert "interrupted; finished work is kept" in log
    assert "Traceback" not in log
    assert not (dataset / ".tmp").exists()
    wait_until_gone(below)


def test_ffmpeg_killed_again_and_again(sources: Path, undisturbed: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    job = start(sources, dataset, "inline")
    killed: Counter[int] = Counter()
    while job.poll() is None:
        finished = len(finished_units(DiskStorage(dataset)))
        # Of each unit twice at most: it fails at the third time. The driver's own trial runs are over once there is
        # something to write.
        if killed[finished] < 2 and (dataset / ".tmp").exists():
            killed[finished] += kill_one(job.pid, "stats_enc_pre pipe")
        time.sleep(0.02)
    assert killed.total() > 2
    make_dataset([sources], dataset)
    assert_undisturbed(dataset, undisturbed)


def is_at_work(job: subprocess.Popen[bytes], dataset: Storage) -> bool:
    """Whether the job writes something just now. On a store that is when it encodes."""
    if dataset.folder:
        return (dataset.folder / ".tmp").exists()
    encodes = any("stats_enc_pre pipe" in command for _, command in descendants(job.pid))
    # Before it has its lock, it tries its encoder.
    return encodes and dataset.find(".lock") is not None


class Interruptions:
    """What holds wherever the dataset lies."""

    where: str

    @pytest.fixture
    def expected(self, undisturbed: Path, places: Places) -> Storage:
        """Copy the dataset of an undisturbed run."""
        return copied(undisturbed, places.new())

    def killed(self, finished: int, sources: Path, dataset: Storage, log_file: Path) -> None:
        """Kill a job within a unit after the first `finished` ones."""
        job = start(sources, dataset, "inline", log_file)
        wait_until(job, lambda: len(finished_units(dataset)) >= finished, "units of work")
        wait_until(job, lambda: is_at_work(job, dataset), "work under way")
        # Elsewhere for each number.
        time.sleep(0.02 * finished)
        job.kill()
        job.wait()

    # In a store, to look how many are finished takes as long as some units, and one has to be left.
    @pytest.mark.parametrize("finished", sample([4], more=[1]))
    def test_driver_killed(
        self, sources: Path, expected: Storage, places: Places, tmp_path: Path, finished: int
    ) -> None:
        dataset = places.new()
        self.killed(finished, sources, dataset, tmp_path / "log")
        assert len(finished_units(dataset)) < len(finished_units(expected))

        make_dataset([sources], dataset)

        assert_undisturbed(dataset, expected)

    def test_driver_killed_while_it_makes_lost_videos_again(
        self, sources: Path, expected: Storage, places: Places, tmp_path: Path
    ) -> None:
        dataset = copied(expected, places.new())
        before = finished_units(dataset)
        for shard in sorted(names(dataset, "shards"))[:4]:
            dataset.remove(shard_key(shard))
        job = start(sources, dataset, "inline", tmp_path / "log")
        wait_until(job, lambda: len(finished_units(dataset)) > len(before), "a video that was made again")
        wait_until(job, lambda: is_at_work(job, dataset), "work under way")
        job.kill()
        job.wait()

        report = make_dataset([sources], dataset)

        assert 0 < len(report.repaired) < 4
        assert report.lost == ()
        assert left_over(dataset) == []
        root, manifest = open_current(dataset)
        assert list(verify(dataset, manifest, snapshot=root.snapshot)) == []
        assert sorted(manifest.videos.revision.tolist()) == [0] * (_VIDEOS - 4) + [1] * 4
        # Those that were made again are the same frames; x264 even writes the same bytes.
        kept = ("videos.", "gops.length", "gops.crc32", "timeline.", "failures.")
        one, other = rows_of(dataset), rows_of(expected)
        assert all(one[name] == other[name] for name in one if name.startswith(kept) and name != "videos.revision")

    def test_worker_and_driver_killed_on_ray_while_a_reader_reads(
        self, sources: Path, expected: Storage, places: Places, tmp_path: Path
    ) -> None:
        dataset = places.new()
        job = start(sources, dataset, "ray", tmp_path / "log")
        wait_until(job, lambda: is_at_work(job, dataset), "work under way")
        wait_until(job, lambda: kill_workers(job.pid) > 0, "a worker")
        wait_until(job, lambda: _can_be_opened(dataset), "a first snapshot")
        reader = shortgop.open(dataset.url)
        video = reader[0]
        before = video[0]
        wait_until(job, lambda: len(finished_units(dataset)) >= 4, "units of work")
        job.kill()
        job.wait()

        make_dataset([sources], dataset)

        assert_undisturbed(dataset, expected)
        assert bool((video[0] == before).all())
        assert len(reader) < _VIDEOS
        assert len(shortgop.open(dataset.url)) == _VIDEOS


def _can_be_opened(dataset: Storage) -> bool:
    try:
        return len(shortgop.open(dataset.url)) > 0
    except shortgop.NotADatasetError:
        return False


class TestInterruptionsOnADisk(Interruptions):
    where = "disk"

    # `test_cluster_chaos.py` kills workers and drivers in the suite, and `test_corpus_life.py` has a reader.
    @only_in_a_sweep
    def test_worker_and_driver_killed_on_ray_while_a_reader_reads(
        self, sources: Path, expected: Storage, places: Places, tmp_path: Path
    ) -> None:
        super().test_worker_and_driver_killed_on_ray_while_a_reader_reads(sources, expected, places, tmp_path)

    @pytest.mark.parametrize("finished", sample([0], more=[1, 3, 6]))
    def test_driver_killed(
        self, sources: Path, expected: Storage, places: Places, tmp_path: Path, finished: int
    ) -> None:
        super().test_driver_killed(sources, expected, places, tmp_path, finished)


class TestInterruptionsInS3(Interruptions):
    where = "s3"

    # `test_corpus_life.py` kills such a job in the suite.
    @only_in_a_sweep
    def test_driver_killed_while_it_makes_lost_videos_again(
        self, sources: Path, expected: Storage, places: Places, tmp_path: Path
    ) -> None:
        super().test_driver_killed_while_it_makes_lost_videos_again(sources, expected, places, tmp_path)

    @only_in_a_sweep
    def test_worker_and_driver_killed_on_ray_while_a_reader_reads(
        self, sources: Path, expected: Storage, places: Places, tmp_path: Path
    ) -> None:
        super().test_worker_and_driver_killed_on_ray_while_a_reader_reads(sources, expected, places, tmp_path)

    def test_told_to_end(self, sources: Path, places: Places, tmp_path: Path) -> None:
        """A tidy end: what was finished is in the dataset, and the lock is released."""
        dataset = places.new()
        job = start(sources, dataset, "inline", tmp_path / "log")
        wait_until(job, lambda: len(finished_units(dataset)) >= 2, "units of work")
        below = [pid for pid, _ in descendants(job.pid)]
        job.send_signal(signal.SIGTERM)
        assert job.wait(_PATIENCE_SECONDS) == 143
        log = (tmp_path / "log").read_text()
        assert "interrupted; finished work is kept" in log
        assert "Traceback" not in log
        assert left_over(dataset) == []
        assert len(shortgop.open(dataset.url)) >= 2
        wait_until_gone(below)


# Over a flaky network it is the same store, and other killed commands are tried there in the suite.
@only_in_a_sweep
class TestInterruptionsOverAFlakyNetwork(Interruptions):
    where = "flaky"
