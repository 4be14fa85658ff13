"""Opens a dataset for reading: `shortgop.open`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..errors import UsageError, WrongTypeError
from ..manifests.dataset_files.layout import has_snapshot
from ..manifests.dataset_files.root_file import Root, read_root
from ..manifests.dataset_files.snapshots import open_current, open_manifest
from ..manifests.operations.lost import lost_shards, lost_text
from ..manifests.shared_memory.host_copies import HostCopies
from ..manifests.tables import Manifest
from ..storage.interface import Storage
from ..storage.locate import storage_at
from ..storage.network import NetworkOptions
from ..warned import warn
from ..wording import counted
from .dataset import Dataset
from .decoders.choose import DeviceChoice, caps_of, chosen, device_of
from .frame_format import Color, Crop, DimensionOrder, FrameFormat, Interpolation, Normalize, Size
from .reader import ReadOptions, SnapshotReader
from .store_options import cache_at, copies_of, limits_of, network_of

# Ten requests' worth. In a store with more shards, a lost one is noticed when it is read.
_MAX_LISTED_SHARDS = 10_000


def open(  # noqa: A001
    path: str | os.PathLike[str],
    *,
    snapshot: str | None = None,
    dimension_order: DimensionOrder = "NCHW",
    size: Size | None = None,
    crop: Crop | None = None,
    dtype: torch.dtype = torch.uint8,
    normalize: Normalize | None = None,
    color: Color = "rgb",
    interpolation: Interpolation = "bilinear",
    device: torch.device | str | None = None,
    fallback: bool = False,
    threads: int | None = None,
    pool_bytes: int = 1 << 30,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int = 1 << 35,
    max_gap_bytes: int | None = None,
    hedge_after: float | None = None,
    give_up_after: float | None = None,
    strict: bool = False,
) -> Dataset:
    """Open the dataset that `shortgop prep` made at `path`: its current or an earlier `snapshot`.

    The opened dataset does not change when jobs add videos. With `device="cuda"` (or "cuda:1") NVDEC decodes, and
    frames come as tensors on that GPU; docs/gpu.md says what that needs. Videos that NVDEC cannot take are an error
    here; with `fallback` they are decoded on the CPU and converted on the GPU. `threads` is the number of threads that
    decode the parts of a request, by default 1, and on a GPU 2 for each NVDEC engine. Memory of batches is used again
    once no tensor and no array shares it; all such memory, in use or not, is at most `pool_bytes`, and 0 turns this
    off. The tables of a large dataset are decoded once for all processes of the host, into a file below `cache_dir`, by
    default $XDG_CACHE_HOME/shortgop.

    Where `path` is the URL of a store, the ranges of a request are fetched several at once. With `cache_dir`, a folder
    on a local disk, GOPs that were fetched are kept there for all processes of the host: `cache_bytes` at most, those
    that were not used for longest go first. Ranges that are at most `max_gap_bytes` apart are fetched together, by
    default as many as a connection carries in the time that a request of `open` took. With `hedge_after`, a read that
    takes more seconds than this is requested again, and the first answer counts. With `give_up_after`, a request that
    has no answer after so many seconds, repeats included, is an UnreadableDataError. The other options say what each
    frame is converted to:

    - `crop`: the part of each frame to take, (top, left, height, width) in pixels, with even top and left; or "center",
      the largest part in the middle with the aspect ratio of `size`.
    - `size`: resize to (height, width), or to a short side of this length, for which (224,) stands too, as with
      torchvision's Resize.
    - `interpolation`: how it is resized: "bilinear", or "bicubic" as by PIL, both antialiased; or "nearest", for masks,
      with the pixels of torchvision's NEAREST_EXACT, save where a middle lies just between two pixels.
    - `dtype`: torch.uint8, or torch.float32, torch.float16 or torch.bfloat16 with values from 0 to 1.
    - `normalize`: (mean, std), a number for each channel or one for all: values from 0 to 1, less mean, divided by std.
    - `color`: "rgb"; "ycbcr", planes Y, Cb and Cr of full size, from 0 to 255 as in JPEG, by the video's own matrix;
      "grey", the Y of these; or "yuv420" for the decoded planes Y, U and V as they are, (1, 3 * height / 2, width).
    - `dimension_order`: "NCHW" or "NHWC"; "yuv420" has but one.

    NotADatasetError when there is no dataset at `path`, or none that has results yet; FormatVersionError for a dataset
    of another version; MissingDataError, CorruptDataError or UnreadableDataError when its tables cannot be read.
    Opening compares the length of each shard with the manifest, in a store only of up to 10,000 shards. Missing shards
    and shards of another length cause a DatasetWarning with the number of videos in them (`Dataset.lost_ids`), and an
    error when such a video is read; with `strict` they cause the error at once.
    """
    frame_format = FrameFormat(size, crop, dtype, normalize, color, dimension_order, interpolation)
    chosen_device = device_of(device)
    options = ReadOptions(frame_format, 1 if threads is None else threads, pool_bytes)
    options = replace(options, cache=cache_at(cache_dir, cache_bytes))
    place = _place(path, network_of(hedge_after, give_up_after))
    root, snapshot, manifest = _tables(place, snapshot, copies_of(options.cache))
    options = replace(options, limits=limits_of(place, max_gap_bytes))
    if chosen_device.type != "cpu":
        choice = _choice(place, manifest, chosen_device, threads, fallback=fallback)
        options = replace(options, threads=choice.threads(threads), device=choice)
    lost = lost_shards(place, manifest, max_listed=_MAX_LISTED_SHARDS)
    if lost and strict:
        raise next(iter(lost.values()))
    if lost:
        warn(lost_text(place, manifest, lost))
    _notice_swapped_sides(options.format, manifest)
    return Dataset(SnapshotReader(place, snapshot, options, manifest), root.profile, tuple(lost), root.format_version)


def _place(path: Any, network: NetworkOptions) -> Storage:
    try:
        return storage_at(path, network=network)
    except TypeError:
        raise WrongTypeError(f"path is {path!r}; it has to be the folder that `shortgop prep` wrote") from None


def _tables(place: Storage, snapshot: Any, copies: HostCopies | None) -> tuple[Root, str, Manifest]:
    """The root of a dataset, the name of the snapshot that was asked for (None: the current one), and its tables."""
    if snapshot is None:
        root, manifest = open_current(place, copies=copies)
        return root, str(root.snapshot), manifest
    root = read_root(place)
    if not isinstance(snapshot, str):
        raise WrongTypeError(
            f"snapshot is {snapshot!r}; it has to be a string such as {root.snapshot!r}", file=str(place)
        )
    # A snapshot is a number: "../other" would lead out of the dataset.
    if not snapshot.isdecimal() or not has_snapshot(place, snapshot):
        raise UsageError(
            f"{place} has no snapshot {snapshot!r}; its current one is {root.snapshot!r}, and jobs remove earlier "
            "ones after some time (prep --keep-snapshots says how long they stay)",
            file=str(place),
        )
    return root, snapshot, open_manifest(place, snapshot, copies=copies)


def _choice(
    place: Storage, manifest: Manifest, device: torch.device, threads: int | None, *, fallback: bool
) -> DeviceChoice:
    """Where the videos of a dataset are decoded. UsageError names those that the device cannot decode."""
    configs = [manifest.config(number) for number in range(len(manifest.configs))]
    choice, reasons = chosen(device, caps_of(device), configs, fallback=fallback)
    used = manifest.videos.config
    first_rows = {number: np.flatnonzero(used == number) for number in reasons}
    refused = {number: rows for number, rows in first_rows.items() if len(rows)}
    if not refused:
        return choice
    count = sum(len(rows) for rows in refused.values())
    number, rows = next(iter(refused.items()))
    video = manifest.videos.id.text(int(rows[0]))
    if not fallback:
        raise UsageError(
            f"{device} cannot decode {count} of {counted(len(used), 'video')} of {place}, such as {video!r}: "
            f"{reasons[number]}. Open it with fallback=True to decode these on the CPU, or without device",
            video=video,
            file=str(place),
        )
    if count == len(used):
        warn(
            f"the CPU decodes all videos of {place}, on {counted(choice.threads(threads), 'thread')}"
            f"{' by default' if threads is None else ''}, and {device} only converts them, such as {video!r}: "
            f"{reasons[number]}"
        )
    return choice


def _notice_swapped_sides(frame_format: FrameFormat, manifest: Manifest) -> None:
    """DatasetWarning where `size` is just the (width, height) of all videos: `prep --size` and shortgop.prepare name
    the width first, and frames would be stretched without a word. A crop by numbers may have any shape."""
    size = frame_format.size
    if not isinstance(size, tuple) or size[0] == size[1] or isinstance(frame_format.crop, tuple):
        return
    width, height = size
    configs = manifest.configs
    if len(configs) and (configs.width == width).all() and (configs.height == height).all():
        warn(
            f"size={size} is (height, width), and all videos have height {height} and width {width}: with "
            f"size={(height, width)} frames keep their shape"
        )
