"""What a unit takes in memory, beside what it asks Ray for: python benchmarks/unit_memory.py

Peaks of the Python process and of ffmpeg, one thread each: for sources of several sizes, encoded at 256 and kept as
they are; interlaced and damaged ones; in sections; hours long; and for a task that looks at sources. With `--only`,
those rows that contain a text. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import footage
import psutil

from shortgop.jobs.units_of_work.task_memory import LOOK_BYTES, task_bytes

_SIZES = {"456x256": (456, 256), "1280x720": (1280, 720), "1920x1080": (1920, 1080), "3840x2160": (3840, 2160)}
_HDR = ("-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc", "-pix_fmt", "yuv420p10le")
_X264, _X265 = ("-c:v", "libx264"), ("-c:v", "libx265", "-x265-params", "log-level=error:pools=none:frame-threads=1")
_FIELDS = ("-vf", "interlace=scan=tff,setfield=tff", *_X264, "-flags", "+ildct+ilme", "-x264-params", "tff=1")
_ENCODERS = {"libx264": "h264", "libx265": "hevc", "libsvtav1": "av1"}
_HOUR_SECONDS = 3600
# In so many places of a damaged source some bytes are others.
_DAMAGED_PLACES, _DAMAGED_BYTES = 60, 400
_LOOKED_AT = 64
_LOOK_SECONDS = 0.004
_PREP = """
import json, sys
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Size, changed_profile
from shortgop.storage.disk import DiskStorage
source, out, case = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
options = {"size": Size(case["size"] or None), "encoder": case["encoder"], "codec": case["codec"]}
profile = changed_profile(None, options)
policy = SourcePolicy(salvage=case["salvage"])
report = prepare([source], DiskStorage(out), profile, where=Where("inline"), policy=policy,
                 section_seconds=case["section_seconds"])
