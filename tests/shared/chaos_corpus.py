"""What jobs prepare while they are disturbed, and what undisturbed ones make of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import shortgop
from dataset_places import folders, prefixes
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.units_of_work.windows import WINDOW_SOURCES
from shortgop.prep.profile import Profile
from shortgop.storage.interface import Storage
from synthetic import constant_rate_pts, make_video

_PROFILE = Profile(segment_seconds=Fraction(1, 2))
# About six sections of the long source.
_SECTION_SECONDS = 0.2
_FRAMES, _FEW_FRAMES, _MANY_FRAMES = 150, 20, 900
# The number on the first frame of a source is so many times the number in its name.
STEP = 1000


@dataclass(frozen=True)
class Corpus:
    """Sources, by the way that the job is to take them, and the dataset of an undisturbed job for each. They lie below
    `url` if there is one, and else in `folder`, where the undisturbed datasets are."""

    folder: Path
    url: str = ""

    def sources(self, has_sections: bool) -> str:
        return f"{self.url or self.folder}/{'with_long' if has_sections else 'short'}"

    @cache  # noqa: B019  # there are eight
    def undisturbed(
        self, has_sections: bool, window_sources: int = WINDOW_SOURCES, *, in_store: bool = False
    ) -> Storage:
        """The dataset lies on a disk, or in the store that the environment names: shards are named otherwise there."""
        place = (prefixes() if in_store else folders(self.folder)).new()
        run(self.sources(has_sections), place, Where("inline"), window_sources=window_sources)
        return place


def make_corpus(folder: Path, copies: int = 3) -> Corpus:
    """Sources of some tenths of a second of work each, some that share a unit, one that is no video, and, in one of the
    two folders, one that is encoded in sections."""
    short, with_long = folder / "short", folder / "with_long"
    short.mkdir(parents=True)
    with_long.mkdir()
    for number in range(4):
        # Files of a megabyte, so that no two of these share a unit.
        large = short / f"large{number}.mp4"
        make_video(
            large, pts=constant_rate_pts(Fraction(30), _FRAMES), timebase=Fraction(1, 30), size=(320, 256),
            first_number=STEP * number, options={"qp": "1", "preset": "ultrafast"},
        )  # fmt: skip
        small = short / f"small{number}.mp4"
        make_video(
            small, pts=constant_rate_pts(Fraction(30), _FEW_FRAMES), timebase=Fraction(1, 30),
            first_number=STEP * number,
        )  # fmt: skip
        for copy in range(1, copies):
            os.link(large, short / f"large{number}-{copy}.mp4")
        for file in (large, small):
            os.link(file, with_long / file.name)
    make_video(
        with_long / "long.mp4", pts=constant_rate_pts(Fraction(30), _MANY_FRAMES), timebase=Fraction(1, 30),
        size=(320, 256), gop=30, options={"qp": "10", "preset": "ultrafast"},
    )  # fmt: skip
    (short / "broken.mp4").write_text("not a video")
    (with_long / "broken.mp4").write_text("not a video")
    return Corpus(folder)


def run(
    sources: str | Path,
    dataset: Storage,
    where: Where,
    *,
    window_sources: int = WINDOW_SOURCES,
    retry_failed: bool = False,
) -> shortgop.Report:
    """Prepare the sources in this process or on the cluster."""
    return prepare(
        [str(sources)], dataset, _PROFILE, where=where, section_seconds=_SECTION_SECONDS, retry_failed=retry_failed,
        window_sources=window_sources,
    )  # fmt: skip
