"""Export of many videos into a folder, as ordinary MP4s."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import DatasetError, OutputError, ShortGopError, UnreadableDataError, UsageError
from ...storage.interface import Storage
from ...whole_files import writing
from ..id_patterns import ids_that_fit
from ..near_ids import near_ids
from ..tables import Manifest
from .export import SUFFIXES, export
from .export_names import names_of_exports
from .output_files import check_is_in_no_dataset, check_output, file_identity, sources_by_file

# These concern all files, the next one too.
_ENDING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


@dataclass(frozen=True)
class ExportedMany:
    """What `export_many` did, each by id: the files that it wrote, those that were there already, and why there is none
    of other videos. `num_bytes` is the length of the new files together, `unknown` has what is no video of the dataset,
    and `near` ids that look like the first of these."""

    written: dict[str, Path]
    already: dict[str, Path]
    refused: dict[str, str]
    num_bytes: int
    unknown: tuple[str, ...]
    near: tuple[str, ...]


def export_many(
    dataset: Storage,
    manifest: Manifest,
    folder: Path,
    ids: Sequence[str] | None = None,
    *,
    patterns: Sequence[str] = (),
    overwrite: bool = False,
    on_video: Callable[[], object] = lambda: None,
) -> ExportedMany:
    """Write videos of the dataset to `folder`, each as `export` does, to files that are called like their ids: all of
    them, or these ids and those that fit one of these patterns.

    What a file is called depends on all ids of the dataset, so each choice of videos gives them the same files. A file
    that is there stays as it is without `overwrite`, and is not compared, so the same call goes on after an
    interruption. A video is passed over that is damaged, whose id gives no name, or whose file cannot be written for a
    reason of its own: a folder or a source of the dataset is there.

    UsageError if the folder lies within a dataset. OutputError if it is a file, or its disk is full or lets nothing be
    written, and UnreadableDataError, end it; the files that are written by then are whole.
    """
    with writing(folder):
        check_is_in_no_dataset(folder)
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder} is no folder; give a folder, or the name of a new one", file=str(folder))
    known = manifest.ids
    wanted = known if ids is None else list(dict.fromkeys([*ids, *ids_that_fit(patterns, known)]))
    row_of = manifest.row_of_id.of(wanted)
    unknown = tuple(each for each in wanted if each not in row_of)
    all_names, no_names = names_of_exports(sorted(known))
    chosen = sorted(row_of)
    names = {each: all_names[each] for each in chosen if each in all_names}
    refused = {each: no_names[each] for each in chosen if each in no_names}
    # What is there and stays may be a source only by being that file: exports are called like sources, too.
    sources = sources_by_file(manifest, moved=overwrite)
    written: dict[str, Path] = {}
    already: dict[str, Path] = {}
    id_of_file: dict[tuple[int, int] | None, str] = {}
    num_bytes = 0
    for video_id, name in names.items():
        out = folder / name
        there = file_identity(out)
        if there in id_of_file:
            # As on file systems that take names for the same that differ by case.
            refused[video_id] = f"{out} is the file of {id_of_file[there]!r}; export it to another folder"
        else:
            may_be = sources(out) if there else ()
            try:
                if there is not None and not overwrite:
                    check_output(out, suffixes=SUFFIXES, overwrite=True, sources=may_be)
                    already[video_id] = out
                else:
                    export(
                        dataset, manifest, row_of[video_id], out, overwrite=overwrite, new_folders=True, sources=may_be
                    )
                    written[video_id] = out
                    num_bytes += out.stat().st_size
            except (DatasetError, OutputError, UsageError) as error:
                if _concerns_all(error):
                    raise
                refused[video_id] = error.message
        if video_id not in refused:
            id_of_file[file_identity(out)] = video_id
        on_video()
    near = tuple(near_ids(manifest.videos.id, unknown[0])) if unknown else ()
    return ExportedMany(written, already, refused, num_bytes, unknown, near)


def _concerns_all(error: ShortGopError) -> bool:
    """Whether the next video would fail for the same reason."""
    if isinstance(error, OutputError):
        return isinstance(error.__cause__, OSError) and error.__cause__.errno in _ENDING
    return isinstance(error, UnreadableDataError)
