"""The tables of docs/footage.md and docs/imports.md name the files of the tests that show each property of sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
FILES = {file.stem for file in TESTS.rglob("test_*.py")}


@pytest.mark.parametrize(("page", "fewest"), [("footage.md", 150), ("imports.md", 20)])
def test_each_property_names_files_of_tests_that_exist(page: str, fewest: int) -> None:
    found = re.findall(r"^\| property \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", (DOCS / page).read_text(), re.MULTILINE)
    properties = [line for table in found for line in table.splitlines()]
    assert len(properties) > fewest
    for line in properties:
        named = re.findall(r"`(test_\w+)`", line.rpartition(" | ")[2])
        assert named, line
        assert set(named) <= FILES, line
