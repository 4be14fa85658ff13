"""Prep by every pipeline that a GPU allows: right frames, quality beside x264's at equal bytes, frames/s, engines' use.

The pipelines are forced one by one, and run without the CPU in reserve: what fails is reported. Needs the ffmpeg
program, and PyAV for making sources.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from check_record import FailedOutOfTimeError, OutOfTime, Record, Skipped
from gpu_driver import require_gpu
from gpu_ffmpeg import ffmpeg_of
from gpu_use import engines, most_of
from prep_errors import told, written

import shortgop
import synthetic
from shortgop.errors import CorruptDataError, EncodeError
from shortgop.machine_cpus import usable_cpus
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.export import export
from shortgop.manifests.tables import shards_table
from shortgop.prep.encode import plan_video
from shortgop.prep.encode_run import attempt
from shortgop.prep.manifest_rows import Identity, video_manifest
from shortgop.prep.options import Options
from shortgop.prep.probing.probe import probe
from shortgop.prep.profile import CODECS, NVENC_ENCODERS, SOFTWARE_ENCODERS, Profile, Size, changed_profile
from shortgop.prep.shards import ShardWriter
from shortgop.prep.tools.capabilities import (
    SCALING,
    Capabilities,
    encodes,
    from_gpu,
    nvdec,
)
from shortgop.prep.tools.capability_trials import SOURCE_KINDS, capabilities_of
from shortgop.prep.tools.pipelines import Pipeline
from shortgop.storage.disk import DiskStorage

RATE = Fraction(30)
FRAMES = 100
SIZE = Size(short_side=256)
# Three points of each encoder, between which quality at equal bytes is interpolated.
CRFS = {"h264": (19, 25, 31), "hevc": (19, 25, 31), "av1": (29, 37, 45)}
JOBS_AT_ONCE = 8
CPU = "cpu"
# A frame below this PSNR, in dB, is another picture: x264 leaves 35 of the worst frame of `FOOTAGE` at these CRFs.
FEWEST_DB = 20.0
# Footage that needs some decoding, and that a scaler which aliases shows: fine structure that moves.
FOOTAGE = "mandelbrot=size=1280x720:rate=30:end_pts=400"
FOOTAGE_FRAMES = 240
UNIT = "0123456789abcdef"
# What a pipeline fails with. It costs its own figures alone.
FAILURES = (shortgop.ShortGopError, RuntimeError, AssertionError, OSError, KeyError, subprocess.SubprocessError)


def pipelines(record: Record) -> None:
    """Each pipeline makes a dataset of sources whose frames show their numbers, for each codec. With NVDEC alone it is
    the CPU's, byte for byte."""
    ffmpeg = _ffmpeg(record)
    wrong, lacking, on_gpu, trials, longest = list[str](), list[str](), 0, 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        sources = numbered_sources(Path(folder))
        for codec in CODECS:
            started = time.perf_counter()
            if started + trials > record.measure_until:
                lacking.append(codec)
                continue
            profile = changed_profile(None, {"codec": codec, "size": SIZE})
            capabilities = capabilities_of(ffmpeg, profile, kinds=SOURCE_KINDS)
            trials = time.perf_counter() - started
            record.figure(f"capabilities {codec}", capabilities.to_json())
            found = pipelines_of(capabilities, profile)
            on_gpu += sum(pipeline.uses_gpu for pipeline in found.values())
            for name, pipeline in found.items():
                # What sections of long sources take; two more datasets of each source are made for that.
                compared = replace(pipeline, decoding="software") == found[CPU] and name != CPU
                started, datasets = time.perf_counter(), len(sources) * (3 if compared else 1)
                if started + datasets * longest > record.measure_until:
                    lacking.append(f"{codec}: {name}")
                    continue
                said = [check_numbers(source, pipeline, profile, ffmpeg) for source in sources]
                if compared and set(said) == {"right"}:
                    said += [same_bytes(source, pipeline, found[CPU], profile, ffmpeg) for source in sources]
                record.figure(f"{codec}: {name}", "; ".join(said))
                wrong += [f"{codec}, {name}: {each}" for each in said if each not in ("right", "equal")]
                longest = max(longest, (time.perf_counter() - started) / datasets)
    if not (on_gpu or wrong or lacking):
        raise Skipped("no step of prep runs on this GPU, as the trials say: only the CPU's pipeline was checked")
    end(wrong, lacking)


