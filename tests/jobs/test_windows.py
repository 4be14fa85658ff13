"""A job plans the units of one window of its sources after the other: what is the same for it, and what comes first."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import shortgop
from datasets import rows_of
from shortgop.errors import SourceError, TooManyFailuresError, UsageError
from shortgop.jobs.cluster import ray_looks
from shortgop.jobs.cluster.ray_looks import looks_on_cluster
from shortgop.jobs.cluster.ray_tasks import RayTasks
from shortgop.jobs.finding.source import Source
from shortgop.jobs.progress.tally import Progress
from shortgop.jobs.sources.failing import WORKER_DIED, parse_max_failures
from shortgop.jobs.sources.look import Looked
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.working.work import give_up
from shortgop.manifests.dataset_files.parts import finished_parts, finished_units
from shortgop.manifests.operations.drop import drop
from shortgop.storage.disk import DiskStorage
from windowed_jobs import NAMES, film, films_in, first_numbers, noted, run, stops_when, without_places


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    films_in(folder)
    return folder


@pytest.fixture
def corpus(films: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(films, tmp_path / "corpus"))


@pytest.fixture(scope="module")
def in_windows(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an undisturbed job with windows of two sources makes of the films."""
    out = tmp_path_factory.mktemp("in_windows") / "dataset"
    assert run(out, films).videos_added == len(NAMES)
    assert len(finished_units(DiskStorage(out))) == 4
    return out


def test_a_job_in_windows_makes_the_same_videos(films: Path, in_windows: Path, tmp_path: Path) -> None:
    run(tmp_path / "at_once", films, window_sources=1000)
    assert len(finished_units(DiskStorage(tmp_path / "at_once"))) == 1
    assert without_places(rows_of(in_windows)) == without_places(rows_of(tmp_path / "at_once"))
    assert first_numbers(in_windows) == {name: 100 * number for number, name in enumerate(NAMES)}


