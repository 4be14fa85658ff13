"""Parts: the results of one unit of work, as a Zarr store in one zip file instead of a hundred small files.

The same rows give the same bytes. A part is committed after its shards; from then on its unit is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

import numpy as np

from ...errors import CorruptDataError, DatasetError, MissingDataError, UnreadableDataError, not_read
from ...storage.interface import Storage
from ..label_columns import LabelColumn
from ..ragged import Array
from ..tables import TABLE_TYPES, Manifest, Table
from ..zarr_files import zarr_zip as zips
from ..zarr_files.zarr_read import read_attributes, read_manifest
from ..zarr_files.zarr_small import is_small, small_files
from .layout import file_at, listed, part_key
from .root_file import version_to_state


def pack(
    manifest: Manifest,
    attributes: dict[str, Any],
    timeline: Iterable[Array] | None = None,
    columns: Mapping[str, LabelColumn] | None = None,
    *,
    layers: Sequence[str] = (),
) -> bytes:
    """The bytes of a zip file that holds the manifest, timeline included.

    `timeline` brings the rows of a manifest that does not hold them, and `columns` and `layers` belong to a snapshot,
    all as `zarr_write.write_manifest` takes them.
    """
    if is_small(manifest, columns):
        return zips.pack(small_files(manifest, attributes, timeline, columns, layers=layers))
    from zarr.storage import MemoryStore

    from ..zarr_files.zarr_write import write_manifest

    files: dict[str, Any] = {}
    write_manifest(MemoryStore(files), manifest, attributes, timeline, columns, layers=layers)
    return zips.pack({name: data.to_bytes() for name, data in files.items()})


def unpack(data: bytes) -> tuple[Manifest, dict[str, Any]]:
    """The manifest in a zip file, and its attributes. MissingDataError or CorruptDataError names the member that is
    wrong."""
    try:
        open_member = zips.opened(data)
        return read_manifest(open_member, timeline=True), read_attributes(open_member)
    except DatasetError:
        raise
    except MemoryError as error:
        raise not_read("its zip file", error) from error
    except Exception as error:
        # zipfile has half a dozen ways to say that a file is damaged.
        raise CorruptDataError(f"not a whole zip file: {type(error).__name__}: {error}") from error


def write_part(
    dataset: Storage,
    unit: str,
    manifest: Manifest,
    profile: Mapping[str, Any] | None = None,
    *,
    unused: Mapping[str, tuple[int, int]] | None = None,
    again: bool = False,
) -> None:
    """Commit the results of a unit, whose shards must be in place. From then on the unit is done.

    `profile` is the one that its videos were encoded with. A snapshot takes in videos of one profile only. `unused`
    names, by shard, bytes [start, stop) that belong to no video: of a source that failed after a store had them.

    A unit may be done more than once: each job retries a unit whose sources all failed, and a worker that was thought
    dead may end after its successor. Earlier parts are never changed. A part that says the same as an earlier one
    (without videos: as the last one) is written only with `again`.
    """
    attempts = _attempts(dataset, unit)
    for part in attempts if len(manifest.videos) else attempts[-1:]:
        if not again and _same_outcome(read_part(dataset, part), manifest):
            return
    attributes: dict[str, Any] = {"format_version": version_to_state(profile), "unit": unit}
    if profile is not None:
        attributes["profile"] = dict(profile)
    if unused:
        attributes["unused"] = {shard: list(range_) for shard, range_ in sorted(unused.items())}
    packed = pack(manifest, attributes)
    number = len(attempts)
    # Another attempt at the same unit may have taken the name since the parts were listed.
    while not dataset.put_new(part_key(f"{unit}.{number}" if number else unit), packed):
        number += 1


def _attempts(dataset: Storage, unit: str) -> list[str]:
    """The parts of a unit, oldest first. They are looked up by name: listing all parts may take many requests."""
    names = (f"{unit}.{number}" if number else unit for number in count())
    return list(takewhile(lambda part: file_at(dataset, part_key(part)) is not None, names))


def unit_of_content(content: object) -> str:
    """The name of a unit that comes of no sources, such as one of labels: the same for the same `content`, so that the
    part is found where the unit is done again. `content` has a `repr` of all that it holds."""
    return hashlib.blake2b(repr(content).encode(), digest_size=8).hexdigest()


def unit_of(part: str) -> str:
    """The unit that a part belongs to."""
    return part.partition(".")[0]


def _same_outcome(one: Manifest, other: Manifest) -> bool:
    """Whether both hold the same rows, apart from the times of failures."""

    def tables(manifest: Manifest) -> Iterator[Table]:
        for name in TABLE_TYPES:
            table = getattr(manifest, name)
            yield replace(table, attempted_ns=np.zeros_like(table.attempted_ns)) if name == "failures" else table

    return all(a.same_rows(b) for a, b in zip(tables(one), tables(other), strict=True))


def read_part(dataset: Storage, part: str) -> Manifest:
    """The tables of one part. MissingDataError or CorruptDataError names the part and the remedy."""
    return open_part(dataset, part)[0]


def open_part(dataset: Storage, part: str, *, in_snapshot: bool = True) -> tuple[Manifest, dict[str, Any]]:
    """Like `read_part`, with the part's attributes: `format_version`, `unit`, and `profile` if it has videos.

    No command writes a part again that is in a snapshot. Of one that is not, the remedy is to run its command again.
    """
    file = dataset.place(part_key(part))
    remedy = "copy it to the dataset again"
    if not in_snapshot:
        # Not all parts are of sources: one of labels would be missed after a job, too.
        remedy += ", or remove it and run the command again that wrote it, such as `shortgop prep`, annotate or drop"
    try:
        return unpack(dataset.read(part_key(part)))
    except FileNotFoundError as error:
        raise MissingDataError(f"{file}: {error.strerror}; {remedy}", file=file) from error
    except (OSError, MemoryError) as error:
        raise not_read(file, error) from error
    except UnreadableDataError as error:
        raise UnreadableDataError(f"{file}: {error.message}", file=file) from error
    except DatasetError as error:
        raise CorruptDataError(f"{file}: {error.message}; {remedy}", file=file) from error


def finished_parts(dataset: Storage) -> set[str]:
    """Names of all committed parts: the unit's id, followed by `.1`, `.2` ... for further attempts."""
    names = (stored.key.removeprefix("parts/") for stored in listed(dataset, "parts"))
    return {name.removesuffix(".zip") for name in names if name.endswith(".zip")}


def finished_units(dataset: Storage) -> set[str]:
    """Units that have a committed part."""
    return {unit_of(part) for part in finished_parts(dataset)}


def had_videos(dataset: Storage, unit: str) -> bool:
    """Whether an attempt at the unit had videos, even if they were dropped since."""
    return any(len(rows.videos) or attributes.get("cleaned") for rows, attributes in parts_of_unit(dataset, unit))


def clean_part(dataset: Storage, part: str, manifest: Manifest, attributes: Mapping[str, Any]) -> None:
    """Replace a part by one without rows that were dropped. `attributes` are those of the part as it is."""
    version = version_to_state(attributes.get("profile"))
    packed = pack(manifest, {**attributes, "format_version": version, "cleaned": True})
    key = part_key(part)
    stored = file_at(dataset, key)
    # If the part was replaced meanwhile, the other writer did the same: both hold what the next merge keeps.
    if stored is not None:
        dataset.replace(key, packed, stored.version)


def parts_of_unit(dataset: Storage, unit: str) -> list[tuple[Manifest, dict[str, Any]]]:
    """The tables and the attributes of each attempt at a unit, oldest first."""
    return [open_part(dataset, part) for part in _attempts(dataset, unit)]
