"""Over two hundred broken files, the same ones every time; `make fuzz` goes on with others for as long as one likes."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz_files import BREAKS, Whole, make_sources
from fuzzing import run_case
from sweep import SWEEP

CASES_TOGETHER = 34
# What these found: grids of two lengths, times guessed behind a loss, holes without a word, a cut that no decoder
# notices, timestamps out of order, a stream that turns up late, times that contradict the frames, keyframes that
# were swapped, a frame of VP9 lost without a word, and an AVI that hides the beginning of its frames.
ONCE_WRONG = [
    45, 65, 247, 1153, 3602, 4166, 5350, 6863, 22552,
    25926, 50241, 66530, 75771, 303677, 305111, 307170, 310556,
]  # fmt: skip


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Whole]:
    return make_sources(tmp_path_factory.mktemp("sources"))


@pytest.mark.first_case_short
@pytest.mark.parametrize("first", range(0, (7 if SWEEP else 3) * CASES_TOGETHER, CASES_TOGETHER))
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


@pytest.mark.long
def test_a_damaged_time_at_the_end_takes_no_memory() -> None:
    """Case 41138, whose last packet claims to be 37 hours later: ffmpeg put three million frames into a queue."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

    program = Path(__file__).parents[1] / "shared" / "fuzzing.py"
    argv = [sys.executable, str(program), "--first", "41138", "--cases", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300, preexec_fn=bounded)
    assert "{'salvage: dataset': 1}; 0 failed" in done.stdout
