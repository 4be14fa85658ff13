"""What a file is that is called a video and is none, by its first bytes, its last ones and its name. All functions are
pure."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import PurePath

HEAD_BYTES = TAIL_BYTES = 4096


@dataclass(frozen=True)
class _Kind:
    """A kind of file: its name in messages, what it starts with, and what to do with it."""

    name: str
    start: bytes
    remedy: str


_UNPACK = "unpack it and give the videos that are in it"
_DOWNLOAD = "read it to see what went wrong, and download the video again"

# FFmpeg may find a video in the middle of an archive that is not compressed, or several that it takes for one.
_ARCHIVES = (
    _Kind("a zip archive", rb"PK(\x03\x04|\x05\x06|\x07\x08)", _UNPACK),
    _Kind("a tar archive", rb"(?s).{257}ustar", "unpack it, or rename it so that it ends in .tar"),
    _Kind("a gzip file", rb"\x1f\x8b\x08", _UNPACK),
    _Kind("a bzip2 file", rb"BZh[1-9]1AY&SY", _UNPACK),
    _Kind("an xz file", rb"\xfd7zXZ\x00", _UNPACK),
    _Kind("a zstd file", rb"\x28\xb5\x2f\xfd", _UNPACK),
    _Kind("a 7z archive", rb"7z\xbc\xaf\x27\x1c", _UNPACK),
    _Kind("a rar archive", rb"Rar!\x1a\x07", _UNPACK),
)

_OTHERS = (
    _Kind("a Git LFS pointer", rb"version https://[\w./-]+/spec/v\d", "run `git lfs pull` in its repository"),
    _Kind("a git-annex pointer", rb"\S{0,200}/annex/objects/", "run `git annex get` in its repository"),
    _Kind("an HTML page", rb"(?is)\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body)\b", _DOWNLOAD),
    _Kind("XML", rb"\s*<\?xml\b", _DOWNLOAD),
    _Kind("JSON", rb'\s*(\{\s*("|\})|\[\s*[\[{"\]])', _DOWNLOAD),
    _Kind("a BitTorrent file", rb"d\d+:(announce|created by|creation date|info)", "download what it names"),
    _Kind("a PDF document", rb"%PDF-", "give the video itself"),
    _Kind("a file that openssl encrypted", rb"Salted__", "decrypt it first, with its password"),
    _Kind("the attributes that macOS keeps of another file", rb"\x00\x05\x16\x07", "give that file"),
)

# What programs add to the name of a file as long as they download it.
_UNFINISHED_SUFFIXES = (
    ".aria2", ".crdownload", ".download", ".filepart", ".opdownload", ".part", ".partial", ".tmp", ".!qb", ".!ut",
)  # fmt: skip
_UNFINISHED = "its download or copy has not finished"
_AGAIN = "wait until it has, or do it again"
_NOT_IN_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def archive(head: bytes) -> str:
    """What a file is that has others in it, and what to do: the end of "it is ...". "" if it is none."""
    return _found(_ARCHIVES, head)


def page_or_pointer(head: bytes) -> str:
    """What a file is that is there in place of a video, such as a page of a server, and what to do: the end of "it is
    ...". "" if it is none."""
    return _found(_OTHERS, head)


def lost_beginning(head: bytes) -> str:
    """That a file has zeros for its beginning, and what to do: a sentence from "it" on. "" if it has not."""
    if not head or any(head):
        return ""
    return f"it begins with zeros where a video has its header: {_UNFINISHED}, or its disk lost it; {_AGAIN}"


def what_else(name: str, head: bytes, tail: bytes) -> str:
    """What a file is that does not open as a video, and what to do: a sentence from "it" on. "" if that is unknown.

    `head` and `tail` are its first and last bytes, as many as there are of HEAD_BYTES and TAIL_BYTES.
    """
    kind = archive(head) or page_or_pointer(head)
    suffix = PurePath(name).suffix
    if kind:
        return f"it is {kind}"
    if lost := lost_beginning(head):
        return lost
    if suffix.lower() in _UNFINISHED_SUFFIXES:
        return f"{_UNFINISHED}, as its name says ({suffix}); {_AGAIN}"
    if len(tail) == TAIL_BYTES and not any(tail):
        return f"it ends in zeros, so {_UNFINISHED}; {_AGAIN}"
    return "it is text; read it to see what it is, and give the video itself" if _is_text(head) else ""


def _found(kinds: tuple[_Kind, ...], head: bytes) -> str:
    head = head.removeprefix(b"\xef\xbb\xbf")
    kind = next((kind for kind in kinds if re.match(kind.start, head)), None)
    return f"{kind.name}; {kind.remedy}" if kind else ""


def _is_text(head: bytes) -> bool:
    if not head or _NOT_IN_TEXT.search(head):
        return False
    try:
        # A character may be cut off at the end of the head.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError:
        return False
    return True
