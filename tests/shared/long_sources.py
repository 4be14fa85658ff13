"""What tests of long sources on a disk share: a source that is cut into four sections, and one that is not."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from datasets import rows_of
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video

FRAMES, _FEW_FRAMES = 450, 60
FRAMES_OF_BOTH = FRAMES + _FEW_FRAMES
# Four sections of the long source.
SECTION_SECONDS = 0.1
PROFILE = Profile(segment_seconds=Fraction(1, 2))


def make_sources(folder: Path) -> Path:
    for name, frames in (("long.mp4", FRAMES), ("short.mp4", _FEW_FRAMES)):
        make_video(
            folder / name, pts=constant_rate_pts(Fraction(30), frames), timebase=Fraction(1, 30), size=(320, 256),
            gop=30, options={"qp": "10", "preset": "ultrafast"},
        )  # fmt: skip
    return folder


def run_in_sections(sources: Path, dataset: Path, where: Where = Where("inline")) -> Report:  # noqa: B008  # frozen
    return prepare([str(sources)], DiskStorage(dataset), PROFILE, where=where, section_seconds=SECTION_SECONDS)


def assert_undisturbed(dataset: Path, undisturbed: Path) -> None:
    """Row for row and byte for byte, and no other file."""
    assert rows_of(dataset) == rows_of(undisturbed)
    folders = [sorted(entry.name for entry in each.iterdir()) for each in (dataset, undisturbed)]
    assert folders[0] == folders[1]
    files = [
        {file.name for folder in ("shards", "parts") for file in (each / folder).iterdir()}
        for each in (dataset, undisturbed)
    ]
    assert files[0] == files[1]
