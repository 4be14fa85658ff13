"""Commands that move videos and snapshots without encoding: `copy`, `merge`, `compact` and `rollback`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..storage.locate import storage_at
from ..wording import byte_size, counted
from .app import EXIT_SOMETHING_MISSING, SAYS_BUSY, app, err, errors, out
from .edit_commands import DryRunOption, FromOption, print_unknown, some_ids_in
from .job_reports import some_of
from .parameters import DatasetArgument, JsonOption, KeepSnapshotsOption, VideosOption
from .printing import print_json
from .progress import loop_bar

if TYPE_CHECKING:
    from ..manifests.operations.copying import Copied

IncludeDroppedOption = Annotated[
    bool, typer.Option("--include-dropped", help="Take in again what was dropped in the target.")
]
OutOption = Annotated[str, typer.Option("--out", metavar="DATASET", help="The folder or URL to write to.")]


@app.command(short_help="Copy a dataset, or some of its videos.", epilog=SAYS_BUSY)
def copy(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The folder or URL of the copy, new or existing.")],
    videos: VideosOption = None,
    from_file: FromOption = None,
    include_dropped: IncludeDroppedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a dataset, or some of its videos, from and to a folder or a store. Nothing is encoded again, and every GOP
    is checked.

    The copy has the current snapshot's videos, and nothing of what was dropped. The same command continues an
    interrupted copy, and brings what was added or prepared again since. What was dropped in TARGET stays out.

    Exit status: 0 done, 3 some ids are not in the dataset; the others were copied.
    """
    with errors():
        listed = some_ids_in(from_file, videos)
    _bring(
        [dataset], target, ids=None if from_file is None else listed, patterns=videos or None, update=True,
        include_dropped=include_dropped, as_json=as_json,
    )  # fmt: skip


