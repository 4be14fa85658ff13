"""Arguments of `prep`, and what becomes of them; for tests that run in a folder of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shortgop.errors import UsageError
from shortgop.jobs.sources import find_sources

NOT_UTF8 = os.fsdecode(b"caf\xe9.mp4")


def make(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def ids(*arguments: str) -> list[str]:
    return [source.id for source in find_sources(arguments)]


def complaint(*arguments: str) -> str:
    with pytest.raises(UsageError) as caught:
        find_sources(arguments)
    text = str(caught.value)
    text.encode()  # can be printed, whatever the names of files
    return text
