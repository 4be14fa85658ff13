"""Checks that end in every way in which one can; tests/gpu/test_gpu_check.py runs them."""

from __future__ import annotations

import builtins
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu_environment
from check_record import FailedOutOfTimeError, OutOfTime, Record, Skipped

from shortgop.errors import ShortGopError
from shortgop.readers.gpu.annex_b import annex_b
from shortgop.warned import warn


def passes(record: Record) -> None:
    record.figure("frames_per_second", 12.5)


def fails(record: Record) -> None:
    print("before the failure")
    raise ValueError("frame 3 shows 4")


def fails_below(record: Record) -> None:
    try:
        annex_b(b"\0\0\0\\9", length_bytes=4)
    except ShortGopError as error:
        raise RuntimeError("no frames are counted") from error


def fails_in_a_library(record: Record) -> None:
    json.loads("{")


def skips(record: Record) -> None:
    record.figure("libcuda", False)
    raise Skipped("there is no GPU")


def measures_a_part(record: Record) -> None:
    record.figure("first", 1)
    raise OutOfTime("there was no time to measure 1 reader: second")


def fails_and_measures_a_part(record: Record) -> None:
    raise FailedOutOfTimeError("first: wrong; there was no time to measure second")


def warns_and_passes(record: Record) -> None:
    for _ in range(2):
        warn("frames are converted by plain torch")


def tells_its_process(record: Record) -> None:
    record.figure("ahead", hasattr(builtins, "ahead"))
    record.figure("process", os.getpid())
    record.figure("seconds_left", record.deadline - time.perf_counter())


def waits_for_the_next_process(record: Record) -> None:
    tells_its_process(record)
    while not (record.samples / "imported").exists():
        time.sleep(0.05)


def opens_a_socket(record: Record) -> None:
    """As the processes of a loader do, in a folder of their own."""
    path = Path(tempfile.mkdtemp(prefix="pymp-"), "listener-12345678")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def tells_room(record: Record) -> None:
    gpu_environment.report_room(record)


def takes_seconds(record: Record) -> None:
    time.sleep(17)


def imports_what_is_not_there(record: Record) -> None:
    importlib.import_module("no_such_module")


def writes_and_crashes(record: Record) -> None:
    record.figure("file", tempfile.mkstemp()[1])
    os.kill(os.getpid(), signal.SIGKILL)


def crashes(record: Record) -> None:
    record.figure("opened", True)
    os.kill(os.getpid(), signal.SIGSEGV)


def crashes_after_its_end(record: Record) -> None:
    # As a library does whose state is taken down in the wrong order.
    record.end("passed", "")
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(record: Record) -> None:
    record.figure("first", 1)
    # What it started has to end too.
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    record.figure("pid_of_child", child.pid)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def exits(record: Record) -> None:
    os._exit(7)


def leaves_garbage(record: Record) -> None:
    os.write(1, b"\xff\xfe\x1b[31m{]" * 1000 + b"\n")
    with record._report.open("ab") as file:
        file.write(b'\x80{"figure": \n[1, 2]\nnull\n{"result": "great"}\n{"figure": "half')


def prints_without_end(record: Record) -> None:
    while True:
        os.write(1, b"x" * 100_000 + b"\n")
