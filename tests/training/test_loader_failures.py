"""What becomes of a ClipLoader when processes die and transforms fail, and what it leaves behind."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import shortgop
from datasets import copied_shards
from left_open import open_files
from loader_helpers import (
    ArrivesLate,
    KillsItself,
    Refuses,
    Shown,
    all_shown,
    clips,
    comes_true,
    fork_server,
    fork_server_of,
    loader_of,
    marked,
    none_left,
    own_workers,
    runs,
    shown,
    with_a_function,
    with_a_list,
)
from shortgop.errors import DatasetError, DatasetWarning, UsageError
from sweep import sample

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="processes are looked up in /proc"),
    pytest.mark.usefixtures("no_other_loaders"),
]

# Where the machine has nothing else to do, scripts take a few seconds, and processes end within one.
SECONDS = 120
SECONDS_TO_END = 60


# Workers die


def test_a_killed_worker_changes_nothing(clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]) -> None:
    loader = loader_of(clips_dataset)
    seen = []
    for number, batch in enumerate(loader):
        if number in {1, 4}:
            os.kill(own_workers()[0], signal.SIGKILL)
        seen.append(shown(batch))
    assert seen == clips_shown
    assert 1 <= loader.stats().restarts <= 2


def test_a_killed_fork_server_changes_nothing(clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]) -> None:
    """Without it no process reports which workers have ended."""
    loader = loader_of(clips_dataset)
    batches = iter(loader)
    seen = [shown(next(batches))]
    before, server = own_workers(), fork_server()
    os.kill(server, signal.SIGKILL)
    # On a busy machine it could live until the last batch was taken.
    assert comes_true(lambda: not runs(server), SECONDS_TO_END)
    assert [*seen, *all_shown(batches)] == clips_shown
    assert not set(before) & set(own_workers())
    assert not [pid for pid in before if runs(pid)]


def test_a_clip_that_kills_workers_is_an_error_in_the_end(clips_folder: Path, clips_shown: list[Shown]) -> None:
    dataset = clips(clips_folder, transform=KillsItself(1020))
    (draw,) = (draw for batch in clips_shown for draw, video, numbers in batch if numbers[0] == 1020)
    place = next(place for place, batch in enumerate(clips_shown) if draw in [row[0] for row in batch])
    loader = loader_of(dataset)
    seen: list[Shown] = []
    with pytest.raises(DatasetError, match=rf"a worker was killed by SIGKILL .*draws .*\b{draw}\b.* 2 before it"):
        seen.extend(shown(batch) for batch in loader)
    assert seen == clips_shown[:place]
    # The first that did so was reading a clip, and so were the two after it.
    assert loader.stats().restarts == 3
    assert shown(next(iter(loader))) == clips_shown[0]


def test_workers_that_end_before_they_are_ready_are_an_error(
    clips_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_here = types.ModuleType("only_here")
    exec("def transform(frames): return frames", only_here.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    before = own_workers()
    loader = loader_of(clips(clips_folder, transform=only_here.transform))
    for _ in range(2):
        with pytest.raises(
            DatasetError,
            match="one ended with exit code 1 .* be importable, so above that line.* workers=0",
        ):
            next(iter(loader))
    assert set(own_workers()) <= set(before)


def test_workers_that_wait_before_they_are_ready_are_told_of(
    clips_folder: Path, clips_shown: list[Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that made its process group outside of the guard trained nothing, without a word: its workers waited for
    the ranks that had found each other already."""
    monkeypatch.setattr("shortgop.training.loader.pool._SECONDS_UNTIL_TOLD", 0.2)
    loader = loader_of(ArrivesLate(clips_folder, shortgop.AllClips(2)))
    with pytest.warns(DatasetWarning, match="no worker .* after 0.2 s.* below `if .*init_process_group") as caught:
        assert all_shown(loader) == clips_shown
    assert len(caught) == 1


