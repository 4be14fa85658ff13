"""What the cases on the driver in software have in common: a plugin of pytest in the child that runs them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from soft_driver import Driver, folders_of, planes_on_host, watched


@pytest.fixture(scope="session")
def loaded() -> Iterator[Driver]:
    """The driver of this process."""
    torch.set_num_threads(1)
    # Collections look at what the cases make, and not at the million objects of modules.
    gc.collect()
    gc.freeze()
    with planes_on_host():
        yield Driver()


@pytest.fixture
def driver(loaded: Driver) -> Iterator[Driver]:
    """The driver, of which nothing may be open after the case."""
    with watched(loaded) as driver:
        yield driver


@pytest.fixture(params=["h264", "hevc"])
def folder(request: pytest.FixtureRequest) -> Path:
    """A dataset of each codec."""
    codec: str = request.param
    return folders_of() / codec
