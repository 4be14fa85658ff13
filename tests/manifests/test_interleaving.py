"""What is read to put layers together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scale_data import made_up

from shortgop.manifests.layering import row_runs
from shortgop.manifests.layering.layer_tables import DecodedTables
from shortgop.manifests.layering.layers import combined, combined_tables
from shortgop.manifests.merging.frame_runs import ReadRows
from shortgop.manifests.ragged import Array
from shortgop.manifests.shared_memory.new_arrays import in_memory
from shortgop.manifests.tables import Manifest

NUM_VIDEOS = 4_000
MORE_VIDEOS = 400


class Counted(DecodedTables):
    """The tables of a layer, which count the rows that are read of each column."""

    def __init__(self, manifest: Manifest, counts: Counter[str]) -> None:
        super().__init__(manifest)
        self._counts = counts

    def reads(self, path: str) -> ReadRows:
        read = super().reads(path)

        def counted(start: int, stop: int) -> Array:
            self._counts[path] += stop - start
            return read(start, stop)

        return counted


def test_references_are_read_twice_only_until_all_contents_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which patterns are used, and in which order, is known before the column is put together. The layers have the same
    four patterns, and the videos of the newer layer come last."""
    monkeypatch.setattr(row_runs, "BLOCK_ROWS", 1 << 6)
    layers = [made_up(np.arange(NUM_VIDEOS)), made_up(np.arange(NUM_VIDEOS, NUM_VIDEOS + MORE_VIDEOS))]
    counts: Counter[str] = Counter()
    together = combined_tables([Counted(each, counts) for each in layers], in_memory)
    rows = len(together.gops)
    assert rows == sum(len(each.gops) for each in layers)
    assert len(together.patterns) == len(layers[0].patterns)
    assert rows < counts["gops/pattern"] < 1.1 * rows
    assert counts["gops/length"] == rows


def test_a_pattern_that_only_the_newest_layer_has_is_found() -> None:
    layers = [made_up(np.arange(10)), made_up(np.arange(10, 20))]
    own = layers[1].patterns.referenced.values.copy()
    own[-1] = 1 - own[-1]
    object.__setattr__(layers[1].patterns.referenced, "values", own)
    together = combined(layers)
    assert len(together.patterns) == len(layers[0].patterns) + 1
    patterns = [[each.pattern(int(number)) for number in each.gops.pattern] for each in (together, *layers)]
    assert patterns[0] == patterns[1] + patterns[2]
