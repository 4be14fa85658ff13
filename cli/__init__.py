"""The command line: it parses arguments, calls the other rooms and prints results.

A command imports what it needs when it runs: `shortgop --help`, `info` and `verify` import neither torch nor Ray.

app                     what all commands share
parameters              arguments and options that several commands share
prepare_command         `prep`
status_command          `status`
report_command          `report`
inspect_commands        `info`, `doctor`
verify_command          `verify`
read_commands           `read`, `export`, `bench`
edit_commands           `annotate`, `drop`, `gc`, `snapshots`
moving_commands         `copy`, `merge`, `compact`, `rollback`
cache_command           `cache`
printing, job_reports   what is printed for people
progress                bars and lines of progress
"""

from . import (
    cache_command,
    edit_commands,
    inspect_commands,
    moving_commands,
    prepare_command,
    read_commands,
    report_command,
    status_command,
    verify_command,
)
from .app import app, tell_warnings_plainly

__all__ = [
    "app",
    "cache_command",
    "edit_commands",
    "inspect_commands",
    "moving_commands",
    "prepare_command",
    "read_commands",
    "report_command",
    "status_command",
    "tell_warnings_plainly",
    "verify_command",
]
