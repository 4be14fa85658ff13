"""What one unit of work found, as bytes: a Zarr store in a zip file, which is one small file instead of a hundred.

The same rows give the same bytes.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any, BinaryIO, cast

from ..errors import CorruptDataError, DatasetError
from . import zips
from .snapshots import read_attributes, read_manifest
from .tables import Manifest
from .unread import not_read


def pack(manifest: Manifest, attributes: dict[str, Any]) -> bytes:
    """The bytes of a zip file that holds the manifest, timeline included."""
    from zarr.storage import MemoryStore

    from .writer import write_manifest

    files: dict[str, Any] = {}
    write_manifest(MemoryStore(files), manifest, attributes)
    return zips.pack({name: data.to_bytes() for name, data in files.items()})


def unpack(data: bytes) -> tuple[Manifest, dict[str, Any]]:
    """The manifest in a zip file and its attributes. MissingDataError or CorruptDataError names the member that is
    wrong."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:

            def open_member(name: str) -> BinaryIO:
                return cast(BinaryIO, archive.open(name))

            return read_manifest(open_member, timeline=True), read_attributes(open_member)
    except DatasetError:
        raise
    except MemoryError as error:
        raise not_read("its zip file", error) from error
    except Exception as error:
        # zipfile has half a dozen ways to say that a file is damaged.
        raise CorruptDataError(f"not a whole zip file: {type(error).__name__}: {error}") from error