def quality(record: Record) -> None:
    """Bytes, PSNR and VMAF of each scaler and encoder at three qualities, and how they differ from x264's at equal
    bytes. They are measured side by side: none of it depends on the time that it takes. What fails is measured once
    more, alone: a GPU may let in one process at a time, or few sessions."""
    ffmpeg = _ffmpeg(record)
    wrong, lacking, needed = list[str](), list[str](), 0.0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(min(usable_cpus(), JOBS_AT_ONCE)) as pool:
        source = footage(Path(folder), ffmpeg)
        for codec in CODECS:
            started = time.perf_counter()
            if started + needed > record.measure_until:
                lacking.append(codec)
                continue
            profile = changed_profile(None, {"codec": codec, "size": SIZE})
            found = of_other_pictures(pipelines_of(capabilities_of(ffmpeg, profile), profile))
            todo = {
                name: [partial(measured, source, each, replace(profile, crf=crf), ffmpeg) for crf in CRFS[codec]]
                for name, each in found.items()
            }
            running = {name: [pool.submit(each) for each in own] for name, own in todo.items()}
            points: dict[str, list[dict[str, float]]] = {}
            for name in failed_last(running):
                with failures(wrong, f"{codec}, {name}"):
                    points[name] = [
                        each() if done.exception() and time.perf_counter() < record.measure_until else done.result()
                        for each, done in zip(todo[name], running[name], strict=True)
                    ]
                    record.figure(f"{codec}: {name}", points[name])
                    check_pictures(points[name])
            if CPU in points:
                record.figure(f"{codec}: beside the CPU at equal bytes", beside(points, CPU))
            needed = 2 * (time.perf_counter() - started)
    end(wrong, lacking)


def speed(record: Record) -> None:
    """Frames/s of each pipeline, one encode at a time and eight, and of the CPU with an encode for each core."""
    ffmpeg = _ffmpeg(record)
    profile = Profile(size=SIZE)
    capabilities = capabilities_of(ffmpeg, profile)
    wrong, lacking, longest = list[str](), list[str](), 0.0
    with tempfile.TemporaryDirectory() as folder:
        source = footage(Path(folder), ffmpeg)
        cores = usable_cpus()
        record.figure("cores", cores)
        for name, pipeline in pipelines_of(capabilities, profile).items():
            for at_once in (1, JOBS_AT_ONCE, *([cores] if name == CPU else [])):
                what, started = f"{name}, {at_once} at once", time.perf_counter()
                # Those that have no core for themselves wait for each other.
                if started + longest * max(1, at_once / cores) > record.measure_until:
                    lacking.append(what)
                    continue
                with failures(wrong, what), engines() as use:
                    rate = frames_per_second(source, pipeline, profile, ffmpeg, at_once)
                    record.figure(f"{what}: frames/s", round(rate))
                    record.figure(f"{what}: most use", most_of(use))
                    if at_once == 1:
                        longest = max(longest, 2 * (time.perf_counter() - started))
    end(wrong, lacking)


def failed_last(running: Mapping[str, Sequence[Future[Any]]]) -> Iterator[str]:
    """The names, as all of one has ended. Those where something failed come when all has ended."""
    failed = []
    for name, own in running.items():
        if any(each.exception() for each in own):
            failed.append(name)
        else:
            yield name
    yield from failed


@contextmanager
def failures(wrong: list[str], what: str) -> Iterator[None]:
    """Notes what a measurement fails with, so that the next ones are made."""
    try:
        yield
    except FAILURES as error:
        wrong.append(f"{what}: {told(error)}")


def end(wrong: Sequence[str], lacking: Sequence[str]) -> None:
    """RuntimeError where something was wrong, OutOfTime where something was not measured, FailedOutOfTimeError where
    both were."""
    no_time = f"there was no time to measure {'; '.join(lacking)}"
    if wrong and lacking:
        raise FailedOutOfTimeError("; ".join([*wrong, no_time]))
    if wrong:
        raise RuntimeError("; ".join(wrong))
    if lacking:
        raise OutOfTime(no_time)


def of_other_pictures(found: Mapping[str, Pipeline]) -> dict[str, Pipeline]:
    """The CPU's, and the last of the pipelines that scale and encode alike, of which most is on the GPU: what decodes,
    and whether frames leave the GPU's memory, changes no picture."""
    last = {(pipeline.scaling, pipeline.encoder): name for name, pipeline in found.items()}
    last[found[CPU].scaling, found[CPU].encoder] = CPU
    return {name: found[name] for name in last.values()}


def check_pictures(points: Sequence[Mapping[str, float]]) -> None:
    """RuntimeError where the worst frame is another picture than the source's, at whatever quality."""
    worst = min(point["psnr of the worst frame"] for point in points)
    if worst < FEWEST_DB:
        raise RuntimeError(f"a frame is another picture: its PSNR is {worst:.1f} dB")


