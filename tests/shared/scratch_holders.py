"""Processes that have a copy in the folder for temporary files, as workers have of a source."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# It waits to be killed.
_HOLDER = """
import os, sys, time
from shortgop.storage.scratch import scratch_copy
with scratch_copy("source.mp4") as (path, descriptor):
    os.write(descriptor, bytes(int(sys.argv[1])))
    print(path, flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def holder(temporary: Path, *within: str, num_bytes: int = 5) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A process that has a copy of so many bytes, and the path of that. The process runs in the command `within`."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [*within, sys.executable, "-c", _HOLDER, str(num_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield Path(process.stdout.readline().strip()), process
        finally:
            process.kill()


def killed(temporary: Path, *within: str, num_bytes: int = 5) -> Path:
    """What a process left that was killed."""
    with holder(temporary, *within, num_bytes=num_bytes) as (path, process):
        process.send_signal(signal.SIGKILL)
    assert path.exists()
    return path
