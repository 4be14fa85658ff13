"""What chunks cost in variance, and what they save: the formulas that docs/sampling.md derives.

Throughout, s2 is the variance of one sample's gradient (the trace of its covariance), and rho the mean correlation of
two different samples of a chunk: 0 when chunks are no different from random sets, 1 when all samples of a chunk are the
same. What counts are gradients; frames are what can be had without training, and mostly correlate more.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arguments import number
from ...errors import UsageError
from ...manifests.ragged import Array
from ..which_clips.keyed import below, hashes, key
from ..which_clips.offsets import at_least_one

if TYPE_CHECKING:
    import torch

    from ..datasets.clip_dataset import ClipDataset


def effective_batch_size(
    batch_size: int,
    chunk: int,
    rho: float,
    *,
    window: float | None = None,
    batches_per_chunk: int = 1,
    num_chunks: float | None = None,
) -> float:
    """How many independent samples have a mean of the same variance as a batch made of chunks.

    The variance of the batch's mean is s2 / effective_batch_size. Of a batch of B samples, b_k of them from chunk k, it
    is s2 / B * (1 + rho * (sum(b_k^2) / B - 1)): with whole chunks B / (1 + (chunk - 1) * rho). Where batches end
    within chunks, it is the mean over all places where one may begin.

    - `window`: the samples are shuffled within windows of so many, a multiple of `batch_size`, as
      `Chunked(chunk, window=)` does: with windows of whole chunks B / (1 + rho * (chunk - 1) * (B - 1) / (window - 1)).
    - `batches_per_chunk`: each chunk is divided evenly over so many batches: B / (1 + (chunk / s - 1) * rho).
    - `num_chunks`: how many chunks an epoch has. They are drawn without replacement, so the variance is less, by
      (num_chunks - m) / (num_chunks - 1) where a batch has m of them.

    The last two and `window` exclude each other. UsageError for what makes no sense, such as a rho below
    -1 / (chunk - 1), which no samples can have.
    """
    batch, size = at_least_one(batch_size, "batch_size"), at_least_one(chunk, "chunk")
    correlation = float(number(rho, "rho"))
    if not (correlation <= 1 and correlation * (size - 1) >= -1 - 1e-9):
        raise UsageError(f"rho is {rho}; with chunks of {size} it is from {-1 / max(1, size - 1):.3g} to 1")
    parts = at_least_one(batches_per_chunk, "batches_per_chunk")
    if (window is not None) + (parts > 1) + (num_chunks is not None) > 1:
        raise UsageError("window, batches_per_chunk and num_chunks exclude each other")
    if window is not None:
        if not number(window, "window") >= 1 or window % batch:
            raise UsageError(f"window is {window}; it is a multiple of batch_size, {batch}")
        width = int(window)
        # A sample has so many others of its chunk in its window, on average, of `width` - 1 others.
        of_chunk = _mean_part(width, size) - 1
        return batch / (1 + correlation * of_chunk * (batch - 1) / max(1, width - 1))
    if size % parts:
        raise UsageError(f"batches_per_chunk is {parts}, which does not divide a chunk of {size} evenly")
    factor = 1 + correlation * (_mean_part(batch, size // parts) - 1)
    if num_chunks is not None:
        in_batch, count = batch / size, float(number(num_chunks, "num_chunks"))
        if not 1 < count >= in_batch or count == float("inf"):
            raise UsageError(f"num_chunks is {num_chunks}; a batch has {in_batch:g} chunks, and an epoch more than one")
        factor *= (count - in_batch) / (count - 1)
    return batch / factor if factor > 0 else float("inf")


def _mean_part(batch: int, chunk: int) -> float:
    """sum(b_k^2) / B, where chunks follow each other and batches are cut off without regard to them: the mean over all
    places in a chunk where a batch may begin."""
    step = gcd(batch, chunk)
    squares = 0
    for begun in range(0, chunk, step):
        first = min(batch, chunk - begun)
        whole, last = divmod(batch - first, chunk)
        squares += first**2 + whole * chunk**2 + last**2
    return squares / (chunk // step) / batch


def best_chunk(rho: float, shared_cost: float, sample_cost: float) -> float:
    """The size of chunk at which independent samples cost least: sqrt(a / d * (1 - rho) / rho), and 1 at least.

    `shared_cost` a is what a chunk costs once, such as reading and decoding the GOPs that its clips share;
    `sample_cost` d what each of its samples costs besides. In any unit: only their ratio counts. Infinite where rho is
    0 or less, that is, where chunks cost nothing.
    """
    correlation, shared, each = (float(number(value, "a cost or rho")) for value in (rho, shared_cost, sample_cost))
    # This form refuses NaN.
    if not (correlation <= 1 and shared >= 0 and each > 0):
        raise UsageError(f"rho is {rho}, shared_cost {shared_cost} and sample_cost {sample_cost}; costs are positive")
    return float("inf") if correlation <= 0 else max(1.0, sqrt(shared / each * (1 - correlation) / correlation))


def gops_per_sample(chunk: int, span: int, gop_frames: int) -> float:
    """How many GOPs are decoded for each clip of a chunk, on average: (1 + (span + chunk - 2) / gop_frames) / chunk.

    For clips that span so many frames and start one frame apart: together they span span + chunk - 1 frames, and a run
    of n frames that starts anywhere touches 1 + (n - 1) / gop_frames GOPs.
    """
    size, frames = at_least_one(chunk, "chunk"), at_least_one(span, "span")
    return (1 + (frames + size - 2) / at_least_one(gop_frames, "gop_frames")) / size


def chunk_correlation(vectors: Any) -> float:
    """rho, estimated from vectors of samples in chunks, (chunks, samples of a chunk, numbers of a sample ...).

    Gradients, or embeddings, or pixels: anything that has a mean. The estimator of one-way analysis of variance
    (Donner, International Statistical Review 54, 1986): (MSB - MSW) / (MSB + (c - 1) MSW), where MSB and MSW are the
    mean squares between and within chunks, summed over a vector's numbers.
    """
    values = np.asarray(vectors, dtype=np.float64)
    if values.ndim < 2 or values.shape[0] < 2 or values.shape[1] < 2:
        raise UsageError(
            f"vectors has shape {values.shape}; it is (chunks, samples of a chunk, ...), two or more of both"
        )
    if not np.isfinite(values).all():
        raise UsageError("vectors has numbers that are infinite or NaN, which correlate with nothing; leave these out")
    chunks, size = values.shape[:2]
    values = values.reshape(chunks, size, -1)
    means = values.mean(axis=1)
    between = size * ((means - means.mean(axis=0)) ** 2).sum() / (chunks - 1)
    within = ((values - means[:, None]) ** 2).sum() / (chunks * (size - 1))
    total = between + (size - 1) * within
    return float((between - within) / total) if total > 0 else 0.0


def measured_chunk_correlation(
    dataset: ClipDataset,
    chunk: int,
    *,
    num_chunks: int = 64,
    features: Callable[[torch.Tensor], Any] | None = None,
    seed: int = 0,
) -> float:
    """rho of chunks of neighbouring clips, estimated from some of them.

    `features` makes a vector of a clip's frames, (frames, ...); without it that is the mean of each of 8 x 8 fields of
    the picture, over the frames. Reads `num_chunks` times `chunk` clips. UsageError for a dataset with outputs of which
    none is called "frames".
    """
    size, count = at_least_one(chunk, "chunk"), len(dataset)
    if size < 2:
        raise UsageError("chunk is 1; a chunk has two or more clips, which may correlate")
    if size > count:
        raise UsageError(f"chunk is {size}; the dataset has {count} clips")
    starts = below(hashes(key(seed, "chunk correlation"), np.arange(at_least_one(num_chunks, "num_chunks"))), count)
    make = _small_picture if features is None else features
    vectors = []
    for start in starts.tolist():
        items = dataset.__getitems__([(start + step) % count for step in range(size)])
        if "frames" not in items[0]:
            raise UsageError(f"the items of {dataset!r} have no 'frames'; give it an output of that name, or none")
        vectors.append([np.asarray(make(item["frames"]), dtype=np.float64).ravel() for item in items])
    return chunk_correlation(vectors)


def _small_picture(frames: torch.Tensor) -> Array:
    import torch

    mean = frames.float().mean(dim=0)
    # With the channels last, the last dimension is 3.
    planes = mean if mean.shape[0] in (1, 3) else mean.permute(2, 0, 1)
    return np.asarray(torch.nn.functional.adaptive_avg_pool2d(planes, 8))
