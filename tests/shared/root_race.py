"""Two processes race for the root of a dataset, again and again: one winner each time, and nothing lost.

    python tests/shared/root_race.py --rounds 1000 --where disk
    python tests/shared/root_race.py --rounds 1000 --where s3
    python tests/shared/root_race.py --rounds 1000 --where flaky
    python tests/shared/root_race.py --rounds 1000 --where lockless
    python tests/shared/root_race.py --rounds 1000 --folder /mnt/data --other-host "ssh two" [--lockless]

In a round both processes commit a part and read the root. At one moment both replace the root that they have read, and
then both publish, without a lock. Just one may replace the root that both have read, and who comes second learns it. A
dataset is used for some rounds. Then all that either process ever wrote is in it, and each snapshot has all that was in
the one before it.

`lockless` is a disk on which no lock is granted, as on some mounts of network file systems. There both may replace one
root, and what one of them changed in it is lost, but no part and no snapshot.

With `--other-host` the second process runs on another host, by a command that runs one there: both hosts have the same
Python, tests and folder at the same paths. `scripts/nfs_hosts.sh` starts two such hosts with a folder over NFS.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dataset_places import Places, folders, prefixes, s3_settings
from example_manifests import failure
from flaky_proxy import FLAKY, flaky_proxy
from s3_server import s3_server
from shortgop.errors import DatasetBusyError
from shortgop.manifests.dataset_files.layout import ROOT_KEY, snapshots
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import Root, change_root, create, read_root, root_document
from shortgop.manifests.dataset_files.snapshot_files import snapshot_attributes
from shortgop.manifests.dataset_files.snapshots import open_manifest
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at

_ROUNDS_PER_DATASET = 25
_RACERS = ("left", "right")
# Both processes wait for this moment, awake. It takes longer to tell another host.
_HEAD_START_SECONDS = 0.005
_HEAD_START_SECONDS_ELSEWHERE = 0.1


@dataclass(frozen=True)
class Race:
    """How rounds ended: how many there were, in how many neither process knew that its root was the one that stayed (an
    answer was lost), in how many both replaced it, and how many publications came second."""

    rounds: int
    unknown: int
    both: int
    second: int


def race(
    rounds: int,
    places: Places,
    *,
    answers_are_lost: bool = False,
    has_locks: bool = True,
    other_host: Sequence[str] = (),
) -> Race:
    """Run so many rounds. AssertionError if both or none won one, or if anything was lost. `other_host` is what the
    command of the second process goes behind, to run it there."""
    done = unknown = both = second = 0
    with contextlib.ExitStack() as running:
        behind = ((), other_host)
        # A mount of another host grants locks or not, by itself.
        lockless = not has_locks and not other_host
        racers = [running.enter_context(_racer(*each, lockless=lockless)) for each in zip(_RACERS, behind, strict=True)]
        head_start = _HEAD_START_SECONDS_ELSEWHERE if other_host else _HEAD_START_SECONDS
        while done < rounds:
            dataset, number = places.new(), min(_ROUNDS_PER_DATASET, rounds - done)
            create(dataset, {})
            for each in range(number):
                ended = _round(racers, dataset, each, head_start)
                winners = sum(one["won"] for one in ended)
                may_be = {1, *((0,) if answers_are_lost else ()), *(() if has_locks else (2,))}
                assert winners in may_be, f"{winners} replaced one root"
                unknown += winners == 0
                both += winners == 2
                second += sum(one["second"] for one in ended)
            _check(dataset, number, has_locks=has_locks)
            done += number
    return Race(done, unknown, both, second)


def _round(racers: list[subprocess.Popen[str]], dataset: Storage, number: int, head_start: float) -> list[Any]:
    for racer in racers:
        _say(racer, {"dataset": dataset.url, "round": number})
    for racer in racers:
        assert _hear(racer) == "ready"
    at = time.time() + head_start
    for racer in racers:
        _say(racer, at)
    return [_hear(racer) for racer in racers]


def _check(dataset: Storage, rounds: int, *, has_locks: bool) -> None:
    """All that both wrote is there, and each snapshot holds those before it."""
    publish(dataset)
    everything = sorted(_name(racer, number) for racer in _RACERS for number in range(rounds))
    root = read_root(dataset)
    assert sorted(root.id_roots) == everything or not has_locks
    chain = [set(snapshot_attributes(dataset, name)["parts"]) for name in sorted(snapshots(dataset))]
    assert all(earlier < later for earlier, later in zip(chain, chain[1:], strict=False))
    assert max(snapshots(dataset)) == root.snapshot
    assert root.snapshot is not None
    assert open_manifest(dataset, root.snapshot).failures.id.texts() == everything


@contextlib.contextmanager
def _racer(name: str, behind: Sequence[str], *, lockless: bool) -> Iterator[subprocess.Popen[str]]:
    command = [*behind, sys.executable, __file__, "--racer", name, *(("--lockless",) if lockless else ())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _say(racer: subprocess.Popen[str], what: object) -> None:
    assert racer.stdin is not None
    racer.stdin.write(json.dumps(what) + "\n")
    racer.stdin.flush()


def _hear(racer: subprocess.Popen[str]) -> Any:
    assert racer.stdout is not None
    line = racer.stdout.readline()
    assert line, "a process of the race has ended"
    return json.loads(line)


# One of the two processes


def _name(racer: str, number: int) -> str:
    return f"{racer}{number:03}"


def _added(root: Root, name: str) -> Root:
    """The root with one more folder. A change whose answer was lost is not made twice."""
    return root if name in root.id_roots else replace(root, id_roots=(*root.id_roots, name))


def _without_locks() -> None:
    def no_lock(_file: Any, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    fcntl.flock = no_lock  # as a mount without locks answers


def _run(racer: str) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        dataset, name = storage_at(asked["dataset"]), _name(racer, asked["round"])
        write_part(dataset, name, failure(name, "cut short"))
        # What `find` says of a file on NFS may be some seconds old.
        with dataset.open(ROOT_KEY) as opened:
            version = opened.stored.version
        root = read_root(dataset)
        print(json.dumps("ready"), flush=True)
        at = json.loads(sys.stdin.readline())
        while time.time() < at:
            pass
        won = dataset.replace(ROOT_KEY, root_document(_added(root, name)), version)
        if not won:
            change_root(dataset, partial(_added, name=name))
        second = False
        try:
            publish(dataset)
        except DatasetBusyError as error:
            second = "published snapshot 0" in str(error)
        print(json.dumps({"won": won, "second": second}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--where", choices=("disk", "lockless", "s3", "flaky"), nargs="*", default=["disk", "s3"])
    parser.add_argument("--folder", type=Path, help="where --other-host and this host both have their datasets")
    parser.add_argument("--other-host", type=shlex.split, help="what runs a command on the other host")
    parser.add_argument("--lockless", action="store_true", help="the folder grants no locks, or only to its own host")
    parser.add_argument("--racer", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.racer:
        if arguments.lockless:
            _without_locks()
        _run(arguments.racer)
        # Threads of a store's library may still run.
        os._exit(0)
    if arguments.other_host:
        started = time.monotonic()
        ended = race(
            arguments.rounds,
            folders(arguments.folder),
            has_locks=not arguments.lockless,
            other_host=arguments.other_host,
        )
        _print("two hosts", ended, started)
        return
    for where in arguments.where:
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            if where in ("disk", "lockless"):
                places = folders(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            else:
                endpoint = stack.enter_context(s3_server())
                if where == "flaky":
                    proxy = stack.enter_context(flaky_proxy(endpoint))
                    proxy.faults(FLAKY)
                    endpoint = proxy.endpoint
                stack.enter_context(s3_settings(endpoint))
                places = prefixes()
            ended = race(arguments.rounds, places, answers_are_lost=where == "flaky", has_locks=where != "lockless")
        _print(where, ended, started)


def _print(where: str, ended: Race, started: float) -> None:
    print(
        f"{where}: {ended.rounds} rounds, one winner in {ended.rounds - ended.both}, both in {ended.both}, and "
        f"nothing lost; {ended.unknown} winners did not learn it; {ended.second} publications came second and were "
        f"told so; {time.monotonic() - started:.0f} s"
    )


if __name__ == "__main__":
    main()
