"""Sources in stores, and machines of a Ray cluster whose folders for temporary files lie on small disks."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dataset_places import s3_settings
from own_units import make_own_units
from ray_heads import cluster_of
from shortgop.jobs.cluster import rooms
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from small_disks import mounted_disk
from store_helpers import put
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

_DISK_BYTES = 5 * 2**20


@pytest.fixture
def sources(s3_url: str, tmp_path: Path) -> str:
    """Four videos in a store that do not share a unit."""
    for file in make_own_units(tmp_path / "videos", 4).iterdir():
        put(f"{s3_url}/in/{file.name}", file)
    return f"{s3_url}/in/"


def put_larger_than_the_disk(url: str, folder: Path) -> None:
    # Zeros behind a video are of no account to FFmpeg.
    file = make_video(folder / "l.mp4", pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30)).path
    put(url, file.read_bytes() + (_DISK_BYTES).to_bytes(4, "big") + b"free" + bytes(_DISK_BYTES - 8))


def run(sources: str, dataset: Path, cluster: Any, notes: set[str] | None = None) -> Report:
    """Run a job; what it says of itself is added to `notes`."""
    said = set[str]() if notes is None else notes
    return prepare(
        [sources], DiskStorage(dataset), Profile(), where=Where(address=cluster.address),
        on_update=lambda progress: said.add(progress.note),
    )  # fmt: skip


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted_disk(tmp_path_factory.mktemp("disk")) as disk:
        yield disk


@pytest.fixture(scope="module")
def cluster(disk: Path, s3_endpoint: str) -> Iterator[Any]:
    """Start a cluster of a head that runs no step and a machine that has its folder for temporary files there."""
    small = {"num_cpus": 3, "env_vars": {"TMPDIR": str(disk)}}
    with s3_settings(s3_endpoint), cluster_of({"num_cpus": 0}, small) as (cluster, _):
        yield cluster


@pytest.fixture
def ballast(disk: Path) -> Iterator[Path]:
    """Return the path of a file that takes room on the disk during a test."""
    yield disk / "ballast"
    (disk / "ballast").unlink(missing_ok=True)


def test_large_sources_that_meet_on_a_small_disk_are_prepared_one_after_the_other(
    sources: str, cluster: Any, ballast: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for one of them."""
    monkeypatch.setattr(rooms, "WAIT_SECONDS", 1.0)
    largest_bytes = max(file.stat().st_size for file in (tmp_path / "videos").iterdir())
    ballast.write_bytes(bytes(_DISK_BYTES - 3 * largest_bytes // 2))
    report = run(sources, tmp_path / "dataset", cluster)
    assert (report.videos_added, report.failures) == (4, ())


def test_a_source_that_fits_on_no_machine_fails_alone(sources: str, cluster: Any, disk: Path, tmp_path: Path) -> None:
    put_larger_than_the_disk(f"{sources}large.mp4", tmp_path)
    report = run(sources, tmp_path / "dataset", cluster)
    assert report.videos_added == 4
    (failure,) = report.failures
    assert f"{sources}large.mp4 does not fit into {disk}, where it is kept" in failure.reason
    assert "set TMPDIR to a larger disk" in failure.reason


def test_a_machine_with_a_full_disk_fails_no_source_while_another_one_has_room(
    sources: str, cluster: Any, disk: Path, ballast: Path, tmp_path: Path
) -> None:
    """The other one stays: this is the last test."""
    ballast.write_bytes(bytes(_DISK_BYTES - 2**16))
    cluster.add_node(num_cpus=1, include_log_monitor=False)
    notes: set[str] = set()
    report = run(sources, tmp_path / "dataset", cluster, notes)
    assert (report.videos_added, report.failures) == (4, ())
    assert any(f"; 1 machine has no room for some sources: {disk} on " in note for note in notes)