def pipelines_of(capabilities: Capabilities, profile: Profile) -> dict[str, Pipeline]:
    """By name, every pipeline whose steps run here; `CPU` is the one without a GPU."""
    nvenc, software = NVENC_ENCODERS[capabilities.codec], SOFTWARE_ENCODERS[capabilities.codec]
    found = {CPU: Pipeline(encoder=software, b_frames=profile.b_frames)}
    decodes = capabilities.runs(nvdec("h264"))
    steps: list[tuple[Any, Any]] = [("software", "software")]
    steps += [("nvdec", "software")] if decodes else []
    steps += [("nvdec", "scale_cuda")] if decodes and capabilities.runs(SCALING) else []
    b_frames = profile.b_frames if capabilities.runs(nvenc) else 0
    for decoding, scaling in steps:
        on_gpu = scaling == "scale_cuda"
        plain = Pipeline(decoding, scaling, software, downloads=on_gpu, b_frames=profile.b_frames)
        if plain.uses_gpu:
            found[f"{decoding}, {scaling}, {software}"] = plain
        if encodes(capabilities, nvenc):
            found[f"{decoding}, {scaling}, {nvenc}"] = replace(plain, encoder=nvenc, b_frames=b_frames)
        if on_gpu and capabilities.runs(from_gpu(nvenc)):
            stays = replace(plain, encoder=nvenc, b_frames=b_frames, downloads=False)
            found[f"{decoding}, {scaling}, {nvenc}, without a download"] = stays
    return found


def numbered_sources(folder: Path) -> list[Path]:
    """Sources at a constant and at a variable rate, whose frames show their numbers."""
    constant, variable = folder / "constant.mp4", folder / "variable.mp4"
    synthetic.make_video(constant, pts=synthetic.constant_rate_pts(RATE, FRAMES), timebase=1 / RATE, size=(640, 360))
    timebase = Fraction(1, 90000)
    pts = synthetic.variable_rate_pts(1, FRAMES, timebase)
    synthetic.make_video(variable, pts=pts, timebase=timebase, size=(480, 320))
    return [constant, variable]


def _ignore(_frames: int) -> None:
    """Progress is not wanted."""


def prepared(source: Path, folder: Path, pipeline: Pipeline, profile: Profile, ffmpeg: str) -> list[int]:
    """Make a dataset of one source by this pipeline: the pts of the source that each of its frames shows."""
    plan = plan_video(probe(str(source)), Options(profile), ffmpeg)
    encode = replace(plan.encode, pipeline=pipeline)
    dataset = DiskStorage(folder)
    create(dataset, profile.to_json())
    with closing(ShardWriter(dataset, UNIT, profile.shard_bytes)) as shards:
        differences = list[str]()
        try:
            videos = attempt(
                replace(plan, encode=encode), ffmpeg, shards, _ignore, on_complaint=None,
                on_difference=differences.append,
            )  # fmt: skip
        except EncodeError as error:
            if not isinstance(error.__cause__, CorruptDataError):
                raise
            raise RuntimeError(f"{error}; it wrote {written(encode, ffmpeg)}") from error
        if videos is None:
            raise RuntimeError(
                f"ffmpeg showed other frames than planned, {differences[0]}; it wrote {written(encode, ffmpeg)}"
            )
        rows = video_manifest(Identity("source", source.name, str(source), "{}", 0), encode, videos[0])
        files = shards.commit()
    placed = [files[name] for name in rows.shards.name.texts()]
    rows = replace(rows, shards=shards_table([(file.name, file.length) for file in placed]))
    write_part(dataset, UNIT, rows, profile.to_json())
    publish(dataset)
    return [int(pts) for pts in videos[0].timeline]


def check_numbers(source: Path, pipeline: Pipeline, profile: Profile, ffmpeg: str) -> str:
    """ "right", or what is wrong with the dataset that this pipeline makes of a source whose frames show numbers."""
    shown_pts = probe(str(source)).pts
    with tempfile.TemporaryDirectory() as folder:
        try:
            timeline = prepared(source, Path(folder, "dataset"), pipeline, profile, ffmpeg)
            (video,) = shortgop.open(Path(folder, "dataset"))
            found = [synthetic.read_number(frame) for frame in video[:]]
        except FAILURES as error:
            return f"{source.name}: {told(error)}"
    expected = np.searchsorted(shown_pts if shown_pts is not None else [], timeline).tolist()
    wrong = [frame for frame, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other]
    return f"{source.name}: {len(wrong)} frames show another number, the first is {wrong[0]}" if wrong else "right"


