"""What a dataset has is looked at on the machines of a cluster, before a job encodes anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ray_heads import Head, ray_head
from shortgop.errors import SourceError
from shortgop.jobs import ray_looks
from shortgop.jobs.look import Looked
from shortgop.jobs.ray_looks import looks_before_encoding
from shortgop.jobs.sources import Source
from windowed_jobs import NAMES, film, films_in, first_numbers, noted, run


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with ray_head("--include-dashboard=false", "--num-cpus=2", token=False) as head:
        yield head


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Looked | None]:
    """What the cluster finds."""
    found: list[Looked | None] = []
    monkeypatch.setattr(ray_looks, "looks_before_encoding", lambda where: noted(looks_before_encoding(where), found))
    return found


@pytest.fixture
def begun(tmp_path: Path) -> tuple[Path, Path]:
    """A dataset, and its seven films with one more."""
    corpus, out = tmp_path / "corpus", tmp_path / "dataset"
    corpus.mkdir()
    films_in(corpus)
    run(out, corpus)
    film(corpus / "0.mp4", 800)
    return out, corpus


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_job_that_goes_on(
    has_moved: bool, head: Head, looked: list[Looked | None], begun: tuple[Path, Path], tmp_path: Path
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


def test_a_job_that_may_have_nothing_to_do(head: Head, looked: list[Looked | None], begun: tuple[Path, Path]) -> None:
    """The dataset has all sources, one of which has changed."""
    out, corpus = begun
    (corpus / "0.mp4").unlink()
    film(corpus / "c.mp4", 1000)
    report = run(out, corpus, runner="ray", address=head.address, changed="replace")
    assert (report.already_there, report.videos_added, report.replaced) == (6, 0, ("c.mp4",))
    assert {each.item.source.id for each in looked if each is not None} == {*NAMES}
    assert first_numbers(out)["c.mp4"] == 1000


def test_a_changed_source_ends_the_job_before_anything_is_encoded(
    head: Head, looked: list[Looked | None], begun: tuple[Path, Path]
) -> None:
    out, corpus = begun
    film(corpus / "f.mp4", 900)
    with pytest.raises(SourceError, match=r"1 source changed since being prepared: .*f\.mp4.*Nothing was encoded"):
        run(out, corpus, runner="ray", address=head.address, changed="fail")
    assert len(looked) == len(NAMES)
    assert first_numbers(out)["f.mp4"] == 500


def test_a_small_dataset_is_looked_at_by_the_driver(head: Head, looked: list[Looked | None], tmp_path: Path) -> None:
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
        ray_head("--include-dashboard=false", "--num-cpus=0", token=False) as empty,
        pytest.raises(SourceError, match=r"1 source changed since being prepared: .*f\.mp4.*Nothing was encoded"),
    ):
        run(out, corpus, runner="ray", address=empty.address, changed="fail")
    assert (asked, looked) == ([1], [None] * len(NAMES))
