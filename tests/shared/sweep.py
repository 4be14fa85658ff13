"""What the tests check thoroughly where there is time: with SHORTGOP_SWEEP=1, which `make sweep` sets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

SWEEP = bool(os.environ.get("SHORTGOP_SWEEP"))

only_in_a_sweep = pytest.mark.skipif(not SWEEP, reason="it takes long: `make sweep` runs it")

_Case = TypeVar("_Case")


def sample(cases: Sequence[_Case], *, more: Sequence[_Case]) -> list[_Case]:
    """These cases, and in a sweep some more."""
    return [*cases, *(more if SWEEP else ())]
