"""How close encoded frames are to their source: PSNR and SSIM, by ffmpeg's filters of these names.

The source's frames are decoded again and go through the filters that prep gave them, so that the same pictures are
compared. Where that cannot be repeated exactly, nothing is measured, and an error says why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import SourceError
from ..manifests.ragged import Array
from .command import quality_argv
from .decoding import as_filtered
from .pictures.picture_filters import deinterlaces
from .pictures.sizes import picture_layout
from .probing.probe import probe
from .probing.source_video import SourceVideo
from .profile import Profile
from .running import processes
from .running.ffmpeg import crops_by_itself, find_ffmpeg
from .running.mounts import read_in_time
from .timing.pieces import Seek

# All packets of the source are read, and the page of `shortgop report` is to be ready in a minute.
_MOST_BYTES = 4_000_000_000
_PATIENCE_SECONDS = 30.0
_PEAK = 255
_SOFTWARE = "software"
_PSNR_LINE = re.compile(r"^n:\d+ .*\bmse_y:(\S+)", re.MULTILINE)
_SSIM_LINE = re.compile(r"^n:\d+ Y:(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Quality:
    """Of the luma of so many frames: the peak signal-to-noise ratio in dB, from the mean of their squared errors, with
    the peak 255, and infinite where all are equal; and the mean of their structural similarities (Wang et al. 2004, as
    ffmpeg's filter computes it), 1 where all are equal."""

    psnr_db: float
    ssim: float
    frames: int


def quality_of(path: str, profile: Profile, pipeline: Mapping[str, str], source_pts: Array, planes: Array) -> Quality:
    """The quality of encoded frames of the source at `path`. They show its frames at `source_pts`, which do not fall,
    and `planes` are their samples: uint8, (frames, 3 / 2 * height, width), Y, U and V one below the other. `pipeline`
    is what the manifest records of how they were made. Of encoded frames that show the same source frame the first one
    is measured.

    Reads all packets of the source once, but decodes only what is needed. SourceError says why nothing is measured:
    the pictures would not be the same ones, or the source cannot be read. ToolError if there is no ffmpeg.
    """
    _check_pipeline(path, pipeline)
    if Path(path).stat().st_size > _MOST_BYTES:
        raise SourceError("the source is too large to be read again", file=path)
    source = read_in_time(path, lambda: probe(path), f"{path}: reading it")
    shown_pts, places = np.unique(source_pts, return_index=True)
    wanted = shown_pts + source.cut.begin
    planes = planes[places]
    frames, rows, width = planes.shape
    _check_source(source, profile, wanted, (width, rows * 2 // 3))
    found = find_ffmpeg()
    source = as_filtered(source, found.path)
    crops = source.crop is not None and crops_by_itself(found.path)
    argv = quality_argv(source, profile, wanted.tolist(), _seek_to(source, int(wanted[0])), crops_by_itself=crops)
    try:
        done = processes.run([found.path, *argv], stdin=planes.tobytes(), timeout_seconds=_PATIENCE_SECONDS)
    except TimeoutError as error:
        raise SourceError("comparing the frames with their source takes too long", file=path) from error
    said = done.stdout.decode(errors="replace")
    errors = [float(value) for value in _PSNR_LINE.findall(said)]
    likeness = [float(value) for value in _SSIM_LINE.findall(said)]
    if done.returncode or not len(errors) == len(likeness) == frames:
        complaint = done.stderr.decode(errors="replace").strip().splitlines()
        why = complaint[0] if complaint else f"it shows {len(errors)} of {frames} frames"
        raise SourceError(f"ffmpeg does not show the same frames of the source again: {why}", file=path)
    mean_error = float(np.mean(errors))
    psnr_db = 10 * math.log10(_PEAK**2 / mean_error) if mean_error else math.inf
    return Quality(psnr_db, float(np.mean(likeness)), frames)


def _check_pipeline(path: str, pipeline: Mapping[str, str]) -> None:
    if not pipeline:
        raise SourceError("it is not recorded what decoded and scaled the source", file=path)
    if any(pipeline.get(step) != _SOFTWARE for step in ("decoding", "scaling")):
        raise SourceError("a GPU decoded or scaled the source", file=path)


def _check_source(source: SourceVideo, profile: Profile, wanted_pts: Array, size: tuple[int, int]) -> None:
    layout = picture_layout(source, profile)
    trouble = {
        "its frames consist of two fields, and what becomes of them depends on other frames": deinterlaces(
            source, profile
        ),
        "it has signs of damage": bool(source.suspicion),
        "its packets do not state the times of its frames": source.pts is None
        or source.has_decode_times
        or len(source.not_coded) > 0,
        "it has no frames at these times": source.pts is not None and not np.isin(wanted_pts, source.pts).all(),
        "its pictures become others today": (layout.width, layout.height) != size,
    }
    found = next((text for text, applies in trouble.items() if applies), None)
    if found is not None:
        raise SourceError(f"the source cannot be compared: {found}", file=source.path)


def _seek_to(source: SourceVideo, first_pts: int) -> Seek | None:
    """Where ffmpeg starts reading."""
    entries = source.entries[(source.entries <= first_pts) & (source.entries >= 0)]
    return Seek(int(entries[-1]) * source.timebase, frozenset()) if len(entries) else None
