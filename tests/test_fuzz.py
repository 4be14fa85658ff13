"""Over two hundred broken files, the same ones every time; `make fuzz` goes on with others for as long as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzing import BREAKS, Whole, make_sources, run_case

CASES_TOGETHER = 34
# What these found: grids of two lengths, times guessed behind a loss, holes without a word, a cut that no decoder
# notices, timestamps out of order, and a stream that turns up late.
ONCE_WRONG = [45, 65, 247, 1153, 3602, 4166, 22552]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Whole]:
    return make_sources(tmp_path_factory.mktemp("sources"))


@pytest.mark.parametrize("first", range(0, 7 * CASES_TOGETHER, CASES_TOGETHER))
def test_a_broken_file_ends_as_a_correct_dataset_or_with_a_named_reason(
    first: int, wholes: list[Whole], tmp_path: Path
) -> None:
    outcomes = [run_case(wholes, number, tmp_path) for number in range(first, first + CASES_TOGETHER)]
    assert {outcome.kind for outcome in outcomes} <= set(BREAKS)
    # Half of them leave something to take, so the checks above have looked at pictures.
    assert sum(outcome.frames > 0 for outcome in outcomes) > CASES_TOGETHER / 4
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", ONCE_WRONG)
def test_a_case_that_once_went_wrong(number: int, wholes: list[Whole], tmp_path: Path) -> None:
    run_case(wholes, number, tmp_path)
