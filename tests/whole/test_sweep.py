"""What the suite leaves to `make sweep` is run there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_a_sweep_runs_every_file_that_has_more_cases_for_it() -> None:
    found = re.search(r"^SWEPT := ((?:.*\\\n)*.*)$", (TESTS.parent / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    swept = found[1].replace("\\\n", " ").split()
    files = [
        file for file in TESTS.rglob("test_*.py") if re.search(r"^from sweep import", file.read_text(), re.MULTILINE)
    ]
    assert sorted(swept) == sorted(file.stem.removeprefix("test_") for file in files)
