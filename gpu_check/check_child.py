"""The process of one check: `check_child.py REPORT [MODULE ...]`. It imports the modules, and then reads from its input
which check it is. Its input ends when the process does that started this one."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from check_record import FailedOutOfTimeError, OutOfTime, Record, Skipped, write_line
from error_places import places_of

# This long before the process is killed it prints where each of its threads is.
_BEFORE_SECONDS = 1.0
# Nobody knows yet when a process is killed that still imports. After so long it prints where it is.
_LONG_IMPORT_SECONDS = 15.0


def main() -> None:
    report, *modules = sys.argv[1:]
    end_with_the_harness()
    faulthandler.enable()
    faulthandler.dump_traceback_later(_LONG_IMPORT_SECONDS, exit=False)
    orders = os.dup(0)
    # What is imported and what the check starts get no input: they would take the order.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    import_ahead(modules, report, orders)
    faulthandler.cancel_dump_traceback_later()
    write_line(Path(report), {"imported": True})
    with open(orders) as asked:  # noqa: PTH123  # it is no path
        line = asked.readline()
    if not line:
        return
    order = json.loads(line)
    waited = time.monotonic() - order["asked_at"]
    seconds = order["seconds"] - waited
    faulthandler.dump_traceback_later(max(0.1, seconds - _BEFORE_SECONDS), exit=False)
    record = Record(Path(report), Path(order["samples"]), seconds)
    record_warnings(record)
    module, _, name = order["function"].partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        record.begin(time.monotonic() - order["asked_at"])
        function(record)
    except Skipped as skipped:
        record.end("skipped", str(skipped), lacked_time=isinstance(skipped, OutOfTime))
    except Exception as error:  # noqa: BLE001  # the harness goes on with the next check
        traceback.print_exc()
        record.figure("raised at", places_of(error))
        lacked_time = isinstance(error, FailedOutOfTimeError)
        record.end("failed", f"{type(error).__name__}: {error}", lacked_time=lacked_time)
    else:
        record.end("passed", "")


def import_ahead(modules: Sequence[str], report: str, orders: int) -> None:
    """Import what the check will probably need. Where that fails, go on as a fresh process, in which the check fails
    with the errors of its own imports: a second import of torch, in one process, says something else than the first."""
    try:
        for module in modules:
            importlib.import_module(module)
    except Exception:  # noqa: BLE001  # of any library
        os.dup2(orders, 0)
        os.execv(sys.executable, [sys.executable, "-u", __file__, report])  # noqa: S606


def end_with_the_harness() -> None:
    """Have this process's group killed when the harness ends: where that is killed, nobody else ends them, and they
    would use the GPU beside the next run."""
    group = os.getpid()
    # Another process has to do it: this one may hang in the driver.
    if os.fork():
        return
    ended = select.poll()
    # No event is asked for, but that the harness has closed it is told.
    ended.register(sys.stdin, 0)
    ended.poll()
    os.killpg(group, signal.SIGKILL)


def record_warnings(record: Record) -> None:
    """Have what shortgop warns of among the figures, also of a check that passes: such as that frames are converted
    otherwise than they should be, or that a GOP was decoded at the second attempt only."""
    said, lock, show = list[str](), threading.Lock(), warnings.showwarning

    def noted(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        show(message, category, *where, **more)
        if category.__name__ == "DatasetWarning":
            with lock:
                said.append(str(message))
                record.figure("warnings", said)

    warnings.showwarning = noted


if __name__ == "__main__":
    main()
