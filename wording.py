"""How messages and pages write numbers and options, say that a file is missing, and show text that comes from files."""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

# A message names so many of the values that are wrong.
_NAMED = 8
_BYTE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def counted(number: int, noun: str, *, grouped: bool = False) -> str:
    """The number and the noun, which takes an s unless there is one of it: "1 frame", "0 frames"; with `grouped`
    "12,345 frames"."""
    shown = f"{number:,}" if grouped else str(number)
    return f"{shown} {noun}" if number == 1 else f"{shown} {noun}s"


def and_others(wrong: Sequence[int | str], total: int, nouns: str) -> str:
    """What follows a sentence about the first of several that are wrong, of `total`: how many there are, and which
    the first are; nothing if it is the only one."""
    if len(wrong) < 2:
        return ""
    named = ", ".join(repr(each) for each in wrong[:_NAMED]) + (", ..." if len(wrong) > _NAMED else "")
    return f"; {len(wrong)} of {total} {nouns} are wrong: {named}"


def type_option(column: str, kind: str) -> str:
    """How a caller gives a column of a CSV list a type. The option ends a name at a comma, so a column whose name has
    one gets its type in Python."""
    if "," in column:
        return f"types={{{column!r}: {kind!r}}} in Python (--types takes no name with a comma)"
    return f"--types {quote(f'{column}={kind}')}"


def whole(number: float) -> str:
    """1234567 as 1,234,567."""
    return f"{round(number):,}"


def three_digits(value: float) -> str:
    """A number that needs no more precision: 1,234, 123, 12.3, 1.23, 0.012."""
    size = abs(value)
    if size >= 99.95 or value == 0:
        return whole(value)
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}" if size >= 0.095 else f"{value:.2g}"


def byte_size(count: float) -> str:
    """Three digits and a unit, in powers of 1000: 0 B, 850 B, 13.7 kB, 1.25 MB."""
    for step, unit in _BYTE_UNITS:
        if abs(count) >= step:
            return f"{three_digits(count / step)} {unit}"
    return f"{whole(count)} B"


def duration(seconds: float) -> str:
    """Two units at most: 12 s, 3 min 5 s, 2 h 10 min, 4 days 3 h; below half a second 0.03 s, "less than 0.01 s"."""
    left = round(max(0.0, seconds))
    if left == 0 and seconds > 0:
        return f"{round(seconds, 2):g} s" if seconds >= 0.01 else "less than 0.01 s"
    parts = []
    for step, unit in ((86_400, "day"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, step)
        if count:
            parts.append(f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


NOT_THERE = "does not exist"
"""Part of what is said of a file that is not there."""


def missing(path: str, remedy: str) -> str:
    """What a message says behind the name of a file that is not there: that its link leads nowhere, or that it does not
    exist, with the remedy for that; that its name begins or ends with a space, or is there in another form of Unicode,
    which both are hard to see; and that a folder of its path is empty, as one is to which a disk was mounted."""
    link = Path(path)
    remedy = unreplaced(path) + remedy
    if link.is_symlink():
        return f"is a link to {str(link.readlink())!r}, which does not exist; put that there, or make the link again"
    if link.name != link.name.strip():
        remedy = f"its name is {link.name!r}, with a space at an end: take that out, or {remedy}"
    if (form := _form_that_is_there(path)) is not None:
        remedy = (
            f"a file of the same letters is there, in Unicode's form {form}: write the path in that form, as "
            f"unicodedata.normalize({form!r}, path) of Python does, or {remedy}"
        )
    if (folder := _empty_folder(link)) is not None:
        return f"{NOT_THERE}, and the folder {str(folder)!r} is empty; mount the disk if one belongs there, or {remedy}"
    return f"{NOT_THERE}; {remedy}"


def unreplaced(path: str) -> str:
    """What a message says before its remedy where a path has the name of an environment variable: only shells replace
    it, and not within single quotes."""
    for name in re.findall(r"\$\{?([A-Za-z_]\w*)", path):
        if name in os.environ:
            return f"${name} in it is not replaced: leave single quotes away, or write what it stands for; or "
    return ""


def _form_that_is_there(path: str) -> str | None:
    """The form of Unicode in which a path would be that of a file: macOS takes letters and their accents apart, other
    systems do not, and a list from one of them may be used on another."""
    if path.isascii():
        return None
    forms = {form: unicodedata.normalize(form, path) for form in ("NFC", "NFD")}
    return next((form for form, other in forms.items() if other != path and os.path.lexists(other)), None)


def _empty_folder(file: Path) -> Path | None:
    """The folder that is the last one of a file's path that exists, if it is empty."""
    with contextlib.suppress(OSError):
        folder = next(each for each in file.absolute().parents if each.is_dir())
        with os.scandir(folder) as entries:
            return None if any(entries) else folder
    return None


def plain(text: str) -> str:
    """The text with each character that is not printable written as an escape: \\x1b, \\n, \\u202e."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
