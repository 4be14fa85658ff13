"""The sources of a job: files, folders, globs and lists, as given on the command line -> sources."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path, PurePath

from ...errors import SourceError, SourceNotFoundError, UsageError
from ...manifests.dataset_files.layout import ROOT_KEY
from ...storage.locate import from_home, refuse_half_a_url
from ...wording import missing
from .addresses import Address, beside, is_store_url, parse, shown
from .column_types import check_types
from .ids import Folder, folder_of, id_of_url, id_roots, prefixes_below
from .importers.in_stores import RecognisedInStore, kinetics_at, lerobot_at, no_videos, refuse_pictures
from .importers.recognise import inside, recognised
from .importers.webdataset import samples_of
from .importing import PLAIN, Importing
from .list_lines import is_list, refuse_other_list
from .lists import OnTypes, Row, can_be_a_path, id_of_path, ignore_types, read_list, valid_text
from .other_files import what_else
from .places import absolute_below, is_shortest, without_scheme
from .source import Found, Source
from .source_parts import Imported, stretch_of_row
from .store_files import StoreFile, asked, files_below, is_folder, small_copy
from .video_names import has_known_name, is_video_name
from .walking import fixed_part, is_local_folder, matching, walk

_ReadList = Callable[[str], Iterable[Row]]


# For a folder, the function that gives what the ids of the files in a folder below it begin with.
_Naming = Callable[[Path], Callable[[Path], str]]


def folders_of(arguments: Sequence[str]) -> list[Folder]:
    """The folders in which the arguments' sources lie: a folder itself, a file's folder, the folder in front of the
    first wildcard of a glob. Lists have none. What is wrong with an argument is for `found_in` to say."""
    folders: dict[Folder, None] = {}
    for argument in map(without_scheme, arguments):
        if is_store_url(argument):
            url = parse(argument).url
            if is_folder(argument, has_known_name):
                folders[url] = None
            elif not is_list(url):
                folders[folder_of(url)] = None
            continue
        if not can_be_a_path(argument):
            continue
        path = Path(from_home(argument))
        if os.path.isdir(path):  # noqa: PTH112  # Path.is_dir raises for some names
            folders[path] = None
        elif os.path.lexists(path):
            if not is_list(path.name):
                folders[path.parent] = None
        elif glob.has_magic(str(path)):
            folders[fixed_part(str(path))[0]] = None
    return list(folders)


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
      folders that systems keep, such as `lost+found`. Links to folders are followed.
    - A glob, with `**` for any number of folders, stands for the files and folders that match. A glob that ends in a
      literal extension or name (`clips/*.bin`) takes every file that matches; any other (`clips/*`) takes those that
      have a video's extension.
    - A list (.txt .csv .tsv .jsonl .ndjson .parquet) stands for the sources on its lines; `read_list` gives the form.
      Paths in it are relative to its own folder. Without an `id` column, ids are the paths as written.
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

    `importing` says what more a list's columns mean, and the rate of pictures. The types of the columns of CSV and TSV
    lists are inferred, unless `types` gives them; `on_types` is told which they are.

    Ids are paths below the first of `roots` that holds the file. They are from `ids.id_roots`, which knows the dataset;
    without them they are those of a new dataset.

    UsageError names the argument and the remedy if an argument stands for nothing.
    """
    if not arguments:
        raise UsageError("no source given; name a video file, a folder, a glob or a list")
    _refuse_cuts_without_a_list([without_scheme(each) for each in arguments], importing)
    numbered = {root: age for age, root in enumerate(id_roots((), folders_of(arguments)) if roots is None else roots)}
    # Thousands of files may be given one by one.
    naming = cache(lambda base: prefixes_below(base, numbered))
    naming_urls = partial(id_of_url, numbered)
    typed: set[str] = set()

    def note(file: str, kinds: Mapping[str, str]) -> None:
        typed.update(kinds)
        on_types(file, kinds)

    read = partial(read_list, types=types, on_types=note)
    for argument in map(without_scheme, arguments):
        if is_store_url(argument):
            yield from _find_in_store(argument, naming_urls, read, importing)
        else:
            yield from _find_on_disk(argument, naming, read, importing)
    check_types(types or {}, typed)


