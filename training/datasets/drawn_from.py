"""Whether draws are those of a dataset: a sampler's stand for clips of the dataset that it was made of."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from torch.utils.data import ConcatDataset, Subset

from ...errors import UsageError
from ...wording import counted
from ..which_clips.clips import Clips
from ..which_clips.draws import Draw, DrawnFrom, share_of
from .callers import callers

# What takes draws for places, and what to take instead.
_REMEDIES: dict[type[Any], str] = {
    ConcatDataset: "put the datasets together with shortgop.MixedClips, and make the sampler of that",
    Subset: "give ClipDataset videos= or shortgop.open(...).where(...) for some of the videos, or a ClipTable for "
    "some of the clips, and make the sampler of that",
}


class HasClips(Protocol):
    """A dataset of which draws of a sampler stand for clips: ClipDataset and MixedClips."""

    def __len__(self) -> int: ...

    @property
    def snapshot(self) -> str: ...

    @property
    def clip_index(self) -> Clips: ...

    @property
    def made_as(self) -> str:
        """A name that its copies in other processes have too, see `new_name`."""

    @property
    def videos_fingerprint(self) -> str: ...


def new_name() -> str:
    """A name for a dataset that its copies in other processes have too, and no other dataset has."""
    return uuid.uuid4().hex


def drawn_from(dataset: HasClips) -> DrawnFrom:
    """What draws of a sampler of this dataset say of it."""
    return DrawnFrom(len(dataset.clip_index), dataset.made_as, _fingerprint(dataset))


def check_drawn_from(draws: Sequence[int], dataset: HasClips) -> None:
    """UsageError for draws of a sampler of another dataset, which would be other clips of this one.

    A dataset that was made anew with the same clips will do. Only then are fingerprints compared, since a worker would
    have to count all clips for its own.
    """
    share = share_of(draws)
    given = None if share is None else share.drawn_from
    if given is None or given.made_as == dataset.made_as:
        return
    count = len(dataset.clip_index)
    if given.num_clips != count:
        what = f"of a dataset of {counted(given.num_clips, 'clip')}, and this one has {count}"
    elif given.fingerprint != _fingerprint(dataset):
        what = "of another dataset, which has as many clips of other videos, or by another policy or seed"
    else:
        return
    raise UsageError(
        f"the sampler is {what}: give the DataLoader the dataset that the sampler was made of, or make a sampler of "
        "this one (shortgop.MixedClips puts several datasets together, and `int(draw) % len(dataset)` is the clip of a "
        "draw in any epoch)"
    )


def check_not_taken_for_places() -> None:
    """UsageError where torch's ConcatDataset or Subset took draws of a sampler for places of its own, and asks for what
    is there: from the second epoch on these are other clips than the sampler's.

    They hand on numbers that are no draws any more, so this looks at who asks, also through datasets of the user's.
    """
    for frame in callers():
        if frame.f_globals.get("__name__") != "torch.utils.data.dataset":
            continue
        wrapper = frame.f_locals.get("self")
        asked = frame.f_locals.get("idx", frame.f_locals.get("indices"))
        first = asked[0] if isinstance(asked, list) and asked else asked
        remedy = next((remedy for kind, remedy in _REMEDIES.items() if isinstance(wrapper, kind)), None)
        if remedy is not None and isinstance(first, Draw):
            raise UsageError(
                f"draws of a sampler stand for clips of the dataset that it was made of, and a "
                f"{type(wrapper).__name__} takes them for places of its own, where other clips are: {remedy}"
            )


def _fingerprint(dataset: HasClips) -> str:
    return f"{dataset.videos_fingerprint}/{dataset.clip_index.fingerprint}"
