"""Shortgop: videos re-encoded once to short GOPs, and readers that turn any frames of them into tensors.

import shortgop
dataset = shortgop.open("dataset")
clip = dataset["kitchen/001.mp4"].get_frames_at([0, 4, 8, 12])   # clip.data: uint8, (4, 3, height, width)
"""

from __future__ import annotations

import sys
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
    TooManyFailuresError,
    UnreadableDataError,
    UsageError,
    VideoNotFoundError,
    WrongTypeError,
)
from .version import __version__

if sys.platform == "win32":
    raise ImportError("shortgop does not run on Windows itself: install it in WSL, and run it there")

if TYPE_CHECKING:
    from .jobs.named_options import prepare
    from .jobs.outcome import Report
    from .jobs.progress.tally import Progress
    from .jobs.sources.labels import annotate
    from .jobs.units_of_work.unit_results import Failure
    from .ray_data.ray_dataset import ray_dataset
    from .readers.dataset import Dataset
    from .readers.frames import ClipBatch, Frame, FrameBatch
    from .readers.open_dataset import open  # noqa: A004
    from .readers.stats import Stats
    from .readers.video import Video
    from .training.datasets.clip_dataset import ClipDataset
    from .training.datasets.mixed import MixedClips
    from .training.loader.clip_loader import ClipLoader
    from .training.loader.loader_stats import LoaderStats
    from .training.pixels.outputs import Output
    from .training.robots.robot_clips import LeRobotClips
    from .training.sampling.bucket_sampler import BucketSampler
    from .training.sampling.class_batches import ClassBatches
    from .training.sampling.continued import Continued
    from .training.sampling.effective import (
        best_chunk,
        chunk_correlation,
        effective_batch_size,
        gops_per_sample,
        measured_chunk_correlation,
    )
    from .training.sampling.orders import (
        Chunked,
        ClassBalanced,
        Mixture,
        OneClipPerVideo,
        Sequential,
        Shuffled,
        Systematic,
        Weighted,
    )
    from .training.sampling.sampler import ElasticSampler
    from .training.which_clips.clip_table import ClipTable
    from .training.which_clips.clips_by import ClipsBy
    from .training.which_clips.offsets import MultiRate, Offsets
    from .training.which_clips.policies import (
        AllClips,
        CenterClips,
        ClipsAt,
        RandomClips,
        RandomFrames,
        SegmentFrames,
        UniformClips,
    )
    from .training.which_clips.stretches import Stretches

__all__ = [
    "AllClips",
    "BucketSampler",
    "CenterClips",
    "Chunked",
    "ClassBalanced",
    "ClassBatches",
    "ClipBatch",
    "ClipDataset",
    "ClipLoader",
    "ClipTable",
    "ClipsAt",
    "ClipsBy",
    "Continued",
    "CorruptDataError",
    "DamagedSourceError",
    "Dataset",
    "DatasetBusyError",
    "DatasetError",
    "DatasetWarning",
    "DecodeError",
    "ElasticSampler",
    "EncodeError",
    "Failure",
    "FormatVersionError",
    "Frame",
    "FrameBatch",
    "FrameIndexError",
    "LeRobotClips",
    "LoaderStats",
    "MissingDataError",
    "MixedClips",
    "Mixture",
    "MultiRate",
    "NotADatasetError",
    "NotAVideoError",
    "Offsets",
    "OneClipPerVideo",
    "Output",
    "OutputError",
    "Progress",
    "RandomClips",
    "RandomFrames",
    "Report",
    "SegmentFrames",
    "Sequential",
    "ShortGopError",
    "Shuffled",
    "SourceError",
    "SourceNotFoundError",
    "Stats",
    "Stretches",
    "Systematic",
    "TooManyFailuresError",
    "ToolError",
    "UniformClips",
    "UnreadableDataError",
    "UsageError",
    "Video",
    "VideoNotFoundError",
    "Weighted",
    "WrongTypeError",
    "__version__",
    "annotate",
    "best_chunk",
    "chunk_correlation",
    "effective_batch_size",
    "gops_per_sample",
    "measured_chunk_correlation",
    "open",
    "prepare",
    "ray_dataset",
]

# Where the names are that come when they are asked for.
_MODULES = {
    "jobs.sources.labels": ("annotate",),
    "jobs.named_options": ("prepare",),
    "jobs.outcome": ("Report",),
    "jobs.progress.tally": ("Progress",),
    "jobs.units_of_work.unit_results": ("Failure",),
    "ray_data.ray_dataset": ("ray_dataset",),
    "readers.dataset": ("Dataset",),
    "readers.frames": ("ClipBatch", "Frame", "FrameBatch"),
    "readers.open_dataset": ("open",),
    "readers.stats": ("Stats",),
    "readers.video": ("Video",),
    "training.sampling.bucket_sampler": ("BucketSampler",),
    "training.sampling.class_batches": ("ClassBatches",),
    "training.sampling.continued": ("Continued",),
    "training.datasets.clip_dataset": ("ClipDataset",),
    "training.which_clips.clip_table": ("ClipTable",),
    "training.which_clips.clips_by": ("ClipsBy",),
    "training.sampling.effective": (
        *("best_chunk", "chunk_correlation", "effective_batch_size", "gops_per_sample", "measured_chunk_correlation"),
    ),
    "training.loader.clip_loader": ("ClipLoader",),
    "training.loader.loader_stats": ("LoaderStats",),
    "training.datasets.mixed": ("MixedClips",),
    "training.which_clips.offsets": ("MultiRate", "Offsets"),
    "training.sampling.orders": (
        *("Chunked", "ClassBalanced", "Mixture", "OneClipPerVideo", "Sequential", "Shuffled", "Systematic"),
        "Weighted",
    ),
    "training.pixels.outputs": ("Output",),
    "training.which_clips.policies": (
        *("AllClips", "CenterClips", "ClipsAt", "RandomClips", "RandomFrames", "SegmentFrames", "UniformClips"),
    ),
    "training.robots.robot_clips": ("LeRobotClips",),
    "training.sampling.sampler": ("ElasticSampler",),
    "training.which_clips.stretches": ("Stretches",),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Readers import torch, which takes seconds. The command line and prep jobs do not need it.
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