def _refuse_cuts_without_a_list(arguments: Sequence[str], importing: Importing) -> None:
    if importing.cuts is None:
        return
    # Also of a glob the suffix says whether it stands for lists.
    if not any(is_list(parse(each).name if is_store_url(each) else Path(each).name) for each in arguments):
        raise UsageError(
            f"--cuts names columns of a list, {' and '.join(importing.cuts)}, but {arguments[0]!r} is no list; give "
            "one that has a row for each stretch, or leave --cuts out",
            file=arguments[0],
        )


def _find_in_store(
    argument: str, naming: Callable[[str, str], str], read: _ReadList, importing: Importing
) -> Iterator[Found]:
    """What a URL stands for: the videos below it, the lines of a list, or the file itself."""
    address = parse(argument)
    url = address.url
    if is_folder(argument, has_known_name):
        yield from _below_url(address, naming, importing)
        return
    if is_list(address.name):
        yield from _in_list_at(address, argument, read, importing)
        return
    if address.name.lower().endswith(".tar"):
        raise UsageError(f"{url} is a tar, and tars are read from disks; copy it to one, and give that", file=url)
    refuse_other_list(url)
    file = StoreFile(address)
    try:
        file = replace(file, stored=asked(file))
    except SourceNotFoundError as error:
        if glob.has_magic(url):
            raise UsageError(
                f"{url} does not exist, and globs are not expanded in stores; give the folder, or a list", file=url
            ) from error
        raise UsageError(error.message, file=url) from error
    except SourceError as error:
        raise UsageError(error.message, file=url) from error
    yield Found(_in_store(naming(folder_of(url), url), file), "given by itself", listed=False)


def _below_url(address: Address, naming: Callable[[str, str], str], importing: Importing) -> Iterator[Found]:
    """The sources in a folder of a store."""
    refuse_pictures(address, importing)
    url = address.url
    imported = lerobot_at(address)
    if imported is not None:
        yield from _imported_at(address, imported, lambda each: naming(url, f"{url}/{each}"), importing)
        return
    is_empty = True
    for file in files_below(address, is_video_name):
        is_empty = False
        yield Found(_in_store(naming(url, file.address.url), file), f"in {url!r}", listed=False)
    if is_empty:
        raise no_videos(address)


def _in_list_at(address: Address, argument: str, read: _ReadList, importing: Importing) -> Iterator[Found]:
    """The sources of a list in a store."""
    refuse_pictures(address, importing)
    # The rows of a long list do not fit into memory, so the copy stays until the last one is taken, or nobody wants it.
    with small_copy(address) as copy:
        imported = kinetics_at(address, copy)
        if imported is not None:
            yield from _imported_at(address, imported, None, importing)
        else:
            yield from _in_list(argument, _rows_of_copy(address, str(copy), read), importing)


def _rows_of_copy(address: Address, copy: str, read: _ReadList) -> Iterator[Row]:
    """The rows of a list in a store, of which there is a local copy."""
    try:
        for row in read(copy):
            yield row._replace(place=row.place.replace(copy, address.url))
    except UsageError as error:
        error.message = error.message.replace(copy, address.url)
        error.file = address.url
        raise


def _imported_at(
    address: Address, found: RecognisedInStore, naming: Callable[[str], str] | None, importing: Importing
) -> Iterator[Found]:
    """The sources of another tool's format in a store. Without `naming` their ids are what a list says."""
    importing.tell(f"{address.url}: {found.what}")
    for each, file in found.sources:
        source = _in_store(naming(each.id) if naming else each.id, file)
        source = source._replace(attributes=_columns(each), is_listed=naming is None, part=each.part)
        yield Found(source, each.place, listed=True)


def _in_store(source_id: str, file: StoreFile) -> Source:
    return Source(valid_text(source_id), file.address.url, file.address.url, "{}", in_store=file)


