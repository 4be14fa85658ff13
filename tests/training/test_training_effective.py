"""What chunks do to the variance of a batch: each formula of docs/sampling.md against simulation or enumeration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import shortgop
from shortgop.errors import UsageError
from shortgop.training.sampling.effective import (
    best_chunk,
    chunk_correlation,
    effective_batch_size,
    gops_per_sample,
    measured_chunk_correlation,
)
from shortgop.training.sampling.orders import Chunked, Shuffled
from shortgop.training.which_clips.policies import AllClips
from video_tables import clips_of

Array = NDArray[Any]

COUNT, EPOCHS = 1920, 1500


@pytest.fixture(scope="module")
def samples() -> Array:
    """A number for each sample of a circle, of mean 0 and variance 1; neighbours are alike."""
    noise = np.random.default_rng(0).normal(size=COUNT + 40)
    smooth = np.convolve(noise, np.exp(-np.arange(41) / 6), mode="valid") + 0.3 * noise[:COUNT]
    return np.asarray((smooth - smooth.mean()) / smooth.std())


def rho_of(samples: Array, chunk: int) -> float:
    """From the autocorrelations: 2 / (c (c - 1)) * sum over lags d of (c - d) r(d)."""
    lags = [float((samples * np.roll(samples, lag)).mean()) for lag in range(chunk)]
    return 2 / (chunk * (chunk - 1)) * sum((chunk - lag) * lags[lag] for lag in range(1, chunk))


def batch_means(samples: Array, order: Any, batch: int, epochs: int = EPOCHS) -> Array:
    """(epochs, batches): what an optimiser would see of each."""
    bound = order.bound(clips_of(AllClips(1), [COUNT]), 0)
    positions = np.arange(COUNT // batch * batch)
    return np.array(
        [samples[bound.draws(epoch, positions) % COUNT].reshape(-1, batch).mean(axis=1) for epoch in range(epochs)]
    )


def close(found: float, expected: float) -> bool:
    return math.isclose(found, expected, rel_tol=0.06)


@pytest.mark.first_case_short
@pytest.mark.parametrize(("chunk", "batch"), [(4, 32), (16, 64), (8, 12), (12, 8), (5, 32)])
def test_the_variance_of_a_batch_of_chunks(samples: Array, chunk: int, batch: int) -> None:
    """Whole chunks, chunks that batches cut through, and batches smaller than a chunk."""
    means = batch_means(samples, Chunked(chunk), batch)
    effective = effective_batch_size(batch, chunk, rho_of(samples, chunk))
    # A batch has a part of the epoch: what is left out of it makes it less random.
    assert close(float(means.var()), (1 - batch / COUNT) / effective)
    # And without bias: each batch has the mean of all samples.
    assert abs(means[:, 0].mean()) < 4 * math.sqrt(1 / effective / EPOCHS)


def test_chunks_are_drawn_without_replacement(samples: Array) -> None:
    chunk, batch = 16, 640
    means = batch_means(samples, Chunked(chunk), batch)
    effective = effective_batch_size(batch, chunk, rho_of(samples, chunk), num_chunks=COUNT // chunk)
    assert close(float(means.var()), 1 / effective)


@pytest.mark.first_case_short
@pytest.mark.parametrize(("chunk", "batch", "window"), [(16, 32, 128), (8, 16, 480)])
def test_a_window_of_several_batches(samples: Array, chunk: int, batch: int, window: int) -> None:
    """It moves noise from one batch to the next: their sum has as much as without it."""
    rho = rho_of(samples, chunk)
    means = batch_means(samples, Chunked(chunk, window=window), batch)
    assert close(float(means.var()), (1 - batch / COUNT) / effective_batch_size(batch, chunk, rho, window=window))
    in_window = means.reshape(EPOCHS, -1, window // batch)
    covariance = float((in_window[:, :, 0] * in_window[:, :, 1]).mean())
    # What one batch has, another cannot have in the same epoch.
    expected = rho * (chunk - 1) / (window - 1) - (1 + (chunk - 1) * rho) / COUNT
    assert math.isclose(covariance, expected, rel_tol=0.25)
    whole = float(in_window.mean(axis=2).var())
    assert close(whole, (1 - window / COUNT) / effective_batch_size(window, chunk, rho))


@pytest.mark.parametrize(("chunk", "batch", "window"), [(16, 4, 8), (16, 8, 8), (12, 8, 16)])
def test_a_window_that_is_no_multiple_of_a_chunk(samples: Array, chunk: int, batch: int, window: int) -> None:
    """Also one that is shorter: a sample cannot have more of its chunk beside it than the window holds."""
    means = batch_means(samples, Chunked(chunk, window=window), batch)
    effective = effective_batch_size(batch, chunk, rho_of(samples, chunk), window=window)
    assert close(float(means.var()), (1 - batch / COUNT) / effective)


def test_chunks_divided_over_several_batches(samples: Array) -> None:
    """Each of two batches gets a random half of each of the same chunks."""
    chunk, batch, parts = 12, 48, 2
    rho, rng = rho_of(samples, chunk), np.random.default_rng(0)
    means = []
    for _ in range(20_000):
        starts = rng.integers(0, COUNT, size=batch * parts // chunk)
        chosen = (starts[:, None] + rng.permuted(np.tile(np.arange(chunk), (len(starts), 1)), axis=1)) % COUNT
        values = samples[chosen].reshape(len(starts), parts, -1)
        means.append(values.mean(axis=(0, 2)))
    found = np.array(means)
    assert close(float(found.var()), 1 / effective_batch_size(batch, chunk, rho, batches_per_chunk=parts))
    covariance = float((found[:, 0] * found[:, 1]).mean())
    assert math.isclose(covariance, rho * (chunk / parts) / batch, rel_tol=0.1)


def test_independent_samples_are_as_many_as_there_are() -> None:
    assert effective_batch_size(64, 16, 0) == 64
    assert effective_batch_size(64, 16, 1) == 4
    assert effective_batch_size(64, 1, 0.7) == 64
    assert effective_batch_size(64, 16, 0.1) == pytest.approx(64 / 2.5)


def test_windows_and_numbers_of_chunks_that_were_worked_out_may_be_floats() -> None:
    """Such as 1600 / 16, or 100 / 8: they were refused."""
    assert effective_batch_size(4, 16, 0.1, window=32 / 4) == effective_batch_size(4, 16, 0.1, window=8)
    whole = effective_batch_size(64, 16, 0.1, num_chunks=100)
    assert effective_batch_size(64, 16, 0.1, num_chunks=1600 / 16) == whole
    assert effective_batch_size(64, 16, 0.1, num_chunks=99.5) == pytest.approx(whole, rel=1e-3)


def test_neighbours_at_lag_d_share_a_chunk_with_probability_1_minus_d_over_c() -> None:
    count, chunk = 60, 6
    bound = Chunked(chunk).bound(clips_of(AllClips(1), [count]), 0)
    together = np.zeros(chunk + 1)
    for epoch in range(2000):
        chunks = np.empty(count, dtype=np.int64)
        chunks[bound.draws(epoch, np.arange(count)) % count] = np.arange(count) // chunk
        together += [(chunks == np.roll(chunks, lag)).mean() for lag in range(chunk + 1)]
    assert np.allclose(together / 2000, [1 - lag / chunk for lag in range(chunk + 1)], atol=0.01)


@given(st.integers(1, 30), st.integers(1, 30))
def test_overlapping_windows_neglect_the_edges(count: int, chunk: int) -> None:
    """A window that starts uniformly in [0, n - c] has sample i with min(i + 1, n - i, c, n - c + 1) / (n - c + 1)."""
    chunk = min(chunk, count)
    starts = range(count - chunk + 1)
    for sample in range(count):
        covering = sum(start <= sample < start + chunk for start in starts)
        assert covering == min(sample + 1, count - sample, chunk, count - chunk + 1)


def test_chunks_of_unequal_sizes_are_not_uniform_per_position() -> None:
    """Sizes 1 and 3: the single is at position 0 in half of the epochs instead of a quarter; a phase mends that."""
    shuffled = [[0, 1, 2, 3], [1, 2, 3, 0]]
    assert sum(order[0] == 0 for order in shuffled) / 2 == 0.5
    turned = [[(sample + phase) % 4 for sample in order] for order in shuffled for phase in range(4)]
    assert [sum(order[0] == sample for order in turned) for sample in range(4)] == [2, 2, 2, 2]


@pytest.mark.parametrize(("span", "gop"), [(1, 16), (61, 16), (16, 8), (5, 30)])
@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_gops_per_sample(span: int, gop: int, chunk: int) -> None:
    touched = [len({frame // gop for frame in range(start, start + span + chunk - 1)}) for start in range(gop)]
    assert gops_per_sample(chunk, span, gop) == pytest.approx(np.mean(touched) / chunk)


@given(st.floats(0.01, 0.9), st.floats(0.1, 100), st.floats(0.1, 10))
def test_the_best_chunk_is_where_an_independent_sample_costs_least(rho: float, shared: float, each: float) -> None:
    def cost(chunk: float) -> float:
        return (shared / chunk + each) * (1 + (chunk - 1) * rho)

    best = best_chunk(rho, shared, each)
    assert best >= 1
    for other in (max(1.0, 0.9 * best), 1.1 * best):
        assert cost(best) <= cost(other) * (1 + 1e-9)
    for chunk in (2, 4, 16):
        bound = shared / (shared + each * chunk)
        assert (cost(chunk) < cost(1)) == (rho < bound) or math.isclose(rho, bound)


def test_rho_is_estimated_from_vectors() -> None:
    """Chunks that share a part of their variance: on average the estimate is that part."""
    rng = np.random.default_rng(0)
    for rho in (0.0, 0.2, 0.7):
        found = [
            chunk_correlation(
                math.sqrt(rho) * rng.normal(size=(20, 1, 5)) + math.sqrt(1 - rho) * rng.normal(size=(20, 6, 5))
            )
            for _ in range(300)
        ]
        assert abs(np.mean(found) - rho) < 0.02


def test_rho_is_measured_from_a_dataset(three_videos: Any) -> None:
    """Neighbouring clips of a video are nearly the same pictures."""
    dataset = shortgop.ClipDataset(three_videos, shortgop.AllClips(2), size=(32, 32))
    assert measured_chunk_correlation(dataset, 3, num_chunks=12) > 0.5
    with pytest.raises(UsageError, match="chunk is 1; a chunk has two or more clips"):
        measured_chunk_correlation(dataset, 1)
    # A number that differs from clip to clip and tells no chunk from another.
    assert measured_chunk_correlation(dataset, 3, num_chunks=12, features=pixel_sum_parity) < 0.5


def pixel_sum_parity(frames: torch.Tensor) -> list[int]:
    return [int(frames.long().sum()) % 2]


def test_shuffled_samples_are_independent(samples: Array) -> None:
    assert close(float(batch_means(samples, Shuffled(), 32).var()), (1 - 32 / COUNT) / 32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: effective_batch_size(8, 4, -0.5), "rho is -0.5; with chunks of 4 it is from -0.333 to 1"),
        (lambda: effective_batch_size(8, 4, 1.5), "rho is 1.5"),
        (lambda: effective_batch_size(8, 4, 0.5, window=12), "window is 12; it is a multiple of batch_size"),
        (lambda: effective_batch_size(8, 4, 0.5, window=8.5), "window is 8.5; it is a multiple of batch_size"),
        (lambda: effective_batch_size(8, 4, 0.5, window=0), "window is 0; it is a multiple of batch_size"),
        (lambda: effective_batch_size(8, 4, 0.5, window=float("inf")), "window is inf; it is a multiple"),
        (lambda: effective_batch_size(8, 4, 0.5, batches_per_chunk=3), "does not divide a chunk of 4"),
        (lambda: effective_batch_size(8, 4, 0.5, batches_per_chunk=2, num_chunks=9), "exclude each other"),
        (lambda: effective_batch_size(8, 4, 0.5, num_chunks=1), "num_chunks is 1"),
        (lambda: effective_batch_size(8, 4, 0.5, num_chunks=float("nan")), "num_chunks is nan"),
        (lambda: effective_batch_size(8, 4, 0.5, num_chunks=float("inf")), "num_chunks is inf"),
        (lambda: best_chunk(0.5, 1, 0), "costs are positive"),
        (lambda: best_chunk(math.nan, 1, 1), "rho is nan"),
        (lambda: best_chunk(0.5, math.nan, 1), "shared_cost nan"),
        (lambda: chunk_correlation([[1.0]]), "two or more of both"),
        (lambda: chunk_correlation([[1.0, 2.0], [3.0, float("nan")]]), "numbers that are infinite or NaN"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
