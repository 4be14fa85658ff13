"""Runs commands, each in a process of its own that is killed by SIGKILL before one of its changes to a dataset, or not.

    python killed_command.py

Each line on standard input asks for a command, each line on standard output says how it ended: see `CommandRunner`.
The processes are forked from this one, which has imported what commands need and has tried the encoder: starting a
Python for each command takes ten times what the commands of small datasets do. It ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import layers_everywhere
from killed_steps import kill_at
from s3_server import share_models


@dataclass(frozen=True)
class Ended:
    """How a command ended. `changes` is how many changes to the dataset it made, unless it was killed."""

    killed: bool
    status: int
    changes: int
    output: str
    errors: str


@dataclass(frozen=True)
class CommandRunner:
    """How a test speaks to the process from which commands are forked."""

    process: subprocess.Popen[str]

    def run(self, folder: Path, dataset: str, command: Sequence[str], change: int = 0) -> Ended:
        """Run a command in a folder, killed before its change number `change`, from 1, to a dataset, given by its path
        or URL; without a change of that number it ends by itself."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"folder": str(folder), "dataset": dataset, "command": list(command), "change": change}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the process that runs commands has ended"
        return Ended(**json.loads(line))


@contextlib.contextmanager
def command_runner() -> Iterator[CommandRunner]:
    """Start the process from which commands are forked, with the environment that this one has now."""
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield CommandRunner(process)
        finally:
            process.kill()


def _warm_up() -> None:
    """Import what commands import, and find out what ffmpeg can do."""
    from shortgop.cli import edit_commands, prepare_command  # noqa: F401
    from shortgop.jobs import prepare, running  # noqa: F401
    from shortgop.manifests.operations import annotate, collect, drop  # noqa: F401
    from shortgop.prep import encode  # noqa: F401
    from shortgop.prep.profile import Profile
    from shortgop.prep.tools.tool_choice import check_tools

    check_tools(Profile())
    if "AWS_ENDPOINT_URL" in os.environ:
        import obstore.store  # noqa: F401

        share_models()


def _run(asked: dict[str, Any]) -> Ended:
    from shortgop.cli import app

    # A lock that a thread holds when the process is forked is never released.
    assert threading.active_count() == 1
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as changes:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os.chdir(asked["folder"])
            count, status = kill_at(asked["change"], asked["dataset"]), 0
            try:
                app(asked["command"])
            except SystemExit as error:
                status = int(error.code or 0)
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(changes.fileno(), str(count()).encode())
            os._exit(status)
        _, ended = os.waitpid(child, 0)
        for file in (output, errors, changes):
            file.seek(0)
        killed = os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL
        said = [file.read().decode() for file in (output, errors)]
        return Ended(killed, os.waitstatus_to_exitcode(ended), int(changes.read() or 0), *said)


def main() -> None:
    _warm_up()
    if layers_everywhere.in_environment():
        layers_everywhere.begin()
    for line in sys.stdin:
        print(json.dumps(asdict(_run(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
