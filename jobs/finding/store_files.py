"""Files in stores as sources: whether they are there, what lies below a folder, and what their errors say to a user."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath

from ...errors import OutputError, SourceError, SourceNotFoundError, UsageError
from ...storage.interface import Storage, Stored
from ...storage.local_copy import LocalCopy, local_copy
from ...storage.locate import storage_at
from ...storage.network import AT_THE_START, NetworkOptions
from ...storage.odd_keys import is_odd
from .addresses import Address, parse


class NoRoomError(SourceError):
    """The copy of a file in a store does not fit into this machine's folder for temporary files."""


@dataclass(frozen=True)
class StoreFile:
    """A file in a store. `stored` is what a listing said about it; None if it was not listed."""

    address: Address
    stored: Stored | None = None


# Errors of a folder for temporary files that is gone, or may not be written to.
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM)
# Of a job that has begun.
_PATIENT = NetworkOptions()
IN_PASSING = NetworkOptions(retries=1, throttled_seconds=0, give_up_after_seconds=5)
"""For what a job can do without."""
# How the environment variables begin that say how stores are reached.
_SETTINGS = ("AWS_", "GOOGLE_", "AZURE_", "HF_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


def _storage(address: Address, network: NetworkOptions = AT_THE_START) -> Storage:
    settings = tuple(sorted(each for each in os.environ.items() if each[0].startswith(_SETTINGS)))
    return _with_settings(address.root, replace(network, query=address.query), settings)


@lru_cache(maxsize=64)
def _with_settings(root: str, network: NetworkOptions, _settings: tuple[tuple[str, str], ...]) -> Storage:
    # Its connections are used again for all files of a bucket.
    return storage_at(root, network=network)


def asked(file: StoreFile, network: NetworkOptions = _PATIENT) -> Stored:
    """What the file is: from the listing, or by a request. SourceNotFoundError if there is none, SourceError if that
    cannot be found out."""
    if file.stored is not None:
        return file.stored
    address = file.address
    with told(address):
        if address.is_on_the_web:
            # A presigned URL allows reading (GET) alone, and not a HEAD request.
            with _storage(address, network).open(address.key) as opened:
                return opened.stored
        found = _storage(address, network).find(address.key)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", address.url)
    return found


def files_below(folder: Address, is_wanted: Callable[[str], bool]) -> Iterator[StoreFile]:
    """The files below a folder whose names are wanted; those of hidden files and folders are left out, as on a disk.
    UsageError if the folder cannot be listed."""
    if folder.is_on_the_web:
        raise UsageError(f"{folder.url} is on a web server, which lists no folders; give a list of its files' URLs")
    start = len(folder.key) + 1 if folder.key else 0
    with of_argument(folder), told(folder):
        storage = _storage(folder)
        for file in storage.files(folder.key, odd_keys=True):
            parts = file.key[start:].split("/")
            if not is_wanted(parts[-1]) or any(part[0:1] == "." and part not in (".", "..") for part in parts):
                continue
            if not file.num_bytes and not is_odd(file.key):
                # Consoles of stores make a folder as an empty object whose key ends with a slash, and the listing
                # leaves the slash out. On a disk a folder is no video, whatever its name.
                found = storage.find(file.key)
                if found is None or found.num_bytes:
                    continue
            # The Hub's listing does not say which version of a file is read.
            yield StoreFile(folder.below(file.key), file if file.version else None)


def has_files(folder: Address) -> bool:
    """Whether anything lies below a folder, of whatever kind. One request. UsageError if that cannot be found out."""
    with of_argument(folder), told(folder):
        return next(iter(_storage(folder).files(folder.key, odd_keys=True)), None) is not None


def content(address: Address) -> bytes:
    """The content of a small file. SourceNotFoundError if there is none, SourceError if it cannot be read."""
    with told(address):
        return _storage(address).read(address.key)


def head_of(address: Address, most_bytes: int, network: NetworkOptions) -> bytes:
    """At most so many bytes from the beginning of a file. SourceNotFoundError if there is none, SourceError if it
    cannot be read."""
    num_bytes = asked(StoreFile(address), network).num_bytes
    with told(address):
        return _storage(address, network).read(address.key, 0, min(num_bytes, most_bytes)) if num_bytes else b""


def is_folder(argument: str, is_file_name: Callable[[str], bool]) -> bool:
    """Whether a URL stands for what is below it. It does if it ends with a slash, or if no file has that key. A URL
    with the name of a file is taken for one without a request. UsageError if that cannot be found out."""
    address = parse(argument)
    if address.is_on_the_web or not address.key:
        return not address.is_on_the_web
    return argument.endswith("/") or not (is_file_name(address.name) or _may_exist(address))


def _may_exist(address: Address) -> bool:
    with of_argument(address):
        try:
            asked(StoreFile(address), AT_THE_START)
        except SourceNotFoundError:
            return False
        return True


def identity_of_file(file: StoreFile) -> tuple[int, int]:
    """A 64-bit fingerprint of a file in a store, and its size in bytes. SourceError if it cannot be found out.

    It covers the size and the version (the ETag), which a store changes whenever the content changes. Nothing is read.
    """
    stored = asked(file)
    text = repr(("in a store", stored.num_bytes, stored.version)).encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big"), stored.num_bytes


@contextlib.contextmanager
def copied(file: StoreFile, network: NetworkOptions = _PATIENT) -> Iterator[LocalCopy]:
    """A local copy of a file in a store, of which little has been fetched yet. What fetches from it does so within
    `told`. SourceError if it cannot be made, or is not the file that was listed any more."""
    address = file.address
    if is_odd(address.key):
        raise SourceError(
            f"{address.url} cannot be read: its key has an empty part, `.`, `..` or a control character; rename that "
            "object, or leave its folder out by giving the others, and run the same command again",
            file=address.url,
        )
    name = f"source{PurePosixPath(address.name).suffix.lower()}"
    with contextlib.ExitStack() as stack:
        with told(address):
            copy = stack.enter_context(local_copy(_storage(address, network), address.key, name))
        before = file.stored
        if before is not None and (before.num_bytes, before.version) != (copy.num_bytes, copy.stored.version):
            raise _replaced(address)
        yield copy


def check_same(address: Address, copy: LocalCopy) -> None:
    """SourceError if a file of a web server without ETags was replaced while it was copied. With ETags, reading fails
    by itself."""
    if not address.is_on_the_web or " " not in copy.stored.version:
        return
    now = asked(StoreFile(address))
    if (now.num_bytes, now.version) != (copy.num_bytes, copy.stored.version):
        raise _replaced(address)


@contextlib.contextmanager
def small_copy(address: Address) -> Iterator[Path]:
    """A list in a store as a local file, in the block. UsageError if it cannot be read."""
    with of_argument(address), contextlib.ExitStack() as stack:
        copy = stack.enter_context(copied(StoreFile(address), AT_THE_START))
        with told(address):
            copy.fetch_all()
        left = stack.pop_all()
    with left:
        yield copy.path


@contextlib.contextmanager
def told(address: Address) -> Iterator[None]:
    """Turns an OSError into a SourceError that names the URL, says what happened and what to do. OutputError where the
    copy cannot be made on this machine: that is no fault of the source."""
    try:
        yield
    except EOFError as error:
        raise _replaced(address) from error
    except OSError as error:
        raise _in_words(address, error) from error


@contextlib.contextmanager
def of_argument(address: Address) -> Iterator[None]:
    """Turns a SourceError into a UsageError, where what lies at an address says what an argument of the job is."""
    try:
        yield
    except SourceError as error:
        raise UsageError(error.message, file=address.url) from error


def _in_words(address: Address, error: OSError) -> SourceError | OutputError:
    url, folder = address.url, _folder_of_copies()
    is_here = error.errno in _NO_FOLDER and str(error.filename).startswith(folder)
    if is_here or error.errno == errno.EROFS:
        return OutputError(
            f"copies of sources cannot be kept in {folder}: {error.strerror}; make it a folder that can be written to, "
            "or set TMPDIR to one, and run the same command again",
            file=folder,
        )
    why = error.strerror or str(error)
    if address.query:
        why = why.replace(address.query, "...")
    again = "run the same command again"
    if isinstance(error, FileNotFoundError):
        what = f" ({why})" if "bucket" in why.lower() else ""
        return SourceNotFoundError(f"{url} does not exist{what}; put it there, or give the URL where it is", file=url)
    if isinstance(error, PermissionError):
        remedy = "give credentials that may read it, in the environment or a profile, or a presigned URL"
    elif error.errno == errno.EILSEQ:
        remedy = "rename that object, or leave its folder out by giving the others"
    elif error.errno == errno.ESTALE:
        return _replaced(address)
    elif error.errno == errno.ENOTSUP:
        remedy = "download it, or give a server that answers requests for ranges of bytes"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoomError(
            f"{url} does not fit into {folder}, where it is kept while it is prepared; free some space, "
            f"or set TMPDIR to a larger disk, and {again}",
            file=url,
        )
    else:
        remedy = "check the network and the address"
    return SourceError(f"{url} cannot be read: {why}; {remedy}, and {again}", file=url)


def _folder_of_copies() -> str:
    """OutputError where this machine has no folder for temporary files at all."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise OutputError(
            f"copies of sources cannot be kept: {error.strerror}; set TMPDIR to a folder that can be written to, and "
            "run the same command again"
        ) from error


def _replaced(address: Address) -> SourceError:
    return SourceError(
        f"{address.url} was replaced after the job had looked at it; run the same command again", file=address.url
    )
