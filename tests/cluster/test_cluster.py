"""Joining a Ray cluster that was started with `ray start --head`, with and without tokens."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import shortgop
from cluster_commands import assert_whole, endpoint, make_clips, prep
from datasets import make_dataset
from documents import ROOT, section
from loader_helpers import comes_true
from own_units import make_own_units
from ray_heads import Head, ray_head, user_environment
from shortgop.manifests.dataset_files.parts import finished_units
from shortgop.storage.disk import DiskStorage
from sweep import sample

pytestmark = pytest.mark.long

# The job goes on while it is being stopped.
_LONG_VIDEOS = 8
_PATIENCE_SECONDS = 120
# Ray itself takes 20 s to give up on a token, and some more to start.
_SOON_SECONDS = 20


@pytest.fixture(scope="module")
def guarded() -> Iterator[Head]:
    with ray_head("--include-dashboard=true", token=True) as head:
        yield head


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with sources, `clips`, in which commands are run."""
    folder = tmp_path_factory.mktemp("folder")
    make_clips(folder / "clips")
    return folder


def test_the_token_at_hand_and_relative_paths(guarded: Head, folder: Path) -> None:
    """Nothing but the address is given; the workers have another working directory."""
    environment = {name: value for name, value in guarded.environment.items() if name != "RAY_AUTH_MODE"}
    done = prep(folder, environment, "--out", "joined", "--address", guarded.address)
    assert done.returncode == 0, done.stderr
    assert_whole(folder / "joined")
    # Ray's own complaints about what was only asked are not for the user.
    assert "InvalidAuthToken" not in done.stderr


def test_auto_finds_the_cluster_of_this_machine(guarded: Head, folder: Path, tmp_path: Path) -> None:
    """The token may be anywhere that Ray looks."""
    environment = user_environment(
        tmp_path, RAY_TMPDIR=guarded.environment["RAY_TMPDIR"], RAY_AUTH_TOKEN_PATH=str(guarded.token_file)
    )
    done = prep(folder, environment, "--out", "found", "--address", "auto")
    assert done.returncode == 0, done.stderr
    assert_whole(folder / "found")


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "needs a token, and none is in RAY_AUTH_TOKEN"),
        # Ray itself would end the process here.
        ({"RAY_AUTH_MODE": "token"}, "needs a token, and none is in RAY_AUTH_TOKEN"),
        ({"RAY_AUTH_TOKEN": "outdated"}, "refuses the token in RAY_AUTH_TOKEN"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/nowhere"}, "the file '/nowhere'"),
    ],
    ids=["missing", "missing-mode-token", "wrong", "path-to-nowhere"],
)
def test_a_token_that_is_missing_or_wrong_is_said_at_once(
    environment: dict[str, str], reason: str, guarded: Head, folder: Path, tmp_path: Path
) -> None:
    start = time.monotonic()
    done = prep(folder, user_environment(tmp_path, **environment), "--out", "refused", "--address", guarded.address)
    assert time.monotonic() - start < _SOON_SECONDS
    assert done.returncode == 1
    assert f"the Ray cluster at {guarded.address} " in done.stderr
    assert reason in done.stderr
    assert "`ray get-auth-token` prints the right one" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "refused").exists()


