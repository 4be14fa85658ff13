"""Files at paths that the user chose: exported videos, pictures, charts.

The same rules hold for all of them. The suffix chooses the kind of file. An existing file is replaced only on request.
A path within a dataset is never written to, and neither is the source of a video: either may be the only copy of the
footage. A file appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from uuid import uuid4

from ...errors import OutputError, UsageError
from ...storage.interface import Storage
from ...whole_files import NO_HARD_LINKS, discarding, flush, writing
from ..dataset_files.snapshots import open_current
from ..shared_memory.host_copies import copies_in
from ..tables import Manifest

_ROOT_FILE, _ROOT_MARK = "zarr.json", b'"shortgop"'
_ROOT_BYTES = 1 << 20


def check_output(out: Path, *, suffixes: Iterable[str], overwrite: bool, sources: Iterable[str] = ()) -> None:
    """UsageError if `out` must not be written, OutputError if it cannot be. Nothing is written here.

    `suffixes` are the allowed ones, in lower case. `sources` are the files that `out` must not be.
    """
    with writing(out):
        if out.is_dir() or not out.name:
            raise OutputError(f"{out} is a folder; give the name of a file", file=str(out))
        if out.exists() and not out.is_file():
            raise OutputError(f"{out} is not an ordinary file; give the name of one, or of a new file", file=str(out))
        known = sorted(suffixes)
        if out.suffix.lower() not in known:
            raise UsageError(
                f"{out} ends in {out.suffix!r}; give a name that ends in one of {', '.join(known)}",
                file=str(out),
            )
        check_is_in_no_dataset(out)
        real = _resolved(out)
        if not real.exists():
            return
        identity = file_identity(real)
        if any(_is_source(real, identity, source) for source in sources):
            raise UsageError(
                f"{out} is the source of a video of the dataset and is never replaced; write somewhere else",
                file=str(out),
            )
        if not overwrite:
            raise UsageError(
                f"{out} exists; write somewhere else, or replace it with --overwrite (overwrite=True in Python)",
                file=str(out),
            )


def check_is_in_no_dataset(out: Path) -> None:
    """UsageError if a file or folder is a dataset or lies in one."""
    real = _resolved(out)
    # Links may lead into a dataset, and a dataset may hold links that lead out of it.
    for folder in (out.absolute(), *out.absolute().parents, real, *real.parents):
        if _is_root(folder):
            raise UsageError(
                f"{out} lies within the dataset {folder}, which holds only what `shortgop prep` writes; write "
                "somewhere else",
                file=str(out),
            )


@contextlib.contextmanager
def new_file(out: Path, *, overwrite: bool, new_folders: bool = False) -> Iterator[Path]:
    """Yields a path beside `out` to write to. On success the file there becomes `out`, or the target of `out` if that
    is a link. With `new_folders` the folders that `out` lies in are made.

    Call `check_output` first. OutputError if the file cannot be written; then everything is as it was before.
    """
    with writing(out), contextlib.ExitStack() as kept:
        final = _resolved(out)
        if new_folders:
            kept.enter_context(_folders_made(final.parent))
        temporary = final.with_name(f".{uuid4().hex[:12]}.tmp")
        with discarding(temporary):
            yield temporary
            flush(temporary)
            if overwrite:
                temporary.replace(final)
            else:
                _publish(temporary, final)


@contextlib.contextmanager
def _folders_made(folder: Path) -> Iterator[None]:
    """Makes a folder and those that it lies in. If the block fails, those of them that are empty are removed again."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()
        raise


def sources_of(manifest: Manifest) -> Iterator[str]:
    """Every source of a dataset, prepared or failed: its absolute path where that is known, and the path as it was
    given, which is relative only where no other is known that still leads to a file."""
    for table in (manifest.videos, manifest.failures):
        for source, path in zip(table.source.each_text(), table.path.each_text(), strict=True):
            if path:
                yield path
            # Footage is moved, and a mount may have another path: then the end of the path is all that is known.
            if not path or file_identity(Path(_written_back(path))) is None:
                yield source
                continue
            # Without a current folder, which may have been removed, a relative path leads nowhere.
            with contextlib.suppress(FileNotFoundError):
                yield os.path.abspath(source)  # noqa: PTH100  # Path takes longer


def sources_by_file(manifest: Manifest, *, moved: bool) -> Callable[[Path], list[str]]:
    """A function that gives those of `sources_of` that a file is, for many files: they are gone through once. With
    `moved` also those that it may be, as its path ends like the relative one that the source had."""

    @cache
    def known() -> tuple[dict[tuple[int, int] | None, str], dict[tuple[str, ...], str]]:
        sources = list(sources_of(manifest))
        named = {file_identity(Path(path)): source for source in sources for path in (source, _written_back(source))}
        relative = {Path(source).parts: source for source in sources if moved and _is_relative(source)}
        return named, relative

    def that_may_be(file: Path) -> list[str]:
        named, relative = known()
        identity = file_identity(file)
        parts = file.resolve().parts if relative else ()
        ends = (parts[first:] for first in range(1, len(parts)))
        found = [relative[end] for end in ends if end in relative]
        return [*found, *([named[identity]] if identity is not None and identity in named else ())]

    return that_may_be


def sources_in(dataset: Storage) -> Iterator[str]:
    """`sources_of` the current snapshot, which is opened only on iteration: most outputs are new files and need no
    comparison."""
    yield from sources_of(open_current(dataset, copies=copies_in(None))[1])


def _is_source(file: Path, identity: tuple[int, int] | None, source: str) -> bool:
    # A manifest holds bytes of a file name that are not UTF-8 as \udc.. text.
    if any(file_identity(Path(path)) == identity for path in {source, _written_back(source)}):
        return True
    # The path as it was given may be relative to another folder than the current one.
    parts = Path(source).parts
    return _is_relative(source) and file.parts[-len(parts) :] == parts


def _is_relative(source: str) -> bool:
    return not Path(source).is_absolute() and "://" not in source


def _written_back(text: str) -> str:
    return re.sub(r"\\udc([89a-f][0-9a-f])", lambda match: chr(0xDC00 + int(match[1], 16)), text)


def _resolved(path: Path) -> Path:
    """The path without links. OSError for links that lead to each other; `Path` raises another error before 3.13."""
    try:
        return path.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def _publish(temporary: Path, final: Path) -> None:
    """Give the file its final name, unless another process has created a file of that name meanwhile."""
    try:
        final.hardlink_to(temporary)
    except FileExistsError:
        raise UsageError(
            f"{final} was created meanwhile; write somewhere else, or replace it with --overwrite (overwrite=True in "
            "Python)",
            file=str(final),
        ) from None
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        temporary.rename(final)
        return
    temporary.unlink()


def _is_root(folder: Path) -> bool:
    """Whether this folder is a dataset. Even a damaged root names the product."""
    try:
        with (folder / _ROOT_FILE).open("rb") as file:
            return _ROOT_MARK in file.read(_ROOT_BYTES)
    except OSError:
        return False


def file_identity(file: Path) -> tuple[int, int] | None:
    """Device and inode of a file, the same for all its names and links; None if it does not exist."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
