"""Files of a loader's memory, passed to its workers through the pipe that messages go through as well."""

from __future__ import annotations

import multiprocessing
import os
import resource
import socket
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from shortgop.training.loader.passed_files import pass_file, passed_file


@pytest.fixture
def ends() -> tuple[Connection, Connection]:
    return multiprocessing.Pipe()


def test_a_file_comes_between_messages(ends: tuple[Connection, Connection], tmp_path: Path) -> None:
    here, there = ends
    (tmp_path / "x").write_text("in the file")
    with (tmp_path / "x").open() as file:
        here.send("before")
        pass_file(here, file.fileno())
        here.send("after")
    assert there.recv() == "before"
    with os.fdopen(passed_file(there)) as passed:
        assert passed.read() == "in the file"
    assert there.recv() == "after"


def test_the_end_of_the_other_process_is_no_file(ends: tuple[Connection, Connection]) -> None:
    here, there = ends
    here.close()
    with pytest.raises(EOFError):
        passed_file(there)


def test_a_process_with_too_many_open_files_is_told_so(ends: tuple[Connection, Connection], tmp_path: Path) -> None:
    """It was taken for the end of the other process, and the worker ended without a word."""
    here, there = ends
    with (tmp_path / "x").open("w") as file:
        pass_file(here, file.fileno())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Room for the copy of the pipe's descriptor, and for no other.
    fewest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()) + 1
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(fewest)]
    os.close(held.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 2, limits[1]))
    try:
        with pytest.raises(OSError, match="as many open files as it may"):
            passed_file(there)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in held:
            os.close(number)


def test_a_timeout_that_a_script_set_for_all_sockets_is_not_that_of_the_pipe(
    ends: tuple[Connection, Connection], tmp_path: Path
) -> None:
    here, there = ends
    earlier = socket.getdefaulttimeout()
    socket.setdefaulttimeout(2)
    try:
        with (tmp_path / "x").open("w") as file:
            pass_file(here, file.fileno())
        os.close(passed_file(there))
    finally:
        socket.setdefaulttimeout(earlier)
    assert os.get_blocking(here.fileno())
    assert os.get_blocking(there.fileno())
