"""What units of real footage take, beside what jobs expect: python benchmarks/encode_costs.py

The sources are those of the folder that SHORTGOP_SAMPLE_VIDEOS names: their first seconds, all of them, each of them
again and again, and in 1080p. Each is planned and prepared as jobs do it, at 256 with the defaults otherwise, on one
thread and without Ray. The processor seconds of Python and of ffmpeg, the lower of two runs, go to
tests/shared/measured_costs.json, from which tests/jobs/test_schedule_simulation.py draws.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import av
from footage import ffmpeg, sample_folder

from shortgop.errors import ShortGopError
from shortgop.jobs.finding.source import Source
from shortgop.jobs.planning.planning import Known, plan_window, sort_out
from shortgop.jobs.sources.look import look_at
from shortgop.jobs.working.work import run_unit
from shortgop.manifests.dataset_files import root_file
from shortgop.manifests.tables import empty
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile, Size
from shortgop.storage.disk import DiskStorage

_OUT = Path(__file__).resolve().parent.parent / "tests" / "shared" / "measured_costs.json"
# Sections are never cut: a whole source at a time.
_OPTIONS = Options(Profile(size=Size(256)), section_seconds=1e9)
_FIRST_SECONDS, _LOOPED_SECONDS, _ENLARGED_SECONDS = (1, 3), 40, 6
_ENLARGED = "scale=1920:1080:flags=bicubic,setsar=1,format=yuv420p"
_RUNS = 2


@dataclass(frozen=True)
class Cost:
    """A source of so many frames, what a job expects it to take, and what it took of a processor. `is_guess`: the job
    knew its size alone."""

    suffix: str
    codec: str
    made: str
    frames: int
    pixels: int
    expected_seconds: float
    is_guess: bool
    seconds: float
    ffmpeg_seconds: float


def made_of(sample: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """How each source is made, and the source."""
    again = ("-map", "0:v:0", "-c", "copy")

    def path(name: str) -> Path:
        return folder / f"{name}{sample.suffix}"

    for seconds in _FIRST_SECONDS:
        ffmpeg("-v", "error", "-i", str(sample), *again, "-t", str(seconds), str(path(f"first{seconds}")))
        yield f"first {seconds} s", path(f"first{seconds}")
    yield "whole", sample
    ffmpeg(
        "-v", "error", "-stream_loop", "-1", "-i", str(sample), *again, "-t", str(_LOOPED_SECONDS), str(path("looped"))
    )
    yield "looped", path("looped")
    end = ("-an", "-t", str(_ENLARGED_SECONDS), "-c:v", "libx264", "-preset", "veryfast", str(path("enlarged")))
    ffmpeg("-v", "error", "-i", str(sample), "-map", "0:v:0", "-vf", _ENLARGED, *end)
    yield "1080p", path("enlarged")


def cost_of(path: Path, made: str, runs: int = _RUNS) -> Cost:
    with av.open(str(path)) as container:
        codec = container.streams.video[0].codec_context
        name, pixels = codec.name, codec.width * codec.height
    (looked,) = look_at([Source(path.name, str(path), path.name, "{}")], _OPTIONS)
    known = Known(empty(), {})
    (unit,) = plan_window([looked], sort_out([looked.item], known, "keep", {}), known, _OPTIONS)
    least = (float("inf"), 0.0)
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            dataset = DiskStorage(Path(folder) / "dataset")
            root_file.make_place(dataset)
            root_file.create(dataset, _OPTIONS.profile.to_json())
            before = _used()
            done = run_unit(dataset, unit, _OPTIONS, lambda _: None)
            own, below = (after - each for after, each in zip(_used(), before, strict=True))
        if done.failures:
            raise ShortGopError(done.failures[0].reason)
        least = min(least, (own + below, below))
    return Cost(
        path.suffix[1:], name, made, done.frames, pixels, round(unit.expected_seconds, 4), unit.is_guess,
        *(round(each, 4) for each in least),
    )  # fmt: skip


def _used() -> tuple[float, float]:
    """Processor seconds of this process, and of those that it waited for."""
    own, below = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, below.ru_utime + below.ru_stime


def main() -> None:
    if not sample_folder():
        sys.exit("bench: SHORTGOP_SAMPLE_VIDEOS names no folder of footage")
    costs: list[Cost] = []
    for sample in sorted(path for path in Path(sample_folder()).iterdir() if path.suffix in {".mp4", ".mkv", ".avi"}):
        with tempfile.TemporaryDirectory() as folder:
            if not costs:
                # What a worker does once only: find ffmpeg and its encoders.
                cost_of(sample, "whole", runs=1)
            for made, path in made_of(sample, Path(folder)):
                try:
                    costs.append(cost_of(path, made))
                except ShortGopError as error:
                    print(f"{sample.name}, {made}: left out, {error}", flush=True)
                    continue
                print(f"{sample.name}: {costs[-1]}", flush=True)
    rows = ",\n".join(json.dumps(astuple(each)) for each in costs)
    _OUT.write_text(f'{{"columns": {json.dumps([each.name for each in fields(Cost)])}, "rows": [\n{rows}\n]}}\n')
    ratios = sorted(each.seconds / each.expected_seconds for each in costs)
    print(f"{len(costs)} sources, {ratios[0]:.2f} to {ratios[-1]:.2f} times as long as expected")


if __name__ == "__main__":
    main()
