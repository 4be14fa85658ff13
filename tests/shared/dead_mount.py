"""A mount that does not answer, or only with errors: a file system that never gives a byte.

A process that reads from it waits, and cannot even be killed, as with a network mount whose server is gone. So does a
process that closes a file on it. So processes of their own mount, serve and unmount it. They unmount it in any case
after some minutes: no test waits longer than that, whatever it waits for.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Not answered: reading files and folders, and closing files. Linux's include/uapi/linux/fuse.h
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _FLUSH, _INIT = 1, 2, 3, 14, 15, 18, 25, 26
_OPENDIR, _READDIR, _RELEASEDIR, _INTERRUPT, _BATCH_FORGET, _READDIRPLUS = 27, 28, 29, 36, 42, 44
_ROOT, _FILE = 1, 2
_FORCE, _DETACH = 1, 2
# The exit status where mounting is not allowed.
_NOT_ALLOWED = 3
# Later than the time limit of a test, so that the stacks of a test that hangs are printed while it does.
_LONGEST_SECONDS = 450


@contextmanager
def dead_mount(folder: Path, size: int, error: int = 0) -> Iterator[Path | None]:
    """Mount at `folder`, in which then every name is a file of `size` bytes; None where that is not allowed.

    With `error` it does answer: reading a file gives this error.
    """
    arguments = [sys.executable, "-S", __file__, str(size), str(error)]
    keeper = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        # Not as an argument: tests look for processes that have it there.
        keeper.stdin.write(os.fsencode(folder) + b"\n")
        if keeper.stdout.readline():
            yield folder
            assert keeper.poll() is None, "the test took too long"
        else:
            assert keeper.wait(30) == _NOT_ALLOWED, "mounting failed"
            yield None
    finally:
        keeper.stdin.close()
        keeper.wait(30)
        keeper.stdout.close()


def _keep(folder: bytes, size: int, read_error: int) -> None:
    """Mount at `folder` until nothing more can come from standard input."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        sys.exit(_NOT_ALLOWED)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    if libc.mount(b"dead", folder, b"fuse", 0, options):
        sys.exit(_NOT_ALLOWED)
    server = os.fork()
    if server == 0:
        os.close(0)
        os.close(1)
        _serve(device, size, read_error)
        os._exit(0)
    os.close(device)
    os.write(1, b"mounted\n")
    select.select([0], [], [], _LONGEST_SECONDS)
    # From here on everything that waited gets an error.
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    libc.umount2(folder, _FORCE)
    libc.umount2(folder, _DETACH)


def _serve(device: int, size: int, read_error: int) -> None:
    def answer(request: int, data: bytes = b"", error: int = 0) -> None:
        with suppress(OSError):
            os.write(device, struct.pack("<IiQ", 16 + len(data), -error, request) + data)

    while True:
        try:
            message = os.read(device, 1 << 20)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                continue
            return
        _, opcode, request, node = struct.unpack_from("<IIQQ", message)
        if opcode == _INIT:
            answer(request, struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 12, 8, 1 << 16, 1, 1, 0, 0))
        elif opcode == _LOOKUP:
            answer(request, struct.pack("<QQQQII", _FILE, 0, 100, 100, 0, 0) + _attributes(_FILE, size))
        elif opcode == _GETATTR:
            answer(request, struct.pack("<QII", 100, 0, 0) + _attributes(node, size))
        elif opcode in (_OPEN, _OPENDIR):
            answer(request, struct.pack("<QII", 0, 0, 0))
        elif opcode == _READ and read_error:
            answer(request, error=read_error)
        elif opcode in (_RELEASE, _RELEASEDIR) or (opcode == _FLUSH and read_error):
            answer(request)
        elif opcode not in (_READ, _READDIR, _READDIRPLUS, _FLUSH, _FORGET, _INTERRUPT, _BATCH_FORGET):
            answer(request, error=errno.ENOSYS)


def _attributes(node: int, size: int) -> bytes:
    mode = 0o40755 if node == _ROOT else 0o100644
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


if __name__ == "__main__":
    _keep(sys.stdin.buffer.readline().rstrip(b"\n"), *map(int, sys.argv[1:]))
