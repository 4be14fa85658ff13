"""What takes far longer than usual is attempted a second time, and the attempt that ends first counts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from loader_helpers import comes_true
from long_sources import FRAMES_OF_BOTH, assert_undisturbed, make_sources, run_in_sections
from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work.gpu_slots import Machine, Slots, slots_for
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.steps import Cut, Join, OneSection
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.units_of_work.where import Where
from shortgop.jobs.working import second_attempts
from shortgop.jobs.working.second_attempts import Attempt, Attempts, key_of
from started_processes import descendants

pytestmark = pytest.mark.long

_PATIENCE_SECONDS = 120
_SLOTS = Slots(4)
_NO_SECTION = cast(Any, None)


def unit(name: str, seconds: float = 20) -> Unit:
    return Unit(name, (Item(Source(name, name, name, "{}"), 1, 1),), expected_seconds=seconds)


def begun(attempts: Attempts, now: float) -> dict[str, Attempt]:
    """The attempts that start now, by their units. A worker begins each at once."""
    found = {each.step.unit.id: each for each in attempts.start(_SLOTS, now)}
    for each in found.values():
        attempts.progressed(key_of(each.step), 0, now)
    return found


@pytest.fixture
def one_is_left() -> tuple[Attempts, Attempt]:
    """Four steps of 20 seconds began at 0; three took 30 seconds."""
    attempts = Attempts(Order([unit(name) for name in "abcd"]))
    first = begun(attempts, 0)
    for name in "abc":
        assert attempts.ended(first[name], 30)
    return attempts, first["d"]


def test_a_step_that_takes_much_longer_is_attempted_once_more_where_nothing_else_is_left(
    one_is_left: tuple[Attempts, Attempt],
) -> None:
    attempts, first = one_is_left
    assert begun(attempts, 44) == {}
    assert begun(attempts, 46).keys() == {"d"}
    assert begun(attempts, 500) == {}, "two attempts are enough"
    assert attempts
    assert attempts.ended(first, 600)
    assert not attempts


def test_the_attempt_that_ends_first_counts(one_is_left: tuple[Attempts, Attempt]) -> None:
    attempts, first = one_is_left
    second = begun(attempts, 46)["d"]
    assert attempts.ended(second, 30)
    assert not attempts, "nobody waits for the slow one"
    assert not attempts.ended(first, 600)


@pytest.mark.parametrize("fails", ["first", "second"])
def test_an_attempt_that_fails_does_not_count_while_there_is_another(
    one_is_left: tuple[Attempts, Attempt], fails: str
) -> None:
    attempts, first = one_is_left
    second = begun(attempts, 46)["d"]
    failed, other = (first, second) if fails == "first" else (second, first)
    assert not attempts.ended(failed, None)
    assert attempts.ended(other, 30)


def test_a_step_that_fails_three_times_has_failed(one_is_left: tuple[Attempts, Attempt]) -> None:
    """Otherwise there would always be another attempt at what kills its worker each time."""
    attempts, first = one_is_left
    second = begun(attempts, 46)["d"]
    assert not attempts.ended(second, None)
    third = begun(attempts, 100)["d"]
    assert not attempts.ended(third, None)
    fourth = begun(attempts, 500)["d"]
    assert attempts.ended(fourth, None)
    assert not attempts, "the first one may hang"
    assert not attempts.ended(first, 600)


def test_further_attempts_are_made_on_machines_that_have_not_attempted_the_step(
    one_is_left: tuple[Attempts, Attempt],
) -> None:
    """One may hang as the first one does. Each is given time, and there are three at most."""
    attempts, first = one_is_left
    slots = Slots(4, machines=tuple(Machine(name, 1 << 30) for name in "xyz"))
    key = key_of(first.step)
    attempts.progressed(key, 0, 0, "x")
    begun_at = {}
    for now in range(0, 1000, 2):
        for each in attempts.start(slots, now):
            begun_at[now] = sorted(each.avoided)
            attempts.progressed(key, 0, now, "y")
    assert begun_at == {46: ["x"], 136: ["x", "y"]}


def test_a_third_attempt_needs_a_third_machine(one_is_left: tuple[Attempts, Attempt]) -> None:
    attempts, first = one_is_left
    slots = Slots(4, machines=tuple(Machine(name, 1 << 30) for name in "xy"))
    attempts.progressed(key_of(first.step), 0, 0, "x")
    assert len(list(attempts.start(slots, 46))) == 1
    attempts.progressed(key_of(first.step), 0, 50, "y")
    assert list(attempts.start(slots, 1000)) == []


@pytest.mark.parametrize("expected_seconds", [20, 0])
def test_a_step_of_which_nothing_is_known_is_attempted_once_more_when_it_does_not_get_on(
    expected_seconds: float,
) -> None:
    """The only one of its job, on a machine that hangs: nothing has shown how long such a step takes."""
    attempts = Attempts(Order([unit("a", expected_seconds)]))
    (first,) = attempts.start(_SLOTS, 0)
    key = key_of(first.step)
    for now in range(0, 7200, 10):
        attempts.progressed(key, min(now, 3000), now)
        at_once = list(attempts.start(_SLOTS, now))
        # It gets on for 3000 seconds. Where machines have nothing else to do, half of the patience is enough.
        assert bool(at_once) == (now == 3910), now
        if at_once:
            attempts.progressed(key, 0, now)
        if now == 7190:
            assert attempts.ended(first, 7190)


def test_only_the_attempt_that_is_further_counts_as_progress(one_is_left: tuple[Attempts, Attempt]) -> None:
    attempts, first = one_is_left
    key = key_of(first.step)
    assert attempts.progressed(key, 100, 40)
    begun(attempts, 46)
    counts = [(frames, attempts.progressed(key, frames, 50)) for frames in (30, 110, 60, 120, 115)]
    assert counts == [(30, False), (110, True), (60, False), (120, True), (115, False)]
    assert attempts.ended(first, 60)
    assert not attempts.progressed(key, 90, 61)


def long_unit(name: str, seconds: float = 400) -> Unit:
    return Unit(name, (Item(Source(name, name, name, "{}"), 1, 1),), is_long=True, expected_seconds=seconds)


def test_a_look_that_takes_longer_than_looks_do_is_attempted_once_more() -> None:
    """What looks take is measured, and 20 seconds of a video of 400 until then."""
    attempts = Attempts(Order([long_unit(name) for name in "abcd"]))
    first = begun(attempts, 0)
    assert begun(attempts, 25) == {}
    for name in "abc":
        assert attempts.ended(first[name], 2)
    assert begun(attempts, 28).keys() == {"d"}


def test_before_any_look_has_ended_a_look_at_a_long_video_is_given_time() -> None:
    attempts = Attempts(Order([long_unit("a")]))
    begun(attempts, 0)
    assert begun(attempts, 29) == {}
    assert begun(attempts, 31).keys() == {"a"}


def test_a_look_that_encodes_the_video_at_once_takes_as_long_as_that() -> None:
    attempts = Attempts(Order([long_unit("a")]))
    first = begun(attempts, 0)["a"]
    attempts.progressed(key_of(first.step), 10, 5)
    assert begun(attempts, 900) == {}


def test_a_look_that_goes_on_beside_the_sections_says_nothing_of_their_progress() -> None:
    attempts = Attempts(Order([long_unit("a")]))
    first = begun(attempts, 0)["a"]
    begun(attempts, 31)
    assert attempts.ended(first, 32)
    assert not attempts.progressed(key_of(first.step), 0, 33)


def test_a_join_that_takes_longer_than_joins_do_is_attempted_once_more() -> None:
    """Of a video of 1,000 seconds it takes ten, until more is known."""
    order = Order()
    order.again([Join(long_unit("a", 1000), Cut("key", 10, 0, 0))])
    attempts = Attempts(order)
    begun(attempts, 0)
    assert begun(attempts, 14) == {}
    assert begun(attempts, 16).keys() == {"a"}


def test_a_join_changes_nothing_of_the_frames_of_its_sections() -> None:
    order = Order()
    order.again([Join(long_unit("a"), Cut("key", 10, 0, 0))])
    attempts = Attempts(order)
    (join,) = attempts.start(_SLOTS, 0)
    assert not attempts.progressed(key_of(join.step), 0, 1)


def test_an_attempt_that_no_machine_can_do_is_begun_in_another_place() -> None:
    with_gpu = Slots(4, 4, 0.25)
    attempts = Attempts(Order([unit("a")]))
    (first,) = attempts.start(with_gpu, 0)
    attempts.progressed(key_of(first.step), 30, 0)
    again = attempts.again(first, _SLOTS)
    assert again is not None
    assert (first.place, again.place, again.step) == ("gpu", "cpu", first.step)
    assert not attempts.progressed(key_of(first.step), 20, 1), "the first one may go on after all"
    assert attempts.ended(again, 5)
    assert not attempts


def test_an_attempt_whose_outcome_is_not_wanted_is_not_begun_again(one_is_left: tuple[Attempts, Attempt]) -> None:
    attempts, first = one_is_left
    second = begun(attempts, 46)["d"]
    assert attempts.ended(second, 5)
    assert attempts.again(first, _SLOTS) is None


_WITH_GPU = Slots(4, 1, 1.0)


def places(attempts: Attempts, slots: Slots = _WITH_GPU) -> dict[str, list[str]]:
    """The units that start now in each place, in their order."""
    found: dict[str, list[str]] = {"gpu": [], "cpu": []}
    for each in attempts.start(slots, 0):
        found[each.place].append(each.step.unit.id)
    return found


def with_sections(encoder: str, clips: Sequence[Unit] = ()) -> Attempts:
    """Eight sections of a film, of 50 seconds each, the join of another one, and the clips wait."""
    order = Order(clips)
    film, cut = long_unit("film"), Cut("key", 8, 0, 0)
    order.again([OneSection(film, cut, number, _NO_SECTION) for number in range(8)])
    order.again([Join(long_unit("other"), cut)])
    return Attempts(order, encoder)


def test_a_gpu_gets_clips_and_not_the_longer_sections_which_use_it_for_less() -> None:
    clips = [unit(f"clip of {seconds}", seconds) for seconds in (10, 20, 30, 40, 45)]
    found = places(with_sections("auto", clips), Slots(4, 2, 0.5))
    assert [name[:4] for name in found["gpu"]] == ["clip"] * 4
    assert found["cpu"] == ["other", "film"]


def test_a_gpu_gets_sections_where_no_clip_waits() -> None:
    assert places(with_sections("auto")) == {"gpu": ["film"] * 2, "cpu": ["other", "film", "film"]}


def test_where_nothing_can_use_a_gpu_its_cores_still_have_work() -> None:
    assert places(with_sections("libx264")) == {"gpu": [], "cpu": ["other", *["film"] * 7]}


def test_a_clip_that_comes_later_gets_the_next_place_on_a_gpu() -> None:
    later: list[Sequence[Unit] | None] = [[], [unit("clip")], None]
    order = Order(more=lambda _wait: later.pop(0))
    order.again(OneSection(long_unit("film"), Cut("key", 20, 0, 0), number, _NO_SECTION) for number in range(20))
    attempts = Attempts(order)
    order.fill(wait=False)
    begun = list(attempts.start(_WITH_GPU, 0.0))
    assert [attempt.place for attempt in begun] == ["gpu"] * 2 + ["cpu"] * 3
    order.fill(wait=False)
    assert places(attempts) == {"gpu": [], "cpu": []}
    attempts.ended(begun[0], 50.0)
    assert places(attempts) == {"gpu": ["clip"], "cpu": []}


def test_a_look_uses_a_gpu_only_where_no_clip_does() -> None:
    """It may find that it has to encode the video."""
    looks = [long_unit(name) for name in "ab"]
    assert places(Attempts(Order([*looks, unit("clip")]))) == {"gpu": ["clip", "a"], "cpu": ["b"]}


def test_where_only_gpus_encode_joins_leave_them_alone_and_do_not_wait_for_them() -> None:
    """And nothing else may take a place without a GPU."""
    slots = slots_for("h264_nvenc", _WITH_GPU)
    clips = [unit(name) for name in "abc"]
    assert places(with_sections("h264_nvenc", clips), slots) == {"gpu": ["film", "film"], "cpu": ["other"]}


def test_what_was_found_done_says_nothing_of_what_is_usual() -> None:
    attempts = Attempts(Order([unit(name) for name in "abcd"]))
    first = begun(attempts, 0)
    for name in "abc":
        assert attempts.ended(first[name], 0.05)
    assert begun(attempts, 30) == {}


def test_a_step_that_takes_far_longer_is_attempted_once_more_while_others_wait() -> None:
    attempts = Attempts(Order([unit(f"{number:02}") for number in range(50)]))
    first = begun(attempts, 0)
    for name in list(first)[1:4]:
        assert attempts.ended(first[name], 20)
    slow = next(iter(first))
    assert slow not in begun(attempts, 50)
    assert slow in begun(attempts, 61)


def named(suffix: str, number: int, seconds: float) -> Unit:
    source = Source(f"{number}.{suffix}", f"/v/{number}.{suffix}", f"{number}.{suffix}", "{}")
    return Unit(source.id, (Item(source, 1, 1),), expected_seconds=seconds)


def test_what_is_usual_is_that_of_the_class() -> None:
    """WebM takes four times as long as expected here, and MP4 as long."""
    attempts = Attempts(Order([named(suffix, number, 20) for suffix in ("mp4", "webm") for number in range(4)]))
    first = {each.step.unit.id: each for each in attempts.start(Slots(8), 0)}
    for each in first.values():
        attempts.progressed(key_of(each.step), 0, 0)
    for number in range(3):
        assert attempts.ended(first[f"{number}.mp4"], 20)
        assert attempts.ended(first[f"{number}.webm"], 80)
    again = {each.step.unit.id: now for now in range(0, 200, 5) for each in attempts.start(Slots(8), now)}
    assert again == {"3.mp4": 35, "3.webm": 125}


def test_of_a_class_of_which_nothing_is_known_much_more_time_may_be_usual() -> None:
    attempts = Attempts(Order([*(named("mp4", number, 20) for number in range(3)), named("webm", 3, 20)]))
    first = begun(attempts, 0)
    for number in range(3):
        assert attempts.ended(first[f"{number}.mp4"], 20)
    assert begun(attempts, 85) == {}
    assert begun(attempts, 95).keys() == {"3.webm"}


def test_a_few_of_each_class_begin_early_and_what_they_took_changes_the_order() -> None:
    """Steps of a class that takes longer than expected come before those that only seemed to be longer."""
    mp4 = [named("mp4", number, 40) for number in range(20)]
    webm = [named("webm", number, 20) for number in range(20)]
    attempts = Attempts(Order([*mp4, *webm]))
    first = list(attempts.start(Slots(4), 0))
    kinds = Counter(each.step.unit.id.split(".")[1] for each in first)
    assert kinds == {"mp4": 5, "webm": 3}
    for each in first:
        assert attempts.ended(each, 40 if each.step.unit.id.endswith("mp4") else 80)
    assert all(each.step.unit.id.endswith("webm") for each in attempts.start(Slots(4), 100))


def test_without_an_idea_of_what_is_usual_nothing_that_gets_on_is_attempted_twice() -> None:
    attempts = Attempts(Order([unit("a"), unit("b")]))
    first = begun(attempts, 0)
    assert attempts.ended(first["a"], 1)
    attempts.progressed(key_of(first["b"].step), 1, 9_500)
    assert begun(attempts, 10_000) == {}


# `test_ray.py` has an attempt at a unit that never ends, and one that runs on another machine.
@pytest.mark.usefixtures("bare_local_ray")
def test_a_job_ends_though_one_of_its_joins_never_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first worker that joins the sections of a video waits for ever for the content of one of them."""
    monkeypatch.setattr(second_attempts, "_LEAST_SECONDS", 1.0)
    sources, dataset, undisturbed = (tmp_path / name for name in ("sources", "dataset", "undisturbed"))
    sources.mkdir()
    make_sources(sources)
    run_in_sections(sources, undisturbed)

    aside, pipe = tmp_path / "section", tmp_path / "pipe"
    os.mkfifo(pipe)

    def a_section() -> Path | None:
        return next((dataset / "sections").glob("*-*-*.zip"), None) if (dataset / "sections").is_dir() else None

    def joins() -> bool:
        return any(command.startswith("ray::join ") for _, command in descendants(os.getpid()))

    def disturb() -> bool:
        """Whether a worker was kept from joining."""
        if not comes_true(lambda: a_section() is not None, _PATIENCE_SECONDS):
            return False
        section = a_section()
        assert section is not None
        os.link(section, aside)
        pipe.rename(section)
        # Opening a pipe waits for a writer, so the worker stays where it is. The next one finds the file.
        found = comes_true(joins, _PATIENCE_SECONDS)
        aside.rename(section)
        return found

    with ThreadPoolExecutor(1) as thread:
        disturbed = thread.submit(disturb)
        report = run_in_sections(sources, dataset, Where(workers=2))
        assert disturbed.result()
    assert (report.failures, report.frames_added) == ((), FRAMES_OF_BOTH)
    assert_undisturbed(dataset, undisturbed)