assert report.videos_added and not report.failures, report.failures
"""
_LOOK = """
import sys
from pathlib import Path
from shortgop.jobs.units_of_work.task_memory import LOOKS_OF_TASK
from shortgop.jobs.sources.look import look_at
from shortgop.jobs.finding.source import Source
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
sources = [Source(each.name, str(each), each.name, "{}") for each in sorted(Path(sys.argv[1]).iterdir())]
assert all(each.expected.frames for each in look_at(sources, Options(Profile()), threads=LOOKS_OF_TASK))
"""


@dataclass(frozen=True)
class Case:
    """A source with pictures of this size, how ffmpeg encodes it, and how it is prepared. It is the drawn seconds
    again and again for `seconds`."""

    name: str
    size: tuple[int, int]
    made: Sequence[str] = _X264
    suffix: str = "mp4"
    drawn_seconds: int = 2
    seconds: int = 2
    encoder: str = "libx264"
    kept_at: int = 0
    salvage: bool = False
    section_seconds: float = 1e9

    @property
    def frames(self) -> int:
        return self.seconds * footage.RATE


def cases() -> list[Case]:
    sizes = [
        Case(f"{name}, {encoder}", size, encoder=encoder) for encoder in _ENCODERS for name, size in _SIZES.items()
    ]
    sizes.append(Case("3840x2160, HDR, libx264", _SIZES["3840x2160"], (*_X265, *_HDR)))
    full = Case("1920x1080", _SIZES["1920x1080"])
    kinds = [
        replace(full, name="1920x1080, interlaced", made=_FIELDS),
        replace(full, name="1920x1080, damaged, --salvage", suffix="ts", salvage=True, drawn_seconds=20, seconds=20),
        replace(full, name="1920x1080, in sections", drawn_seconds=20, seconds=20, section_seconds=4.0),
    ]
    quick = (*_X264, "-preset", "ultrafast")
    small = Case("96x64, an hour", (96, 64), quick, drawn_seconds=10, seconds=_HOUR_SECONDS)
    hours = [
        small,
        replace(small, name="96x64, an hour in sections", section_seconds=3.0),
        replace(small, name="96x64, an hour, damaged, --salvage", suffix="ts", salvage=True),
    ]
    both = [replace(each, name=f"{each.name}{what}", kept_at=at) for each in (*sizes, *kinds) for at, what in (
        (256, ", at 256"), (0, ", kept as it is"))]  # fmt: skip
    return [*both, *hours]


def make(folder: Path, case: Case) -> Path:
    drawn, path = folder / f"drawn.{case.suffix}", folder / f"source.{case.suffix}"
    width, height = case.size
    picture = f"testsrc2=s={width}x{height}:r={footage.RATE}:d={case.drawn_seconds}"
    footage.ffmpeg("-f", "lavfi", "-i", picture, *case.made, "-g", "60", "-threads", "1", str(drawn))
    again = case.seconds // case.drawn_seconds - 1
    footage.ffmpeg("-stream_loop", str(again), "-i", str(drawn), "-c", "copy", str(path))
    if case.salvage:
        data, noise = bytearray(path.read_bytes()), random.Random(1)  # noqa: S311  # no secrets
        for place in range(_DAMAGED_PLACES):
            at = len(data) // (_DAMAGED_PLACES + 1) * (place + 1)
            data[at : at + _DAMAGED_BYTES] = noise.randbytes(_DAMAGED_BYTES)
        path.write_bytes(data)
    return path


def peaks(argv: Sequence[str]) -> tuple[int, int]:
    """MiB of a Python and of the ffmpegs that it starts: the most that each had since its program began."""
    python = ffmpeg = 0
    with subprocess.Popen(argv) as process:
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                own = psutil.Process(process.pid)
                python = max(python, _peak_mib(own.pid))
                below = [each for each in own.children() if "ffmpeg" in Path(each.exe()).name]
                ffmpeg = max(ffmpeg, *(_peak_mib(each.pid) for each in below), 0)
            time.sleep(_LOOK_SECONDS)
    if process.returncode:
        sys.exit(f"bench: {argv[2]} failed")
    return python, ffmpeg


def _peak_mib(pid: int) -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return int(next(each for each in lines if each.startswith("VmHWM")).split()[1]) >> 10
    return 0


def unit_row(case: Case) -> str:
    width, height = case.size
    pixels = 256 * 256 * width // height if case.kept_at else width * height
    codec = _ENCODERS[case.encoder]
    asked = task_bytes(width * height, pixels, codec, case.frames, salvage=case.salvage) // 10**6
    how: dict[str, Any] = {
        "size": case.kept_at, "encoder": case.encoder, "codec": codec, "salvage": case.salvage,
        "section_seconds": case.section_seconds,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        source = make(Path(folder), case)
        python, ffmpeg = peaks([sys.executable, "-c", _PREP, str(source), f"{folder}/dataset", json.dumps(how)])
    took = (python + ffmpeg << 20) // 10**6
    return f"{case.name}: {python} + {ffmpeg} MiB, {took} MB, {asked} MB asked for"


def look_row(case: Case) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source, links = make(Path(folder), case), Path(folder) / "links"
        links.mkdir()
        for number in range(_LOOKED_AT):
            (links / f"{number:02}.{case.suffix}").symlink_to(source)
        python, _ = peaks([sys.executable, "-c", _LOOK, str(links)])
    return f"looking at {_LOOKED_AT} of {case.name}: {python} MiB, {LOOK_BYTES // 10**6} MB asked for"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT")
    only = parser.parse_args().only
    for case in cases():
        if only in case.name:
            print(unit_row(case), flush=True)
    looked_at = [
        Case("456x256", _SIZES["456x256"]),
        Case("3840x2160, HDR in a transport stream", _SIZES["3840x2160"], (*_X265, *_HDR), "ts"),
        Case("96x64, three hours", (96, 64), drawn_seconds=10, seconds=3 * _HOUR_SECONDS),
    ]
    for case in looked_at:
        if only in f"looking at {case.name}":
            print(look_row(case), flush=True)


if __name__ == "__main__":
    main()
