"""Paths that mean the same wherever a unit of work runs."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import WrongTypeError
from ...storage.locate import file_path, from_home, refuse_half_a_url
from .addresses import is_store_url, url_below


def can_be_a_path(text: str) -> bool:
    """Whether the operating system accepts the text as a path. The file need not exist."""
    if text.isascii():
        return bool(text) and "\0" not in text
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def without_scheme(text: str) -> str:
    """The path that a file:// URL means; any other text as it is. UsageError for one of another host."""
    return str(file_path(text)) if "://" in text and text[:7].lower() == "file://" else text


def text_of(source: str | os.PathLike[str]) -> str:
    """A source as text. UsageError for a Path that was made of a URL, and so lost a slash, and for what is no path."""
    if not isinstance(source, str | os.PathLike) or not isinstance(text := os.fspath(source), str):
        raise WrongTypeError(f"{source!r} is no path; give a path, or a URL as text")
    if not isinstance(source, str) and not os.path.lexists(text):
        refuse_half_a_url(text, is_path=True)
    return text


def absolute(path: Path) -> Path:
    """The absolute path, which means the same in any process. Links are kept: a link's name stays when its target
    moves."""
    return Path(from_home(str(path))).absolute()


def is_shortest(path: str) -> bool:
    """Whether a path is certainly in its shortest form: then `normpath` and `Path` leave it as it is, and need not be
    called for each of a million lines. False for some that are."""
    # Methods such as startswith would take longer.
    return bool(path) and path[0] != "." and path[-1] != "/" and "//" not in path and "/." not in path


def absolute_below(folder: str, path: str) -> str:
    """The absolute path of a path that may be relative to a folder, which is absolute."""
    joined = path if path.startswith("/") else f"{folder}/{path}"
    return joined if is_shortest(joined) else str(Path(folder, path))


def place_of_listed(root: str, path: str) -> str:
    """Where the file is that a list names by a path: an absolute path, or a URL. Relative paths begin in `root`, an
    absolute folder or the URL of one. A path from `/` or from `~` is one of this machine, wherever the list lies."""
    path = from_home(without_scheme(path))
    if is_store_url(path) or (is_store_url(root) and not path.startswith("/")):
        return url_below(root, path)
    return absolute_below(root, path)
