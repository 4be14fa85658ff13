"""docs/footage.md names the files of the tests that show each property of sources, and docs/imports.md the tests: all
of them exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
FILES = list(TESTS.rglob("test_*.py"))


def test_each_property_of_footage_names_files_of_tests() -> None:
    tables = re.findall(r"^\| property \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", (DOCS / "footage.md").read_text(), re.MULTILINE)
    properties = [line for table in tables for line in table.splitlines()]
    assert len(properties) > 150
    for line in properties:
        named = re.findall(r"`(test_\w+)`", line.rpartition(" | ")[2])
        assert named, line
        assert set(named) <= {file.stem for file in FILES}, line


def test_every_test_that_the_page_of_imports_names_exists() -> None:
    defined = {name for file in FILES for name in re.findall(r"def (test_\w+)\(", file.read_text())}
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "imports.md").read_text()))
    assert len(named) > 20
    assert named - defined == set()
