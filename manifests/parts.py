"""What one unit of work found, as bytes: a Zarr store in a zip file, which is one small file instead of a hundred.

The same rows give the same bytes.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any, BinaryIO, cast

from .errors import CorruptDataError, DatasetError
from .snapshots import read_manifest
from .tables import Manifest
from .unread import not_read

_FILE_MODE = 0o644 << 16


def pack(manifest: Manifest, attributes: dict[str, Any]) -> bytes:
    """The bytes of a zip file that holds the manifest, timeline included."""
    from zarr.storage import MemoryStore

    from .writer import write_manifest

    files: dict[str, Any] = {}
    write_manifest(MemoryStore(files), manifest, attributes)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            # A ZipInfo made by hand has a fixed date.
            info = zipfile.ZipInfo(name)
            info.external_attr = _FILE_MODE
            archive.writestr(info, files[name].to_bytes())
    return packed.getvalue()


def unpack(data: bytes) -> Manifest:
    """The manifest in a zip file. MissingDataError or CorruptDataError names the member that is wrong."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return read_manifest(lambda name: cast(BinaryIO, archive.open(name)), timeline=True)
    except DatasetError:
        raise
    except MemoryError as error:
        raise not_read("its zip file", error) from error
    except Exception as error:
        # zipfile has half a dozen ways to say that a file is damaged.
        raise CorruptDataError(f"not a whole zip file: {type(error).__name__}: {error}") from error
