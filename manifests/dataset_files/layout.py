"""The files of a dataset: which is where, and which are there.

    zarr.json                the root; its attributes name the format version, the profile and the snapshot
    manifest/<snapshot>.zip  immutable tables; a folder if version 1 of the format wrote it
    parts/<part>.zip         the tables of one unit of work
    sections/<section>.zip   the tables of one section of a long video that is not finished
    shards/<name>.shard      segments back to back
    .status.json             how far the last job is, for people

Only zarr.json, .status.json, and parts from which dropped rows are taken, are ever replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import not_read
from ...storage.interface import LOCK_KEY, Storage, Stored

ROOT_KEY = "zarr.json"
_SHARD = re.compile(r"\w+-\d+(-[0-9a-f]+(\.\d+)?)?\.shard")


# Keys and names


def shard_key(name: str) -> str:
    return f"shards/{name}"


def is_shard(name: str) -> bool:
    """Whether a file of the shards folder has a name such as shards get."""
    return _SHARD.fullmatch(name) is not None


def unit_of_shard(name: str) -> str:
    """The unit that a shard belongs to."""
    # The shards of a section are named after its unit and its number in it.
    return name.partition("-")[0].partition("_")[0]


def part_key(part: str) -> str:
    return f"parts/{part}.zip"


def snapshot_key(snapshot: str) -> str:
    """The key of a snapshot's file. Version 1 of the format wrote a folder, see `snapshot_folder`."""
    return f"manifest/{snapshot}.zip"


# What is there


def listed(dataset: Storage, folder: str) -> Iterator[Stored]:
    """The files below a folder, in no order. UnreadableDataError if they cannot be listed, or one of them cannot be
    looked at."""
    try:
        yield from dataset.files(folder)
    except OSError as error:
        # On a disk the error names what was refused: the folder, one within it, or a file.
        refused, place = str(error.filename), dataset.place(folder)
        raise not_read(refused if refused.startswith(place) else place, error) from error


def file_at(dataset: Storage, key: str) -> Stored | None:
    """A file's length, time and version; None if there is none. UnreadableDataError if that cannot be found out."""
    try:
        return dataset.find(key)
    except OSError as error:
        raise not_read(dataset.place(key), error) from error


def shard_lengths(dataset: Storage) -> dict[str, int]:
    """The number of bytes of each file in the shards folder, by its name."""
    return {stored.key.removeprefix(shard_key("")): stored.num_bytes for stored in listed(dataset, "shards")}


def snapshots(dataset: Storage) -> dict[str, list[Stored]]:
    """The files of all snapshots that are there, current or not, by name: decimal digits. The latest comes first."""
    found: dict[str, list[Stored]] = {}
    for stored in listed(dataset, "manifest"):
        found.setdefault(stored.key.split("/")[1].removesuffix(".zip"), []).append(stored)
    return {name: found[name] for name in sorted(filter(str.isdecimal, found), key=int, reverse=True)}


def time_there(dataset: Storage) -> float:
    """A time that has passed by the clock of the place, in seconds since 1970. For whoever holds the writer lock it is
    about now: that of the lock, or of the latest snapshot."""
    lock = file_at(dataset, LOCK_KEY)
    times = [stored.modified_ns for files in snapshots(dataset).values() for stored in files]
    return max([*times, 0 if lock is None else lock.modified_ns]) / 1e9


def has_snapshot(dataset: Storage, snapshot: str) -> bool:
    """Whether a snapshot is there. Nothing is listed, which not every store allows."""
    return file_at(dataset, snapshot_key(snapshot)) is not None or snapshot_folder(dataset, snapshot) is not None


def snapshot_folder(dataset: Storage, snapshot: str) -> str | None:
    """The folder that version 1 of the format wrote as this snapshot; None if there is none."""
    folder = f"manifest/{snapshot}"
    return folder if any(listed(dataset, folder)) and not file_at(dataset, snapshot_key(snapshot)) else None
