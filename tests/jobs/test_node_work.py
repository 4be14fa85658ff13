"""What each machine of a job did: its frames, the units that it finished, what failed there, and bytes."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from shortgop.cli.status_command import status_lines
from shortgop.jobs.finding.source import Source
from shortgop.jobs.progress.job_status import JobStatus
from shortgop.jobs.progress.node_work import NodeWork, shares
from shortgop.jobs.progress.status_board import StatusBoard
from shortgop.jobs.units_of_work.unit_results import Failure, UnitProgress, UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit


def unit(name: str) -> Unit:
    return Unit(name, (Item(Source(f"{name}.mp4", f"/v/{name}.mp4", f"{name}.mp4", "{}"), 1, 5_000_000),))


def failure(name: str) -> Failure:
    return Failure(f"{name}.mp4", f"{name}.mp4", "it cannot be decoded", f"/v/{name}.mp4")


def test_each_node_has_the_units_failures_and_bytes_of_what_it_did() -> None:
    """A unit counts for the node that finished it. Its bytes are divided by the frames that nodes encoded of it."""
    board = StatusBoard([unit(name) for name in ("short", "broken", "long", "unheard", "lost", "before")])
    board.on_progress(UnitProgress("short", 90, 100, node="a"))
    board.on_result(UnitResult("short", 1, 100, 1000, (), node="a"))
    board.on_progress(UnitProgress("broken", 0, 0, node="a"))
    board.on_result(UnitResult("broken", 0, 0, 0, (failure("broken"),), node="a"))
    # The last reports of sections may be missing.
    board.on_progress(UnitProgress("long", 150, 0, section=0, node="a"))
    board.on_progress(UnitProgress("long", 50, 0, section=1, node="b"))
    board.on_result(UnitResult("long", 1, 400, 2001, (), node="b"))
    # Reports may come later than the result.
    board.on_result(UnitResult("unheard", 1, 30, 300, (), node="c"))
    # Its workers died, and the job gives it up.
    board.on_progress(UnitProgress("lost", 0, 0, node="d"))
    board.on_result(UnitResult("lost", 0, 0, 0, (failure("lost"),)))
    # An earlier job had finished it.
    board.on_result(UnitResult("before", 1, 100, 1000, ()))
    found = board.status()
    assert found.nodes == {"a": 400, "b": 100, "c": 30, "d": 0}
    assert found.node_work == {
        "a": NodeWork(units=2, sources_failed=1, bytes_in=13_750_000, bytes_out=2500),
        "b": NodeWork(units=1, sources_failed=0, bytes_in=1_250_000, bytes_out=501),
        "c": NodeWork(units=1, sources_failed=0, bytes_in=5_000_000, bytes_out=300),
        "d": NodeWork(units=1, sources_failed=1, bytes_in=5_000_000, bytes_out=0),
    }
    lines = status_lines(found, now=found.written)
    assert "node a: 400 frames; 2 units done, 1 source failed; 13.8 MB of sources became 2.50 kB" in lines
    assert "node c: 30 frames; 1 unit done; 5.00 MB of sources became 300 B" in lines


def test_a_unit_that_failed_is_none_of_the_slowest_or_largest() -> None:
    board = StatusBoard([unit(name) for name in ("sound", "broken")])
    board.on_result(UnitResult("sound", 1, 100, 1000, ()))
    board.on_result(UnitResult("broken", 0, 0, 0, (failure("broken"),)))
    found = board.status()
    assert [task.source for task in found.slowest] == [task.source for task in found.largest] == ["sound.mp4"]


def test_of_many_nodes_those_that_did_least_are_shown() -> None:
    nodes = {f"node{number:03}": 1000 + number for number in range(300)}
    rates = dict.fromkeys(nodes, 100.0) | {"node123": 0.0}
    found = JobStatus("host", 7, started=0, written=600, nodes=nodes, node_rates=rates, units_running=600)
    lines = [line for line in status_lines(found, now=605) if "node" in line]
    assert lines[0] == "node node123: 1123 frames, 0 frames/s in the last minute"
    assert lines[-1] == "and 290 nodes that did more: --json lists all"
    assert len(lines) == 11
    assert "600 units running" in status_lines(found, now=605)
    ended = dataclasses.replace(found, state="finished")
    assert "node node000: 1000 frames" in status_lines(ended, now=605)


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**9), min_size=1).filter(any))
def test_shares_are_in_proportion_and_add_up(total: int, parts: list[int]) -> None:
    found = list(shares(total, dict(zip(map(str, range(len(parts))), parts, strict=True))).values())
    assert sum(found) == total
    for share, part in zip(found, parts, strict=True):
        assert abs(share - total * part / sum(parts)) <= 1 + total * 1e-12
