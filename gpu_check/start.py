"""`make gpu-check`: prepares what the checks import, and starts run_checks.py with the same arguments.

Where shortgop and what it needs can be imported, nothing is prepared. Otherwise the wheels of `make gpu-wheels` are
unpacked into a folder of the checkout beside the torch of this Python: no network, no pip, and nothing outside the
checkout is changed. A virtual environment would not do: made by a Python that is itself in a virtual environment, it
does not see the torch of that one.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS, SITE = ROOT / "gpu_wheels", ROOT / "gpu_site"
FFMPEG = ROOT / "gpu_ffmpeg" / "ffmpeg.xz"
NEEDED = ("shortgop", "av", "numcodecs", "zarr", "google_crc32c")


def main() -> None:
    arguments, env = sys.argv[1:], dict(os.environ)
    site = empty_site()
    if site != SITE and not any(each.startswith("--results") for each in arguments):
        arguments += ["--results", str(site.parent)]
    path = [str(site), str(ROOT / "tests" / "shared"), str(ROOT / "benchmarks")]
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        (site / "shortgop").symlink_to(ROOT)
    if missing and any(WHEELS.glob("*.whl")):
        if lacking := for_another_machine() or for_another_python() or unpack_wheels(site):
            arguments += ["--lacking", lacking]
    elif missing not in ([], ["shortgop"]):
        print(f"gpu-check: {sys.executable} has no {', '.join(missing)}, and {WHEELS.name} has no wheels")
        print("gpu-check: most checks will fail; `make gpu-wheels` collects what they import, see docs/gpu.md")
    if FFMPEG.exists():
        program, why = site / "ffmpeg-program", unpack_ffmpeg(site / "ffmpeg-program")
        if why:
            print(f"gpu-check: {why}; the checks of prep take another ffmpeg, or are skipped")
        else:
            env["SHORTGOP_FFMPEG"] = str(program)
    env["PYTHONPATH"] = os.pathsep.join([*path, *filter(None, [env.get("PYTHONPATH")])])
    link = [sys.executable, str(ROOT / "scripts" / "link_ffmpeg.py"), str(site / "ffmpeg")]
    done = subprocess.run(link, env=env, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout.strip():
        # TorchCodec loads FFmpeg's libraries by name.
        env["LD_LIBRARY_PATH"] = done.stdout.strip()
    script = str(ROOT / "gpu_check" / "run_checks.py")
    # What was printed to a file or a pipe would be lost.
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-u", script, *arguments], env)  # noqa: S606


def empty_site() -> Path:
    """SITE with nothing in it, or a new folder where the checkout cannot be written."""
    shutil.rmtree(SITE, ignore_errors=True)
    try:
        SITE.mkdir()
    except OSError as error:
        site = Path(tempfile.mkdtemp(prefix="gpu-check-"), SITE.name)
        site.mkdir()
        print(f"gpu-check: the checkout cannot be written ({error}); wheels and results go to {site.parent}")
        return site
    return SITE


def for_another_machine() -> str:
    """That the wheels are for other processors; empty where they are for this one's."""
    file, here = WHEELS / "machine", platform.machine()
    if not file.exists() or (wanted := file.read_text().strip()) == here:
        return ""
    return (
        f"the wheels are for {wanted}, and this machine is {here}: collect others with "
        f"`make gpu-wheels GPU_MACHINE={here}`"
    )


def for_another_python() -> str:
    """That the wheels are for another Python; empty where they are for this one."""
    file, here = WHEELS / "python", f"{sys.version_info.major}.{sys.version_info.minor}"
    if not file.exists() or (wanted := file.read_text().strip()) == here:
        return ""
    return (
        f"the wheels are for Python {wanted}, and {sys.executable} is {here}: collect others with "
        f"`make gpu-wheels GPU_PYTHON={here}`, or run this with another Python, as `make gpu-check PYTHON=...`"
    )


def unpack_wheels(site: Path) -> str:
    """Unpack the wheels into a folder. Returns why that cannot be; empty where it is done."""
    for wheel in sorted(WHEELS.glob("*.whl")):
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
        # Such as a full disk, a file that is not whole, and a Python without lzma.
        except Exception as error:  # noqa: BLE001
            return f"{wheel.name} cannot be unpacked into {site}: {error}"
    return ""


def unpack_ffmpeg(program: Path) -> str:
    """Unpack the ffmpeg program into a file. Returns why that cannot be; empty where it is done."""
    try:
        import lzma

        with lzma.open(FFMPEG) as packed, program.open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
        program.chmod(0o755)
    # As of wheels.
    except Exception as error:  # noqa: BLE001
        # The disk may be full.
        program.unlink(missing_ok=True)
        return f"{FFMPEG.name} cannot be unpacked into {program.parent}: {error}"
    return ""


if __name__ == "__main__":
    main()
