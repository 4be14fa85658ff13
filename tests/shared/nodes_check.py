"""Runs what docs/cluster.md says of Slurm and of `ray up` on three machines that are namespaces of this one.

    python tests/shared/nodes_check.py              # as root; needs what scripts/nodes.sh says, takes some minutes
    python tests/shared/nodes_check.py --only "slurm: a node is lost"

The commands are those of the page, with other paths and addresses. In each case the dataset has to be that of an
undisturbed plain loop, row for row and byte for byte. It ends with 1 where a case fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

from datasets import rows_of
from shortgop.jobs.progress.job_status import read_status
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text()
ENVIRONMENT = Path(sys.prefix)
_NODES = ROOT / "scripts" / "nodes.sh"
# The programs that machines of each kind need, and the packages that bring them.
_NEEDED = {
    "slurm": (("mungekey", "slurmctld", "slurmd", "sbatch"), "slurm-wlm munge"),
    "ssh": (("sshd", "rsync"), "openssh-server rsync"),
}
# A machine of one core, one of two, one of four.
_CPUS = (1, 2, 4)
# What the script for Slurm says then.
ALL_THERE = f"{len(_CPUS)} of {len(_CPUS)} nodes are there, {sum(_CPUS)} cores"
_VIDEOS, _FRAMES = 24, 600
_PATIENCE_SECONDS = 400


class CaseError(Exception):
    """A case is not as the page says."""


@dataclass(frozen=True)
class Machines:
    """Machines of `scripts/nodes.sh`, and a folder that stands for /mnt: it has the sources in `videos`, shortgop's
    environment in `shortgop`, and in `undisturbed` the dataset of a plain loop."""

    folder: Path
    mnt: Path

    def script(self, command: str, *arguments: str) -> None:
        say(_NODES, command, self.folder, *arguments)

    def slurm(self, *command: object) -> str:
        return say(_NODES, "run", self.folder, *command)

    def page(self, block: str) -> str:
        """A block of the page with the paths and the number of these machines."""
        own_file = block.replace("jobs/ray_up/machines.yaml", str(self.folder / "machines.yaml"))
        return (
            own_file.replace("/opt/shortgop", "/mnt/shortgop").replace("/mnt", str(self.mnt))
            .replace("--nodes=8", f"--nodes={len(_CPUS)}")
            .replace("jobs/slurm/", f"{shlex.quote(str(ROOT))}/jobs/slurm/")
        )  # fmt: skip


def say(*command: object, expected: int = 0, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    """What a command says. CaseError where it ends otherwise than expected."""
    own = {"PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}", "SHORTGOP": str(ENVIRONMENT)}
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **own, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode != expected:
        raise CaseError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def wait_for(what: str, is_so: Callable[[], object], seconds: float = _PATIENCE_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise CaseError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.2)


def block_with(line: str) -> str:
    """The block of the page that has this line."""
    found: list[str] = [
        each for each in re.findall(r"^```bash \w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if line in each
    ]
    if len(found) != 1:
        raise CaseError(f"{len(found)} blocks of docs/cluster.md have {line!r}")
    return found[0]


def has_some(dataset: Path, since: float) -> bool:
    """Whether a job that began after this time, in seconds since 1970, has done some sources, and has others left."""
    if not (dataset / ".status.json").exists():
        return False
    status = read_status(DiskStorage(dataset))
    return status.started > since and 0 < status.sources_done < status.sources_total


def assert_undisturbed(machines: Machines, dataset: Path) -> None:
    if rows_of(dataset) != rows_of(machines.mnt / "undisturbed"):
        raise CaseError(f"{dataset} is not the dataset of an undisturbed job")


# Slurm.


def submitted(machines: Machines, dataset: Path) -> str:
    """The number of a job that was submitted as the page says."""
    (line,) = [each for each in block_with("prep.sbatch").splitlines() if each.startswith("sbatch")]
    command = machines.page(line).replace(str(machines.mnt / "dataset"), str(dataset))
    output = machines.mnt / "%j.out"
    return machines.slurm(*shlex.split(command.replace("sbatch", f"sbatch --parsable --output={output}", 1))).strip()


def job_state(machines: Machines, job: str) -> dict[str, str]:
    shown = machines.slurm("scontrol", "show", "job", "-o", job)
    return dict(word.split("=", 1) for word in shown.split() if "=" in word)


def output_of(machines: Machines, job: str) -> str:
    path = machines.mnt / f"{job}.out"
    return path.read_text(errors="replace") if path.exists() else ""


def wait_for_end(machines: Machines, job: str, state: str = "COMPLETED") -> None:
    over = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
    wait_for(f"the end of job {job}", lambda: job_state(machines, job)["JobState"] in over)
    found = job_state(machines, job)["JobState"]
    if found != state:
        raise CaseError(f"job {job} is {found} and not {state}:\n{output_of(machines, job)[-4000:]}")


def wait_until_it_encodes(machines: Machines, job: str, dataset: Path, since: float = 0.0) -> None:
    def has_begun() -> bool:
        state = job_state(machines, job)["JobState"]
        if state not in ("PENDING", "CONFIGURING", "RUNNING"):
            raise CaseError(f"job {job} is {state}:\n{output_of(machines, job)[-4000:]}")
        return has_some(dataset, since)

    wait_for(f"the first videos of job {job}", has_begun)


def assert_ran_twice(machines: Machines, job: str) -> None:
    """With all nodes each time."""
    said = output_of(machines, job)
    if said.count(ALL_THERE) != 2:
        raise CaseError(f"job {job} does not say twice: {ALL_THERE}\n{said[-4000:]}")


def slurm_as_the_page_says(machines: Machines, dataset: Path) -> None:
    """The block as it stands, with a broken source, until `shortgop status --watch` says that it has ended."""
    script = machines.page(block_with("prep.sbatch")).replace(str(machines.mnt / "dataset"), str(dataset))
    watched = machines.slurm("bash", "-euo", "pipefail", "-c", f"cd {machines.mnt / 'home'}; {script}")
    job = re.findall(r"Submitted batch job (\d+)", watched)[0]
    wait_for_end(machines, job)
    said = (machines.mnt / "home" / f"slurm-{job}.out").read_text()
    if ALL_THERE not in said or "1 failed" not in said:
        raise CaseError(f"job {job} does not say {ALL_THERE!r}, or nothing of a failed source:\n{said}")
    assert_undisturbed(machines, dataset)


def slurm_node_lost(machines: Machines, dataset: Path) -> None:
    job = submitted(machines, dataset)
    wait_until_it_encodes(machines, job, dataset)
    machines.script("kill", "n3")
    wait_for_end(machines, job)
    machines.script("boot", "n3")
    assert_undisturbed(machines, dataset)


def slurm_first_node_lost(machines: Machines, dataset: Path) -> None:
    job = submitted(machines, dataset)
    wait_until_it_encodes(machines, job, dataset)
    machines.script("kill", "n1")
    wait_for("Slurm queues it again", lambda: job_state(machines, job)["Restarts"] == "1")
    machines.script("boot", "n1")
    wait_for_end(machines, job)
    assert_ran_twice(machines, job)
    assert_undisturbed(machines, dataset)


def slurm_time_is_up(machines: Machines, dataset: Path) -> None:
    job = submitted(machines, dataset)
    wait_until_it_encodes(machines, job, dataset)
    machines.slurm("scancel", "--signal=USR1", "--batch", job)
    wait_for("it queues again", lambda: job_state(machines, job)["Restarts"] == "1")
    wait_for_end(machines, job)
    assert_ran_twice(machines, job)
    assert_undisturbed(machines, dataset)


def slurm_cancelled(machines: Machines, dataset: Path) -> None:
    """Killed without a word, and once more told to end, then gone on with by a third job."""
    for cancel in ([], ["--signal=TERM", "--batch"]):
        since = time.time()
        job = submitted(machines, dataset)
        wait_until_it_encodes(machines, job, dataset, since)
        machines.slurm("scancel", *cancel, job)
        wait_for_end(machines, job, "CANCELLED" if not cancel else "FAILED")
    if "interrupted; finished work is kept" not in output_of(machines, job):
        raise CaseError(f"job {job} did not end tidily:\n{output_of(machines, job)[-4000:]}")
    wait_for_end(machines, submitted(machines, dataset))
    assert_undisturbed(machines, dataset)


# `ray up`.


def ray_up(machines: Machines, dataset: Path) -> None:
    """The page's commands in their order. While the job runs a machine is lost, and joins again."""
    lines = machines.page(block_with("ray up --yes jobs/ray_up/machines.yaml")).splitlines()
    (submits,) = (number for number, line in enumerate(lines) if "ray job submit" in line)
    (first_of_end,) = (number for number, line in enumerate(lines) if "ray stop" in line)
    (asks,) = (line for line in lines if "ray status" in line)
    own = {"HOME": str(machines.mnt / "home")}

    def run(some: Sequence[str]) -> str:
        script = "\n".join(some).replace(str(machines.mnt / "dataset"), str(dataset))
        return say("bash", "-euo", "pipefail", "-c", script, environment=own)

    def machines_there() -> int:
        active = re.findall(r"Active:\n(.*?)Pending:", run([asks]), re.DOTALL)[0]
        return sum(int(count) for count in re.findall(r"^ (\d+) ", active, re.MULTILINE))

    run(lines[:submits])
    # A machine that is lost while Ray is started on it is one that Ray does not try again.
    wait_for("all machines", lambda: machines_there() == len(_CPUS))
    run(lines[submits:first_of_end])
    wait_for("the first videos", lambda: has_some(dataset, since=0.0))
    machines.script("kill", "n3")
    machines.script("boot", "n3")

    def has_ended() -> bool:
        return read_status(DiskStorage(dataset)).state == "finished"

    wait_for("the end of the job", has_ended)
    try:
        wait_for("the lost machine joins again", lambda: machines_there() == len(_CPUS))
    except CaseError as error:
        logs = asks.replace("RAY_AUTH_MODE=token ray status", "tail -n 60 /tmp/ray/session_latest/logs/monitor.*")
        raise CaseError(f"{error}\n{run([asks])}\n{run([logs])}") from None
    assert_undisturbed(machines, dataset)
    run(lines[first_of_end:])


