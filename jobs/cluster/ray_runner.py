"""Units of work on Ray."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RaySystemError,
    RayTaskError,
    TaskUnschedulableError,
)

from ...errors import ShortGopError, SourceNotFoundError, ToolError
from ...prep.options import Options
from ...storage.interface import Storage
from ...wording import plain
from ..sources.failing import Losses
from ..units_of_work.gpu_slots import Slots
from ..units_of_work.order import Order
from ..units_of_work.steps import Join, Look, NoRoom, OneSection, Outcome, Step, Whole
from ..units_of_work.task_memory import ALL_BYTES
from ..units_of_work.unit_results import UnitProgress, UnitResult
from ..units_of_work.units import Unit, split_unit
from ..working.second_attempts import Attempt, Attempts, key_of
from ..working.work import Terms, give_up
from .cluster_machines import AskSlots
from .progress_boards import Board
from .ray_connection import LOST, brief
from .ray_entry import Answer, answer, call_of, called_here
from .ray_tasks import RayTasks, Submit
from .ray_worker import HAS_SELECTORS, Done, Unfit, step_on_machine
from .shared_files import can_read, leave_mark, without_check

_POLL_SECONDS = 0.5
# A step whose machine ran out of memory waits so long, and twice as long each time.
_FIRST_WAIT_SECONDS = 5.0


def run_units(  # noqa: PLR0917  # what a job has, and its Ray
    dataset: Storage,
    order: Order,
    options: Options,
    ask_slots: AskSlots,
    board: Board,
    on_progress: Callable[[Sequence[UnitProgress]], object],
    *,
    on_split: Callable[[Unit, Sequence[Unit]], object],
    on_note: Callable[[str], object],
    shared: bool,
) -> Iterator[UnitResult]:
    """Run all steps of `order`, a bounded number at a time, and yield each result as it comes. Machines that join
    meanwhile take part, and what waits for one that was lost is begun anew. `on_note` is told what `RayTasks` says,
    first when Ray has the first steps, `on_progress` what units have reported since it was last called.

    Ray retries nothing. A unit whose worker keeps dying, and not just with its machine, is split into its sources;
    `on_split` gets it and its parts. A single source whose worker keeps dying becomes a failure, so that the other
    sources of its unit are still prepared. Where a machine runs out of memory, a unit is tried again some seconds
    later, on another machine if possible, and at last alone there: Ray kills workers beside the one that takes the
    memory, too. What takes far longer than usual is attempted twice, see `second_attempts`. With `shared`, workers may
    be on other machines: each checks that it sees the dataset and the sources, and OutputError or ToolError names a
    machine that does not.

    Where the job ends early, units that run end with `connected`: Ray kills the workers of a driver that leaves. They
    are not cancelled before, because Ray 2.60 aborts the driver where a task ends while ray.cancel runs.
    """
    mark = leave_mark(dataset) if shared else None
    attempts = Attempts(order, options.profile.encoder)
    submit = submitter(dataset, options, board, mark)
    tasks = RayTasks(attempts, options.profile.encoder, ask_slots, submit, on_note, time.monotonic())
    results = _Results(dataset, order, options, attempts, tasks, Losses(), on_split)
    while order.fill(wait=not attempts and not tasks.waits, cores=tasks.cores) or attempts or tasks.waits:
        tasks.begin(time.monotonic())
        done = ended(tasks.references)
        now = time.monotonic()
        on_progress(
            [
                each
                for each in board.take()
                if attempts.progressed((each.unit, each.section), each.frames, now, each.machine)
            ]
        )
        for reference in done:
            result = results.result_of(reference, now)
            if result is not None:
                yield result


def submitter(dataset: Storage, options: Options, board: Board, mark: str | None) -> Submit:
    """Returns the function that gives an attempt to Ray, and that returns the reference to its task."""
    task: Any = ray.remote(num_cpus=1, max_retries=0)(called_here)

    def submit(attempt: Attempt, slots: Slots, asked_bytes: int, avoided: frozenset[str]) -> Any:
        call = call_of(
            step_on_machine, dataset, attempt.step, replace(options, use_gpu=attempt.place == "gpu"), board.put, mark,
            Terms(limit_of(attempt.step.unit, asked_bytes), needs_room=may_hand_back(attempt, avoided)),
        )  # fmt: skip
        return task.options(**asked_of_ray(attempt, slots, asked_bytes, avoided)).remote(*call)

    return submit


@dataclass(frozen=True, eq=False)
class _Results:
    """What becomes of each attempt that has ended on Ray."""

    dataset: Storage
    order: Order
    options: Options
    attempts: Attempts
    tasks: RayTasks
    losses: Losses
    on_split: Callable[[Unit, Sequence[Unit]], object]

    def result_of(self, reference: Any, now: float) -> UnitResult | None:
        """The result of a unit, if its last task is this one, which has ended. ToolError if Ray cannot place the
        task, and any other error of the task that ends the job."""
        attempt = self.tasks.take(reference)
        try:
            return self._after_end(attempt, *done_by(answer(ray.get(reference))), now)
        except LOST as error:
            return self._after_loss(attempt, error, now) if self.attempts.ended(attempt, None) else None
        except TaskUnschedulableError as error:
            raise ToolError(f"Ray cannot place a unit of work: {brief(error)}") from error
        except RayTaskError as error:
            if self.attempts.ended(attempt, None):
                self.order.again([step_after_error(attempt.step, error)])
            return None

    def _after_end(
        self, attempt: Attempt, machine: str, outcome: Outcome | Unfit, seconds: float | None, now: float
    ) -> UnitResult | None:
        if isinstance(outcome, NoRoom):
            self.tasks.lacks_room(attempt, machine, outcome, now)
            return None
        if isinstance(outcome, Unfit):
            again = without_gone_source(attempt.step, outcome.error)
            if self.attempts.ended(attempt, None):
                self.order.again([again])
            if again is attempt.step:
                self.tasks.machines.leave_out(machine, of_machine(outcome.error), now)
            return None
        self.tasks.machines.worked.add(machine)
        return self.order.done(attempt.step, outcome) if self.attempts.ended(attempt, seconds) else None

    def _after_loss(self, attempt: Attempt, error: RayError, now: float) -> UnitResult | None:
        step, unit, key, losses = attempt.step, attempt.step.unit, key_of(attempt.step), self.losses
        is_lost, for_memory = isinstance(error, NodeDiedError | ObjectLostError), isinstance(error, OutOfMemoryError)
        if losses.add(key, self.tasks.machines.num_lost if is_lost else None):
            if for_memory:
                self.tasks.begin_later(
                    with_less_beside(attempt, error, alone=losses.died[key] > 1),
                    now + _FIRST_WAIT_SECONDS * 2 ** (losses.died[key] - 1),
                    now + _FIRST_WAIT_SECONDS,
                )
            else:
                self.order.again([step])
        elif len(unit.items) > 1:
            parts = split_unit(unit, self.options.profile.key())
            self.on_split(unit, parts)
            self.order.again(Whole(part) for part in parts)
        elif self.order.give_up(step):
            return give_up(
                self.dataset,
                unit,
                f"{unit.items[0].source.given}: {losses.reason(key, brief(error), for_memory=for_memory)}",
            )
        return None


def done_by(answered: Answer) -> tuple[str, Outcome | Unfit, float | None]:
    """The id of the machine that answered, and what it did."""
    if answered.unable is None:
        done: Done = answered.value
        return answered.machine, *done
    error = ToolError(answered.unable)
    if not HAS_SELECTORS:
        raise error
    return answered.machine, Unfit(error), None


def ended(references: Sequence[Any]) -> list[Any]:
    """The tasks that have ended; if there are none, it waits a moment for one."""
    if not references:
        time.sleep(_POLL_SECONDS)
        return []
    done, others = ray.wait(list(references), timeout=_POLL_SECONDS)
    # Ray gives one alone, and looks at all for it. On a large cluster many may have ended meanwhile.
    more = ray.wait(others, num_returns=len(others), timeout=0)[0] if done and others else []
    return [*done, *more]


def with_less_beside(attempt: Attempt, error: RayError, *, alone: bool) -> Attempt:
    """The attempt that follows one whose machine ran out of memory: on another one if possible, with twice as much, or
    `alone` there."""
    unit = attempt.step.unit
    unit = replace(unit, expected_bytes=ALL_BYTES if alone else 2 * unit.expected_bytes)
    step = replace(attempt.step, unit=unit)
    # Ray's error holds the id of the machine only in its text.
    match = re.search(r"\(IP: [^,]+, ID: ([0-9a-f]+)\)", str(error))
    return replace(attempt, step=step, avoided=attempt.avoided | ({match[1]} if match else set()), is_last=False)


def asked_of_ray(attempt: Attempt, slots: Slots, asked_bytes: int, avoided: Collection[str]) -> dict[str, Any]:
    """The options of the task of an attempt."""
    return {
        "num_gpus": slots.gpu_share if attempt.place == "gpu" else 0,
        "memory": asked_bytes,
        "name": task_name(attempt.step),
        "scheduling_strategy": "SPREAD" if attempt.spread else "DEFAULT",
        **elsewhere(avoided),
    }


def limit_of(unit: Unit, asked_bytes: int) -> int | None:
    """How much memory a unit may take that asks for so much; None where that is no guess, or all that a machine has: it
    has to do with it."""
    return asked_bytes if unit.guesses_memory and asked_bytes >= unit.expected_bytes else None


def elsewhere(avoided: Collection[str]) -> dict[str, Any]:
    """The options of a task that does not run on machines with these ids. Ray 2.49 is the first to take them."""
    if not avoided or not HAS_SELECTORS:
        return {}
    return {"label_selector": {"ray.io/node-id": f"!in({','.join(sorted(avoided))})"}}


def may_hand_back(attempt: Attempt, avoided: Collection[str]) -> bool:
    """Whether a machine without room hands an attempt back. Also the last one, if the machine for it is gone, so that
    it avoids fewer than it was to."""
    return not attempt.is_last or not attempt.avoided.issubset(avoided)


def task_name(step: Step) -> str:
    """The name of a step in Ray's dashboard, which takes UTF-8 alone: names of files may be no text."""
    items = step.unit.items
    more = f" and {len(items) - 1} more" if len(items) > 1 else ""
    match step:
        case Look():
            what = "look at"
        case OneSection():
            what = f"section {step.number + 1}/{step.cut.sections} of"
        case Join():
            what = "join"
        case Whole():
            what = "encode"
    return f"{what} {plain(items[0].source.given)}{more}"


