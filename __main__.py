"""`python -m shortgop`, and the `shortgop` command."""

from __future__ import annotations

import io
import os
import signal
import sys

_EXIT_INTERRUPTED = 130
_STDERR = 2


def main() -> None:
    _open_streams()
    try:
        from .cli import app, tell_warnings_plainly
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"the shortgop command needs {error.name}: pip install 'shortgop[prep]'")
    except KeyboardInterrupt:
        # What commands say of Ctrl-C is not imported yet.
        sys.exit(_EXIT_INTERRUPTED)
    tell_warnings_plainly()
    try:
        app()
    finally:
        # What is left is what Ray and others do when Python ends. Interrupted there, they print where they are.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_streams() -> None:
    """Lead the streams nowhere that were closed by what started this process (`>&-`). Otherwise the first files that
    are opened would take their numbers, and get what is printed. What their encoding lacks is written out."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As standard error does by itself: ids may have letters that the user's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
