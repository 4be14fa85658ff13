"""What is to be copied is decided for many videos at a time, and as it would be for one after the other."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_manifests import drop, video
from shortgop.errors import UsageError
from shortgop.manifests import matching
from shortgop.manifests.dataset_files.root_file import Root
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations import copy_plan
from shortgop.manifests.operations.copy_plan import (
    ALREADY,
    COPIED,
    DROPPED,
    OTHER_COLUMNS,
    REPLACES,
    CopySource,
    plan_copy,
)
from shortgop.manifests.tables import Manifest
from shortgop.storage.disk import DiskStorage

FLAGS = {"copied": COPIED, "replaces": REPLACES, "already": ALREADY, "other columns": OTHER_COLUMNS, "dropped": DROPPED}


@dataclass(frozen=True)
class Row:
    """What counts of a video. Videos of as many frames have the same checksums."""

    frames: int
    rate: int
    revision: int
    columns: str


def manifest_of(rows: dict[str, Row]) -> Manifest:
    return merge([_video(video_id, row) for video_id, row in rows.items()])


def _video(video_id: str, row: Row) -> Manifest:
    made = video(video_id, frames=row.frames, revision=row.revision, attributes=row.columns)
    return replace(made, videos=replace(made.videos, fps_num=np.array([row.rate], "<i8")))


@dataclass
class Expected:
    """The ids of each fate, in the order in which they come, and ids that mean two videos, with their places."""

    ids: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in FLAGS})
    clashes: list[tuple[str, str, str]] = field(default_factory=list)

    def note(self, name: str, video_id: str) -> None:
        if video_id not in self.ids[name]:
            self.ids[name].append(video_id)


def one_by_one(
    sources: list[dict[str, Row]], target: dict[str, Row], dropped: set[str], *, update: bool, only: set[str] | None
) -> Expected:
    """The rules of `copy_videos`, for one video after the other."""
    found = Expected()
    owner: dict[str, tuple[str, Row]] = {video_id: ("target", row) for video_id, row in target.items()}
    for number, rows in enumerate(sources):
        for video_id in sorted(rows):
            row = rows[video_id]
            if only is not None and video_id not in only:
                continue
            if video_id in dropped:
                found.note("dropped", video_id)
                continue
            place, known = owner.get(video_id, ("", row))
            if (known.frames, known.rate) != (row.frames, row.rate):
                if not (update and place == "target" and row.revision > known.revision):
                    found.clashes.append((video_id, place, f"source{number}"))
                    continue
                found.note("replaces", video_id)
            elif place:
                found.note("already", video_id)
                if place == "target" and json.loads(known.columns) != json.loads(row.columns):
                    found.note("other columns", video_id)
                continue
            owner[video_id] = f"source{number}", row
            found.note("copied", video_id)
    return found


DATASETS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "e"]),
    st.builds(
        Row,
        frames=st.sampled_from([3, 9, 9]),
        rate=st.sampled_from([25, 25, 25, 30]),
        revision=st.integers(0, 1),
        columns=st.sampled_from(['{"x": 1, "y": 2}', '{"y": 2, "x": 1}', '{"x": 3}']),
    ),
)


@pytest.mark.long
@given(
    sources=st.lists(DATASETS, min_size=1, max_size=4),
    target=DATASETS,
    dropped=st.sets(st.sampled_from(["a", "b", "f"]), max_size=2),
    update=st.booleans(),
    only=st.none() | st.sets(st.sampled_from(["a", "b", "c", "f", "g"])),
    block=st.integers(1, 3),
    together=st.sampled_from([0, 5, 1 << 20]),
)
def test_many_at_a_time_are_decided_as_one_after_the_other(
    sources: list[dict[str, Row]],
    target: dict[str, Row],
    dropped: set[str],
    update: bool,
    only: set[str] | None,
    block: int,
    together: int,
) -> None:
    target = {video_id: row for video_id, row in target.items() if video_id not in dropped}
    now = merge([manifest_of(target), *(drop(video_id, 1) for video_id in sorted(dropped))])
    opened: list[Any] = [
        (DiskStorage(Path(f"/source{number}")), Root({}, "000001"), manifest_of(rows))
        for number, rows in enumerate(sources)
    ]
    expected = one_by_one(sources, target, dropped, update=update, only=only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_BLOCK_ROWS", block)
        patch.setattr(copy_plan, "_MOST_TOGETHER", together)

        def planned() -> list[CopySource]:
            return plan_copy(opened, DiskStorage(Path("/target")), now, update=update, include_dropped=False, only=only)

        if expected.clashes:
            with pytest.raises(UsageError) as raised:
                planned()
            check_message(raised.value.message, expected.clashes)
            return
        plan = planned()
    for name, flag in FLAGS.items():
        found = [source.manifest.videos.id.text(row) for source in plan for row in source.rows(flag).tolist()]
        assert found == expected.ids[name], name


def check_message(message: str, clashes: list[tuple[str, str, str]]) -> None:
    count = len(clashes)
    assert message.startswith(f"{count} id{'s mean' if count > 1 else ' means'} two videos: ")
    said = "; ".join(f"{video_id!r} of /{place} and of /{source}" for video_id, place, source in clashes[:3])
    assert f"videos: {said}{' ...' if count > 3 else ''}; drop one" in message
    of_target = next((video_id for video_id, place, _ in clashes if place == "target"), None)
    assert (f"`shortgop drop /target {of_target}`" in message) == (of_target is not None)
