"""Lets TorchCodec run on the FFmpeg that PyAV's wheel brings: `link_ffmpeg.py DIR` fills DIR with links.

TorchCodec looks for FFmpeg's libraries by their sonames; in the wheel their names have a hash. Prints the
value of LD_LIBRARY_PATH that a process needs from its start. It holds both folders, since the libraries find
each other by the hashed names.
"""

import ctypes
import importlib.util
import os
import re
import sys
from pathlib import Path

HASHED = re.compile(r"(lib(?:av|sw)[a-z]+)-[0-9a-f]+\.so\.(\d+)\.")


def bundled_libraries() -> Path | None:
    """The shared libraries in PyAV's wheel; None where PyAV was built against the system's FFmpeg."""
    spec = importlib.util.find_spec("av")
    if spec is None or spec.origin is None:
        sys.exit("link_ffmpeg: PyAV is not installed for this Python")
    folder = Path(spec.origin).parent.parent / "av.libs"
    return folder if folder.is_dir() else None


def link(libraries: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for library in libraries.iterdir():
        if match := HASHED.match(library.name):
            point(folder / f"{match[1]}.so.{match[2]}", library)


def point(link: Path, target: Path) -> None:
    """Make a link, or let it point there. Others may do the same, or load what it points to, at the same time."""
    if link.is_symlink() and link.readlink() == target:
        return
    new = link.with_name(f".{os.getpid()}.{link.name}")
    new.symlink_to(target)
    new.replace(link)


def stand_in_for_libpython(libraries: Path, folder: Path) -> None:
    """Satisfies TorchCodec's need of libpython where Python is all in its executable (many of Debian, pyenv, uv).

    One of TorchCodec's libraries names libpython as needed, in every wheel from 0.12 to 0.14, although the
    executable has all the symbols that it takes from there. The loader only wants a library of that name. The link
    to libavutil, which is loaded anyway, loads nothing more. Other ways were looked at: a preload needs a libpython
    as well, no TorchCodec wheel does without, and `patchelf --remove-needed` changes an installed package.
    """
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    try:
        ctypes.CDLL(name)
    except OSError:
        point(folder / name, next(libraries.glob("libavutil-*")))


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: link_ffmpeg.py DIR")
    folder = Path(sys.argv[1]).absolute()
    search = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    if libraries := bundled_libraries():
        link(libraries, folder)
        stand_in_for_libpython(libraries, folder)
        search = [str(folder), str(libraries), *search]
    print(":".join(search))


if __name__ == "__main__":
    main()
