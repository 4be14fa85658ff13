"""The command that checks a dataset, and repairs it: `verify`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ToolError, UnreadableDataError, UsageError
from ..storage.locate import storage_at
from ..storage.network import OF_A_JOB
from ..wording import byte_size, counted
from .app import EXIT_FAILED, EXIT_SOMETHING_MISSING, SAYS_BUSY, app, end_tidily_on_signals, err, errors, out
from .job_reports import print_report, recovery_lines, root_lines, some_of
from .parameters import (
    AddressOption,
    CutsOption,
    DatasetArgument,
    GapsOption,
    ImageFpsOption,
    JsonOption,
    KeepSnapshotsOption,
    ListRootOption,
    MaxGapOption,
    MaxStallOption,
    RunnerOption,
    SalvageOption,
    WorkersOption,
)
from .printing import print_json
from .progress import job_progress, loop_bar

if TYPE_CHECKING:
    from ..jobs.outcome import Report
    from ..manifests.operations.lost_root import RestoredRoot
    from ..manifests.operations.problem import Problem
    from ..manifests.operations.recovery import Recovered
    from ..manifests.tables import Manifest
    from ..storage.interface import Storage

# Of each file. The first ones tell what is wrong with it.
_PROBLEMS_SHOWN = 5


@app.command(short_help="Check every GOP's bytes against its CRC and structure.", epilog=SAYS_BUSY)
def verify(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="SOURCE", help="With --repair: the sources that prep was given.")
    ] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every frame as well.")] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Make a lost or damaged snapshot or zarr.json again from the dataset's other files, and damaged "
            "videos from SOURCEs.",
        ),
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="With --repair: also if parts are lost as well.")
    ] = False,
    cuts: CutsOption = None,
    list_root: ListRootOption = None,
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
    """Check every GOP's bytes against its CRC and structure. The options of prep count only with --repair.

    Exit status: 0 all is as it was written, or was made again, 3 something is wrong, 1 some or all of it could not be
    read or decoded here, and may be as it was written.
    """
    with errors(goes_on=repair, if_damaged=EXIT_SOMETHING_MISSING):
        if not repair and (sources or accept_loss):
            raise UsageError(f"{'SOURCEs need' if sources else '--accept-loss needs'} --repair; give it, too")
        from ..manifests.dataset_files.tidy import parse_duration
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
        root = _with_whole_root(storage, says=not as_json) if repair else None
        recovered = _with_whole_snapshot(storage, accept_loss=accept_loss, says=not as_json) if repair else None
        checked = _checked(storage, decode=decode)
        report = None
        if sources and checked.damaged:
            from ..jobs.finding.importing import importing_of
            from ..jobs.prepare import repair as make_again

            end_tidily_on_signals()
            with job_progress(err) as on_update:
                report = make_again(
                    sources, storage_at(dataset, network=OF_A_JOB), checked.manifest, checked.damaged,
                    policy=policy, where=where,
                    importing=importing_of(cuts, image_fps, list_root=list_root),
                    keep_snapshots_seconds=keep_seconds, on_update=on_update,
                )  # fmt: skip
        if as_json:
            found = {
                "gops": len(checked.manifest.gops), "decoded": decode,
                "problems": [*checked.lines, *checked.undecoded], "damaged": sorted(checked.damaged),
                "unread": list(checked.unread), "undecoded": sorted(chain(*checked.undecoded.values())),
            }  # fmt: skip
            made: tuple[tuple[str, Any], ...] = (("root", root), ("recovered", recovered), ("repair", report))
            print_json(found | {name: dataclasses.asdict(done) for name, done in made if done is not None})
        else:
            _print_checked(checked, report, dataset, decode=decode)
        if status := _status(checked, report):
            raise typer.Exit(status)


def _with_whole_root(storage: Storage, *, says: bool) -> RestoredRoot | None:
    """Make zarr.json again if it is lost or damaged."""
    from ..manifests.operations.lost_root import restore_root

    restored = restore_root(storage)
    for line in root_lines(restored) if restored is not None and says else ():
        out.print_line(line)
    return restored


def _with_whole_snapshot(storage: Storage, *, accept_loss: bool, says: bool) -> Recovered | None:
    """Make the current snapshot again if it is lost or damaged."""
    from ..manifests.operations.recovery import repair_snapshot

    recovered = repair_snapshot(storage, accept_loss=accept_loss)
    # At once: what follows may take hours.
    for line in recovery_lines(recovered) if recovered is not None and says else ():
        out.print_line(line)
    return recovered


@dataclass(frozen=True, eq=False)
class _Checked:
    """What was found: problems of bytes, `lines` about these and about what does not decode, the first of them about
    each damaged video, and files that nothing names. `unread` are the ids of other videos that could not be read, and
    may be as they were written. `undecoded` are those for which there is no decoder, by what is wrong with that.
    `only_unread`: nothing is damaged."""

    manifest: Manifest
    problems: Sequence[Problem]
    lines: Sequence[str]
    damaged: dict[str, str]
    unread: Sequence[str]
    undecoded: dict[str, list[str]]
    only_unread: bool
    strays: Sequence[str]


def _checked(storage: Storage, *, decode: bool) -> _Checked:
    from ..manifests.dataset_files.snapshots import open_current
    from ..manifests.operations.verify import damaged_videos, stray_files
    from ..manifests.operations.verify import verify as check
    from ..manifests.shared_memory.scratch_arrays import temporary_arrays

    with contextlib.closing(temporary_arrays()) as scratch:
        # Decoded anew: a copy of this host would hide damage of the snapshot.
        root, manifest = open_current(storage, new_array=scratch.new)
    with loop_bar(err, "GOPs", len(manifest.gops)) as advance:
        problems = list(check(storage, manifest, snapshot=root.snapshot, on_gop=advance))
    lines, unsure = [str(problem) for problem in problems], [problem for problem in problems if problem.is_unread]
    damaged = damaged_videos(manifest, (problem for problem in problems if not problem.is_unread))
    unread = set(damaged_videos(manifest, unsure))
    undecoded: dict[str, list[str]] = {}
    only_unread = len(unsure) == len(problems)
    if decode:
        from ..readers.decode_check import undecodable

        # Videos whose bytes are damaged, or cannot be read, need no decoding.
        skip = unread | damaged.keys()
        with loop_bar(err, "videos", len(manifest.videos) - len(skip)) as advance:
            for video_id, error in undecodable(storage, root.snapshot, skip=skip, on_video=advance):
                if isinstance(error, ToolError):
                    # It says nothing of the video, and the same of each one.
                    undecoded.setdefault(error.message, []).append(video_id)
                    continue
                lines.append(str(error))
                if isinstance(error, UnreadableDataError):
                    unread.add(video_id)
                else:
                    damaged.setdefault(video_id, str(error))
                    only_unread = False
    others = sorted(unread - damaged.keys())
    return _Checked(manifest, problems, lines, damaged, others, undecoded, only_unread, stray_files(storage, manifest))


def _status(checked: _Checked, report: Report | None) -> int:
    """The exit status. `report` is that of the job that made damaged videos again."""
    if report is None or report.lost:
        all_well = not (checked.lines or checked.undecoded)
        return 0 if all_well else EXIT_FAILED if checked.only_unread else EXIT_SOMETHING_MISSING
    # What was damaged is made again.
    left = any(problem.is_unread and problem.video is None for problem in checked.problems)
    return EXIT_FAILED if checked.unread or checked.undecoded or left else 0


def _print_checked(checked: _Checked, report: Report | None, dataset: str, *, decode: bool) -> None:
    manifest, lines = checked.manifest, checked.lines
    for line in (*_first_of_each_file(checked.problems), *lines[len(checked.problems) :]):
        err.print_line(line, style="red")
    if checked.strays:
        err.print_line(
            f"note: {counted(len(checked.strays), 'file')} not in the current snapshot, such as {checked.strays[0]}; "
            f"earlier snapshots, or a job that runs, may need them; `shortgop gc {quote(dataset)}` removes them with "
            "earlier snapshots"
        )
    all_well = "all as written" + (", every frame decodes" if decode and not checked.undecoded else "")
    verdict = counted(len(lines), "problem") if lines else all_well
    num_bytes = int(manifest.shards.length.sum())
    out.print_line(f"{counted(len(manifest.gops), 'GOP')}, {byte_size(num_bytes)}: {verdict}")
    num_videos = counted(len(manifest.videos), "video")
    if checked.unread:
        out.print_line(
            f"not read: {len(checked.unread)} of {num_videos}: {some_of(checked.unread)}; they may be as they were "
            "written; --repair SOURCES makes them again only where their shards are removed"
        )
    for reason, ids in checked.undecoded.items():
        out.print_line(f"not decoded: {len(ids)} of {num_videos}: {some_of(ids)}: {reason}")
    if report is not None:
        print_report(report, dataset, out, err)
        return
    damaged = sorted(checked.damaged)
    if damaged:
        out.print_line(
            f"damaged: {len(damaged)} of {num_videos}: {some_of(damaged)}; "
            f"`shortgop verify {quote(dataset)} --repair SOURCES` makes them again"
        )


def _first_of_each_file(problems: Iterable[Problem]) -> Iterator[str]:
    """The first problems of each file, and how many more it has: a shard that was cut has one for each GOP."""
    for file, found in groupby(problems, key=lambda problem: problem.file):
        lines = list(map(str, found))
        yield from lines[:_PROBLEMS_SHOWN]
        if len(lines) > _PROBLEMS_SHOWN:
            yield f"{file}: {counted(len(lines) - _PROBLEMS_SHOWN, 'more problem')}: --json lists all"
