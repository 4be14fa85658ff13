"""The command line: parses, calls, prints. Nothing is decided here.

Only what a command needs is imported when it runs: `shortgop --help`, `info` and `verify` wait neither for torch nor
for Ray.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .cli_options import (
    DatasetArgument,
    GapsOption,
    JsonOption,
    MaxGapOption,
    MaxStallOption,
    OverwriteOption,
    RunnerOption,
    SalvageOption,
    policy_of,
    seconds_of,
)
from .errors import DatasetWarning, ShortGopError, UsageError
from .printing import PlainConsole, video_table
from .progress import job_progress, loop_bar
from .reports import print_diagnosis, print_report

if TYPE_CHECKING:
    pass

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SOMETHING_MISSING = 3
EXIT_INTERRUPTED = 130

_ROWS_SHOWN = 20

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Videos re-encoded once to short GOPs, and any frames of them read back quickly.",
)
# Without a terminal nobody has a width; tables get one that fits a log.
_WIDTH = None if sys.stdout.isatty() else 120
out = PlainConsole(highlight=False, width=_WIDTH)
err = PlainConsole(stderr=True, highlight=False, width=_WIDTH)


@contextmanager
def _errors() -> Iterator[None]:
    """An error of ours is a message and an exit status, not a traceback."""
    try:
        yield
    except ShortGopError as error:
        err.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED) from error
    except KeyboardInterrupt as error:
        err.print("interrupted; what is finished is kept, the same command goes on from there")
        raise typer.Exit(EXIT_INTERRUPTED) from error


@app.command()
def prep(  # noqa: PLR0917  # typer makes options of them
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help="Video files, folders, globs, lists.")],
    out_path: Annotated[Path, typer.Option("--out", metavar="DATASET", help="The dataset, new or existing.")],
    profile_name: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="balanced, fast (to read) or small.  [balanced]")
    ] = None,
    fps: Annotated[str | None, typer.Option(help="source, or a rate: 30, 29.97, 30000/1001.  [source]")] = None,
    size: Annotated[str | None, typer.Option(help="At most: source, a short side, or WxH.  [source]")] = None,
    fit: Annotated[str | None, typer.Option(help="Into WxH: within, pad, crop or stretch.  [within]")] = None,
    upscale: Annotated[
        bool | None, typer.Option("--upscale/--no-upscale", help="Enlarge what is smaller than --size.  [no]")
    ] = None,
    deinterlace: Annotated[str | None, typer.Option(help="auto: interlaced sources; or never.  [auto]")] = None,
    gop: Annotated[int | None, typer.Option(help="Frames in a GOP.  [16]")] = None,
    b_frames: Annotated[int | None, typer.Option(help="Unreferenced B-frames between others.  [3]")] = None,
    codec: Annotated[str | None, typer.Option(help="h264 or hevc.  [h264]")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="auto, libx264, libx265, h264_nvenc or hevc_nvenc.  [auto]")
    ] = None,
    crf: Annotated[int | None, typer.Option(help="Quality: lower is better and larger.  [23]")] = None,
    preset: Annotated[str | None, typer.Option(help="The encoder's preset.  [the encoder's own]")] = None,
    fastdecode: Annotated[
        bool | None,
        typer.Option("--fastdecode/--no-fastdecode", help="Faster to decode, and larger; not on hevc_nvenc.  [no]"),
    ] = None,
    segment_seconds: Annotated[str | None, typer.Option(help="Length of a segment.  [10]")] = None,
    shard_mb: Annotated[int | None, typer.Option(help="Size at which a new shard is begun.  [256]")] = None,
    salvage: SalvageOption = False,
    gaps: GapsOption = "fail",
    max_gap: MaxGapOption = "10",
    max_stall: MaxStallOption = "120",
    address: Annotated[str | None, typer.Option(help="HOST:PORT of a Ray cluster, or auto.  [a local Ray]")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Units encoded at a time.  [all CPUs]")] = None,
    runner: RunnerOption = "ray",
    check: Annotated[
        bool, typer.Option("--check", help="Read every GOP that is there first, and make again what is damaged.")
    ] = False,
    keep_snapshots: Annotated[
        str, typer.Option(help="How long a state of the dataset stays open to readers after the next: 0, 30m, 7d.")
    ] = "1d",
    as_json: JsonOption = False,
) -> None:
    """Re-encode SOURCEs into a dataset; what is in it already is left alone.

    Options left out are those of the dataset, or the default in brackets. Exit status: 0 every source is in the
    dataset, 1 the job could not go on (disk full, no encoder: what is finished is kept), 2 wrong usage, 3 the dataset
    is complete and usable but some sources are not in it, or some of its videos are lost.
    """
    # A job manager ends a job with SIGTERM; it deserves the same tidy end as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _errors():
        from .jobs.prepare import Where, existing_profile, prepare
        from .manifests.tidy import parse_duration
        from .prep.profile import ENCODERS, changed_profile, named_profile, parse_fps, parse_size

        where = Where(runner, address, workers)
        base = existing_profile(out_path)
        given: dict[str, Any] = {
            "fps": fps and parse_fps(fps),
            "size": size and parse_size(size),
            "fit": fit,
            "upscale": upscale,
            "deinterlace": deinterlace,
            "gop_frames": gop,
            "b_frames": b_frames,
            "codec": codec or ENCODERS.get(encoder or "auto"),
            "encoder": encoder,
            "crf": crf,
            "preset": preset,
            "fastdecode": fastdecode,
            "segment_seconds": segment_seconds and seconds_of(segment_seconds, "--segment-seconds"),
            "shard_bytes": shard_mb and shard_mb * 1_000_000,
        }
        named = named_profile(profile_name) if profile_name is not None else {}
        wanted = named | {name: value for name, value in given.items() if value is not None}
        profile = changed_profile(base, wanted | ({"fps": None} if fps == "source" else {}))
        policy = policy_of(salvage, gaps, max_gap, max_stall)
        keep_seconds = parse_duration(keep_snapshots)
        with job_progress(err) as on_update:
            report = prepare(
                sources, out_path, profile, policy=policy, where=where, keep_snapshots_seconds=keep_seconds,
                check=check,                on_update=on_update,
            )  # fmt: skip
        if as_json:
            _print_json({**dataclasses.asdict(report), "dataset": str(out_path)})
        else:
            print_report(report, out_path, out, err)
        if report.failures or report.lost:
            raise typer.Exit(EXIT_SOMETHING_MISSING)


def _check_runner(runner: str) -> None:
    if runner not in ("ray", "inline"):
        raise UsageError(f"--runner is {runner!r}; it takes ray or inline")


@app.command()
def info(dataset: DatasetArgument, as_json: JsonOption = False) -> None:
    """What is in a dataset."""
    with _errors():
        from .manifests.summary import summarize

        summary = summarize(dataset)
        if as_json:
            _print_json(dataclasses.asdict(summary))
            return
        out.print(
            f"{summary.num_videos} videos, {summary.num_frames} frames ({summary.duration_seconds:.1f} s), "
            f"{summary.num_gops} GOPs in {summary.num_shards} shards, {_megabytes(summary.num_bytes)}; "
            f"format {summary.format_version}, snapshot {summary.snapshot}",
            soft_wrap=True,
        )
        out.print(
            "profile: " + ", ".join(f"{k} {v}" for k, v in summary.profile.items() if v is not None),
            markup=False,
            soft_wrap=True,
        )
        out.print(video_table(summary.videos[:_ROWS_SHOWN]))
        if len(summary.videos) > _ROWS_SHOWN:
            out.print(f"and {len(summary.videos) - _ROWS_SHOWN} more: --json lists all")
        for failure in summary.failures:
            out.print(f"not in the dataset: {failure.id}: {failure.reason}", markup=False, soft_wrap=True)
        if summary.trouble:
            err.print(summary.trouble, style="red", markup=False, soft_wrap=True)


@app.command()
def verify(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE]...", help="With --repair: what prep was given.")
    ] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every frame as well.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Make the videos with something wrong again from SOURCEs, and no others.")
    ] = False,
    salvage: SalvageOption = False,
    gaps: GapsOption = "fail",
    max_gap: MaxGapOption = "10",
    max_stall: MaxStallOption = "120",
    runner: RunnerOption = "ray",
    as_json: JsonOption = False,
) -> None:
    """Check every GOP's bytes against its CRC and structure. Exit status 1 when something is wrong, and with --repair
    when something still is."""
    with _errors():
        _check_runner(runner)
        if repair != bool(sources):
            raise UsageError("--repair takes the sources to make videos again from, and sources are only for --repair")
        from .manifests.layout import open_current
        from .manifests.verify import damaged_videos, stray_files
        from .manifests.verify import verify as check

        root, manifest = open_current(dataset)
        with loop_bar(err, "GOPs", len(manifest.gops)) as advance:
            problems = list(check(dataset, manifest, snapshot=root.snapshot, on_gop=advance))
        lines, damaged = [str(problem) for problem in problems], damaged_videos(manifest, problems)
        strays = stray_files(dataset, manifest)
        if decode and not problems:
            from .readers.decode_check import undecodable

            with loop_bar(err, "videos", len(manifest.videos)) as advance:
                for video_id, line in undecodable(dataset, root.snapshot, on_video=advance):
                    lines.append(line)
                    damaged.setdefault(video_id, line)
        policy = policy_of(salvage, gaps, max_gap, max_stall)
        report = None
        if repair and damaged:
            from .jobs.prepare import Where
            from .jobs.prepare import repair as make_again

            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with job_progress(err) as on_update:
                report = make_again(
                    sources or [], dataset, manifest, damaged, policy=policy, where=Where(runner), on_update=on_update
                )
        if as_json:
            found = {"gops": len(manifest.gops), "decoded": decode and not problems, "problems": lines}
            _print_json(found if report is None else {**found, "repair": dataclasses.asdict(report)})
        else:
            for line in lines:
                err.print(line, style="red", markup=False, soft_wrap=True)
            for file in strays:
                err.print(f"note: {file} is not of the current snapshot", markup=False, soft_wrap=True)
            verdict = (
                f"{len(lines)} problems" if lines else "all as written" + (", every frame decodes" if decode else "")
            )
            out.print(f"{len(manifest.gops)} GOPs, {_megabytes(int(manifest.shards.length.sum()))}: {verdict}")
            if report is not None:
                print_report(report, dataset, out, err)
        if lines and (report is None or report.lost):
            raise typer.Exit(EXIT_FAILED)


@app.command()
def read(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    video: Annotated[str, typer.Argument(metavar="VIDEO", help="The video's id, or its number.")],
    frames: Annotated[str, typer.Option(help="Frame numbers: 0,30,60 or 0:90:10.")],
    out_path: Annotated[
        Path, typer.Option("--out", help="The contact sheet: a file ending in .png, .jpg, .webp, .bmp or .tif.")
    ],
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Read frames of a video into a contact sheet."""
    with _errors():
        from .manifests.output_files import sources_in
        from .readers.dataset import open as open_dataset
        from .readers.indices import parse_indices
        from .readers.sheet import check_sheet, write_sheet

        with warnings.catch_warnings():
            # Whether this video is among those that are lost, reading it will tell.
            warnings.simplefilter("ignore", DatasetWarning)
            opened = open_dataset(dataset, dimension_order="NHWC")
        chosen = opened[int(video)] if video not in opened and video.isdecimal() else opened[video]
        indices = parse_indices(frames, len(chosen))
        size = (chosen.metadata.height, chosen.metadata.width)
        check_sheet(len(indices), *size, out_path, overwrite=overwrite, sources=sources_in(dataset))
        start = time.perf_counter()
        batch = chosen.get_frames_at(indices)
        seconds = time.perf_counter() - start
        write_sheet(batch.data, out_path, overwrite=overwrite, sources=sources_in(dataset))
        pts = chosen.source_pts(indices).tolist()
        if as_json:
            _print_json({
                "video": chosen.id, "frames": indices, "pts_seconds": batch.pts_seconds.tolist(), "source_pts": pts,
                "source_timebase": str(chosen.source_timebase), "seconds": seconds, "out": str(out_path),
            })  # fmt: skip
        else:
            out.print(f"{len(indices)} frames of {chosen.id} read in {1000 * seconds:.1f} ms: {out_path}", markup=False)


