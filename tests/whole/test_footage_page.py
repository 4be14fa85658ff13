"""docs/footage.md and docs/imports.md name a test for each property of sources; each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"


@pytest.mark.parametrize(("page", "fewest"), [("footage.md", 80), ("imports.md", 20)])
def test_every_test_that_the_page_names_exists(page: str, fewest: int) -> None:
    defined = {name for file in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", file.read_text())}
    named = set(re.findall(r"`(test_\w+)`", (DOCS / page).read_text()))
    assert len(named) > fewest
    assert named - defined == set()
