"""Reading pieces of shards, each checked by its CRC-32."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ...errors import CorruptDataError, DatasetError, MissingDataError, not_read
from ...storage.interface import Storage
from ..dataset_files.root_file import gone_text, is_gone
from ..tables import Manifest

_Bytes = TypeVar("_Bytes", bytes, memoryview)


@dataclass(frozen=True)
class ShardPiece:
    """Bytes [start, stop) of a shard, an init or a GOP, and their CRC-32."""

    start: int
    stop: int
    crc32: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise CorruptDataError(
                f"bytes {self.start} to {self.stop} are no range: the manifest is damaged",
                byte_range=(self.start, self.stop),
            )


def init_piece(manifest: Manifest, segment: int) -> ShardPiece:
    """ftyp + moov of a row of the table of segments. CorruptDataError when the manifest gives no range of bytes."""
    table = manifest.segments
    start = int(table.offset[segment])
    return ShardPiece(start, start + int(table.init_length[segment]), int(table.init_crc32[segment]))


def gop_piece(manifest: Manifest, gop: int) -> ShardPiece:
    """moof + mdat of a row of the table of GOPs, likewise."""
    table = manifest.gops
    start = int(table.offset[gop])
    return ShardPiece(start, start + int(table.length[gop]), int(table.crc32[gop]))


class ShardBytes:
    """Reads byte ranges of a dataset's files. Any number of threads may use it."""

    def __init__(self, dataset: Storage, *, lost_remedy: str = "", damage_remedy: str = "") -> None:
        """The remedies stand in the errors about missing and about damaged bytes."""
        self._dataset = dataset
        self._lost_remedy = lost_remedy
        self._damage_remedy = f"; {damage_remedy}" if damage_remedy else ""

    def piece(self, key: str, piece: ShardPiece) -> bytes:
        """The bytes of a piece. Errors are those of `read` and of `checked`."""
        return self.checked(self.read(key, piece.start, piece.stop), key, piece)

    def checked(
        self, data: _Bytes, key: str, piece: ShardPiece, *, on_read: Callable[[int], object] = lambda _: None
    ) -> _Bytes | bytes:
        """`data` if it has the piece's CRC-32; else what the file has there when it is read again.

        `on_read` is called with the number of bytes of a second read. CorruptDataError when its CRC-32 differs too.
        """
        if zlib.crc32(data) == piece.crc32:
            return data
        again = self.read(key, piece.start, piece.stop, again=True)
        on_read(len(again))
        if zlib.crc32(again) != piece.crc32:
            raise CorruptDataError(
                f"the bytes are not those that were written: their CRC-32 differs{self._damage_remedy}",
                file=self._dataset.place(key),
                byte_range=(piece.start, piece.stop),
            )
        return again

    def read(self, key: str, start: int, stop: int, *, again: bool = False) -> bytes:
        """Bytes [start, stop) of a file, `again` if those that were read before are wrong.

        MissingDataError when the file is missing or ends before `stop`, UnreadableDataError when the system refuses to
        read it. Both name the remedy.
        """
        try:
            return self._dataset.read(key, start, stop, again=again)
        except EOFError as error:
            file = self._dataset.place(key)
            raise MissingDataError(
                f"{file} ends before byte {stop}, it was cut{'; ' if self._lost_remedy else ''}{self._lost_remedy}",
                file=file,
                byte_range=(start, stop),
            ) from error
        except OSError as error:
            # A shard that is missing is not the trouble where all of the dataset is.
            if isinstance(error, FileNotFoundError | NotADirectoryError) and is_gone(self._dataset):
                refused: DatasetError = MissingDataError(gone_text(self._dataset), file=self._dataset.place(key))
            else:
                refused = not_read(self._dataset.place(key), error, remedy=self._lost_remedy)
            refused.byte_range = (start, stop)
            raise refused from error
