"""Sources that machines of a cluster look at are what the driver would find, also before a job encodes anything."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from ray_heads import cluster_of
from shortgop.errors import SourceError
from shortgop.jobs.cluster import ray_looks
from shortgop.jobs.cluster.ray_connection import connected
from shortgop.jobs.cluster.ray_looks import looks_before_encoding, looks_on_cluster
from shortgop.jobs.finding.source import Source
from shortgop.jobs.sources.look import NOTHING, Looked, There, look_at
from shortgop.jobs.sources.where_to_look import LookElsewhere, Looking
from shortgop.jobs.units_of_work.gpu_slots import Slots
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from source_arguments import find_sources
from synthetic import constant_rate_pts, make_video
from windowed_jobs import NAMES, film, films_in, first_numbers, noted, run

pytestmark = pytest.mark.long

_OPTIONS = Options(Profile())
_VIDEOS = 3


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    with cluster_of({"num_cpus": 2}) as (cluster, _):
        yield cluster


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    """More than one task takes: a few videos, and files that are none."""
    folder = tmp_path_factory.mktemp("sources")
    for number in range(_VIDEOS):
        make_video(
            folder / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30),
            first_number=100 * number,
        )  # fmt: skip
    for number in range(300):
        (folder / f"broken{number:03}.mp4").write_text(f"no video, number {number}")
    return find_sources([str(folder)])


# Jobs connect by themselves.
@pytest.fixture(scope="class")
def elsewhere(head: Any) -> Iterator[LookElsewhere]:
    with connected(head.address, None, 0) as ask_slots, looks_on_cluster(ask_slots) as look:
        yield look


class TestLooking:
    def test_workers_find_what_the_driver_finds(self, sources: list[Source], elsewhere: LookElsewhere) -> None:
        found = elsewhere(sources, _OPTIONS, NOTHING, 0)
        assert found == look_at(sources, _OPTIONS)
        assert sum(each is not None and each.expected.frames == 20 for each in found) == _VIDEOS

    def test_the_driver_looks_at_what_workers_cannot_read(
        self, sources: list[Source], elsewhere: LookElsewhere
    ) -> None:
        lost = sources[0]
        kept = Path(lost.path).read_bytes()
        Path(lost.path).unlink()
        try:
            found = elsewhere(sources, _OPTIONS, NOTHING, 0)
        finally:
            Path(lost.path).write_bytes(kept)
        assert found[0] is None
        assert None not in found[1:]

        looking = Looking(many_sources=1)
        looking.elsewhere = lambda some, *_: found[: len(some)]
        everything = look_at(sources, _OPTIONS)
        assert looking.look_at(sources, _OPTIONS, NOTHING, num_in_store=0) == everything

        # What neither can read has the fingerprint that the dataset has.
        gone = lost._replace(path=f"{lost.path}.gone")
        (video,) = looking.look_at([gone], _OPTIONS, There({gone.id: 7}), num_in_store=0)
        assert (video.item.identity, video.item.size_bytes) == (7, 0)

    def test_workers_that_join_while_the_driver_looks_take_the_rest(
        self, sources: list[Source], elsewhere: LookElsewhere
    ) -> None:
        looking, asked = Looking(many_sources=1), list[Sequence[Source]]()

        def look(some: Sequence[Source], *more: Any) -> Sequence[Looked | None]:
            asked.append(some)
            return elsewhere(some, *more)

        def join() -> bool:
            looking.elsewhere = look
            return False

        found = looking.look_at(sources, _OPTIONS, NOTHING, num_in_store=0, is_over=join)
        assert found == look_at(sources, _OPTIONS)
        assert asked == [sources[1:]]

    def test_workers_know_what_the_dataset_has(self, sources: list[Source], elsewhere: LookElsewhere) -> None:
        """The length of a video that stays is not looked up."""
        identities = {each.item.source.id: each.item.identity for each in look_at(sources, _OPTIONS)}
        stays, again, changed = (f"{number}.mp4" for number in range(_VIDEOS))
        for replace in (False, True):
            there = There(identities | {changed: 1}, frozenset([again]), replace)
            found = elsewhere(sources, _OPTIONS, there, 0)
            assert found == look_at(sources, _OPTIONS, there)
            frames = {each.item.source.id: each.expected.frames for each in found if each is not None}
            assert (frames[stays], frames[again], frames[changed]) == (0, 20, 20 if replace else 0)

    def test_after_the_block_workers_look_at_nothing(self, sources: list[Source], elsewhere: LookElsewhere) -> None:
        with looks_on_cluster(lambda: Slots(1)) as look:
            pass
        assert look(sources, _OPTIONS, NOTHING, 0) == [None] * len(sources)


# What a dataset has is looked at before a job encodes anything.


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Looked | None]:
    """What the cluster finds."""
    found: list[Looked | None] = []
    monkeypatch.setattr(ray_looks, "looks_before_encoding", lambda where: noted(looks_before_encoding(where), found))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A place, and what `begun` has there."""
    folder = tmp_path_factory.mktemp("begun")
    corpus = folder / "here" / "corpus"
    corpus.mkdir(parents=True)
    films_in(corpus)
    run(folder / "here" / "dataset", corpus)
    film(corpus / "0.mp4", 800)
    return folder / "here", (folder / "here").rename(folder / "kept")


