"""How the file of a snapshot is opened, and what it says of itself: its layers, its parts, its attributes.

Errors name the file that is wrong, and what to do about it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from shlex import quote
from typing import Any, BinaryIO

from ...errors import DatasetError, MissingDataError, UnreadableDataError, not_read
from ...storage.interface import Storage
from ..zarr_files import zarr_zip as zips
from ..zarr_files.zarr_arrays import OpenFile
from ..zarr_files.zarr_read import LAYERS, read_attributes, read_layers
from .layout import has_snapshot, snapshot_folder, snapshot_key
from .root_file import gone_text, is_gone, read_root


@contextlib.contextmanager
def reading(dataset: Storage, snapshot: str, soon: Callable[[str], bool] = lambda _: False) -> Iterator[OpenFile]:
    """Yields the function that opens a file of a snapshot by its key. Errors get the file's path and the remedy. `soon`
    says of each file whether it is about to be read whole."""
    with explained(dataset, snapshot), open_snapshot(dataset, snapshot, soon) as open_file:
        yield open_file


@contextlib.contextmanager
def open_snapshot(dataset: Storage, snapshot: str, soon: Callable[[str], bool] = lambda _: False) -> Iterator[OpenFile]:
    with contextlib.ExitStack() as opened:
        open_file: OpenFile
        try:
            open_file = opened.enter_context(zips.reading(dataset, snapshot_key(snapshot), soon))
        except FileNotFoundError:
            folder = snapshot_folder(dataset, snapshot)
            if folder is None:
                raise
            open_file = partial(_open, dataset, folder)
        yield open_file


@contextlib.contextmanager
def explained(dataset: Storage, snapshot: str) -> Iterator[None]:
    """Errors of a snapshot's file name it, and say what to do."""
    try:
        yield
    except FileNotFoundError:
        raise _gone(dataset, snapshot) from None
    except OSError as error:
        raise not_read(_place(dataset, snapshot), error) from error
    except DatasetError as error:
        place = _place(dataset, snapshot)
        is_folder = place != dataset.place(snapshot_key(snapshot))
        file = f"{place}/{error.file}" if error.file and is_folder else place
        if isinstance(error, UnreadableDataError):
            raise UnreadableDataError(f"{place}: {error.message}", file=file) from error
        if not is_folder and not has_snapshot(dataset, snapshot):
            raise _gone(dataset, snapshot) from error
        raise type(error)(f"{place}: {error.message}; {remedy_of(dataset, snapshot)}", file=file) from error


def _place(dataset: Storage, snapshot: str) -> str:
    """Where a snapshot lies."""
    folder = None
    with contextlib.suppress(OSError, DatasetError):
        folder = snapshot_folder(dataset, snapshot)
    return dataset.place(folder or snapshot_key(snapshot))


def _open(dataset: Storage, folder: str, key: str) -> BinaryIO:
    return BytesIO(dataset.read(f"{folder}/{key}"))


def _gone(dataset: Storage, snapshot: str) -> MissingDataError:
    path = dataset.place(snapshot_key(snapshot))
    if is_gone(dataset):
        return MissingDataError(gone_text(dataset), file=path)
    with contextlib.suppress(DatasetError):
        current = read_root(dataset).snapshot
        if current is not None and not _is_needed(dataset, snapshot):
            return MissingDataError(
                f"snapshot {snapshot} of {dataset} is gone ({path} does not exist): jobs remove old snapshots "
                f"(see `shortgop prep --keep-snapshots`); open the dataset again to read the current snapshot, "
                f"{current}",
                file=path,
            )
    return MissingDataError(f"the manifest {path} is missing; {remedy_of(dataset, snapshot)}", file=path)


def remedy_of(dataset: Storage, snapshot: str) -> str:
    """What to do about a snapshot that is lost or damaged."""
    command = f"`shortgop verify {quote(str(dataset))} --repair`"
    again = f", or run {command}, which makes it again of the files in `parts`, without encoding"
    return f"copy it to the dataset again{again if _is_needed(dataset, snapshot) else ''}"


def _is_needed(dataset: Storage, snapshot: str) -> bool:
    """Whether a snapshot is the current one or a layer below it, as far as that can be read."""
    try:
        current = read_root(dataset).snapshot
        if current in (None, snapshot):
            return True
        with open_snapshot(dataset, current or "") as open_file:
            return snapshot in layers_in(open_file)
    except (OSError, DatasetError):
        return True


def layers_below(dataset: Storage, snapshot: str) -> tuple[str, ...]:
    """The snapshots that are layers below this one, oldest first; none for most."""
    with reading(dataset, snapshot) as open_file:
        return layers_in(open_file)


def layers_in(open_file: OpenFile) -> tuple[str, ...]:
    """The snapshots that are layers below the one in a file, oldest first."""
    # A look at the names in the file takes no request. Version 1 wrote folders.
    if not isinstance(open_file, zips.Members) or f"{LAYERS}/zarr.json" not in open_file.directory:
        return ()
    return read_layers(open_file)


def snapshot_attributes(dataset: Storage, snapshot: str) -> dict[str, Any]:
    """The attributes of a snapshot: `format_version`, `parts`, and since version 2 `profile` and `written_by`. `parts`
    are those of its own rows, see `parts_in`."""
    with reading(dataset, snapshot) as open_file:
        return read_attributes(open_file)


def parts_of_layers(dataset: Storage, snapshot: str) -> dict[str, list[str]]:
    """The layers of a snapshot, oldest first and itself the last, each with the parts that its rows were made of."""
    with reading(dataset, snapshot) as open_file:
        below, own = layers_in(open_file), read_attributes(open_file)["parts"]
    return {name: snapshot_attributes(dataset, name)["parts"] for name in below} | {snapshot: own}


def parts_in(dataset: Storage, snapshot: str | None) -> set[str]:
    """The parts that a snapshot was made of, with those of its layers; none where there is no snapshot."""
    return set() if snapshot is None else set().union(*parts_of_layers(dataset, snapshot).values())
