"""`make gpu-wheels`: what a machine with a GPU, torch and no network lacks, into a folder that can be carried there.

collect_wheels.py --python 3.12 gpu_wheels    wheels, datasets, and which commit they are of
collect_wheels.py --ffmpeg gpu_ffmpeg         the ffmpeg program, packed: no room for it beside the wheels
"""

from __future__ import annotations

import argparse
import lzma
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gpu_samples
from bench_footage import FOLDER, make_benchmark_footage
from checkout import commit, files
from slim_wheel import pack_again

ROOT = Path(__file__).resolve().parent.parent
# What `shortgop.open` and the checks import. A PyTorch that can be used comes with numpy and typing_extensions, and
# with packaging only where something else has brought that.
PACKAGES = ("av", "donfig", "google-crc32c", "numcodecs", "packaging", "PyYAML", "zarr")
# The release for CUDA 13; those before 0.14 have no CUDA part on PyPI. It needs torch 2.11 or newer.
TORCHCODEC = "torchcodec==0.16.0"
# NVIDIA's own reader, for the benchmarks.
PYNVVIDEOCODEC = "PyNvVideoCodec==2.2.4"
GLIBCS = ("_2_28", "_2_27", "_2_17", "2014")
# The most bytes that may be carried, the checkout included: 64 MiB, less what this may be wrong by. An archive takes up
# to a kilobyte more for each file.
ROOM_BYTES, BYTES_PER_FILE = 62 << 20, 1 << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="the version of Python that has torch there, such as 3.12")
    parser.add_argument("--machine", default="x86_64", choices=("x86_64", "aarch64"), help="the processors there")
    parser.add_argument("--ffmpeg", action="store_true", help="only the ffmpeg program")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    if options.ffmpeg:
        collect_ffmpeg(options.folder)
    else:
        wanted = pinned((ROOT / "constraints.txt").read_text(), PACKAGES)
        download(wanted, options.python, options.machine, options.folder)
        print("Packing the wheels again: a minute")
        for wheel in options.folder.glob("*.whl"):
            if left_out := pack_again(wheel):
                print(f"Left out of {wheel.name}: {left_out} libraries")
        (options.folder / "python").write_text(f"{options.python}\n")
        (options.folder / "machine").write_text(f"{options.machine}\n")
        print("Making the sample datasets: half a minute")
        gpu_samples.make_samples(options.folder / "samples")
        print("Making the footage of the benchmarks: some minutes")
        make_benchmark_footage(options.folder / "samples" / FOLDER)
        (options.folder / "commit").write_text(f"{commit(ROOT)}\n")
    report(options.folder)


def pinned(constraints: str, packages: Sequence[str]) -> list[str]:
    """The requirement of each package as the constraints have it. KeyError for one that they lack."""
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)$", constraints, re.MULTILINE))
    return [f"{name}=={versions[name]}" for name in packages]


def download(requirements: Sequence[str], python: str, machine: str, folder: Path) -> None:
    """Download wheels for Linux on such processors and this version of Python."""
    for requirement in [*requirements, TORCHCODEC, PYNVVIDEOCODEC]:
        platforms = [f"--platform=manylinux{glibc}_{machine}" for glibc in GLIBCS]
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
                *("--implementation=cp", f"--python-version={python}", *platforms),
                *(f"--dest={folder}", requirement),
            ],
            check=True,
        )


def collect_ffmpeg(folder: Path) -> None:
    """The program of imageio-ffmpeg. Its wheel is larger than what may be carried; xz makes 50 MB of its 68."""
    import imageio_ffmpeg

    print("Packing ffmpeg: some minutes on one core")
    with (
        Path(imageio_ffmpeg.get_ffmpeg_exe()).open("rb") as program,
        lzma.open(folder / "ffmpeg.xz", "wb", preset=6) as packed,
    ):
        shutil.copyfileobj(program, packed, 1 << 20)


def report(folder: Path) -> None:
    """Print the size of each file, and of all against what may be carried."""
    for entry in sorted(folder.iterdir()):
        print(f"{sum(each.lstat().st_size for each in _files_in(entry)) / 1e6:8.1f} MB  {entry}")
    # The folder itself is one that git ignores, unless it lies elsewhere or has another name.
    carried = set(_files_in(folder))
    checkout = carried_bytes([file for file in files(ROOT) if file not in carried])
    total = carried_bytes(list(carried)) + checkout
    print(
        f"{total / 2**20:.1f} MiB with the checkout ({checkout / 2**20:.1f}), of {ROOM_BYTES >> 20} that may be carried"
    )
    if total > ROOM_BYTES:
        sys.exit(f"gpu-wheels: {folder} is too large to be carried")


def carried_bytes(paths: Sequence[Path]) -> int:
    """About what these files take in an archive."""
    return sum(path.lstat().st_size + BYTES_PER_FILE for path in paths)


def _files_in(entry: Path) -> list[Path]:
    return [path.resolve() for path in [entry, *entry.rglob("*")] if path.is_file()]


if __name__ == "__main__":
    main()