def _find_on_disk(argument: str, naming: _Naming, read: _ReadList, importing: Importing) -> Iterator[Found]:
    if not can_be_a_path(argument):
        raise UsageError(f"{argument!r} is not a path; name a video file, a folder, a glob or a list")
    argument = from_home(argument)
    try:
        Path(argument).stat()
    except OSError as error:
        if glob.has_magic(argument):
            yield from _in_glob(argument, naming, read, importing)
            return
        refuse_half_a_url(argument, is_path=False)
        remedy = "name a video file, a folder, a glob or a list"
        is_missing = isinstance(error, FileNotFoundError)
        what = missing(argument, remedy) if is_missing else f"cannot be read: {error.strerror}; {remedy}"
        raise UsageError(f"{argument!r} {what}", file=argument) from error
    path = Path(argument)
    imported = recognised(path, importing, is_video_name)
    if imported is not None:
        importing.tell(f"{argument}: {imported.what}")
        below = None if is_list(path.name) else path if path.is_dir() else path.parent
        yield from (_imported(each, below, naming) for each in imported.sources)
    elif path.is_dir():
        yield from _in_folder(path, argument, naming, importing)
    elif is_list(argument):
        yield from _in_list(argument, _rows(argument, read), importing)
    else:
        refuse_other_list(argument)
        yield Found(_source(_id_of(path, naming(path.parent)), path, argument), "given by itself", listed=False)


def _in_folder(folder: Path, argument: str, naming: _Naming, importing: Importing) -> Iterator[Found]:
    """The sources in a folder of a disk."""
    has_videos = False
    for found in _videos_below(folder, f"in {argument!r}", naming(folder)):
        has_videos = True
        yield found
    others = inside(folder, walk(folder), importing, is_video_name, has_videos=has_videos)
    yield from (_imported(each, folder, naming) for each in others)
    if others or has_videos:
        return
    if (folder / ROOT_KEY).is_file():
        raise UsageError(
            f"{argument!r} is a dataset, not a folder of videos; `shortgop copy` and `shortgop merge` put its videos "
            "into another one",
            file=argument,
        )
    raise UsageError(
        f"the folder {argument!r} holds no videos by their names, such as .mp4: {_what_else_in([folder])}; give "
        "another folder, or name files of another kind one by one or in a list",
        file=argument,
    )


def _imported(each: Imported, folder: Path | None, naming: _Naming) -> Found:
    """The source of an importer, whose ids are paths below `folder`; without one they are what a list says."""
    video_id = each.id
    if folder is not None and each.path.is_dir():
        # A folder of pictures is a video itself.
        video_id = naming(each.path)(each.path).rstrip("/") or each.path.name
    elif folder is not None and PurePath(each.id).as_posix() == each.id and not PurePath(each.id).is_absolute():
        # A key may be no path, such as one that begins with a slash.
        video_id = _id_of(folder / each.id, naming(folder))
    source = _source(video_id, each.path, each.given, _columns(each))._replace(is_listed=folder is None, part=each.part)
    return Found(source, each.place, listed=True)


def _columns(each: Imported) -> str:
    return valid_text(json.dumps(each.attributes, ensure_ascii=False, allow_nan=False))


def _rows(argument: str, read: _ReadList) -> Iterator[Row]:
    """The rows of a list on a disk."""
    is_first = True
    for row in read(argument):
        if is_first:
            _refuse_other_folder(argument, row)
            is_first = False
        yield row._replace(path=without_scheme(row.path)) if "://" in row.path else row


def _refuse_other_folder(argument: str, first: Row) -> None:
    """UsageError if the paths of a list are relative to the current folder, by its first row: the file lies there, and
    nothing of its path in the list's own folder."""
    path, folder = Path(first.path), Path(argument).absolute().parent
    if is_store_url(first.path) or path.is_absolute() or not path.parts or os.path.lexists(folder / path.parts[0]):
        return
    if os.path.isfile(path):  # noqa: PTH113  # Path.is_file raises for some names
        raise UsageError(
            f"{first.place} has {first.path!r}, which is there from the current folder on; paths in a list begin in "
            f"the list's own folder, {str(folder)!r}; move the list to the current folder, or write absolute paths",
            file=argument,
        )


