"""Numbers in sentences, and text of files in what people read."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """The number and the noun, which takes an s unless there is one of it: "1 frame", "0 frames"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def plain(text: str) -> str:
    """The text with each character that is not printable written as an escape: \\x1b, \\n, \\u202e."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
