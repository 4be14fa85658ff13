"""Kills what belongs to a Ray cluster at random moments, and compares the dataset with that of an undisturbed job.

A case is a job that prepares some sources into a new dataset, in half of the cases in several windows, on a cluster of
three machines of one core each. While it runs, workers, whole machines, the driver and the head are killed, and
machines lose their network. What a cluster manager starts again is started again: machines. What a user would run again
is run again: the job, after its driver or the head died. In the end the dataset has to be that of an undisturbed plain
loop, with nothing else in its folders, and the machines' folders for temporary files may have nothing left in them but
what `machine_leftovers.py` allows.

    python tests/shared/cluster_chaos.py --seconds 600 --seed 0
    python tests/shared/cluster_chaos.py --seconds 600 --where s3
    python tests/shared/cluster_chaos.py --seconds 600 --where flaky --sources s3 flaky

The same seed is the same cases, though not the same moments. `--where` and `--sources` say where datasets and sources
lie: on a disk, in S3, or in S3 over a network that fails now and then. Of several kinds of sources a case has the one
that its seed chooses, after all else: so the kills of a seed are the same whatever is given. Where sources lie in a
store, workers and machines that have a copy of one are killed before others.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import shortgop
from chaos_corpus import STEP, Corpus, make_corpus, run
from chaos_stores import KINDS, stores_of
from dataset_places import left_over, shard_names
from datasets import current_manifest, rows_of
from machine_leftovers import assert_nothing_left, opened_by
from ray_machines import Machines, machines, may_have_networks, start_missing
from shortgop.jobs.prepare import Where
from shortgop.jobs.progress.job_status import read_status
from shortgop.jobs.sources.failing import WORKER_DIED
from shortgop.jobs.units_of_work.windows import WINDOW_SOURCES
from shortgop.manifests.dataset_files.layout import ROOT_KEY
from shortgop.manifests.dataset_files.parts import finished_parts
from shortgop.manifests.operations.verify import verify
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from synthetic import read_number

# A job that changes nothing in its dataset for so long hangs.
_PATIENCE_SECONDS = 300
_SECONDS_TO_END = 30
_ENDED = (0, 3)
_KINDS = ("worker", "machine", "cut off", "driver", "head")
_AGENTS = (b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")


@dataclass(frozen=True)
class Case:
    """One job. `kills` are what is killed, at moments that the seed chooses. The driver runs on the head."""

    seed: int
    has_sections: bool
    kills: tuple[str, ...]
    window_sources: int = WINDOW_SOURCES
    longest_wait_seconds: float = 4.0
    sources: str = "disk"
    """Where they lie, of `KINDS`."""
    longest_wait_for_copies_seconds: float = 5.0
    """Where they lie in a store, what is killed next should have the copy of one."""


def case_of(seed: int, separate: bool, sources: Sequence[str] = ("disk",)) -> Case:
    """The case of a number. Its sources lie at one of these places."""
    rng = random.Random(seed)
    weights = [10, 4, 2 if separate else 0, 3, 2]
    return Case(
        seed=seed,
        has_sections=rng.random() < 0.5,
        kills=tuple(rng.choices(_KINDS, weights, k=rng.randint(4, 9))),
        window_sources=rng.choice([4, WINDOW_SOURCES]),
        sources=rng.choice(sources),
    )


def job(sources: str, dataset: str, address: str, window_sources: str = str(WINDOW_SOURCES)) -> None:
    """What a driver runs: `shortgop prep`, which has no options for the length of sections and for windows."""
    import typer

    from shortgop.cli.app import EXIT_SOMETHING_MISSING, errors

    faulthandler.enable()
    try:
        with errors():
            where = Where(address=address)
            report = run(sources, storage_at(dataset), where, window_sources=int(window_sources))
    except typer.Exit as error:
        sys.exit(error.exit_code)
    sys.exit(EXIT_SOMETHING_MISSING if report.failures else 0)


class Disturbance:
    """Runs a case, kills what belongs to it, and counts that. `when_all_are_killed` is called after the last kill."""

    def __init__(
        self,
        case: Case,
        cluster: Machines,
        corpus: Corpus,
        dataset: Storage,
        when_all_are_killed: Callable[[], object] = bool,
    ) -> None:
        self.case, self.cluster, self.dataset = case, cluster, dataset
        self._when_all_are_killed = when_all_are_killed
        self.sources = corpus.sources(case.has_sections)
        in_store = dataset.folder is None
        self.undisturbed = corpus.undisturbed(case.has_sections, case.window_sources, in_store=in_store)
        self.said = cluster.folder / f"driver-{case.seed}.log"
        self.counts: Counter[str] = Counter()
        self.slowest_end = 0.0
        self._rng = random.Random(case.seed)
        self._kills = list(case.kills)

    def run(self) -> None:
        """Until the job has ended by itself. AssertionError when it fails or hangs, or the dataset is another one."""
        while not self._ends():
            pass
        self._look_at_status()
        self._compare()
        self._look_at_machines()

    def _ends(self) -> bool:
        """Run the job once. Returns whether it was done."""
        start_missing(self.cluster)
        machine = self.cluster.all["head"]
        self.counts["runs"] += 1
        job = [self.sources, self.dataset.url, self.cluster.address, str(self.case.window_sources)]
        command = [sys.executable, __file__, "--job", *job]
        with self.said.open("ab") as said:
            process = subprocess.Popen(
                machine.at(command), env=self.cluster.environment | machine.own_environment,
                stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        try:
            return self._disturb(process)
        finally:
            process.kill()
            process.wait()

    def _disturb(self, process: subprocess.Popen[bytes]) -> bool:
        head, cut_off = self.cluster.all["head"], False
        heard, before = time.monotonic(), ""
        kill_at = self._next_kill()
        while process.poll() is None:
            time.sleep(0.02)
            now = self._looks_like()
            if now != before:
                before, heard = now, time.monotonic()
            if time.monotonic() - heard > _PATIENCE_SECONDS:
                # So that it says where it is.
                process.send_signal(signal.SIGABRT)
                process.wait(_SECONDS_TO_END)
                known = f"{len(self.cluster.alive())} of {len(self.cluster.all)} machines, number {self.cluster.number}"
                raise AssertionError(f"{self.case} hangs with {known}, after {dict(self.counts)}: {self.log()}")
            if not self.cluster.is_whole():
                start_missing(self.cluster)
            # The lock is there when the job has begun to write.
            if time.monotonic() > kill_at and ".lock" in now and self._may_kill(kill_at):
                what = next((what for what in self._kills if self._kill(what, process)), None)
                if what is not None:
                    cut_off |= what == "cut off"
                    self._kills.remove(what)
                    kill_at, heard = self._next_kill(), time.monotonic()
                    if not self._kills:
                        self._when_all_are_killed()
        code = process.returncode
        self.counts[f"ended with {code}"] += 1
        if code in _ENDED:
            return True
        excused = code == -signal.SIGKILL or self.cluster.all.get("head") is not head or not head.runs or cut_off
        if not excused and not self._was_aborted(code):
            raise AssertionError(f"{self.case} ended with {code}: {self.log()}")
        self.slowest_end = max(self.slowest_end, time.monotonic() - heard)
        return False

    def _was_aborted(self, code: int) -> bool:
        """Whether Ray 2.60 aborted the driver, as it may where it is stopped while a task ends."""
        return code == -signal.SIGABRT and "not pending" in self.log()

    def _may_kill(self, kill_at: float) -> bool:
        """Whether it is time. That comes later where there may be copies of sources, and what is killed has none."""
        if self.case.sources == "disk" or time.monotonic() > kill_at + self.case.longest_wait_for_copies_seconds:
            return True
        what = (*self._kills, "")[0]
        return what not in {"worker", "machine", "cut off"} or any(
            what == "worker" or name != "head" for name in self._copying()
        )

    def _copying(self) -> dict[str, list[int]]:
        """The workers that have a copy of a source, on each machine with such workers."""
        found = {}
        for name, machine in self.cluster.all.items():
            found[name] = [pid for pid in workers_of(machine.pids("ray::")) if opened_by(pid, machine.temporary)]
        return {name: pids for name, pids in found.items() if pids}

    def _next_kill(self) -> float:
        return time.monotonic() + self.case.longest_wait_seconds * self._rng.random() ** 2

    @property
    def killed(self) -> int:
        return sum(count for what, count in self.counts.items() if what.startswith("killed"))

    def log(self) -> str:
        return self.said.read_text(errors="replace")[-4000:]

    def _looks_like(self) -> str:
        files = [each.key for each in self.dataset.files("") if not each.key.startswith("manifest")]
        has_lock = self.dataset.find(".lock") is not None
        return " ".join([*sorted(files), ".lock" if has_lock else ""])

    def _kill(self, what: str, process: subprocess.Popen[bytes]) -> bool:
        """Kill something, of which some may have copies of sources. False where there is none of it just now."""
        cluster, copying = self.cluster, self._copying()
        others = [name for name in cluster.all if name != "head" and cluster.all[name].ip in cluster.alive()]
        had_copy = bool(copying)
        if what == "worker":
            workers = list(chain.from_iterable(copying.values()))
            workers = workers or [pid for machine in cluster.all.values() for pid in workers_of(machine.pids("ray::"))]
            if not workers:
                return False
            with suppress(ProcessLookupError):
                os.kill(self._rng.choice(workers), signal.SIGKILL)
        elif what == "driver":
            process.kill()
        elif what == "head":
            had_copy = what in copying
            cluster.kill("head")
        elif not others:
            return False
        else:
            name = self._rng.choice([name for name in others if name in copying] or others)
            had_copy = name in copying
            if what == "cut off":
                cluster.all[name].cut_off()
            else:
                cluster.kill(name)
        self.counts[f"killed: {what}"] += 1
        self.counts["kills of those with copies"] += had_copy
        return True

    def _look_at_status(self) -> None:
        """What `shortgop status` says of the last job."""
        found = read_status(self.dataset)
        assert (found.state, found.running) == ("finished", ()), found
        assert found.sources_done == found.sources_total, found
        assert found.frames_done == found.frames_planned, found

    def _look_at_machines(self) -> None:
        """What is left in their folders for temporary files."""
        for name, machine in list(self.cluster.all.items()):
            if machine.is_cut_off:
                # It goes on with what it had.
                self.cluster.kill(name)
        self.counts["files of killed processes"] += assert_nothing_left(self.cluster)

    def _compare(self) -> None:
        """AssertionError where the dataset is not the undisturbed one."""
        failed = {failure.id: failure.reason for failure in shortgop.open(self.dataset.url).failures}
        aside = [video_id for video_id, reason in failed.items() if WORKER_DIED in reason]
        assert failed.keys() == {"broken.mp4", *aside}, failed
        if aside:
            # Killed four times, each time by us.
            self.counts["set aside"] += len(aside)
            assert len([kill for kill in self.case.kills if kill not in ("driver", "head")]) > 3, failed
        # Workers that were killed last left temporary files at most.
        assert_nothing_else(self.dataset)
        # The next job, which removes them.
        windows = self.case.window_sources
        report = run(self.sources, self.dataset, Where("inline"), retry_failed=True, window_sources=windows)
        assert report.videos_added == len(aside), report
        assert_same(self.dataset, self.undisturbed)
        exact = rows_of(self.dataset) == rows_of(self.undisturbed)
        self.counts["equal, row for row and byte for byte" if exact else "equal, of which units were split"] += 1


def workers_of(pids: Sequence[int]) -> list[int]:
    """Those that run tasks or actors, or wait for some."""
    found = []
    for pid in pids:
        with suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            if title.startswith(b"ray::") and not title.startswith(_AGENTS):
                found.append(pid)
    return found


def assert_same(one: Storage, other: Storage) -> None:
    """Everything that readers see is the same, and nothing else is there. Units that were split have shards of their
    own: then the rows of shards, and which of them holds a segment, may differ."""
    assert list(verify(one, current_manifest(one))) == []
    assert content_of(one) == content_of(other)
    assert left_over(one) == []
    assert_nothing_else(one)
    if shard_names(one) == shard_names(other):
        assert rows_of(one) == rows_of(other)
        assert len(finished_parts(one)) >= len(finished_parts(other))
    for video in shortgop.open(one.url):
        stem = Path(video.id).stem.partition("-")[0]
        first = STEP * int(stem[5:]) if stem != "long" else 0
        last = len(video) - 1
        shown = [read_number(frame) for frame in video.get_frames_at([0, last]).data]
        assert shown == [first, first + last], video.id


def assert_nothing_else(dataset: Storage) -> None:
    """Besides temporary files there are those of a finished dataset, and no other."""
    shards = {f"shards/{name}" for name in current_manifest(dataset).shards.name.texts()}
    keys = {each.key for each in dataset.files("") if not each.key.startswith(".tmp/")}
    others = keys - shards - {ROOT_KEY, ".status.json", ".lock"}
    assert shards <= keys
    assert {key for key in others if not key.startswith(("manifest/", "parts/"))} == set()


def content_of(dataset: Storage) -> dict[str, Any]:
    """All rows, except where their bytes lie. The bytes are those that the checksums in the rows say."""
    places = ("shards.", "segments.shard", "segments.offset", "gops.offset", "bytes of ")
    return {name: rows for name, rows in rows_of(dataset).items() if not name.startswith(places)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run cases, or the driver of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="begin no case after this time")
    parser.add_argument("--kills", type=int, default=1_000_000, help="begin no case after so many kills")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--where", choices=KINDS, default="disk", help="where the datasets lie")
    parser.add_argument("--sources", choices=KINDS, nargs="+", default=["disk"], help="where the sources lie")
    parser.add_argument("--together", action="store_true", help="give the machines no networks of their own")
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.job:
        job(*given.job)
        return
    # Told to end, it ends what it started.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    separate = not given.together and may_have_networks()
    network = "with networks of their own" if separate else "on one network"
    print(f"machines {network}, datasets on {given.where}, sources on {' or '.join(given.sources)}")
    totals: Counter[str] = Counter()
    slowest, started = 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as name, suppress(KeyboardInterrupt):
        root, killed = Path(name), 0
        corpus = make_corpus(root / "sources")
        chosen = (case_of(number, separate, given.sources) for number in count(given.seed))
        with (
            machines(separate=separate) as cluster,
            stores_of(cluster, corpus, root, {given.where, *given.sources}) as stores,
        ):
            for case in chosen:
                done = Disturbance(case, cluster, stores.corpus_at(case.sources), stores.new(given.where))
                with stores.disturbed(case.sources, given.where, case.seed):
                    done.run()
                totals += done.counts
                totals["cases"] += 1
                totals[f"sources on {case.sources}"] += 1
                killed += done.killed
                slowest = max(slowest, done.slowest_end)
                print(f"{time.monotonic() - started:6.0f} s  {dict(sorted(totals.items()))}", flush=True)
                if time.monotonic() - started > given.seconds or killed >= given.kills:
                    break
    print(f"{killed} kills: every dataset was the undisturbed one; a driver ended {slowest:.0f} s after a loss at most")


if __name__ == "__main__":
    main()
