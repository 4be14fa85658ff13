"""Reads the same datasets with other versions of the libraries that reading stands on: `make versions`.

    python tests/shared/other_versions.py                   # the oldest ones, the newest ones, and some between
    python tests/shared/other_versions.py --only newest --python /path/to/python3.13

pyproject.toml says from which versions on shortgop installs. Here each set of them gets an environment of its own,
without the extras. What is read there has to be equal to what is read here, in every format, and clips have to come in
the same order. It ends with 1 where something differs by more than docs/versions.md says.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import shortgop

ROOT = Path(__file__).parents[2]
_PYTHONS = ("python3.14", "python3.13", "python3.12")
_FRAMES = 40
_LIBRARIES = ("av", "numcodecs", "numpy", "torch", "zarr")
# FFmpeg before 8, as PyAV 15 has it, rounds these otherwise.
_ROUNDED_OTHERWISE = ("ycbcr", "grey")
# LeRobot 0.6.1 wants these, in its extra `dataset`.
_LEROBOT = ("av<16", "numpy<2.3", "torch<2.12")
# The formats that frames are read in: what `shortgop.open` is given.
_FORMATS: Mapping[str, Mapping[str, Any]] = {
    "as they are": {},
    "resized": {"size": (48, 64)},
    "cropped and resized": {"size": (32, 32), "crop": "center"},
    "a part": {"crop": (2, 4, 40, 50)},
    "normalised": {"size": 40, "dtype": torch.float32, "normalize": (0.5, 0.25)},
    "bfloat16": {"size": (30, 40), "dtype": torch.bfloat16, "dimension_order": "NHWC"},
    "ycbcr": {"color": "ycbcr"},
    "grey": {"size": (24, 32), "color": "grey"},
    "yuv420": {"color": "yuv420"},
}


def make_datasets(folder: Path, codecs: Sequence[str] = ("h264", "hevc", "av1")) -> None:
    """Prepare videos of several codecs, colours, sizes and rates, one dataset for each codec."""
    # What makes videos runs with the versions that are here, and need not be there.
    from av.video.reformatter import ColorRange

    from synthetic import constant_rate_pts, make_video

    sources = folder / "sources"
    sources.mkdir()
    for name, rate, size, matrix, colours in (
        ("untagged", Fraction(30), (96, 64), 2, ColorRange.UNSPECIFIED),
        ("bt709", Fraction(25), (98, 66), 1, ColorRange.MPEG),
        ("full range", Fraction(24000, 1001), (128, 96), 1, ColorRange.JPEG),
        ("bt2020", Fraction(60000, 1001), (160, 80), 9, ColorRange.MPEG),
    ):
        path = sources / f"{name}.mp4"
        pts = constant_rate_pts(rate, _FRAMES)
        make_video(path, pts=pts, timebase=1 / rate, size=size, colorspace=matrix, color_range=colours)
    for codec in codecs:
        shortgop.prepare([sources], folder / codec, codec=codec, runner="inline")


def readings(folder: Path) -> dict[str, torch.Tensor]:
    """What is read for each codec and format, and by two epochs of a ClipLoader, each as one row of numbers."""
    found = {}
    for dataset in sorted(path for path in folder.iterdir() if path.name != "sources"):
        for name, options in _FORMATS.items():
            videos = shortgop.open(dataset, threads=2, **options)
            frames = [video.get_frames_at(wanted).data for video in videos for wanted in _requests(len(video))]
            found[f"{dataset.name}, {name}"] = _in_a_row(frames)
        found[f"{dataset.name}, columns"] = _in_a_row(_columns(dataset))
        found[f"{dataset.name}, batches"] = _in_a_row(_batches(dataset))
    return found


def _requests(num_frames: int) -> tuple[Sequence[int], ...]:
    return range(num_frames), range(1, num_frames, 7), [num_frames - 1], [num_frames // 2, 3, 3]


def _columns(dataset: Path) -> Iterator[torch.Tensor]:
    columns = shortgop.open(dataset).columns
    for name in ("id", "num_frames", "fps", "width", "height", "codec"):
        yield torch.tensor(list(json.dumps(columns[name].tolist(), default=str).encode()))


def _batches(dataset: Path) -> Iterator[torch.Tensor]:
    clips = shortgop.ClipDataset(dataset, shortgop.RandomClips(8, stride=2, clips_per_video=3), size=(32, 32))
    sampler = shortgop.ElasticSampler(clips, 4, seed=5)
    with shortgop.ClipLoader(clips, sampler) as loader:
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for batch in loader:
                yield from (batch[key] for key in ("frames", "video", "start", "pts_seconds"))


def _in_a_row(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """The shapes and the values of these."""
    parts = (part for each in tensors for part in (torch.tensor(each.shape), each.reshape(-1)))
    return torch.cat([part.double() for part in parts])


def version_sets(newer: str | None = None) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    """What is installed in each environment, and by which Python: None is the one that runs this. `newer`: the Python
    for the newest ones."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    names = [each.split(">=")[0] for each in wanted]
    oldest = tuple(each.split(",")[0].replace(">=", "==") for each in wanted)
    newer = newer or next((found for python in _PYTHONS if (found := _running(python))), None)
    return {
        "oldest": (None, oldest),
        "lerobot": (newer, (*_LEROBOT, *(name for name in names if name not in ("av", "numpy", "torch")))),
        "newest": (newer, tuple(names)),
    }