def test_what_a_notebook_defines_is_named(clips_folder: Path) -> None:
    """Workers ended at once, and a notebook does not show what they wrote of it. No file holds its program, as here."""
    program = (
        "import shortgop\n"
        "def brighter(frames): return frames + 1\n"
        "class Clips(shortgop.ClipDataset): pass\n"
        "def batches(made, **options):\n"
        f"    dataset = made({str(clips_folder)!r}, shortgop.AllClips(2), **options)\n"
        "    return len(list(shortgop.ClipLoader(dataset, range(8), batch_size=4, workers=1)))\n"
        "print(batches(shortgop.ClipDataset))\n"
        "batches(Clips, transform=brighter)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.stdout == "2\n"
    assert done.returncode == 1
    assert "UsageError: worker processes do not know Clips, brighter, which this notebook" in done.stderr
    assert "forkserver" not in done.stderr


def test_a_class_or_a_transform_that_cannot_be_sent_is_refused(clips_folder: Path) -> None:
    class Local(shortgop.ClipDataset):
        """As in a notebook."""

    before = own_workers()
    for dataset in (clips(clips_folder, transform=lambda frames: frames), Local(clips_folder, shortgop.AllClips(2))):
        with pytest.raises(UsageError, match="the dataset cannot be sent to a worker process: .* Its class, its tr"):
            next(iter(loader_of(dataset)))
    assert set(own_workers()) <= set(before)


# Items fail


def test_a_daemon_is_told_that_it_has_no_workers(clips_folder: Path) -> None:
    """Such as a process of a Pool: it was an AssertionError of Python."""
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        said, read = pool.apply(read_in_a_daemon, [clips_folder])
    assert "lets daemons start no processes: take workers=0" in said
    assert read == 20


def read_in_a_daemon(folder: Path) -> tuple[str, int]:
    """The error where there are to be workers, and how many batches there are without."""
    with pytest.raises(UsageError) as told:
        next(iter(loader_of(clips(folder), workers=1)))
    return str(told.value), sum(1 for _ in loader_of(clips(folder), workers=0))


def test_an_error_of_a_transform_comes_in_place_of_its_batch(clips_folder: Path, clips_shown: list[Shown]) -> None:
    place = next(place for place, batch in enumerate(clips_shown) if any(numbers[0] == 30 for _, _, numbers in batch))
    loader = loader_of(clips(clips_folder, transform=Refuses(30)))
    for _ in range(2):
        seen: list[Shown] = []
        with pytest.raises(ZeroDivisionError, match="at 30") as raised:
            seen.extend(shown(batch) for batch in loader)
        assert seen == clips_shown[:place]
        notes = raised.value.__notes__
        assert any("which starts at frame 30 of video " in note for note in notes), notes
        (note,) = [note for note in notes if note.startswith("In worker process ")]
        assert 'raise ZeroDivisionError(f"at {self.number}")' in note
    assert loader.stats().restarts == 0


def test_tensors_in_a_list_come_by_value(clips_folder: Path, clips_shown: list[Shown]) -> None:
    """Torch would send descriptors, which end with the worker."""
    loader = loader_of(clips(clips_folder, outputs={"frames": shortgop.Output()}, transform=with_a_list))
    before = len(open_files())
    for batch in loader:
        assert torch.equal(batch["views"][0], batch["frames"][:, 0])
        assert torch.equal(batch["views"][1], batch["frames"][:, 1])
    del batch, loader
    assert len(open_files()) <= before


def test_an_entry_that_cannot_be_sent_is_named_an_error(clips_folder: Path) -> None:
    loader = loader_of(clips(clips_folder, outputs={"frames": shortgop.Output()}, transform=with_a_function))
    with pytest.raises(UsageError, match="an entry of the items cannot be sent to the loader's process"):
        next(iter(loader))
    assert loader.stats().restarts == 0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda start: [7] * (start % 2 + 2), "the entries 'boxes' .* lists of 2 to 3 values, "),
        (lambda start: 7 if start % 2 else None, "the entries 'boxes' .* some are or have None"),
        # Torch takes these, and refuses the batch whose first is None.
        (lambda start: None if start % 2 else "cat", "the entries 'boxes' .* some are or have None"),
        (lambda start: {"noun": [None if start % 2 else "egg"]}, "the entries 'boxes' .* some are or have None"),
    ],
)
def test_entries_that_make_no_batch_are_named(clips_folder: Path, value: Any, words: str) -> None:
    class WithBoxes(shortgop.ClipDataset):
        def items(self, draws: Sequence[int], rows: Any = None) -> list[dict[str, Any]]:
            return [{**item, "boxes": value(item["start"])} for item in super().items(draws, rows)]

    dataset = WithBoxes(clips_folder, shortgop.AllClips(2))
    with pytest.raises(UsageError, match=words + r".*collate=\{'boxes': list\}.* under Lists"):
        next(iter(loader_of(dataset, workers=0, order=shortgop.Sequential())))
    # As it advises.
    batch = next(iter(loader_of(dataset, workers=0, order=shortgop.Sequential(), collate={"boxes": list})))
    assert len(batch["boxes"]) == len(batch["draw"])


# Nothing is left


