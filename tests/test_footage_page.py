"""docs/footage.md names a test for each property of sources; each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "footage.md"


def test_every_test_that_the_page_names_exists() -> None:
    defined = {name for file in TESTS.glob("test_*.py") for name in re.findall(r"def (test_\w+)\(", file.read_text())}
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert len(named) > 80
    assert named - defined == set()
