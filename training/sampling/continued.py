"""Continued: an order in which each row of a batch goes on where that row ended in the batch before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...errors import UsageError
from ...manifests.ragged import Array, offsets_of
from ...wording import counted
from ..which_clips.clips import Clips
from ..which_clips.keyed import below, hashes, key, permuted
from ..which_clips.offsets import at_least_one
from .bound_order import BoundOrder


@dataclass(frozen=True)
class Continued:
    """Every clip once an epoch, in `rows` that go on from batch to batch: for models that carry a state, as those that
    are trained by truncated backpropagation through time. Of videos a, b and c with 4, 2 and 5 clips, in three rows:

        a circle      b0 b1 c0 c1 c2 c3 c4 a0 a1 a2 a3      videos in random order, the clips of each in theirs
        phase 3       c1 c2 c3 | c4 a0 a1 | a2 a3 b0        the rows from there on; b1 and c0 are left out
        batches       c1 c4 a2 | c2 a0 a3 | c3 a1 b0

        clips = shortgop.ClipDataset("DATASET", shortgop.AllClips(16, step=16, whole=False, ends="repeat_last"))
        sampler = shortgop.ElasticSampler(clips, 64, order=shortgop.Continued(64))
        loader = shortgop.ClipLoader(clips, sampler)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            state, video, start = torch.zeros(64, width), torch.full((64,), -1), torch.full((64,), -1)
            for batch in loader:
                state[(batch["video"] != video) | (batch["start"] != start + 16)] = 0
                video, start = batch["video"], batch["start"]
                state = train(batch["frames"], batch["mask"], state.detach())

    Elsewhere this is called truncated BPTT (backpropagation through time), stateful training, or contiguous batches.
    Row r of a batch is the clip that follows row r of the batch before it in its video, or the first clip of another
    video. A state goes on where the clip does, by the step of the policy, here 16: a video's first clip need not start
    at frame 0, and with on_error="skip" another clip may stand in for one. With MixedClips compare `dataset`, too, and
    with Stretches `stretch`; items of LeRobotClips have `episode_index` and `frame_index`, and the step is 1.

    Which clip follows is a matter of the policy: take one whose clips follow one another (RandomClips without `spread`,
    and RandomFrames, are a UsageError), and for random crops and flips Output(same_for="video"). Rows are equally long,
    so where an epoch begins, a row may begin within a video; carry no state from one epoch to the next. Fewer than
    `rows` clips are left out, with drop_last=False as well, other ones in each epoch. Each clip is as likely at each
    position.

    The sampler's `global_batch_size` is `rows`, which the ranks divide. Each rank has the same run of the rows in all
    batches, and a DataLoader's `batch_size` is their number: to accumulate gradients, take several batches, not parts
    of one. To go on in mid-epoch, save `state`, `video` and `start` of all ranks, joined in the order of the ranks,
    beside the sampler's state; then any number of ranks can divide them again.

    A process keeps 24 bytes for each video, and needs 44 more for a moment where an epoch begins. In a Mixture or in
    buckets, in which clips come in another order, it is a UsageError: it takes MixedClips as a whole.
    """

    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", at_least_one(self.rows, "rows"))

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        count, rows = len(clips), self.rows
        if count < rows:
            raise UsageError(
                f"rows is {rows}, and there {'is' if count == 1 else 'are'} {counted(count, 'clip')}: a row has one "
                "clip at least, so give fewer rows, or shorter clips"
            )
        if clips.is_unordered:
            raise UsageError(
                "the order is Continued, and the clips of a video do not follow one another, since RandomClips and "
                "RandomFrames place each anywhere: take AllClips (or RandomClips with spread=True, where clips may "
                "have gaps between them)"
            )
        firsts, steps = clips.firsts, count // rows

        @lru_cache(maxsize=1)
        def circle(epoch: int) -> tuple[Array, Array, int]:
            """The videos of an epoch in their order, where the clips of each begin, and the phase."""
            order = permuted(key(seed, "continued", epoch), len(firsts) - 1, np.arange(len(firsts) - 1))
            phase = int(below(hashes(key(seed, "continued phase"), epoch), count))
            return order, offsets_of(np.diff(firsts)[order]), phase

        def draws(epoch: int, positions: Array) -> Array:
            order, begins, phase = circle(epoch)
            step, row = np.divmod(positions, rows)
            places = (phase + row * steps + step) % count
            # The last one that begins there: those before it have no clips.
            which = np.searchsorted(begins, places, side="right") - 1
            return epoch * count + clips.clip_numbers(firsts[order[which]] + places - begins[which])

        return BoundOrder(
            rows * steps, draws, repr(self), batch=rows, batches=f"Continued, of {counted(rows, 'row')}", goes_on=True
        )
