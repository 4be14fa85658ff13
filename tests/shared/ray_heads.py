"""Real Ray clusters for tests: `ray start --head` in a home, a folder and on ports of its own, ended without fail.

`ray stop` is never called: it ends every Ray on the machine, other people's included.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import bare_ray
from started_processes import descendants, kill, naming, opened_processes

BIN = Path(sys.executable).parent
# What asks for more machines, and what sends workers' lines to drivers that want them: each is a Python that takes half
# a second of a core to start.
WITHOUT_HELPERS = ("--no-monitor", "--include-log-monitor=false")
_PATIENCE_SECONDS = 90


@dataclass(frozen=True)
class Head:
    """A cluster of one node. `environment` is that of a user on its machine, with the token that the cluster wants, if
    it wants one, in its home."""

    address: str
    dashboard: str
    environment: Mapping[str, str]

    @property
    def token_file(self) -> Path:
        return Path(self.environment["HOME"]) / ".ray" / "auth_token"


def user_environment(home: Path, **more: str) -> dict[str, str]:
    """What a user of this machine has in the environment who never set anything of Ray's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return kept | {"HOME": str(home), "PATH": path, "RAY_USAGE_STATS_ENABLED": "0"} | more


@contextlib.contextmanager
def ray_head(
    *options: str,
    token: bool,
    within: tuple[str, ...] = (),
    helpers: tuple[str, ...] = WITHOUT_HELPERS,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Head]:
    """Start a head as the README says, and end it; without a dashboard, which is several processes, unless an option
    asks for one. `within` is a command that runs another one, such as `unshare`, `settings` are set in the head's
    environment."""
    # Ray puts sockets there, whose paths have to be shorter than 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sg-", dir="/tmp"))
    home = folder / "home"
    (home / ".ray").mkdir(parents=True)
    # A job that is told to end has time to, also on a busy machine.
    environment = user_environment(home, RAY_TMPDIR=str(folder), RAY_JOB_STOP_WAIT_TIME_S="60", **settings)
    if token:
        (home / ".ray" / "auth_token").write_text(secrets.token_hex(32))
    port, client, dashboard, agent = free_ports(4)
    command = [
        *within, str(BIN / "ray"), "start", "--head", "--block", f"--port={port}", "--num-cpus=2",
        "--include-dashboard=false", *helpers,
        "--min-worker-port=0", "--max-worker-port=0", f"--ray-client-server-port={client}",
        f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}", *options,
    ]  # fmt: skip
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)
    try:
        address = _address(folder / "ray" / "ray_current_cluster", log, process)
        yield Head(address, f"http://127.0.0.1:{dashboard}", environment)
        assert process.poll() is None, f"the head ended by itself:\n{log.read_text()}"
    finally:
        _end(process, folder)
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports at which no process listens. They are none of those that the system gives out: another Ray that starts at
    the same time takes such, and would have one before the Ray that it is meant for."""
    found: set[int] = set()
    while len(found) < count:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("", port))
            found.add(port)
    return list(found)


def _address(file: Path, log: Path, process: subprocess.Popen[bytes]) -> str:
    """What `ray start` writes into a file for `auto`, when all else is done."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not (file.exists() and (address := file.read_text().strip())):
        assert process.poll() is None, f"the head did not start:\n{log.read_text()}"
        assert time.monotonic() < end, f"waited in vain for the head:\n{log.read_text()}"
        time.sleep(0.05)
    return address


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Kill a head with all its processes. Told to end, `ray start` would wait for one after the other."""
    with opened_processes({*(pid for pid, _ in descendants(process.pid)), *naming(f"{folder}/")}) as below:
        process.kill()
        process.wait()
        kill(below)


@contextlib.contextmanager
def cluster_of(*machines: Mapping[str, Any]) -> Iterator[tuple[Any, list[Any]]]:
    """A cluster of machines that are processes of this one, for a driver in this process: Ray's own means for tests,
    and the machines. Each is given as Ray takes it; the first one is the head."""
    cluster, started = _cluster_of(machines)
    try:
        yield cluster, started
    finally:
        _shut_down(cluster)


def _cluster_of(machines: Sequence[Mapping[str, Any]], attempts: int = 3) -> tuple[Any, list[Any]]:
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster()
    try:
        without = {"include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
        with bare_ray.bare_nodes():
            return cluster, [cluster.add_node(**without, **machine) for machine in machines]
    except RuntimeError:
        # A busy machine may need longer for a process to start than Ray waits for it.
        _shut_down(cluster)
        if attempts == 1:
            raise
        return _cluster_of(machines, attempts - 1)


def _shut_down(cluster: Any) -> None:
    """Kill all machines. `Cluster.shutdown` tells one process after the other to end, and waits for it."""
    nodes = list(cluster.list_all_nodes())
    pids = (process.pid for node in nodes for _, process in node.live_processes())
    with opened_processes({pid for each in pids for pid in (each, *(below for below, _ in descendants(each)))}) as all_:
        kill(all_)
        for node in reversed(nodes):
            cluster.remove_node(node, allow_graceful=False)
            # A machine is part of a cycle. Its client crashes a forked process in which garbage is collected.
            node._gcs_client = None
