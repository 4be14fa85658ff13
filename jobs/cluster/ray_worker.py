"""One step of a job on a machine of the cluster: what a worker of Ray does."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace

import ray

from ...errors import OutputError, ShortGopError, SourceNotFoundError, ToolError
from ...prep.options import Options
from ...prep.tools.pipelines import NoEncoderError
from ...storage.interface import Storage
from ..units_of_work.steps import MoreMemory, NoRoom, OneSection, Outcome, Step
from ..units_of_work.unit_results import OnProgress, UnitProgress, UnitResult
from ..working.step_work import lacking_room, run_step
from ..working.work import Terms
from .ray_metrics import StepMetrics
from .shared_files import check_mark, check_sources

HAS_SELECTORS = tuple(map(int, ray.__version__.split(".")[:2])) >= (2, 49)
"""Whether Ray can be asked not to run a task on some machines."""


@dataclass(frozen=True)
class Unfit:
    """The machine cannot do the step, and another one may: it does not see the dataset or a source, cannot write, or
    lacks the encoder or another tool. Where all machines have the same error, it ends the job."""

    error: ShortGopError


Done = tuple[Outcome | Unfit, float | None]
"""The outcome of a step, and the seconds that its worker took, None where it was not done."""


def step_on_machine(  # noqa: PLR0917  # what a worker is sent
    dataset: Storage, step: Step, options: Options, put: OnProgress, mark: str | None, terms: Terms
) -> Done:
    """Do a step, and report with `put`. `mark` is that of `leave_mark` where workers may be on other machines than the
    driver. Without selectors an error of the machine is raised."""
    # Several nodes of a cluster may be on one machine.
    start = time.monotonic()
    machine = ray.get_runtime_context().get_node_id()
    node = f"{socket.gethostname()}/{machine[:6]}"
    metrics = StepMetrics(node)

    def report(progress: UnitProgress) -> None:
        metrics.on_progress(progress)
        put(replace(progress, node=node, machine=machine))

    # Before it is said to have begun, and before anything is done that would be done again.
    room = lacking_room(step) if terms.needs_room else None
    if room is not None:
        return replace(room, node=node), None
    # So that it is known when a step began that hangs before it has a frame.
    section = step.number if isinstance(step, OneSection) else None
    put(UnitProgress(step.unit.id, 0, 0, section, node, machine=machine))
    outcome = _outcome(dataset, step, options, report, mark, terms)
    if isinstance(outcome, Unfit):
        if not HAS_SELECTORS:
            raise outcome.error
        return outcome, None
    if isinstance(outcome, NoRoom):
        return replace(outcome, node=node), None
    seconds = time.monotonic() - start
    metrics.done(step, outcome, seconds)
    if isinstance(outcome, UnitResult) and not outcome.was_there:
        # Its reports may come later, or not at all.
        outcome = replace(outcome, node=node)
    return outcome, None if isinstance(outcome, MoreMemory) else seconds


def _outcome(  # noqa: PLR0917  # as above
    dataset: Storage, step: Step, options: Options, report: OnProgress, mark: str | None, terms: Terms
) -> Outcome | Unfit:
    try:
        if mark is not None:
            check_mark(dataset, mark)
            check_sources(step.unit)
        outcome = run_step(dataset, step, options, report, terms)
        if mark is not None:
            # A mount that went away meanwhile left an empty folder, into which all was written without an error.
            check_mark(dataset, mark)
    except NoEncoderError as error:
        return Unfit(error)
    except (OutputError, ToolError, SourceNotFoundError) as error:
        # Returned, and not raised: a message with a name that is not UTF-8 would end the worker.
        return Unfit(error if mark is None else _on_node(error))
    return outcome


def _on_node(error: ShortGopError) -> ShortGopError:
    machine = f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"  # type: ignore[no-untyped-call]
    return type(error)(f"on the cluster's node {machine}: {error.message}", file=error.file)
