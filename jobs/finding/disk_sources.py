"""The sources that a path or a glob stands for: files, and those in folders, lists and tars of this machine."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path, PurePath

from ...errors import UsageError
from ...manifests.dataset_files.layout import ROOT_KEY
from ...storage.locate import from_home, refuse_half_a_url
from ...wording import missing
from .importers.recognise import inside, recognised
from .importers.webdataset import samples_of
from .importing import Importing
from .list_lines import is_list, refuse_other_list
from .listed_sources import ReadList, found_in_list
from .lists_beside import captioned_in, may_have_labels
from .other_files import what_else
from .places import can_be_a_path
from .plain_values import valid_text
from .source import Found, Source
from .source_parts import Imported
from .video_names import is_tar_name, is_video_name
from .walking import fixed_part, is_local_folder, matching, walk

Naming = Callable[[Path], Callable[[Path], str]]
"""For a folder, the function that gives what the ids of the files in a folder at or below it begin with."""

_REMEDY = "name a video file, a folder, a glob or a list"


def found_on_disk(argument: str, naming: Naming, read: ReadList, importing: Importing) -> Iterator[Found]:
    """The sources that a path or a glob stands for. UsageError if there are none."""
    if not can_be_a_path(argument):
        raise UsageError(f"{argument!r} is not a path; {_REMEDY}")
    argument = from_home(argument)
    path = Path(argument)
    try:
        path.stat()
    except OSError as error:
        if not glob.has_magic(argument):
            raise _not_there(argument, error) from error
        return _in_glob(argument, naming, read, importing)
    imported = recognised(path, importing, read)
    if imported is not None:
        importing.tell(f"{argument}: {imported.what}")
        below = None if is_list(path.name) else path if path.is_dir() else path.parent
        return (_imported(each, below, naming) for each in imported.sources)
    if path.is_dir():
        return _in_folder(path, argument, naming, importing)
    if is_list(argument):
        return found_in_list(argument, read, importing)
    refuse_other_list(argument)
    source = _source(_id_of(path, naming(path.parent)), path, argument)
    return iter([Found(source, "given by itself", listed=False)])


def _not_there(argument: str, error: OSError) -> UsageError:
    """The error for a path that cannot be looked at."""
    refuse_half_a_url(argument, is_path=False)
    is_missing = isinstance(error, FileNotFoundError)
    what = missing(argument, _REMEDY) if is_missing else f"cannot be read: {error.strerror}; {_REMEDY}"
    return UsageError(f"{argument!r} {what}", file=argument)


def _in_folder(folder: Path, argument: str, naming: Naming, importing: Importing) -> Iterator[Found]:
    has_videos = False
    for found in _videos_below(folder, f"in {argument!r}", naming(folder), importing):
        has_videos = True
        yield found
    others = inside(folder, walk(folder), importing, has_videos=has_videos)
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


def _in_glob(pattern: str, naming: Naming, read: ReadList, importing: Importing) -> Iterator[Found]:
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
            found = _videos_below(path, place, prefix_of, importing)
        elif spelled_out and (is_tar_name(path.name) or is_list(path.name)):
            if path in read_already:
                continue
            read_already.add(path)
            if is_list(path.name):
                found = found_in_list(str(path), read, importing)
            else:
                found = (_imported(each, root, naming) for each in samples_of(path, importing).sources)
        elif spelled_out or is_video_name(path.name):
            found = (Found(_source(_id_of(path, prefix_of), path, str(path)), place, listed=False),)
        elif may_have_labels(path.name):
            importing.note_list(str(path))
        elif is_tar_name(path.name):
            importing.note_tar(str(path.absolute()))
        for each in found:
            found_any = True
            yield each
    if not found_any:
        what = "matches nothing, and no file has that name"
        if matches:
            what = f"matches no videos by their names, such as .mp4: {_what_else_in(matching(root, parts))}"
        raise UsageError(f"the glob {pattern!r} {what}; give another, or a folder", file=pattern)


def _videos_below(top: Path, place: str, prefix_of: Callable[[Path], str], importing: Importing) -> Iterator[Found]:
    # Broken links and pipes are sources too: a failure is better than a source that is passed over.
    for folder, files in walk(top):
        # A Path for each of a million files would take most of the time.
        prefix, given, path = prefix_of(folder), str(folder / "x")[:-1], str(folder.absolute() / "x")[:-1]
        for name in files:
            if is_video_name(name):
                yield Found(Source(valid_text(prefix + name), path + name, given + name, "{}"), place, False)
            elif may_have_labels(name):
                importing.note_list(given + name)
            elif is_tar_name(name):
                importing.note_tar(path + name)
        for name, caption in captioned_in(files):
            if importing.image_fps is None or is_video_name(name):
                importing.note_captioned(path + name, caption)


def _imported(each: Imported, folder: Path | None, naming: Naming) -> Found:
    """The source of an importer, whose ids are paths below `folder`; without one they are what a list says."""
    video_id = each.id
    if folder is not None and each.path.is_dir():
        # A folder of pictures is a video itself.
        video_id = naming(each.path)(each.path).rstrip("/") or each.path.name
    elif folder is not None and PurePath(each.id).as_posix() == each.id and not PurePath(each.id).is_absolute():
        # A key may be no path, such as one that begins with a slash.
        video_id = _id_of(folder / each.id, naming(folder))
    source = _source(video_id, each.path, each.given, each.attributes_text)
    return Found(source._replace(is_listed=folder is None, part=each.part), each.place, listed=True)


def _source(source_id: str, path: Path, given: str, attributes: str = "{}") -> Source:
    # Links are not resolved: a link's name stays when its target moves.
    return Source(valid_text(source_id), str(path.absolute()), given, attributes)


def _id_of(file: Path, prefix_of: Callable[[Path], str]) -> str:
    return prefix_of(file.parent) + file.name


def _what_else_in(paths: Iterable[Path]) -> str:
    """In words, which files lie in folders, or are among the paths themselves."""
    folders = (([path.name],) if not is_local_folder(path) else (files for _, files in walk(path)) for path in paths)
    return what_else(chain.from_iterable(chain.from_iterable(folders)))
