"""A shard goes up while it is written: neither memory nor the folder for temporary files holds it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from datasets import current_manifest
from shortgop.storage.locate import storage_at
from started_processes import descendants

pytestmark = pytest.mark.long

MEGABYTE = 1 << 20

UPLOAD = """
import os, sys
from process_memory import peak_bytes
from shortgop.storage.locate import storage_at

place, num_pieces = storage_at(sys.argv[1]), int(sys.argv[2])
place.put_new("first", b"the client is there")
before = peak_bytes()
upload = place.start("shards/long", ".shard")
for _ in range(num_pieces):
    upload.write(os.urandom(1 << 20))
print(upload.commit(), peak_bytes() - before)
"""


def run_and_look(command: list[str], temporary: Path) -> tuple[str, int]:
    """Run a command whose folder for temporary files is `temporary`. Returns what it prints, and the most bytes that
    were in the folder at any time, those of open files without a name too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        seen = [0]
        while process.poll() is None:
            seen.append(sum(sizes_below(temporary, process.pid).values()))
            time.sleep(0.01)
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 0
    assert len(seen) > 50
    return said, max(seen)


def sizes_below(folder: Path, pid: int) -> dict[int, int]:
    """The sizes of all files in a folder, by inode: those that are listed, and those that a process and its children
    have open."""
    found = {}
    for file in [*folder.rglob("*"), *open_files(folder, pid)]:
        with contextlib.suppress(OSError):
            stat = file.stat()
            found[stat.st_ino] = stat.st_size if file.is_file() else 0
    return found


def open_files(folder: Path, pid: int) -> Iterator[Path]:
    for each in (pid, *(child for child, _ in descendants(pid))):
        with contextlib.suppress(OSError):
            yield from (
                fd
                for fd in Path(f"/proc/{each}/fd").iterdir()
                if os.readlink(fd).startswith(str(folder))  # noqa: PTH115
            )


def test_files_without_a_name_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(bytes(1000))
    with tempfile.TemporaryFile(dir=tmp_path) as unnamed:
        unnamed.write(bytes(234))
        unnamed.flush()
        assert sum(sizes_below(tmp_path, os.getpid()).values()) == 1234


def test_a_long_shard_is_never_whole_on_this_host(s3_url: str, tmp_path: Path) -> None:
    num_pieces = 160
    said, most_bytes = run_and_look([sys.executable, "-c", UPLOAD, s3_url, str(num_pieces)], tmp_path)
    key, num_bytes = said.split()
    found = storage_at(s3_url).find(key)
    assert found is not None
    assert found.num_bytes == num_pieces * MEGABYTE
    # Four parts of 8 MiB are on their way, and what the client adds.
    assert int(num_bytes) < 80 * MEGABYTE
    assert most_bytes == 0


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a video of which no encoder makes little."""
    path, draws = tmp_path_factory.mktemp("noise") / "noise.mp4", np.random.default_rng(0)
    with av.open(path, "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"crf": "1", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 640, 360, "yuv420p"
        for _ in range(48):
            picture = draws.integers(0, 256, (540, 640), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="yuv420p")))
        container.mux(stream.encode())
    return path


def test_a_job_needs_less_of_the_disk_than_one_segment(s3_url: str, noise: Path, tmp_path: Path) -> None:
    options = ["--crf", "1", "--preset", "ultrafast", "--segment-seconds", "16/25", "--runner", "inline"]
    command = [sys.executable, "-m", "shortgop", "prep", str(noise), "--out", s3_url, *options]
    _, most_bytes = run_and_look(command, tmp_path)
    manifest = current_manifest(storage_at(s3_url))
    (num_bytes,) = manifest.shards.length.tolist()
    assert num_bytes > 16 * MEGABYTE
    assert len(manifest.segments.offset) == 3
    assert most_bytes < manifest.gops.length.min()
