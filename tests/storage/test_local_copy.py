"""A file of a store as a local file: which bytes are fetched, and that they are those of the file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaky_proxy import Faults, FlakyProxy
from scratch_holders import killed
from shortgop.storage.interface import Storage
from shortgop.storage.local_copy import BLOCK_BYTES, local_copy, missing_ranges
from shortgop.storage.locate import storage_at
from store_helpers import put, remove

MANY_BYTES = 40 * BLOCK_BYTES + 1234
CONTENT = random.Random(1).randbytes(MANY_BYTES)
KEY = "folder/file.bin"


@pytest.fixture
def storage() -> Storage:
    """Return a storage with one file, of some blocks and a bit."""
    stored = storage_at(f"memory://{uuid.uuid4().hex}")
    assert stored.put_new(KEY, CONTENT)
    return stored


def test_all_of_a_file_is_fetched(storage: Storage) -> None:
    with local_copy(storage, KEY, "source.bin") as copy:
        copy.fetch_all()
        assert copy.path.read_bytes() == CONTENT
    assert not copy.path.exists()


def test_what_is_fetched_after_the_copy_was_closed_goes_into_no_other_file(storage: Storage, tmp_path: Path) -> None:
    """As by a thread that was given up while a store did not answer: the next file has the number of its descriptor."""
    with local_copy(storage, KEY, "source.bin") as copy:
        pass
    with (tmp_path / "other").open("wb", buffering=0):
        for late in (copy.fetch_all, lambda: copy.fetch([(0, MANY_BYTES)]), lambda: copy.read(0, 1)):
            with pytest.raises(OSError, match="was closed meanwhile"):
                late()
    assert (tmp_path / "other").stat().st_size == 0


def test_what_was_not_fetched_is_a_hole(storage: Storage) -> None:
    with local_copy(storage, KEY, "source.bin") as copy:
        copy.fetch([(BLOCK_BYTES + 10, BLOCK_BYTES + 20)])
        content = copy.path.read_bytes()
        assert content[BLOCK_BYTES : 2 * BLOCK_BYTES] == CONTENT[BLOCK_BYTES : 2 * BLOCK_BYTES]
        assert not any(content[:BLOCK_BYTES])
        assert len(content) == MANY_BYTES
        assert copy.path.stat().st_blocks * 512 < MANY_BYTES


def test_an_empty_file_has_a_copy() -> None:
    storage = storage_at(f"memory://{uuid.uuid4().hex}")
    assert storage.put_new("empty", b"")
    with local_copy(storage, "empty", "source") as copy:
        copy.fetch_all()
        assert copy.reader().read() == copy.path.read_bytes() == b""


def test_a_reader_reads_the_file_wherever_it_is_asked(storage: Storage) -> None:
    draw = random.Random(2)
    with local_copy(storage, KEY, "source.bin") as copy:
        reader = copy.reader()
        for _ in range(200):
            start = reader.seek(draw.randrange(MANY_BYTES + 10))
            num_bytes = draw.choice([1, 100, BLOCK_BYTES, 3 * BLOCK_BYTES])
            assert reader.read(num_bytes) == CONTENT[start : start + num_bytes]
        reader.seek(-5, os.SEEK_END)
        assert reader.read() == CONTENT[-5:]


@given(
    st.lists(st.booleans(), max_size=12),
    st.lists(st.tuples(st.integers(0, 13 * BLOCK_BYTES), st.integers(0, 13 * BLOCK_BYTES)), max_size=5),
    st.integers(1, BLOCK_BYTES),
)
def test_missing_ranges_cover_what_is_wanted_and_nothing_that_is_there(
    has: list[bool], ranges: list[tuple[int, int]], last_bytes: int
) -> None:
    num_bytes = max(0, (len(has) - 1) * BLOCK_BYTES + last_bytes) if has else 0
    found = missing_ranges(bytes(has), ranges, num_bytes)
    blocks = {block for start, stop in found for block in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES))}
    wanted = {
        block
        for start, stop in ranges
        for block in range(start // BLOCK_BYTES, -(-min(stop, num_bytes) // BLOCK_BYTES))
        if start < stop
    }
    assert blocks == {block for block in wanted if not has[block]}
    assert all(start % BLOCK_BYTES == 0 and start < stop <= num_bytes for start, stop in found)
    assert all(one[1] < other[0] for one, other in zip(found, found[1:], strict=False))


def test_a_system_that_reserves_no_space(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as macOS."""
    monkeypatch.delattr(os, "posix_fallocate")
    put(f"{s3_url}/{KEY}", CONTENT)
    with local_copy(storage_at(s3_url), KEY, "source.bin") as copy:
        copy.fetch_all()
        assert copy.path.read_bytes() == CONTENT


def test_a_file_that_is_replaced_meanwhile_is_noticed(s3_url: str) -> None:
    put(f"{s3_url}/{KEY}", CONTENT)
    with local_copy(storage_at(s3_url), KEY, "source.bin") as copy:
        put(f"{s3_url}/{KEY}", CONTENT[::-1])
        with pytest.raises(OSError, match="replaced"):
            copy.fetch_all()


def test_a_file_that_is_removed_meanwhile_is_noticed(s3_url: str) -> None:
    put(f"{s3_url}/{KEY}", CONTENT)
    with local_copy(storage_at(s3_url), KEY, "source.bin") as copy:
        remove(f"{s3_url}/{KEY}")
        with pytest.raises(FileNotFoundError):
            copy.fetch_all()


def test_connections_that_are_cut_in_the_middle_cost_a_retry(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    put(f"{proxied_url}/{KEY}", CONTENT * 3)
    s3_proxy.faults(Faults(seed=3, cut=0.5, failed=0.2))
    with local_copy(storage_at(proxied_url), KEY, "source.bin") as copy:
        copy.fetch_all()
        assert copy.path.read_bytes() == CONTENT * 3


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys, time
        from shortgop.storage.local_copy import local_copy
        from shortgop.storage.locate import storage_at
        storage = storage_at("memory://x")
        storage.put_new("a", bytes(1 << 20))
        with local_copy(storage, "a", "source") as copy:
            print(copy.path, flush=True)
            time.sleep(float(sys.argv[1]))
    """)
    settings = {**os.environ, "TMPDIR": str(tmp_path)}

    def start(seconds: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, str(seconds)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings)

    with start(60) as killed, start(60) as running:
        assert killed.stdout is not None
        assert running.stdout is not None
        left, kept = (Path(process.stdout.readline().strip()) for process in (killed, running))  # type: ignore[union-attr]
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert left.exists()
        with start(0) as after:
            after.communicate()
        assert not left.exists()
        assert kept.exists(), "a process that runs keeps its copy"
        running.kill()


def test_what_a_process_leaves_that_is_killed_later_is_removed_by_those_that_go_on(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of Ray makes many copies, one after the other."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with local_copy(storage, KEY, "source.bin"):
        pass
    left = killed(tmp_path)
    with local_copy(storage, KEY, "source.bin"):
        assert not left.exists()
