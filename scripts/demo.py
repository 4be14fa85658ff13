"""Shows what shortgop does, on videos made on the spot: `make demo`.

Everything is written below demo/ in the checkout, which is emptied first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import torch
from demo_reads import Yardstick, find_yardstick, identical_frames
from rich.console import Console
from rich.table import Table
from torch.nn.functional import interpolate, pad

import shortgop
from shortgop.comparison.accesses import Access, draw
from shortgop.comparison.tasks import FileSet, our_task, peer_task
from shortgop.comparison.timing import Figures, Task, alternate
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.export import export
from shortgop.manifests.operations.summary import summarize
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.readers.sheet import write_sheet
from shortgop.storage.disk import DiskStorage

ROOT = Path(__file__).resolve().parent.parent
WORK = Path("demo")
VIDEOS, DATASET, SMALL, EXPORTED = WORK / "videos", WORK / "dataset", WORK / "small", WORK / "exported"
SHEET = WORK / "sheet.png"
SHORT_SIDE = 256  # pixels
PREP = ("prep", str(VIDEOS), "--out", str(DATASET), "--size", str(SHORT_SIDE))
EXIT_SOMETHING_MISSING = 3

SECONDS = 12
X264 = ("-c:v", "libx264", "-preset", "veryfast", "-g", "250")
X265 = ("-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", "log-level=error:keyint=250")
# testsrc counts hundredths of a second, and there is no blue behind its digits.
CLOCK = "testsrc=s=320x240:r={rate}:decimals=2,format=gbrp,extractplanes=b,crop=128:52:160:94"

REQUESTS, READING_SECONDS = 200, 12  # for clips and for single frames each
CLIP_FRAMES, CLIP_STRIDE = 16, 4
SHEET_SECONDS = (0.5, 2.5, 4.5, 6.5, 8.5, 10.5)
CELL = (256, 160)  # width and height, in pixels

NOTES = f"""\
* {CLIP_STRIDE} apart. Random videos and moments, the same for all, read in turn. "slower": how many
times as long as shortgop, the median over the same requests with its interval of 95 %.
{{yardstick}} opens the file for each read, as code does that has more videos than it can
hold open; shortgop holds the dataset open. Rows 2 and 3 have frames of the dataset's
size, in GOPs of {{gop}} and of up to 250. The sources are larger, up to 720p."""

ENDING = f"""\
{f"{VIDEOS}/":<18}the sources
{f"{DATASET}/":<18}the dataset
{f"{EXPORTED}/":<18}its videos as MP4s, not encoded again
{f"{SMALL}/":<18}the sources at {SHORT_SIDE}, for comparison
{SHEET!s:<18}the same moments of every video; clocks in 1/100 s

