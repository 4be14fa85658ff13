"""Numbered pictures: a folder or a list of them becomes a video, each picture a frame, at the rate `--image-fps`. In a
list of videos each picture is a video."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path, PurePath

from ....errors import DamagedSourceError, NotAVideoError, SourceError, SourceNotFoundError, UsageError
from ....prep.options import SourcePolicy
from ....storage.locate import from_home
from ....wording import counted
from ..addresses import is_store_url, shown
from ..places import place_of_listed, without_scheme
from ..source_lists import Row
from ..source_parts import Images, Imported, Recognised

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class ShownPicture:
    """A picture, and for how many frames it is shown."""

    file: str
    frames: int


def is_image_name(name: str) -> bool:
    return Path(name).suffix.lower() in IMAGE_SUFFIXES


def folders_of_images(top: Path, folders: Iterable[tuple[Path, list[str]]], fps: Fraction) -> list[Imported]:
    """A source for each folder with pictures: id is the folder's path below `top`, or the name of `top` itself."""
    found = []
    for folder, names in folders:
        files = tuple(sorted(name for name in names if is_image_name(name)))
        if files:
            below = folder.relative_to(top).as_posix()
            name = below if below != "." else folder.absolute().name
            part = Images(files, fps, is_ordered=False)
            found.append(Imported(name, folder, str(folder), {}, part, f"in {str(top)!r}"))
    return found


def list_of_images(path: Path, listed: Iterable[Row], fps: Fraction, list_root: str | None = None) -> Recognised | None:
    """The videos that the rows of a list of pictures make, in their order: one for each `id`, or one with the name of
    the list without its suffix. Columns that have one value in all lines of a video are its columns. None for a list
    that names other files than pictures: see `picture_of_row`. Paths begin in `list_root`, by default in the list's
    own folder."""
    rows = list(listed)
    if not all(is_image_name(row.path) for row in rows):
        return None
    for row in rows:
        _check_on_a_disk(row, str(path), list_root)
    videos: dict[str, list[Row]] = {}
    for row in rows:
        videos.setdefault(row.id or path.stem, []).append(row)
    sources = []
    for video_id, lines in videos.items():
        columns = [json.loads(row.attributes) for row in lines]
        same = {
            name: value
            for name, value in columns[0].items()
            if all(name in each and each[name] == value for each in columns)
        }
        # An absolute path stays as it is.
        paths = (from_home(without_scheme(row.path)) for row in lines)
        files = (each if list_root is None else str(Path(list_root, each)) for each in paths)
        part = Images(tuple(files), fps, is_ordered=True)
        sources.append(Imported(video_id, path, f"{path}: {video_id}", same, part, lines[0].place))
    what = f"a list of {counted(len(rows), 'picture')} that {'is a video' if len(sources) == 1 else 'are'}"
    what += "" if len(sources) == 1 else f" {len(sources)} videos"
    return Recognised(what, tuple(sources))


def picture_of_row(row: Row, fps: Fraction, file: str, list_root: str | None = None) -> Images | None:
    """What a row of a list of videos names if that is a picture: a video of one frame. None for any other file."""
    if not is_image_name(row.path):
        return None
    _check_on_a_disk(row, file, list_root)
    return Images((PurePath(row.path).name,), fps, is_ordered=True)


def _check_on_a_disk(row: Row, file: str, list_root: str | None) -> None:
    path = row.path if list_root is None else place_of_listed(list_root, row.path)
    if is_store_url(path):
        raise UsageError(
            f"{row.place} names the picture {shown(path)}, and pictures are read from disks; copy them to one, and "
            "list the copies",
            file=file,
        )


