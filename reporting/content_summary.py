"""What the tables of a dataset say, in numbers whose count does not grow with the dataset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..manifests.operations.summary import Size, size_of
from ..manifests.ragged import Array
from ..manifests.tables import Manifest
from .failure_groups import FailureGroups, failure_summary, random_rows

_MOST_FAILURE_GROUPS = 12
_MOST_BARS = 8
_GOP_BARS = 24
# Quantiles and bars of more GOPs than this are those of random ones.
_MOST_SORTED_GOPS = 2_000_000


@dataclass(frozen=True)
class Share:
    """How many videos have a property."""

    label: str
    videos: int


@dataclass(frozen=True)
class Shares:
    """The most frequent values of a property, and how many videos have others, which are so many `other_values`."""

    most: tuple[Share, ...] = ()
    other_values: int = 0
    other_videos: int = 0


@dataclass(frozen=True)
class GopBytes:
    """How long GOPs are, in bytes. `bars` are (first, stop, GOPs): lengths in [first, stop). `sampled` says whether
    `median`, `percentile_95` and `bars` are those of some of the GOPs."""

    count: int
    mean: float
    median: float
    percentile_95: float
    longest: int
    bars: tuple[tuple[float, float, int], ...]
    sampled: bool


@dataclass(frozen=True)
class Contents:
    """A snapshot. `size` is that of all videos with their shards. `dropped`, `repeated` and `salvaged` count frames,
    each beside how many videos have such ones. `pipelines` are what decoded, scaled and encoded."""

    num_videos: int
    num_shards: int
    size: Size
    rates: Shares
    sizes: Shares
    pipelines: Shares
    given_up: Shares
    dropped: tuple[int, int]
    repeated: tuple[int, int]
    salvaged: tuple[int, int]
    gop_bytes: GopBytes | None
    failures: FailureGroups


def contents_of(manifest: Manifest) -> Contents:
    """The numbers of a snapshot. Times grow with its videos and GOPs, and nothing that is returned does."""
    videos, configs = manifest.videos, manifest.configs
    of_config = np.bincount(videos.config, minlength=len(configs)).tolist()
    sides = zip(configs.width.tolist(), configs.height.tolist(), of_config, strict=True)
    rates = Counter(zip(videos.fps_num.tolist(), videos.fps_den.tolist(), strict=True))
    lengths = manifest.videos.salvaged.values.reshape(-1, 2)
    return Contents(
        num_videos=len(videos),
        num_shards=len(manifest.shards),
        size=size_of(manifest),
        rates=_shares({_rate(Fraction(*rate)): count for rate, count in rates.items()}),
        sizes=_shares(_summed((f"{width} x {height}", count) for width, height, count in sides)),
        pipelines=_shares(_summed((_pipeline(manifest, row), count) for row, count in enumerate(of_config))),
        given_up=_shares(_given_up(manifest)),
        dropped=_counted(videos.dropped),
        repeated=_counted(videos.repeated),
        salvaged=(int((lengths[:, 1] - lengths[:, 0]).sum()), int((np.diff(videos.salvaged.offsets) > 0).sum())),
        gop_bytes=_gop_bytes(manifest.gops.length),
        failures=failure_summary(manifest.failures, _MOST_FAILURE_GROUPS),
    )


def _rate(fps: Fraction) -> str:
    return f"{fps}" if fps.denominator == 1 else f"{float(fps):.2f} ({fps})"


def _pipeline(manifest: Manifest, config: int) -> str:
    known = manifest.pipeline(config)
    codec = manifest.config(config).codec
    done_by = (("decoding", "decoded by"), ("scaling", "scaled by"), ("encoder", "encoded by"))
    steps = [f"{done} {known[name]}" for name, done in done_by if known.get(name)]
    return f"{codec}: {', '.join(steps)}" if steps else codec


def _given_up(manifest: Manifest) -> dict[str, int]:
    texts = Counter(manifest.videos.given_up.texts())
    return _summed((each, count) for text, count in texts.items() for each in json.loads(text or "[]"))


def _summed(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for label, count in counts:
        sums[label] = sums.get(label, 0) + count
    return sums


def _shares(counts: Mapping[str, int]) -> Shares:
    ordered = sorted((Share(label, count) for label, count in counts.items() if count), key=lambda each: -each.videos)
    rest = ordered[_MOST_BARS:]
    return Shares(tuple(ordered[:_MOST_BARS]), len(rest), sum(each.videos for each in rest))


def _counted(column: Array) -> tuple[int, int]:
    """The sum, and how many rows are above 0; unknown ones, which are -1, count as 0."""
    known = np.maximum(column, 0)
    return int(known.sum()), int((known > 0).sum())


def _gop_bytes(lengths: Array) -> GopBytes | None:
    if not len(lengths):
        return None
    some = random_rows(lengths, _MOST_SORTED_GOPS)
    median, percentile_95 = np.percentile(some, [50, 95])
    shortest, longest = max(1, int(lengths.min())), int(lengths.max())
    # Lengths differ by factors, so bars are as wide as each other in logarithms.
    bars = max(1, min(_GOP_BARS, longest - shortest + 1))
    edges = np.geomspace(shortest, longest + 1, bars + 1)
    edges = np.unique(np.round(edges))
    counts, _ = np.histogram(some, edges)
    return GopBytes(
        count=len(lengths),
        mean=float(lengths.mean(dtype=np.float64)),
        median=float(median),
        percentile_95=float(percentile_95),
        longest=longest,
        bars=tuple(zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)),
        sampled=len(some) < len(lengths),
    )
