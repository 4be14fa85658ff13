"""Sources that machines of a cluster look at are what the driver would find."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from shortgop.jobs.look import NOTHING, LookElsewhere, Looking, There, look_at
from shortgop.jobs.ray_connection import connected
from shortgop.jobs.ray_looks import looks_on_cluster
from shortgop.jobs.sources import Source
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from source_arguments import find_sources
from synthetic import constant_rate_pts, make_video

_OPTIONS = Options(Profile())
_VIDEOS = 3


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


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[LookElsewhere]:
    with connected(None, 2, 0), looks_on_cluster() as look:
        yield look


def test_workers_find_what_the_driver_finds(sources: list[Source], elsewhere: LookElsewhere) -> None:
    found = elsewhere(sources, _OPTIONS, NOTHING, 0)
    assert found == look_at(sources, _OPTIONS)
    assert sum(each is not None and each.expected.frames == 20 for each in found) == _VIDEOS


def test_the_driver_looks_at_what_workers_cannot_read(sources: list[Source], elsewhere: LookElsewhere) -> None:
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


def test_workers_know_what_the_dataset_has(sources: list[Source], elsewhere: LookElsewhere) -> None:
    """The length of a video that stays is not looked up."""
    identities = {each.item.source.id: each.item.identity for each in look_at(sources, _OPTIONS)}
    stays, again, changed = (f"{number}.mp4" for number in range(_VIDEOS))
    for replace in (False, True):
        there = There(identities | {changed: 1}, frozenset([again]), replace)
        found = elsewhere(sources, _OPTIONS, there, 0)
        assert found == look_at(sources, _OPTIONS, there)
        frames = {each.item.source.id: each.expected.frames for each in found if each is not None}
        assert (frames[stays], frames[again], frames[changed]) == (0, 20, 20 if replace else 0)


def test_after_the_block_workers_look_at_nothing(sources: list[Source], elsewhere: LookElsewhere) -> None:
    with looks_on_cluster() as look:
        pass
    assert look(sources, _OPTIONS, NOTHING, 0) == [None] * len(sources)
