"""Scenario 6, `make bench-encodings`: what GOP, B-frames, `fastdecode` and codec cost in bytes and give in speed.

The same footage is prepared with each encoding, read at random by shortgop, and compared with the source's pixels.
AV1 is read by PyAV alone, since shortgop has none; PyAV reads every encoding, to compare by.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import footage
import torch
from results import OURS, RESULTS, described, machine_name, markdown_row, taken_on, write_json, write_page
from rich.console import Console
from scenarios import measured

import shortgop
from shortgop.comparison.accesses import Access, draw
from shortgop.comparison.estimates import Estimate
from shortgop.comparison.machine import this_machine
from shortgop.comparison.peers import load
from shortgop.comparison.tasks import FileSet, our_task, peer_task
from shortgop.comparison.timing import Task

ACCESSES = {"clip": Access(16, 4), "frame": Access(1)}
HEIGHT = 256
_AV1_CRF, _AV1_PRESET = "35", "8"
console = Console(highlight=False)


@dataclass(frozen=True, order=True)
class Encoding:
    """How to encode; `fastdecode` is the tuning of x264 and x265, at the encoder's usual quality level."""

    codec: str
    gop: int
    b_frames: int
    fastdecode: bool = False

    def __str__(self) -> str:
        # SVT-AV1 decides about references by itself.
        b_frames = "" if self.codec == "av1" else f", {self.b_frames} B"
        return f"{self.codec}, GOP {self.gop}{b_frames}{', fastdecode' if self.fastdecode else ''}"

    @property
    def key(self) -> str:
        return f"-{self.codec}-g{self.gop}-b{self.b_frames}{'-fast' if self.fastdecode else ''}"


@dataclass(frozen=True)
class Outcome:
    """`bytes` of all videos, `psnr` of luma in dB; milliseconds of a clip and of a frame, where shortgop reads it."""

    encoding: Encoding
    bytes: int
    psnr: float
    clip: Estimate | None
    frame: Estimate | None
    clip_pyav: Estimate
    frame_pyav: Estimate


def encodings(gops: Sequence[int], codecs: Sequence[str], b_frames: Sequence[int]) -> list[Encoding]:
    """All that make sense: so many B-frames take a longer GOP, and AV1 has neither setting."""
    found = []
    for codec in codecs:
        for gop in gops:
            if codec == "av1":
                found.append(Encoding(codec, gop, 0))
                continue
            found += [Encoding(codec, gop, b, fast) for b in b_frames if b < gop for fast in (False, True)]
    return found


