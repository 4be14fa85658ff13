"""Reads a dataset and writes its page: `shortgop report`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..arguments import integer
from ..errors import CorruptDataError, DatasetWarning, OutputError, UsageError
from ..jobs.progress.job_status import JobStatus, read_status, status_changed
from ..manifests.dataset_files.root_file import read_root
from ..manifests.tables import Manifest, empty
from ..prep.profile import profile_from_json
from ..readers.dataset import Dataset as Opened
from ..readers.dataset import reader_of
from ..readers.frame_format import Color
from ..readers.open_dataset import open as open_dataset
from ..storage.interface import Storage
from ..storage.locate import storage_at
from .clip_pictures import clips_of
from .clip_quality import quality_of_clip
from .content_summary import contents_of
from .page_file import page_file
from .page_html import page_html
from .page_plan import Clip, Dataset, Page, plan_page

MOST_CLIPS = 100
_CLIP_SECONDS = 60.0


@dataclass(frozen=True)
class Report:
    """What was written: the page, and how many bytes it has."""

    page: Page
    num_bytes: int


def check_report(out: str | os.PathLike[str], place: str, *, clips: int, overwrite: bool = False) -> None:
    """UsageError for arguments with which `write_report` would fail; nothing is written. The dataset need not be there
    yet. An earlier report is replaced in any case, because one looks at a job more than once."""
    if not 0 <= integer(clips, "--clips") <= MOST_CLIPS:
        raise UsageError(f"--clips is {clips}; a page shows from 0 to {MOST_CLIPS}")
    try:
        page_file(out).check(storage_at(place), overwrite=overwrite)
    except OutputError as error:
        # Another path helps, and the job of `prep --report` should not begin with this one.
        raise UsageError(error.message, file=error.file) from error


def write_report(
    out: str | os.PathLike[str], place: str, *, clips: int = 12, seed: int = 0, overwrite: bool = False
) -> Report:
    """Write the page about the dataset at `place` to `out`, a path or a URL, with so many random clips, drawn with
    `seed`.

    UsageError when `out` must not or cannot be written, OutputError when that fails at the end, as on a full disk, and
    what `shortgop.open` raises for the dataset. A dataset without a snapshot has a page too. What cannot be shown of a
    clip is said in its place.
    """
    check_report(out, place, clips=clips, overwrite=overwrite)
    page = read_page(place, clips=clips, seed=seed)
    # Bytes of paths that are not UTF-8 are in errors, too.
    data = page_html(page).encode(errors="backslashreplace")
    check_report(out, place, clips=clips, overwrite=overwrite)
    page_file(out).write(data, overwrite=overwrite)
    return Report(page, len(data))


def read_page(place: str, *, clips: int, seed: int) -> Page:
    """What the page says, read from the dataset, its last job's status, and for clips from the sources."""
    storage = storage_at(place)
    root = read_root(storage)
    opened = _opened(place) if root.snapshot is not None else None
    manifest: Manifest = empty() if opened is None else reader_of(opened).manifest
    status, no_status = _status(storage)
    dataset = Dataset(
        place=str(storage),
        snapshot="" if opened is None else opened.metadata.snapshot,
        format_version=root.format_version,
        profile=root.profile,
        contents=contents_of(manifest),
        lost_videos=0 if opened is None else len(opened.lost_ids),
        status=status,
        status_changed=None if status is None else status_changed(storage, status),
        no_status=no_status,
    )
    shown, left_out = _clips(opened, root.profile, place, clips, seed)
    return plan_page(dataset, shown, left_out, time.time())


def _opened(place: str, snapshot: str | None = None, color: Color = "rgb") -> Opened:
    with warnings.catch_warnings():
        # The page says itself what is lost.
        warnings.simplefilter("ignore", DatasetWarning)
        return open_dataset(place, snapshot=snapshot, dimension_order="NHWC" if color == "rgb" else "NCHW", color=color)


def _status(storage: Storage) -> tuple[JobStatus | None, str]:
    try:
        return read_status(storage), ""
    except (UsageError, CorruptDataError) as error:
        return None, error.message
    except OSError as error:
        return None, f"what the last job wrote cannot be read: {error}"


def _clips(
    opened: Opened | None, profile: Mapping[str, Any], place: str, count: int, seed: int
) -> tuple[tuple[Clip, ...], str]:
    if opened is None or not len(opened):
        return (), "The dataset has no videos yet."
    if not count:
        return (), ""
    planes = _opened(place, opened.metadata.snapshot, "yuv420")
    measure = partial(quality_of_clip, planes, profile_from_json(dict(profile)))
    return clips_of(opened, count, seed, _CLIP_SECONDS, measure)