Next:
  .venv/bin/shortgop read {DATASET} life.mp4 --frames 0:720:60 --out {WORK}/life.png
  .venv/bin/shortgop export {DATASET} phone.mov {WORK}/phone.mp4 --start 2 --end 5
  .venv/bin/shortgop prep YOUR_VIDEOS --out YOUR_DATASET"""

# Without a terminal there is no width to fit into.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)


@dataclass(frozen=True)
class Recipe:
    """A source video: an ffmpeg filter that draws it, and what becomes of its pictures."""

    name: str
    picture: str
    size: str  # as it is drawn
    rate: str
    filters: str = "null"  # behind the clock
    input_options: tuple[str, ...] = ()
    encoder: tuple[str, ...] = X264


RECIPES = (
    Recipe("bars.mp4", "testsrc2={}", "1280x720", "30000/1001"),
    Recipe("carpet.mp4", "sierpinski={}:seed=3,format=yuv420p,lutyuv=u=160:v=100", "854x480", "25", encoder=X265),
    Recipe("fractal.mkv", "mandelbrot={}:maxiter=600:end_scale=0.0005:end_pts=300", "854x480", "25"),
    Recipe(
        "life.mp4",
        "life=s=214x120:r=60:mold=20:ratio=0.2:seed=4:life_color=#ffd166:death_color=#ef476f:mold_color=#073b4c"
        ",scale=960:540:flags=neighbor",
        "960x540",
        "60",
    ),
    # The pictures lie on their side in the file, which says how to turn them.
    Recipe(
        "phone.mov",
        "gradients={}:n=5:c0=#0b132b:c1=#1c7293:c2=#f4d35e:c3=#ee964b:c4=#f95738:seed=5:speed=0.02:type=spiral",
        "480x854",
        "24000/1001",
        filters="transpose=clock",
        input_options=("-display_rotation", "90", "-noautorotate"),
    ),
    # Two frames of five are left out at random.
    Recipe(
        "webcam.mp4",
        "gradients={}:n=4:c0=#2ec4b6:c1=#cbf3f0:c2=#ff9f1c:c3=#7b2cbf:seed=8:speed=0.05:type=radial",
        "640x480",
        "30",
        filters="select=eq(n\\,0)+gt(random(1)\\,0.4)",
    ),
)


def main() -> None:
    os.chdir(ROOT)
    started = time.perf_counter()
    shutil.rmtree(WORK, ignore_errors=True)
    heading(f"{len(RECIPES)} videos of {SECONDS} seconds, of many kinds, and a file that is none")
    seconds_to_make = make_videos()
    heading("The job: everything in one folder into one dataset")
    seconds_to_prepare = prepare()
    shortgop_command("info", str(DATASET))
    heading("What came of it")
    console.print(comparison(seconds_to_make, seconds_to_prepare))
    console.print("Why more frames: webcam.mp4 has a variable rate, in the dataset a constant one.", soft_wrap=True)
    heading("Random reads, on one thread; this takes half a minute")
    all_same = read_back()
    heading(f"All of it took {time.perf_counter() - started:.0f} s. What there is now")
    console.print(ENDING, soft_wrap=True)
    if not all_same:
        sys.exit("demo: shortgop's frames are not those that the yardstick decodes, see above")


def heading(text: str) -> None:
    console.print()
    console.print(text, style="bold")


# --- the videos ---


def make_videos() -> float:
    """Write the sources; return how long that took, in seconds."""
    VIDEOS.mkdir(parents=True)
    start = time.perf_counter()
    in_parallel(make_video, RECIPES)
    (VIDEOS / "broken.mp4").write_text("This is not a video, whatever its name says.\n")
    return time.perf_counter() - start


def make_video(recipe: Recipe) -> None:
    picture = recipe.picture.format(f"s={recipe.size}:r={recipe.rate}")
    short_side = min(int(side) for side in recipe.size.split("x"))
    clock = f"{CLOCK.format(rate=recipe.rate)},scale=-2:{short_side // 7}:flags=neighbor"
    graph = f"{picture}[p];{clock}[c];[p][c]overlay=20:H-h-20,{recipe.filters}"
    ffmpeg(
        *(*recipe.input_options, "-f", "lavfi", "-i", graph, "-t", str(SECONDS), "-fps_mode", "vfr"),
        *("-pix_fmt", "yuv420p", "-threads", "1", *recipe.encoder, str(VIDEOS / recipe.name)),
    )


def ffmpeg(*arguments: str) -> None:
    argv = [find_ffmpeg().path, "-v", "error", "-nostdin", "-y", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"demo: {' '.join(argv)}\n{done.stderr}")


def in_parallel(work: Callable[[Recipe], None], recipes: Sequence[Recipe]) -> None:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(work, recipes))


# --- the job ---


def prepare() -> float:
    """Run the job as a user does; return how long it took, in seconds."""
    start = time.perf_counter()
    status = shortgop_command(*PREP)
    seconds = time.perf_counter() - start
    if status != EXIT_SOMETHING_MISSING:
        sys.exit(f"demo: expected exit status {EXIT_SOMETHING_MISSING} for the broken file, got {status}")
    console.print(f"Exit status {status}: the dataset is complete and usable, but for the broken file.")
    return seconds


def shortgop_command(*arguments: str) -> int:
    console.print(f"$ shortgop {' '.join(arguments)}", style="cyan", soft_wrap=True)
    return subprocess.run([sys.executable, "-m", "shortgop", *arguments], check=False).returncode


def comparison(seconds_to_make: float, seconds_to_prepare: float) -> Table:
    frames, keyframes, size = np.sum([packets(VIDEOS / recipe.name) for recipe in RECIPES], axis=0).tolist()
    made = summarize(DiskStorage(DATASET))
    table = plain_table("", "videos", "frames", "keyframes", "size", "made in")
    for name, videos, num_frames, num_keyframes, num_bytes, seconds in (
        ("sources", len(RECIPES), frames, keyframes, size, seconds_to_make),
        ("dataset", made.num_videos, made.num_frames, made.num_gops, made.num_bytes, seconds_to_prepare),
    ):
        counts = (f"{count:,}" for count in (videos, num_frames, num_keyframes))
        table.add_row(name, *counts, f"{num_bytes / 1e6:.1f} MB", f"{seconds:.1f} s")
    return table


def plain_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    return table


def packets(path: Path) -> tuple[int, int, int]:
    """How many frames, keyframes and bytes a file has."""
    with av.open(path) as container:
        keyframes = [packet.is_keyframe for packet in container.demux(video=0) if packet.size]
    return len(keyframes), sum(keyframes), path.stat().st_size


# --- reading ---


def read_back() -> bool:
    """Measure reads, compare frames, write the sheet; return whether all frames are as they should be."""
    dataset = shortgop.open(DATASET)
    make_smaller_and_exported()
    yardstick = find_yardstick()
    if yardstick.remark:
        console.print(yardstick.remark)
    console.print(speed_table(dataset, yardstick))
    console.print(NOTES.format(yardstick=yardstick.name, gop=dataset.metadata.profile["gop_frames"]), soft_wrap=True)
    exported = FileSet.of_exported("", [EXPORTED / f"{video.id}.mp4" for video in dataset])
    same, total = identical_frames(dataset, yardstick, exported.files)
    console.print(f"{same:,} of {total:,} frames are bit for bit {yardstick.name}'s on the exported MP4s.")
    write_contact_sheet(dataset)
    return same == total


def make_smaller_and_exported() -> None:
    """MP4s of the dataset's pixels, and sources scaled to its size, so that the size of frames does not count."""
    SMALL.mkdir()
    EXPORTED.mkdir()
    in_parallel(make_smaller, RECIPES)
    _, manifest = open_current(DiskStorage(DATASET))
    for row, video in enumerate(manifest.ids):
        export(DiskStorage(DATASET), manifest, row, EXPORTED / f"{video}.mp4")


