"""The process of one check: `check_child.py MODULE:FUNCTION REPORT SAMPLES SECONDS PIPE`, where PIPE is the number of
a file that ends when the process does that started this one."""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any

from check_record import FailedOutOfTimeError, OutOfTime, Record, Skipped
from error_places import places_of

# This long before the process is killed it prints where each of its threads is.
_BEFORE_SECONDS = 1.0


def main() -> None:
    function, report, samples, seconds, pipe = sys.argv[1:]
    end_with_the_harness(int(pipe))
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(0.1, float(seconds) - _BEFORE_SECONDS), exit=False)
    record = Record(Path(report), Path(samples), float(seconds))
    record_warnings(record)
    module, _, name = function.partition(":")
    try:
        getattr(importlib.import_module(module), name)(record)
    except Skipped as skipped:
        record.end("skipped", str(skipped), lacked_time=isinstance(skipped, OutOfTime))
    except Exception as error:  # noqa: BLE001  # the harness goes on with the next check
        traceback.print_exc()
        record.figure("raised at", places_of(error))
        lacked_time = isinstance(error, FailedOutOfTimeError)
        record.end("failed", f"{type(error).__name__}: {error}", lacked_time=lacked_time)
    else:
        record.end("passed", "")


def end_with_the_harness(pipe: int) -> None:
    """Have this process's group killed when the harness ends: where that is killed, nobody else ends them, and they
    would use the GPU beside the next run."""
    group = os.getpid()
    # Another process has to do it: this one may hang in the driver.
    if os.fork():
        os.close(pipe)
        return
    os.read(pipe, 1)
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