CASES: dict[str, dict[str, Callable[[Machines, Path], None]]] = {
    "slurm": {
        "as the page says, with a broken source": slurm_as_the_page_says,
        "a node is lost": slurm_node_lost,
        "the first node is lost": slurm_first_node_lost,
        "the time is up": slurm_time_is_up,
        "cancelled": slurm_cancelled,
    },
    "ssh": {"ray up, and a machine is lost": ray_up},
}


@contextlib.contextmanager
def machines_of(kind: str, mnt: Path) -> Iterator[Machines]:
    machines = Machines(mnt.parent / kind, mnt)
    environment = {"CPUS": " ".join(map(str, _CPUS)), "SHORTGOP": str(mnt / "shortgop")}
    try:
        say(_NODES, "start", machines.folder, kind, len(_CPUS), environment=environment)
        yield machines
    finally:
        machines.script("stop")


def refuse_missing(kinds: Collection[str]) -> None:
    """End the program where machines of these kinds need a program that is not there."""
    needed = [_NEEDED[kind] for kind in kinds]
    missing = [name for names, _ in needed for name in names if shutil.which(name) is None]
    if missing:
        packages = " ".join(packages for names, packages in needed if set(names) & set(missing))
        sys.exit(
            f"nodes_check: not found on the PATH: {', '.join(missing)}; on Debian: "
            f"apt install --no-install-recommends {packages}"
        )


