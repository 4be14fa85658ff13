"""When a job over a million sources has its first frames, and when it knows them all: python benchmarks/first_frames.py

All sources are one short clip: lists name it a million times by ids of its own, and folders hold links to it, which are
made first and kept. Each job runs in a process of its own, without Ray, and ends when all sources are known.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import footage

from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.tally import Progress
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage

_FOLDERS = 1000


class KnownError(Exception):
    """All sources are known."""


LISTS: dict[str, tuple[str, Callable[[Path, int], str]]] = {
    "jsonl": ("", lambda clip, number: json.dumps({"path": str(clip), "id": f"{number:07d}", "n": number / 7})),
    "csv": ("path,id,n\n", lambda clip, number: f"{clip},{number:07d},{number / 7}"),
}


def made(kind: str, clip: Path, count: int) -> Path:
    """A list of so many sources, or folders of so many links."""
    path = footage.WORK / f"first-frames-{count}.{kind}"
    if kind in LISTS:
        header, line = LISTS[kind]
        with path.open("w", encoding="utf-8") as file:
            file.write(header)
            file.writelines(f"{line(clip, number)}\n" for number in range(count))
    elif not path.exists():
        part = path.with_suffix(".part")
        for folder in range(_FOLDERS):
            (part / f"{folder:03d}").mkdir(parents=True)
            for number in range(folder, count, _FOLDERS):
                (part / f"{folder:03d}" / f"{number:07d}.mp4").symlink_to(clip)
        part.rename(path)
    return path


def child(source: str) -> str:
    first = known = 0.0

    def on_update(progress: Progress) -> None:
        nonlocal first, known
        if progress.frames_done and not first:
            first = progress.seconds
        if first and not progress.lists_more:
            known = progress.seconds
            raise KnownError

    with tempfile.TemporaryDirectory(dir=footage.WORK) as out:
        storage = DiskStorage(Path(out) / "dataset")
        with contextlib.suppress(KnownError):
            prepare([source], storage, Profile(), where=Where(runner="inline"), on_update=on_update)
    return f"first frames after {first:.1f} s, all sources known after {known:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=1_000_000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(child(options.child))
        return
    footage.WORK.mkdir(parents=True, exist_ok=True)
    (clip,) = footage.make_sources("first-frames", 1, 256, 2)
    for kind in (*LISTS, "folder"):
        source = made(kind, clip, options.sources)
        print(f"{kind}: ", end="", flush=True)
        subprocess.run([sys.executable, __file__, "--child", str(source)], check=True)


if __name__ == "__main__":
    main()