def same_bytes(source: Path, one: Pipeline, other: Pipeline, profile: Profile, ffmpeg: str) -> str:
    """ "equal" where these pipelines write the same shards."""
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, "one"), Path(name, "other")]
        try:
            for folder, pipeline in zip(folders, (one, other), strict=True):
                prepared(source, folder, pipeline, profile, ffmpeg)
        except FAILURES as error:
            return f"{source.name}: {told(error)}"
        shards = [[file.read_bytes() for file in sorted((folder / "shards").iterdir())] for folder in folders]
    return "equal" if shards[0] == shards[1] else f"{source.name}: not the CPU's bytes"


def footage(folder: Path, ffmpeg: str) -> Path:
    """Footage of 720p, encoded nearly without loss."""
    made = folder / "footage.mp4"
    argv = [ffmpeg, "-v", "error", "-nostdin", "-f", "lavfi", "-i", FOOTAGE, "-frames:v", str(FOOTAGE_FRAMES)]
    argv += ["-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "veryfast", "-crf", "12", "-g", "250", str(made)]
    subprocess.run(argv, check=True, timeout=100)
    return made


def measured(source: Path, pipeline: Pipeline, profile: Profile, ffmpeg: str) -> dict[str, float]:
    """Bytes, PSNR (Y, in dB) and VMAF of the dataset that this pipeline makes, beside the source scaled on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        dataset, exported, log_file = Path(folder, "dataset"), Path(folder, "video.mp4"), Path(folder, "vmaf.json")
        prepared(source, dataset, pipeline, profile, ffmpeg)
        manifest = open_current(DiskStorage(dataset))[1]
        export(DiskStorage(dataset), manifest, 0, exported)
        size = f"{int(manifest.configs.width[0])}:{int(manifest.configs.height[0])}"
        scale = f"[1:v]scale={size}:flags=bicubic+accurate_rnd+full_chroma_int,format=yuv420p[whole]"
        compare = f"[0:v][whole]libvmaf=feature=name=psnr:log_fmt=json:log_path={log_file}"
        argv = [ffmpeg, "-v", "error", "-nostdin", "-i", str(exported), "-i", str(source)]
        subprocess.run([*argv, "-lavfi", f"{scale};{compare}", "-f", "null", "-"], check=True, timeout=100)
        pooled = json.loads(log_file.read_text())["pooled_metrics"]
        num_bytes = sum(file.stat().st_size for file in (dataset / "shards").iterdir())
    return {
        "bytes": num_bytes,
        "psnr": pooled["psnr_y"]["mean"],
        "vmaf": pooled["vmaf"]["mean"],
        "psnr of the worst frame": pooled["psnr_y"]["min"],
    }


def beside(points: Mapping[str, Sequence[Mapping[str, float]]], yardstick: str) -> dict[str, dict[str, float | None]]:
    """How far PSNR and VMAF of the middle point of each lie above the yardstick's at equal bytes; None where the
    yardstick has no points on both sides."""
    known = points[yardstick]
    differences: dict[str, dict[str, float | None]] = {}
    for name, own in points.items():
        middle = own[len(own) // 2]
        differences[name] = {}
        for metric in ("psnr", "vmaf"):
            there = at_bytes([(point["bytes"], point[metric]) for point in known], middle["bytes"])
            differences[name][metric] = None if there is None else round(middle[metric] - there, 3)
    return differences


def at_bytes(points: Sequence[tuple[float, float]], num_bytes: float) -> float | None:
    """The value at this many bytes, interpolated between (bytes, value) along the logarithm of bytes; None outside."""
    ordered = sorted(points)
    if not ordered[0][0] <= num_bytes <= ordered[-1][0]:
        return None
    return float(np.interp(log(num_bytes), [log(size) for size, _ in ordered], [value for _, value in ordered]))


def frames_per_second(source: Path, pipeline: Pipeline, profile: Profile, ffmpeg: str, at_once: int) -> float:
    """Frames of datasets per second, with `at_once` encodes side by side, each of the whole source."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(at_once) as pool:
        start = time.monotonic()
        made = [
            pool.submit(prepared, source, Path(folder, str(number)), pipeline, profile, ffmpeg)
            for number in range(at_once)
        ]
        frames = sum(len(each.result()) for each in made)
        return frames / (time.monotonic() - start)


def _ffmpeg(record: Record) -> str:
    require_gpu()
    try:
        import av  # noqa: F401  # sources are made with it
    except ImportError as error:
        raise Skipped(f"PyAV cannot be imported, which makes the sources: {error}") from error
    return ffmpeg_of(record)
