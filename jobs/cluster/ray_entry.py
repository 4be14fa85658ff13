"""The first code of a job in a worker of Ray. It says so where the machine has no shortgop, or another version.

It is sent by value, because code that a worker imports from shortgop cannot say that there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ray import cloudpickle

from ...version import __version__


@dataclass(frozen=True)
class Answer:
    """What a worker answers: the value that the function returned, or why its machine cannot call it. `machine` is the
    id of its node."""

    machine: str
    value: Any = None
    unable: str | None = None


def call_of(function: Callable[..., object], *arguments: object) -> tuple[str, bytes]:
    """The arguments of `called_here` for a call of a function that can be pickled."""
    return __version__, cloudpickle.dumps((function, arguments))  # type: ignore[no-untyped-call]


def answer(sent: tuple[str, object, str | None]) -> Answer:
    """What `called_here` returned."""
    return Answer(*sent)


def called_here(version: str, call: bytes) -> tuple[str, object, str | None]:
    """Make a call in a worker. `version` is the driver's shortgop. Nothing here may need shortgop before it is known
    that the worker has the same one."""
    import pickle
    import socket

    import ray

    machine = ray.get_runtime_context().get_node_id()
    node = f"the cluster's node {socket.gethostname()} ({ray.util.get_node_ip_address()})"  # type: ignore[no-untyped-call]
    remedy = "install the same version of shortgop[prep] on every node, in the Python that runs its Ray"
    try:
        import shortgop

        # Loading it imports all modules that it needs.
        found = getattr(shortgop, "__version__", None)
        if found is None:
            # Ray's workers find modules in the folder in which the job began, and any folder can be one.
            place = shortgop.__file__ or next(iter(shortgop.__path__))
            remedy = "rename it, or run the same command in another folder"
            return machine, None, f"{node} takes {place} for shortgop, which it is not; {remedy}"
        function, arguments = pickle.loads(call) if found == version else (None, ())  # noqa: S301  # of the job
    except Exception as error:  # noqa: BLE001  # of whatever kind a damaged or other installation raises
        return machine, None, f"{node} cannot run shortgop: {error}; {remedy}"
    if function is None:
        return machine, None, f"{node} has shortgop {found}, and the job has {version}; {remedy}"
    return machine, function(*arguments), None


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