@contextlib.contextmanager
def consumer(how: str, folder: Path, mark: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A training loop in a process of its own; those that it starts inherit the mark."""
    command = [sys.executable, str(Path(__file__).parents[1] / "shared" / "loader_consumer.py"), how, str(folder)]
    environment = {**os.environ, "SHORTGOP_TEST_MARK": mark}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    ) as process:
        try:
            yield process
        finally:
            for pid in marked(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the loop has ended"
    return line


def lines_until(process: subprocess.Popen[str], wanted: str) -> None:
    """Read what a loop says until it says this."""
    end = time.monotonic() + SECONDS
    said: list[str] = []
    while not said or said[-1] != f"{wanted}\n":
        assert time.monotonic() < end, said[-20:]
        said.append(line_of(process))


# One that is killed while nothing holds it up is that of the next test.
@pytest.mark.parametrize("how", sample(["slow"], more=["runs"]))
def test_workers_end_with_a_consumer_that_is_killed(clips_folder: Path, tmp_path: Path, how: str) -> None:
    with consumer(how, clips_folder, str(tmp_path)) as process:
        line_of(process)
        # The loop, the fork server, what keeps track of its resources, and two workers.
        assert comes_true(lambda: len(list(marked(str(tmp_path)))) == 5, SECONDS_TO_END)
        process.kill()
        assert none_left(str(tmp_path), SECONDS_TO_END)


def test_workers_end_although_another_process_holds_their_pipes(clips_folder: Path, tmp_path: Path) -> None:
    with consumer("forked", clips_folder, str(tmp_path)) as process:
        lines_until(process, "forked")
        _, workers = fork_server_of(process.pid)
        assert len(workers) == 2
        process.kill()
        assert comes_true(lambda: not any(map(runs, workers)), SECONDS_TO_END)
        assert list(marked(str(tmp_path)))


def test_a_consumer_that_leaves_without_closing_leaves_nothing(clips_folder: Path, tmp_path: Path) -> None:
    with consumer("leaves", clips_folder, str(tmp_path)) as process:
        output, _ = process.communicate(timeout=SECONDS)
        assert len(output.splitlines()) == 1
        assert process.returncode == 0
        assert none_left(str(tmp_path), SECONDS_TO_END)


def test_ctrl_c_leaves_nothing(clips_folder: Path, tmp_path: Path) -> None:
    """It reaches all processes of a terminal."""
    with consumer("runs", clips_folder, str(tmp_path), start_new_session=True) as process:
        line_of(process)
        line_of(process)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=SECONDS)
        # Workers say nothing.
        assert output.count("Traceback") == 1
        assert output.splitlines()[-1] == "KeyboardInterrupt"
        assert process.returncode == -signal.SIGINT
        assert none_left(str(tmp_path), SECONDS_TO_END)


def test_a_loop_that_was_interrupted_is_followed_by_another(clips_folder: Path, tmp_path: Path) -> None:
    with consumer("goes on", clips_folder, str(tmp_path)) as process:
        for _ in range(3):
            lines_until(process, "begins")
            line_of(process)
            process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=SECONDS)[0].splitlines()[-1] == "80"
        assert none_left(str(tmp_path), SECONDS_TO_END)


def test_loaders_that_were_dropped_leave_nothing(clips_dataset: shortgop.ClipDataset, clips_shown: list[Shown]) -> None:
    shown(next(iter(loader_of(clips_dataset, 1))))
    gc.collect()
    before, threads = set(open_files()), set(threading.enumerate())
    kept = []
    for number in range(6):
        loader = loader_of(clips_dataset, 1)
        batch = next(iter(loader))
        if number % 3 == 0:
            kept.append(batch)
        del loader, batch
    gc.collect()
    assert not own_workers()
    assert set(threading.enumerate()) <= threads
    assert all_shown(kept) == [clips_shown[0], clips_shown[0]]
    # A batch that is kept holds its memory.
    opened = set(open_files()) - before
    assert len(opened) == len(kept), opened
    kept.clear()
    assert set(open_files()) <= before


# Little is to be had


def test_a_full_dev_shm_does_no_harm(clips_folder: Path, clips_shown: list[Shown]) -> None:
    script = Path(__file__).parents[1] / "shared" / "loader_consumer.py"
    fill = "mount -t tmpfs -o size=16k tmpfs /dev/shm && head -c 16384 /dev/zero > /dev/shm/full"
    own = ["unshare", "-rm", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*own, fill], capture_output=True, check=False).returncode:
        pytest.skip("a /dev/shm of its own takes rights that are missing here")
    command = f'{fill} && exec "$0" "$@"'
    done = subprocess.run(
        [*own, command, sys.executable, str(script), "finds nothing in /dev/shm", str(clips_folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.stdout.splitlines()[-1:] == [str(sum(map(len, clips_shown[1:])))], done.stderr


def test_few_descriptors_do(clips_folder: Path, tmp_path: Path) -> None:
    """64, with more shards than that."""
    copied_shards(clips_folder, tmp_path / "many", 80)
    script = Path(__file__).parents[1] / "shared" / "loader_consumer.py"
    done = subprocess.run(
        [sys.executable, str(script), "few descriptors", str(tmp_path / "many")],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert done.stdout.splitlines()[-1:] == ["400"], done.stderr
