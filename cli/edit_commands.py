"""Commands that change what is in a dataset without encoding: `annotate`, `drop`, `gc`; and `snapshots`."""

from __future__ import annotations

import dataclasses
import io
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DatasetWarning, UsageError
from ..storage.locate import from_home, storage_at
from ..wording import byte_size, counted
from .app import EXIT_SOMETHING_MISSING, SAYS_BUSY, app, err, errors, out
from .job_reports import show_types, some_of
from .parameters import (
    CutsOption,
    DatasetArgument,
    JsonOption,
    KeepSnapshotsOption,
    ListRootOption,
    TypesOption,
    on_this_host,
)
from .printing import print_json, snapshot_table
from .progress import loop_bar

if TYPE_CHECKING:
    from ..manifests.operations.drop import Dropped

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Change nothing, and print what would be done.")]
FromOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        callback=on_this_host,
        help="A text file with an id on each line; - reads them from standard input.",
    ),
]


@app.command(short_help="Set columns of videos, without encoding.", epilog=SAYS_BUSY)
def annotate(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    labels: Annotated[
        Path | None,
        typer.Argument(
            metavar="LABELS",
            callback=on_this_host,
            help="A .csv, .tsv, .jsonl or .parquet file with an `id`, or the `path` of each source; or a folder of "
            "videos with files of their names beside them: .txt, .json, .cls.",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="COLUMN", help="Take a column from all videos.")
    ] = None,
    types: TypesOption = None,
    cuts: CutsOption = None,
    list_root: ListRootOption = None,
    keep_snapshots: KeepSnapshotsOption = "1d",
    as_json: JsonOption = False,
) -> None:
    """Set columns of videos, without encoding anything: those that LABELS names. The others stay.

    Exit status: 0 every id is in the dataset or was dropped, 3 some are not; the others have their columns.
    """
    with errors():
        from ..jobs.finding.column_types import parse_types
        from ..jobs.finding.label_lists import goes_by_paths
        from ..jobs.sources.labels import annotate as set_columns
        from ..jobs.sources.labels import told_too_large
        from ..manifests.dataset_files.tidy import parse_duration
        from ..manifests.operations.column_changes import told_new

        if labels is None and not remove:
            raise UsageError(
                "no labels given; name a list with an `id` or `path` column, a folder with files beside its videos, or "
                "columns to --remove"
            )
        # What is asked of it below is asked of the same file, where a shell has left a `~` in quotes.
        labels = None if labels is None else Path(from_home(str(labels)))
        with warnings.catch_warnings():
            # What it says is printed below.
            warnings.simplefilter("ignore", DatasetWarning)
            done = set_columns(
                dataset, labels, remove=remove or [], types=parse_types(types or []), on_types=show_types, cuts=cuts,
                list_root=list_root,
                keep_snapshots_seconds=parse_duration(keep_snapshots),
            )  # fmt: skip
        if as_json:
            print_json(dataclasses.asdict(done))
        else:
            fits_nothing = labels is not None and not (done.changed or done.unchanged or done.dropped)
            by_path = fits_nothing and not (labels and labels.is_dir()) and goes_by_paths(str(labels))
            print_unknown(
                done.unknown,
                done.near,
                "; a list without a column `id` goes by its paths, which begin in its own folder, or in --list-root"
                if by_path
                else "",
            )
            if done.dropped:
                were = "id was" if len(done.dropped) == 1 else "ids were"
                err.print_line(f"{len(done.dropped)} {were} dropped, and left out: {some_of(done.dropped)}")
            if done.too_large:
                err.print_line(told_too_large(done.too_large), style="yellow")
            if done.added:
                err.print_line(told_new(done.added))
            for told in (*done.absent, *done.mixed, *done.became_text, *done.hiding):
                err.print_line(str(told), style="yellow")
            what = f"{counted(len(done.changed), 'video')} changed"
            rest = f", {done.unchanged} had these columns already" if done.unchanged else ""
            out.print_line(f"{what}{rest}; snapshot {done.snapshot}")
        if done.unknown:
            raise typer.Exit(EXIT_SOMETHING_MISSING)


def print_unknown(ids: Sequence[str], near: Sequence[str], more: str = "") -> None:
    """Say which ids the dataset does not have, if any."""
    from ..manifests.near_ids import did_you_mean

    if ids:
        meant = did_you_mean(ids[0], near)
        err.print_line(
            f"{counted(len(ids), 'id')} not in the dataset: {some_of(ids)}; `shortgop info` lists the ids{more}{meant}",
            style="yellow",
        )