def in_order(folder: str, files: Sequence[str], policy: SourcePolicy) -> list[ShownPicture]:
    """The pictures of a folder in the order of the numbers in their names: the last run of digits in each.

    NotAVideoError where the names do not make one sequence. DamagedSourceError where a number is missing, unless the
    policy closes gaps (the next picture follows) or keeps them (the picture before is shown instead).
    """
    numbered: dict[int, str] = {}
    pattern: tuple[str, str] | None = None
    first = ""
    for file in sorted(files):
        match = re.fullmatch(r"(.*?)(\d+)(\D*)", Path(file).name, re.DOTALL)
        if match is None:
            raise NotAVideoError(
                f"{folder}: {file!r} has no number in its name, but pictures are ordered by numbers; move it away, or "
                "give a list of the pictures in their order",
                file=folder,
            )
        around = (match.group(1), match.group(3).lower())
        pattern, first = pattern or around, first or file
        number = int(match.group(2))
        if around != pattern or number in numbered:
            other = numbered.get(number, first)
            raise NotAVideoError(
                f"{folder}: {other!r} and {file!r} do not belong to one sequence of numbered pictures; give each "
                "sequence a folder of its own, or give a list of the pictures in their order",
                file=folder,
            )
        numbered[number] = file
    numbers = sorted(numbered)
    lengths = [later - number for number, later in pairwise(numbers)] + [1]
    if policy.gaps == "fail" and max(lengths) > 1:
        place = next(place for place, length in enumerate(lengths) if length > 1)
        missing = sum(length - 1 for length in lengths)
        raise DamagedSourceError(
            f"{folder}: picture {numbers[place] + 1} is missing, after {numbered[numbers[place]]!r}, {missing} in all; "
            "--gaps close lets the next picture follow, --gaps keep shows the one before for longer",
            file=folder,
        )
    keeps = policy.gaps == "keep"
    return [
        ShownPicture(numbered[number], length if keeps else 1) for number, length in zip(numbers, lengths, strict=True)
    ]


def sequence_of(path: str, part: Images, policy: SourcePolicy) -> list[ShownPicture]:
    """The pictures of a source as absolute paths, in the order in which they are shown. SourceError where they cannot
    be the frames of one video."""
    shown = [ShownPicture(file, 1) for file in part.files] if part.is_ordered else in_order(path, part.files, policy)
    base = Path(path) if Path(path).is_dir() else Path(path).parent
    files = [str((base / each.file).absolute()) for each in shown]
    _check_alike(files)
    return [ShownPicture(file, each.frames) for file, each in zip(files, shown, strict=True)]


def concat_script(shown: Iterable[ShownPicture], fps: Fraction) -> str:
    """A concat script that shows pictures one after the other.

    Durations are whole microseconds, and their sums are never off by more than half of one. FFmpeg rounds the time of
    each picture to frames.
    """
    lines = ["ffconcat version 1.0"]
    frames = 0
    for each in shown:
        start, stop = (round(number / fps * _MICROSECONDS) for number in (frames, frames + each.frames))
        frames += each.frames
        lines += [f"file {each.file}", f"option framerate {fps}", f"duration {stop - start}us"]
    return "\n".join([*lines, ""])


def _check_alike(files: Sequence[str]) -> None:
    """SourceError unless all pictures are of one kind and size."""
    from PIL import Image, UnidentifiedImageError

    first: tuple[str | None, tuple[int, int]] | None = None
    for file in files:
        if Path(file).is_fifo():
            raise NotAVideoError(f"{file} is a pipe, but pictures are files; take it out", file=file)
        try:
            with Image.open(file) as picture:
                here = (picture.format, picture.size)
        except FileNotFoundError as error:
            raise SourceNotFoundError(f"{file} does not exist; put it there, or take it out", file=file) from error
        except PermissionError as error:
            raise SourceError(f"{file} cannot be read: permission denied; change its permissions", file=file) from error
        except (UnidentifiedImageError, OSError, ValueError) as error:
            raise SourceError(f"{file} cannot be read as a picture: {error}; copy it again", file=file) from error
        first = first or here
        if here != first:
            (one, size), (other, other_size) = first, here
            raise NotAVideoError(
                f"{files[0]} is {one} of {_sides(size)}, but {file} is {other} of {_sides(other_size)}; "
                "the pictures of a video are of one kind and size: convert them, or give lists of those that are; for "
                "a video of each picture, give a list with an `id` for each",
                file=file,
            )


def _sides(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
