"""How ffmpeg is started: what it inherits, and that this process goes on whatever the child waits for."""

from __future__ import annotations

import os
import resource
import signal
import time
from io import BytesIO
from pathlib import Path

import pytest

from left_open import open_files
from loader_helpers import comes_true
from shortgop.errors import EncodeError, ToolError
from shortgop.prep.running import processes
from shortgop.prep.running.attempts import raise_if_killed
from shortgop.prep.running.ffmpeg import RunningFfmpeg, find_ffmpeg, running
from started_processes import first_line

SHELL = ["sh", "-c"]


def test_a_program_gets_its_input_and_gives_its_output_and_its_status() -> None:
    done = processes.run([*SHELL, "tr a-z A-Z; echo why >&2; exit 3"], stdin=b"abc", timeout_seconds=30)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"ABC", b"why\n")


def test_more_output_than_a_pipe_holds_is_read_while_the_program_runs() -> None:
    done = processes.run([*SHELL, "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"], timeout_seconds=30)
    assert (len(done.stdout), len(done.stderr)) == (1_000_000, 1_000_000)


def test_a_program_that_does_not_end_in_time_is_killed_with_those_that_it_started() -> None:
    with pytest.raises(TimeoutError, match="sh did not end within"):
        # The number tells these apart from those of another run of the tests.
        processes.run([*SHELL, f"sleep 1000.{os.getpid()} & sleep 1000.{os.getpid()}"], timeout_seconds=0.5)
    mine = f"1000.{os.getpid()}".encode()
    # They may take a moment to end on a busy machine, but would sleep much longer.
    assert comes_true(lambda: not [pid for pid in Path("/proc").glob("[0-9]*") if mine in command_line(pid)], 20)


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_program_that_is_not_there_is_an_error() -> None:
    before = open_files()
    with pytest.raises(FileNotFoundError):
        processes.run(["/nowhere/ffmpeg"], timeout_seconds=30)
    assert set(open_files()) <= set(before)


@pytest.mark.parametrize("left", range(11))
def test_a_process_that_may_open_no_more_files_leaves_none_open(left: int) -> None:
    """An ffmpeg takes eleven for a moment. Up to five stayed open each time, so that it came to no rest any more."""
    path, (soft, hard) = find_ffmpeg().path, resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_files()
    numbers = sorted(int(entry.split()[0]) for entry in before)
    free = [number for number in range(numbers[-1] + 20) if number not in numbers]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[left], hard))
    try:
        with pytest.raises(ToolError, match="cannot start .*: Too many open files"), running(path, [], "<stats>"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_files() == before


def test_a_signal_that_ended_a_program_is_its_status() -> None:
    assert processes.run([*SHELL, "kill -9 $$"], timeout_seconds=30).returncode == -signal.SIGKILL


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (40, "signal 40")])
def test_an_ffmpeg_that_any_signal_ended_is_an_error_that_says_so(number: int, name: str) -> None:
    """Those for real-time programs have no name, and were an error of Python's."""
    done = processes.run([*SHELL, f"kill -{number} $$"], timeout_seconds=30)
    with pytest.raises(EncodeError, match=f"ffmpeg was ended by {name}"):
        raise_if_killed(RunningFfmpeg(BytesIO(), done.returncode), "video.mp4")


def test_programs_end_when_nobody_reads_what_they_write() -> None:
    """Python ignores SIGPIPE, and a child would inherit that."""
    process = processes.start(["yes"], env=os.environ)
    process.stdout.close()
    process.stderr.close()
    assert process.wait(60)
    assert process.returncode == -signal.SIGPIPE


def test_a_child_inherits_its_pipes_and_no_file_of_this_process() -> None:
    (read, end), (other, other_end) = processes.pipes_from_child()
    other.close()
    other_end.close()
    with Path(__file__).open() as file, read:
        process = processes.start([*SHELL, f"ls /proc/self/fd > /dev/fd/{end.number}"], inherit=[end], env=os.environ)
        end.close()
        listed = {int(line) for line in iter(read.readline, b"")}
        assert listed >= {0, 1, 2, end.number}
        assert not listed & {file.fileno(), read.fileno(), process.stdout.fileno(), process.stderr.fileno()}
    assert process.wait(60)
    process.stdout.close()
    process.stderr.close()


def test_starting_a_program_does_not_wait_for_a_mount_on_which_a_file_is_open(dead: Path) -> None:
    """The child closes the file, which this mount never answers. `subprocess.Popen` would not return."""
    code = (
        "import os, sys\n"
        "from shortgop.prep.running import processes\n"
        "file = os.open(sys.argv[1], os.O_RDONLY)\n"
        "process = processes.start(['true'], env=os.environ)\n"
        "print('goes on', process.wait(0.5), flush=True)\n"
    )
    started = time.monotonic()
    assert first_line(code, str(dead / "a.mp4")) == b"goes on False\n"
    assert time.monotonic() - started < 30
