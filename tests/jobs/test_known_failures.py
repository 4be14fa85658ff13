"""Failures in a dataset: recorded once, and withdrawn when their sources are gone."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import BinaryIO

import pytest

import shortgop
from datasets import make_dataset
from example_manifests import failure, rows, video
from shortgop.jobs.sources import known_failures
from shortgop.jobs.sources.known_failures import recorded_failures
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.working.work import give_up
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.zarr_files import zarr_zip as zips
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from synthetic import SyntheticVideo


@pytest.fixture
def folder(constant_video: SyntheticVideo, tmp_path: Path) -> Path:
    folder = tmp_path / "videos"
    (folder / "below").mkdir(parents=True)
    (folder / "good.mp4").write_bytes(constant_video.path.read_bytes())
    for name in ("bad.mp4", "below/worse.mp4"):
        (folder / name).write_text("no video")
    return folder


def failed(dataset: Path) -> list[str]:
    return [each.id for each in shortgop.open(dataset).failures]


def test_a_failure_whose_source_is_gone_leaves_with_the_next_job_over_its_folder(folder: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    assert len(make_dataset([folder], dataset).failures) == 2
    (folder / "below" / "worse.mp4").unlink()
    assert failed(dataset) == ["bad.mp4", "below/worse.mp4"]
    make_dataset([folder], dataset)
    assert failed(dataset) == ["bad.mp4"]
    # And does not come back.
    make_dataset([folder], dataset)
    assert failed(dataset) == ["bad.mp4"]


@pytest.mark.parametrize("prefix", ["file://{home}", "~"])
def test_a_folder_may_be_given_in_other_words(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    given, dataset = f"{prefix.format(home=tmp_path)}/{folder.name}", tmp_path / "dataset"
    make_dataset([given], dataset)
    (folder / "below" / "worse.mp4").unlink()
    make_dataset([given], dataset)
    assert failed(dataset) == ["bad.mp4"]


def test_a_failure_that_comes_back_is_listed_again(folder: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    make_dataset([folder], dataset)
    for _ in range(2):
        (folder / "bad.mp4").unlink()
        make_dataset([folder], dataset)
        assert failed(dataset) == ["below/worse.mp4"]
        (folder / "bad.mp4").write_text("no video")
        assert [each.id for each in make_dataset([folder], dataset).failures] == ["bad.mp4", "below/worse.mp4"]
        assert failed(dataset) == ["bad.mp4", "below/worse.mp4"]


def test_failures_leave_and_come_back_when_the_clock_is_set_back(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, now = tmp_path / "dataset", time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    make_dataset([folder], dataset)
    for _ in range(2):
        now -= 3_600_000_000_000
        (folder / "bad.mp4").unlink()
        make_dataset([folder], dataset)
        assert failed(dataset) == ["below/worse.mp4"]
        now -= 3_600_000_000_000
        (folder / "bad.mp4").write_text("no video")
        make_dataset([folder], dataset)
        assert failed(dataset) == ["bad.mp4", "below/worse.mp4"]


def test_a_clock_that_was_ahead_counts_for_the_failures_that_it_dated_alone(folder: Path, tmp_path: Path) -> None:
    dataset, ahead = tmp_path / "dataset", time.time_ns() + 3_600_000_000_000
    make_dataset([folder / "good.mp4"], dataset)
    write_part(DiskStorage(dataset), "u1", merge([failure("elsewhere", "cut short", ahead)]))
    publish(DiskStorage(dataset))
    make_dataset([folder], dataset)
    attempted = recorded_failures(DiskStorage(dataset)).times_ns
    assert attempted["elsewhere"] == ahead
    assert attempted["bad.mp4"] < ahead


def test_a_glob_that_is_longer_than_names_may_be_is_no_folder(folder: Path, tmp_path: Path) -> None:
    dataset, glob = tmp_path / "dataset", str(folder / f"[gb]{'*' * 300}.mp4")
    make_dataset([glob], dataset)
    assert failed(dataset) == ["bad.mp4"]
    (folder / "bad.mp4").unlink()
    make_dataset([glob], dataset)
    assert failed(dataset) == []


def test_failures_elsewhere_are_left_alone(folder: Path, constant_video: SyntheticVideo, tmp_path: Path) -> None:
    """A job over other sources knows nothing of them: their disk may be at home."""
    dataset = tmp_path / "dataset"
    make_dataset([folder], dataset)
    (folder / "bad.mp4").unlink()
    (folder / "below" / "worse.mp4").unlink()
    make_dataset([constant_video.path], dataset)
    assert failed(dataset) == ["bad.mp4", "below/worse.mp4"]


def test_a_missing_file_that_a_list_names_stays_until_it_is_named_no_more(folder: Path, tmp_path: Path) -> None:
    dataset, listed = tmp_path / "dataset", folder / "list.txt"
    listed.write_text("good.mp4\nnowhere.mp4\n")
    for _ in range(2):
        make_dataset([listed], dataset)
        assert failed(dataset) == ["nowhere.mp4"]
    listed.write_text("good.mp4\n")
    make_dataset([listed], dataset)
    assert failed(dataset) == []


def test_withdrawn_failures_do_not_depend_on_the_order_of_merging() -> None:
    parts = [failure("a", "cut short", 1), failure("a", "", 2), failure("a", "gone bad", 3), failure("a", "", 4)]
    merged = [rows(merge([*order, video("b")])) for order in itertools.permutations(parts)]
    assert all(each == merged[0] for each in merged)
    assert merged[0]["failures.reason"] == [b""]


def test_failures_are_read_once_for_each_snapshot_and_without_the_other_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = tmp_path / "dataset"
    create(DiskStorage(dataset), {})
    write_part(DiskStorage(dataset), "u1", merge([failure("a", "cut short"), video("b")]))
    publish(DiskStorage(dataset))
    opened: list[str] = []
    real = zips.Members.__call__

    def noting(members: zips.Members, key: str) -> BinaryIO:
        opened.append(key)
        return real(members, key)

    monkeypatch.setattr(zips.Members, "__call__", noting)
    for _ in range(100):
        assert recorded_failures(DiskStorage(dataset)).failures == {("a", "cut short")}
    assert len(opened) == len(set(opened))
    assert {key.split("/")[0] for key in opened} == {"zarr.json", "failures"}
    write_part(DiskStorage(dataset), "u2", failure("c", "cut short"))
    publish(DiskStorage(dataset))
    assert recorded_failures(DiskStorage(dataset)).failures == {("a", "cut short"), ("c", "cut short")}
    known_failures._failures_in.cache_clear()


def test_a_source_that_kills_its_workers_again_is_listed_again(folder: Path, tmp_path: Path) -> None:
    """Its part of that unit says the same as before, but a later part has withdrawn the failure."""
    dataset = tmp_path / "dataset"
    (folder / "good.mp4").unlink()
    make_dataset([folder], dataset)
    storage = DiskStorage(dataset)
    killers = find_sources([str(folder / "bad.mp4")], [str(folder)])
    unit = Unit("0" * 16, tuple(Item(source, 1, 1) for source in killers))
    for _ in range(2):
        (folder / "bad.mp4").unlink(missing_ok=True)
        make_dataset([folder], dataset)
        assert failed(dataset) == ["below/worse.mp4"]
        give_up(storage, unit, "its worker died 4 times")
        publish(storage)
        assert failed(dataset) == ["bad.mp4", "below/worse.mp4"]
