"""What is in a dataset, whether it is whole, and what this machine has: `info`, `verify`, `doctor`."""

from __future__ import annotations

import dataclasses
import signal
from typing import Annotated

import typer

from ..errors import UsageError
from .app import EXIT_FAILED, app, err, errors, megabytes, out, print_json
from .job_reports import print_diagnosis, print_report
from .parameters import (
    AddressOption,
    DatasetArgument,
    GapsOption,
    JsonOption,
    KeepSnapshotsOption,
    MaxGapOption,
    MaxStallOption,
    RunnerOption,
    SalvageOption,
    WorkersOption,
    policy_of,
)
from .printing import video_table
from .progress import job_progress, loop_bar

_VIDEOS_SHOWN = 20


@app.command()
def info(dataset: DatasetArgument, as_json: JsonOption = False) -> None:
    """What is in a dataset."""
    with errors():
        from ..manifests.summary import summarize

        summary = summarize(dataset)
        if as_json:
            print_json(dataclasses.asdict(summary))
            return
        out.print(
            f"{summary.num_videos} videos, {summary.num_frames} frames ({summary.duration_seconds:.1f} s), "
            f"{summary.num_gops} GOPs in {summary.num_shards} shards, {megabytes(summary.num_bytes)}; "
            f"format {summary.format_version}, snapshot {summary.snapshot}",
            soft_wrap=True,
        )
        out.print(
            "profile: " + ", ".join(f"{k} {v}" for k, v in summary.profile.items() if v is not None),
            markup=False,
            soft_wrap=True,
        )
        out.print(video_table(summary.videos[:_VIDEOS_SHOWN]))
        if len(summary.videos) > _VIDEOS_SHOWN:
            out.print(f"and {len(summary.videos) - _VIDEOS_SHOWN} more: --json lists all")
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
    address: AddressOption = None,
    workers: WorkersOption = None,
    runner: RunnerOption = "ray",
    keep_snapshots: KeepSnapshotsOption = "1d",
    as_json: JsonOption = False,
) -> None:
    """Check every GOP's bytes against its CRC and structure. Exit status 1 when something is wrong, and with --repair
    when something still is. The options of a job are those of prep, and count with --repair."""
    with errors():
        if repair != bool(sources):
            raise UsageError("--repair takes the sources to make videos again from, and sources are only for --repair")
        from ..manifests.layout import open_current
        from ..manifests.tidy import parse_duration
        from ..manifests.verify import damaged_videos, stray_files
        from ..manifests.verify import verify as check

        policy, keep_seconds = policy_of(salvage, gaps, max_gap, max_stall), parse_duration(keep_snapshots)
        where = None
        if (repair, address, workers, runner) != (False, None, None, "ray"):
            # What is no option of a job is told before hours of reading. Nothing else of `jobs` is needed to verify.
            from ..jobs.prepare import Where

            where = Where(runner, address, workers)
        root, manifest = open_current(dataset)
        with loop_bar(err, "GOPs", len(manifest.gops)) as advance:
            problems = list(check(dataset, manifest, snapshot=root.snapshot, on_gop=advance))
        lines, damaged = [str(problem) for problem in problems], damaged_videos(manifest, problems)
        strays = stray_files(dataset, manifest)
        if decode:
            from ..readers.decode_check import undecodable

            # Of those whose bytes are damaged it is known already.
            with loop_bar(err, "videos", len(manifest.videos) - len(damaged)) as advance:
                for video_id, line in undecodable(dataset, root.snapshot, skip=frozenset(damaged), on_video=advance):
                    lines.append(line)
                    damaged.setdefault(video_id, line)
        report = None
        if repair and damaged:
            from ..jobs.prepare import repair as make_again

            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with job_progress(err) as on_update:
                report = make_again(
                    sources or [], dataset, manifest, damaged, policy=policy, where=where,
                    keep_snapshots_seconds=keep_seconds, on_update=on_update,
                )  # fmt: skip
        if as_json:
            found = {"gops": len(manifest.gops), "decoded": decode, "problems": lines}
            print_json(found if report is None else {**found, "repair": dataclasses.asdict(report)})
        else:
            for line in lines:
                err.print(line, style="red", markup=False, soft_wrap=True)
            for file in strays:
                err.print(f"note: {file} is not of the current snapshot", markup=False, soft_wrap=True)
            verdict = (
                f"{len(lines)} problems" if lines else "all as written" + (", every frame decodes" if decode else "")
            )
            out.print(f"{len(manifest.gops)} GOPs, {megabytes(int(manifest.shards.length.sum()))}: {verdict}")
            if report is not None:
                print_report(report, dataset, out, err)
        if lines and (report is None or report.lost):
            raise typer.Exit(EXIT_FAILED)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """What is found on this machine, what of it really runs, and what would be used."""
    with errors():
        from ..prep.doctor import diagnose
        from ..readers.decoder_trial import try_decoders, versions

        diagnosis, decoders, found = diagnose(), try_decoders(), versions()
        if as_json:
            tried = [dataclasses.asdict(decoder) for decoder in decoders]
            print_json({**dataclasses.asdict(diagnosis), "decoders": tried, "versions": found})
            return
        print_diagnosis(diagnosis, decoders, found, out)
        if diagnosis.chosen is None:
            raise typer.Exit(EXIT_FAILED)
