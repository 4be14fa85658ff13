"""Where NVIDIA's driver lies if the loader does not look there: ffmpeg loads it by name, and would find none."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

# Where clouds mount the driver into containers, and nothing else; images by NVIDIA name it in LD_LIBRARY_PATH.
FOLDERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib")
# Where the loader looks by itself, and the driver is installed or mounted.
SYSTEM_FOLDERS = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64")
_LIBRARY = "libcuda.so.1"
_VIDEO_LIBRARIES = ("libnvcuvid.so.1", "libnvidia-encode.so.1")
_PATH, _PRELOADED = "LD_LIBRARY_PATH", "LD_PRELOAD"


def with_driver(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program that is to find the driver: with its folder behind those that they name, and with the
    files that lie there under other names than ffmpeg's, if need be."""
    found, folder, named = dict(variables), hidden_driver(FOLDERS), variables.get(_PATH)
    if folder is not None:
        found[_PATH] = f"{named}{os.pathsep}{folder}" if named else folder
    looked_at = (*filter(None, (named or "").split(os.pathsep)), *FOLDERS, *SYSTEM_FOLDERS)
    if files := files_without_links(looked_at):
        found[_PRELOADED] = " ".join(filter(None, (variables.get(_PRELOADED), *files)))
    return found


@cache
def hidden_driver(folders: tuple[str, ...]) -> str | None:
    """The first of these folders that has libcuda, if the loader does not find that elsewhere."""
    found = next((folder for folder in folders if _is_there(folder, _LIBRARY)), None)
    return None if found is None or _loads_from_elsewhere(found) else found


def _loads_from_elsewhere(folder: str) -> bool:
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    # What this process has loaded by its path, as the reader does, has the name too. Another process does not know it.
    here = str(Path(folder, _LIBRARY).resolve())
    return not any(
        line.endswith(f" {here}") for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    )


@cache
def files_without_links(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The driver's libraries that have no name in these folders but the one with the whole version, such as
    libnvcuvid.so.580.95.05, as where nobody has run ldconfig. A program that has loaded them finds them by the names
    that it asks for, which they have inside. All are of one version, that of libcuda."""
    libcuda = next(_named(folders, _LIBRARY), None)
    versions = [_version(libcuda.resolve())] if libcuda else sorted({*map(_version, _whole_names(folders, _LIBRARY))})
    lacking = [name for name in (_LIBRARY, *_VIDEO_LIBRARIES) if next(_named(folders, name), None) is None]
    for version in filter(None, versions):
        files = [file for name in lacking for file in _whole_names(folders, name) if _version(file) == version]
        if files:
            return tuple(dict.fromkeys(str(file) for file in files))
    return ()


def _named(folders: Sequence[str], name: str) -> Iterator[Path]:
    return (Path(folder, name) for folder in folders if _is_there(folder, name))


def _is_there(folder: str, name: str) -> bool:
    # Path.exists raises an error for a folder that this user may not enter.
    return os.path.exists(os.path.join(folder, name))  # noqa: PTH110, PTH118


def _whole_names(folders: Sequence[str], name: str) -> list[Path]:
    """Of each file the first place. Files that the loader would not take are left out: it says so in each program."""
    stem = f"{name.removesuffix('.1')}."
    files = [file for folder in folders for file in _files_in(folder) if file.name.startswith(stem)]
    return list({file.name: file for file in reversed(files) if _version(file) and _is_preloadable(file)}.values())


def _files_in(folder: str) -> list[Path]:
    try:
        return sorted(Path(folder).iterdir())
    except OSError:
        return []


def _is_preloadable(file: Path) -> bool:
    """Whether the path can stand in LD_PRELOAD, whose entries spaces and colons divide, and the file is none of 32
    bits (byte 4 of ELF's header)."""
    try:
        with file.open("rb") as opened:
            return opened.read(5) != b"\x7fELF\x01" and not re.search(r"[\s:]", str(file))
    except OSError:
        return False


def _version(file: Path) -> str:
    found = re.search(r"\.so\.(\d+\.[\d.]+)$", file.name)
    return found[1] if found else ""
