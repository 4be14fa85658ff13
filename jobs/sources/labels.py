"""Labels from lists: sets columns of a dataset's videos without a job."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from ...errors import UsageError, WrongTypeError
from ...manifests.dataset_files.snapshots import open_current
from ...manifests.dataset_files.tidy import KEEP_SECONDS
from ...manifests.operations.annotate import Annotation
from ...manifests.operations.annotate import annotate as set_columns
from ...manifests.operations.column_changes import not_asked_for
from ...manifests.shared_memory.host_copies import copies_in
from ...storage.interface import Storage
from ...storage.locate import from_home, storage_at
from ...warned import warn
from ...wording import counted
from ..finding.addresses import is_store_url, parse
from ..finding.column_types import check_types, known_types
from ..finding.files_beside import MAX_COLUMN_BYTES, labels_beside
from ..finding.importing import Importing, cuts_text, importing_of
from ..finding.label_lists import Labels, columns_by_id, read_labels
from ..finding.list_lines import is_list
from ..finding.places import absolute, can_be_a_path, place_of_listed, text_of
from ..finding.plain_values import NotJsonError, plain, valid_text
from ..finding.source_parts import stretch_of_row
from ..finding.typed_lines import OnTypes, ignore_types
from .known_paths import KnownPaths

# Ids that a warning names.
_NAMED = 3


def annotate(
    dataset: str | PathLike[str],
    labels: str | PathLike[str] | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    remove: Iterable[str] = (),
    types: Mapping[str, str] | None = None,
    on_types: OnTypes = ignore_types,
    cuts: str | Sequence[str] | None = None,
    list_root: str | PathLike[str] | None = None,
    keep_snapshots_seconds: float = KEEP_SECONDS,
) -> Annotation:
    """Set columns of a dataset's videos without encoding anything. Readers see them in the next snapshot.

    `labels` maps ids to columns (name -> a value that JSON can hold), or is a list (.csv .tsv .jsonl .ndjson .parquet)
    with an `id`, or a `path`: one from which prep would make the id, or that of a file that was prepared. Or it is a
    folder of videos with files beside them, such as `a.txt` of `a.mp4` (`finding/files_beside`). Columns that
    it names are set, `remove` are taken from all videos, and others stay. `types` gives types of columns of CSV and TSV
    lists in place of inferred ones, and `on_types` is called with the types of all columns. `cuts` names the columns
    with the times of stretches, and `list_root` is where relative paths begin, like prep's --cuts and --list-root.
    Returns the ids whose columns changed, those that are not in the dataset, those that were dropped, and which columns
    are new. DatasetWarning where none of the ids is in the dataset, where no video has a column that is to be removed,
    where the values of a column are of several types since, as 3 is not "3", and where a column has the name of one of
    the dataset's own.

    Raises UsageError for a list that cannot be read or a value that JSON cannot hold, WrongTypeError,
    NotADatasetError, and DatasetBusyError while a job writes to the dataset.
    """
    if not isinstance(remove, Iterable):
        raise WrongTypeError(f"remove is {remove!r}; give a list of the names of columns")
    names = [remove] if isinstance(remove, str) else list(remove)
    too_large: list[str] = []
    if labels is None:
        columns: dict[str, dict[str, Any]] = {}
    elif isinstance(labels, Mapping):
        columns = _plain_columns(labels)
    elif not isinstance(labels, str | PathLike):
        raise WrongTypeError(
            f"labels is a {type(labels).__name__}; give the path of a list or a folder, or a dict of ids and their "
            "columns, such as table.set_index('id').to_dict('index') of a DataFrame"
        )
    else:
        file = from_home(str(labels))
        importing = importing_of(cuts_text(cuts), list_root=None if list_root is None else text_of(list_root))
        # Parquet comes as a folder of parts, too.
        if os.path.isdir(file) and not is_list(file):  # noqa: PTH112  # Path.is_dir raises where a folder above is not readable
            if types or cuts or importing.list_root:
                raise UsageError(
                    f"{file!r} is a folder, and types, cuts and list_root are for lists; leave them out", file=file
                )
            lines = _known_here(storage_at(dataset), labels_beside(Path(file), too_large.append))
        else:
            lines = _listed(file, types, on_types, importing, may_set_nothing=bool(names))
            folder = importing.list_root or str(absolute(Path(file)).parent)
            lines = _with_known_ids(storage_at(dataset), folder, lines)
        columns = columns_by_id(lines)
    done = set_columns(storage_at(dataset), columns, remove=names, keep_snapshots_seconds=keep_snapshots_seconds)
    done = replace(done, became_text=not_asked_for(done.became_text, types), too_large=tuple(too_large))
    if too_large:
        warn(told_too_large(too_large))
    for told in (*done.absent, *done.mixed, *done.became_text, *done.hiding):
        warn(str(told))
    if columns and len(done.unknown) == len(columns):
        warn(
            f"no video of the dataset has one of these ids: {', '.join(done.unknown[:_NAMED])}"
            f"{', ...' if len(columns) > _NAMED else ''}; shortgop.open(dataset).ids has those that there are"
        )
    return done


def _listed(
    file: str, types: Mapping[str, str] | None, on_types: OnTypes, importing: Importing, *, may_set_nothing: bool
) -> list[Labels]:
    if not is_list(file) or file.lower().endswith(".txt"):
        is_missing = not is_list(file) and _is_missing(file)
        raise UsageError(
            f"{file!r} {'does not exist' if is_missing else 'is no list of labels'}; give a .csv, .tsv, .jsonl or "
            ".parquet file, or a folder of videos with files such as .txt beside them",
            file=file,
        )
    if not can_be_a_path(file):
        raise UsageError(f"{file!r} is not a path; name a list of labels")
    types = known_types(types)
    typed: set[str] = set()

    def note(name: str, kinds: Mapping[str, str]) -> None:
        typed.update(kinds)
        on_types(name, kinds)

    part_of = partial(stretch_of_row, importing=importing)
    lines = read_labels(file, types, note, part_of, may_set_nothing=may_set_nothing)
    check_types(types, typed)
    return lines


def _is_missing(file: str) -> bool:
    """Whether it is certain that a path does not exist. Nothing is asked of URLs and of globs."""
    if not can_be_a_path(file) or "://" in file or glob.has_magic(file):
        return False
    try:
        os.lstat(file)
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _with_known_ids(dataset: Storage, folder: str, lines: list[Labels]) -> list[Labels]:
    """The lines of a list; one that names a file that was prepared gets the id of its video, whatever id the path would
    make: that may be the id of another file. A folder that was prepared gave its videos paths below it as ids. Relative
    paths begin in `folder`, which may be a URL."""
    if not any(line.path for line in lines):
        return lines
    _, manifest = open_current(dataset, copies=copies_in(None))
    known = KnownPaths(manifest)

    def known_id(line: Labels) -> str | None:
        place = _place(folder, line.path) if line.path else None
        return known.id_at(place, line.part) if place else None

    return [replace(line, id=found) if (found := known_id(line)) else line for line in lines]


def _known_here(dataset: Storage, lines: list[Labels]) -> list[Labels]:
    """The lines of a folder; one of a file that was prepared gets the id of its video. The corpus may have been moved:
    then ids are paths below the folder. But where a video of that id was made from another file that is still there,
    the line gets its file's path, which no video has as its id."""
    _, manifest = open_current(dataset, copies=copies_in(None))
    known = KnownPaths(manifest)
    rows = manifest.row_of_id.of(line.id for line in lines)

    def id_of(line: Labels) -> str:
        place = str(absolute(Path(line.place)))
        found = known.id_at(place, "")
        if found is None and line.id in rows and _is_another(manifest.videos.path.text(rows[line.id]), place):
            return valid_text(place)
        return found or line.id

    return [replace(line, id=id_of(line)) for line in lines]


