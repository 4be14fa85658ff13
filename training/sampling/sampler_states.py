"""States of an ElasticSampler: what of one is checked before a sampler goes on from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...arguments import integer
from ...errors import UsageError, WrongTypeError
from ..which_clips.draws import checked_epoch
from ..which_clips.mixing import ROUNDS_FOR_EACH, SEED_FOR_EACH
from .slices import EpochSlices

STATE_VERSION = 2
_FINGERPRINTS = {
    "clips": "policy, or another seed of the dataset (a ClipsBy counts by its function's name and arguments)",
    "order": "order",
    "seed": "seed",
}
# What orders that depend on labels or weights have of these in their names: see `digest_of`.
_DIGEST = re.compile(r"\b[0-9a-f]{16}\b")
_AS_THEN = "make the dataset and the sampler as they were then, or begin without it"


def place_of(
    state: Any, own: Mapping[str, Any], slices: EpochSlices, num_clips: int, *, goes_on: bool = False
) -> tuple[int, int, int]:
    """The epoch, the position in it, and how much of the rank's part of the global batch there was taken.

    `own` is a state of the sampler that goes on, whose epochs are `slices`, and `goes_on` that of its order. UsageError
    for a state of other samples, or one that was changed; WrongTypeError for what is none.
    """
    if not isinstance(state, Mapping) or "version" not in state:
        found = f"has {', '.join(map(repr, state)) or 'nothing'}" if isinstance(state, Mapping) else f"is {state!r}"
        raise WrongTypeError(
            f"this is no state of an ElasticSampler: it {found}; give what state_dict() or state_after() returned"
        )
    if state["version"] != STATE_VERSION:
        raise UsageError(
            f"the state has version {state['version']!r}, and this shortgop has {STATE_VERSION}; begin without it, or "
            "take the shortgop that wrote it"
        )
    missing = [name for name in own if name not in state]
    if missing:
        raise UsageError(f"the state lacks {', '.join(map(repr, missing))}: it was changed or cut off")
    if state["videos"] != own["videos"]:
        then, now = _told(state["snapshot"]), _told(own["snapshot"])
        why = f"in snapshot {then}, and this is {now}"
        remedy = "give shortgop.ClipDataset that snapshot, or videos= the ids of then, if that was removed"
        if then == now:
            why = f"though in snapshot {now} too: of another dataset, or chosen otherwise, by videos=, where or a slice"
            remedy = _AS_THEN
        raise UsageError(f"the state was taken with other videos, {why}; its position means nothing here; {remedy}")
    for name, what in _FINGERPRINTS.items():
        if state[name] != own[name]:
            raise UsageError(
                f"the state was taken with another {what}: {state[name]!r}, now {own[name]!r}; its position means "
                f"nothing here; {_remedy(str(state[name]), str(own[name]))}"
            )
    start, epoch = integer(state["position"], "the state's position"), integer(state["epoch"], "the state's epoch")
    offset = integer(state["rank_offset"], "the state's rank_offset")
    if not 0 <= start <= slices.length or epoch < 0 or offset < 0:
        raise UsageError(
            f"the state is at position {start} of epoch {epoch}; epochs count from 0 and have {slices.length} "
            "positions: the state was changed"
        )
    if goes_on and (offset or start % slices.global_batch_size):
        raise UsageError(
            "the state was taken inside a global batch, and the batches of the order go on from one to the next, row "
            "by row: take it between two global batches, as state_after(step) or batch.state"
        )
    if offset and any(state[name] != own[name] for name in ("world_size", "global_batch_size")):
        raise UsageError(
            f"the state was taken inside a global batch, by {state['world_size']} ranks and in batches of "
            f"{state['global_batch_size']}; it goes on only with as many, or take it between two global batches"
        )
    if offset and offset >= slices.most_per_batch:
        raise UsageError(
            f"the state has rank_offset {offset}, and a rank has {slices.most_per_batch} samples of a global batch: "
            "the state was changed"
        )
    return checked_epoch(epoch, num_clips, "the state's epoch"), start, offset


def _told(snapshot: Any) -> str:
    """The snapshots that the datasets are of. Earlier versions also repeated that of one dataset."""
    names = str(snapshot).split("+")
    return f"{names[0]!r} of each dataset" if len(names) > 1 and len({*names}) == 1 else repr(snapshot)


def _remedy(then: str, now: str) -> str:
    """What helps where clips, an order or a seed have another name than then. That of an order is its kind, and what
    it depends on in brackets."""
    if then == now.replace(f"{SEED_FOR_EACH}, ", ""):
        return "an earlier version shuffled each of several datasets otherwise: begin without the state"
    if then == now.removeprefix(f"{ROUNDS_FOR_EACH} of "):
        return "an earlier version drew the clips of each of several datasets otherwise: begin without the state"
    if then.partition("(")[0] != now.partition("(")[0] or not _DIGEST.search(then):
        return _AS_THEN
    return "make the dataset and the sampler as they were then, with the same labels or weights, or begin without it"
