"""Starting a Ray of a job's own where the machine is busy: it is waited for longer than Ray itself does, and what is
left of one that did not start is ended.

Ray gives up some 30 s after it has started its node, the process raylet (a constant in ray/_private/node.py), and lets
its processes run on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ray
from ray._private import services

from ...storage.this_process import name_and_stat

_PATIENCE_SECONDS = 180.0
_LOOK_SECONDS = 0.2
_NODE = "raylet"


class NotStartedError(Exception):
    """The node of a Ray did not start. `has_ended`: its process has ended, and did not merely take too long."""

    def __init__(self, message: str, *, has_ended: bool = False) -> None:
        super().__init__(message)
        self.has_ended = has_ended


@contextlib.contextmanager
def patient_start(patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[None]:
    """For a block that starts a local Ray with `ray.init`. NotStartedError where its node has ended, or has not
    answered for so long."""
    before = {pid for pid, _, _ in _children()}
    # In a version of Ray that lacks it, Ray waits for as long as it does by itself.
    with another(services, "get_node", lambda ask: _patient(ask, patience_seconds, before)):
        try:
            yield
        except BaseException:
            _end_processes(before)
            raise


@contextlib.contextmanager
def another(
    module: ModuleType, name: str, made_of: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """For a block in which Ray calls another function than its own, which is made of that one. These are no part of
    Ray's interface, so a version may lack one: then nothing is changed."""
    own = getattr(module, name, None)
    if own is None:
        yield
        return
    setattr(module, name, made_of(own))
    try:
        yield
    finally:
        setattr(module, name, own)


def _patient(ask: Callable[..., Any], patience_seconds: float, before: set[int]) -> Callable[..., Any]:
    """What Ray asks for its node by, until it is there: it comes back with an answer, or not at all. Ray itself takes
    half a minute to say that there is none."""

    def answer(*arguments: Any, **options: Any) -> Any:
        began = time.monotonic()
        while True:
            try:
                return ask(*arguments, **options)
            except RuntimeError as error:
                if any(name == _NODE and state == "Z" for pid, name, state in _children() if pid not in before):
                    raise NotStartedError(f"its process {_NODE} has ended", has_ended=True) from error
                waited_seconds = time.monotonic() - began
                if waited_seconds >= patience_seconds:
                    raise NotStartedError(f"its node has not answered for {waited_seconds:.0f} s") from error
            time.sleep(_LOOK_SECONDS)

    return answer


def _end_processes(before: set[int]) -> None:
    """End the processes of Ray that this one has started since. What else it has started has other programs."""
    programs = os.fsencode(str(Path(ray.__file__).parent))
    for pid, _, _ in list(_children()):
        if pid not in before:
            # Another thread may have waited for it by now.
            with contextlib.suppress(OSError):
                if programs in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


def _children() -> Iterator[tuple[int, str, str]]:
    """The number, the name and the state of each process that this one has started and not waited for; the state is Z
    where it has ended."""
    own = str(os.getpid())
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                name, (state, parent, *_) = name_and_stat(int(folder.name))
                if parent == own:
                    yield int(folder.name), name, state
