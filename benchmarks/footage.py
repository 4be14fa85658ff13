"""Material for the benchmarks: sources with long GOPs, datasets made of them, and their videos as MP4s.

Everything lies in benchmarks/cache under names that say what it is, and is made once. Where SHORTGOP_SAMPLE_VIDEOS
names a folder of footage, sources are made of that, looped and scaled; else ffmpeg draws them: pictures that take about
as many bits as such footage does (at 256p 0.1 to 1.1 Mbit/s, at x264's usual quality).
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import shortgop
from shortgop.comparison.files import scan
from shortgop.errors import ShortGopError
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.export import export
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.storage.disk import DiskStorage

WORK = Path(__file__).resolve().parent / "cache"
RATE = 30
# ffmpeg's own settings: GOPs of up to 250 frames, B-frames that others refer to.
_X264 = ("-c:v", "libx264", "-g", "250", "-threads", "1")

_LIFE = "life=s=72x40:r=10:mold=20:ratio=0.2:seed={seed}:life_color=#ffd166:death_color=#ef476f:mold_color=#073b4c"
PICTURES = (
    "mandelbrot=s={size}:r={rate}:maxiter=300:end_scale=0.001:end_pts=900",
    "gradients=s={size}:r={rate}:n=5:seed={seed}:speed=0.03:type=spiral",
    f"{_LIFE},fps={{rate}},scale={{scale}}:flags=bicubic,setsar=1",
    "testsrc2=s={size}:r={rate}",
)
# Where encodings are compared, so that the sources' own encoding does not count.
_NEARLY_LOSSLESS = 10
_MIN_REAL_FRAMES, _MIN_REAL_HEIGHT = 200, 400


def ffmpeg(*arguments: str) -> str:
    """Run ffmpeg; return what it says on standard error."""
    argv = [find_ffmpeg().path, "-hide_banner", "-nostdin", "-y", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(argv)}\n{done.stderr}")
    return done.stderr


def ffmpeg_output(*arguments: str) -> str:
    """Run ffmpeg; return what it writes to standard output."""
    argv = [find_ffmpeg().path, "-hide_banner", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def size_of(height: int) -> tuple[int, int]:
    """16:9 in even numbers."""
    return round(height * 16 / 9 / 2) * 2, height


def sample_folder() -> str:
    """The folder of sample footage; empty where there is none."""
    return os.environ.get("SHORTGOP_SAMPLE_VIDEOS", "")


def real_footage() -> list[Path]:
    """Files that are long and large enough, in the folder that SHORTGOP_SAMPLE_VIDEOS names."""
    folder = sample_folder()
    found = []
    for path in sorted(Path(folder).iterdir()) if folder else []:
        try:
            if len(scan(path)) >= _MIN_REAL_FRAMES and _height(path) >= _MIN_REAL_HEIGHT:
                found.append(path)
        except ShortGopError:
            continue
    return found


def _height(path: Path) -> int:
    import av

    with av.open(str(path)) as container:
        return container.streams.video[0].height


def make_sources(
    name: str, count: int, height: int, seconds: int, *, preset: str = "medium", crf: int = 23
) -> list[Path]:
    """`count` videos of this height, all of the same size and length."""
    real = real_footage()
    # The name says what is drawn, so that a changed picture is drawn anew.
    content = "real" if real else f"drawn{zlib.crc32(repr(PICTURES).encode()):08x}"
    folder = WORK / f"{name}-{height}p-{seconds}s-{preset}-crf{crf}-{content}"
    folder.mkdir(parents=True, exist_ok=True)
    width, _ = size_of(height)

    def make(number: int) -> Path:
        path = folder / f"{number:03}.mp4"
        if path.exists():
            return path
        scale = f"scale={width}:{height}:flags=bicubic"
        source: tuple[str, ...]
        graph: tuple[str, ...] = ()
        if real:
            source = ("-stream_loop", "-1", "-ss", str(number // len(real)), "-i", str(real[number % len(real)]))
            # Each frame once, whatever its rate: a repeated frame would cost next to nothing to decode.
            graph = ("-vf", f"{scale},setsar=1,settb=1/{RATE},setpts=N,format=yuv420p", "-r", str(RATE))
        else:
            fields = {"size": f"{width}x{height}", "scale": f"{width}:{height}", "rate": RATE, "seed": number + 1}
            picture = f"{PICTURES[number % len(PICTURES)]},format=yuv420p".format(**fields)
            source = ("-f", "lavfi", "-i", picture)
        part = path.with_suffix(".part.mp4")
        options = (*_X264, "-preset", preset, "-crf", str(crf))
        ffmpeg("-v", "error", *source, *graph, "-an", "-t", str(seconds), *options, str(part))
        part.rename(path)
        return path

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(make, range(count)))


def make_samples(seconds: float) -> list[Path]:
    """All of the sample footage, each frame once, at most `seconds` of each video, nearly lossless.

    The short side has at most 256 pixels. Without SHORTGOP_SAMPLE_VIDEOS it is what `make_sources` draws.
    """
    folder = sample_folder()
    if not folder:
        return make_sources("encodings", len(PICTURES), 256, math.ceil(seconds), crf=_NEARLY_LOSSLESS)
    out = WORK / f"samples-{seconds:g}s"
    out.mkdir(parents=True, exist_ok=True)
    # A smaller picture stays as it is.
    scale = "scale='if(gt(iw,ih),-2,min(256,iw))':'if(gt(iw,ih),min(256,ih),-2)':flags=bicubic:out_range=tv"
    graph = f"{scale},setsar=1,settb=1/{RATE},setpts=N,format=yuv420p"

    def make(source: Path) -> Path | None:
        path = out / f"{source.stem}.mp4"
        if not path.exists():
            try:
                scan(source)
            except ShortGopError:
                return None
            part = path.with_suffix(".part.mp4")
            end = ("-an", "-frames:v", str(round(seconds * RATE)), *_X264, "-crf", str(_NEARLY_LOSSLESS), str(part))
            ffmpeg("-v", "error", "-i", str(source), "-vf", graph, "-r", str(RATE), *end)
            part.rename(path)
        return path

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = pool.map(make, sorted(path for path in Path(folder).iterdir() if path.is_file()))
        return [path for path in made if path is not None]


def make_long(lengths_seconds: Sequence[int]) -> list[Path]:
    """720p60 test pictures, as in DALI's issue #5888; the shorter ones are the beginning of the longest."""
    folder = WORK / "long-720p60"
    folder.mkdir(parents=True, exist_ok=True)
    longest = folder / f"{max(lengths_seconds):04}.mp4"
    if not longest.exists():
        part = longest.with_suffix(".part.mp4")
        picture = f"testsrc=duration={max(lengths_seconds)}:size=1280x720:rate=60"
        ffmpeg("-v", "error", "-f", "lavfi", "-i", picture, "-c:v", "libx264", "-pix_fmt", "yuv420p", str(part))
        part.rename(longest)
    paths = []
    for seconds in lengths_seconds:
        path = folder / f"{seconds:04}.mp4"
        if not path.exists():
            ffmpeg("-v", "error", "-i", str(longest), "-t", str(seconds), "-c", "copy", str(path))
        paths.append(path)
    return paths


def make_dataset(
    sources: Sequence[Path],
    size: str,
    *options: str,
    name: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Prepare sources as users do; a dataset that is not complete is made anew. `environment` is added to this one."""
    folder = sources[0].parent
    out = folder.with_name(f"{folder.name}-{len(sources)}-to-{size}{name}")
    if (out / "complete").exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    argv = [sys.executable, "-m", "shortgop", "prep", *map(str, sources), "--out", str(out), "--size", size, *options]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(argv)}\n{done.stderr}")
    (out / "complete").touch()
    return out


def make_exported(dataset: Path) -> list[Path]:
    """The dataset's videos as MP4s, in the order of their numbers."""
    folder = dataset.with_name(f"{dataset.name}-exported")
    folder.mkdir(exist_ok=True)
    _, manifest = open_current(DiskStorage(dataset))
    paths = []
    for row, video in enumerate(shortgop.open(dataset).ids):
        path = folder / f"{Path(video).stem}.mp4"
        if not path.exists():
            export(DiskStorage(dataset), manifest, row, path)
        paths.append(path)
    return paths
