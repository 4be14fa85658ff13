"""From what users give for `clips` to the index of clips that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import UsageError, WrongTypeError
from ...manifests.ragged import Array
from ...wording import and_others
from .clip_table import ClipTable, listed_index
from .clips import Clips, placed_index
from .clips_by import ChosenIndex, ClipsBy
from .joined import JoinedIndex
from .offsets import MultiRate, Offsets
from .policies import ClipsAt, Placement, RandomClips, RandomFrames, SegmentFrames, UniformClips
from .segments import SegmentIndex
from .table_index import table_index
from .video_table import VideoTable

Policy = Placement | RandomFrames | SegmentFrames | ClipsBy | ClipsAt | ClipTable | MultiRate | Offsets
Indexed = Placement | RandomFrames | SegmentFrames | ClipsBy | ClipsAt | ClipTable


def policy_of(clips: Any) -> Indexed:
    """The policy that `clips` is or stands for. WrongTypeError when it is none."""
    if isinstance(clips, (MultiRate, Offsets)):
        return RandomClips(clips)
    if isinstance(clips, (Placement, RandomFrames, SegmentFrames, ClipsBy, ClipsAt, ClipTable)):
        return clips
    raise WrongTypeError(
        f"clips is {clips!r}; it is a policy such as shortgop.RandomClips(16, stride=4), or a shortgop.ClipTable"
    )


def is_random(policy: Indexed) -> bool:
    """Whether clips of a policy are others in each epoch."""
    if isinstance(policy, SegmentFrames):
        return policy.place == "random"
    if isinstance(policy, ClipsBy):
        return policy.is_random
    return isinstance(policy, (RandomClips, RandomFrames)) or bool(getattr(policy, "jitter", 0))


def index_of(
    policy: Indexed,
    videos: VideoTable,
    chosen: Array | None,
    rows_of: Callable[[Sequence[str | int]], Array],
    seed: int,
) -> Clips:
    """The index of a policy over `videos`, which lie in the rows `chosen`, or in all; `rows_of` finds them by name."""
    if isinstance(policy, SegmentFrames):
        return SegmentIndex(policy, videos, seed)
    if isinstance(policy, ClipsBy):
        return ChosenIndex(policy, videos, seed)
    if not isinstance(policy, (ClipsAt, ClipTable)):
        placed = placed_index(policy, videos, seed)
        if isinstance(policy, (RandomClips, UniformClips)) and policy.joined:
            return JoinedIndex(placed, policy.clips_per_video)
        return placed
    if videos.first_frames is not None:
        raise UsageError(
            f"a {type(policy).__name__} says itself where its clips are; it goes without Stretches, which say where "
            "other policies may place theirs"
        )
    rows = rows_of(policy.videos)
    places = rows if chosen is None else _places(policy.videos, rows, chosen)
    if isinstance(policy, ClipTable):
        return listed_index(policy, videos, places)
    return table_index(policy, videos, places, seed)


def _places(names: Sequence[str | int], rows: Array, chosen: Array) -> Array:
    """Where each of these rows, of videos of these names, is among those that were chosen."""
    left_out = np.flatnonzero(~np.isin(rows, chosen)).tolist()
    if left_out:
        # A Series finds by its index, and not by place.
        name = list(names)[left_out[0]]
        raise UsageError(
            f"clip {left_out[0]} of the table is of video {repr(str(name)) if isinstance(name, str) else name}, which "
            f"videos= leaves out{and_others(left_out, len(rows), 'clips')}; leave such clips out of the table, or "
            "leave videos= out"
        )
    order = np.argsort(chosen, kind="stable")
    return np.asarray(order[np.searchsorted(chosen, rows, sorter=order)])
