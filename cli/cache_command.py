"""The command that fills the local cache: `cache`."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Annotated

import typer

from ..arguments import byte_count
from ..errors import DatasetWarning, UsageError
from ..wording import byte_size, counted
from .app import EXIT_SOMETHING_MISSING, app, err, errors, out
from .parameters import DatasetArgument, JsonOption
from .printing import print_json
from .progress import loop_bar


@app.command(short_help="Fetch videos of a store into the local cache.")
def cache(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    cache_dir: Annotated[Path, typer.Option("--cache-dir", help="A folder on a local disk, as for shortgop.open.")],
    videos: Annotated[
        list[str] | None, typer.Option("--videos", metavar="ID", help="A video; may be given several times.")
    ] = None,
    all_videos: Annotated[bool, typer.Option("--all", help="All videos that fit, in the order of their ids.")] = False,
    cache_bytes: Annotated[
        str, typer.Option("--cache-bytes", metavar="SIZE", help="How much all its files take at most: 500MB, 2TiB.")
    ] = "32GiB",
    as_json: JsonOption = False,
) -> None:
    """Fetch videos of a store into the local cache before they are read. Run it again to go on after an interruption.

    Exit status: 0 all videos are in the cache, 3 some did not fit; the others are.
    """
    with errors(goes_on=True):
        from ..readers.cache_filling import Filling, fill_cache
        from ..readers.open_dataset import open as open_dataset

        if bool(videos) == all_videos:
            raise UsageError("say which videos: --videos ID, which may be given several times, or --all")
        limit = byte_count(cache_bytes, "--cache-bytes")
        with warnings.catch_warnings():
            # Warnings about the cache and about lost videos are not shown: if they concern these videos, an error
            # follows.
            warnings.simplefilter("ignore", DatasetWarning)
            opened = open_dataset(dataset, cache_dir=cache_dir, cache_bytes=limit)
            total = len(opened) if all_videos else len(videos or ())
            with loop_bar(err, "videos", total) as advance:

                def on_progress(state: Filling) -> None:
                    if state.videos_done:
                        advance()

                done = fill_cache(opened, videos or None, on_progress=on_progress)
        if as_json:
            print_json({**dataclasses.asdict(done), "cache_dir": str(cache_dir), "cache_bytes": limit})
        else:
            out.print_line(
                f"{counted(done.videos_done, 'video')} in {cache_dir}, of which this command fetched "
                f"{byte_size(done.bytes_fetched)}"
            )
            if done.left_out:
                err.print_line(
                    f"{counted(done.left_out, 'video')} did not fit into {byte_size(limit)}; raise --cache-bytes",
                    style="yellow",
                )
        if done.left_out:
            raise typer.Exit(EXIT_SOMETHING_MISSING)
