"""Looking at sources that do not answer: Ctrl-C does not wait for them, and on a cluster another machine looks."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from loader_helpers import comes_true
from long_sources import make_sources, run_in_sections
from ray_heads import BIN, Head, free_ports, ray_head
from ray_machines import alive_at
from shortgop.cli.app import EXIT_INTERRUPTED
from shortgop.jobs.cluster import ray_looks
from shortgop.jobs.cluster.ray_connection import connected
from shortgop.jobs.cluster.ray_looks import is_late, looks_on_cluster
from shortgop.jobs.sources.look import NOTHING, look_at
from shortgop.jobs.units_of_work.where import Where
from shortgop.jobs.working import second_attempts
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from source_arguments import find_sources
from started_processes import descendants
from sweep import only_in_a_sweep
from synthetic import SyntheticVideo, constant_rate_pts, make_video

pytestmark = pytest.mark.long

_IN_WINDOWS = """
import sys
from shortgop.jobs.prepare import prepare
from shortgop.jobs.units_of_work.where import Where
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
prepare([sys.argv[1]], DiskStorage(sys.argv[2]), Profile(), where=Where("inline"), window_sources=2)
"""


@pytest.fixture
def hanging(dead: Path, constant_video: SyntheticVideo, tmp_path: Path) -> Path:
    """Make a list of five sources. The last one never gives a byte."""
    for name in "abcd":
        (tmp_path / f"{name}.mp4").write_bytes(constant_video.path.read_bytes())
    names = [*(f"{tmp_path}/{name}.mp4" for name in "abcd"), f"{dead}/e.mp4"]
    (tmp_path / "list.txt").write_text("\n".join(names))
    return tmp_path / "list.txt"


def interrupted(command: list[str], read: Path) -> tuple[int, str]:
    """The exit status and the messages of a command that gets Ctrl-C while it reads there. It ends soon."""
    with subprocess.Popen(["env", "--default-signal=INT", *command], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert comes_true(lambda: any(str(read) in line for _, line in descendants(process.pid)), 60)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            return process.returncode, said
        finally:
            process.kill()


def test_ctrl_c_does_not_wait_for_a_source_that_does_not_answer(hanging: Path, dead: Path, tmp_path: Path) -> None:
    command = [str(BIN / "shortgop"), "prep", str(hanging), "--out", str(tmp_path / "dataset"), "--runner", "inline"]
    status, said = interrupted(command, dead / "e.mp4")
    assert status == EXIT_INTERRUPTED
    assert "interrupted; finished work is kept, and the same command goes on from there" in said


def test_ctrl_c_does_not_wait_for_a_source_of_a_later_window(hanging: Path, dead: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _IN_WINDOWS, str(hanging), str(tmp_path / "dataset")]
    status, said = interrupted(command, dead / "e.mp4")
    assert status == -signal.SIGINT, said
    assert "KeyboardInterrupt" in said


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """Start the machine that sees all sources."""
    with ray_head(token=False) as head:
        yield head


@contextlib.contextmanager
def second_machine(head: Head, hidden: Path, shown: Path, cpus: int = 2) -> Iterator[None]:
    """A machine of the cluster that sees the folder `shown` in the place of `hidden`."""
    tried = ["unshare", "--mount", "true"]
    if not shutil.which("unshare") or subprocess.run(tried, capture_output=True, check=False).returncode:
        pytest.skip("showing another folder to processes takes rights that are missing here")
    agent, runtime = free_ports(2)
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    command = [
        "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(shown), str(hidden),
        str(BIN / "ray"), "start", "--block", f"--address={head.address}", f"--num-cpus={cpus}", "--min-worker-port=0",
        "--max-worker-port=0", f"--dashboard-agent-listen-port={agent}", f"--runtime-env-agent-port={runtime}",
    ]  # fmt: skip
    # The one of an earlier test may still be known.
    assert comes_true(lambda: len(alive_at(head.address)) == 1, 120)
    process = subprocess.Popen(command, env=dict(head.environment), stdout=subprocess.DEVNULL)
    try:
        assert comes_true(lambda: len(alive_at(head.address)) == 2, 120)
        yield
    finally:
        process.terminate()
        process.wait(90)


def test_what_one_machine_cannot_read_another_one_looks_at(
    head: Head, dead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the sources are looked at where none gives a byte."""
    sources = tmp_path / "sources"
    sources.mkdir()
    made = make_video(tmp_path / "a.mp4", pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30))
    for number in range(8 * 10):
        (sources / f"{number:03}.mp4").hardlink_to(made.path)
    # So many that those on the mount take more than a minute to be given up, one after the other.
    monkeypatch.setattr(ray_looks, "_TASK_SOURCES", 10)
    # Also where the machines, which are one, are busy with other tests.
    monkeypatch.setattr(ray_looks, "_PATIENCE_SECONDS", 300)
    # The others take far less than a second.
    monkeypatch.setattr(ray_looks, "_LEAST_SECONDS", 1.0)
    options, found = Options(Profile()), find_sources([str(sources)])
    with (
        second_machine(head, sources, dead),
        connected(head.address, None, 0) as ask_slots,
        looks_on_cluster(ask_slots) as look,
    ):
        looked = look(found, options, NOTHING, 0)
    assert looked == look_at(found, options)


@only_in_a_sweep
def test_a_look_at_a_long_source_that_hangs_on_one_machine_is_attempted_on_another(
    head: Head, dead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_attempts, "_LEAST_SECONDS", 1.0)
    sources = tmp_path / "sources"
    sources.mkdir()
    (made := tmp_path / "made").mkdir()
    make_sources(made)
    for number in range(4):
        (sources / f"{number}.mp4").write_bytes((made / "long.mp4").read_bytes())
    with second_machine(head, sources, dead, cpus=1):
        started = time.monotonic()
        report = run_in_sections(sources, tmp_path / "dataset", Where(address=head.address))
        assert time.monotonic() - started < 110, "it waited until a look gave up"
    assert (report.videos_added, report.failures) == (4, ())


def test_what_is_late_is_far_behind_others_of_which_enough_have_ended() -> None:
    assert not is_late(59, [], 4)
    assert not is_late(59, [1, 1], 9)
    assert not is_late(5, [1, 1], 8)
    assert is_late(6, [1, 1], 8)
    assert not is_late(19, [10, 10], 8)
    assert is_late(21, [10, 10], 8)