@app.command(short_help="Put the videos of several datasets into one.", epilog=SAYS_BUSY)
def merge(
    datasets: Annotated[list[str], typer.Argument(metavar="DATASET", help="Folders or URLs that prep wrote to.")],
    out_place: OutOption,
    include_dropped: IncludeDroppedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put the videos of several datasets into one, new or existing. Nothing is encoded again, and every GOP is checked.

    All of them need the same profile, and each id may mean one video only.
    """
    _bring(datasets, out_place, update=False, include_dropped=include_dropped, as_json=as_json)


def _bring(
    datasets: list[str],
    target: str,
    *,
    ids: Sequence[str] | None = None,
    patterns: Sequence[str] | None = None,
    update: bool,
    include_dropped: bool,
    as_json: bool,
) -> None:
    with errors(goes_on=True):
        from ..manifests.id_patterns import pattern_of_folder
        from ..manifests.operations.copying import copy_videos

        with loop_bar(err, "shards", None) as advance:
            done = copy_videos(
                [storage_at(each) for each in datasets], storage_at(target), ids=ids, patterns=patterns, update=update,
                include_dropped=include_dropped, on_bytes=lambda _: advance(),
            )  # fmt: skip
        if as_json:
            # Ids are texts when they are asked for.
            print_json({name: _as_json(value) for name, value in vars(done).items()} | {"dataset": target})
        else:
            print_unknown(done.unknown, done.near, pattern_of_folder(done.unknown, done.near))
            for text in _notices(done, datasets[0] if len(datasets) == 1 else "a source", target):
                err.print_line(text, style="yellow")
            out.print_line(_copied_text(done, target))
        if done.unknown:
            raise typer.Exit(EXIT_SOMETHING_MISSING)


def _as_json(value: Any) -> Any:
    return value if isinstance(value, (int, str)) else list(value)


def _copied_text(done: Copied, target: str) -> str:
    replaced = f", {len(done.replaced)} of them in place of an earlier revision" if done.replaced else ""
    already = f", {len(done.already)} were there already" if done.already else ""
    return f"{counted(len(done.ids), 'video')}, {byte_size(done.num_bytes)} copied to {target}{replaced}{already}"


def _notices(done: Copied, source: str, target: str) -> Iterator[str]:
    """What the target does not have as the source has it."""
    if done.dropped:
        they_were = "it was" if len(done.dropped) == 1 else "they were"
        yield (
            f"{counted(len(done.dropped), 'video')} left out because {they_were} dropped in {target}: "
            f"{some_of(done.dropped)}; --include-dropped takes them in again"
        )
    if done.dropped_in_source:
        were = "was" if len(done.dropped_in_source) == 1 else "were"
        yield (
            f"{counted(len(done.dropped_in_source), 'video')} of {target} {were} dropped in {source}: "
            f"{some_of(done.dropped_in_source)}; `shortgop drop {quote(target)} ID ...` takes them out"
        )
    if done.without_video:
        have = "id has" if len(done.without_video) == 1 else "ids have"
        yield (
            f"{len(done.without_video)} {have} no video in {source}, dropped or not prepared: "
            f"{some_of(done.without_video)}"
        )
    if done.other_columns:
        yield (
            f"columns of {counted(len(done.other_columns), 'video')} differ from {source} and stay as they are: "
            f"{some_of(done.other_columns)}; `shortgop annotate {quote(target)} LABELS` sets them"
        )


@app.command(short_help="Put small shards together.", epilog=SAYS_BUSY)
def compact(
    dataset: DatasetArgument,
    dry_run: DryRunOption = False,
    shard_mb: Annotated[
        int | None, typer.Option("--shard-mb", help="About how long shards become.  [as they were prepared]")
    ] = None,
    keep_snapshots: KeepSnapshotsOption = "1d",
    as_json: JsonOption = False,
) -> None:
    """Put small shards together, and the layers of a large dataset's snapshot, without encoding anything: fewer files,
    and fewer requests to a store."""
    with errors():
        from ..manifests.dataset_files.tidy import parse_duration
        from ..manifests.operations.compact import compact as put_together

        if shard_mb is not None and shard_mb < 1:
            raise UsageError(f"--shard-mb is {shard_mb}; it takes a whole number of at least 1")
        with loop_bar(err, "shards", None) as advance:
            done = put_together(
                storage_at(dataset),
                shard_bytes=None if shard_mb is None else shard_mb * 1_000_000,
                dry_run=dry_run,
                keep_snapshots_seconds=parse_duration(keep_snapshots),
                on_shard=advance,
            )
        if as_json:
            print_json({**dataclasses.asdict(done), "dry_run": dry_run})
        else:
            became = "would become" if dry_run else "became"
            out.print_line(
                f"{counted(done.shards, 'shard')} {became} {done.new_shards}, {byte_size(done.num_bytes)}; earlier "
                "snapshots keep theirs until they are removed"
                if done.shards
                else "no shards to put together"
            )
            if done.layers:
                out.print_line(f"{done.layers} layers of the snapshot {became} one")


@app.command(epilog=SAYS_BUSY)
def rollback(
    dataset: DatasetArgument,
    snapshot: Annotated[
        str | None, typer.Argument(metavar="SNAPSHOT", help="One that `shortgop snapshots` shows.")
    ] = None,
    back: Annotated[
        int | None, typer.Option("--back", min=1, help="In place of a name: so many snapshots before the current one.")
    ] = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give a dataset the videos and columns of an earlier snapshot. That makes a new snapshot; later ones stay.

    Videos that came since are dropped, and prep leaves them out; `shortgop prep --include-dropped` takes them in again.
    As that is a new snapshot, --back 1 afterwards takes the rollback back.
    """
    with errors():
        from ..manifests.operations.rollback import rollback as go_back

        to = back if snapshot is None else snapshot
        if to is None or (snapshot is not None and back is not None):
            raise UsageError("rollback takes the name of one snapshot, or --back N")
        done = go_back(storage_at(dataset), to, dry_run=dry_run)
        if as_json:
            print_json({**dataclasses.asdict(done), "dry_run": dry_run})
            return
        would = "would be " if dry_run else ""
        changes = (
            (done.dropped, "dropped"),
            (done.restored, "stored as before"),
            (done.relabelled, "given their earlier columns"),
        )
        for ids, what in changes:
            if ids:
                out.print_line(f"{counted(len(ids), 'video')} {would}{what}: {some_of(ids)}")
        if not any(ids for ids, _ in changes):
            out.print_line(f"nothing to change: the dataset is as it was in snapshot {done.to}")
        elif back is not None:
            out.print_line(f"the dataset {'would be' if dry_run else 'is'} as it was in snapshot {done.to}")
