"""How the driver learns of progress: what a worker puts on a board, the driver takes from it."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import ray

from shortgop.jobs.cluster.progress_boards import Board, progress_board
from shortgop.jobs.cluster.ray_connection import connected
from shortgop.jobs.cluster.ray_runner import ended
from shortgop.jobs.cluster.ray_worker import step_on_machine
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.units_of_work.steps import Whole
from shortgop.jobs.units_of_work.unit_results import OnProgress, UnitProgress, UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.working.work import ANY_TERMS
from shortgop.manifests.dataset_files.root_file import create
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from started_processes import descendants

pytestmark = pytest.mark.long

_PATIENCE_SECONDS = 120
_PUTS = 50


def put_many(put: OnProgress, number: int) -> None:
    """What a worker does. `number` is that of its unit."""
    for frames in range(_PUTS):
        put(UnitProgress(f"unit {number}", frames, _PUTS, number or None, f"node {number}"))


def in_processes(put: OnProgress, numbers: Sequence[int]) -> None:
    processes = [multiprocessing.get_context("spawn").Process(target=put_many, args=(put, n)) for n in numbers]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0


def in_tasks(put: OnProgress, numbers: Sequence[int]) -> None:
    # A worker has no tests to import.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    ray.get([ray.remote(put_many).remote(put, number) for number in numbers])


def taken(board: Board, enough: Callable[[dict[str, UnitProgress]], bool]) -> dict[str, UnitProgress]:
    """The latest progress of each unit, when it is enough."""
    found: dict[str, UnitProgress] = {}
    end = time.monotonic() + _PATIENCE_SECONDS
    while not enough(found):
        assert time.monotonic() < end, found
        found |= {each.unit: each for each in board.take()}
        time.sleep(0.05)
    return found


def as_a_step(board: Board) -> OnProgress:
    """What a step gets to put its progress with."""
    return copy.copy(board.put)


class Boards:
    """What any board does. `work` runs `put_many` in workers, for units of these numbers. Then the board tells of at
    least `fewest` frames of each: workers that put very often do not wait for it."""

    work: staticmethod[[OnProgress, Sequence[int]], None]
    fewest: int

    def test_the_latest_progress_is_taken_once(self, board: Board) -> None:
        for frames in (1, 2, 3):
            as_a_step(board)(UnitProgress("a", frames, 9))
        as_a_step(board)(UnitProgress("b", 7, 9, 0))
        as_a_step(board)(UnitProgress("b", 8, 9, 1, "a machine"))
        found: list[UnitProgress] = []
        end = time.monotonic() + _PATIENCE_SECONDS
        while len(found) < 3 and time.monotonic() < end:
            found += board.take()
        assert found == [UnitProgress("a", 3, 9), UnitProgress("b", 7, 9, 0), UnitProgress("b", 8, 9, 1)]
        assert [each.node for each in found] == ["", "", "a machine"]
        assert board.take() == []

    def test_several_workers_put_at_once(self, board: Board) -> None:
        self.work(board.put, range(3))
        found = taken(board, lambda found: len(found) == 3)
        for n in range(3):
            frames = found[f"unit {n}"].frames
            assert self.fewest <= frames < _PUTS
            assert found[f"unit {n}"] == UnitProgress(f"unit {n}", frames, _PUTS, n or None)
        assert found["unit 2"].node == "node 2"


class TestPipes(Boards):
    work = staticmethod(in_processes)
    fewest = _PUTS - 1

    @pytest.fixture
    def board(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with progress_board(shared=False) as board:
            yield board
        assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
        # A worker may outlive the driver.
        board.put(UnitProgress("late", 1, 1))

    def test_a_worker_never_waits_for_the_driver(self, board: Board) -> None:
        for number in range(10_000):
            board.put(UnitProgress(f"unit {number}", 1, 1, node="n" * 64))
        found = board.take()
        assert 0 < len(found) < 10_000
        assert set(found) <= {UnitProgress(f"unit {number}", 1, 1) for number in range(10_000)}
        board.put(UnitProgress("later", 1, 1))
        assert board.take() == [UnitProgress("later", 1, 1)]

    def test_the_name_of_a_machine_may_be_long(self, board: Board) -> None:
        board.put(UnitProgress("a", 1, 1, node="n" * 10_000))
        board.put(UnitProgress("b", 1, 1))
        assert board.take() == [UnitProgress("b", 1, 1)]


def process_of_the_actor() -> int:
    """That of the only board; those of earlier tests may take a while to end."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while len(actors := [pid for pid, command in descendants(os.getpid()) if "ray::ProgressOfUnits" in command]) != 1:
        assert time.monotonic() < end, actors
        time.sleep(0.1)
    return actors[0]