def _running(python: str) -> str | None:
    """The path of a Python, if it runs: pyenv has a shim for every version that anybody ever installed."""
    path = shutil.which(python)
    return path if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0 else None


def _environment(folder: Path, python: str | None, wanted: Sequence[str]) -> Path:
    """The Python of a new environment that has these."""
    subprocess.run([python or sys.executable, "-m", "venv", "--clear", folder], check=True)
    # The constraints of `make` are for one set of versions.
    variables = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *wanted], check=True, env=variables)
    return folder / "bin" / "python"


def read_by(python: Path, folder: Path) -> tuple[dict[str, torch.Tensor], str]:
    """What an environment reads, and its versions; without anything read, what it wrote of its error."""
    file = folder.with_name("found.pt")
    variables = {**os.environ, "PYTHONPATH": str(ROOT / ".venv" / "typed"), "OMP_NUM_THREADS": "1"}
    variables.pop("LD_LIBRARY_PATH", None)
    command = [str(python), __file__, "--read", str(folder), "--into", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    return ({}, run.stderr) if run.returncode else (torch.load(file), run.stdout.strip())


def compare(
    name: str, found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], versions: str = ""
) -> bool:
    """Whether what an environment read is what is read here; says so, or what differs."""
    if not found:
        print(f"{name}: it does not read: {versions}")
        return False
    differences = {key: difference(found.get(key), value) for key, value in expected.items()}
    wrong = wrong_ones(differences)
    rounded = len(expected) - len(wrong) - list(differences.values()).count(0)
    print(f"{name}: {versions}")
    print(f"  of {len(expected)} kinds of reads, {rounded} differ by one level at most, {len(wrong)} by more: {wrong}")
    return not wrong


def wrong_ones(differences: Mapping[str, float]) -> dict[str, float]:
    """Of the greatest differences of each kind of reads, those that are too great."""
    return {key: by for key, by in differences.items() if by > (1 if key.endswith(_ROUNDED_OTHERWISE) else 0)}


def difference(found: torch.Tensor | None, expected: torch.Tensor) -> float:
    """The greatest one between two rows of numbers; infinite where their lengths differ, or one is missing."""
    if found is None or found.shape != expected.shape:
        return float("inf")
    return float((found - expected).abs().max())


def _versions() -> str:
    return ", ".join([f"Python {sys.version.split()[0]}", *(f"{name} {version(name)}" for name in _LIBRARIES)])


def main() -> int:
    """Compare the environments that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", choices=version_sets(), default=list(version_sets()))
    parser.add_argument("--python", help="the Python for the newest versions; some want a newer one than 3.11")
    parser.add_argument("--read", type=Path, metavar="FOLDER", help="read the datasets in a folder, and end")
    parser.add_argument("--into", type=Path, metavar="FILE", help="the file for what was read")
    arguments = parser.parse_args()
    if arguments.read:
        torch.save(readings(arguments.read), arguments.into)
        print(_versions())
        return 0
    sets = version_sets(arguments.python)
    with tempfile.TemporaryDirectory(prefix="shortgop-versions-") as made:
        folder = Path(made)
        datasets = folder / "datasets"
        datasets.mkdir()
        make_datasets(datasets)
        expected = readings(datasets)
        print(f"here: {_versions()}")
        right = []
        for name in arguments.only:
            # One after the other: each takes some gigabytes, because of torch.
            with tempfile.TemporaryDirectory(dir=folder) as environment:
                found, said = read_by(_environment(Path(environment), *sets[name]), datasets)
                right.append(compare(name, found, expected, said))
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
