"""Roots of Debian in folders, and commands in them: what Docker is for `image_root.py`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from docker_files import Identity, identity, place
from dockerfile_steps import Config, DockerfileError

_BASE = re.compile(r"(?:docker\.io/(?:library/)?)?python:3\.(?P<minor>\d+)\.\d+-slim-(?P<suite>[a-z]+)(?:@sha256:\w+)?")
# What the base image has besides Debian's smallest system; Debian's Python in place of its own.
_BASE_PACKAGES = "ca-certificates,netbase,tzdata,python3,python3-venv"
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
# What Docker gives to a container, with --shm-size=1g as docs/cluster.md has it.
_MOUNTS = f"""
set -e
mount -t proc proc "$ROOT/proc"
mount -t sysfs -o ro sysfs "$ROOT/sys"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
for device in {" ".join(_DEVICES)}; do
    : > "$ROOT/dev/$device"
    mount --bind "/dev/$device" "$ROOT/dev/$device"
done
mkdir "$ROOT/dev/shm"
mount -t tmpfs -o mode=1777,size=1g tmpfs "$ROOT/dev/shm"
ln -s /proc/self/fd "$ROOT/dev/fd"
for number in 0:stdin 1:stdout 2:stderr; do
    ln -s "/proc/self/fd/${{number%:*}}" "$ROOT/dev/${{number#*:}}"
done
"""


class StepFailedError(Exception):
    """A command in a root ended with an error, or took too long."""


def make_base(image: str, root: Path, mirror: str | None) -> None:
    minor, suite = base_of(image)
    packages = ["--variant=minbase", f"--include={_BASE_PACKAGES}"]
    run_here(["debootstrap", *packages, suite, str(root), *([mirror] if mirror else [])], log=root.parent)
    # As in Debian's images: packages are not kept, and no services are started.
    (root / "etc/apt/apt.conf.d/docker-clean").write_text(
        'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };\n'
    )
    no_services = root / "usr/sbin/policy-rc.d"
    no_services.write_text("#!/bin/sh\nexit 101\n")
    no_services.chmod(0o755)
    for pattern in ("var/cache/apt/archives/*.deb", "var/cache/apt/*.bin", "var/lib/apt/lists/*_*", "var/log/*.log"):
        for file in root.glob(pattern):
            file.unlink()
    if not (root / f"usr/bin/python3.{minor}").exists():
        raise DockerfileError(f"Debian {suite}, which stands in for {image}, has no Python 3.{minor}")
    print(f"           Debian {suite} with its Python 3.{minor} stands in for it: {size_gb(root):.2f} GB")


def base_of(image: str) -> tuple[str, str]:
    """The minor version of Python and the suite of Debian that a base image has."""
    match = _BASE.fullmatch(image)
    if match is None:
        raise DockerfileError(f"{image}: only python:VERSION-slim-SUITE can be stood in for")
    return match["minor"], match["suite"]


def run_inside(
    root: Path,
    config: Config,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    shared: Sequence[Path] = (),
    has_network: bool = True,
    timeout_s: float | None = None,
) -> str:
    """Run a command of an image as the image's user. Returns what it printed."""
    who = user_of(root, config)
    environment = {"HOME": who.home, **environment}
    binds = (
        [(Path("/etc") / name, place(root, f"/etc/{name}")) for name in ("hosts", "resolv.conf")] if has_network else []
    )
    binds += [(path, place(root, str(path))) for path in shared]
    with mount_points(binds):
        return run_here(
            entering(root, who, config.workdir, command, binds=binds, has_network=has_network),
            environment=environment,
            timeout_s=timeout_s,
            log=root.parent,
        )


def user_of(root: Path, config: Config) -> Identity:
    try:
        return identity(config.user, (root / "etc/passwd").read_text(), (root / "etc/group").read_text())
    except ValueError as error:
        raise DockerfileError(str(error)) from error


def entering(
    root: Path,
    who: Identity,
    workdir: str,
    command: Sequence[str],
    *,
    binds: Sequence[tuple[Path, Path]],
    has_network: bool,
) -> list[str]:
    """The command that runs another one in a root. A shell is the first process there, as with `docker run --init`."""
    lines = [f"ROOT={shlex.quote(str(root))}", _MOUNTS]
    lines += [f"mount --bind --options ro {shlex.quote(str(here))} {shlex.quote(str(there))}" for here, there in binds]
    if not has_network:
        lines.append("ip link set lo up")
    groups = ",".join(map(str, who.groups))
    chroot = ["chroot", f"--userspec={who.uid}:{who.gid}", f"--groups={groups}", str(root)]
    # PATH is that of this machine for the mounts, and that of the image for the command.
    lines += ["export PATH=$IMAGE_PATH", "unset IMAGE_PATH ROOT PWD OLDPWD SHLVL"]
    full_chroot = [shutil.which("chroot") or "chroot", *chroot[1:]]
    # The status of what ran is that of the namespaces.
    lines.append(shlex.join([*full_chroot, "/usr/bin/env", f"--chdir={workdir}", *command]) + "; exit $?")
    namespaces = ["--mount", "--uts", "--ipc", "--pid", *([] if has_network else ["--net"])]
    return ["unshare", *namespaces, "--fork", "--kill-child", "--propagation=private", "bash", "-c", "\n".join(lines)]


@contextmanager
def mount_points(binds: Sequence[tuple[Path, Path]]) -> Iterator[None]:
    """Files and folders to mount on, where there are none; they are gone afterwards."""
    made: list[Path] = []
    try:
        for here, there in binds:
            for folder in reversed([there, *there.parents] if here.is_dir() else there.parents):
                if not folder.exists():
                    folder.mkdir()
                    made.append(folder)
            if not there.exists():
                there.touch()
                made.append(there)
        yield
    finally:
        for path in reversed(made):
            path.rmdir() if path.is_dir() else path.unlink()


def run_here(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    log: Path | None = None,
) -> str:
    """Run a command; the end of what it printed is in the error if it fails."""
    if environment is not None:
        environment = {**environment, "IMAGE_PATH": environment["PATH"], "PATH": os.environ["PATH"]}
    with tempfile.TemporaryFile("w+", dir=log, errors="replace") as said:
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=timeout_s,
                check=False,
            )
            why = f"it ended with status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = f"it took longer than {timeout_s:g} s"
        said.seek(0)
        text = said.read()
    if why:
        raise StepFailedError("\n".join([*text.splitlines()[-40:], why]))
    return text


def size_gb(root: Path) -> float:
    """The bytes of the files, as Docker counts those of an image."""
    return int(run_here(["du", "--summarize", "--bytes", "--one-file-system", str(root)]).split()[0]) / 1e9


def mounted_below(folder: Path, mountinfo: str) -> list[str]:
    places = (line.split()[4] for line in mountinfo.splitlines())
    return [place for place in places if Path(place).is_relative_to(folder)]


def remove(folder: Path) -> None:
    if mounted := mounted_below(folder, Path("/proc/self/mountinfo").read_text()):
        raise OSError(f"{folder} is not removed: {mounted[0]} is mounted in it")
    run_here(["rm", "--recursive", "--force", "--one-file-system", str(folder)])
