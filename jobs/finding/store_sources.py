"""The sources that a URL stands for: those below it, those of a list, or the file itself."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import SourceNotFoundError, UsageError
from ...storage.network import AT_THE_START
from .addresses import Address, parse
from .ids import folder_of
from .importers.in_stores import RecognisedInStore, kinetics_at, lerobot_at, no_videos, refuse_pictures
from .importing import Importing
from .list_lines import is_list, refuse_other_list
from .listed_sources import ReadList, found_in_list_at
from .lists_beside import may_have_labels_in_store
from .plain_values import valid_text
from .source import Found, Source
from .store_files import StoreFile, asked, files_below, is_folder, of_argument, small_copy
from .video_names import has_known_name, is_tar_name, is_video_name

UrlNaming = Callable[[str, str], str]
"""Returns the id of the file at a URL, given the URL of a folder that holds it and its own."""


def found_at_url(argument: str, naming: UrlNaming, read: ReadList, importing: Importing) -> Iterator[Found]:
    """The sources that a URL stands for. UsageError if there are none."""
    address = parse(argument)
    if is_folder(argument, has_known_name):
        return _in_folder(address, naming, importing)
    if is_list(address.name):
        return _in_list(address, read, importing)
    return iter([_file_itself(address, naming)])


def _file_itself(address: Address, naming: UrlNaming) -> Found:
    url = address.url
    if is_tar_name(address.name):
        raise UsageError(f"{url} is a tar, and tars are read from disks; copy it to one, and give that", file=url)
    refuse_other_list(url)
    file = StoreFile(address)
    with of_argument(address):
        try:
            file = replace(file, stored=asked(file, AT_THE_START))
        except SourceNotFoundError as error:
            if not glob.has_magic(url):
                raise
            raise UsageError(
                f"{url} does not exist, and globs are not expanded in stores; give the folder, or a list", file=url
            ) from error
    return Found(_source(naming(folder_of(url), url), file), "given by itself", listed=False)


def _in_folder(folder: Address, naming: UrlNaming, importing: Importing) -> Iterator[Found]:
    refuse_pictures(folder, importing)
    url = folder.url
    imported = lerobot_at(folder)
    if imported is not None:
        yield from _imported(folder, imported, lambda key: naming(url, f"{url}/{key}"), importing)
        return
    is_empty = True
    for file in files_below(folder, lambda name: is_video_name(name) or may_have_labels_in_store(name)):
        if may_have_labels_in_store(file.address.name):
            importing.note_list(file.address.url)
            continue
        is_empty = False
        yield Found(_source(naming(url, file.address.url), file), f"in {url!r}", listed=False)
    if is_empty:
        raise no_videos(folder)


def _in_list(address: Address, read: ReadList, importing: Importing) -> Iterator[Found]:
    refuse_pictures(address, importing)
    # The rows of a long list do not fit into memory, so the copy stays until the last one is taken, or nobody wants it.
    with small_copy(address) as copy:
        imported = kinetics_at(address, copy, importing.list_root)
        if imported is not None:
            yield from _imported(address, imported, None, importing)
        else:
            yield from found_in_list_at(address, copy, read, importing)


def _imported(
    address: Address, found: RecognisedInStore, naming: Callable[[str], str] | None, importing: Importing
) -> Iterator[Found]:
    """The sources of another tool's format. Without `naming` their ids are what a list says."""
    importing.tell(f"{address.url}: {found.what}")
    for each, file in found.sources:
        source = _source(naming(each.id) if naming else each.id, file)
        source = source._replace(attributes=each.attributes_text, is_listed=naming is None, part=each.part)
        yield Found(source, each.place, listed=True)


def _source(source_id: str, file: StoreFile) -> Source:
    return Source(valid_text(source_id), file.address.url, file.address.url, "{}", in_store=file)
