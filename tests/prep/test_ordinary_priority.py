"""Programs that prep starts stay at the priority of the others on the machine, also where root starts them."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

import pytest

from loader_helpers import comes_true
from shortgop.prep.running import processes
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.running.ordinary_priority import with_ordinary_priority

TEN_MINUTES = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=30:duration=600"]
TO_AV1 = ["-c:v", "libsvtav1", "-f", "null", "-"]
CAP_SYS_NICE = 1 << 23


def policies(pid: int) -> dict[str, int]:
    """The scheduling policy of each thread of a process: sched(7), SCHED_OTHER is 0 and SCHED_FIFO 1."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        # The name of the program may hold spaces: the fields are counted after it. The policy is the 41st.
        found[task.name] = int((task / "stat").read_text().rpartition(")")[2].split()[38])
    return found


def test_ffmpeg_encodes_av1_at_the_ordinary_priority() -> None:
    """As root, SVT-AV1 would take a real-time priority, and all other programs would wait for it."""
    process = processes.start([find_ffmpeg().path, *TEN_MINUTES, *TO_AV1], env=processes.environment())
    try:
        # SVT-AV1 has threads for each of its stages.
        assert comes_true(lambda: len(policies(process.pid)) > 20, 30)
        assert set(policies(process.pid).values()) == {os.SCHED_OTHER}
    finally:
        processes.end(process)
        process.stdout.close()
        process.stderr.close()


def test_the_thread_that_starts_a_program_keeps_its_capabilities() -> None:
    def bounding_set() -> int:
        status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
        return int(status.partition("CapBnd:")[2].split()[0], 16)

    before = bounding_set()
    done = processes.run(["grep", "CapEff", "/proc/self/status"], timeout_seconds=30)
    assert bounding_set() == before
    assert not int(done.stdout.split()[1], 16) & CAP_SYS_NICE


@pytest.mark.skipif(os.geteuid() != 0, reason="without root a program is started by the thread that asks for it")
def test_a_program_that_starts_while_a_signal_interrupts_is_ended() -> None:
    ended: list[int] = []

    def start() -> int:
        os.kill(os.getpid(), signal.SIGUSR1)
        # Let the waiting thread be interrupted before the program has started.
        time.sleep(0.2)
        return 1234

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise InterruptedError("a signal")

    earlier = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(InterruptedError, match="a signal"):
            with_ordinary_priority(start, ended.append)
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert ended == [1234]
