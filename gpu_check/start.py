"""`make gpu-check`: prepares what the checks import, and starts run_checks.py with the same arguments.

Where shortgop and what it needs can be imported, nothing is prepared. Otherwise the wheels of `make gpu-wheels` are
unpacked into a folder of the checkout beside the torch of this Python: no network, no pip, and nothing outside the
checkout is changed. No virtual environment either: made by a Python that is in one itself, it would not see that one's
torch.
"""

from __future__ import annotations

import importlib.util
import lzma
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS, SITE = ROOT / "gpu_wheels", ROOT / "gpu_site"
FFMPEG = ROOT / "gpu_ffmpeg" / "ffmpeg.xz"
NEEDED = ("shortgop", "av", "numcodecs", "zarr", "google_crc32c")


def main() -> None:
    path = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = dict(os.environ)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    shutil.rmtree(SITE, ignore_errors=True)
    SITE.mkdir()
    if missing and WHEELS.is_dir():
        unpack_wheels()
        path.insert(0, str(SITE))
    elif missing:
        print(f"gpu-check: this Python has no {', '.join(missing)}, and there is no {WHEELS.name}: `make gpu-wheels`")
    if FFMPEG.exists():
        env["SHORTGOP_FFMPEG"] = str(unpack_ffmpeg())
    env["PYTHONPATH"] = os.pathsep.join(path)
    linked = [sys.executable, str(ROOT / "scripts" / "link_ffmpeg.py"), str(SITE / "ffmpeg")]
    done = subprocess.run(linked, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0 and done.stdout.strip():
        # TorchCodec loads FFmpeg's libraries by name.
        env["LD_LIBRARY_PATH"] = done.stdout.strip()
    os.execve(sys.executable, [sys.executable, "-u", str(ROOT / "gpu_check" / "run_checks.py"), *sys.argv[1:]], env)  # noqa: S606


def unpack_wheels() -> None:
    """Unpack the wheels into SITE, with a link that makes the checkout importable as shortgop."""
    wanted, here = (WHEELS / "python").read_text().strip(), f"{sys.version_info.major}.{sys.version_info.minor}"
    if wanted != here:
        sys.exit(
            f"gpu-check: the wheels are for Python {wanted}, and {sys.executable} is {here}: collect others with "
            f"`make gpu-wheels GPU_PYTHON={here}`, or run this with another Python"
        )
    for wheel in sorted(WHEELS.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(SITE)
    (SITE / "shortgop").symlink_to("..")


def unpack_ffmpeg() -> Path:
    """Unpack the ffmpeg program; returns its path."""
    program = SITE / "ffmpeg-program"
    with lzma.open(FFMPEG) as packed, program.open("wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    main()
