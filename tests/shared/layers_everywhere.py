"""Snapshots in layers however small a dataset is: each publication adds one. Also for commands that tests start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from shortgop.manifests.layering import layers

_VARIABLE = "SHORTGOP_TESTS_LAYERS"


def _all_stay(rows: Sequence[int], new_rows: int, *, min_rows: int) -> int:
    return len(rows)


def in_environment() -> bool:
    """Whether a test that started this process has layers everywhere."""
    return _VARIABLE in os.environ


def begin() -> None:
    """Have layers everywhere until this process ends."""
    layers.layers_that_stay = _all_stay


@contextmanager
def layers_everywhere() -> Iterator[None]:
    """Have layers everywhere inside the block, in this process and in those that `killed_command` starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "layers_that_stay", _all_stay)
        patch.setenv(_VARIABLE, "1")
        yield
