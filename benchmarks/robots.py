"""Training reads of a LeRobot dataset: LeRobotClips beside LeRobot's own LeRobotDataset.

    python benchmarks/robots.py --python python3.12 --rounds 5

LeRobot writes a dataset of two cameras with its own settings, shortgop prepares it, and loaders of both read random
items of it in turn, as three kinds of policies want them. LeRobot gets an environment of its own in .venv/lerobot,
since it wants another PyAV than `prep`; shortgop reads in it, too. It takes an hour and more. TorchCodec needs FFmpeg's
libraries: LD_LIBRARY_PATH is what `python scripts/link_ffmpeg.py .venv/ffmpeg` prints. `make bench` leaves this out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import footage
import numpy as np
from results import ALL_PAGE, RESULTS, ROOT, machine_name, markdown_row, taken_on, write_page
from robot_reading import SCENARIOS, loader_names

from shortgop.comparison.estimates import median
from shortgop.comparison.machine import Machine, this_machine

LEROBOT = ("lerobot[dataset]==0.6.1", "av<16", "zarr>=3.1")
DATASETS: Mapping[str, Sequence[str]] = {"default": (), "gop-4": ("--gop", "4")}
CLOCK = "milliseconds"
_HERE = Path(__file__).parent


def environment(python: str) -> Path:
    """The Python of an environment with LeRobot, which is made once."""
    # Not in the cache: tests look at all modules in the folder of benchmarks.
    folder = ROOT / ".venv" / "lerobot"
    made = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        # The constraints of `make` are for one set of versions.
        variables = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
        subprocess.run([made, "-m", "pip", "install", "--quiet", *LEROBOT], check=True, env=variables)
        (folder / "complete").touch()
    return made


def run_there(python: Path, script: str, *arguments: str, output: bool = False) -> str:
    """Run one of the scripts beside this one in LeRobot's environment; what it wrote, where that is wanted."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT / ".venv" / "typed"), "HF_HUB_OFFLINE": "1"}
    argv = [str(python), str(_HERE / script), *arguments]
    done = subprocess.run(argv, check=True, env=variables, text=True, stdout=subprocess.PIPE if output else None)
    return done.stdout or ""


def robot_dataset(python: Path, episodes: int, frames: int) -> Path:
    """The dataset that LeRobot writes, made once."""
    out = footage.WORK / f"robot-{episodes}x{frames}"
    if not (out / "complete").exists():
        shutil.rmtree(out, ignore_errors=True)
        cameras = [str(path) for path in footage.make_sources("robots", 2, 480, 20, preset="veryfast", crf=10)]
        count = ("--episodes", str(episodes), "--frames", str(frames))
        run_there(python, "robot_writing.py", str(out), "--cameras", *cameras, *count)
        (out / "complete").touch()
    return out


def prepared(robot: Path) -> dict[str, Path]:
    """The datasets that shortgop makes of it, made once."""
    made = {}
    for name, options in DATASETS.items():
        out = made[name] = robot.with_name(f"{robot.name}-prepared-{name}")
        if not (out / "complete").exists():
            shutil.rmtree(out, ignore_errors=True)
            command = [sys.executable, "-m", "shortgop", "prep", str(robot), "--out", str(out), *options]
            subprocess.run(command, check=True)
            (out / "complete").touch()
    return made


def megabytes(folder: Path, pattern: str = "**/*") -> float:
    return sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file()) / 1e6


def measure(python: Path, robot: Path, datasets: Mapping[str, Path], arguments: argparse.Namespace) -> dict[str, Any]:
    given = [word for name, path in datasets.items() for word in ("--dataset", f"{name}={path}")]
    into = footage.WORK / "robots.json"
    options = {"rounds": arguments.rounds, "batches": arguments.batches}
    sizes = [word for name, number in options.items() for word in (f"--{name}", str(number))]
    cases = ["--only", *arguments.only, "--workers", *map(str, arguments.workers)]
    run_there(python, "robot_reading.py", str(robot), *given, *sizes, *cases, "--into", str(into))
    alone: dict[str, list[dict[str, float]]] = {name: [] for name in loader_names(datasets)}
    for _ in range(arguments.rounds):
        for name, found in alone.items():
            found.append(
                json.loads(run_there(python, "robot_reading.py", str(robot), *given, "--alone", name, output=True))
            )
    on_disk = {"LeRobot": megabytes(robot, "videos/**/*.mp4")}
    on_disk |= {name: megabytes(path / "shards") for name, path in datasets.items()}
    return {**json.loads(into.read_text()), "options": options, "alone": alone, "megabytes_on_disk": on_disk}


