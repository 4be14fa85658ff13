"""Sources that need no file, and tables of them."""

from __future__ import annotations

from collections.abc import Sequence

from shortgop.jobs.finding.source import Found, Source
from shortgop.jobs.sources.source_table import SourceTable
from shortgop.prep.timing.stretch import Stretch


def source(video_id: str, path: str = "", part: Stretch | None = None) -> Source:
    return Source(video_id, path or f"/corpus/{video_id}", video_id, "{}", part=part)


def table_of(sources: Sequence[Source]) -> SourceTable:
    table = SourceTable()
    table.add(Found(each, "in a list", listed=True) for each in sources)
    return table
