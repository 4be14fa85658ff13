"""Commands that show a dataset's content, check it, and show this machine's tools: `info`, `verify`, `doctor`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from ..storage.locate import storage_at
from ..wording import counted
from .app import EXIT_FAILED, app, end_tidily_on_sigterm, err, errors, megabytes, out, print_json
from .job_reports import print_diagnosis, print_report, some_of
from .parameters import (
    AddressOption,
    CutsOption,
    DatasetArgument,
    GapsOption,
    ImageFpsOption,
    JsonOption,
    KeepSnapshotsOption,
    MaxGapOption,
    MaxStallOption,
    RunnerOption,
    SalvageOption,
    WorkersOption,
)
from .printing import video_table
from .progress import job_progress, loop_bar

if TYPE_CHECKING:
    from ..manifests.operations.verify import Problem

_VIDEOS_SHOWN = 20
# Of each file. The first ones tell what is wrong with it.
_PROBLEMS_SHOWN = 5


@app.command()
def info(dataset: DatasetArgument, as_json: JsonOption = False) -> None:
    """Show what is in a dataset."""
    with errors():
        from ..manifests.operations.summary import summarize

        summary = summarize(storage_at(dataset), max_videos=None if as_json else _VIDEOS_SHOWN)
        if as_json:
            print_json(dataclasses.asdict(summary))
            return
        out.print(
            f"{counted(summary.num_videos, 'video')}, {counted(summary.num_frames, 'frame')} "
            f"({summary.duration_seconds:.1f} s), {counted(summary.num_gops, 'GOP')} in "
            f"{counted(summary.num_shards, 'shard')}, {megabytes(summary.num_bytes)}; "
            f"format {summary.format_version}, snapshot {summary.snapshot}",
            soft_wrap=True,
        )
        out.print(
            "profile: " + ", ".join(f"{k} {v}" for k, v in summary.profile.items() if v is not None),
            markup=False,
            soft_wrap=True,
        )
        out.print(video_table(summary.videos))
        if summary.num_videos > _VIDEOS_SHOWN:
            out.print(f"and {summary.num_videos - _VIDEOS_SHOWN} more: --json lists all")
        for failure in summary.failures:
            out.print(f"not in the dataset: {failure.id}: {failure.reason}", markup=False, soft_wrap=True)
        if summary.trouble:
            err.print(summary.trouble, style="red", markup=False, soft_wrap=True)


@app.command()
def verify(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE]...", help="With --repair: the sources that prep was given.")
    ] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every frame as well.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Make damaged videos again from SOURCEs, and no other videos.")
    ] = False,
    cuts: CutsOption = None,
    image_fps: ImageFpsOption = None,
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
    """Check every GOP's bytes against its CRC and structure. The exit status is 1 if something is wrong, with --repair
    if something still is. The options of prep count only with --repair."""
    with errors(goes_on=repair):
        if repair != bool(sources):
            raise UsageError("--repair and SOURCEs need each other; give the sources of the dataset, or leave both out")
        from ..manifests.dataset_files.snapshots import open_current
        from ..manifests.dataset_files.tidy import parse_duration
        from ..manifests.operations.verify import damaged_videos, stray_files
        from ..manifests.operations.verify import verify as check
        from ..manifests.shared_memory.scratch_arrays import temporary_arrays
        from ..prep.options import named_policy

        policy = named_policy(salvage=salvage, gaps=gaps, max_gap=max_gap, max_stall=max_stall)
        keep_seconds = parse_duration(keep_snapshots)
        where = None
        if (repair, address, workers, runner) != (False, None, None, "ray"):
            # Wrong options of a job are reported before hours of reading. Without them `verify` needs nothing of
            # `jobs`.
            from ..jobs.prepare import Where

            where = Where(runner, address, workers)
        storage = storage_at(dataset)
        with contextlib.closing(temporary_arrays()) as scratch:
            # Decoded anew: a copy of this host would hide damage of the snapshot.
            root, manifest = open_current(storage, new_array=scratch.new)
        with loop_bar(err, "GOPs", len(manifest.gops)) as advance:
            problems = list(check(storage, manifest, snapshot=root.snapshot, on_gop=advance))
        lines, damaged = [str(problem) for problem in problems], damaged_videos(manifest, problems)
        strays = stray_files(storage, manifest)
        if decode:
            from ..readers.decode_check import undecodable

            # Videos whose bytes are damaged need no decoding.
            with loop_bar(err, "videos", len(manifest.videos) - len(damaged)) as advance:
                for video_id, line in undecodable(storage, root.snapshot, skip=frozenset(damaged), on_video=advance):
                    lines.append(line)
                    damaged.setdefault(video_id, line)
        report = None
        if repair and damaged:
            from ..jobs.finding.importing import importing_of
            from ..jobs.prepare import repair as make_again

            end_tidily_on_sigterm()
            with job_progress(err) as on_update:
                report = make_again(
                    sources or [], storage, manifest, damaged, policy=policy, where=where,
                    importing=importing_of(cuts, image_fps), keep_snapshots_seconds=keep_seconds, on_update=on_update,
                )  # fmt: skip
        if as_json:
            found = {"gops": len(manifest.gops), "decoded": decode, "problems": lines}
            print_json(found if report is None else {**found, "repair": dataclasses.asdict(report)})
        else:
            for line in (*_first_of_each_file(problems), *lines[len(problems) :]):
                err.print(line, style="red", markup=False, soft_wrap=True)
            for file in strays:
                err.print(f"note: {file} is not in the current snapshot", markup=False, soft_wrap=True)
            verdict = (
                counted(len(lines), "problem")
                if lines
                else "all as written" + (", every frame decodes" if decode else "")
            )
            num_bytes = int(manifest.shards.length.sum())
            out.print(f"{counted(len(manifest.gops), 'GOP')}, {megabytes(num_bytes)}: {verdict}")
            if report is not None:
                print_report(report, dataset, out, err)
            elif damaged:
                out.print(
                    f"damaged: {len(damaged)} of {counted(len(manifest.videos), 'video')}: {some_of(sorted(damaged))}; "
                    f"`shortgop verify {dataset} --repair SOURCES` makes them again",
                    markup=False, soft_wrap=True,
                )  # fmt: skip
        if lines and (report is None or report.lost):
            raise typer.Exit(EXIT_FAILED)


def _first_of_each_file(problems: Iterable[Problem]) -> Iterator[str]:
    """The first problems of each file, and how many more it has: a shard that was cut has one for each GOP."""
    for file, found in groupby(problems, key=lambda problem: problem.file):
        lines = list(map(str, found))
        yield from lines[:_PROBLEMS_SHOWN]
        if len(lines) > _PROBLEMS_SHOWN:
            yield f"{file}: {counted(len(lines) - _PROBLEMS_SHOWN, 'more problem')}: --json lists all"


@app.command(short_help="Show which ffmpegs, encoders and decoders run here.")
def doctor(as_json: JsonOption = False) -> None:
    """Show which ffmpegs, encoders and decoders this machine has, which of them run, and which would be used."""
    with errors():
        from ..prep.tools.doctor import diagnose
        from ..readers.decoder_trial import try_decoders, versions

        diagnosis, decoders, found = diagnose(), try_decoders(), versions()
        if as_json:
            tried = [dataclasses.asdict(decoder) for decoder in decoders]
            print_json({**dataclasses.asdict(diagnosis), "decoders": tried, "versions": found})
            return
        print_diagnosis(diagnosis, decoders, found, out)
        if diagnosis.chosen is None:
            raise typer.Exit(EXIT_FAILED)
