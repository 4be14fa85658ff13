"""How a job reads its sources beyond their paths: which columns of a list are times, where its paths begin, the rate of
picture sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import cast

from ...errors import UsageError
from ...prep.profile import parse_fps
from ...storage.locate import refuse_half_a_url, storage_at
from .addresses import is_store_url, shown
from .places import absolute, can_be_a_path, without_scheme


@dataclass(frozen=True)
class Importing:
    """`cuts`: the names of two columns of lists. They hold the times in seconds at which the stretch of a row's file
    that becomes a video starts and ends; with `in_frames` its first frame and the one after its last. `image_fps`: the
    frames per second of sequences of pictures; without it there are none. `tell` is called with a line of text for each
    argument that is taken for another tool's format, and if folders have labels that are not read. `list_root` is the
    absolute folder, or the URL of one, in which relative paths of lists begin; without it that is each list's own
    folder. `note_list` is called with the place of each file in a folder that may be a list of labels, `note_tar` with
    that of each tar in a folder, `note_read_tar` with that of each tar that is read, `note_twice` with a text for each
    sample of a tar in which two files give a column different values, `note_apart` with one for each whose files do
    not follow one another, and `note_captioned` with the places of a video and of a picture in each folder that
    have captions beside them, and the caption's name, of a picture without `image_fps` alone. `columns_at` gives
    the columns of the video that the dataset has of the file at a place, and `are_there` says of each place whether
    it has one."""

    cuts: tuple[str, str] | None = None
    image_fps: Fraction | None = None
    tell: Callable[[str], None] = field(default=lambda _text: None, compare=False)
    in_frames: bool = False
    list_root: str | None = None
    note_list: Callable[[str], None] = field(default=lambda _place: None, compare=False)
    note_tar: Callable[[str], None] = field(default=lambda _place: None, compare=False)
    note_read_tar: Callable[[str], None] = field(default=lambda _place: None, compare=False)
    note_twice: Callable[[str], None] = field(default=lambda _text: None, compare=False)
    note_apart: Callable[[str], None] = field(default=lambda _text: None, compare=False)
    note_captioned: Callable[[str, str], None] = field(default=lambda _place, _caption: None, compare=False)
    columns_at: Callable[[str], set[str]] = field(default=lambda _place: set(), compare=False)
    are_there: Callable[[Sequence[str]], list[bool]] = field(
        default=lambda places: [False] * len(places), compare=False
    )

    def __post_init__(self) -> None:
        if self.cuts is not None and (len(set(self.cuts)) < 2 or not all(self.cuts) or {"path", "id"} & set(self.cuts)):
            raise UsageError(
                f"--cuts is {','.join(self.cuts)}; it takes the names of two columns of the list, other than path and "
                "id, with the start and the end of each stretch in seconds, --cuts start,end, or in frames: --cuts "
                "start,end,frames"
            )


PLAIN = Importing()


def cuts_text(cuts: str | Sequence[str] | None) -> str | None:
    """The names of columns that a caller gives to `cuts`, as the command line has them."""
    return ",".join(map(str, cuts)) if isinstance(cuts, tuple | list) else cast("str | None", cuts)


def importing_of(
    cuts: str | None,
    image_fps: str | None = None,
    tell: Callable[[str], None] | None = None,
    list_root: str | None = None,
) -> Importing:
    """The settings as the command line spells them. UsageError for text that makes no sense."""
    rate = None
    if image_fps is not None:
        try:
            rate = parse_fps(image_fps)
        except UsageError:
            rate = None
        if rate is None or rate <= 0:
            raise UsageError(f"--image-fps is {image_fps!r}; it takes a rate: 30, 29.97, 30000/1001")
    names = tuple(name.strip() for name in cuts.split(",")) if isinstance(cuts, str) else ()
    in_frames = len(names) == 3 and names[2] == "frames"
    if cuts is not None and len(names) != 2 and not in_frames:
        raise UsageError(
            f"--cuts is {cuts!r}; it takes two names of columns: --cuts start,end, or with numbers of frames in them: "
            "--cuts start,end,frames"
        )
    return Importing(
        (names[0], names[1]) if names else None,
        rate,
        tell or PLAIN.tell,
        in_frames,
        None if list_root is None else _folder_of_lists(list_root),
    )


def _folder_of_lists(text: str) -> str:
    """The folder in which the paths of lists begin, whatever the current folder: an absolute path, or a URL without a
    slash at its end."""
    if not is_store_url(text):
        refuse_half_a_url(text, is_path=False)
        path = without_scheme(text)
        if not can_be_a_path(path):
            raise UsageError(f"--list-root is {text!r}, which is not a path; name the folder of the videos, or its URL")
        return str(absolute(Path(path)))
    url = text.rstrip("/")
    if url != shown(url):
        raise UsageError(
            f"--list-root is {shown(url)!r} with a query or a password, which URLs of files below it would not have; "
            "leave that out, or write whole URLs in the list"
        )
    # For what is wrong with it.
    storage_at(text)
    return url
