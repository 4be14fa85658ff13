"""What a job looks at before it encodes anything, and how often it reads what it knows of its sources."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_manifests import video
from shortgop.jobs.finding.source import Found, Source
from shortgop.jobs.planning.planning import Known
from shortgop.jobs.planning.survey import ToLookAt, look_at_others, look_first
from shortgop.jobs.sources.changed import Changed
from shortgop.jobs.sources.source_columns import Named
from shortgop.jobs.sources.source_table import Row, SourceTable, SourceWindow
from shortgop.jobs.sources.where_to_look import Looking
from shortgop.manifests.merging.merge import merge
from shortgop.prep.options import DEFAULT_POLICY, Options
from shortgop.prep.profile import Profile

OPTIONS = Options(Profile(), DEFAULT_POLICY)
# Of the dataset, by their ids; the file of each was at the path of its id below /videos.
THERE = ["b", "d", "f", "é"]


class CountedTable(SourceTable):
    """Counts how often the sources of each window are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[tuple[str, int | bytes]] = Counter()

    def rows(self, window: SourceWindow) -> list[Row]:
        self.read["rows", window.first] += 1
        return super().rows(window)

    def names(self, window: SourceWindow) -> list[Named]:
        self.read["names", window.first] += 1
        return super().names(window)


@pytest.fixture(scope="module")
def known() -> Known:
    return Known(merge([video(each, offset=10_000 * number) for number, each in enumerate(THERE)]), {})


def looked_at(table: SourceTable, windows: list[SourceWindow]) -> set[str]:
    return {row.source.id for window in windows for row in table.rows(window) if row.looked is not None}


@settings(max_examples=30, deadline=None)
@given(
    ids=st.sets(st.sampled_from([*THERE, *"acegh", "z", "ü"]), min_size=1),
    moved=st.sets(st.sampled_from(THERE)),
    size=st.integers(1, 4),
    changed=st.sampled_from(["keep", "fail"]),
)
def test_each_window_is_read_once_and_what_may_end_the_job_is_looked_at_first(
    ids: set[str], moved: set[str], size: int, changed: Changed, known: Known
) -> None:
    """There is no file at any path, so a source that is looked at counts as unchanged."""
    asked: list[int] = []
    looking = Looking(many_sources=1000)

    def looking_at(number: int) -> Looking:
        asked.append(number)
        return looking

    with CountedTable() as table:
        table.add(
            Found(Source(each, f"/moved/{each}" if each in moved else f"/videos/{each}", each, "{}"), "", listed=False)
            for each in ids
        )
        windows = table.windows(size)
        given = ToLookAt(table, windows, known, OPTIONS, changed, looking_at, lambda _note: None)
        look_first(given)
        at_first = Counter(table.read)
        wanted = {each for each in ids & {*THERE} if changed == "fail" or each in moved}
        wanted = ids if len(windows) == 1 else wanted
        assert (looked_at(table, windows), asked) == (wanted, [len(wanted)])
        assert set(at_first.values()) <= {1}
        read = {window.first for window in windows if {row.source.id for row in table.rows(window)} & wanted}
        assert {first for kind, first in at_first if kind == "rows"} == read
        table.read.clear()
        look_at_others(given)
        assert table.read == Counter({("rows", window.first): 1 for window in windows})
        assert looked_at(table, windows) == ids


def test_fingerprints_of_some_ids_and_of_all(known: Known) -> None:
    videos = known.manifest.videos
    expected = dict(zip(THERE, videos.identity.tolist(), strict=True))
    assert known.identities.of(["z", "é", "b"]) == {each: expected[each] for each in ("é", "b")}
    assert dict(known.identities) == expected
    assert ("b" in known.identities, "z" in known.identities, len(known.identities)) == (True, False, len(THERE))