def make(encoding: Encoding, sources: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """The dataset, where there can be one, and its videos as MP4s."""
    if encoding.codec == "av1":
        return None, _av1(encoding, sources)
    options = ["--runner", "inline", "--codec", encoding.codec, "--gop", str(encoding.gop)]
    options += ["--b-frames", str(encoding.b_frames)]
    # x264 or x265 wherever it runs, so that results of several machines can be compared.
    options += ["--encoder", {"h264": "libx264", "hevc": "libx265"}[encoding.codec]]
    options += ["--fastdecode" if encoding.fastdecode else "--no-fastdecode"]
    dataset = footage.make_dataset(sources, "source", *options, name=encoding.key)
    return dataset, footage.make_exported(dataset)


def _av1(encoding: Encoding, sources: Sequence[Path]) -> list[Path]:
    folder = sources[0].parent.with_name(f"{sources[0].parent.name}{encoding.key}")
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{source.stem}.mp4" for source in sources]
    for source, path in zip(sources, paths, strict=True):
        if not path.exists():
            options = ("-c:v", "libsvtav1", "-crf", _AV1_CRF, "-preset", _AV1_PRESET, "-g", str(encoding.gop))
            footage.ffmpeg("-v", "error", "-i", str(source), *options, str(path))
    return paths


def psnr(path: Path, source: Path) -> float:
    """Of luma, over all frames, in dB."""
    said = footage.ffmpeg("-i", str(path), "-i", str(source), "-lavfi", "[0:v][1:v]psnr", "-f", "null", "-")
    match = re.search(r"PSNR y:([\d.]+|inf)", said)
    if not match:
        sys.exit(f"bench: ffmpeg reports no PSNR for {path}")
    return float(match[1])


def measure(
    chosen: Sequence[Encoding], sources: Sequence[Path], rounds: int, requests: int, note: Callable[[str], object]
) -> list[Outcome]:
    """Make all encodings, then read them in turn."""
    made = {}
    for encoding in chosen:
        note(f"6. making {encoding}")
        made[encoding] = make(encoding, sources)
    read = load(["pyav"])[0]["pyav"]
    times: dict[tuple[str, str, str], Estimate] = {}
    for name, access in ACCESSES.items():
        note(f"6. reading: {name}")
        tasks: dict[tuple[str, str], Task] = {}
        for encoding, (dataset, paths) in made.items():
            files = FileSet.of_exported("", paths)
            asked = draw([len(file) for file in files.files], access, rounds * requests, seed=6)
            if dataset is not None:
                opened = shortgop.open(dataset)
                tasks[OURS, str(encoding)] = our_task(opened, range(len(opened)), asked)
            tasks["pyav", str(encoding)] = peer_task(read, files, asked)
        missing: dict[str, str] = {}
        rows = measured(tasks, missing, requests=rounds * requests)
        if missing:
            sys.exit(f"bench: {missing}")
        times |= {(row.reader, name, row.files): row.milliseconds for row in rows}
    outcomes = []
    for encoding, (_, paths) in made.items():
        note(f"6. PSNR of {encoding}")
        qualities = [psnr(path, source) for path, source in zip(paths, sources, strict=True)]
        outcomes.append(
            Outcome(
                encoding,
                sum(path.stat().st_size for path in paths),
                sum(qualities) / len(qualities),
                times.get((OURS, "clip", str(encoding))),
                times.get((OURS, "frame", str(encoding))),
                times["pyav", "clip", str(encoding)],
                times["pyav", "frame", str(encoding)],
            )
        )
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """Bytes against H.264 with GOPs of 250 and no B-frames where that is among them, else against the first."""
    base = next((o for o in outcomes if (o.encoding.codec, o.encoding.gop) == ("h264", 250)), outcomes[0]).bytes
    columns = ["encoding", "bytes", "PSNR Y, dB", "clip, ms", "frame, ms", "clip with PyAV, ms", "frame with PyAV, ms"]
    lines = [markdown_row(columns), markdown_row(["---"] * len(columns))]
    for outcome in outcomes:
        spreads = (outcome.clip, outcome.frame, outcome.clip_pyav, outcome.frame_pyav)
        lines.append(
            markdown_row(
                [
                    str(outcome.encoding),
                    f"{outcome.bytes / base:.2f}",
                    f"{outcome.psnr:.2f}",
                    *("" if spread is None else str(spread) for spread in spreads),
                ]
            )
        )
    return "\n".join(lines)


def write_chart(outcomes: Sequence[Outcome], path: Path) -> None:
    """Bytes against milliseconds, a line along the GOPs for each way to encode."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(13, 6), layout="constrained")
    lines: dict[tuple[str, int, bool], list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda each: each.encoding):
        encoding = outcome.encoding
        lines.setdefault((encoding.codec, encoding.b_frames, encoding.fastdecode), []).append(outcome)
    for axis, name in zip(axes, ACCESSES, strict=True):
        for (codec, b_frames, fast), members in lines.items():
            read = [(getattr(each, name) or getattr(each, f"{name}_pyav")).value for each in members]
            label = "av1, PyAV" if codec == "av1" else f"{codec}, {b_frames} B{', fastdecode' if fast else ''}"
            axis.plot([each.bytes / 1e6 for each in members], read, marker="o", label=label)
            for each, value in zip(members, read, strict=True):
                axis.annotate(str(each.encoding.gop), (each.bytes / 1e6, value), fontsize=7)
        axis.set(xlabel="MB", ylabel="ms", title=f"{ACCESSES[name]}; the numbers are GOPs", xscale="log", yscale="log")
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gops", default="1,2,4,8,12,16,24,32,60,250")
    parser.add_argument("--codecs", default="h264,hevc,av1")
    parser.add_argument("--b-frames", default="0,3")
    parser.add_argument("--videos", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=8, help="in a round")
    parser.add_argument("--dry", action="store_true", help="leave docs/benchmarks.md and the results alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine = this_machine()
    gops, b_frames = ([int(number) for number in text.split(",")] for text in (options.gops, options.b_frames))
    chosen = encodings(gops, options.codecs.split(","), b_frames)
    # Nearly lossless, so that what is compared is the encoding and not that of the sources.
    sources = footage.make_sources("encodings", options.videos, HEIGHT, options.seconds, crf=10)
    outcomes = measure(chosen, sources, options.rounds, options.requests, console.print)
    kind = "real footage" if footage.real_footage() else "drawn"
    made_of = f"{options.videos} videos of {options.seconds} s at {HEIGHT}p, {kind}, {footage.RATE} frames/s"
    text = f"{described(machine, quick=False)} {made_of}; {taken_on(machine)}.\n\n{table(outcomes)}"
    console.print(text, markup=False, soft_wrap=True)
    if options.dry:
        sys.stdout.write(json.dumps([asdict(outcome) for outcome in outcomes]) + "\n")
        return
    name = f"{machine_name(machine)}-encodings"
    write_json(name, machine, False, {"outcomes": outcomes})
    write_chart(outcomes, RESULTS / f"{name}.png")
    write_page("encodings", text)


if __name__ == "__main__":
    main()
