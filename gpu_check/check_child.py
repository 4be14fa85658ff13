"""The process of one check: `check_child.py MODULE:FUNCTION REPORT SAMPLES SECONDS HARNESS`, where HARNESS is the
number of the process that starts it."""

from __future__ import annotations

import ctypes
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

from check_record import OutOfTime, Record, Skipped
from error_places import places_of

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
# This long before the process is killed it prints where each of its threads is.
_BEFORE_SECONDS = 1.0


def main() -> None:
    function, report, samples, seconds, harness = sys.argv[1:]
    # Where the harness is killed, nobody else ends this process, and it would use the GPU beside the next run. The
    # processes that it starts are not ended so.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong(0)] * 3)
    if os.getppid() != int(harness):
        sys.exit("the harness was killed before this process could ask to be killed with it")
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
        record.end("failed", f"{type(error).__name__}: {error}")
    else:
        record.end("passed", "")


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
