"""Labels in a folder of videos: lists, as in Hugging Face's VideoFolder, and captions, such as `a.txt` of `a.mp4`. A
folder stands for its video files alone: whoever gives it is told of them. This is a notice, which should cost little:
where anything is in doubt there is none."""

from __future__ import annotations

import glob
import os
import posixpath
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import SourceError, SourceNotFoundError, ToolError, UsageError
from ...prep.running.mounts import read_in_time
from ...prep.running.stalls import stall_limit
from ...storage.locate import from_home
from ...wording import counted
from .addresses import is_store_url, parse
from .ids import folder_of
from .importers.images import IMAGE_SUFFIXES
from .list_lines import first_lines, first_of_parquet, is_list, names_of, path_key
from .places import absolute, can_be_a_path, place_of_listed
from .store_files import IN_PASSING, StoreFile, asked, head_of
from .video_names import is_video_name
from .walking import fixed_part, matching

_TEXTS = frozenset(("metadata.csv", "metadata.jsonl"))
_NAMES = _TEXTS | {"metadata.parquet"}
_CAPTION = ".txt"

# So many lists are looked at, so many lines of each, and so much of a text file.
_LISTS, _LINES, _HEAD_BYTES = 3, 3, 1 << 16
# So many captions of each folder are looked at.
_CAPTIONS = 1000
# A disk that does not answer for so long is not waited for.
_SECONDS = 5.0

_Start = tuple[set[str], list[Any]]
"""The columns of labels of a list by its first line, and the paths on its first lines."""


def may_have_labels(name: str) -> bool:
    """Whether a file of this name may be such a list."""
    return name in _NAMES


def may_have_labels_in_store(name: str) -> bool:
    """The same of a file in a store, but for Parquet: what it says of its columns stands at its end."""
    return name in _TEXTS


def what_is_lost(places: Collection[str], arguments: Sequence[str], columns_at: Callable[[str], set[str]]) -> str:
    """What is said of lists in the folders of a job with these arguments, whose labels the videos around them do not
    get; "" if there is nothing to say. `columns_at` gives the columns that the dataset has of the file at a place. Of
    several lists the first one with labels is named."""
    given = {each for argument in arguments for each in _lists_of(argument)} if places else set()
    # Where no list is given, nothing is asked of each of a million folders.
    left = {place for place in places if not given or _true_place(place) not in given}
    in_order = sorted(left, key=lambda place: (place.count("/"), place))
    for number, place in enumerate(in_order[:_LISTS]):
        try:
            columns, video = _labels_of(place)
        except (UsageError, ToolError, OSError):
            continue
        except SourceError:
            # Nor would the others be read soon.
            return ""
        if columns and not columns <= columns_at(video):
            more = len(in_order) - number - 1
            others = f", like {counted(more, 'other list')}" if more else ""
            # A name such as `-v` would be an option.
            argument = shlex.quote(f"./{place}" if place.startswith("-") else place)
            return (
                f"{place}: not read{others}, as a folder stands for its video files alone; "
                f"`shortgop prep {argument} --out DATASET`, now or later, gives the videos its columns "
                f"({names_of(columns)}) and encodes none again"
            )
    return ""


def captioned_in(files: Iterable[str]) -> list[tuple[str, str]]:
    """The first video with a caption beside it, among the names in a folder, and the first picture with one that is of
    no video there, as far as there are any; each with its caption."""
    ending = len(_CAPTION)
    captions = (name for name in files if name[-ending:].lower() == _CAPTION)
    caption_of = {name[:-ending]: name for name in islice(captions, _CAPTIONS)}
    if not caption_of:
        return []
    stems = set(caption_of)
    # The caption of `a.mp4` is `a.mp4.txt` or `a.txt`.
    shown = [name for name in files if name in stems or name.rpartition(".")[0] in stems]
    stem_of = {name: name if name in stems else name.rpartition(".")[0] for name in shown}
    videos = [name for name in shown if is_video_name(name)]
    # Of a video are both.
    stems -= {each for name in videos for each in (name, name.rpartition(".")[0])}
    pictures = (name for name in shown if name.lower().endswith(IMAGE_SUFFIXES) and stem_of[name] in stems)
    return [(name, caption_of[stem_of[name]]) for name in (*videos[:1], *islice(pictures, 1))]


