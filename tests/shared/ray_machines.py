"""Machines of a Ray cluster, all of them on this one, to be killed as a whole.

Where this process may, each machine has a network, process numbers and a host name of its own (namespaces of Linux),
and they reach each other over a bridge. Elsewhere they are groups of processes. A machine that is killed ends without a
word.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loader_helpers import comes_true, marked, none_left
from ray_heads import BIN, WITHOUT_HELPERS, free_ports, user_environment
from started_processes import descendants, kill, opened_processes

_PATIENCE_SECONDS = 180
_MARK = "SHORTGOP_MACHINE"
_PORT = 6379
# A machine that the head does not know after so long is not coming.
_TO_JOIN_SECONDS = 150
_ASK_EVERY_SECONDS = 1.0
# By default Ray waits a minute before it takes a machine for dead. Where one has lost its network, and had a task, it
# pings it after five minutes, also if it was found dead, and gives it two more; here ten seconds. With less than this,
# a busy machine is taken for dead.
QUICK = {
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
}
# What runs as the first process of a machine. It collects the processes that others leave.
_FIRST = """
hostname "$1"
ip link set lo up
until ip address add "$2" dev eth0 2>/dev/null; do sleep 0.02; done
ip link set eth0 up
# Ray asks which address it would use to reach the world.
ip route add default via "$3"
shift 3
"$@"
"""


def may_have_networks() -> bool:
    """Whether this process may give each machine a network of its own."""
    if os.geteuid() or not (shutil.which("unshare") and shutil.which("ip") and shutil.which("nsenter")):
        return False
    name = f"sgt{os.getpid()}"
    tries = (
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "ip", "link"],
        ["ip", "link", "add", name, "type", "bridge"],
        ["ip", "link", "delete", name],
    )
    return not any(subprocess.run(each, capture_output=True, check=False).returncode for each in tries)


@dataclass
class Machine:
    """A machine that runs `ray start`."""

    name: str
    ip: str
    process: subprocess.Popen[bytes]
    mark: str
    log: Path
    temporary: Path
    """Its folder for temporary files (TMPDIR). As on a disk, what is there outlives it."""
    wire: str = ""
    """The end of its network cable that is in this machine's network; "" without a network of its own."""
    is_cut_off: bool = False
    heard_of: float = field(default_factory=time.monotonic)
    """When the head last knew it, or when it was switched on."""

    @property
    def own_environment(self) -> dict[str, str]:
        """What a process of this machine has in its environment."""
        return {_MARK: self.mark, "TMPDIR": str(self.temporary)}

    @property
    def runs(self) -> bool:
        """Whether its `ray start` does. That ends with any of the processes of Ray."""
        return self.process.poll() is None

    def at(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one on this machine: in its network."""
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", *command] if self.wire else list(command)

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one on this machine as its own processes run: they see each other alone."""
        if not self.wire:
            return list(command)
        of = f"/proc/{self.process.pid}/ns"
        return ["nsenter", f"--net={of}/net", f"--mount={of}/mnt", f"--pid={of}/pid_for_children", *command]

    def pids(self, name: str) -> list[int]:
        """The processes with this in their command lines."""
        found = []
        for pid in marked(self.mark):
            with contextlib.suppress(OSError):
                if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def kill(self) -> None:
        """End all of its processes at once."""
        if self.wire:
            # The first process of the machine dies with it, and with that all others.
            self.process.kill()
        end = time.monotonic() + _PATIENCE_SECONDS
        # Ray's agents write their names over the mark in their environment, and may live for another minute.
        with opened_processes(pid for pid, _ in descendants(self.process.pid)) as below:
            while pids := list(marked(self.mark)):
                assert time.monotonic() < end, f"processes of {self.name} do not end: {pids}"
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
            kill(below)
        self.process.wait()

    def cut_off(self) -> None:
        """Pull its network cable: it goes on, and no other machine can reach it."""
        assert self.wire
        self.is_cut_off = True
        _ip("link", "set", self.wire, "down")


@dataclass
class Machines:
    """Those of one cluster. The first is the head."""

    folder: Path
    separate: bool
    names: tuple[str, ...]
    number: int = 0
    network: str = ""
    bridge: str = ""
    port: int = _PORT
    more: Mapping[str, str] = field(default_factory=dict)
    asked: float = 0.0
    all: dict[str, Machine] = field(default_factory=dict)

    @property
    def head_ip(self) -> str:
        return f"{self.network}.2" if self.separate else "127.0.0.1"

    @property
    def here_ip(self) -> str:
        """Where the machines reach this one."""
        return f"{self.network}.1" if self.separate else "127.0.0.1"

    @property
    def address(self) -> str:
        return f"{self.head_ip}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """That of a user on any of the machines."""
        settings = QUICK | dict(self.more)
        return user_environment(self.folder / "home", RAY_TMPDIR=str(self.folder), TMPDIR=str(self.folder), **settings)

    def temporary(self, name: str) -> Path:
        """The folder for temporary files of the machines that have this name, one after the other."""
        return self.folder / f"tmp-{name}"

    def start(self, name: str) -> Machine:
        """Switch on a machine; "head" is the one that the others look for. It takes a while until it is ready."""
        self.number += 1
        is_head = name == "head"
        ip = self.head_ip if is_head or not self.separate else f"{self.network}.{2 + self.number % 250}"
        mark = f"{self.folder}/{name}-{self.number}/"
        temporary = self.temporary(name)
        temporary.mkdir(exist_ok=True)
        environment = self.environment | {_MARK: mark, "TMPDIR": str(temporary)}
        log = self.folder / f"{name}-{self.number}.log"
        agent, runtime, client = free_ports(3)
        command = [
            str(BIN / "ray"), "start", "--block", f"--node-ip-address={ip}", "--num-cpus=1",
            f"--object-store-memory={100 << 20}", f"--dashboard-agent-listen-port={agent}",
            f"--runtime-env-agent-port={runtime}", "--min-worker-port=0", "--max-worker-port=0",
            *WITHOUT_HELPERS,
        ]  # fmt: skip
        if is_head:
            command += [
                "--head",
                f"--port={self.port}",
                "--include-dashboard=false",
                f"--ray-client-server-port={client}",
            ]
        else:
            command += [f"--address={self.address}"]
        wire = ""
        if self.separate:
            wire = f"{self.bridge}-{self.number}"
            namespaces = ("--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts")
            command = ["unshare", *namespaces, "sh", "-c", _FIRST, "sh", name, f"{ip}/24", self.here_ip, *command]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdout=output, stderr=output, start_new_session=True
            )
        before = 0 if self.separate else len(self.alive())
        machine = Machine(name, ip, process, mark, log, temporary, wire)
        self.all[name] = machine
        if wire:
            self._plug_in(machine)
        else:
            # Two that start at once on one address confuse each other.
            self.wait(lambda: len(self.alive()) > before or not machine.runs, name)
        return machine

    def _plug_in(self, machine: Machine) -> None:
        pid, ours = machine.process.pid, Path("/proc/self/ns/net").readlink()
        ready = comes_true(lambda: Path(f"/proc/{pid}/ns/net").readlink() != ours, _PATIENCE_SECONDS)
        assert ready, machine.log.read_text()
        _ip("link", "add", machine.wire, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _ip("link", "set", machine.wire, "master", self.bridge, "up")

    def kill(self, name: str) -> None:
        """Kill a machine. Its address is another one's later on."""
        self.all.pop(name).kill()

    def is_whole(self) -> bool:
        """Whether all machines run and are known to the head. Looks every second."""
        if time.monotonic() - self.asked > _ASK_EVERY_SECONDS:
            self.asked, alive = time.monotonic(), self.alive()
            for machine in self.all.values():
                if self._is_among(machine, alive):
                    machine.heard_of = time.monotonic()
        return not any(name not in self.all or self.is_lost(self.all[name]) for name in self.names)

    def are_known(self) -> bool:
        """Whether all machines are there, and the head knows them. One that the head before this one knew is not."""
        alive = self.alive()
        return all(name in self.all and self._is_among(self.all[name], alive) for name in self.names)

    def _is_among(self, machine: Machine, alive: Sequence[str]) -> bool:
        # On one network all have the same address.
        return machine.ip in alive and (self.separate or len(alive) >= len(self.all))

    def is_lost(self, machine: Machine) -> bool:
        """Whether a machine has to be started again."""
        return not machine.runs or time.monotonic() - machine.heard_of > _TO_JOIN_SECONDS

    def alive(self) -> list[str]:
        """The addresses of the machines that the head knows to be alive; none without a head."""
        return alive_at(self.address)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """AssertionError with what the machines said where something does not come true."""
        if not comes_true(condition, _PATIENCE_SECONDS):
            logs = "\n".join(f"{each.name}: {each.log.read_text()[-2000:]}" for each in self.all.values())
            raise AssertionError(f"waited in vain for {what}:\n{logs}")


def start_missing(cluster: Machines) -> None:
    """Start what a cluster manager would start: machines that are gone, or that the head does not know."""
    for name in cluster.names:
        machine = cluster.all.get(name)
        if machine is not None and cluster.is_lost(machine):
            cluster.kill(name)
        if name not in cluster.all:
            cluster.start(name)
            if name == "head":
                cluster.wait(lambda: _has_head(cluster), "a head")


def start_all(cluster: Machines) -> None:
    """Start what is missing until the head knows all machines. Those of a killed head go on for ten seconds."""

    def is_done() -> bool:
        start_missing(cluster)
        return cluster.are_known()

    cluster.wait(is_done, "all machines")


def _has_head(cluster: Machines) -> bool:
    """Whether there is a head that answers. One that ended is started again: on one network Ray starts none while
    machines of the one before live, ten seconds after its end."""
    if not cluster.all["head"].runs:
        cluster.kill("head")
        cluster.start("head")
    return bool(cluster.alive())


def alive_at(address: str) -> list[str]:
    """The addresses of the machines that the head at `address` knows to be alive; none without a head."""
    from ray import exceptions

    native: Any = importlib.import_module("ray._raylet")
    try:
        nodes = native.GcsClient(address=address).get_all_node_info(timeout=2)
    except (exceptions.RayError, RuntimeError, OSError):
        return []
    return [node.node_manager_address for node in nodes.values() if node.state == 0]


@contextlib.contextmanager
def machines(
    *,
    separate: bool,
    names: tuple[str, ...] = ("head", "a", "b"),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Machines]:
    """Machines with these names, none of which runs yet; in the end all are killed. `environment` is set on all."""
    # Ray puts sockets there, whose paths have to be shorter than 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sgm-", dir="/tmp"))
    (folder / "home").mkdir()
    made = Machines(folder, separate, names, more=environment)
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        if separate:
            made.bridge, made.network = _bridge()
            ending.callback(_ip, "link", "delete", made.bridge)
        else:
            (made.port,) = free_ports(1)
        try:
            yield made
        finally:
            for machine in made.all.values():
                machine.kill()
            assert none_left(f"{folder}/", _PATIENCE_SECONDS), f"{folder} has processes: {list(marked(f'{folder}/'))}"


def _bridge() -> tuple[str, str]:
    """A new bridge, and the first three numbers of its network."""
    for number in range(os.getpid(), os.getpid() + 100):
        # A network for tests of this kind, see RFC 2544.
        name, network = f"sg{number % 512}", f"198.{18 + number % 512 // 256}.{number % 256}"
        # The wires of machines that were killed just now go a moment later.
        if any(Path("/sys/class/net").glob(f"{name}-*")):
            continue
        if subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True, check=False).returncode:
            continue
        _ip("address", "add", f"{network}.1/24", "dev", name)
        _ip("link", "set", name, "up")
        return name, network
    raise AssertionError("no name is left for a bridge")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