def _in_list(argument: str, rows: Iterable[Row], importing: Importing) -> Iterator[Found]:
    folder, list_url = str(Path(argument).parent.absolute()), is_store_url(argument)
    below = f"{folder.rstrip('/')}/"
    for row in rows:
        place, given, given_id, attributes = row
        part = None if importing.cuts is None else stretch_of_row(row, importing)
        row_id = given_id or id_of_path(given) + (f"@{part}" if part else "")
        if row_id in ("", ".", ".."):
            what = f"{row_id!r} as its `id`; give another" if given_id else f"the folder {given!r} as its `path`"
            raise UsageError(f"{place} has {what}; lists name files", file=argument)
        in_store = None
        if is_shortest(given) and given[0] != "~" and not list_url:
            # Most are: no URL, which has two slashes, and with nothing to resolve.
            path = given if given[0] == "/" else below + given
        elif list_url or is_store_url(given):
            in_store = StoreFile(parse(beside(parse(argument), given) if list_url else given))
            given, path = shown(given), in_store.address.url
        else:
            path = absolute_below(folder, from_home(given))
        # Ids of rows and of paths are valid text; arguments by position take half the time of those by name.
        source = Source(row_id, path, given, attributes, given_id is not None, True, part, in_store)
        yield Found(source, place, True)


def _in_glob(pattern: str, naming: _Naming, read: _ReadList, importing: Importing) -> Iterator[Found]:
    root, parts = fixed_part(pattern)
    spelled_out = not glob.has_magic(Path(pattern).suffix or Path(pattern).name)
    place, prefix_of = f"in {pattern!r}", naming(root)
    matches = found_any = False
    # A path may match in several ways, and a list or a tar is read once.
    read_already: set[Path] = set()
    for path in matching(root, parts):
        matches = True
        found: Iterable[Found] = ()
        if is_local_folder(path):
            found = _videos_below(path, place, prefix_of)
        elif spelled_out and (path.suffix.lower() == ".tar" or is_list(path.name)):
            if path in read_already:
                continue
            read_already.add(path)
            if is_list(path.name):
                found = _in_list(str(path), _rows(str(path), read), importing)
            else:
                found = (_imported(each, root, naming) for each in samples_of(path, is_video_name).sources)
        elif spelled_out or is_video_name(path.name):
            found = (Found(_source(_id_of(path, prefix_of), path, str(path)), place, listed=False),)
        for each in found:
            found_any = True
            yield each
    if not found_any:
        what = "matches nothing, and no file has that name"
        if matches:
            what = f"matches no videos by their names, such as .mp4: {_what_else_in(matching(root, parts))}"
        raise UsageError(f"the glob {pattern!r} {what}; give another, or a folder", file=pattern)


def _what_else_in(paths: Iterable[Path]) -> str:
    folders = (([path.name],) if not is_local_folder(path) else (files for _, files in walk(path)) for path in paths)
    return what_else(chain.from_iterable(chain.from_iterable(folders)))


def _source(source_id: str, path: Path, given: str, attributes: str = "{}") -> Source:
    # Links are not resolved: a link's name stays when its target moves.
    return Source(valid_text(source_id), str(path.absolute()), given, attributes)


def _id_of(file: Path, prefix_of: Callable[[Path], str]) -> str:
    return prefix_of(file.parent) + file.name


def _videos_below(top: Path, place: str, prefix_of: Callable[[Path], str]) -> Iterator[Found]:
    # Broken links and pipes are sources too: a failure is better than a source that is passed over.
    for folder, files in walk(top):
        # A Path for each of a million files would take most of the time.
        prefix, given, path = prefix_of(folder), str(folder / "x")[:-1], str(folder.absolute() / "x")[:-1]
        for name in files:
            if is_video_name(name):
                yield Found(Source(valid_text(prefix + name), path + name, given + name, "{}"), place, False)
