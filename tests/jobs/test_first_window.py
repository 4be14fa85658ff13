"""A job of thousands of sources finds all of them first, and begins to encode when some were looked at."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

import shortgop
from dataset_places import names
from datasets import current_manifest, rows_of
from shortgop.errors import UsageError
from shortgop.jobs.progress.job_status import read_status
from shortgop.jobs.progress.tally import Progress
from shortgop.manifests.operations.verify import verify
from shortgop.prep.profile import Profile
from shortgop.prep.section_plan import expected_seconds
from shortgop.storage.disk import DiskStorage
from synthetic import read_number
from windowed_jobs import NAMES, film, films_in, first_numbers, run, stops_when, without_places

pytestmark = pytest.mark.long

_FRAMES, _MANY_FRAMES = 20, 400
_PIXELS = 96 * 64
# Three short films are a unit, and the long one is encoded in sections.
_SECTION_SECONDS = 2.5 * expected_seconds(_FRAMES, _PIXELS, _FRAMES, _PIXELS)
# Where a segment ends, a section may.
_PROFILE = Profile(segment_seconds=Fraction(1, 2))
_AT_ONCE = 1000


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    films_in(folder, _FRAMES)
    return folder


def test_all_are_found_before_and_some_are_looked_at_later(corpus: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    report = run(tmp_path / "dataset", corpus, window_sources=len(NAMES), on_update=seen.append)
    assert (report.sources, report.videos_added, report.already_there) == (7, 7, 0)
    assert not any(each.lists_more for each in seen)
    begun = next(each for each in seen if each.sources_done)
    assert (begun.sources_done, begun.sources_planned, begun.sources_total) == (1, 1, 7)
    assert (begun.frames_planned, begun.frames_expected) == (_FRAMES, 7 * _FRAMES)
    found = read_status(DiskStorage(tmp_path / "dataset"))
    assert (found.sources_done, found.sources_planned, found.sources_total, found.sources_there) == (7, 7, 7, 0)
    assert found.frames_done == found.frames_planned == found.frames_expected == 7 * _FRAMES

    film(corpus / "h.mp4", 700)
    again = run(tmp_path / "dataset", corpus, window_sources=len(NAMES) + 1)
    assert (again.already_there, again.videos_added) == (7, 1)
    found = read_status(DiskStorage(tmp_path / "dataset"))
    assert (found.sources_done, found.sources_total, found.sources_there) == (1, 1, 7)


def test_a_wrong_line_ends_the_job_before_it_has_begun(corpus: Path, tmp_path: Path) -> None:
    (corpus / "list.csv").write_text("path,id\n" + "".join(f"{name},{name}\n" for name in NAMES) + "b.mp4,a.mp4\n")
    with pytest.raises(UsageError, match=r"are two files with the same id 'a\.mp4'"):
        run(tmp_path / "dataset", corpus / "list.csv", window_sources=len(NAMES) + 1)
    assert not (tmp_path / "dataset").exists()


@pytest.mark.parametrize("done", [0, 1, 4], ids=["in the long film", "after it", "after the first short ones"])
def test_an_unfinished_dataset_that_was_planned_at_once_goes_on(done: int, corpus: Path, tmp_path: Path) -> None:
    """As earlier versions planned all jobs of up to 10,000 sources. Finished sections of a long source are kept."""
    out, undisturbed = tmp_path / "dataset", tmp_path / "undisturbed"
    film(corpus / "long.mp4", 1000, _MANY_FRAMES, gop=25)
    in_sections = partial(run, profile=_PROFILE, section_seconds=_SECTION_SECONDS)
    in_sections(undisturbed, corpus, window_sources=_AT_ONCE)
    storage, has_sections = DiskStorage(out), done == 0

    def is_time(now: Progress) -> bool:
        # On a busy machine most frames of the first section are reported before it is finished.
        return now.sources_done == done and (not has_sections or bool(names(storage, "sections")))

    with pytest.raises(KeyboardInterrupt):
        in_sections(out, corpus, window_sources=_AT_ONCE, on_update=stops_when(is_time))
    kept, sections = names(storage, "shards"), names(storage, "sections")
    assert kept
    assert bool(sections) == has_sections
    report = in_sections(out, corpus, window_sources=3)
    assert report.already_there + report.videos_added == 8
    assert (report.already_there == 0) == has_sections
    assert without_places(rows_of(out)) == without_places(rows_of(undisturbed))
    assert kept <= names(storage, "shards") == {*current_manifest(out).shards.name.texts()}
    assert sorted(each.name for each in out.iterdir()) == sorted(each.name for each in undisturbed.iterdir())
    assert first_numbers(out) == {name: 100 * number for number, name in enumerate(NAMES)} | {"long.mp4": 1000}
    long = shortgop.open(out)["long.mp4"]
    shown = [read_number(frame) for frame in long.get_frames_at(range(_MANY_FRAMES)).data]
    assert shown == list(range(1000, 1000 + _MANY_FRAMES))
    assert list(verify(storage, current_manifest(out))) == []