def make_smaller(recipe: Recipe) -> None:
    scale = f"scale={SHORT_SIDE}:{SHORT_SIDE}:force_original_aspect_ratio=increase:force_divisible_by=2"
    ffmpeg(
        *("-threads", "1", "-i", str(VIDEOS / recipe.name), "-vf", scale, "-fps_mode", "vfr"),
        *("-threads", "1", *X264, str(SMALL / f"{recipe.name}.mp4")),
    )


def speed_table(dataset: shortgop.Dataset, yardstick: Yardstick) -> Table:
    torch.set_num_threads(1)
    videos = list(dataset)
    files = (
        FileSet.of_exported("dataset as MP4", [EXPORTED / f"{video.id}.mp4" for video in videos]),
        FileSet.of_sources(f"sources at {SHORT_SIDE}", videos, [SMALL / f"{video.id}.mp4" for video in videos]),
        FileSet.of_sources("sources", videos),
    )
    columns: list[list[Figures]] = []
    for access in (Access(CLIP_FRAMES, CLIP_STRIDE), Access(1)):
        requests = draw([len(video) for video in videos], access, REQUESTS, seed=0)
        tasks: dict[str, Task] = {"dataset": our_task(dataset, range(len(videos)), requests)}
        tasks |= {each.name: peer_task(yardstick.read, each, requests) for each in files}
        measured = alternate(tasks, requests=REQUESTS, seconds=READING_SECONDS)
        if measured.problems:
            sys.exit(f"demo: {measured.problems}")
        columns.append(measured.figures())
    table = plain_table("", "", f"{CLIP_FRAMES} frames*", "slower", "1 frame", "slower")
    for clips, singles in zip(*columns, strict=True):
        ours = clips.name == "dataset"
        texts = [
            text
            for figures in (clips, singles)
            for text in (f"{figures.milliseconds.value:.1f} ms", "" if ours else str(figures.ratio))
        ]
        table.add_row("shortgop" if ours else yardstick.name, clips.name, *texts)
    return table


def write_contact_sheet(dataset: shortgop.Dataset) -> None:
    """A row for each video, the same moments in each."""
    width, height = CELL
    cells = []
    for video in dataset:
        frames = video.get_frames_played_at(SHEET_SECONDS).data
        scale = min(width / frames.shape[3], height / frames.shape[2])
        shrunk = interpolate(frames, scale_factor=scale, mode="bilinear", antialias=True)
        right, below = width - shrunk.shape[3], height - shrunk.shape[2]
        sides = (right // 2, right - right // 2, below // 2, below - below // 2)
        cells.append(pad(shrunk, sides, value=255))
    write_sheet(torch.cat(cells).permute(0, 2, 3, 1), SHEET, columns=len(SHEET_SECONDS), overwrite=True)


if __name__ == "__main__":
    main()
