"""`shortgop report`, and `shortgop prep --report`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from ..errors import ShortGopError
from ..storage.locate import storage_at
from ..wording import byte_size
from .app import app, err, errors, out
from .parameters import DatasetArgument, OverwriteOption

_CLIPS = 12


@app.command(short_help="Write one HTML page about a dataset and its jobs.")
def report(
    dataset: DatasetArgument,
    out_path: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The page: a file ending in .html, or its URL in a store. An earlier report is replaced.",
        ),
    ] = "report.html",
    clips: Annotated[int, typer.Option(help="Random clips to show beside their sources.")] = _CLIPS,
    seed: Annotated[int, typer.Option(min=0, help="Another seed shows other clips.")] = 0,
    overwrite: OverwriteOption = False,
) -> None:
    """Write one HTML page about a dataset and the jobs that made it, during a job or after. It needs no network."""
    with errors():
        from ..reporting.dataset_report import write_report

        written = write_report(out_path, dataset, clips=clips, seed=seed, overwrite=overwrite)
        out.print_line(written.page.verdict.sentence)
        out.print_line(f"{out_path}: {byte_size(written.num_bytes)}")


@contextlib.contextmanager
def report_at_the_end(out_path: str | None, dataset: str) -> Iterator[None]:
    """Writes the page about a job when the block ends, however it ends. Without a path nothing happens.

    A path that must not be written is an error before the block. An error in writing the page is printed; the error of
    the job, if any, is still the one that is raised.
    """
    if out_path is None:
        yield
        return
    from ..manifests.dataset_files.root_file import is_dataset
    from ..reporting.dataset_report import check_report, write_report

    check_report(out_path, dataset, clips=_CLIPS)
    clips = _CLIPS
    try:
        yield
    except KeyboardInterrupt:
        # After Ctrl-C the user should wait for a few seconds only, and clips take longer.
        clips = 0
        raise
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            try:
                if is_dataset(storage_at(dataset)):
                    written = write_report(out_path, dataset, clips=clips)
                    err.print_line(f"report: {out_path}, {byte_size(written.num_bytes)}")
            except ShortGopError as error:
                err.print_line(f"no report was written: {error}", style="yellow")
