"""Joining a Ray cluster that was started with `ray start --head`, with and without tokens."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

import shortgop
from datasets import make_dataset
from documents import ROOT, rows, section
from loader_helpers import comes_true
from own_units import make_own_units
from ray_heads import BIN, Head, free_ports, ray_head, user_environment
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.job_status import read_status
from shortgop.jobs.progress.tally import Progress
from shortgop.jobs.steps import Step
from shortgop.manifests.dataset_files.layout import create
from shortgop.manifests.dataset_files.parts import finished_units
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from sweep import only_in_a_sweep, sample
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.long

_VIDEOS = 3
_FRAMES = 20
# The job goes on while it is being stopped.
_LONG_VIDEOS = 8
_PATIENCE_SECONDS = 120
# What Ray itself takes to give up on a token is 20 s.
_SOON_SECONDS = 15


@pytest.fixture(scope="module")
def guarded() -> Iterator[Head]:
    with ray_head("--include-dashboard=true", token=True) as head:
        yield head


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with sources, `clips`, in which commands are run."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "clips").mkdir()
    for number in range(_VIDEOS):
        make_video(
            folder / "clips" / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), _FRAMES),
            timebase=Fraction(1, 30), first_number=1000 * number,
        )  # fmt: skip
    return folder


def prep(
    folder: Path, environment: dict[str, str], *arguments: str, sources: Sequence[str] = ("clips",)
) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "shortgop"), "prep", *sources, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def assert_whole(dataset: Path) -> None:
    videos = shortgop.open(dataset)
    for number, video in enumerate(videos):
        last = _FRAMES - 1
        assert [read_number(picture) for picture in video.get_frames_at([0, last]).data] == [
            1000 * number, 1000 * number + last,
        ]  # fmt: skip
    assert len(videos) == _VIDEOS
    assert not (dataset / ".tmp").exists()


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


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make what workers find at `covered`, as if that were on each machine's own disk: another dataset."""
    folder = tmp_path_factory.mktemp("elsewhere")
    create(DiskStorage(folder / "dataset"), Profile().to_json())
    return folder


@pytest.fixture(scope="module")
def covered(folder: Path) -> Path:
    """Make a folder that the workers of the open cluster do not see, where tests may hide folders from them."""
    covered = folder / "covered"
    covered.mkdir()
    return covered


@pytest.fixture(scope="module")
def may_hide() -> bool:
    command = ["unshare", "--mount", "true"]
    return bool(shutil.which("unshare")) and not subprocess.run(command, capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def metrics_port() -> int:
    (port,) = free_ports(1)
    return port


@pytest.fixture(scope="module")
def unguarded(covered: Path, elsewhere: Path, may_hide: bool, metrics_port: int) -> Iterator[Head]:
    """Start a cluster without authentication. Its workers see `elsewhere` at `covered`, where that is allowed."""
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    within = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(elsewhere), str(covered))
    options = (f"--metrics-export-port={metrics_port}",)
    with ray_head(*options, token=False, within=within if may_hide else ()) as head:
        yield head


@pytest.fixture
def hidden(covered: Path, may_hide: bool) -> Path:
    if not may_hide:
        pytest.skip("hiding a folder from processes takes rights that are missing here")
    return covered


