"""Arguments of `prep`, and the sources that they stand for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from shortgop.errors import UsageError
from shortgop.jobs.finding.importing import PLAIN, Importing
from shortgop.jobs.finding.source import Source
from shortgop.jobs.finding.sources import found_in
from shortgop.jobs.finding.typed_lines import OnTypes, ignore_types
from shortgop.jobs.sources.source_table import SourceTable

NOT_UTF8 = os.fsdecode(b"caf\xe9.mp4")


def make(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def find_sources(
    arguments: Sequence[str],
    roots: Sequence[str] | None = None,
    *,
    importing: Importing = PLAIN,
    types: Mapping[str, str] | None = None,
    on_types: OnTypes = ignore_types,
) -> list[Source]:
    """The sources of a job with these arguments, sorted by id."""
    with SourceTable() as table:
        table.add(found_in(arguments, roots, importing=importing, types=types, on_types=on_types))
        return list(table.sources())


def ids(*arguments: str) -> list[str]:
    return [source.id for source in find_sources(arguments)]


def complaint(*arguments: str) -> str:
    with pytest.raises(UsageError) as caught:
        find_sources(arguments)
    text = str(caught.value)
    text.encode()  # can be printed, whatever the names of files
    return text
