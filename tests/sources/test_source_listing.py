"""A job begins to encode before all of its sources are found, where there are many: what that changes, and what not."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import shortgop
from datasets import rows_of
from shortgop.cli.progress import job_progress
from shortgop.errors import TooManyFailuresError, UsageError
from shortgop.jobs import prepare as prepare_module
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.finding.source import Found
from shortgop.jobs.finding.sources import found_in
from shortgop.jobs.planning import window_plans
from shortgop.jobs.planning.planning import plan_window
from shortgop.jobs.progress.encoding_time import Pace
from shortgop.jobs.progress.job_status import JobStatus
from shortgop.jobs.progress.tally import Progress
from shortgop.jobs.sources import look, source_table
from shortgop.jobs.sources.failing import parse_max_failures
from shortgop.jobs.units_of_work.units import Unit
from shortgop.manifests.dataset_files.parts import finished_units
from shortgop.storage.disk import DiskStorage
from store_helpers import put
from sweep import sample
from windowed_jobs import NAMES, film, films_in, first_numbers, run, stops_when

KEPT = "; the videos that were finished meanwhile are kept"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    films_in(folder, frames=10)
    return folder


class Gate:
    """Holds back what is found after `num_before` sources until `open_when` has seen some progress; keeps what it
    saw."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, open_when: Callable[[Progress], bool], num_before: int = 3
    ) -> None:
        self.seen: list[Progress] = []
        self._open_when, self._opened = open_when, threading.Event()

        def held_back(*arguments: Any, **options: Any) -> Iterator[Found]:
            for number, each in enumerate(found_in(*arguments, **options)):
                assert number < num_before or self._opened.wait(300)
                yield each

        # Others see each source at once.
        monkeypatch.setattr(source_table, "_ADDED", 1)
        monkeypatch.setattr(prepare_module, "found_in", held_back)

    def on_update(self, progress: Progress) -> None:
        self.seen.append(progress)
        if self._open_when(progress):
            self._opened.set()


# `test_windows.py` gives Ray the units of one window after the other.
@pytest.mark.parametrize("runner", sample(["inline"], more=["ray"]))
def test_encoding_begins_before_all_sources_are_found(
    runner: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "undisturbed", corpus)
    gate = Gate(monkeypatch, lambda now: now.sources_done > 0)
    report = run(tmp_path / "dataset", corpus, runner=runner, on_update=gate.on_update)
    first = next(each for each in gate.seen if each.sources_done)
    # Where there are more cores, more windows are planned as soon as they are found.
    at_first = 1 if runner == "inline" else first.sources_planned
    assert first.sources_done <= at_first <= 3
    assert (first.sources_planned, first.sources_total) == (at_first, 3)
    assert first.note.endswith(f"; 3 sources found so far, {at_first} looked at")
    assert first.lists_more
    assert not any(each.note.startswith(";") for each in gate.seen)
    last = gate.seen[-1]
    assert (last.sources_done, last.sources_planned, last.sources_total) == (7, 7, 7)
    assert "so far" not in last.note
    assert not last.lists_more
    assert (report.sources, report.videos_added, report.already_there) == (7, 7, 0)
    assert rows_of(tmp_path / "dataset") == rows_of(tmp_path / "undisturbed")
    assert first_numbers(tmp_path / "dataset") == {name: 100 * number for number, name in enumerate(NAMES)}


@pytest.mark.long
def test_the_windows_that_were_found_are_encoded_while_others_are_still_being_found(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The windows are a, bc, de and fg. A listing that takes an hour does not keep a cluster waiting."""
    run(tmp_path / "undisturbed", corpus)
    gate = Gate(monkeypatch, lambda now: now.sources_done == 5, num_before=5)
    report = run(tmp_path / "dataset", corpus, on_update=gate.on_update)
    assert {each.sources_done for each in gate.seen if each.lists_more} >= {1, 3, 5}
    assert (report.sources, report.videos_added, report.already_there) == (7, 7, 0)
    assert rows_of(tmp_path / "dataset") == rows_of(tmp_path / "undisturbed")


def test_a_job_that_ends_while_sources_are_found_is_gone_on_with(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sources are found before the next job plans anything; its windows are the same."""
    run(tmp_path / "undisturbed", corpus)
    with monkeypatch.context() as patches:
        Gate(patches, lambda _now: False, num_before=5)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "dataset", corpus, on_update=stops_when(lambda now: now.sources_done == 3))
    report = run(tmp_path / "dataset", corpus)
    assert (report.already_there, report.videos_added) == (3, 4)
    assert rows_of(tmp_path / "dataset") == rows_of(tmp_path / "undisturbed")


