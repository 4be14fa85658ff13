"""The sources of a job: what its arguments stand for, each by `disk_sources` or by `store_sources`."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from ...errors import UsageError
from ...storage.locate import from_home
from ...wording import counted
from .addresses import is_store_url, parse, shown
from .column_types import check_types, known_types
from .disk_sources import found_on_disk
from .ids import Folder, folder_of, id_of_url, id_roots, prefixes_below
from .importing import PLAIN, Importing
from .list_lines import is_list
from .lists_beside import captions_lost, tars_left, what_is_lost
from .places import can_be_a_path, without_scheme
from .source import Found
from .source_lists import read_list
from .store_files import is_folder
from .store_sources import found_at_url
from .typed_lines import OnTypes, ignore_types
from .video_names import has_known_name
from .walking import fixed_part


def folders_of(arguments: Sequence[str]) -> list[Folder]:
    """The folders in which the arguments' sources lie: a folder itself, a file's folder, the folder in front of the
    first wildcard of a glob. Lists have none. What is wrong with an argument is for `found_in` to say."""
    folders = (
        _folder_at_url(each) if is_store_url(each) else _folder_on_disk(each) for each in map(without_scheme, arguments)
    )
    return list(dict.fromkeys(folder for folder in folders if folder is not None))


def _folder_at_url(argument: str) -> Folder | None:
    url = parse(argument).url
    if is_folder(argument, has_known_name):
        return url
    return None if is_list(url) else folder_of(url)


def _folder_on_disk(argument: str) -> Folder | None:
    if not can_be_a_path(argument):
        return None
    path = Path(from_home(argument))
    if os.path.isdir(path):  # noqa: PTH112  # Path.is_dir raises for some names
        return path
    if os.path.lexists(path):
        return None if is_list(path.name) else path.parent
    return fixed_part(str(path))[0] if glob.has_magic(str(path)) else None


def found_in(
    arguments: Sequence[str],
    roots: Sequence[str] | None = None,
    *,
    importing: Importing = PLAIN,
    types: Mapping[str, str] | None = None,
    on_types: OnTypes = ignore_types,
) -> Iterator[Found]:
    """All sources that the arguments stand for, as they are found. Several finds may have one id: `source.same`
    says whether they are one source. What an argument stands for:

    - A folder stands for the files anywhere below it that have a video's extension; hidden ones are skipped, and so are
      folders that systems keep, such as `lost+found`. Links to folders are followed. Lists of labels in it (Hugging
      Face's `metadata.csv`) are not read, and `importing.tell` says so; of this machine's folders it says the same of
      captions (`a.txt` of `a.mp4`) and of tars beside videos.
    - A glob, with `**` for any number of folders, stands for the files and folders that match. A glob that ends in a
      literal extension or name (`clips/*.bin`) takes every file that matches; any other (`clips/*`) takes those that
      have a video's extension.
    - A list (.txt .csv .tsv .jsonl .ndjson .parquet) stands for the sources on its lines; `read_list` gives the form.
      Paths in it are relative to its own folder, or to `importing.list_root`. Without an `id` column, ids are the
      paths as written.
    - A URL that ends with a slash, or at which there is no file, stands for the files below it; one of a list for its
      lines; any other for the file itself.
    - A file:// URL stands for the path that it names.
    - Any other file is a source, whatever its name, but for tables that are no lists (.json .xls .xlsx), which are
      refused. A file whose name looks like a glob is a file. Playlists (`*.ffconcat`, `*.m3u8`) are sources if they are
      named like this; folders are not searched for them.
    - A LeRobot dataset stands for its episodes, and a list with Kinetics' columns for its rows; both may lie in a
      store. On disks a `.tar` stands for the samples with videos in it, and with `--image-fps` a folder for a video of
      each folder of pictures in it. In a folder that holds one of these, only video files are found; if there is none,
      its tars (`importers/`).

    `importing` says what more a list's columns mean, where its paths begin, and the rate of pictures. The types of the
    columns of CSV and TSV lists are inferred, unless `types` gives them; `on_types` is told which they are.

    Ids are paths below the first of `roots` that holds the file. They are from `ids.id_roots`, which knows the dataset;
    without them they are those of a new dataset.

    UsageError names the argument and the remedy if an argument stands for nothing.
    """
    if not arguments:
        raise UsageError("no source given; name a video file, a folder, a glob or a list")
    types = known_types(types)
    arguments = [without_scheme(each) for each in arguments]
    _refuse_options_of_lists(arguments, importing)
    lists: list[str] = []
    tars: list[str] = []
    read_tars: list[str] = []
    twice: list[str] = []
    apart: list[str] = []
    captioned: dict[str, str] = {}
    importing = replace(
        importing,
        note_list=lists.append,
        note_tar=tars.append,
        note_read_tar=read_tars.append,
        # There may be a million. The first one is named.
        note_twice=lambda text: twice.append("" if twice else text),
        note_apart=lambda text: apart.append("" if apart else text),
        note_captioned=captioned.__setitem__,
    )
    numbered = {root: age for age, root in enumerate(id_roots((), folders_of(arguments)) if roots is None else roots)}
    # Thousands of files may be given one by one.
    naming = cache(lambda base: prefixes_below(base, numbered))
    naming_urls = partial(id_of_url, numbered)
    typed: dict[str, Mapping[str, str]] = {}

    def note(file: str, kinds: Mapping[str, str]) -> None:
        # A list that may be one of pictures is read twice if it is none.
        if typed.get(file) != kinds:
            typed[file] = kinds
            on_types(file, kinds)

    read = partial(read_list, types=types, on_types=note)
    for argument in arguments:
        if is_store_url(argument):
            # A list there is read from a copy, whose own name says nothing.
            named = partial(read_list, types=types, on_types=partial(_note_as, note, parse(argument).url))
            yield from found_at_url(argument, naming_urls, named, importing)
        else:
            yield from found_on_disk(argument, naming, read, importing)
    check_types(types, set().union(*typed.values()))
    told = (
        _of_samples(twice, "the later file counts"),
        _of_samples(
            apart, "write the tar again with the files of each sample one after the other, as `tar --sort=name` does"
        ),
        what_is_lost(lists, arguments, importing.columns_at),
        tars_left(tars, read_tars, importing.are_there),
    )
    for each in (*filter(None, told), *captions_lost(captioned, arguments, importing.columns_at)):
        importing.tell(each)


def _note_as(note: OnTypes, name: str, _copy: str, kinds: Mapping[str, str]) -> None:
    note(name, kinds)


def _of_samples(found: Sequence[str], what_follows: str) -> str:
    """What is said of samples of tars, of which the first is named; "" if there are none."""
    if not found:
        return ""
    others = f", as in {counted(len(found) - 1, 'other sample')} of tars" if len(found) > 1 else ""
    return f"{found[0]}{others}; {what_follows}"


def _refuse_options_of_lists(arguments: Sequence[str], importing: Importing) -> None:
    if importing.cuts is None and importing.list_root is None:
        return
    # Also of a glob the suffix says whether it stands for lists.
    if any(is_list(parse(each).name if is_store_url(each) else Path(each).name) for each in arguments):
        return
    first = shown(arguments[0])
    if importing.cuts is None:
        raise UsageError(
            f"--list-root says where paths in lists begin, but {first!r} is no list; give one, or leave it out",
            file=first,
        )
    raise UsageError(
        f"--cuts names columns of a list, {' and '.join(importing.cuts)}, but {first!r} is no list; give one that "
        "has a row for each stretch, or leave --cuts out",
        file=first,
    )
