"""Tests that look for what was left open see files, pipes and Unix sockets, and no connections of servers."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from left_open import open_files

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are looked up in /proc")


def opened_since(before: list[str]) -> list[str]:
    return sorted(line.split()[1].split(":")[0] for line in set(open_files()) - set(before))


def test_files_pipes_and_unix_sockets_are_seen(tmp_path: Path) -> None:
    before = open_files()
    with (tmp_path / "file").open("wb"):
        assert opened_since(before) == [str(tmp_path / "file")]
    reading, writing = os.pipe()
    assert opened_since(before) == ["pipe", "pipe"]
    os.close(reading)
    os.close(writing)
    one, other = socket.socketpair()
    with one, other:
        assert opened_since(before) == ["socket", "socket"]


def test_connections_over_the_network_are_not() -> None:
    before = open_files()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert not opened_since(before)
