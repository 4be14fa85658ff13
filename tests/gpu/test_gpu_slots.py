"""How many units a job runs at a time, and how many of these with a share of a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import ToolError, UsageError
from shortgop.jobs.prepare import Where
from shortgop.jobs.units_of_work.gpu_slots import (
    Place,
    Slots,
    free_places,
    note_of,
    slots_for,
    slots_of,
    waits_in_vain,
    with_machines,
)


@pytest.mark.parametrize(
    ("resources", "workers", "streams", "at_a_time", "on_gpus"),
    [
        ({"CPU": 64, "GPU": 1}, None, 4, 64, 4),
        ({"CPU": 64, "GPU": 1}, None, 1, 64, 1),
        ({"CPU": 64, "GPU": 1}, None, 0, 64, 0),
        ({"CPU": 8, "GPU": 4}, None, 4, 8, 8),
        ({"CPU": 16, "GPU": 1}, 2, 4, 2, 2),
        ({"CPU": 2}, None, 4, 2, 0),
        ({}, None, 4, 1, 0),
    ],
)
def test_sessions_are_counted_by_gpus_and_not_by_cores(
    resources: dict[str, float], workers: int | None, streams: int, at_a_time: int, on_gpus: int
) -> None:
    slots = slots_of(resources, workers, streams)
    assert (slots.at_a_time, slots.on_gpus) == (at_a_time, on_gpus)
    if on_gpus:
        assert slots.gpu_share * streams == pytest.approx(1)


@given(st.integers(1, 128), st.integers(0, 8), st.none() | st.integers(1, 200), st.integers(0, 8), st.data())
def test_units_that_run_or_wait_are_few_and_every_place_is_used(
    cpus: int, gpus: int, workers: int | None, streams: int, data: st.DataObject
) -> None:
    """Units end in any order; each that ends is followed by the next one. All of them may use a GPU."""
    slots = slots_of({"CPU": cpus, "GPU": gpus}, workers, streams)
    in_flight: list[Place] = []
    for _ in range(3):
        while free := free_places(slots, Counter(in_flight)):
            in_flight.append(free[0])
        counts = Counter(in_flight)
        # Two for each place on a GPU: one runs, and one waits for it. Where there are such, none waits for a core: it
        # would get that of a unit for the GPU. Where all places have a GPU, one more leaves GPUs alone.
        assert counts["gpu"] == 2 * slots.on_gpus <= 2 * gpus * streams
        assert counts["cpu"] == (slots.on_cpus * (1 if slots.on_gpus else 2) or 1)
        del in_flight[data.draw(st.integers(0, len(in_flight) - 1))]


def test_what_leaves_gpus_alone_runs_on_all_cores_and_keeps_no_gpu_from_what_uses_it() -> None:
    slots = Slots(8, 2, 0.5)
    assert free_places(slots, {"cpu": 15}) == ["gpu", "cpu"]
    assert free_places(slots, {"cpu": 16}) == ["gpu"]
    assert free_places(slots, {"cpu": 6, "gpu": 4}) == []
    assert free_places(slots, {"cpu": 6, "gpu": 1}) == ["gpu", "cpu"]
    assert free_places(slots, {"cpu": 7, "gpu": 1}) == ["gpu"]


def test_a_profile_for_nvenc_has_places_on_gpus_only_and_one_for_x264_has_none_there() -> None:
    slots = Slots(64, 4, 0.25)
    assert slots_for("h264_nvenc", slots) == Slots(4, 4, 0.25)
    assert slots_for("libx264", slots) == Slots(64)
    assert slots_for("auto", slots) == slots
    with pytest.raises(ToolError, match="--encoder h264_nvenc needs a GPU, and Ray has none"):
        slots_for("h264_nvenc", Slots(64))


def on(slots: Slots, *machines: Mapping[str, float]) -> Slots:
    """The slots with machines a, b and so on, which have these resources."""
    return with_machines(slots, dict(zip("abc", machines, strict=False)))


_HEAD, _SMALL = {"CPU": 0.0, "memory": 9e9}, {"CPU": 8.0, "memory": 2e9}
_WITH_GPU = {"CPU": 4.0, "GPU": 1.0, "memory": 1e9}


def test_the_largest_machines_are_among_those_that_run_units() -> None:
    both = on(Slots(12, 4, 0.25), _HEAD, _SMALL, _WITH_GPU)
    assert (both.memory_for("cpu"), both.memory_for("gpu")) == (2_000_000_000, 1_000_000_000)
    assert on(Slots(8), _HEAD, _SMALL).memory_for("gpu") is None
    assert on(Slots(1), _HEAD).memory_for("cpu") is None
    no_cpus = on(Slots(8, 4, 0.25), _SMALL, {"GPU": 1.0, "memory": 1e9})
    assert no_cpus.on_gpus == 0, "every unit takes a CPU"


def test_a_unit_uses_a_gpu_only_where_a_core_is_free_beside_it() -> None:
    """Otherwise the cores of machines without a GPU would be kept for units that need one."""
    few_cores = on(slots_of({"CPU": 9, "GPU": 2}, None, 4), _SMALL, {"CPU": 1.0, "GPU": 2.0})
    assert (few_cores.at_a_time, few_cores.on_gpus, few_cores.on_cpus) == (9, 1, 8)
    many_cores = on(slots_of({"CPU": 12, "GPU": 1}, None, 3), _SMALL, _WITH_GPU)
    assert (many_cores.on_gpus, many_cores.on_cpus) == (3, 9)


def test_what_is_too_large_for_all_machines_waits_in_vain() -> None:
    both = on(Slots(12, 4, 0.25), _SMALL, _WITH_GPU)
    assert not waits_in_vain(both, "cpu", 2_000_000_000)
    assert waits_in_vain(both, "cpu", 2_000_000_001)
    assert waits_in_vain(both, "gpu", 1_500_000_000)
    assert waits_in_vain(on(Slots(8), _SMALL), "gpu", 1), "the machine with the GPU is gone"
    assert not waits_in_vain(on(Slots(1), _HEAD), "cpu", 10**12), "a machine that comes may be large"


def test_what_avoids_the_only_machine_that_is_large_enough_waits_in_vain() -> None:
    both = on(Slots(12, 4, 0.25), _SMALL, _WITH_GPU)
    assert both.memory_for("cpu", {"a"}) == 1_000_000_000
    assert both.memory_for("gpu", {"b"}) is None
    assert not waits_in_vain(both, "cpu", 1_000_000_000, {"a"})
    assert waits_in_vain(both, "cpu", 1_000_000_001, {"a"})
    assert waits_in_vain(both, "cpu", 1, {"a", "b"})


def test_what_a_job_says_of_its_slots() -> None:
    slots = on(Slots(12, 4, 0.25), _SMALL, _WITH_GPU)
    assert note_of(slots) == "encoding, 12 at a time, 4 of them with a GPU"
    assert note_of(on(Slots(8), _SMALL), alone=2) == (
        "encoding, 8 at a time; 2 units may need more memory than any machine has and will run alone on one"
    )
    assert note_of(on(Slots(1), _HEAD)) == "waiting for machines: Ray has none with a CPU for this job"


@pytest.mark.parametrize("streams", [-1, 1.5, True, "4"])
def test_a_number_of_streams_that_makes_no_sense_is_refused(streams: object) -> None:
    with pytest.raises(UsageError, match="--streams-per-gpu is"):
        Where(streams_per_gpu=streams)  # type: ignore[arg-type]