@pytest.fixture(scope="module")
def own_ray(bare_local_ray: None) -> Iterator[None]:
    with connected(None, 1, 0):
        yield


class TestActors(Boards):
    work = staticmethod(in_tasks)
    fewest = 0

    @pytest.fixture
    def board(self, own_ray: None) -> Iterator[Board]:  # Ray has to run
        with progress_board(shared=True) as board:
            yield board

    def test_an_actor_takes_the_place_of_a_pipe_that_cannot_be_made(
        self,
        own_ray: None,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,  # Ray has to run
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
        with progress_board(shared=False) as board:
            board.put(UnitProgress("a", 1, 1))
            taken(board, lambda found: "a" in found)

    def test_nobody_waits_for_a_busy_actor_and_the_driver_loses_no_answer(self, board: Board) -> None:
        as_a_step(board)(UnitProgress("a", 1, 1))
        taken(board, lambda found: "a" in found)
        actor = process_of_the_actor()
        os.kill(actor, signal.SIGSTOP)
        try:
            begun, put = time.monotonic(), as_a_step(board)
            for number in range(1000):
                put(UnitProgress(str(number), number, 1000))
            assert [board.take() for _ in range(3)] == [[], [], []]
            assert time.monotonic() - begun < 30
        finally:
            os.kill(actor, signal.SIGCONT)
        # Those that had to wait are left out, but not for ever.
        assert set(taken(board, bool)) == {"0"}

        def later(found: dict[str, UnitProgress]) -> bool:
            put(UnitProgress("later", 1, 1))
            return "later" in found

        assert set(taken(board, later)) == {"later"}

    def test_an_actor_that_was_killed_comes_again(self, board: Board) -> None:
        board.put(UnitProgress("a", 1, 1))
        taken(board, lambda found: "a" in found)
        os.kill(process_of_the_actor(), signal.SIGKILL)

        def later(found: dict[str, UnitProgress]) -> bool:
            board.put(UnitProgress("b", 1, 1))
            return "b" in found

        taken(board, later)


def test_a_result_names_the_node_that_did_the_unit(own_ray: None, tmp_path: Path) -> None:  # Ray has to run
    """Its reports may be lost, or come later than the result."""
    dataset, file = DiskStorage(tmp_path / "dataset"), tmp_path / "broken.mp4"
    create(dataset, Profile().to_json())
    file.write_text("not a video")
    (source,) = find_sources([str(file)])
    unit = Unit("0123456789abcdef", (Item(source, *identity_of(source.path)),))
    result, _ = step_on_machine(dataset, Whole(unit), Options(Profile()), lambda _: None, None, ANY_TERMS)
    assert isinstance(result, UnitResult)
    assert len(result.failures) == 1
    assert result.node == f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:6]}"


def test_all_tasks_that_have_ended_are_taken_at_once(own_ray: None) -> None:  # Ray has to run
    done = [ray.put(number) for number in range(20)]
    waiting = ray.remote(lambda: time.sleep(_PATIENCE_SECONDS)).remote()
    assert set(ended([waiting, *done])) == set(done)
    assert ended([waiting]) == []
    ray.cancel(waiting, force=True)