def answered(head: Head, path: str, sent: dict[str, str] | None = None) -> Any:
    """What the dashboard answers, of which `ray job` and `ray list` ask the same. They take seconds to start."""
    request = urllib.request.Request(
        f"{head.dashboard}/api/{path}",
        data=None if sent is None else json.dumps(sent).encode(),
        headers={"Authorization": f"Bearer {head.token_file.read_text()}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as response:
        return json.load(response)


def tasks_of(head: Head) -> set[tuple[str, str]]:
    """The state and the name of each task that Ray knows of."""
    found = answered(head, "v0/tasks?limit=1000")["data"]["result"]["result"]
    return {(task["state"], task["name"]) for task in found}


def test_a_submitted_job(guarded: Head, folder: Path) -> None:
    """It gives neither an address nor a token: Ray's environment says where it runs."""
    command = ["shortgop", "prep", str(folder / "clips"), "--out", str(folder / "submitted")]
    # As a user does, who has to tell it to use the token.
    done = subprocess.run(
        ["ray", "job", "submit", "--address", guarded.dashboard, "--", *command],
        env={**guarded.environment, "RAY_AUTH_MODE": "token"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"joining the Ray cluster at {guarded.address}" in done.stdout
    assert_whole(folder / "submitted")
    # What the dashboard shows, which Ray's processes report every second.
    name = f"encode {folder}/clips/0.mp4 and 2 more"
    end = time.monotonic() + _PATIENCE_SECONDS
    while ("FINISHED", name) not in (found := tasks_of(guarded)):
        assert time.monotonic() < end, found
        time.sleep(0.2)
    # And nothing of how the job follows its units.
    assert all(name.startswith(("encode ", "look at ")) for _, name in found), found


def test_a_submitted_job_that_is_stopped_leaves_the_dataset_tidy(guarded: Head, tmp_path: Path) -> None:
    sources = make_own_units(tmp_path / "long", _LONG_VIDEOS, frames=120)
    dataset = tmp_path / "dataset"
    command = ["shortgop", "prep", str(sources), "--out", str(dataset), "--workers", "1"]
    answered(guarded, "jobs/", {"entrypoint": shlex.join(command), "submission_id": "stopped"})

    def logs() -> str:
        return str(answered(guarded, "jobs/stopped/logs")["logs"])

    assert comes_true(lambda: len(finished_units(DiskStorage(dataset))) >= 2, _PATIENCE_SECONDS), logs()
    assert answered(guarded, "jobs/stopped/stop", {})["stopped"]

    def has_ended() -> bool:
        time.sleep(0.2)
        return bool(answered(guarded, "jobs/stopped")["status"] == "STOPPED")

    assert comes_true(has_ended, _PATIENCE_SECONDS), logs()
    assert "interrupted; finished work is kept" in logs()
    assert "Traceback" not in logs()
    # Neither the driver nor a worker that outlives it goes on writing.
    before = sorted(dataset.rglob("*"))
    assert 2 <= len(shortgop.open(dataset)) < _LONG_VIDEOS
    assert not (dataset / ".tmp").exists()
    time.sleep(1)
    assert sorted(dataset.rglob("*")) == before

    make_dataset([sources], dataset)
    assert len(shortgop.open(dataset)) == _LONG_VIDEOS


def test_prometheus_finds_the_nodes_by_the_files_that_the_page_names(guarded: Head) -> None:
    """Also at ports that Ray chose, and without a token."""
    page = section(ROOT / "docs" / "cluster.md", "Metrics")
    named = {Path(each).suffix: each for each in re.findall(r"/tmp/ray/session_latest/[\w./]+(?:json|yml)", page)}
    folder = guarded.environment["RAY_TMPDIR"]
    nodes, configuration = (Path(named[suffix].replace("/tmp", folder, 1)) for suffix in (".json", ".yml"))
    assert comes_true(nodes.exists, _PATIENCE_SECONDS)
    (job,) = yaml.safe_load(configuration.read_text())["scrape_configs"]
    assert [Path(file).resolve() for each in job["file_sd_configs"] for file in each["files"]] == [nodes.resolve()]

    def answers(target: str) -> bool:
        # The file also names the autoscaler, which this head has not.
        with contextlib.suppress(OSError):
            return "ray_node_cpu_utilization{" in endpoint(target)
        return False

    def lists_the_node() -> bool:
        (group,) = json.loads(nodes.read_text())
        return any(answers(target) for target in group["targets"])

    assert comes_true(lists_the_node, _PATIENCE_SECONDS), nodes.read_text()


@pytest.mark.parametrize(
    "environment",
    sample(
        # ~/.ray cannot be written, and no token is where one is said to be.
        [{"HOME": "/proc/nobody", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/nowhere"}],
        more=[{"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "outdated"}],
    ),
    ids=lambda environment: environment["RAY_AUTH_MODE"],
)
def test_a_local_ray_starts_whatever_is_said_of_tokens(
    environment: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("outdated")
    out = tmp_path / "dataset"
    done = prep(folder, user_environment(tmp_path, **environment), "--out", str(out), "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert_whole(out)
