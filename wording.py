"""Numbers in sentences, files that are missing, and text of files in what people read."""

from __future__ import annotations

from pathlib import Path


def counted(number: int, noun: str, *, grouped: bool = False) -> str:
    """The number and the noun, which takes an s unless there is one of it: "1 frame", "0 frames"; with `grouped`
    "12,345 frames"."""
    shown = f"{number:,}" if grouped else str(number)
    return f"{shown} {noun}" if number == 1 else f"{shown} {noun}s"


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


def missing(path: str, remedy: str) -> str:
    """What a message says behind the name of a file that is not there: that its link leads nowhere, or that it does not
    exist, with the remedy for that; and that its name begins or ends with a space, which is hard to see."""
    link = Path(path)
    if link.is_symlink():
        return f"is a link to {str(link.readlink())!r}, which does not exist; put that there, or make the link again"
    if link.name != link.name.strip():
        remedy = f"its name is {link.name!r}, with a space at an end: take that out, or {remedy}"
    return f"does not exist; {remedy}"


def plain(text: str) -> str:
    """The text with each character that is not printable written as an escape: \\x1b, \\n, \\u202e."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
