"""Passes an open file to another process through the pipe between them, which messages go through as well.

multiprocessing's `send_handle` waits on macOS until a byte comes back through the same pipe, and takes the first one of
a message that the other process happens to send for it.
"""

from __future__ import annotations

import errno
import os
import socket
from multiprocessing import connection

# A descriptor cannot travel without a byte.
_BYTE = b"F"


def pass_file(pipe: connection.Connection, file: int) -> None:
    """Give the process at the other end a descriptor of this file, which has to stay open here until it is taken."""
    with _socket_of(pipe) as end:
        socket.send_fds(end, [_BYTE], [file])


def passed_file(pipe: connection.Connection) -> int:
    """The descriptor that the other process passes next. EOFError if it is gone; OSError if this one has too many."""
    with _socket_of(pipe) as end:
        byte, files, _, _ = socket.recv_fds(end, len(_BYTE), 1)
    if not byte:
        raise EOFError
    if not files:
        raise OSError(errno.EMFILE, "the process has as many open files as it may: raise the limit (`ulimit -n`)")
    return files[0]


def _socket_of(pipe: connection.Connection) -> socket.socket:
    end = socket.socket(fileno=os.dup(pipe.fileno()))
    # A script may have set a timeout for all sockets, and this one shares the pipe with messages, which wait.
    end.settimeout(None)
    return end
