"""What listing the sources of a job takes, until they lie in its table in windows: python benchmarks/listing.py

Lists of names of files that do not exist, and with --folder files in a thousand folders. Each is listed in a process of
its own. Processor seconds carry over to a busy machine. The memory is the most that the process had, beyond what it had
before. Linux only.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import footage
from process_memory import peak_bytes

from shortgop.jobs.finding.sources import found_in
from shortgop.jobs.sources.source_table import SourceTable
from shortgop.jobs.units_of_work.windows import WINDOW_SOURCES

_FOLDERS = 1000


def path_of(number: int) -> str:
    return f"/data/corpus/{number % _FOLDERS:04d}/video_{number:07d}.mp4"


def json_line(number: int) -> str:
    return json.dumps({"path": path_of(number), "caption": f"a thing number {number}", "score": number / 7})


def comma_line(number: int) -> str:
    return f"{path_of(number)},a thing number {number},{number / 7}"


LISTS: dict[str, tuple[str, Callable[[int], str]]] = {
    "txt": ("", path_of),
    "jsonl": ("", json_line),
    "csv": ("path,caption,score\n", comma_line),
}


def made(kind: str, count: int) -> Path:
    """A list of so many names, or a folder of so many empty files."""
    if kind != "folder":
        header, line = LISTS[kind]
        path = footage.WORK / f"listing-{count}.{kind}"
        with path.open("w", encoding="utf-8") as file:
            file.write(header)
            file.writelines(f"{line(number)}\n" for number in range(count))
        return path
    path = footage.WORK / f"listing-{count}"
    if not path.exists():
        part = path.with_name(f"{path.name}.part")
        for name in files(part, count):
            name.parent.mkdir(parents=True, exist_ok=True)
            name.touch()
        part.rename(path)
    return path


def files(folder: Path, count: int) -> Iterator[Path]:
    return (folder / Path(path_of(number)).relative_to("/data/corpus") for number in range(count))


def child(argument: str) -> str:
    before, started, used = peak_bytes(), time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    with SourceTable() as table:
        table.add(found_in([argument]))
        windows = table.windows(WINDOW_SOURCES)
        elapsed, now = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
        seconds = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        return (
            f"{len(table):,} sources in {len(windows)} windows: {seconds:.1f} s of processor time, {elapsed:.1f} s, "
            f"{(peak_bytes() - before) / 1e6:.0f} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=1_000_000)
    parser.add_argument("--folder", action="store_true", help="also files in folders, which are made first and kept")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(child(options.child))
        return
    footage.WORK.mkdir(parents=True, exist_ok=True)
    for kind in (*LISTS, *(["folder"] if options.folder else [])):
        path = made(kind, options.sources)
        print(f"{kind}: ", end="", flush=True)
        subprocess.run([sys.executable, __file__, "--child", str(path)], check=True)
        if kind != "folder":
            path.unlink()


if __name__ == "__main__":
    main()