@app.command(short_help="Take videos out of a dataset.", epilog=SAYS_BUSY)
def drop(
    dataset: DatasetArgument,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Ids of videos, or patterns in quotes: 'kitchen/*', '**/*.avi'."),
    ] = None,
    from_file: FromOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take videos out of a dataset: no later snapshot has them, and prep leaves them out. `gc` removes their bytes.

    Exit status: 0 all ids are out, 3 some never were in the dataset; the others are out. A list
    without ids takes nothing out.
    """
    with errors():
        from ..manifests.id_patterns import pattern_of_folder
        from ..manifests.operations.drop import drop as take_out

        listed = ids_in(from_file)
        if not ids and from_file is None:
            raise UsageError("no ids given; name ids of videos, patterns such as 'kitchen/*', or a file with --from")
        if from_file is not None and not listed:
            # As in a job of each day, whose list is empty on most days.
            err.print_line(f"{_name_of(from_file)} has no ids")
        done = take_out(storage_at(dataset), listed, patterns=ids or (), dry_run=dry_run)
        if as_json:
            print_json({**dataclasses.asdict(done), "dry_run": dry_run})
        else:
            print_unknown(done.unknown, done.near, pattern_of_folder(done.unknown, done.near))
            verb = "would be dropped" if dry_run else "dropped"
            already = f"; {counted(len(done.already), 'id')} dropped before" if done.already else ""
            out.print_line(
                f"{_videos_and_sources(done)} {verb}: {counted(done.num_frames, 'frame')}, "
                f"{byte_size(done.num_bytes)}{already}; snapshot {done.snapshot}"
            )
            if done.ids and (dry_run or set(done.ids) - {*listed, *(ids or ())}):
                out.print_line(some_of(done.ids))
            if done.same_content:
                err.print_line(
                    f"{counted(len(done.same_content), 'video')} with the same content under another id "
                    f"{'stays' if len(done.same_content) == 1 else 'stay'} in the dataset: "
                    f"{some_of(done.same_content)}",
                    style="yellow",
                )
            if done.ids and not dry_run:
                out.print_line(f"`shortgop gc {quote(dataset)}` removes their bytes")
        if done.unknown:
            raise typer.Exit(EXIT_SOMETHING_MISSING)


def _videos_and_sources(done: Dropped) -> str:
    """How many videos were taken out, and how many sources that could not be prepared."""
    videos = counted(len(done.ids) - done.num_failed, "video")
    if not done.num_failed:
        return videos
    sources = f"{counted(done.num_failed, 'source')} that could not be prepared"
    return sources if done.num_failed == len(done.ids) else f"{videos} and {sources}"


def ids_in(file: Path | None) -> list[str]:
    """The lines of the file of `--from`; of standard input for `-`. UsageError if it cannot be read."""
    if file is None:
        return []
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        # Ids may hold what `str.splitlines` takes for the end of a line. Reading makes \r\n and \r a \n.
        lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(
            f"cannot read the ids in {_name_of(file)}: {why}; give a text file with an id on each line"
        ) from error
    return [line for line in lines if line.strip()]


def _name_of(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def some_ids_in(file: Path | None, others: Sequence[str] | None) -> list[str]:
    """`ids_in`. UsageError if there is a file and neither it nor `others` name an id."""
    listed = ids_in(file)
    if file is not None and not listed and not others:
        raise UsageError(f"{_name_of(file)} has no ids; give a text file with an id on each line")
    return listed


@app.command(short_help="Remove the bytes of what is no longer in a dataset.", epilog=SAYS_BUSY)
def gc(
    dataset: DatasetArgument,
    dry_run: DryRunOption = False,
    keep_snapshots: Annotated[
        str, typer.Option(help="Keep snapshots that were replaced within this time, for their readers: 1h, 1d.")
    ] = "0",
    as_json: JsonOption = False,
) -> None:
    """Remove what a dataset no longer needs: old snapshots, and the bytes of videos that are not in it any more.

    Exit status: 0 done, 3 some files could not be read and stay as they are.
    """
    with errors():
        from ..jobs.progress.status_file import forget_sources
        from ..manifests.dataset_files.tidy import parse_duration
        from ..manifests.operations.collect import collect

        storage = storage_at(dataset)
        with loop_bar(err, "shards", None) as advance:
            done = collect(
                storage, keep_snapshots_seconds=parse_duration(keep_snapshots), dry_run=dry_run, on_shard=advance,
                forget=lambda names: forget_sources(storage, names),
            )  # fmt: skip
        if as_json:
            print_json({**dataclasses.asdict(done), "dry_run": dry_run})
        else:
            for reason in done.skipped:
                held = "a file that may hold more than is needed"
                err.print_line(f"{held} stays as it is: {reason}", style="yellow")
            would = "would be " if dry_run else ""
            out.print_line(
                f"{counted(len(done.snapshots), 'snapshot')} and {counted(len(done.shards), 'shard')} {would}removed, "
                f"{counted(len(done.rewritten), 'shard')} {would}written again without what is not needed, "
                f"{counted(len(done.parts), 'part')} {would}rid of dropped rows: "
                f"{byte_size(done.bytes_freed)} of shards and {byte_size(done.snapshot_bytes_freed)} of snapshots "
                f"{would}freed"
            )
            if done.bytes_kept:
                out.print_line(
                    f"{byte_size(done.bytes_kept)} are kept for readers of earlier snapshots; without "
                    "--keep-snapshots they are removed too"
                )
        if done.skipped:
            raise typer.Exit(EXIT_SOMETHING_MISSING)


@app.command(short_help="Show the snapshots of a dataset, and what changed.")
def snapshots(dataset: DatasetArgument, as_json: JsonOption = False) -> None:
    """Show the snapshots of a dataset, oldest first, and what changed from each to the next."""
    with errors():
        from ..manifests.operations.history import history

        found = history(storage_at(dataset))
        if as_json:
            print_json([dataclasses.asdict(snapshot) for snapshot in found])
        else:
            out.print(snapshot_table(found))
            for each in found:
                if each.trouble:
                    err.print_line(each.trouble, style="red")
