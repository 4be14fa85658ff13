"""What a unit asks of a machine's memory is enough, and no more runs on a machine than it can hold."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from loader_helpers import comes_true
from own_units import make_own_units
from ray_heads import cluster_of
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.units_of_work.task_memory import looks_of_driver, reserved_bytes, task_bytes
from shortgop.prep.profile import Profile, Size
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from started_processes import descendants
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

MB, GB = 10**6, 10**9

_MEASURED = """
import json, resource, sys
import shortgop
report = shortgop.prepare([sys.argv[1]], sys.argv[2], runner="inline", size=int(sys.argv[3]) or None)
assert not report.failures
own, ffmpeg = (resource.getrusage(who).ru_maxrss << 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps(own + ffmpeg))
"""


@pytest.mark.parametrize("size", [0, 256])
def test_a_unit_takes_no_more_than_it_asked_for(tmp_path: Path, size: int) -> None:
    source = tmp_path / "a.mp4"
    make_video(
        source, pts=constant_rate_pts(Fraction(30), 60), timebase=Fraction(1, 30), size=(1280, 720),
        options={"preset": "ultrafast"},
    )  # fmt: skip
    # A shell between the two: the peak of a process includes that of the one that it was forked from.
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    command = [*shell, sys.executable, "-c", _MEASURED, str(source), str(tmp_path / "dataset"), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    pixels = size * size * 16 // 9 if size else 1280 * 720
    assert json.loads(done.stdout) <= task_bytes(1280 * 720, pixels, "h264", 60, salvage=False)


@only_in_a_sweep
def test_a_worker_and_its_ffmpeg_take_no_more_than_their_task_asked_ray_for(tmp_path: Path) -> None:
    """A worker of Ray has more than a plain process. What it shares with others counts in part, as on a machine where
    each core has one."""
    source, (width, height) = tmp_path / "a.mp4", (1920, 1080)
    make_video(
        source, pts=constant_rate_pts(Fraction(30), 60), timebase=Fraction(1, 30), size=(width, height),
        options={"preset": "ultrafast"},
    )  # fmt: skip
    reserved: list[float] = []

    def note_reserved() -> None:
        if ray.is_initialized():
            all_, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
            reserved.append(all_["memory"] - free.get("memory", 0.0))

    with cluster_of({"num_cpus": 1, "memory": 2 * GB}) as (cluster, _), ThreadPoolExecutor(1) as beside:
        for side in (256, height):
            reserved.clear()
            ended = threading.Event()
            most = beside.submit(_most_bytes_of_encoders, ended)
            try:
                report = prepare(
                    [str(source)], DiskStorage(tmp_path / str(side)), Profile(size=Size(side)),
                    where=Where(address=cluster.address), on_update=lambda _: note_reserved(),
                )  # fmt: skip
            finally:
                ended.set()
            assert report.videos_added == 1
            declared = task_bytes(width * height, side * side * width // height, "h264", 60, salvage=False)
            assert 0 < most.result() <= declared <= max(reserved)


def _most_bytes_of_encoders(ended: threading.Event) -> int:
    """The most memory that a worker of Ray which encodes has together with its ffmpeg, until the job has ended."""
    most = 0
    while not ended.wait(0.05):
        for worker, command in descendants(os.getpid()):
            if command.startswith("ray::encode "):
                below = [pid for pid, _ in descendants(worker)]
                most = max(most, sum(_pss_bytes(pid) for pid in (worker, *below)))
    return most


def _pss_bytes(pid: int) -> int:
    """The memory that a process has alone, and its share of what it has with others; 0 if it has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return 0


def test_a_machine_begins_no_more_than_it_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has two cores, and memory for one unit. What stands for ffmpeg notes when it begins and when it has ended."""
    notes, program, ffmpeg = tmp_path / "notes", tmp_path / "ffmpeg", find_ffmpeg().path
    sources = make_own_units(tmp_path / "sources", 4)
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *.mp4*) echo + >> {notes}; "{ffmpeg}" "$@"; code=$?; echo - >> {notes}; exit $code;; esac\n'
        f'exec "{ffmpeg}" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(program))
    with cluster_of({"num_cpus": 2, "memory": 300 * MB}) as (cluster, _):
        where = Where(address=cluster.address)
        report = prepare([str(sources)], DiskStorage(tmp_path / "dataset"), Profile(), where=where)
    assert (report.videos_added, report.failures) == (4, ())
    assert notes.read_text().split() == ["+", "-"] * 4


@only_in_a_sweep
def test_a_unit_whose_machine_is_lost_runs_where_there_is_less_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit asks for more than the machine that is left has. ffmpeg stands still on the one that is lost."""
    (source,) = make_own_units(tmp_path / "sources", 1).iterdir()
    program, stood = tmp_path / "ffmpeg", tmp_path / "stood"
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *.mp4*) mkdir {stood} 2> /dev/null && while kill -0 $PPID; do sleep 0.2; done;; esac\n'
        f'exec "{find_ffmpeg().path}" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(program))
    notes: list[str] = []
    with cluster_of({"num_cpus": 1, "memory": 100 * MB}, {"num_cpus": 1, "memory": 2 * GB}) as (cluster, (_, large)):

        def lose_it() -> None:
            assert comes_true(stood.exists, 60)
            cluster.remove_node(large, allow_graceful=False)

        with ThreadPoolExecutor(1) as beside:
            lost = beside.submit(lose_it)
            report = prepare(
                [str(source)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where(address=cluster.address),
                on_update=lambda progress: notes.append(progress.note),
            )  # fmt: skip
            lost.result()
    assert (report.videos_added, report.failures) == (1, ())
    assert "encoding, 2 at a time" in notes
    # Before the semicolon stands how many fit at once, which Ray may correct only after the unit has ended.
    assert notes[-1].endswith("; 1 unit may need more memory than any machine has and will run alone on one")


@given(st.integers(0, 10**11), st.integers(0, 10**12))
def test_what_is_reserved_is_enough_or_the_largest_machine(expected: int, largest: int) -> None:
    reserved = reserved_bytes(expected, largest)
    assert reserved == largest or expected <= reserved < largest


def test_a_driver_looks_at_no_more_sources_than_a_quarter_of_its_memory_is_enough_for() -> None:
    of_memory = {gigabytes: looks_of_driver(gigabytes * GB) for gigabytes in (0, 1, 2, 4, 8, 1000)}
    assert of_memory == {0: 1, 1: 2, 2: 4, 4: 8, 8: 16, 1000: 16}


def test_without_a_machine_a_unit_asks_for_what_it_needs() -> None:
    assert reserved_bytes(500_000_000, None) == 2 * 256 * 2**20


def test_few_amounts_are_asked_for() -> None:
    assert len({reserved_bytes(expected, 64 * GB) for expected in range(1, 2 * GB, 1_000_000)}) == 8
