"""What the steps of prep take of a core, for a frame: decoding, scaling to 256p, encoding. For docs/cluster.md.

    python benchmarks/prep_steps.py

Seconds are those that ffmpeg used of a core (user and system), which another process on the machine changes less than
the time on the clock. Each row is of ffmpeg on one thread, with the filters and the encoder options of prep. Where
NVDEC and scale_cuda decode and scale, only the encode is left to the core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import footage

from shortgop.prep.profile import CODECS, SOFTWARE_ENCODERS, changed_profile
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.tools.encoder_options import encoder_options
from shortgop.prep.tools.pipelines import Pipeline

HEIGHTS = (480, 720, 1080)
FRAMES = 120
SIZE = "256"
_SCALE = "scale={size}:flags=bicubic+accurate_rnd+full_chroma_int,format=yuv420p"


def main() -> None:
    """Print a table, a row for each height of the source, with the encodes in each codec. The last column is the share
    of the first codec's encode."""
    print(f"| source | decode | scale | {' | '.join(CODECS)} | all in {CODECS[0]} | share of the encode |")
    print("|---" * (len(CODECS) + 5) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for height in HEIGHTS:
            source = made(Path(folder), height)
            small = _SCALE.format(size=f"{footage.size_of(int(SIZE))[0]}:{SIZE}")
            decode = core_seconds(source, "-f", "null", "-")
            scale = core_seconds(source, "-vf", small, "-f", "null", "-")
            wholes = [core_seconds(source, "-vf", small, *encoder_of(codec), "-f", "null", "-") for codec in CODECS]
            steps = (decode, scale - decode, *(whole - scale for whole in wholes), wholes[0])
            cells = [f"{1000 * step / FRAMES:.2f} ms" for step in steps]
            print(f"| {height}p | {' | '.join(cells)} | {(wholes[0] - scale) / wholes[0]:.0%} |", flush=True)


def encoder_of(codec: str) -> list[str]:
    """What prep tells the encoder on the CPU, with its defaults for this codec."""
    profile = changed_profile(None, {"codec": codec})
    pipeline = Pipeline(encoder=SOFTWARE_ENCODERS[codec], b_frames=profile.b_frames)
    return encoder_options(pipeline, profile, [FRAMES])


def made(folder: Path, height: int) -> Path:
    """A source of this height: sample footage where there is some, else pictures that ffmpeg draws."""
    real, path = footage.real_footage(), folder / f"{height}.mp4"
    width, _ = footage.size_of(height)
    scale = f"scale={width}:{height}:flags=bicubic,setsar=1"
    given = ["-i", str(real[0])] if real else ["-f", "lavfi", "-i", f"mandelbrot=size={width}x{height}"]
    options = ["-frames:v", str(FRAMES), "-pix_fmt", "yuv420p", "-c:v", "libx264", "-crf", "23", "-g", "250"]
    footage.ffmpeg("-v", "error", *given, "-vf", scale, *options, str(path))
    return path


def core_seconds(source: Path, *arguments: str) -> float:
    """The least that ffmpeg used of a core in two runs, in seconds."""
    return min(_used(source, arguments) for _ in range(2))


def _used(source: Path, arguments: Sequence[str]) -> float:
    argv = [find_ffmpeg().path, "-v", "error", "-nostdin", "-threads", "1", "-filter_threads", "1", "-i", str(source)]
    before = os.times()
    if subprocess.run([*argv, *arguments], check=False).returncode:
        sys.exit(f"bench: {source}: ffmpeg failed")
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


if __name__ == "__main__":
    main()
