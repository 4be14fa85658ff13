"""Export of many videos into a folder, as ordinary MP4s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import DatasetError, UnreadableDataError
from ...storage.interface import Storage
from ..id_patterns import ids_that_fit
from ..near_ids import near_ids
from ..tables import Manifest
from .export import export
from .export_names import names_of_exports
from .output_files import file_identity, sources_by_file


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

    A file that is there stays as it is without `overwrite`, so the same call goes on after an interruption. A video
    that is damaged, or whose id gives no name, is passed over. UsageError and OutputError as of `export`, and
    UnreadableDataError, end it; the files that are written by then are whole.
    """
    known = manifest.ids
    wanted = known if ids is None else list(dict.fromkeys([*ids, *ids_that_fit(patterns, known)]))
    row_of = manifest.row_of_id.of(wanted)
    unknown = tuple(each for each in wanted if each not in row_of)
    names, refused = names_of_exports(sorted(row_of))
    sources = sources_by_file(manifest)
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
        elif there is not None and not overwrite:
            already[video_id] = out
        else:
            try:
                export(
                    dataset, manifest, row_of[video_id], out, overwrite=overwrite, new_folders=True,
                    sources=sources(out) if there else (),
                )  # fmt: skip
            except UnreadableDataError:
                raise
            except DatasetError as error:
                refused[video_id] = error.message
            else:
                written[video_id] = out
                num_bytes += out.stat().st_size
        if video_id not in refused:
            id_of_file[file_identity(out)] = video_id
        on_video()
    near = tuple(near_ids(manifest.videos.id, unknown[0])) if unknown else ()
    return ExportedMany(written, already, refused, num_bytes, unknown, near)