def page(found: Mapping[str, Any]) -> str:
    """What the section of docs/benchmarks-all.md says."""
    machine, compared, psnr = Machine(**found["machine"]), found["compared"], found["psnr"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    on_disk = ", ".join(f"{size:.1f} MB ({name})" for name, size in found["megabytes_on_disk"].items())
    same = (
        f"Of {compared['items']} random items {compared['same']} had the same times, states, actions and `is_pad` both "
        f"ways; PSNR between their frames is {compared['psnr']:.1f} dB (median). Against what LeRobot was given to "
        f"encode it is {psnr['LeRobot']:.1f} dB with LeRobot and {psnr['shortgop']:.1f} dB with shortgop, which "
        f"encodes again what LeRobot wrote. Videos take {on_disk}."
    )
    runs = len(next(iter(found["alone"].values())))
    lines = [
        f"{machine.cpu}, {machine.cores} cores; {versions} ({taken_on(machine)}).",
        same,
        "All read in turn: {rounds} rounds of {batches} batches.".format(**found["options"]),
        "**Milliseconds by the clock for an item**",
        _table(found["read"], CLOCK),
        "**Milliseconds of CPU time for an item, of all processes**",
        _table(found["read"], "cpu_milliseconds"),
        f"**In a new process, ACT, 2 workers, {runs} runs**",
        _alone(found["alone"]),
    ]
    return "\n\n".join(lines)


def _table(read: Mapping[str, Any], figure: str) -> str:
    titles = {key: "{}, {} workers".format(*key.rsplit(", ", 1)) for key in read}
    lines = [markdown_row(["", *titles.values()]), markdown_row(["---"] * (1 + len(titles)))]
    names = list(next(iter(read.values()))["rounds"])
    for name in names:
        cells = []
        for case in read.values():
            ours, own = (np.array([each[figure] for each in case["rounds"][who]]) for who in (names[0], name))
            frames = f", {case['frames_of_item'] * 1000 / np.median(ours):.0f} frames/s" if figure == CLOCK else ""
            cells.append(f"**{median(ours)} ms**{frames}" if name == names[0] else f"{median(own / ours)} x")
        lines.append(markdown_row([name, *cells]))
    return "\n".join(lines)


def _alone(alone: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    lines = [markdown_row(["", "first batch", "memory"]), markdown_row(["---"] * 3)]
    for name, runs in alone.items():
        seconds, memory = (median(np.array([run[figure] for run in runs])) for figure in ("first_batch", "megabytes"))
        lines.append(markdown_row([name, f"{seconds} s", f"{memory.value:.0f} MB"]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="python3.12", help="for LeRobot, which wants 3.12 or newer")
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--frames", type=int, default=300, help="of each episode")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=8, help="timed in each round")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=["ACT", "diffusion policy"])
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--pages", type=Path, metavar="JSON", help="measure nothing: write the page of these results")
    arguments = parser.parse_args()
    if arguments.pages:
        found = json.loads(arguments.pages.read_text())
    else:
        machine, python = this_machine(), environment(arguments.python)
        robot = robot_dataset(python, arguments.episodes, arguments.frames)
        found = {"machine": asdict(machine), **measure(python, robot, prepared(robot), arguments)}
        result = RESULTS / f"{machine_name(machine)}-robots.json"
        result.write_text(json.dumps(found, indent=1) + "\n")
    write_page(ALL_PAGE, "robots", page(found))


if __name__ == "__main__":
    main()
