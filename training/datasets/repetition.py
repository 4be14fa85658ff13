"""Notices random clips that are read again and again with the same choices, or are about to be."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice

from ...warned import warn
from ..which_clips.draws import Draw
from .callers import callers
from .shared import SharedNumbers

# Twice may be meant. Not where Accelerate divides batches among ranks: it tells datasets the epoch on one rank alone.
_READ_TWICE, _READ_ONCE = 2, 1
_BATCHES_TO_SPARE = 2
# Between the sampler of Accelerate and the dataset whose length it asks for: those of torch's RandomSampler.
_MOST_FRAMES_BETWEEN = 4
# Samplers that know of epochs, and what became of the dataset's.
_UNTOLD = {
    "SeedableRandomSampler": "Accelerate tells its sampler the epoch, but not the dataset on several ranks, or where a "
    "run goes on in mid-epoch. Call dataset.set_epoch(epoch) before each epoch: with Hugging Face's Trainer in "
    "on_epoch_begin of a TrainerCallback",
    "DistributedSampler": "the epoch of a DistributedSampler was set, and that of the dataset was not. Call "
    "dataset.set_epoch(epoch) before each epoch as well, or take shortgop.ElasticSampler, which needs its own alone",
}


def notice_untold_epoch(shared: SharedNumbers) -> bool:
    """DatasetWarning, and True, where torch's DistributedSampler or the sampler of Accelerate begins a later epoch than
    the dataset was told of.

    Notes among how many ranks the sampler divides the clips. To be called where the length of a dataset of random clips
    is asked for, as these samplers do when a pass begins. Accelerate tells a dataset no epoch on several ranks, nor
    where a run goes on in mid-epoch; Lightning tells none.
    """
    sampler = _beginning_sampler()
    shared.note_ranks(int(getattr(sampler, "num_replicas", 1)))
    epoch = int(getattr(sampler, "epoch", 0))
    # What is in order is mostly evaluation, for which clips may stay the same.
    if sampler is None or epoch <= shared.epoch or not getattr(sampler, "shuffle", True):
        return False
    untold = _UNTOLD[type(sampler).__name__]
    warn(f"epoch {epoch} begins with the random clips of epoch {shared.epoch}: {untold}")
    return True


def _beginning_sampler() -> object | None:
    """The sampler that knows of epochs and begins a pass here, if there is one."""
    # From the dataset on, whose length is asked for.
    for frame in islice(callers(), 2, 3 + _MOST_FRAMES_BETWEEN):
        sampler = frame.f_locals.get("self") if frame.f_code.co_name == "__iter__" else None
        if type(sampler).__name__ in _UNTOLD:
            return sampler
    return None


def notice_repetition(shared: SharedNumbers, draws: Sequence[int], count: int, *, fixed: str) -> bool:
    """Count these draws of a dataset of random clips, of which there are `count` in an epoch.

    DatasetWarning, and True, where they are read for the third time without another epoch (for the second time on ranks
    of Accelerate), or where one comes several times in what is read together. `fixed` says how clips would stay the
    same without it.
    """
    plain = [int(draw) for draw in draws if not isinstance(draw, Draw)]
    if not plain or not count:
        return False
    if len(set(plain)) < len(plain):
        twice = next(index for place, index in enumerate(plain) if index in plain[:place])
        warn(
            f"index {twice} comes several times in a batch, and stands for the same random clip each time: a sampler "
            "that repeats indices, such as WeightedRandomSampler, has no other clips for them. Take "
            "shortgop.ElasticSampler, with order=shortgop.Weighted(weights), shortgop.ClassBalanced(labels) or "
            "shortgop.ClassBatches(labels, num_classes, clips_per_class), where each is drawn anew (for clips that are "
            f"to stay the same, {fixed})"
        )
        return True
    # Indices from `count` on are draws of later epochs. Each of several ranks reads another part of every epoch, so it
    # knows that an epoch came again only once it has met an index again.
    times = shared.count_read([index % count for index in plain if index < count], count)
    ranks = shared.ranks
    # Other libraries import Accelerate too, where it divides nothing.
    may_be_accelerate = "accelerate.data_loader" in sys.modules and not shared.are_divided_by_sampler
    by_accelerate = ranks > 1 and may_be_accelerate
    untold = _READ_ONCE if by_accelerate else _READ_TWICE
    # Accelerate fills the last batches of an epoch with samples from its start.
    spare = _BATCHES_TO_SPARE * len(plain) * ranks if by_accelerate else 0
    if times <= untold or shared.read * ranks <= untold * count + spare:
        return False
    where = (
        ", which Accelerate may not do on several ranks: with Hugging Face's Trainer in on_epoch_begin of a "
        "TrainerCallback"
    )
    warn(
        f"random clips are read for the {'second' if by_accelerate else 'third'} time with the same choices: call "
        f"dataset.set_epoch(epoch) in each epoch{where if by_accelerate else ''}, or use shortgop.ElasticSampler (for "
        f"clips that are to stay the same, {fixed})"
    )
    return True
