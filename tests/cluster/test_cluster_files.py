"""The files for Kubernetes, `ray up`, Slurm and Docker are what those take: each is held against their own schema, or a
linter. docs/cluster.md says which of them were run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

from cluster_files import (
    AWS,
    DOCKERFILE,
    MACHINES,
    RAY_CLUSTER,
    RAY_JOB,
    ROOT,
    SLURM,
    kuberay_schema,
    lint,
    loaded,
)  # fmt: skip


def complaints(values: dict[str, Any]) -> list[str]:
    found = jsonschema.Draft202012Validator(kuberay_schema(values["kind"])).iter_errors(values)
    return [f"{'/'.join(map(str, error.path))}: {error.message}" for error in found]


@pytest.mark.parametrize("file", [RAY_JOB, RAY_CLUSTER], ids=lambda file: file.name)
def test_kuberay_takes_its_files(file: Any) -> None:
    values = loaded(file)
    assert values["apiVersion"] == "ray.io/v1"
    assert complaints(values) == []


def test_the_schema_of_kuberay_finds_what_is_wrong() -> None:
    values = loaded(RAY_JOB)
    cluster = values["spec"]["rayClusterSpec"]
    cluster["workerGroupSpecs"][0]["replica"] = 4
    cluster["headGroupSpec"]["template"]["spec"]["nodeSelectors"] = {"spot": "true"}
    cluster["authOptions"]["mode"] = "password"
    values["spec"]["backoffLimit"] = "three"
    assert len(complaints(values)) == 4


def pods(values: dict[str, Any]) -> list[dict[str, Any]]:
    spec = values["spec"].get("rayClusterSpec", values["spec"])
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


@pytest.mark.parametrize("file", [RAY_JOB, RAY_CLUSTER], ids=lambda file: file.name)
def test_every_pod_has_what_a_worker_needs(file: Any) -> None:
    """No root, the keys of the store, a folder for temporary files, and shared memory for Ray."""
    values = loaded(file)
    for pod in pods(values):
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["serviceAccountName"] == "shortgop"
        assert container["envFrom"] == [{"secretRef": {"name": "shortgop-store", "optional": True}}]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"name": "TMPDIR", "value": mounts["scratch"]} in container["env"]
        assert mounts["shared-memory"] == "/dev/shm"
        assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
        assert re.fullmatch(r"REGISTRY/shortgop:(cpu|cuda)", container["image"])


def test_rays_logs_take_no_room_of_the_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that fills its folder beyond `sizeLimit` is ended."""
    from ray._common.utils import get_default_ray_temp_dir

    in_image = re.findall(r"^ENV (TMPDIR=.*)", DOCKERFILE.read_text().replace("\\\n", " "), re.MULTILINE)
    commands = loaded(MACHINES)["head_start_ray_commands"] + loaded(MACHINES)["worker_start_ray_commands"]
    on_machines = [re.findall(r"export (.*?);", command)[0] for command in commands if "ray start" in command]
    assert (len(in_image), len(on_machines)) == (1, 2)
    for words in in_image + on_machines:
        values = dict(word.split("=") for word in words.split())
        monkeypatch.setenv("TMPDIR", values["TMPDIR"])
        monkeypatch.setenv("RAY_TMPDIR", values["RAY_TMPDIR"])
        assert get_default_ray_temp_dir() == "/tmp/ray"  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 1), (2, 1), (3, 0)])
