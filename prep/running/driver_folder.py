"""Where NVIDIA's driver lies if the loader does not look there: ffmpeg loads it by name, and would find none."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

# Where clouds mount the driver into containers, and nothing else; images by NVIDIA name it in LD_LIBRARY_PATH.
FOLDERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib")
_LIBRARY = "libcuda.so.1"
_PATH = "LD_LIBRARY_PATH"


def with_driver(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program that is to find the driver: with its folder behind those that they name, if need
    be."""
    folder = hidden_driver(FOLDERS)
    if folder is None:
        return dict(variables)
    named = variables.get(_PATH)
    return {**variables, _PATH: f"{named}{os.pathsep}{folder}" if named else folder}


@cache
def hidden_driver(folders: tuple[str, ...]) -> str | None:
    """The first of these folders that has libcuda, if the loader does not find that elsewhere."""
    found = next((folder for folder in folders if Path(folder, _LIBRARY).exists()), None)
    return None if found is None or _loads_from_elsewhere(found) else found


def _loads_from_elsewhere(folder: str) -> bool:
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    # What this process has loaded by its path, as the reader does, has the name too. Another process does not know it.
    here = str(Path(folder, _LIBRARY).resolve())
    return not any(line.endswith(f" {here}") for line in Path("/proc/self/maps").read_text().splitlines())
