"""Nodes of Ray that start only what a job needs, for tests that start them in their own process. Each process that is
left out is a Python that takes most of a second of a core to start, and the node waits for most of them:

- Told to have no dashboard, Ray starts its process all the same, for statistics of use.
- The server of Ray Client is for drivers that are no part of the cluster.
- One agent of a node is for the dashboard and for metrics, the other one for tasks that want an environment of their
  own. In their places is `bare_agent.py`.

What `ray start` starts is all of Ray, as users have it, and so is everything in a sweep.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import bare_agent
from sweep import SWEEP

_OF_HEADS = ("start_api_server", "start_ray_client_server")
# What asks for more machines, and what sends workers' lines to drivers that want them. `ray.init` has no options for
# these.
_HELPERS = ("start_monitor", "start_log_monitor")
_AGENTS = ("/dashboard/agent.py", "/runtime_env/agent/main.py")


@contextlib.contextmanager
def bare_nodes(*, helpers: bool = True) -> Iterator[None]:
    """Nodes that this process starts in the block are such; without `helpers` they have none either."""
    if SWEEP:
        yield
        return
    from ray._private.node import Node

    def start_nothing(node: Any, **_: Any) -> None:
        """Ray warns at most where it fails to start one of these."""

    with contextlib.ExitStack() as patches:
        for name in (*_OF_HEADS, *(() if helpers else _HELPERS)):
            patches.enter_context(mock.patch.object(Node, name, start_nothing))
        # With this Ray writes the commands of the agents, which the node starts.
        patches.enter_context(mock.patch.object(subprocess, "list2cmdline", _with_bare_agent))
        yield


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """For a block that calls `ray.init`, which switches tokens on for good: they are off again afterwards."""
    from shortgop.jobs.cluster.ray_login import restored_login

    with bare_nodes(helpers=False), restored_login():
        yield


def _with_bare_agent(words: Sequence[str], plainly: Any = subprocess.list2cmdline) -> str:
    if any(word.endswith(_AGENTS) for word in words):
        words = [sys.executable, "-SE", bare_agent.__file__, *words]
    text: str = plainly(words)
    return text
