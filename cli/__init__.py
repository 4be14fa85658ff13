"""The command line: it parses arguments, calls the other rooms and prints results.

A command imports what it needs when it runs: `shortgop --help`, `info` and `verify` import neither torch nor Ray.
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
)
from .app import app

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
]
