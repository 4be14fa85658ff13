"""Which files of a checkout Docker copies, which place a path in an image is, and who the user of an image is."""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Pattern:
    """A line of .dockerignore."""

    expression: re.Pattern[str]
    takes_back: bool

    def fits(self, path: str) -> bool:
        """Whether the path, or a folder that it lies in, is one of those that the line names."""
        parents = (str(parent) for parent in PurePosixPath(path).parents)
        return any(self.expression.fullmatch(each) for each in (path, *parents))


def patterns(text: str) -> list[Pattern]:
    lines = (line.strip() for line in text.splitlines() if not line.startswith("#"))
    return [
        Pattern(re.compile(expression(posixpath.normpath(line.lstrip("!")).lstrip("/"))), line.startswith("!"))
        for line in lines
        if line
    ]


def expression(pattern: str) -> str:
    """A pattern of .dockerignore as a regular expression: `*` ends at a slash, `**` does not."""
    forms = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.findall(r"\*\*/|\*\*|\*|\?|\[[^]]+\]|\\.|.", pattern)
    return "".join(forms.get(piece) or (piece if len(piece) > 1 else re.escape(piece)) for piece in pieces)


def is_ignored(path: str, ignored: Sequence[Pattern]) -> bool:
    """The last line that fits decides."""
    fitting = [each for each in ignored if each.fits(path)]
    return bool(fitting) and not fitting[-1].takes_back


def copy_context(checkout: Path, to: Path) -> None:
    """The files that a build may copy. Symbolic links stay links."""
    listed = checkout / ".dockerignore"
    ignored = patterns(listed.read_text()) if listed.exists() else []
    to.mkdir()
    for path in files_below(checkout, checkout, ignored):
        target = to / path.relative_to(checkout)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)


def files_below(folder: Path, checkout: Path, ignored: Sequence[Pattern]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        left_out = is_ignored(path.relative_to(checkout).as_posix(), ignored)
        if path.is_dir() and not path.is_symlink():
            # A line that takes something back may name what lies in a folder that is ignored.
            if not left_out or any(pattern.takes_back for pattern in ignored):
                yield from files_below(path, checkout, ignored)
        elif not left_out:
            yield path


def place(root: Path, path: str) -> Path:
    """Where a path of the image lies on this machine. Its links mean places in the image, never ones outside."""
    waiting = list(PurePosixPath("/", path).parts[1:])
    done = PurePosixPath("/")
    links = 0
    while waiting:
        part = waiting.pop(0)
        if part == "..":
            done = done.parent
            continue
        here = root / (done / part).relative_to("/")
        if not here.is_symlink():
            done /= part
            continue
        links += 1
        if links > 40:
            raise OSError(f"{path}: its symbolic links go round in a circle")
        target = PurePosixPath(str(here.readlink()))
        if target.is_absolute():
            done = PurePosixPath("/")
        waiting[:0] = [each for each in target.parts if each != "/"]
    return root / done.relative_to("/")


@dataclass(frozen=True)
class Identity:
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def identity(user: str, passwd: str, group: str) -> Identity:
    """Who `USER name`, `USER 1000` or `USER 1000:1000` is, by the two files of the image, as Docker finds it."""
    name, _, named_group = user.partition(":")
    entries = [line.split(":") for line in passwd.splitlines()]
    group_entries = [line.split(":") for line in group.splitlines()]
    entry = next((each for each in entries if name == each[0]), None)
    entry = entry or next((each for each in entries if name == each[2]), None)
    if entry is None and not name.isdecimal():
        raise ValueError(f"the image has no user {name}")
    uid, gid, home = (int(entry[2]), int(entry[3]), entry[5]) if entry else (int(name), 0, "/")
    if not named_group:
        members = (int(each[2]) for each in group_entries if entry and entry[0] in each[3].split(","))
        return Identity(uid, gid, tuple(sorted({gid, *members})), home)
    found = next((int(each[2]) for each in group_entries if named_group == each[0]), None)
    if found is None and not named_group.isdecimal():
        raise ValueError(f"the image has no group {named_group}")
    gid = int(named_group) if found is None else found
    return Identity(uid, gid, (gid,), home)
