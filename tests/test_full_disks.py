"""Sources in stores, and machines of a Ray cluster whose folders for temporary files lie on small disks."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from own_units import make_own_units
from ray_heads import cluster_of
from shortgop.jobs import rooms
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from store_helpers import put
from synthetic import constant_rate_pts, make_video

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


def test_a_machine_with_a_full_disk_fails_no_source_while_another_one_has_room(
    sources: str, small_disk: Path, tmp_path: Path
) -> None:
    (small_disk / "full").write_bytes(bytes(_DISK_BYTES - 2**16))
    notes: set[str] = set()
    full = {"num_cpus": 2, "env_vars": {"TMPDIR": str(small_disk)}}
    with cluster_of({"num_cpus": 0}, full, {"num_cpus": 1}) as (cluster, _):
        report = run(sources, tmp_path / "dataset", cluster, notes)
    assert (report.videos_added, report.failures) == (4, ())
    assert any(f"; 1 machine has no room for some sources: {small_disk} on " in note for note in notes)


def test_large_sources_that_meet_on_a_small_disk_are_prepared_one_after_the_other(
    sources: str, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for one of them."""
    monkeypatch.setattr(rooms, "WAIT_SECONDS", 1.0)
    largest_bytes = max(file.stat().st_size for file in (tmp_path / "videos").iterdir())
    (small_disk / "full").write_bytes(bytes(_DISK_BYTES - 3 * largest_bytes // 2))
    with cluster_of({"num_cpus": 3, "env_vars": {"TMPDIR": str(small_disk)}}) as (cluster, _):
        report = run(sources, tmp_path / "dataset", cluster)
    assert (report.videos_added, report.failures) == (4, ())


def test_a_source_that_fits_on_no_machine_fails_alone(sources: str, small_disk: Path, tmp_path: Path) -> None:
    put_larger_than_the_disk(f"{sources}large.mp4", tmp_path)
    with cluster_of({"num_cpus": 2, "env_vars": {"TMPDIR": str(small_disk)}}) as (cluster, _):
        report = run(sources, tmp_path / "dataset", cluster)
    assert report.videos_added == 4
    (failure,) = report.failures
    assert f"{sources}large.mp4 does not fit into {small_disk}, where it is kept" in failure.reason
    assert "set TMPDIR to a larger disk" in failure.reason