def test_a_job_counts_its_frames_bytes_units_and_failures(unguarded: Head, metrics_port: int, tmp_path: Path) -> None:
    """At a node's Prometheus endpoint, by the name that the node has in the job's status. It has to be the first job of
    this cluster: all jobs are counted there."""
    sources = tmp_path / "sources"
    sources.mkdir()
    make_video(
        sources / "a.mp4", pts=constant_rate_pts(Fraction(30), 60), timebase=Fraction(1, 30), size=(320, 256)
    )  # fmt: skip
    (sources / "broken.mp4").write_text("not a video")
    done = prep(
        tmp_path, dict(unguarded.environment), "--out", "dataset", "--address", unguarded.address, sources=["sources"]
    )
    assert done.returncode == 3, done.stderr
    ((node, work),) = read_status(DiskStorage(tmp_path / "dataset")).node_work.items()
    assert node.startswith(f"{socket.gethostname()}/")
    found = scraped(metrics_port, "ray_shortgop_failed_sources_total")
    assert found["ray_shortgop_frames_total"] == {node: 60}
    assert found["ray_shortgop_failed_sources_total"] == {node: work.sources_failed} == {node: 1}
    assert found["ray_shortgop_units_total"] == {node: work.units}
    assert found["ray_shortgop_bytes_in_total"] == {node: work.bytes_in}
    assert work.bytes_in == sum(file.stat().st_size for file in sources.iterdir())
    assert found["ray_shortgop_bytes_out_total"] == {node: work.bytes_out}
    assert work.bytes_out == sum(file.stat().st_size for file in (tmp_path / "dataset" / "shards").iterdir())
    seconds = found["ray_shortgop_step_seconds_total"]
    assert seconds.keys() == {node}
    assert seconds[node] > 0
    assert_page_has(endpoint(f"127.0.0.1:{metrics_port}"))


def assert_page_has(text: str) -> None:
    """The page names all metrics of shortgop's that are at an endpoint, and no other; and labels that they have."""
    exported = dict(re.findall(r"^(ray_shortgop_\w+){(.*)} ", text, re.MULTILINE))
    page = section(ROOT / "docs" / "cluster.md", "Metrics")
    assert rows(page, "metric").keys() == exported.keys()
    assert set(re.findall(r"ray_shortgop_\w+", page)) == exported.keys()
    labels = rows(page, "label")
    assert {"node", "step"} <= labels.keys()
    for name, values in exported.items():
        of_seconds = name == "ray_shortgop_step_seconds_total"
        # Only seconds have a step.
        expected = labels.keys() if of_seconds else labels.keys() - {"step"}
        assert {*re.findall(r'(\w+)="', values)} & {*labels} == expected
    assert set(re.findall(r"`(\w+)`", labels["step"])) == {step.__name__ for step in get_args(Step)}
    queries = re.findall(r"`sum by \((\w+)\) \((?:rate\()?(\w+)(?:\[1m\]\))?\)`", page)
    assert len(queries) == page.count("`sum by") == 2
    assert all(f"{label}=" in exported[metric] for label, metric in queries)


def endpoint(address: str) -> str:
    text: str = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
    return text


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


def scraped(port: int, wanted: str) -> dict[str, dict[str, float]]:
    """The sums of all metrics at the endpoint, by their name and that of the node, as soon as the wanted one is there:
    Ray exports every few seconds."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        text = endpoint(f"127.0.0.1:{port}")
        found: dict[str, dict[str, float]] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                of_node = re.search(r'[{,]node="([^"]*)"', name)
                sums = found.setdefault(name.partition("{")[0], {})
                node = of_node[1] if of_node else ""
                sums[node] = sums.get(node, 0.0) + float(value)
        if wanted in found:
            return found
        assert time.monotonic() < end, json.dumps(sorted(name for name in found if "shortgop" in name))
        time.sleep(0.5)


@only_in_a_sweep
def test_a_token_at_hand_does_no_harm_where_none_is_wanted(unguarded: Head, folder: Path, tmp_path: Path) -> None:
    """With it, workers of such a cluster could not talk to the driver."""
    environment = user_environment(
        tmp_path, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="outdated", RAY_TMPDIR=unguarded.environment["RAY_TMPDIR"]
    )
    done = prep(folder, environment, "--out", "unguarded", "--address", "auto")
    assert done.returncode == 0, done.stderr
    assert_whole(folder / "unguarded")


def complaint(unguarded: Head, folder: Path, source: Path, dataset: Path) -> str:
    """What a job says that the cluster's workers are not fit for."""
    with pytest.raises((shortgop.OutputError, shortgop.ToolError)) as caught:
        prepare([str(source)], DiskStorage(dataset), Profile(), where=Where(address=unguarded.address))
    text = str(caught.value)
    assert f"on the cluster's node {socket.gethostname()} (" in text
    assert "all nodes of a cluster need the dataset and the sources at the same paths" in text
    return text


