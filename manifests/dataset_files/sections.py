"""Sections of long videos: results of workers that encode one video together, until they become the part of its unit.

`sections/<unit>-<cut>-<number>.zip` has the form of a part. Its one video is the section, as if it were a video. It is
committed after its shards. When all are there, one worker writes the unit's part, which names the same shards. So
neither readers nor snapshots ever see a section, and a job that was killed goes on with those that are there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...errors import CorruptDataError, DatasetError
from ...storage.interface import Storage, Stored
from ..ragged import from_texts
from ..stacking import row_content, stacked, with_videos
from ..tables import Manifest, Timeline
from .layout import listed, time_there
from .parts import finished_units, had_videos, pack, unpack
from .publish import has_its_shards
from .root_file import version_to_state

# A job that was interrupted may be started again so much later without losing its sections.
KEEP_SECONDS = 7 * 24 * 3600.0
_FOLDER = "sections/"


def section_key(name: str) -> str:
    return f"{_FOLDER}{name}.zip"


# By shard: bytes [start, stop) at its end that belong to no segment.
Unused = dict[str, tuple[int, int]]


def write_section(dataset: Storage, name: str, rows: Manifest, unused: Unused) -> None:
    """Commit a section, whose shards must be in place. If it is there already, that one stays."""
    version = version_to_state({"codec": rows.configs.codec.text(0)})
    attributes = {"format_version": version, "section": name, "unused": {**unused}}
    dataset.put_new(section_key(name), pack(rows, attributes))


def read_section(dataset: Storage, name: str) -> tuple[Manifest, Unused] | None:
    """A section as it was written; None if it is not there, is damaged, or lacks a shard."""
    try:
        rows, attributes = unpack(dataset.read(section_key(name)))
    except (OSError, DatasetError):
        return None
    unused = {shard: (start, stop) for shard, (start, stop) in attributes["unused"].items()}
    return (rows, unused) if has_its_shards(dataset, rows) else None


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


def remove_sections(dataset: Storage, unit: str) -> None:
    """Remove the sections of a unit whose part is there."""
    for stored in listed(dataset, "sections"):
        if _unit_of(stored) == unit:
            dataset.remove(stored.key)


def remove_old_sections(dataset: Storage) -> None:
    """Remove the sections of videos that are finished, and those of jobs that were given up a week ago."""
    found: dict[str, list[Stored]] = {}
    for stored in listed(dataset, "sections"):
        found.setdefault(_unit_of(stored), []).append(stored)
    finished = finished_units(dataset) if found else set()
    now = min(time.time(), time_there(dataset)) if found else 0.0
    some_stay = False
    for unit, sections in found.items():
        age_seconds = now - max(stored.modified_ns for stored in sections) / 1e9
        if (unit in finished and had_videos(dataset, unit)) or age_seconds > KEEP_SECONDS:
            for stored in sections:
                dataset.remove(stored.key)
        else:
            some_stay = True
    if not some_stay:
        # Not where workers remove sections: others may be adding some.
        dataset.remove("sections")


def shards_of_sections(dataset: Storage) -> set[str]:
    """The shards that sections name: those of videos that are not finished."""
    names = [stored.key.removeprefix(_FOLDER).removesuffix(".zip") for stored in listed(dataset, "sections")]
    found = (read_section(dataset, name) for name in names)
    return {name for each in found if each is not None for name in each[0].shards.name.texts()}


def _unit_of(stored: Stored) -> str:
    return stored.key.removeprefix(_FOLDER).partition("-")[0]
