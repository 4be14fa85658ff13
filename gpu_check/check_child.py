"""The process of one check: `check_child.py MODULE:FUNCTION REPORT SAMPLES SECONDS`."""

from __future__ import annotations

import faulthandler
import importlib
import sys
import traceback
from pathlib import Path

from check_record import Record, Skipped

# This long before the process is killed it prints where each of its threads is.
_BEFORE_SECONDS = 1.0


def main() -> None:
    function, report, samples, seconds = sys.argv[1:]
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(0.1, float(seconds) - _BEFORE_SECONDS), exit=False)
    record = Record(Path(report), Path(samples), float(seconds))
    module, _, name = function.partition(":")
    try:
        getattr(importlib.import_module(module), name)(record)
    except Skipped as skipped:
        record.end("skipped", str(skipped))
    except Exception as error:  # noqa: BLE001  # the harness goes on with the next check
        traceback.print_exc()
        record.end("failed", f"{type(error).__name__}: {error}")
    else:
        record.end("passed", "")


if __name__ == "__main__":
    main()
