"""No file of tests finds what another one left in their process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from as_found import as_found
from shortgop.cli.app import end_tidily_on_signals


def test_handlers_that_a_command_sets_for_good_are_gone() -> None:
    def handlers() -> list[object]:
        return [sys.unraisablehook, *(signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM))]

    before = handlers()
    with as_found():
        end_tidily_on_signals()
        assert not set(before) & set(handlers())
    assert handlers() == before


def test_variables_that_a_library_sets_for_good_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Lightning does when it is imported."""
    monkeypatch.setenv("SHORTGOP_TEST_THERE", "before")
    with as_found():
        os.environ["SHORTGOP_TEST_THERE"] = "after"
        os.environ["SHORTGOP_TEST_NEW"] = "1"
    assert os.environ["SHORTGOP_TEST_THERE"] == "before"
    assert "SHORTGOP_TEST_NEW" not in os.environ


@pytest.mark.usefixtures("own_folder")
def test_tests_that_leave_another_current_folder_fail(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(AssertionError, match="leave another current folder"), as_found():
        os.chdir("other")


def test_tests_that_leave_ray_in_another_mode_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(AssertionError, match="leave Ray in another mode"), as_found():
        os.environ["RAY_AUTH_MODE"] = "token"