def _is_another(prepared: str, file: str) -> bool:
    """Whether the path at which a file was prepared is that of another file of this machine."""
    try:
        there = os.stat(prepared)  # noqa: PTH116  # Path.stat takes longer
    except (OSError, ValueError):
        return False
    try:
        return not os.path.samestat(there, os.stat(file))  # noqa: PTH116
    except OSError:
        return True


def told_too_large(files: Sequence[str]) -> str:
    """What is said of files beside videos that were left out."""
    more = f", like {counted(len(files) - 1, 'other file')}" if len(files) > 1 else ""
    return f"{files[0]}: left out{more}, as it has more than {MAX_COLUMN_BYTES:,} bytes, too many for a label"


def _place(folder: str, path: str) -> str | None:
    """Where the file of a line lies, as datasets keep it: an absolute path, or a URL. None for what can be neither."""
    try:
        place = place_of_listed(folder, path)
        return parse(place).url if is_store_url(place) else place
    except UsageError:
        return None


def _plain_columns(labels: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    columns = {}
    for video_id, values in labels.items():
        if not isinstance(video_id, str) or not isinstance(values, Mapping):
            raise UsageError(
                f"the labels have {video_id!r}: {type(values).__name__}; give ids and, for each, a dict of columns"
            )
        wanted = {name: value for name, value in values.items() if not (name == "id" and value == video_id)}
        keys = {"id", "path"} & wanted.keys()
        if keys:
            name = min(keys)
            raise UsageError(
                f"the labels of {video_id!r} have a column {name!r}, which is no label but says which video it is; "
                "leave it out, or call it otherwise"
            )
        columns[valid_text(video_id)] = {
            valid_text(str(name)): _plain(video_id, name, value) for name, value in wanted.items()
        }
    return columns


def _plain(video_id: str, name: Any, value: Any) -> Any:
    try:
        return plain(value)
    except NotJsonError as error:
        raise UsageError(
            f"the labels of {video_id!r} have {error} in column {name!r}; turn it into text, numbers or lists"
        ) from None