@pytest.fixture
def begun(made: tuple[Path, Path]) -> Iterator[tuple[Path, Path]]:
    """A dataset, and its seven films with one more, where they were prepared."""
    place, kept = made
    shutil.copytree(kept, place)
    yield place / "dataset", place / "corpus"
    shutil.rmtree(place)


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_job_that_goes_on(
    has_moved: bool, head: Any, looked: list[Looked | None], begun: tuple[Path, Path], tmp_path: Path
) -> None:
    """Of eight sources two are new and one has changed; a ninth one is gone. Where the corpus has moved, another file
    may have an id, and so what the dataset has is looked at before."""
    out, corpus = begun
    film(corpus / "z.mp4", 900)
    film(corpus / "c.mp4", 1000)
    (corpus / "d.mp4").unlink()
    corpus = corpus.rename(tmp_path / "moved") if has_moved else corpus
    report = run(out, corpus, runner="ray", address=head.address, changed="replace")
    assert (report.already_there, report.videos_added, report.replaced) == (5, 2, ("c.mp4",))
    ids = {each.item.source.id for each in looked if each is not None}
    assert ids == ({*NAMES} - {"d.mp4"} if has_moved else set())
    numbers = {name: 100 * number for number, name in enumerate(NAMES)}
    assert first_numbers(out) == numbers | {"0.mp4": 800, "c.mp4": 1000, "z.mp4": 900}


def test_a_job_that_may_have_nothing_to_do(head: Any, looked: list[Looked | None], begun: tuple[Path, Path]) -> None:
    """The dataset has all sources, one of which has changed."""
    out, corpus = begun
    (corpus / "0.mp4").unlink()
    film(corpus / "c.mp4", 1000)
    report = run(out, corpus, runner="ray", address=head.address, changed="replace")
    assert (report.already_there, report.videos_added, report.replaced) == (6, 0, ("c.mp4",))
    assert {each.item.source.id for each in looked if each is not None} == {*NAMES}
    assert first_numbers(out)["c.mp4"] == 1000


def test_a_changed_source_ends_the_job_before_anything_is_encoded(
    head: Any, looked: list[Looked | None], begun: tuple[Path, Path]
) -> None:
    out, corpus = begun
    film(corpus / "f.mp4", 900)
    with pytest.raises(SourceError, match=r"1 source changed since being prepared: .*f\.mp4.*Nothing was encoded"):
        run(out, corpus, runner="ray", address=head.address, changed="fail")
    assert len(looked) == len(NAMES)
    assert first_numbers(out)["f.mp4"] == 500


def test_a_small_dataset_is_looked_at_by_the_driver(head: Any, looked: list[Looked | None], tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "dataset"
    corpus.mkdir()
    film(corpus / "a.mp4", 100)
    run(out, corpus)
    films_in(corpus)
    report = run(out, corpus, runner="ray", address=head.address, window_sources=3)
    assert (report.videos_added, looked) == (6, [])


def test_a_cluster_that_does_not_answer_is_asked_once(
    begun: tuple[Path, Path], looked: list[Looked | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No machine has a CPU for it. The driver finds the changed source then."""
    out, corpus = begun
    film(corpus / "f.mp4", 900)
    asked: list[int] = []
    ask = ray_looks._looked

    def counted(parts: Sequence[Sequence[Source]], *more: Any) -> list[list[Looked | None]]:
        asked.append(len(parts))
        return ask(parts, *more)

    monkeypatch.setattr(ray_looks, "_looked", counted)
    monkeypatch.setattr(ray_looks, "_PATIENCE_SECONDS", 1)
    with (
        cluster_of({"num_cpus": 0}) as (empty, _),
        pytest.raises(SourceError, match=r"1 source changed since being prepared: .*f\.mp4.*Nothing was encoded"),
    ):
        run(out, corpus, runner="ray", address=empty.address, changed="fail")
    assert (asked, looked) == ([1], [None] * len(NAMES))
