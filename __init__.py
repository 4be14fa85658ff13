"""Shortgop: videos re-encoded once to short GOPs, and readers that turn any frames of them into tensors.

import shortgop
dataset = shortgop.open("dataset")
clip = dataset["kitchen/001.mp4"].get_frames_at([0, 4, 8, 12])   # clip.data: uint8, (4, 3, height, width)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    CorruptDataError,
    DamagedSourceError,
    DatasetBusyError,
    DatasetError,
    DatasetWarning,
    DecodeError,
    EncodeError,
    FormatVersionError,
    FrameIndexError,
    MissingDataError,
    NotADatasetError,
    NotAVideoError,
    OutputError,
    ShortGopError,
    SourceError,
    SourceNotFoundError,
    ToolError,
    UnreadableDataError,
    UsageError,
    VideoNotFoundError,
    WrongTypeError,
)

if TYPE_CHECKING:
    from .readers.dataset import Dataset, open  # noqa: A004
    from .readers.frames import ClipBatch, Frame, FrameBatch
    from .readers.stats import Stats
    from .readers.video import Video

__version__ = "0.1.0"

__all__ = [
    "ClipBatch",
    "CorruptDataError",
    "DamagedSourceError",
    "Dataset",
    "DatasetBusyError",
    "DatasetError",
    "DatasetWarning",
    "DecodeError",
    "EncodeError",
    "FormatVersionError",
    "Frame",
    "FrameBatch",
    "FrameIndexError",
    "MissingDataError",
    "NotADatasetError",
    "NotAVideoError",
    "OutputError",
    "ShortGopError",
    "SourceError",
    "SourceNotFoundError",
    "Stats",
    "ToolError",
    "UnreadableDataError",
    "UsageError",
    "Video",
    "VideoNotFoundError",
    "WrongTypeError",
    "__version__",
    "open",
]

_FROM_READERS = {
    "ClipBatch": "frames",
    "Dataset": "dataset",
    "Frame": "frames",
    "FrameBatch": "frames",
    "Stats": "stats",
    "Video": "video",
    "open": "dataset",
}


def __getattr__(name: str) -> Any:
    # Readers import torch, which takes seconds. The command line and prep jobs do not need it.
    if name in _FROM_READERS:
        from importlib import import_module

        return getattr(import_module(f".readers.{_FROM_READERS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
