"""What a unit takes in memory, beside what it asks Ray for: python benchmarks/unit_memory.py

Peaks of the Python process and of ffmpeg, one thread each, for sources of several sizes, encoded at 256 and kept as
they are. A shell lies between this process and that of prep, since a peak includes that of the process it was forked
from. For the same reason the peak of ffmpeg is at least what Python had when it was started. Linux only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import footage

from shortgop.jobs.task_memory import task_bytes

_SECONDS = 2
_SIZES = {"456x256": (456, 256), "1280x720": (1280, 720), "1920x1080": (1920, 1080), "3840x2160": (3840, 2160)}
_HDR = ("-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc", "-pix_fmt", "yuv420p10le")
_ENCODERS = {"libx264": "h264", "libx265": "hevc"}
_PREP = """
import json, resource, sys
import shortgop
source, out, size, encoder = sys.argv[1:]
report = shortgop.prepare([source], out, runner="inline", size=int(size) or None, encoder=encoder)
assert not report.failures, report.failures
print(json.dumps([resource.getrusage(who).ru_maxrss >> 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]))
"""


def make(path: Path, size: str, *, hdr: bool) -> None:
    """A source of some seconds, in H.264, or in HEVC with ten bits."""
    encoded = ("-c:v", "libx265", *_HDR) if hdr else ("-c:v", "libx264")
    drawn = f"testsrc2=s={size}:r=30:d={_SECONDS}"
    footage.ffmpeg("-f", "lavfi", "-i", drawn, *encoded, "-threads", "1", str(path))


def peaks(source: Path, out: Path, size: int, encoder: str) -> tuple[int, int]:
    """MiB of Python and of ffmpeg."""
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    command = [*shell, sys.executable, "-c", _PREP, str(source), str(out), str(size), encoder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    python, ffmpeg = json.loads(done.stdout)
    return python, ffmpeg


def main() -> None:
    cases = [(name, False, encoder) for encoder in _ENCODERS for name in _SIZES]
    cases.append(("3840x2160", True, "libx264"))
    print("MiB of Python + ffmpeg, and MB that are asked for")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, hdr, encoder) in enumerate(cases):
            source = Path(folder) / f"{number}.mp4"
            make(source, name, hdr=hdr)
            width, height = _SIZES[name]
            for size in (256, 0):
                python, ffmpeg = peaks(source, Path(folder) / f"{number}-{size}", size, encoder)
                pixels = 256 * 256 * width // height if size else width * height
                asked = task_bytes(width * height, pixels, _ENCODERS[encoder]) // 10**6
                what = f"{name}{', HDR' if hdr else ''}, {encoder}, {f'at {size}' if size else 'kept as it is'}"
                print(f"{what}: {python} + {ffmpeg} MiB, {asked} MB asked for", flush=True)


if __name__ == "__main__":
    main()
