"""Kills what belongs to a ClipLoader at random moments, and compares what training saw with the undisturbed sequence.

A case is a training run of some epochs in a process of its own. It writes a line for each batch: what the batch shows,
and the state after it. Meanwhile workers, the fork server, the training process, or all of them are killed; the run
goes on from the last line that was written whole. In the end the lines have to be those of an undisturbed run, and no
process may be left. The same seed is the same cases, though not the same moments.

    python tests/shared/loader_chaos.py --seconds 600 --seed 0
    python tests/shared/loader_chaos.py --loaders 1000
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import shortgop
from left_open import open_files
from loader_helpers import BATCH_BYTES, clips, fork_server_of, make_clips, marked, none_left, shown
from loader_helpers import own_workers as workers_of_this_process
from shortgop.errors import DatasetError

# A run that gives no line for so long hangs.
_SECONDS_PER_LINE = 120
_SECONDS_TO_END = 30
_LONGEST_STEP_SECONDS = 0.08
_MARK = "SHORTGOP_CHAOS"


@dataclass(frozen=True)
class Case:
    """One training run."""

    dataset: str
    seed: int
    workers: int
    threads: int
    batch: int
    chunk: int
    """0 for the order that shuffles single clips."""
    slots: int
    """How many batches of four clips prefetch_bytes has room for, besides those of a window."""
    keep: int
    """How many batches the training loop keeps."""
    leave: float
    """How likely it leaves its loop after a batch, and begins another with a new loader."""
    epochs: int = 4

    def loader(self, workers: int) -> shortgop.ClipLoader:
        dataset = clips(self.dataset, seed=self.seed)
        order = shortgop.Chunked(self.chunk, 4) if self.chunk else None
        sampler = shortgop.ElasticSampler(dataset, self.batch, order=order, seed=self.seed)
        window = sampler.window_batches
        room = (window + max(2, self.slots)) * -(-self.batch // 4) * BATCH_BYTES
        threads = self.threads if workers else 1
        return shortgop.ClipLoader(dataset, sampler, workers=workers, threads=threads, prefetch_bytes=room)


def case_of(dataset: str, number: int) -> Case:
    """The case of a number."""
    rng = random.Random(number)
    return Case(
        dataset=dataset,
        seed=rng.randrange(3),
        workers=rng.randint(1, 4),
        threads=rng.randint(1, 3),
        batch=rng.choice([1, 3, 4, 8]),
        chunk=rng.choice([0, 0, 3, 4]),
        slots=rng.choice([2, 3, 8, 30]),
        keep=rng.choice([0, 0, 1, 5]),
        leave=rng.choice([0.0, 0.0, 0.05]),
    )


def undisturbed(case: Case) -> list[Any]:
    """What each batch of all epochs shows, read without other processes."""
    loader = case.loader(0)
    seen = []
    for epoch in range(case.epochs):
        _sampler(loader).set_epoch(epoch)
        seen += [_plain(batch) for batch in loader]
    return seen


def _sampler(loader: shortgop.ClipLoader) -> shortgop.ElasticSampler:
    assert isinstance(loader.sampler, shortgop.ElasticSampler)
    return loader.sampler


def _plain(batch: Any) -> Any:
    return json.loads(json.dumps(shown(batch)))


def lines_of(log: Path) -> list[dict[str, Any]]:
    """The lines that were written whole; what follows them is cut off."""
    if not log.exists():
        return []
    data = log.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(log, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def train(case: Case, log: Path, seed: int) -> None:
    """What is disturbed: goes on from the last line."""
    rng = random.Random(seed)
    before = len(open_files()), threading.active_count()
    loaders = 0
    while True:
        lines = lines_of(log)
        loader = case.loader(case.workers)
        loaders += 1
        if lines:
            loader.load_state_dict(lines[-1]["state"])
        if _sampler(loader).epoch >= case.epochs:
            break
        _train_for_a_while(case, loader, log, rng)
        if rng.random() < 0.5:
            loader.close()
        del loader
    del loader
    gc.collect()
    # The fork server and what keeps track of resources stay with their process: a pipe to each.
    assert len(open_files()) <= before[0] + 3, open_files()
    assert threading.active_count() == before[1], threading.enumerate()
    assert not workers_of_this_process()
    print(f"ended after {loaders} loaders", flush=True)


def _train_for_a_while(case: Case, loader: shortgop.ClipLoader, log: Path, rng: random.Random) -> None:
    kept: list[tuple[Any, Any]] = []
    with log.open("ab", buffering=0) as file:
        for epoch in range(_sampler(loader).epoch, case.epochs):
            _sampler(loader).set_epoch(epoch)
            for batch in loader:
                shows = shown(batch)
                file.write(json.dumps({"shows": shows, "state": batch.state}).encode() + b"\n")
                if case.keep:
                    kept.append((batch, shows))
                    for earlier, showed in kept[: -case.keep]:
                        assert shown(earlier) == showed, "a batch that is kept has changed"
                    del kept[: -case.keep]
                if rng.random() < case.leave:
                    return
                time.sleep(_LONGEST_STEP_SECONDS * rng.random())
                del batch


class Disturbance:
    """Runs a case, kills what belongs to it, and counts that."""

    def __init__(self, case: Case, folder: Path, seed: int) -> None:
        self.case, self.log, self.said = case, folder / "log", folder / "said"
        self._file = folder / "case.json"
        self._file.write_text(json.dumps(asdict(case)))
        self._rng = random.Random(seed)
        self._mark = f"{_MARK}{folder}/"
        self.counts: Counter[str] = Counter()
        self.slowest_end = 0.0

    def run(self, stop_killing: float) -> None:
        """Until the run has ended by itself. AssertionError when it fails, hangs, or leaves something."""
        while True:
            self.counts["runs"] += 1
            process = self._started()
            ended = self._disturb(process, stop_killing)
            code = process.wait()
            self._all_gone()
            if ended and code == 0:
                self.counts["loaders"] += int(self.said.read_text().split()[-2])
                return
            if ended and not self._gave_up():
                raise AssertionError(f"{self.case} ended with {code}: {self.said.read_text()[-3000:]}")

    def _gave_up(self) -> bool:
        """Whether the run ended as it is told to where a unit's workers were killed three times, or ten workers in a
        row before they were ready."""
        said = self.said.read_text().splitlines()[-1]
        self.counts["given up"] += 1
        ends = ("was killed by SIGKILL while", "ended with exit code 255 while"), "as did 2 before it"
        starts = ("was killed by SIGKILL before", "ended with exit code 255 before"), "workers do not start"
        return DatasetError.__name__ in said and any(
            any(how in said for how in hows) and what in said for hows, what in (ends, starts)
        )

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, "--case", str(self._file), "--seed", str(self._rng.randrange(1 << 30))]
        with self.said.open("wb") as said:
            return subprocess.Popen(
                command,
                env={**os.environ, _MARK: self._mark, "TMPDIR": str(self.log.parent)},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def _disturb(self, process: subprocess.Popen[bytes], stop_killing: float) -> bool:
        """Kill this and that. Returns whether the run has ended by itself."""
        first = size = self._size()
        last = time.monotonic()
        while True:
            wait = self._rng.choice([0.01, 0.1, 0.3, 1.0, 2.0]) * self._rng.random()
            with suppress(subprocess.TimeoutExpired):
                process.wait(wait)
                return True
            now = self._size()
            if now != size:
                size, last = now, time.monotonic()
            elif time.monotonic() - last > _SECONDS_PER_LINE:
                states = [(pid, Path(f"/proc/{pid}/stack")) for pid in marked(self._mark)]
                os.killpg(process.pid, signal.SIGABRT)
                raise AssertionError(f"{self.case} hangs: {self.said.read_text()[-2000:]} {states}")
            if time.monotonic() < stop_killing and self._kill(process, has_trained=now > first):
                return False

    def _size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def _kill(self, process: subprocess.Popen[bytes], *, has_trained: bool) -> bool:
        """Kill something, or nothing. Returns whether it was the training process."""
        server, workers = fork_server_of(process.pid)
        what = self._rng.choices(["worker", "fork server", "training", "all", "nothing"], [12, 1, 1, 1, 12])[0]
        if what == "worker" and workers:
            pids = self._rng.sample(workers, self._rng.choice([1, 1, 1, len(workers)]))
        elif what == "fork server" and server:
            pids = [server]
        elif what == "training" and has_trained:
            pids = [process.pid]
        elif what == "all" and has_trained:
            pids = sorted([process.pid, server, *workers] if server else [process.pid])
        else:
            return False
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.counts[f"killed: {what}"] += 1
        return process.pid in pids

    def _all_gone(self) -> None:
        started = time.monotonic()
        assert none_left(self._mark, _SECONDS_TO_END), f"{self.case} left {list(marked(self._mark))}"
        self.slowest_end = max(self.slowest_end, time.monotonic() - started)


def run_case(dataset: str, number: int, folder: Path, expected: dict[Any, list[Any]], stop: float) -> Disturbance:
    """Run the case of a number; AssertionError when it saw anything but the undisturbed sequence."""
    case = case_of(dataset, number)
    key = case.seed, case.batch, case.chunk
    if key not in expected:
        expected[key] = undisturbed(case)
    disturbance = Disturbance(case, folder, number)
    disturbance.run(stop)
    seen = [line["shows"] for line in lines_of(disturbance.log)]
    assert seen == expected[key], f"{case}: {len(seen)} batches, {len(expected[key])} undisturbed"
    disturbance.counts["batches"] += len(seen)
    return disturbance


def cases(seconds: float, first: int, root: Path) -> Iterator[Disturbance]:
    """Run cases for so long."""
    dataset, stop = str(make_clips(root)), time.monotonic() + seconds
    expected: dict[Any, list[Any]] = {}
    for number in itertools.count(first):
        if time.monotonic() > stop:
            return
        folder = root / str(number)
        folder.mkdir()
        yield run_case(dataset, number, folder, expected, stop)


def make_and_drop(dataset: Any, loaders: int) -> None:
    """AssertionError when loaders that were made, read from once, and dropped leave anything."""

    def one() -> None:
        sampler = shortgop.ElasticSampler(dataset, 4)
        loader = shortgop.ClipLoader(dataset, sampler, workers=1, prefetch_bytes=4 * BATCH_BYTES)
        shown(next(iter(loader)))

    one()
    gc.collect()
    before = len(open_files()), threading.active_count(), _resident_bytes()
    for _ in range(loaders):
        one()
    gc.collect()
    assert not workers_of_this_process()
    assert len(open_files()) == before[0], open_files()
    assert threading.active_count() == before[1]
    grown = _resident_bytes() - before[2]
    print(f"{loaders} loaders made and dropped: the process has grown by {grown / 1e6:.1f} MB", flush=True)
    # A few kB each would be a leak.
    assert grown < 8_000_000 + 2_000 * loaders


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run cases, or one training run of a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="begin no case, and kill nothing, after this time")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--loaders", type=int, default=0, help="make and drop so many loaders instead")
    parser.add_argument("--case", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.case:
        train(Case(**json.loads(given.case.read_text())), given.case.with_name("log"), given.seed)
        return
    totals: Counter[str] = Counter()
    slowest, started = 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as name, suppress(KeyboardInterrupt):
        root = Path(name)
        if given.loaders:
            make_and_drop(clips(make_clips(root)), given.loaders)
            return
        for done in cases(given.seconds, given.seed, root):
            totals += done.counts
            totals["cases"] += 1
            slowest = max(slowest, done.slowest_end)
            print(f"{time.monotonic() - started:6.0f} s  {dict(totals)}", flush=True)
    print(f"Every sequence was the undisturbed one, and all processes had ended {slowest:.1f} s after a run at most")


if __name__ == "__main__":
    main()
