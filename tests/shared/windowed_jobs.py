"""Jobs over a few short films in small windows of sources."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import shortgop
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.jobs.progress.tally import Progress
from shortgop.jobs.sources.look import Looked
from shortgop.jobs.sources.where_to_look import LookElsewhere
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
PROFILE = Profile()
NAMES = [f"{letter}.mp4" for letter in "abcdefg"]


def film(path: Path, first_number: int, frames: int = 20, gop: int = 250) -> None:
    make_video(path, pts=constant_rate_pts(RATE, frames), timebase=1 / RATE, first_number=first_number, gop=gop)


def films_in(folder: Path, frames: int = 20) -> None:
    """Seven short films: of one window of a thousand they are one unit, of windows of two, the first of one, four."""
    for number, name in enumerate(NAMES):
        film(folder / name, 100 * number, frames)


def run(
    out: Path,
    *sources: Path,
    runner: str = "inline",
    address: str | None = None,
    window_sources: int = 2,
    profile: Profile = PROFILE,
    **options: Any,
) -> Report:
    return prepare(
        [str(source) for source in sources],
        DiskStorage(out),
        profile,
        where=Where(runner=runner, address=address),
        window_sources=window_sources,
        **options,
    )


@contextlib.contextmanager
def noted(
    looks: contextlib.AbstractContextManager[LookElsewhere],
    found: list[Looked | None],
    after: threading.Event | None = None,
) -> Iterator[LookElsewhere]:
    """`looks` as they are; what they find is added to `found`. They are asked `after` this event alone."""
    with looks as look:

        def look_and_note(*asked: Any) -> Sequence[Looked | None]:
            assert after is None or after.is_set()
            now = look(*asked)
            found.extend(now)
            return now

        yield look_and_note


def first_numbers(out: Path) -> dict[str, int]:
    """The number that is burnt into the first frame of each video, by id."""
    return {video.id: read_number(video[0]) for video in shortgop.open(out)}


def without_places(rows: dict[str, Any]) -> dict[str, Any]:
    """The rows of a dataset without where its bytes lie: their checksums say what they are."""
    places = {"segments.shard", "segments.offset", "gops.offset"}
    return {
        name: values
        for name, values in rows.items()
        if name not in places and not name.startswith(("shards.", "bytes of "))
    }


def stops_when(is_time: Callable[[Progress], bool]) -> Callable[[Progress], None]:
    def stop(progress: Progress) -> None:
        if is_time(progress):
            raise KeyboardInterrupt

    return stop
