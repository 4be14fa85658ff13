"""What the Makefile gives to all that it runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def in_make(command: str, **variables: str) -> str:
    """What a command says that the Makefile runs for a user with these variables."""
    kept = {name: value for name, value in os.environ.items() if name.lower() not in ("no_proxy", "makeflags")}
    argv = ["make", "--no-print-directory", "--eval", f"said: ; @{command}", "said"]
    done = subprocess.run(argv, cwd=ROOT, env={**kept, **variables}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("own", "passed"),
    [({}, "127.0.0.1,localhost"), ({"no_proxy": "intranet"}, "intranet"), ({"NO_PROXY": "intranet"}, "intranet")],
    ids=["nothing", "lower", "upper"],
)
def test_servers_of_tests_are_not_asked_through_a_proxy(own: dict[str, str], passed: str) -> None:
    """Where a user has a proxy, all tests with servers on loopback failed. Names that the user has given stay."""
    assert in_make('echo "$${no_proxy:-$$NO_PROXY}"', http_proxy="http://proxy:3128", **own) == passed
