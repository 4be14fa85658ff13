"""What all commands share: the application, its consoles and its exit statuses."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from ..errors import (
    CorruptDataError,
    DatasetBusyError,
    DatasetWarning,
    MissingDataError,
    ShortGopError,
    UsageError,
)
from .printing import PlainConsole, leave_out

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SOMETHING_MISSING = 3
EXIT_NOT_HEARD_OF = 4
# So that a job that is begun each day can tell "yesterday's still runs" from a failure.
EXIT_BUSY = 5
SAYS_BUSY = "Exit status 5: another job is writing to the dataset."
"""What the help of each command says that writes to one."""
# 128 and the number of the signal, as shells say of what a signal ended: here Ctrl-C.
EXIT_INTERRUPTED = 130
_OF_SIGNALS = 128
_AGAIN_SECONDS = 0.05

_GOES_ON = "; finished work is kept, and the same command goes on from there"

# Commands in the order in which a newcomer needs them. A command that is not here is an error of `--help`.
_ORDER = (
    "prep", "status", "report", "info", "read", "export", "verify", "annotate", "drop", "gc", "snapshots", "rollback",
    "copy", "merge", "compact", "cache", "bench", "doctor",
)  # fmt: skip


class _Commands(typer.core.TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=_ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        arguments = list(ctx.args)
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Releases of typer differ in whose class this is.
            if type(error).__name__ == "NoSuchOption":
                told: Any = error
                name = next(
                    (one for one in arguments if one.startswith(told.option_name) and _may_be_a_name(one)), None
                )
                if name is not None:
                    told.message += f"; if {name!r} is a file or an id, give it last, behind `--`"
            raise


def _may_be_a_name(text: str) -> bool:
    """Whether an argument that begins with a dash may be a file or an id, and not an option with its value."""
    is_option = text.startswith("--") and "=" in text
    return os.path.lexists(text) or (not is_option and ("." in text or "/" in text))


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# Without a terminal there is no width to ask for. 120 columns fit a log.
_WIDTH = None if sys.stdout.isatty() else 120
out = PlainConsole(width=_WIDTH)
err = PlainConsole(stderr=True, width=_WIDTH)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        sys.stdout.write(f"shortgop {__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Videos re-encoded once to short GOPs, and any frames of them read back quickly."""


class _ToldToEndError(KeyboardInterrupt):
    """What a signal becomes here. Python notes a KeyboardInterrupt, but no subclass of it, that leaves `exec`, and ends
    itself by SIGINT after that, even where it was caught. Each dataclass that is made goes through `exec`."""


class _Told:
    """Which signal has told this process to end, if any. Ray raises a KeyboardInterrupt of its own in place of what a
    handler raises, so the exception cannot say which it was."""

    by: int | None = None
    # What deals with other exceptions that Python ignores.
    others: Callable[[sys.UnraisableHookArgs], Any] = sys.__unraisablehook__


def _tell_again(ignored: sys.UnraisableHookArgs) -> None:
    """A signal may come while Python ignores what is raised, as in what it calls beside a fork or in a `__del__`. Then
    this process sends it to itself once more, a moment later."""
    number = _signal_behind(ignored)
    if number is None:
        _Told.others(ignored)
        return
    again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _signal_behind(ignored: sys.UnraisableHookArgs) -> int | None:
    """The signal that an ignored exception was raised for; None for one that has another cause."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        return _Told.by or signal.SIGINT
    # Ray's own handler of SIGTERM raises this while Ray starts.
    is_rays = isinstance(ignored.exc_value, SystemExit) and ignored.exc_value.code == signal.SIGTERM
    return signal.SIGTERM if is_rays else None


def end_tidily_on_signals() -> None:
    """From now on SIGTERM, with which job managers end a job, and SIGHUP, which a terminal sends that is closed, end
    this process as cleanly as Ctrl-C does. `nohup` has SIGHUP ignored, and it stays so."""

    terminals = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
        _Told.by = number
        for stream in terminals:
            # What is printed to a terminal that is gone would be an error in place of this one.
            if not stream.isatty():
                leave_out(stream)
        raise _ToldToEndError

    _Told.by = None
    if sys.unraisablehook is not _tell_again:
        _Told.others = sys.unraisablehook
        sys.unraisablehook = _tell_again
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)


def end_if_told() -> None:
    """End this process if a signal has told it to. For where modules have just been loaded: those that Cython made and
    that have memoryviews, such as numcodecs', pass over all that is raised while they register these."""
    if _Told.by is not None:
        raise _ToldToEndError


def tell_warnings_plainly() -> None:
    """From now on this process shows a DatasetWarning as its text alone: the line that it is about is none of a command
    line's user."""
    others = warnings.formatwarning

    def told(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if issubclass(category, DatasetWarning):
            return f"warning: {message}\n"
        return others(message, category, filename, lineno, line)

    warnings.formatwarning = told


@contextmanager
def errors(*, goes_on: bool = False, if_damaged: int = EXIT_FAILED) -> Iterator[None]:
    """Turn this package's errors into a message and an exit status. `goes_on`: a command that was interrupted has kept
    what it finished, and does only the rest when it is given again. `if_damaged` is the status for a dataset that is
    damaged, or lacks files."""
    try:
        yield
    except ShortGopError as error:
        err.print_line(f"error: {error}", style="red")
        raise typer.Exit(_status_of(error, if_damaged)) from error
    except KeyboardInterrupt as error:
        err.print_line(f"interrupted{_GOES_ON if goes_on else ''}")
        raise typer.Exit(EXIT_INTERRUPTED if _Told.by is None else _OF_SIGNALS + _Told.by) from error


def _status_of(error: ShortGopError, if_damaged: int) -> int:
    if isinstance(error, UsageError):
        return EXIT_USAGE
    if isinstance(error, DatasetBusyError):
        return EXIT_BUSY
    return if_damaged if isinstance(error, MissingDataError | CorruptDataError) else EXIT_FAILED
