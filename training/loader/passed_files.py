"""Passes an open file to another process through the pipe between them, which messages go through as well.

multiprocessing's `send_handle` waits on macOS until a byte comes back through the same pipe, and takes the first one of
a message that the other process happens to send for it.
"""

from __future__ import annotations

import os
import socket
from multiprocessing import connection

# A descriptor cannot travel without a byte.
_BYTE = b"F"


def pass_file(pipe: connection.Connection, file: int) -> None:
    """Give the process at the other end a descriptor of this file, which has to stay open here until it is taken."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        socket.send_fds(end, [_BYTE], [file])


def passed_file(pipe: connection.Connection) -> int:
    """The descriptor that the other process passes next. EOFError if it is gone."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        _, files, _, _ = socket.recv_fds(end, len(_BYTE), 1)
    if not files:
        raise EOFError
    return files[0]