def test_a_worker_that_does_not_see_the_dataset_is_named(unguarded: Head, folder: Path, hidden: Path) -> None:
    text = complaint(unguarded, folder, folder / "clips", hidden / "new")
    assert f"there is no folder {hidden}/new" in text
    assert not (hidden / "new" / ".tmp").exists()


def test_a_worker_with_another_dataset_of_that_path_is_named(
    unguarded: Head, folder: Path, hidden: Path, elsewhere: Path
) -> None:
    """What it wrote there would be lost without a word."""
    before = sorted(elsewhere.rglob("*"))
    text = complaint(unguarded, folder, folder / "clips", hidden / "dataset")
    assert f"{hidden}/dataset is not the job's folder" in text
    assert sorted(elsewhere.rglob("*")) == before


def test_sources_that_only_the_driver_sees_are_no_failures(unguarded: Head, folder: Path, hidden: Path) -> None:
    """One node that lacks a mount would otherwise turn a whole corpus into failures."""
    source = hidden / "mine.mp4"
    source.write_bytes((folder / "clips" / "0.mp4").read_bytes())
    assert f"'{source}' cannot be read" in complaint(unguarded, folder, source, folder / "mine")
    assert finished_units(DiskStorage(folder / "mine")) == set()


def test_a_machine_that_is_no_node_of_the_cluster_is_told_so(
    unguarded: Head, folder: Path, tmp_path: Path, may_hide: bool
) -> None:
    """Ray would look for a node here for a minute."""
    if not may_hide:
        pytest.skip("hiding processes takes rights that are missing here")
    command = ["unshare", "--pid", "--fork", "--mount-proc", str(BIN / "shortgop"), "prep", "clips", "--out", "lonely"]
    done = subprocess.run(
        [*command, "--address", unguarded.address],
        cwd=folder, env=user_environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"the Ray cluster at {unguarded.address} has no node on this machine" in done.stderr
    assert f"run `ray start --address {unguarded.address}` here first" in done.stderr


def test_a_source_that_goes_away_meanwhile_fails_alone(unguarded: Head, folder: Path, tmp_path: Path) -> None:
    """The driver cannot read it any more than the worker can; and a process may join one cluster after the other."""
    going, staying = tmp_path / "going.mp4", tmp_path / "staying.mp4"
    for file in (going, staying):
        file.write_bytes((folder / "clips" / "0.mp4").read_bytes())

    def watch(progress: Progress) -> None:
        if progress.note.startswith("joining"):
            going.unlink(missing_ok=True)

    where = Where(address=unguarded.address)
    sources = [str(going), str(staying)]
    report = prepare(sources, DiskStorage(tmp_path / "dataset"), Profile(), where=where, on_update=watch)
    assert report.videos_added == 1
    (failure,) = report.failures
    assert failure.id == "going.mp4"
    assert f"{going} does not exist" in failure.reason


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


def test_ray_in_use_in_this_process_is_left_alone(unguarded: Head, folder: Path, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(address=unguarded.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        with pytest.raises(shortgop.ToolError, match=r"call ray\.shutdown\(\) first"):
            prepare([str(folder / "clips")], DiskStorage(tmp_path / "dataset"), Profile())
        assert ray.is_initialized()
    finally:
        ray.shutdown()


def test_the_environment_is_as_it_was(
    unguarded: Head, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray switches tokens on for good, in this process and all that it starts."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    before = dict(os.environ)
    where = Where(address=unguarded.address)
    prepare([str(folder / "clips" / "0.mp4")], DiskStorage(tmp_path / "dataset"), Profile(), where=where)
    assert {name: value for name, value in os.environ.items() if "RAY" in name} == {
        name: value for name, value in before.items() if "RAY" in name
    }