def test_encoding_begins_before_all_sources_are_looked_at(films: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    run(tmp_path / "dataset", films, on_update=seen.append)
    begun = next(each for each in seen if each.sources_done)
    # All sources count from the beginning, their frames as soon as they were looked at.
    assert begun.sources_total == 7
    assert begun.sources_planned < 7
    assert begun.note == f"encoding; {begun.sources_planned} of 7 sources looked at"
    assert begun.frames_planned == 20 * begun.sources_planned
    assert begun.frames_expected == 140
    assert {each.sources_total for each in seen[seen.index(begun) :]} == {7}
    last = seen[-1]
    assert (last.sources_done, last.sources_planned, last.frames_planned, last.note) == (7, 7, 140, "encoding")


@pytest.mark.long
@pytest.mark.usefixtures("bare_local_ray")
def test_ray_gets_the_units_of_all_windows_and_looks_at_their_sources(
    films: Path, in_windows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Looked | None] = []
    begin = RayTasks.begin
    has_begun = threading.Event()

    def begin_and_note(tasks: RayTasks, now: float) -> None:
        begin(tasks, now)
        has_begun.set()

    # Units get free cores first: Ray has the first ones when it is asked to look at what follows.
    monkeypatch.setattr(RayTasks, "begin", begin_and_note)
    monkeypatch.setattr(ray_looks, "looks_on_cluster", lambda ask: noted(looks_on_cluster(ask), looked, has_begun))
    seen: list[Progress] = []
    report = run(tmp_path / "dataset", films, runner="ray", on_update=seen.append)
    assert (report.videos_added, report.frames_added) == (7, 140)
    assert rows_of(tmp_path / "dataset") == rows_of(in_windows)
    assert {each.sources_planned for each in seen} >= {1, 7}
    # The driver looks at the first window, and at what it comes to before Ray is started.
    ids = {each.item.source.id for each in looked if each is not None}
    assert {"f.mp4", "g.mp4"} <= ids <= {*NAMES} - {"a.mp4"}


@pytest.mark.first_case_short
@pytest.mark.parametrize("sources_done", [0, 1, 3, 5])
def test_a_job_that_ends_between_two_windows_goes_on_as_if_nothing_had_been(
    sources_done: int, films: Path, in_windows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dataset"
    with pytest.raises(KeyboardInterrupt):
        run(out, films, on_update=stops_when(lambda now: now.sources_planned > 0 and now.sources_done == sources_done))
    assert len(finished_units(DiskStorage(out))) == (sources_done + 1) // 2
    report = run(out, films)
    assert (report.already_there, report.videos_added) == (sources_done, 7 - sources_done)
    assert rows_of(out) == rows_of(in_windows)
    assert finished_parts(DiskStorage(out)) == finished_parts(DiskStorage(in_windows))


def test_a_changed_source_of_any_window_ends_the_job_before_anything_is_encoded(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    run(out, corpus)
    rows = rows_of(out)
    film(corpus / "0.mp4", 800)
    film(corpus / "f.mp4", 900)
    with pytest.raises(SourceError, match=r"1 source changed since being prepared: .*f\.mp4.*Nothing was encoded"):
        run(out, corpus, changed="fail")
    assert rows_of(out) == rows


def test_changed_sources_of_several_windows_replace_their_videos(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    run(out, corpus)
    film(corpus / "b.mp4", 800)
    film(corpus / "f.mp4", 900)
    film(corpus / "h.mp4", 700)
    kept = run(out, corpus, changed="keep")
    assert (kept.already_there, kept.videos_added, kept.outdated) == (5, 1, ("b.mp4", "f.mp4"))
    report = run(out, corpus, changed="replace")
    assert (report.already_there, report.videos_added, report.replaced) == (6, 0, ("b.mp4", "f.mp4"))
    assert first_numbers(out) == {
        **{name: 100 * number for number, name in enumerate(NAMES)},
        "b.mp4": 800,
        "f.mp4": 900,
        "h.mp4": 700,
    }


def test_an_id_of_another_file_is_told_before_anything_is_encoded(corpus: Path, films: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    for folder in (corpus, tmp_path / "other"):
        folder.mkdir(exist_ok=True)
        (folder / "list.txt").write_text("a.mp4\nb.mp4\nc.mp4\nf.mp4\n")
    (corpus / "list.txt").write_text("f.mp4\n")
    run(out, corpus / "list.txt")
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        shutil.copy(films / name, tmp_path / "other")
    film(tmp_path / "other" / "f.mp4", 900)
    with pytest.raises(UsageError, match=r"other/f\.mp4 would get the id 'f\.mp4', which another file has"):
        run(out, tmp_path / "other" / "list.txt", changed="replace")
    assert first_numbers(out) == {"f.mp4": 500}


def test_two_files_with_one_id_are_told_wherever_they_are(corpus: Path, tmp_path: Path) -> None:
    (corpus / "list.csv").write_text("path,id\n" + "".join(f"{name},{name}\n" for name in NAMES) + "a.mp4,g.mp4\n")
    with pytest.raises(UsageError, match=r"are two files with the same id 'g\.mp4'"):
        run(tmp_path / "dataset", corpus / "list.csv")
    # Of one window nothing is encoded before all sources are found.
    with pytest.raises(UsageError, match=r"are two files with the same id 'g\.mp4'"):
        run(tmp_path / "at_once", corpus / "list.csv", window_sources=1000)
    assert not (tmp_path / "at_once").exists()


def test_equal_contents_in_different_windows_are_reported(corpus: Path, tmp_path: Path) -> None:
    shutil.copy(corpus / "a.mp4", corpus / "z.mp4")
    report = run(tmp_path / "dataset", corpus)
    assert (report.videos_added, report.equal_contents.pairs) == (8, (("a.mp4", "z.mp4"),))


def test_labels_and_files_that_the_dataset_has_under_other_ids(corpus: Path, in_windows: Path, tmp_path: Path) -> None:
    """A list gives labels to what a folder was prepared from, in every window, and stores nothing once more."""
    run(tmp_path / "dataset", corpus)
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"corpus/{name},{name[0]}\n" for name in NAMES))
    for sources in ([tmp_path / "list.csv"], [tmp_path / "list.csv", corpus]):
        report = run(tmp_path / "dataset", *sources)
        assert (report.already_there, report.videos_added) == (7, 0)
        assert report.relabelled == (7 if len(sources) == 1 else 0)
    assert [video.attributes for video in shortgop.open(tmp_path / "dataset")] == [{"label": name[0]} for name in NAMES]
    assert first_numbers(tmp_path / "dataset") == first_numbers(in_windows)


def test_lost_videos_of_several_windows_are_made_again_and_dropped_ones_are_left_out(
    films: Path, in_windows: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(in_windows, tmp_path / "dataset"))
    drop(DiskStorage(out), ["d.mp4"])
    for shard in (out / "shards").iterdir():
        shard.unlink()
    report = run(out, films)
    assert report.repaired == tuple(name for name in NAMES if name != "d.mp4")
    assert (report.sources, report.dropped, report.already_there, report.videos_added) == (7, ("d.mp4",), 0, 0)
    assert "d.mp4" not in first_numbers(out)
    assert run(out, films, include_dropped=True).videos_added == 1
    assert first_numbers(out) == first_numbers(in_windows)


def test_a_part_of_the_sources_that_may_fail_is_one_of_all_windows(corpus: Path, tmp_path: Path) -> None:
    (corpus / "a.mp4").write_text("not a video")
    # The only source of its window, and one of seven of the job.
    report = run(tmp_path / "one", corpus, max_failures=parse_max_failures("20%"))
    assert (report.videos_added, [failure.id for failure in report.failures]) == (6, ["a.mp4"])
    (corpus / "b.mp4").write_text("not a video either")
    with pytest.raises(TooManyFailuresError, match="2 of 7 sources failed"):
        run(tmp_path / "two", corpus, max_failures=parse_max_failures("20%"))


def test_what_has_failed_is_tried_again_and_withdrawn_in_every_window(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    for name in ("a.mp4", "e.mp4", "g.mp4"):
        (corpus / name).write_text("not a video")
    assert len(run(out, corpus).failures) == 3
    (corpus / "a.mp4").unlink()
    film(corpus / "e.mp4", 400)
    report = run(out, corpus)
    assert (report.already_there, report.videos_added, [each.id for each in report.failures]) == (4, 1, ["g.mp4"])
    assert [row for row in reasons(out) if row[1]] == [("g.mp4", report.failures[0].reason)]


def test_a_source_that_killed_its_workers_is_set_aside_in_whichever_window_it_is(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    run(out, corpus / "a.mp4")
    killer = Source("f.mp4", str(corpus / "f.mp4"), "f.mp4", "{}")
    give_up(DiskStorage(out), Unit("0" * 16, (Item(killer, 1, 1),)), f"f.mp4: {WORKER_DIED} 4 times")
    report = run(out, corpus)
    assert (report.already_there, report.videos_added, [each.id for each in report.failures]) == (1, 5, ["f.mp4"])
    assert report.failures[0].reason == f"f.mp4: {WORKER_DIED} 4 times; it was set aside; --retry-failed tries it again"
    assert run(out, corpus, retry_failed=True).videos_added == 1


def reasons(out: Path) -> Iterator[tuple[str, str]]:
    rows = rows_of(out)
    for source_id, reason in zip(rows["failures.id"], rows["failures.reason"], strict=True):
        yield source_id.decode(), reason.decode()
