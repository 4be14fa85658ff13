"""A job that goes on looks first at the windows in which something is left to do, and at the finished ones later."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import shortgop
from datasets import rows_of
from shortgop.errors import SourceError, TooManyFailuresError, UsageError
from shortgop.jobs.finding.source import Source
from shortgop.jobs.progress.tally import Progress
from shortgop.jobs.sources import where_to_look
from shortgop.jobs.sources.failing import parse_max_failures
from shortgop.jobs.sources.look import Looked, look_at
from shortgop.manifests.dataset_files.parts import finished_parts
from shortgop.storage.disk import DiskStorage
from windowed_jobs import NAMES, film, films_in, first_numbers, run

# The windows are a, bc, de and fg.
DONE, LEFT = ["a.mp4", "d.mp4", "e.mp4"], ["b.mp4", "c.mp4", "f.mp4", "g.mp4"]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    films_in(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the corpus lies in each of the tests, and where it lay when the datasets were made."""
    return tmp_path_factory.mktemp("place") / "corpus"


@pytest.fixture
def corpus(films: Path, place: Path) -> Path:
    """A copy that a test may change."""
    shutil.rmtree(place, ignore_errors=True)
    return Path(shutil.copytree(films, place))


@pytest.fixture(scope="module")
def _datasets(films: Path, place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    shutil.copytree(films, place)
    run(folder / "begun", place / "a.mp4")
    run(folder / "begun", place / "d.mp4", place / "e.mp4")
    run(folder / "undisturbed", place)
    return folder


@pytest.fixture
def begun(_datasets: Path, corpus: Path, tmp_path: Path) -> Path:
    """What a job that was interrupted has left: the first and the third of four windows."""
    return Path(shutil.copytree(_datasets / "begun", tmp_path / "dataset"))


@pytest.fixture
def undisturbed(_datasets: Path, corpus: Path, tmp_path: Path) -> Path:
    """What a job makes of the whole corpus."""
    return Path(shutil.copytree(_datasets / "undisturbed", tmp_path / "undisturbed"))


class Events:
    """The ids of sources in the order in which they are looked at, and the progress between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[str | Progress] = []

        def noted(sources: Sequence[Source], *arguments: Any, **options: Any) -> list[Looked]:
            self.all += [source.id for source in sources]
            return look_at(sources, *arguments, **options)

        monkeypatch.setattr(where_to_look, "look_at", noted)

    def before(self, is_time: Callable[[Progress], bool]) -> list[str]:
        """The ids of those that were looked at before some progress."""
        end = next(number for number, each in enumerate(self.all) if isinstance(each, Progress) and is_time(each))
        return [each for each in self.all[:end] if isinstance(each, str)]

    def looked(self) -> list[str]:
        return [each for each in self.all if isinstance(each, str)]

    def progress(self) -> list[Progress]:
        return [each for each in self.all if isinstance(each, Progress)]


def stop_at_the_first_result(progress: Progress) -> None:
    if progress.sources_done:
        raise KeyboardInterrupt


def test_what_is_left_is_encoded_before_finished_windows_are_looked_at(
    corpus: Path, begun: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events(monkeypatch)
    report = run(begun, corpus, on_update=events.all.append)
    assert (report.sources, report.already_there, report.videos_added) == (7, 3, 4)
    assert set(events.before(lambda now: now.sources_done > 0)) <= set(LEFT)
    assert sorted(events.looked()) == NAMES
    assert {now.sources_total for now in events.progress() if now.sources_done} == {4}
    assert rows_of(begun) == rows_of(undisturbed)
    assert finished_parts(DiskStorage(begun)) == finished_parts(DiskStorage(undisturbed))


def test_where_nothing_is_left_all_sources_are_looked_at_and_nothing_is_written(
    corpus: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film(corpus / "e.mp4", 800)
    rows, events = rows_of(undisturbed), Events(monkeypatch)
    report = run(undisturbed, corpus)
    assert (report.already_there, report.videos_added, report.outdated) == (6, 0, ("e.mp4",))
    assert events.looked() == NAMES
    assert rows_of(undisturbed) == rows


def test_a_changed_source_of_a_finished_window_is_reported_at_the_end(corpus: Path, begun: Path) -> None:
    film(corpus / "b.mp4", 700)
    film(corpus / "e.mp4", 800)
    film(corpus / "a.mp4", 900)
    report = run(begun, corpus)
    assert (report.already_there, report.videos_added, report.outdated) == (1, 4, ("a.mp4", "e.mp4"))
    assert [failure.id for failure in report.failures] == ["a.mp4", "e.mp4"]
    assert first_numbers(begun) == {name: 100 * number for number, name in enumerate(NAMES)} | {"b.mp4": 700}


def test_a_job_that_replaces_and_is_killed_before_it_finds_what_has_changed(corpus: Path, begun: Path) -> None:
    film(corpus / "e.mp4", 800)
    with pytest.raises(KeyboardInterrupt):
        run(begun, corpus, changed="replace", on_update=stop_at_the_first_result)
    numbers = {name: 100 * number for number, name in enumerate(NAMES)}
    assert first_numbers(begun) == {name: numbers[name] for name in [*DONE, "b.mp4", "c.mp4"]}
    seen: list[Progress] = []
    report = run(begun, corpus, changed="replace", on_update=seen.append)
    assert (report.already_there, report.videos_added, report.replaced) == (4, 2, ("e.mp4",))
    assert first_numbers(begun) == numbers | {"e.mp4": 800}
    last = seen[-1]
    assert (last.sources_done, last.sources_total, last.note) == (3, 3, "encoding")
    assert run(begun, corpus, changed="replace").already_there == 7


def test_what_is_to_be_replaced_counts_as_soon_as_it_is_found(corpus: Path, begun: Path) -> None:
    run(begun, corpus / "c.mp4")
    film(corpus / "c.mp4", 800)
    seen: list[Progress] = []
    assert run(begun, corpus, changed="replace", on_update=seen.append).replaced == ("c.mp4",)
    assert {now.sources_total for now in seen if now.sources_done} == {4}


def test_progress_says_what_a_job_still_does_that_has_nothing_left_to_encode(corpus: Path, begun: Path) -> None:
    seen: list[Progress] = []
    run(begun, corpus, on_update=seen.append)
    assert (seen[-1].sources_done, seen[-1].note) == (4, "looking for sources that have changed")


def test_a_part_of_the_sources_that_may_fail_is_one_of_all_that_were_given(corpus: Path, begun: Path) -> None:
    num_sources = len(list(corpus.iterdir()))
    (corpus / "b.mp4").write_text("not a video")
    allowed = parse_max_failures(f"{100 / num_sources:.3f}%")
    first = run(begun, corpus, max_failures=allowed)
    # The same command again has nothing but the broken source left, and ends in the same way.
    again = run(begun, corpus, max_failures=allowed)
    assert [[failure.id for failure in report.failures] for report in (first, again)] == [["b.mp4"], ["b.mp4"]]
    with pytest.raises(TooManyFailuresError, match=f"1 of {num_sources} sources failed"):
        run(begun, corpus, max_failures=parse_max_failures("1%"))


def test_lost_videos_are_among_what_is_left(corpus: Path, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(begun, corpus / "f.mp4", corpus / "g.mp4")
    for shard in (begun / "shards").iterdir():
        if shard.stat().st_mtime_ns == max(each.stat().st_mtime_ns for each in (begun / "shards").iterdir()):
            shard.unlink()
    events = Events(monkeypatch)
    report = run(begun, corpus, on_update=events.all.append)
    assert (report.repaired, report.videos_added, report.already_there) == (("f.mp4", "g.mp4"), 2, 3)
    assert not set(events.before(lambda now: now.sources_done > 0)) & set(DONE)
    assert {now.sources_total for now in events.progress() if now.sources_done} == {4}


def test_what_may_end_the_job_is_looked_at_before_anything_is_written(
    corpus: Path, begun: Path, tmp_path: Path
) -> None:
    """Another file has the id of a video of a finished window, or a source of one has changed."""
    rows = rows_of(begun)
    other = Path(shutil.copytree(corpus, tmp_path / "other"))
    film(other / "e.mp4", 800)
    with pytest.raises(UsageError, match=r"other/e\.mp4 would get the id 'e\.mp4', which another file has"):
        run(begun, other, changed="replace")
    film(corpus / "e.mp4", 800)
    with pytest.raises(SourceError, match=r"1 source changed since being prepared: .*e\.mp4.*Nothing was encoded"):
        run(begun, corpus, changed="fail")
    assert rows_of(begun) == rows


def test_a_corpus_that_moved_is_looked_at_first_and_goes_on(
    corpus: Path, begun: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = corpus.rename(tmp_path / "moved")
    events = Events(monkeypatch)
    report = run(begun, moved, on_update=events.all.append)
    assert (report.already_there, report.videos_added) == (3, 4)
    assert events.looked()[:3] == DONE
    assert first_numbers(begun) == first_numbers(undisturbed)


def test_labels_of_finished_windows_and_files_that_a_list_names_in_another_way(corpus: Path, begun: Path) -> None:
    corpus.with_name("list.csv").write_text("path,label\n" + "".join(f"corpus/{name},{name[0]}\n" for name in NAMES))
    report = run(begun, corpus.with_name("list.csv"))
    assert (report.sources, report.already_there, report.videos_added, report.relabelled) == (7, 3, 4, 3)
    named = {name: {"label": name[0]} for name in DONE} | {f"corpus/{name}": {"label": name[0]} for name in LEFT}
    assert {video.id: video.attributes for video in shortgop.open(begun)} == named
    (corpus / "labels.csv").write_text("path,n\n" + "".join(f"{name},1\n" for name in DONE))
    (corpus / "h.mp4").symlink_to("g.mp4")
    report = run(begun, corpus / "labels.csv", corpus / "h.mp4")
    assert (report.already_there, report.videos_added, report.relabelled) == (3, 1, 3)