def without_gone_source(step: Step, error: BaseException | None) -> Step:
    """The step without the check of a source that the worker could not read, if the driver cannot read it any more
    either: that is a failure of the source, and not of a machine. Otherwise the same step."""
    if isinstance(error, SourceNotFoundError) and not can_read(str(error.file)):
        return replace(step, unit=without_check(step.unit, str(error.file)))
    return step


def step_after_error(step: Step, error: RayTaskError) -> Step:
    """The step that follows one whose source is gone, which a Ray without selectors says by an error. Any other error
    of a step ends the job and is raised."""
    cause = error.cause
    again = without_gone_source(step, cause)
    if again is not step:
        return again
    if isinstance(cause, RaySystemError | ImportError):
        # Such as a Python of another version, for which Ray can make nothing of what it was sent.
        raise ToolError(
            f"the cluster's node {_node_of(error)} cannot run shortgop: {brief(cause)}; "
            "install the same version of shortgop[prep] on every node, in the Python that runs its Ray"
        ) from None
    raise (of_machine(cause) if isinstance(cause, ShortGopError) else error) from None


def of_machine(error: ShortGopError) -> ShortGopError:
    """The error of a machine. One that cannot read a source that the driver can read is no failure of the source."""
    return ToolError(error.message, file=error.file) if isinstance(error, SourceNotFoundError) else error


def _node_of(error: RayTaskError) -> str:
    # Ray's error holds the address only in its text.
    match = re.search(r"\bip=([^\s,)]+)", str(error))
    return match[1] if match else "of unknown address"