def make_mnt(mnt: Path) -> None:
    """Sources, the environment, a home for the one who calls, and the undisturbed dataset."""
    (mnt / "videos").mkdir(parents=True)
    (mnt / "home").mkdir()
    (mnt / "shortgop").symlink_to(ENVIRONMENT)
    for number in range(_VIDEOS):
        # A number of its own on every frame: no video can take the place of another one.
        make_video(
            mnt / "videos" / f"{number:02d}.mp4", pts=constant_rate_pts(Fraction(30), _FRAMES), size=(320, 256),
            timebase=Fraction(1, 30), first_number=_FRAMES * number, options={"preset": "ultrafast"},
        )  # fmt: skip
    (mnt / "videos" / "broken.mp4").write_text("not a video")
    prep = ["shortgop", "prep", mnt / "videos", "--out", mnt / "undisturbed", "--size", "256", "--runner", "inline"]
    # The status for a source that failed, the broken one.
    say(*prep, expected=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="the names of cases")
    given = parser.parse_args()
    chosen_of = {
        kind: {case: run for case, run in cases.items() if not given.only or f"{kind}: {case}" in given.only}
        for kind, cases in CASES.items()
    }
    refuse_missing([kind for kind, chosen in chosen_of.items() if chosen])
    if ENVIRONMENT.is_relative_to("/tmp") or ROOT.is_relative_to("/tmp"):
        sys.exit("nodes_check: each node has a /tmp of its own; use a checkout and an environment elsewhere")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="nodes-", dir="/var/tmp") as name:  # each node has a /tmp of its own
        mnt = Path(name) / "mnt"
        make_mnt(mnt)
        for kind, chosen in chosen_of.items():
            if not chosen:
                continue
            with machines_of(kind, mnt) as machines:
                for number, (case, run) in enumerate(chosen.items()):
                    start = time.monotonic()
                    try:
                        run(machines, mnt / f"dataset-{kind}-{number}")
                        print(f"{kind}: {case}: as it should be, {time.monotonic() - start:.0f} s", flush=True)
                    except CaseError as error:
                        failed += 1
                        print(f"{kind}: {case}: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
