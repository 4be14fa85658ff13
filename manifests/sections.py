"""Sections of long videos: results of workers that encode one video together, until they become the part of its unit.

`sections/<unit>-<cut>-<number>.zip` has the form of a part. Its one video is the section, as if it were a video. It is
committed after its shards. When all are there, one worker writes the unit's part, which names the same shards. So
neither readers nor snapshots ever see a section, and a job that was killed goes on with those that are there.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import CorruptDataError, DatasetError
from ..whole_files import commit_bytes, writing
from .layout import FORMAT_VERSION
from .parts import finished_units, had_videos, pack, unpack
from .publish import has_its_shards
from .ragged import from_texts
from .stacking import row_content, stacked, with_videos
from .tables import Manifest, Timeline

# A job that was interrupted may be started again so much later without losing its sections.
KEEP_SECONDS = 7 * 24 * 3600.0


def section_path(dataset: Path, name: str) -> Path:
    return dataset / "sections" / f"{name}.zip"


def write_section(dataset: Path, name: str, rows: Manifest) -> None:
    """Commit a section, whose shards must be in place. If it is there already, that one stays."""
    packed = pack(rows, {"format_version": FORMAT_VERSION, "section": name})
    commit_bytes(dataset, section_path(dataset, name), packed)


def read_section(dataset: Path, name: str) -> Manifest | None:
    """The rows of a section; None if it is not there, is damaged, or lacks a shard."""
    try:
        rows, _ = unpack(section_path(dataset, name).read_bytes())
    except (OSError, DatasetError):
        return None
    return rows if has_its_shards(dataset, rows) else None


def joined_sections(sections: Sequence[Manifest], *, dropped: int, repeated: int) -> Manifest:
    """The rows of the video that consists of these sections, in their order. Pure.

    CorruptDataError if they do not fit together: their encoders write other headers, or a section other than the last
    ends within a segment.
    """
    everything = stacked(sections)
    videos = everything.videos
    if len({row_content(everything.configs, int(row)) for row in videos.config}) > 1:
        raise CorruptDataError("the sections of a video were written by encoders that differ")
    if len(set(everything.segments.init_crc32.tolist())) > 1:
        raise CorruptDataError("the sections of a video have segments with headers that differ")
    whole = int(videos.gop_frames[0]) * int(videos.segment_gops[0])
    if (videos.num_frames[:-1] % whole).any():
        raise CorruptDataError("a section of a video ends within a segment")
    texts = [text for texts in videos.given_up.texts() for text in json.loads(texts)]
    timelines = [section.timeline.pts for section in sections if section.timeline is not None]
    first = sections[0].videos
    video = replace(
        first,
        num_frames=np.array([videos.num_frames.sum()], dtype=first.num_frames.dtype),
        config=videos.config[:1],
        given_up=from_texts([json.dumps(list(dict.fromkeys(texts)))]),
        dropped=np.array([dropped], dtype=first.dropped.dtype),
        repeated=np.array([repeated], dtype=first.repeated.dtype),
    )
    whole_video = replace(everything, videos=video, timeline=Timeline(pts=np.concatenate(timelines)))
    return with_videos(whole_video, np.zeros(1, dtype=np.int64))


def remove_sections(dataset: Path, unit: str) -> None:
    """Remove the sections of a unit whose part is there."""
    for file in _files(dataset):
        if file.name.startswith(f"{unit}-"):
            with writing(file):
                file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        section_path(dataset, "").parent.rmdir()


def remove_old_sections(dataset: Path) -> None:
    """Remove the sections of videos that are finished, and those of jobs that were given up a week ago."""
    files = list(_files(dataset))
    finished = finished_units(dataset) if files else set()
    for unit in {file.name.partition("-")[0] for file in files}:
        ages = [time.time() - file.stat().st_mtime for file in files if file.name.startswith(f"{unit}-")]
        if (unit in finished and had_videos(dataset, unit)) or min(ages) > KEEP_SECONDS:
            remove_sections(dataset, unit)


def shards_of_sections(dataset: Path) -> set[str]:
    """The shards that sections name: those of videos that are not finished."""
    found = (read_section(dataset, file.name.removesuffix(".zip")) for file in _files(dataset))
    return {name for rows in found if rows is not None for name in rows.shards.name.texts()}


def _files(dataset: Path) -> Iterator[Path]:
    folder = section_path(dataset, "").parent
    if folder.is_dir():
        yield from sorted(file for file in folder.iterdir() if file.name.endswith(".zip"))