def captions_lost(
    captioned: Mapping[str, str], arguments: Sequence[str], columns_at: Callable[[str], set[str]]
) -> Iterator[str]:
    """What is said of videos and pictures with captions beside them in the folders of a job with these arguments: of
    the first of each that has no columns in the dataset, of which one may be the caption under another name.
    `captioned` has the place of each, and its caption's name."""
    places = list(captioned)
    # There may be one in each of a million folders.
    videos = filter(is_video_name, places)
    video = next((place for place in videos if not columns_at(place)), None)
    if video is not None:
        folders = [str(absolute(Path(from_home(each)))) for each in arguments if can_be_a_path(each)]
        folder = next((each for each in folders if _is_below(each, video)), posixpath.dirname(video))
        has_more = any(not _is_below(folder, place) and not columns_at(place) for place in videos)
        others = ", and the same with each other folder that has such files," if has_more else ","
        yield (
            f"{posixpath.join(posixpath.dirname(video), captioned[video])}: not read, as a folder stands for its video "
            f"files alone; `shortgop annotate DATASET {shlex.quote(folder)}`{others} when they are in the dataset, "
            "gives the videos the text of such files as the column 'txt', and encodes none again"
        )
    picture = next((place for place in places if not is_video_name(place) and not columns_at(place)), None)
    if picture is not None:
        yield (
            f"{picture}: left out, though {captioned[picture]} is beside it, as a folder stands for its video files "
            "alone; a list of pictures and videos makes videos of both, with --image-fps 1"
        )


def tars_left(tars: Iterable[str], read: Iterable[str], are_there: Callable[[Sequence[str]], list[bool]]) -> str:
    """What is said of tars in folders that lie beside videos, and so are not among those that were `read`; "" if there
    is nothing to say. Those from which the dataset has videos were given to another job."""
    left = list(dict.fromkeys(tars))
    if left:
        already = set(map(_true_place, read))
        left = [place for place in left if _true_place(place) not in already]
        left = [place for place, is_there in zip(left, are_there(left), strict=True) if not is_there]
    if not left:
        return ""
    others = f", like {counted(len(left) - 1, 'other tar')}" if len(left) > 1 else ""
    pattern = posixpath.join(glob.escape(posixpath.dirname(left[0])), f"*{posixpath.splitext(left[0])[1]}")
    return (
        f"{left[0]}: not read{others}, as a folder that has videos stands for its video files alone; if it is a "
        f"WebDataset tar, `shortgop prep {shlex.quote(pattern)} --out DATASET` prepares the videos in the tars of its "
        "folder"
    )


def _lists_of(argument: str) -> Iterator[str]:
    """The true places of the lists that an argument of a job stands for, if it does."""
    if not is_list(argument):
        return
    if is_store_url(argument):
        yield parse(argument).url
    elif can_be_a_path(argument):
        path = from_home(argument)
        is_glob = glob.has_magic(path) and not os.path.lexists(path)
        yield from map(_true_place, map(str, matching(*fixed_part(path))) if is_glob else (path,))


def _true_place(place: str) -> str:
    return place if is_store_url(place) else os.path.realpath(place)


def _labels_of(place: str) -> tuple[set[str], str]:
    """The columns of labels that a list has, and a video below its folder that it names. None if it has no labels, or
    names no such video. Raises what reading it raises."""
    if is_store_url(place):
        start = _start_of(place, head_of(parse(place), _HEAD_BYTES, IN_PASSING))
        return _labels_in(start, folder_of(place), _is_in_store)
    folder = str(Path(place).parent.absolute())
    with stall_limit(_SECONDS):
        return read_in_time(
            place, lambda: _labels_in(_start_on_disk(place), folder, os.path.isfile), f"{place}: reading it"
        )


def _labels_in(start: _Start, folder: str, is_file: Callable[[str], bool]) -> tuple[set[str], str]:
    labels, paths = start
    # `prep` refuses a list with a line that has no path.
    if labels and all(path and isinstance(path, str) for path in paths):
        for path in paths:
            video = place_of_listed(folder, path)
            if is_video_name(video.rpartition("/")[2]) and _is_below(folder, video) and is_file(video):
                return labels, video
    return set(), ""


def _is_below(folder: str, place: str) -> bool:
    return posixpath.normpath(place).startswith(f"{posixpath.normpath(folder)}/")


def _start_on_disk(place: str) -> _Start:
    # Opening a pipe waits for a writer.
    if not Path(place).is_file():
        return set(), []
    if place.endswith(".parquet"):
        names, paths = first_of_parquet(place, _LINES)
        return set(names) - {"id", "path", path_key(names)}, paths
    with Path(place).open("rb") as file:
        return _start_of(place, file.read(_HEAD_BYTES))


def _start_of(name: str, head: bytes) -> _Start:
    if len(head) == _HEAD_BYTES:
        head = head[: head.rfind(b"\n") + 1]
    lines = [values for _, values in first_lines(name, head, _LINES)]
    key = path_key(lines[0]) if lines else "path"
    return set(lines[0] if lines else ()) - {"id", "path", key}, [values.get(key) for values in lines]


def _is_in_store(url: str) -> bool:
    try:
        asked(StoreFile(parse(url)), IN_PASSING)
    except SourceNotFoundError:
        return False
    return True
