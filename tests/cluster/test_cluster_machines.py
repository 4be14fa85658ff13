"""Jobs on a cluster whose machines differ from the driver's, and what they count. No token is wanted there."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import get_args

import pytest

import shortgop
from cluster_commands import assert_whole, endpoint, make_clips, prep
from documents import ROOT, rows, section
from ray_heads import BIN, Head, free_ports, ray_head, user_environment
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.job_status import read_status
from shortgop.jobs.progress.tally import Progress
from shortgop.jobs.units_of_work.steps import Step
from shortgop.manifests.dataset_files.parts import finished_units
from shortgop.manifests.dataset_files.root_file import create
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

_PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with sources, `clips`, in which commands are run."""
    folder = tmp_path_factory.mktemp("folder")
    make_clips(folder / "clips")
    return folder


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
