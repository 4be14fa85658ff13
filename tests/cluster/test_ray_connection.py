"""What a Ray that a job starts leaves of the process that started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import ray

from shortgop.errors import ToolError
from shortgop.jobs.cluster.ray_connection import connected, shown_command
from small_disks import mounted_disk

pytestmark = pytest.mark.long

_JOB = """
import json, os, signal, time
from pathlib import Path
import ray
from shortgop.jobs.cluster import ray_connection
from shortgop.jobs.cluster.ray_connection import connected
from started_processes import descendants

signal.signal(signal.SIGTERM, signal.default_int_handler)
ray_connection.memory_limit_bytes = lambda: 1_500_000_000
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
with connected(None, None, 0):
    resources = ray.cluster_resources()
    (monitor,) = [pid for pid, command in descendants(os.getpid()) if "log_monitor.py" in command]
    settings = Path(f"/proc/{monitor}/environ").read_text()
print(json.dumps({"of ray": settings.split(chr(0)), "own": [f"{name}={os.environ[name]}" for name in os.environ],
    "resources": resources}))
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
except KeyboardInterrupt:
    print("ended tidily")
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Run a job that starts Ray, ends it, and is told to end after that."""
    # As long as those of schedulers. Names of sockets below it would be too long.
    temporary = tmp_path_factory.mktemp("folder-for-temporary-files-of-a-job")
    settings = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "shared"), *sys.path]),
        "REPORTER_UPDATE_INTERVAL_MS": "7000",
        "TMPDIR": str(temporary),
    }
    command = [sys.executable, "-c", _JOB]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def settings(said: list[str]) -> Any:
    """Read the environment variables of Ray's processes, and those of the job after it has started Ray."""
    return json.loads(said[0])


def test_a_local_ray_looks_for_logs_rarely(settings: Any) -> None:
    assert "LOG_NAME_UPDATE_INTERVAL_S=60" in settings["of ray"]
    assert not any("LOG_NAME_UPDATE_INTERVAL_S" in setting for setting in settings["own"])


def test_a_local_ray_starts_though_the_folder_for_temporary_files_has_a_long_name(settings: Any) -> None:
    assert "RAY_TMPDIR=/tmp" in settings["of ray"]
    assert not any(setting.startswith("RAY_TMPDIR") for setting in settings["own"])


def test_what_the_user_has_set_stays(settings: Any) -> None:
    assert "REPORTER_UPDATE_INTERVAL_MS=7000" in settings["of ray"]
    assert "REPORTER_UPDATE_INTERVAL_MS=7000" in settings["own"]


def test_a_local_ray_runs_a_unit_on_each_core_that_the_job_may_use(settings: Any) -> None:
    assert settings["resources"]["CPU"] == 1


def test_units_on_a_local_ray_get_the_memory_that_the_job_may_have_but_for_that_of_ray(settings: Any) -> None:
    assert settings["resources"]["memory"] == 700_000_000


def test_what_ray_is_told_of_the_command_has_no_secret_of_a_url_and_is_text() -> None:
    urls = [
        "https://host/a.mp4?X-Name=a b&X-Signature=secret",
        "s3://key:secret@b/c.mp4",
        "--list-root=https://h/#secret",
    ]
    command = ["shortgop", "prep", *urls, os.fsdecode(b"caf" + bytes([0xE9]))]
    assert shown_command(command) == r"shortgop prep https://host/a.mp4 s3://b/c.mp4 --list-root=https://h/ 'caf\udce9'"


def test_a_job_that_is_told_to_end_when_ray_has_ended_ends_tidily(said: list[str]) -> None:
    """It still writes the dataset then. Ray leaves a process without any handler for SIGTERM."""
    assert said[1:] == ["ended tidily"]


def test_where_a_local_ray_does_not_start_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself speaks of a time limit."""

    def late(**_: Any) -> None:
        raise TimeoutError("the node timed out")

    monkeypatch.setattr(ray, "init", late)
    said = "a local Ray does not start: the node timed out; "
    with pytest.raises(ToolError, match=f"{said}run the same command again when the machine is less busy, or give"):
        connect()
    with mounted_disk(tmp_path) as disk:
        monkeypatch.setenv("RAY_TMPDIR", str(disk))
        with pytest.raises(
            ToolError, match=rf"{said}its logs and sockets lie in {disk}, which has only 5\.\d+ MB left"
        ):
            connect()


@pytest.mark.parametrize(
    ("variable", "folder", "why"),
    [
        ("RAY_TMPDIR", "missing", "No such file or directory"),
        ("RAY_TMPDIR", "x" * 60, "path length cannot exceed 107 bytes"),
        # Ray goes there, where Python takes another folder.
        ("TMPDIR", "missing", "No such file or directory"),
    ],
)
def test_where_a_local_ray_does_not_start_the_folder_of_its_sockets_is_named(
    variable: str, folder: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to try again when the machine is less busy."""
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        place = "/proc/missing" if folder == "missing" else f"{parent}/{folder}"
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        monkeypatch.setenv(variable, place)
        said = rf"{why}.*; its logs and sockets lie in {place}: set RAY_TMPDIR to another folder, such as /tmp, or give"
        with pytest.raises(ToolError, match=said):
            connect()


def connect() -> None:
    with connected(None, 1, 0):
        pass
