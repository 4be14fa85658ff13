"""What the tests of prep on the driver in software share: sources, datasets, and what the driver reports of ffmpeg."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import gpu_prep
import pytest
from check_record import Record

import shortgop
from datasets import current_manifest
from film_grain import add_film_grain
from shortgop.prep.profile import Size
from shortgop.prep.running.ffmpeg import find_ffmpeg
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(30)
FRAMES = 16
TICKS = Fraction(1, 90000)
Reports = Callable[[], dict[str, int]]
_LEFT = (
    "open decoders", "mapped surfaces", "textures", "open encoders", "encoder buffers", "registered pictures",
    "mapped pictures", "bytes left",
)  # fmt: skip


@contextlib.contextmanager
def reported(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Reports]:
    """What the driver counted in all processes of ffmpeg; at the end, that it had nothing to complain of."""
    folder.mkdir()
    patch.setenv("SOFT_GPU_REPORTS", str(folder))

    def counted() -> dict[str, int]:
        found: dict[str, int] = {}
        for file in folder.iterdir():
            for line in file.read_text().splitlines():
                name, _, value = line.rpartition(" ")
                assert not line.startswith("complaint"), line
                found[name] = found.get(name, 0) + int(value)
        return found

    yield counted
    left = counted()
    assert [left.get(name, 0) for name in _LEFT] == [0] * len(_LEFT)


def video(path: Path, *, cropped: str = "", grain: str = "", grain_from: int = 0, **options: Any) -> Path:
    """Make a video whose frames show their numbers; `cropped` says what its stream cuts off, for ffmpeg, and `grain` in
    which codec its headers describe film grain, from picture `grain_from` on."""
    made = {"size": (240, 180), "pts": constant_rate_pts(RATE, FRAMES), "timebase": 1 / RATE, **options}
    make_video(path, **made)
    if not (cropped or grain):
        return path
    whole = path.rename(path.with_suffix(".whole"))
    if cropped:
        argv = [find_ffmpeg().path, "-v", "error", "-i", str(whole), "-c", "copy"]
        subprocess.run([*argv, "-bsf:v", f"h264_metadata={cropped}", str(path)], check=True)
    else:
        add_film_grain(whole, path, grain, grain_from)
    whole.unlink()
    return path


def prepared(sources: Path, out: Path, **options: Any) -> shortgop.Dataset:
    report = shortgop.prepare(str(sources), out, runner="inline", **{"size": 96, "gop": 8, **options})
    assert report.failures == ()
    return shortgop.open(out)


def pipelines_of(dataset: Path) -> list[dict[str, str]]:
    manifest = current_manifest(dataset)
    return [manifest.pipeline(int(config)) for config in manifest.videos.config]


def numbers_of(video: shortgop.Video) -> list[int]:
    return [read_number(frame) for frame in video[:]]


def checked(check: Callable[[Record], None], folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a check of prep reports of little footage and one codec: its figures, and what it raises, under "raised"."""
    for name, value in {
        "FRAMES": 12, "CODECS": ("h264",), "CRFS": {"h264": (19, 31)}, "JOBS_AT_ONCE": 2, "FOOTAGE_FRAMES": 16,
        "FOOTAGE": "mandelbrot=size=640x360:rate=30:end_pts=400", "SIZE": Size(short_side=160),
        "require_gpu": lambda: None,
    }.items():  # fmt: skip
        patch.setattr(gpu_prep, name, value)
    report, raised = folder / "report", ""
    try:
        check(Record(report, folder))
    except RuntimeError as error:
        raised = str(error)
    figures = {line["figure"]: line["value"] for line in map(json.loads, report.read_text().splitlines())}
    report.unlink()
    return figures | {"raised": raised}