def test_stretches_of_films_are_encoded_once_all_of_them_are_found(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (corpus / "films").mkdir()
    for name in NAMES[5:]:
        (corpus / name).rename(corpus / "films" / name)
    listed = tmp_path / "list.csv"
    film = corpus / "films" / "g.mp4"
    listed.write_text(f"path,id,start,end\n{film},g1,0,0.2\n{film},g2,0.2,0.4\n")
    gate = Gate(monkeypatch, lambda now: now.sources_done == 5, num_before=6)
    cuts = Importing(cuts=("start", "end"))
    sources = [*(corpus / name for name in NAMES[:5]), listed]
    report = run(tmp_path / "dataset", *sources, importing=cuts, on_update=gate.on_update)
    assert (report.sources, report.videos_added) == (7, 7)
    expected = {name: 100 * number for number, name in enumerate(NAMES[:5])} | {"g1": 600, "g2": 605}
    assert first_numbers(tmp_path / "dataset") == expected
    # The stretches of a film are one unit, which reads it once.
    assert len(finished_units(DiskStorage(tmp_path / "dataset"))) == 4


def test_the_time_that_is_left_is_told_once_all_sources_are_found() -> None:
    text = StringIO()
    pace = Pace(10, is_encoding=True, recent_seconds=10, recent_encoding_seconds=10, recent_frames=500)
    with job_progress(Console(file=text, force_terminal=False)) as show:
        for total in (3000, 4000):
            note = f"encoding; {total} sources found so far, 1000 looked at"
            show(Progress(10, total, 0, 500, 50_000, 0, 15.0, note, 1000, lists_more=True, pace=pace))
        show(Progress(10, 5000, 0, 500, 50_000, 0, 15.0, "publishing", 1000, pace=pace))
    lines = text.getvalue().splitlines()
    rate = "50 frames/s while encoding (50 in the last minute)"
    # Counts in the note make no new line.
    assert [line.partition("; ")[0] for line in lines] == [
        f"500 of about 150000 frames, {rate}, 10/3000 videos",
        f"500 of about 250000 frames, {rate}, about 1 h 23 min left, 10/5000 videos",
    ]
    status = JobStatus(
        "host", 7, 0, 5, sources_total=3000, frames_done=500, frames_planned=50_000, sources_planned=1000
    )
    assert status.seconds_left is not None
    assert dataclasses.replace(status, lists_more=True).seconds_left is None


def test_a_part_that_may_fail_is_judged_though_no_result_comes_after_the_list(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is found later was found before."""
    (corpus / "a.mp4").write_text("not a video")
    (corpus / "list.txt").write_text("a.mp4\n" * 7)
    gate = Gate(monkeypatch, lambda now: now.sources_failed == 1)
    with pytest.raises(TooManyFailuresError, match="1 of 1 source failed"):
        run(tmp_path / "out", corpus / "list.txt", on_update=gate.on_update, max_failures=parse_max_failures("20%"))


def first_plan(monkeypatch: pytest.MonkeyPatch, out: Path, listed: Path) -> list[Unit]:
    """The units that a job plans first. It ends before it runs them."""
    planned: list[Unit] = []

    def plan_and_end(*arguments: Any) -> list[Unit]:
        planned.extend(plan_window(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(window_plans, "plan_window", plan_and_end)
    with pytest.raises(KeyboardInterrupt):
        run(out, listed, section_seconds=1e-6)
    return planned


def test_the_first_window_is_planned_as_if_all_sources_were_found(
    corpus: Path, tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most sources in a store come later in the list, so many that the headers of none would be read."""
    monkeypatch.setattr(look, "_MANY_IN_STORES", 3)
    for name in ("a.mp4", "d.mp4", "e.mp4"):
        put(f"{s3_url}/{name}", corpus / name)
    listed = tmp_path / "list.csv"
    lines = [f"{s3_url}/a.mp4,a", *(f"corpus/{name},{name}" for name in "bc"), f"{s3_url}/d.mp4,d", f"{s3_url}/e.mp4,e"]
    listed.write_text("path,id\n" + "\n".join(lines))
    # All sources are found before anything is planned where a dataset has a video.
    run(tmp_path / "dataset", corpus / "g.mp4")
    new = first_plan(monkeypatch, tmp_path / "new", listed)
    assert first_plan(monkeypatch, tmp_path / "dataset", listed) == new
    assert [([item.source.id for item in unit.items], unit.is_long) for unit in new] == [(["a"], True)]


def test_what_is_found_again_and_again_is_encoded_once_and_nothing_is_left_out(corpus: Path, tmp_path: Path) -> None:
    (corpus / "list.txt").write_text("\n".join([*NAMES[:2] * 21, *NAMES[2:]]))
    report = run(tmp_path / "dataset", corpus / "list.txt", window_sources=40)
    assert (report.sources, report.videos_added) == (7, 7)
    assert first_numbers(tmp_path / "dataset") == {name: 100 * number for number, name in enumerate(NAMES)}


def test_a_wrong_line_far_down_a_list_keeps_what_is_finished_and_the_next_job_goes_on(
    corpus: Path, tmp_path: Path
) -> None:
    listed = corpus / "list.jsonl"
    lines = [f'{{"path": "{name}", "n": {number}}}\n' for number, name in enumerate(NAMES)]
    listed.write_text("".join(lines))
    run(tmp_path / "undisturbed", listed)
    listed.write_text("".join([*lines * 50, '{"n": 8}\n']))
    with pytest.raises(UsageError, match=f"line 351 .*has no `path`.*{KEPT}"):
        run(tmp_path / "dataset", listed)
    finished = first_numbers(tmp_path / "dataset")
    assert "a.mp4" in finished
    listed.write_text("".join(lines))
    report = run(tmp_path / "dataset", listed)
    assert (report.already_there, report.videos_added) == (len(finished), 7 - len(finished))
    assert rows_of(tmp_path / "dataset") == rows_of(tmp_path / "undisturbed")


def test_a_wrong_line_ends_the_job_though_others_wait_to_be_encoded(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (corpus / "list.txt").write_text("\n".join([*NAMES[:5], ".."]))
    gate = Gate(monkeypatch, lambda now: now.sources_planned == 3, num_before=5)
    with pytest.raises(UsageError, match=f"lists name files.*{KEPT}"):
        run(tmp_path / "dataset", corpus / "list.txt", on_update=gate.on_update)
    # Planned were `d` and `e`, too.
    assert first_numbers(tmp_path / "dataset").keys() <= {*NAMES[:3]}


def test_a_second_file_with_an_id_ends_the_job_though_others_are_still_being_found(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list goes on without end: it is not waited for."""
    lines = [f"{name},{name}\n" for name in NAMES[:4]] + ["f.mp4,b.mp4\n", "g.mp4,g.mp4\n"]
    (corpus / "list.csv").write_text("path,id\n" + "".join(lines))
    gate = Gate(monkeypatch, lambda _now: False, num_before=5)
    start = time.monotonic()
    with pytest.raises(UsageError, match=r"are two files with the same id 'b\.mp4'[^;]*;[^;]*" + KEPT):
        run(tmp_path / "dataset", corpus / "list.csv", on_update=gate.on_update)
    assert time.monotonic() - start < 100
    assert first_numbers(tmp_path / "dataset").keys() <= {*NAMES[:3]}


@pytest.mark.long
def test_no_more_are_planned_while_too_many_of_those_that_were_found_have_failed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be few of all sources, which decide."""
    film(corpus / "h.mp4", 700)
    for name in NAMES[1:3]:
        (corpus / name).write_text("not a video")
    has_waited = threading.Event()

    def is_time(now: Progress) -> bool:
        if now.sources_done == 5:
            # Long enough for the window of `f` and `g` to be planned.
            has_waited.wait(2)
            has_waited.set()
        return has_waited.is_set()

    gate = Gate(monkeypatch, is_time, num_before=7)
    report = run(tmp_path / "dataset", corpus, on_update=gate.on_update, max_failures=parse_max_failures("25%"))
    assert (report.videos_added, len(report.failures)) == (6, 2)
    # The window of `d` and `e` was planned ahead.
    assert max(each.sources_planned for each in gate.seen if each.lists_more) == 5


def test_two_files_with_one_id_end_the_job_though_one_is_encoded(corpus: Path, tmp_path: Path) -> None:
    (corpus / "list.csv").write_text("path,id\n" + "".join(f"{name},{name}\n" for name in NAMES) + "b.mp4,a.mp4\n")
    with pytest.raises(UsageError, match=r"are two files with the same id 'a\.mp4'.*" + KEPT):
        run(tmp_path / "dataset", corpus / "list.csv")
    assert "a.mp4" in first_numbers(tmp_path / "dataset")


@pytest.mark.long
def test_labels_of_a_video_that_is_encoded_before_its_list_is_read(corpus: Path, tmp_path: Path) -> None:
    (corpus / "labels.csv").write_text("path,label\na.mp4,first\nf.mp4,late\n")
    for out in (tmp_path / "dataset", tmp_path / "once"):
        report = run(out, corpus, corpus / "labels.csv", window_sources=2 if out.name == "dataset" else 1000)
        assert (report.sources, report.videos_added, report.relabelled) == (7, 7, 0)
        labels = {video.id: video.attributes for video in shortgop.open(out) if video.attributes}
        assert labels == {"a.mp4": {"label": "first"}, "f.mp4": {"label": "late"}}
    again = run(tmp_path / "dataset", corpus, corpus / "labels.csv")
    assert (again.already_there, again.relabelled) == (7, 0)


def test_labels_of_a_window_that_is_encoded_before_its_list_is_read(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (corpus / "labels.csv").write_text("path,label\nb.mp4,second\ng.mp4,late\n")
    gate = Gate(monkeypatch, lambda now: now.sources_done == 3)
    report = run(tmp_path / "dataset", corpus, corpus / "labels.csv", on_update=gate.on_update)
    assert (report.sources, report.videos_added, report.relabelled) == (7, 7, 0)
    labels = {video.id: video.attributes for video in shortgop.open(tmp_path / "dataset") if video.attributes}
    assert labels == {"b.mp4": {"label": "second"}, "g.mp4": {"label": "late"}}


def test_a_part_of_the_sources_that_may_fail_is_not_judged_before_all_are_found(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (corpus / "a.mp4").write_text("not a video")
    gate = Gate(monkeypatch, lambda now: now.sources_failed == 1)
    report = run(tmp_path / "one", corpus, on_update=gate.on_update, max_failures=parse_max_failures("20%"))
    assert (report.videos_added, [failure.id for failure in report.failures]) == (6, ["a.mp4"])
    gate = Gate(monkeypatch, lambda now: now.sources_failed == 1)
    with pytest.raises(TooManyFailuresError, match="1 source failed, more than --max-failures 0 allows"):
        run(tmp_path / "none", corpus, on_update=gate.on_update, max_failures=parse_max_failures(0))


def test_what_a_dataset_has_is_compared_with_all_sources_before_anything_is_encoded(
    corpus: Path, tmp_path: Path
) -> None:
    run(tmp_path / "dataset", corpus / "g.mp4")
    (corpus / "list.txt").write_text("\n".join([*NAMES, ".."]))
    rows = rows_of(tmp_path / "dataset")
    with pytest.raises(UsageError, match="lists name files") as caught:
        run(tmp_path / "dataset", corpus / "list.txt")
    assert KEPT not in str(caught.value)
    assert rows_of(tmp_path / "dataset") == rows


def test_a_job_that_is_ended_does_not_wait_for_the_rest_of_a_list(corpus: Path, tmp_path: Path) -> None:
    """The list is a pipe to which nobody writes any more."""
    for number in range(300):
        os.link(corpus / "a.mp4", corpus / f"{number:03d}.mp4")
    os.mkfifo(corpus / "list.txt")
    let_go = threading.Event()

    def write() -> None:
        with (corpus / "list.txt").open("w") as pipe:
            pipe.writelines(f"{number:03d}.mp4\n" for number in range(300))
            pipe.flush()
            let_go.wait(300)

    def stop(progress: Progress) -> None:
        if progress.sources_done:
            raise KeyboardInterrupt

    writer = threading.Thread(target=write)
    writer.start()
    try:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "dataset", corpus / "list.txt", on_update=stop)
        assert time.monotonic() - start < 100
        assert first_numbers(tmp_path / "dataset") == {"000.mp4": 0}
    finally:
        let_go.set()
        writer.join()


def test_files_of_a_folder_are_found_in_the_same_order_wherever_it_is_copied(corpus: Path, tmp_path: Path) -> None:
    (corpus / "z").mkdir()
    film(corpus / "z" / "x.mp4", 800)
    other = tmp_path / "other"
    for name in [*reversed(NAMES), "z/x.mp4"]:
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(corpus / name, other / name)
    with contextlib.chdir(tmp_path):
        found = [[each.source.id for each in found_in([folder])] for folder in ("corpus", "other")]
    assert found == [[*NAMES, "z/x.mp4"]] * 2
