"""Files that are written for somebody who named them: exported videos, pictures, charts.

The rule is the same for all of them. The suffix says what kind of file it becomes. A file that exists is replaced
only where that was asked for. A path within a dataset is never written to, and neither is the source of a video,
whatever was asked for: both may be all there is of somebody's footage. What is written appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

from ..errors import OutputError, UsageError
from ..whole_files import discarding, flush, writing
from .layout import open_current
from .tables import Manifest

_ROOT_FILE, _ROOT_MARK = "zarr.json", b'"shortgop"'
_ROOT_BYTES = 1 << 20
# Where there are no hard links.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def check_output(out: Path, *, suffixes: Iterable[str], overwrite: bool, sources: Iterable[str] = ()) -> None:
    """UsageError when `out` must not be written, OutputError when it cannot be; nothing is written.

    `suffixes` are those that it may have, in small letters; `sources` are the files that it must not be.
    """
    with writing(out):
        if out.is_dir() or not out.name:
            raise OutputError(f"{out} is a folder; give the name of a file", file=str(out))
        if out.exists() and not out.is_file():
            raise OutputError(f"{out} is no ordinary file; give the name of one, or of a new one", file=str(out))
        known = sorted(suffixes)
        if out.suffix.lower() not in known:
            raise UsageError(
                f"{out} ends in {out.suffix!r}, which says nothing of what to write; it can be {', '.join(known)}",
                file=str(out),
            )
        real = out.resolve()
        # Links may lead into a dataset, and a dataset may hold links that lead out of it.
        for folder in (*out.absolute().parents, *real.parents):
            if _is_root(folder):
                raise UsageError(
                    f"{out} lies within the dataset {folder}; a dataset holds only what `shortgop prep` writes: write "
                    "somewhere else",
                    file=str(out),
                )
        if not real.exists():
            return
        identity = _identity(real)
        if any(_is_source(real, identity, source) for source in sources):
            raise UsageError(
                f"{out} is the source of a video of the dataset; it is never written over: write somewhere else",
                file=str(out),
            )
        if not overwrite:
            raise UsageError(
                f"{out} exists; write somewhere else, or have it replaced with --overwrite (overwrite=True)",
                file=str(out),
            )


@contextlib.contextmanager
def new_file(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """A path beside `out` to write to, which becomes `out`, or what `out` is a link to, when all went well.

    `check_output` comes first. OutputError when the file cannot be written; then everything is as it was before.
    """
    with writing(out):
        final = out.resolve()
        temporary = final.with_name(f".{uuid4().hex[:12]}.tmp")
        with discarding(temporary):
            yield temporary
            flush(temporary)
            if overwrite:
                temporary.replace(final)
            else:
                _publish(temporary, final)


def sources_of(manifest: Manifest) -> Iterator[str]:
    """Every source that a dataset was made from, or was to be made from: as it was given, and its absolute path."""
    for table in (manifest.videos, manifest.failures):
        yield from table.source.texts()
        yield from (path for path in table.path.texts() if path)


def sources_in(dataset: Path) -> Iterator[str]:
    """The same of a dataset's current snapshot, which is opened once somebody asks: most files are new ones."""
    yield from sources_of(open_current(dataset)[1])


def _is_source(file: Path, identity: tuple[int, int] | None, source: str) -> bool:
    # Bytes of a name that are not UTF-8 are written out in a manifest.
    if any(_identity(Path(path)) == identity for path in {source, _written_back(source)}):
        return True
    # Given in another folder, and kept as nothing else in datasets of version 1.
    parts = Path(source).parts
    return not Path(source).is_absolute() and file.parts[-len(parts) :] == parts


def _written_back(text: str) -> str:
    return re.sub(r"\\udc([89a-f][0-9a-f])", lambda match: chr(0xDC00 + int(match[1], 16)), text)


def _publish(temporary: Path, final: Path) -> None:
    """Rename, unless somebody has put a file there meanwhile."""
    try:
        final.hardlink_to(temporary)
    except FileExistsError:
        raise UsageError(
            f"{final} has come to exist meanwhile; write somewhere else, or have it replaced with --overwrite "
            "(overwrite=True)",
            file=str(final),
        ) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        temporary.rename(final)
        return
    temporary.unlink()


def _is_root(folder: Path) -> bool:
    """Whether a dataset begins here: its root names the product, even where it is damaged."""
    try:
        with (folder / _ROOT_FILE).open("rb") as file:
            return _ROOT_MARK in file.read(_ROOT_BYTES)
    except OSError:
        return False


def _identity(file: Path) -> tuple[int, int] | None:
    """What a file is, under whatever name and through whatever links; None where there is none."""
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
