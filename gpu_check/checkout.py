"""What git says about this checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit(root: Path) -> str | None:
    """The commit, with "-dirty" where files differ from it; None where there is no git, or no history."""
    try:
        return _git(root, "describe", "--always", "--dirty", "--abbrev=40").strip()
    except (OSError, subprocess.SubprocessError):
        return None


def files(root: Path) -> list[Path]:
    """The files that git tracks or would track, as far as they exist: all but those that it ignores."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    paths = [root / name for name in sorted(set(listed.split("\0"))) if name]
    return [path for path in paths if path.is_file()]


def _git(root: Path, *arguments: str) -> str:
    argv = ["git", *arguments]
    return subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=30, check=True).stdout
