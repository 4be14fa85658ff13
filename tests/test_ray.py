"""Units on Ray: a cluster whose nodes come and go gives the dataset that a plain loop gives."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset, rows_of
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.tally import Progress
from shortgop.manifests.parts import finished_units
from shortgop.prep.profile import Profile, parse_size
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for number in range(6):
        make_video(
            folder / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), 120), timebase=Fraction(1, 30),
            size=(320, 256), first_number=1000 * number, options={"qp": "1", "preset": "ultrafast"},
        )  # fmt: skip
    (folder / "broken.mp4").write_text("not a video")
    return folder


@pytest.fixture
def cluster() -> Iterator[object]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        yield cluster
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]


def test_a_cluster_that_loses_a_node(sources: Path, cluster: object, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)  # type: ignore[attr-defined]
    dataset = tmp_path / "dataset"
    lost = threading.Event()
    seen: list[tuple[int, int]] = []

    def watch(progress: Progress) -> None:
        seen.append((progress.frames_done, progress.frames_planned))
        if finished_units(DiskStorage(dataset)) and not lost.is_set():
            lost.set()
            cluster.remove_node(node, allow_graceful=False)  # type: ignore[attr-defined]

    where = Where(address=cluster.address)  # type: ignore[attr-defined]
    report = prepare([str(sources)], DiskStorage(dataset), Profile(), where=where, on_update=watch)

    assert lost.is_set()
    assert (report.videos_added, report.frames_added) == (6, 720)
    assert [failure.id for failure in report.failures] == ["broken.mp4"]
    assert seen[-1] == (720, 720)
    make_dataset([sources], tmp_path / "plain")
    assert rows_of(dataset) == rows_of(tmp_path / "plain")


def test_a_job_that_is_stopped_takes_its_unit_along(sources: Path, cluster: object, tmp_path: Path) -> None:
    """The cluster goes on, so the unit has to be told: ffmpeg is gone before another job may use the dataset."""
    stopped: list[float] = []

    def stop(progress: Progress) -> None:
        if 0 < progress.frames_done < progress.frames_planned and not stopped:
            stopped.append(time.monotonic())
            raise KeyboardInterrupt

    source, where = sources / "0.mp4", Where(address=cluster.address)  # type: ignore[attr-defined]
    # Some ten seconds of work, which Ray does not wait for.
    slow = Profile(size=parse_size("1080"), upscale=True, preset="veryslow")
    with pytest.raises(KeyboardInterrupt):
        prepare([str(source)], DiskStorage(tmp_path / "dataset"), slow, where=where, on_update=stop)
    assert time.monotonic() - stopped[0] < 6
    assert running_on(source) == []
    assert not (tmp_path / "dataset" / ".tmp").exists()
    assert finished_units(DiskStorage(tmp_path / "dataset")) == set()


def running_on(source: Path) -> list[str]:
    """The command lines of all processes that name this file."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().decode(errors="replace").split("\0")
            found += [" ".join(words)] if any(str(source) in word for word in words) else []
    return found


def test_a_source_that_kills_its_worker_each_time_becomes_a_failure(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand in for ffmpeg with a program that kills whoever runs it on one source, as running out of memory would."""
    from shortgop.prep.ffmpeg import find_ffmpeg

    killer = tmp_path / "ffmpeg"
    killer.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *file:{sources}/3.mp4*) kill -{int(signal.SIGKILL)} $PPID;; esac\n'
        f'exec {find_ffmpeg().path} "$@"\n'
    )
    killer.chmod(0o755)
    find_ffmpeg.cache_clear()
    monkeypatch.setenv("SHORTGOP_FFMPEG", str(killer))
    try:
        report = prepare([str(sources)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where(workers=2))
    finally:
        find_ffmpeg.cache_clear()
    assert report.videos_added == 5
    reasons = {failure.id: failure.reason for failure in report.failures}
    assert set(reasons) == {"3.mp4", "broken.mp4"}
    assert "its worker died" in reasons["3.mp4"]
    assert [failure.id for failure in shortgop.open(tmp_path / "dataset").failures] == ["3.mp4", "broken.mp4"]


def test_an_address_where_no_cluster_is_is_refused(sources: Path, tmp_path: Path) -> None:
    where = Where(address="127.0.0.1:1")
    with pytest.raises(shortgop.ToolError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        prepare([str(sources)], DiskStorage(tmp_path / "dataset"), Profile(), where=where)
