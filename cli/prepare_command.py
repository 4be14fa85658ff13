"""`shortgop prep`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from ..errors import UsageError
from .app import EXIT_SOMETHING_MISSING, app, end_if_told, end_tidily_on_signals, err, errors, out
from .job_reports import print_report, show_types
from .parameters import (
    AddressOption,
    CutsOption,
    GapsOption,
    ImageFpsOption,
    JsonOption,
    KeepSnapshotsOption,
    ListRootOption,
    MaxGapOption,
    MaxStallOption,
    RunnerOption,
    SalvageOption,
    StreamsPerGpuOption,
    TypesOption,
    WorkersOption,
)
from .printing import print_json
from .progress import job_progress
from .report_command import report_at_the_end


@app.command()
def prep(  # noqa: PLR0917  # typer makes options of them
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help="Video files, folders, globs, lists, URLs.")],
    out_path: Annotated[str, typer.Option("--out", metavar="DATASET", help="The dataset, new or existing.")],
    profile_name: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="fast (to read), balanced or small.  [fast]")
    ] = None,
    fps: Annotated[str | None, typer.Option(help="source, or a rate: 30, 29.97, 30000/1001.  [source]")] = None,
    size: Annotated[str | None, typer.Option(help="No larger than: source, a short side, or WxH.  [source]")] = None,
    fit: Annotated[
        str | None, typer.Option(help="How pictures fit into WxH: within, pad, crop or stretch.  [within]")
    ] = None,
    upscale: Annotated[
        bool | None, typer.Option("--upscale/--no-upscale", help="Enlarge sources smaller than --size.  [no]")
    ] = None,
    deinterlace: Annotated[str | None, typer.Option(help="auto (interlaced sources) or never.  [auto]")] = None,
    gop: Annotated[int | None, typer.Option(help="Frames in a GOP.  [16]")] = None,
    b_frames: Annotated[
        int | None, typer.Option(help="Frames that no other refers to between two that others refer to.  [3; av1: 1]")
    ] = None,
    codec: Annotated[str | None, typer.Option(help="h264, hevc or av1.  [h264]")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="auto, libx264, libx265, libsvtav1, h264_nvenc, hevc_nvenc or av1_nvenc.  [auto]")
    ] = None,
    crf: Annotated[int | None, typer.Option(help="Quality: lower is better and larger.  [23; av1: 35]")] = None,
    preset: Annotated[str | None, typer.Option(help="The encoder's preset.  [the encoder's own]")] = None,
    fastdecode: Annotated[
        bool | None,
        typer.Option(
            "--fastdecode/--no-fastdecode", help="Faster to decode, and larger; not on hevc_nvenc and av1_nvenc.  [yes]"
        ),
    ] = None,
    segment_seconds: Annotated[str | None, typer.Option(help="Length of a segment.  [10]")] = None,
    shard_mb: Annotated[int | None, typer.Option(help="Size at which a new shard starts.  [256]")] = None,
    cuts: CutsOption = None,
    list_root: ListRootOption = None,
    image_fps: ImageFpsOption = None,
    salvage: SalvageOption = False,
    gaps: GapsOption = "fail",
    max_gap: MaxGapOption = "10",
    max_stall: MaxStallOption = "120",
    changed: Annotated[
        str, typer.Option(help="Sources that changed since: keep the old frames, replace them, or fail.")
    ] = "keep",
    id_root: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Ids are paths below it.  [the folders first given]")
    ] = None,
    address: AddressOption = None,
    workers: WorkersOption = None,
    runner: RunnerOption = "ray",
    streams_per_gpu: StreamsPerGpuOption = 4,
    check: Annotated[
        bool, typer.Option("--check", help="First read every GOP of the dataset, and make damaged videos again.")
    ] = False,
    types: TypesOption = None,
    include_dropped: Annotated[
        bool, typer.Option("--include-dropped", help="Take in again what `shortgop drop` took out.")
    ] = False,
    max_failures: Annotated[
        str | None, typer.Option(metavar="N|P%", help="End the job when more sources than this have failed.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try sources again that killed their workers in an earlier job.")
    ] = False,
    keep_snapshots: KeepSnapshotsOption = "1d",
    report_path: Annotated[
        str | None,
        typer.Option(
            "--report", metavar="FILE", help="Write a page about the job at its end, like `shortgop report --out`."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Change nothing, and print what would be prepared, and which sources are not there or have changed.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Re-encode SOURCEs into a dataset. Videos that are in it already are left alone, but get the columns that a list
    gives them.

    An option that is left out has its value in the dataset, or the default in brackets. Exit status: 0 every source is
    in the dataset, 1 the job could not go on (disk full, no encoder; finished work is kept), 2 wrong usage, 3 the
    dataset is complete and usable but some sources are not in it, or have changed, or some of its videos are lost, 5
    another job is writing to the dataset, 130 Ctrl-C, 143 SIGTERM and 129 a closed terminal: finished work is kept.
    """
    end_tidily_on_signals()
    with errors(goes_on=not dry_run):
        if dry_run and report_path is not None:
            raise UsageError("--report is about a job that is run; leave it or --dry-run out")
        from ..jobs.finding.column_types import parse_types
        from ..jobs.named_options import prepare_without_warning

        end_if_told()
        with report_at_the_end(report_path, out_path), job_progress(err) as on_progress:
            report = prepare_without_warning(
                sources, out_path, profile=profile_name, fps=fps, size=size, fit=fit, upscale=upscale,
                deinterlace=deinterlace, gop=gop, b_frames=b_frames, codec=codec, encoder=encoder, crf=crf,
                preset=preset, fastdecode=fastdecode, segment_seconds=segment_seconds, shard_mb=shard_mb,
                salvage=salvage, gaps=gaps, max_gap=max_gap, max_stall=max_stall, changed=changed, id_root=id_root,
                check=check, address=address, workers=workers, runner=runner, streams_per_gpu=streams_per_gpu,
                keep_snapshots=keep_snapshots, include_dropped=include_dropped, max_failures=max_failures,
                retry_failed=retry_failed, types=parse_types(types or []), on_types=show_types, cuts=cuts,
                list_root=list_root, image_fps=image_fps, dry_run=dry_run, on_progress=on_progress,
                on_recognised=err.print_line,
            )  # fmt: skip
        if as_json:
            print_json({**dataclasses.asdict(report), "dataset": str(out_path)})
        else:
            print_report(report, out_path, out, err)
        if report.failures or report.lost:
            raise typer.Exit(EXIT_SOMETHING_MISSING)