def test_only_a_job_that_could_not_go_on_is_tried_again_by_kuberay(status: int, expected: int, tmp_path: Path) -> None:
    """KubeRay puts the entry point into a script, `ray job submit` makes a line of its words, and a shell runs it."""
    entrypoint = loaded(RAY_JOB)["spec"]["entrypoint"]
    (tmp_path / "shortgop").write_text(f"#!/bin/sh\nexit {status}\n")
    (tmp_path / "shortgop").chmod(0o755)
    script = ["bash", "-ce", f"printf '%s\\0' {entrypoint} ;"]
    words = subprocess.run(script, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    line = subprocess.list2cmdline(words)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(line, shell=True, env=environment, check=False).returncode == expected


def test_the_version_of_ray_is_the_one_in_the_image() -> None:
    (pinned,) = re.findall(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert loaded(RAY_CLUSTER)["spec"]["rayVersion"] == pinned
    assert loaded(RAY_JOB)["spec"]["rayClusterSpec"]["rayVersion"] == pinned


@pytest.mark.parametrize("file", [AWS, MACHINES], ids=lambda file: file.name)
def test_ray_up_takes_its_files(file: Any) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    values = loaded(file)
    validate_config(prepare_config(values))
    with pytest.raises(jsonschema.ValidationError, match="max_worker'"):
        validate_config(prepare_config(values | {"max_worker": 3}))


def test_amazon_takes_what_the_nodes_are_made_of() -> None:
    """Held against the model of EC2's interface that the AWS tools bring along."""
    shape = Session().get_service_model("ec2").operation_model("RunInstances").input_shape
    for node_type in loaded(AWS)["available_node_types"].values():
        report = ParamValidator().validate({"MinCount": 1, "MaxCount": 1, **node_type["node_config"]}, shape)
        assert report.generate_report() == ""
    unknown = ParamValidator().validate({"MinCount": 1, "MaxCount": 1, "InstanceTyp": "c7i.large"}, shape)
    assert "InstanceTyp" in unknown.generate_report()


def test_only_workers_are_on_spot_nodes() -> None:
    """A job survives the loss of any node but the one with its driver."""
    types = loaded(AWS)["available_node_types"]
    assert types["worker"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in types["head"]["node_config"]
    for file in (RAY_JOB, RAY_CLUSTER):
        head, *workers = pods(loaded(file))
        assert "tolerations" not in head
        assert all("tolerations" in worker for worker in workers)


@pytest.mark.parametrize("file", [SLURM, *sorted((ROOT / "scripts").glob("*.sh"))], ids=lambda file: file.name)
def test_scripts_have_no_faults_that_a_linter_finds(file: Any) -> None:
    assert lint("shellcheck", str(file)) == ""


def test_slurm_options_come_before_the_first_command() -> None:
    """Slurm ignores those behind it."""
    text = SLURM.read_text()
    options = [line.start() for line in re.finditer(r"^#SBATCH --", text, re.MULTILINE)]
    command = re.search(r"^[^#\n]", text, re.MULTILINE)
    assert command is not None
    assert len(options) == 9
    assert max(options) < command.start()


def slurm_job(folder: Path, programs: dict[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script for Slurm on a first node of one core, with programs that stand in for Ray's, Slurm's and ours."""
    (folder / "bin").mkdir()
    for name, does in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / "bin" / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_CPUS_ON_NODE": "1", "SHORTGOP": str(folder)}
    environment = {**os.environ, **slurm, **variables}
    return subprocess.run(
        ["bash", str(SLURM), "in"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def step(first: str = ":") -> str:
    """What stands in for srun: what is behind its options runs on two nodes, whose names and cores Slurm tells there.
    All of that ends with srun."""
    return f"""trap 'kill -- -$one -$other' TERM
        {first}
        while [ "${{1#-}}" != "$1" ]; do shift; done
        SLURMD_NODENAME=n2 SLURM_CPUS_ON_NODE=2 setsid "$@" & one=$!
        SLURMD_NODENAME=n3 SLURM_CPUS_ON_NODE=4 setsid "$@" & other=$!
        wait"""


def test_a_slurm_job_whose_time_is_up_before_its_nodes_are_there_says_so(tmp_path: Path) -> None:
    """It would be so again, so it does not queue again. Bash dies of a signal without a trap, without a word."""
    programs = {
        "ray": "exec sleep 60",
        "python3": f'if [ "$1" = -c ]; then exec "{sys.executable}" "$@"; fi; kill -USR1 $PPID',
        "shortgop": f"touch {tmp_path}/begun",
    }
    done = slurm_job(tmp_path, programs)
    assert done.returncode == 1
    assert "the time was up before the nodes were there" in done.stderr
    assert not (tmp_path / "begun").exists()


@pytest.mark.parametrize(("asked", "expected"), [({}, [1, 2, 4]), ({"SLURM_CPUS_PER_TASK": "1"}, [1, 1, 1])])
def test_ray_has_the_cores_of_each_node_of_a_slurm_job(
    asked: dict[str, str], expected: list[int], tmp_path: Path
) -> None:
    """Nodes may be unequal. A step that asks for a number of cores gets no more on a larger node, and does not start on
    a smaller one. Where a user asks for cores for each task, Ray has as many."""
    rays = tmp_path / "rays"
    programs = {
        "ray": f'echo "$@" >> {rays}; exec sleep 60',
        "python3": f'if [ "$1" = -c ]; then exec "{sys.executable}" "$@"; fi',
        "srun": step(f"printf '%s\\n' \"$@\" > {tmp_path}/asked"),
        "shortgop": f'until [ "$(wc -l < {rays})" = 3 ]; do sleep 0.05; done',
    }
    done = slurm_job(tmp_path, programs, SLURM_JOB_NUM_NODES="3", **asked)
    assert done.returncode == 0, done.stderr
    started = rays.read_text()
    assert sorted(int(cores) for cores in re.findall(r"--num-cpus=(\d+)", started)) == expected
    assert len(re.findall(r"--address=\S+:20007 ", started)) == 2
    options = (tmp_path / "asked").read_text().split("bash\n")[0]
    assert {"--relative=1", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpu-bind=none"} <= {*options.split()}
    assert not re.search(r"^(--cpus-per-task|-c|--exact|--exclusive)", options, re.MULTILINE)


@pytest.mark.parametrize(
    ("squeue", "requeued"),
    [("RUNNING n1 n[2-3]", {"n2 queues 7 again"}), ("RUNNING n1 n[1-3]", set()), ("COMPLETING n1 n[2-3]", set())],
    ids=["first node is lost", "it is there", "job has ended"],
)
def test_a_slurm_job_whose_first_node_is_lost_is_queued_again_by_the_next(
    squeue: str, requeued: set[str], tmp_path: Path
) -> None:
    """Slurm keeps such a job, without anybody to run it. Here the first node lives, but Ray has ended on the others.
    `make nodes-check` does this with Slurm."""
    again, asked = tmp_path / "again", tmp_path / "asked"
    again.touch()
    asked.touch()
    nodes = "n1\\nn2\\nn3\\n" if "[1-3]" in squeue else "n2\\nn3\\n"
    programs = {
        "ray": '[ "$2" = --block ] || exec sleep 60',
        "python3": f'if [ "$1" = -c ]; then exec "{sys.executable}" "$@"; fi',
        "srun": step(),
        "sleep": f'[ "$1" = 10 ] && set 0.05; exec {shutil.which("sleep")} "$1"',
        "squeue": f'echo "$SLURMD_NODENAME" >> {asked}; echo "{squeue}"',
        "scontrol": f"""[ "$1" = requeue ] || exec printf '{nodes}'
            echo "$SLURMD_NODENAME queues $2 again" >> {again}""",
        # Until both of the others have asked several times.
        "shortgop": f"for node in n2 n3; do until [ $(grep -c $node {asked}) -gt 3 ]; do sleep 0.05; done; done",
    }
    done = slurm_job(tmp_path, programs, SLURM_JOB_NUM_NODES="3")
    assert done.returncode == 0, done.stderr
    assert set(again.read_text().splitlines()) == requeued


def test_rays_first_autoscaler_starts_the_machines_of_a_list() -> None:
    """The second one counts the head among them, so that one never joins."""
    (start,) = (each for each in loaded(MACHINES)["head_start_ray_commands"] if "ray start" in each)
    assert start.index("export RAY_enable_autoscaler_v2=0;") < start.index("ray start")


def test_the_dockerfile_has_no_faults_that_a_linter_finds() -> None:
    assert lint("hadolint", str(DOCKERFILE)) == ""
    assert "DL3007" in lint("hadolint", "-", text="FROM debian:latest\n")


def test_images_are_pinned_and_run_without_root() -> None:
    text = DOCKERFILE.read_text()
    assert re.search(r"^ARG BASE=python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert all("-c constraints.txt" in line for line in text.splitlines() if "pip install" in line)
    # The last stage is what a build without --target gives.
    stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE)
    assert stages[-2:] == ["cuda", "cpu"]
    final = text[text.index(" AS run") :]
    assert re.findall(r"^USER (.*)$", final, re.MULTILINE)[-1] == "1000"
    assert 'HEALTHCHECK --interval=5m --timeout=1m --start-period=1m CMD ["shortgop", "doctor"]' in final
    assert "ENTRYPOINT [" not in text


def test_what_docker_copies_is_what_the_package_is_made_of() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    packages = re.findall(r'^    "shortgop\.(\w+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert packages
    assert not {*packages, "pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE"} & set(ignored)
    assert {".git", ".venv", "tests", "docs"} <= set(ignored)
