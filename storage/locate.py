"""Which storage a path or a URL means."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import UsageError, WrongTypeError
from .hub import hub_place
from .interface import Storage
from .network import AT_THE_START, NetworkOptions

# What users write, and what it is called here.
_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "abfss",
    "abfss": "abfss",
    "https": "https",
    "http": "http",
    "hf": "hf",
    "memory": "memory",
    "file": "file",
}
_KNOWN = "s3://, gs://, az://, abfss://, hf://, https://, http:// and memory://"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
# A path such as s3:/bucket: a slash is missing, or the URL went through pathlib.Path, which drops it.
_HALF_A_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9]+):/?(?!/)")


def is_url(text: str) -> bool:
    """Whether a text is a URL rather than a path: it starts with a scheme and "://"."""
    return _SCHEME.match(text) is not None


def from_home(path: str) -> str:
    """The path with a leading `~` or `~name` replaced by the home folder, as a shell does it. A path that exists
    literally is kept."""
    if not path.startswith("~") or os.path.lexists(path):
        return path
    try:
        return str(Path(path).expanduser())
    except (RuntimeError, ValueError):
        # The user does not exist, or cannot, or the home folder is not known.
        return path


def storage_at(place: str | os.PathLike[str], *, network: NetworkOptions | None = None) -> Storage:
    """The storage whose root is a path, which may begin with `~`, or a URL. Nothing is asked of it yet. UsageError if a
    URL makes no sense.

    `network` limits the requests to an object store; a disk takes no notice of it. By default one that never
    answers is an error within some seconds.
    """
    if not isinstance(place, (str, os.PathLike)) or not isinstance(text := os.fspath(place), str):
        raise WrongTypeError(f"{place!r} is no place for a dataset; give a path, or a URL as text")
    if not text:
        raise UsageError("the place of the dataset is empty; give a path or a URL")
    found = _SCHEME.match(text)
    if found is None:
        refuse_half_a_url(text, is_path=not isinstance(place, str))
        return _disk(Path(from_home(text)))
    scheme = _SCHEMES.get(found[1].lower())
    if scheme is None:
        raise UsageError(f"{text}: {found[1]}:// is not known; known are paths, {_KNOWN}")
    if scheme == "file":
        return _disk(file_path(text))
    from .objects import ObjectStorage

    return ObjectStorage(_checked(text, scheme, found[2]), network or AT_THE_START)


def lies_inside(place: Storage, other: Storage) -> bool:
    """Whether a place is below another one, behind links and `..` as well."""
    return _really(place).startswith(f"{_really(other)}/")


def _really(place: Storage) -> str:
    return place.url if place.folder is None else str(place.folder.resolve())


def _disk(path: Path) -> Storage:
    from .disk import DiskStorage

    if "\0" in str(path):
        raise UsageError(f"{str(path)!r} has a null byte, and no path has one; leave it out")
    try:
        return DiskStorage(path)
    except FileNotFoundError as error:
        # A relative path is made an absolute one.
        raise UsageError(
            f"{str(path)!r} is below the current folder, which does not exist any more; change to another, or "
            "give an absolute path"
        ) from error


def file_path(text: str) -> Path:
    """The path that a file:// URL means. UsageError for one that is relative, or of another host."""
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UsageError(
            f"{text}: a file:// URL is absolute and of this host; write it as file:///folder, or as a path"
        )
    return Path(unquote(parts.path))


def _checked(text: str, scheme: str, rest: str) -> str:
    """The URL with this scheme and without slashes at its end."""
    if any(ord(character) < 32 for character in rest):
        raise UsageError(f"{text!r} has a line break or another control character; leave it out")
    if scheme == "hf":
        url = f"hf://{rest}".rstrip("/")
        hub_place(url)
        return url
    bucket, _, prefix = rest.rstrip("/").partition("/")
    if not bucket:
        names = {"az": "container", "abfss": "container", "http": "host", "https": "host", "memory": "name"}
        what = names.get(scheme, "bucket")
        raise UsageError(f"{text} has no {what}; write {scheme}://{what}/folder")
    if scheme in ("http", "https"):
        if "?" in rest or "#" in rest:
            raise UsageError(f"{text}: files below it are asked for by name, so it cannot end in a query; leave it out")
    elif any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise UsageError(f"{text}: a part of it is empty, '.' or '..'; a key in a store has no such parts")
    if scheme == "s3" and re.search(r"[^!-~]", bucket):
        raise UsageError(f"{text}: no bucket is called {bucket!r}: its name has a space or a letter that none has")
    if scheme == "abfss" and not re.fullmatch(r"[^@]+@[^@.]+\..+", bucket):
        raise UsageError(f"{text} has no account; write abfss://container@account.dfs.core.windows.net/folder")
    return f"{scheme}://{bucket}/{prefix}".rstrip("/")


def is_half_a_url(text: str) -> bool:
    """Whether a text begins like a URL of which a slash is missing, such as s3:/bucket."""
    return _half(text) is not None


def refuse_half_a_url(text: str, *, is_path: bool) -> None:
    """UsageError for a text that is half a URL. `is_path` says that it was given as a Path."""
    half = _half(text)
    if half is not None:
        meant = f"{half[1]}://{text[half.end() :]}"
        why = "a Path cannot hold a URL; give it as text" if is_path else f"write {meant}"
        raise UsageError(f"{text} is neither a path nor a URL: {why}. A folder of that name is ./{text}")


def _half(text: str) -> re.Match[str] | None:
    half = _HALF_A_SCHEME.match(text)
    return half if half and half[1].lower() in _SCHEMES else None
