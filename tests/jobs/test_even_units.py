"""Units are of even expected cost: they end by seconds of work as well as by bytes, whatever is done already."""

from collections.abc import Collection
from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work.units import Item, Unit, divided, long_apart, plan_units, with_costs
from shortgop.prep.timing.stretch import Stretch

MB = 1_000_000
NAMES = [f"{number:03}" for number in range(60)]
# Of a video of 120 s, and longer ones, each is a unit of its own.
SECONDS = 60.0


def item(name: str, size_bytes: int = MB) -> Item:
    return Item(Source(name, f"/corpus/{name}", name, "{}"), 1, size_bytes)


def planned(items: list[Item], seconds: dict[str, float], done: Collection[str] = ()) -> list[Unit]:
    """As a job plans them. Nothing is known of how long those that are done take."""
    known = {name: each for name, each in seconds.items() if name not in done}
    units = plan_units(items, profile_key="p", done=dict.fromkeys(done, 1), shard_bytes=256 * MB)
    units = long_apart(units, "p", known, long_seconds=2 * SECONDS)
    return with_costs(divided(units, "p", known, unit_seconds=SECONDS), known, {each.source.id: 1 for each in items})


def stretch(file: str, number: int, size_bytes: int = 10 * MB) -> Item:
    part = Stretch(Fraction(number), Fraction(number + 1))
    return Item(Source(f"{file}@{number:03}", f"/corpus/{file}", file, "{}", part=part), 1, size_bytes)


def ids(unit: Unit) -> list[str]:
    return [each.source.id for each in unit.items]


def test_a_unit_ends_with_the_video_that_makes_it_last_a_minute() -> None:
    # 3 MB each: without their lengths, all of them would be one unit of a large corpus.
    corpus = [item(f"{number:05}", 3 * MB) for number in range(10_000)]
    lengths = {each.source.id: 25.0 for each in corpus[:10]} | {each.source.id: 0.5 for each in corpus[10:]}
    units = planned(corpus, lengths)
    assert [ids(unit) for unit in units[:2]] == [["00000", "00001", "00002"], ["00003", "00004", "00005"]]
    assert [len(unit.items) for unit in units[2:5]] == [3, 71, 5]
    assert max(unit.expected_seconds for unit in units) == 75


def test_where_only_sizes_are_known_they_stand_for_seconds() -> None:
    # 256 MB of source are guessed to take 51 s.
    units = planned([item(name, 64 * MB) for name in NAMES], {})
    assert {len(unit.items) for unit in units} == {1}
    assert len(planned([item(f"{number:05}", 4 * MB) for number in range(6400)], {})) == 100


def test_the_stretches_of_a_file_are_divided_where_they_last_twice_as_long() -> None:
    # 50 stretches of 5 s of work: 24 of them are two minutes.
    film = [stretch("film", number) for number in range(50)]
    after = [item("z1"), item("z2")]
    lengths = {each.source.id: 5.0 for each in film} | {"z1": 1.0, "z2": 1.0}
    units = list(divided([Unit("u", (*film, *after))], "p", lengths, unit_seconds=SECONDS))
    assert [unit.items for unit in units] == [(*film[:24],), (*film[24:48],), (*film[48:], *after)]


def test_the_stretches_of_a_file_stay_together_where_their_lengths_are_not_known() -> None:
    unit = Unit("u", (*(stretch("film", number, 600 * MB) for number in range(50)), item("z1"), item("z2")))
    apart = list(divided([unit], "p", {"z1": 1.0, "z2": 1.0}, unit_seconds=SECONDS))
    assert [len(each.items) for each in apart] == [50, 2]


@given(
    st.dictionaries(st.sampled_from(NAMES), st.floats(0, 200)),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 300 * MB)),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0.0, 0.001, 30.0, 150.0])), max_size=4),
    st.data(),
)
def test_an_interrupted_job_divides_what_is_left_as_before(
    seconds: dict[str, float], sizes: dict[str, int], films: list[tuple[int, float]], data: st.DataObject
) -> None:
    items = [item(name, sizes.get(name, 1000)) for name in NAMES]
    # Files, of whose stretches it is known, or not, how long they take.
    for number, (count, lasts) in enumerate(films):
        stretches = [stretch(f"{7 * number:03} film", each, 5 * MB) for each in range(count)]
        items += stretches
        seconds |= {each.source.id: lasts for each in stretches}
    undisturbed = planned(items, seconds)
    finished = data.draw(st.lists(st.sampled_from(undisturbed), unique_by=lambda unit: unit.id))
    left = planned(items, seconds, {name for unit in finished for name in ids(unit)})
    assert left == [unit for unit in undisturbed if unit not in finished]


@given(
    st.dictionaries(st.sampled_from(NAMES), st.floats(0, 200)),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 300 * MB)),
    st.sets(st.sampled_from(NAMES)),
)
def test_no_unit_of_several_videos_lasts_three_times_as_long_as_it_should(
    seconds: dict[str, float], sizes: dict[str, int], done: set[str]
) -> None:
    items = [item(name, sizes.get(name, 1000)) for name in NAMES]
    units = planned(items, seconds, done)
    assert sorted(name for unit in units for name in ids(unit)) == [name for name in NAMES if name not in done]
    assert all(unit.expected_seconds < 3 * SECONDS for unit in units if len(unit.items) > 1)
    # Nor is one divided for nothing: two neighbours of one unit by bytes last a minute at least.
    by_bytes = {
        name: unit.id
        for unit in long_apart(
            plan_units(items, profile_key="p", done=dict.fromkeys(done, 1), shard_bytes=256 * MB),
            "p", {name: each for name, each in seconds.items() if name not in done}, long_seconds=2 * SECONDS,
        )
        for name in ids(unit)
    }  # fmt: skip
    for unit, after in pairwise(units):
        if by_bytes[ids(unit)[0]] == by_bytes[ids(after)[0]]:
            assert unit.expected_seconds >= SECONDS
