"""Which check of `make gpu-check` comes next, where one fails or hangs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import run_checks
from check_process import Processes
from check_report import GRACE_SECONDS, Check, Ended, Outcome
from checks import CHECKS

HUNG = Ended(-9, 5.0, killed="it took more than 5 s", time_was_up=True)
FAILED = Ended(0, 1.0, report=b'{"result": "failed", "why": "frame 3 shows 4"}\n')
PASSED = Ended(0, 1.0, report=b'{"result": "passed", "why": ""}\n')
Run = Callable[..., tuple[list[Outcome], Path]]


def check(name: str, ways: str = "", explains: str = "") -> Check:
    return Check(name, "", "", 5, ways=tuple(ways.split()), explains=explains)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs checks that end as they are said to, and pass where nothing is said."""

    def run(checks: list[Check], ends: Mapping[str, Ended], total_seconds: float = 1000) -> tuple[list[Outcome], Path]:
        def ended(_: Processes, check: Check, __: Path, left_seconds: float, ___: object) -> tuple[Ended, float]:
            return ends.get(check.name, PASSED), min(check.seconds, left_seconds - GRACE_SECONDS)

        monkeypatch.setattr(Processes, "run", ended)
        outcomes, path = run_checks.run_all(checks, tmp_path, tmp_path, total_seconds=total_seconds)
        assert path is not None
        return outcomes, path

    return run


def names(outcomes: list[Outcome]) -> list[str]:
    return [outcome.name for outcome in outcomes]


def test_after_a_hang_the_checks_that_go_the_same_way_are_last(run: Run) -> None:
    """They may hang too, and the others would have no time left."""
    checks = [check("a", "one"), check("b", "one"), check("c", "another"), check("d", "one"), check("e")]
    outcomes, path = run(checks, {"a": HUNG})
    assert names(outcomes) == ["a", "c", "e", "b", "d"]
    assert [each["hung"] for each in json.loads(path.read_text())["checks"]] == [True, *[False] * 4]
    assert names(run(checks, {"a": FAILED})[0]) == ["a", "b", "c", "d", "e"]
    assert names(run(checks, {"e": HUNG})[0]) == ["a", "b", "c", "d", "e"], "it goes no way that others go"


def test_a_hang_of_another_library_does_not_put_off_what_goes_through_ours(run: Run) -> None:
    """A benchmark calls both, and it is not known which of them hangs."""
    checks = [check("a", "ours theirs"), check("b", "ours"), check("c", "theirs ours"), check("d", "theirs")]
    assert names(run(checks, {"a": HUNG})[0]) == ["a", "b", "d", "c"]
    assert names(run([*checks[1:], checks[0]], {"b": HUNG})[0]) == ["b", "d", "c", "a"]


def test_a_check_that_was_cut_off_by_the_end_of_all_has_not_hung(run: Run) -> None:
    outcomes, _ = run([check("a", "one"), check("b", "one")], {"a": HUNG}, total_seconds=14)
    assert [(outcome.name, outcome.hung) for outcome in outcomes] == [("a", False), ("b", False)]


def test_what_explains_a_failure_is_next(run: Run) -> None:
    checks = [check("a", "one"), check("b"), check("c", "one", explains="a"), check("d", "one", explains="b")]
    assert names(run(checks, {})[0]) == ["a", "b", "c", "d"]
    assert names(run(checks, {"a": FAILED})[0]) == ["a", "c", "b", "d"]
    assert names(run(checks, {"a": HUNG})[0]) == ["a", "c", "b", "d"]


def test_what_a_check_explains_is_one_before_it() -> None:
    listed = [each.name for each in CHECKS]
    explaining = [each for each in CHECKS if each.explains]
    assert [each.name for each in explaining] == ["pyav-other-contexts"]
    assert all(listed.index(each.explains) < listed.index(each.name) for each in explaining)