@app.command()
def export(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    video: Annotated[str, typer.Argument(metavar="VIDEO", help="The video's id, or its number.")],
    out_path: Annotated[Path, typer.Argument(metavar="OUT.mp4")],
    start: Annotated[str, typer.Option(help="Seconds.")] = "0",
    end: Annotated[str | None, typer.Option(help="Seconds.  [the end]")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a video, or a part of it, as an ordinary MP4, without re-encoding."""
    with _errors():
        from .manifests.export import export as write
        from .manifests.export import frame_range
        from .manifests.layout import open_current

        _, manifest = open_current(dataset)
        by_number = video.isdecimal() and video not in manifest.ids and int(video) < len(manifest.ids)
        row = int(video) if by_number else manifest.row_of(video)
        seconds = (seconds_of(start, "--start"), None if end is None else seconds_of(end, "--end"))
        first, stop = frame_range(manifest.video(row), *seconds)
        first, stop = write(dataset, manifest, row, out_path, start_frame=first, stop_frame=stop, overwrite=overwrite)
        if as_json:
            _print_json({"video": video, "out": str(out_path), "first_frame": first, "stop_frame": stop})
        else:
            out.print(f"frames {first} to {stop - 1} of {video}: {out_path}", markup=False, soft_wrap=True)


@app.command()
def bench(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    clip: Annotated[
        list[str] | None, typer.Option(help="Frames and stride, such as 16x4; may be given several times.  [16x4]")
    ] = None,
    random_frames: Annotated[bool, typer.Option("--random-frames", help="Single frames as well.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Clips, or frames, that are read at a time.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads that share a batch.")] = 1,
    seconds: Annotated[float, typer.Option(help="For each pattern, all readers together.")] = 20.0,
    peers: Annotated[
        str | None, typer.Option(help="Libraries to compare with.  [torchcodec,pyav,opencv,decord]")
    ] = None,
    exported: Annotated[bool, typer.Option("--exported", help="Peers read exported MP4s too.")] = False,
    chart: Annotated[Path | None, typer.Option(help="A chart: a file ending in .png, .svg or .pdf.")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Read a dataset at random, and its sources with other libraries, in turn; compare how long that takes."""
    with _errors():
        from .comparison.accesses import Access, parse_clip
        from .comparison.chart import check_chart
        from .comparison.measure import Options, measure
        from .comparison.report import report_json, report_lines, report_table, write_report_chart
        from .manifests.output_files import sources_in

        accesses = [parse_clip(text, batch) for text in clip or ["16x4"]]
        accesses += [Access(1, batch=batch)] if random_frames else []
        names = {} if peers is None else {"peers": tuple(name for name in peers.split(",") if name)}
        options = Options(tuple(accesses), threads, seconds=seconds, exported=exported, **names)
        if chart is not None:
            check_chart(chart, overwrite=overwrite, sources=sources_in(dataset))
        report = measure(dataset, options, lambda text: err.print(text, markup=False))
        if chart is not None:
            write_report_chart(report, chart, overwrite=overwrite, sources=sources_in(dataset))
        if as_json:
            _print_json(report_json(report))
        else:
            out.print(report_table(report))
            for line in report_lines(report):
                out.print(line, markup=False, soft_wrap=True)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """What is found on this machine, what of it really runs, and what would be used."""
    with _errors():
        from .prep.doctor import diagnose
        from .readers.decoder_trial import try_decoders, versions

        diagnosis, decoders, found = diagnose(), try_decoders(), versions()
        if as_json:
            tried = [dataclasses.asdict(decoder) for decoder in decoders]
            _print_json({**dataclasses.asdict(diagnosis), "decoders": tried, "versions": found})
            return
        print_diagnosis(diagnosis, decoders, found, out)
        if diagnosis.chosen is None:
            raise typer.Exit(EXIT_FAILED)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")
