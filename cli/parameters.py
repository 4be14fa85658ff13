"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..storage.locate import is_half_a_url, is_url


def on_this_host(path: Path | None) -> Path | None:
    """The path of a file; wrong usage for a URL, of which a Path drops a slash."""
    if path is not None and (is_url(str(path)) or is_half_a_url(str(path))):
        raise typer.BadParameter(f"{path} is a URL; give a file of this host, and copy it from or to a store yourself")
    return path


def folder_here(text: str) -> Path:
    """The path of a folder, like `on_this_host`; wrong usage for no text, which a Path takes for the current folder."""
    if not text:
        raise typer.BadParameter("no folder is given; give one, or . for the current one")
    path = Path(text)
    on_this_host(path)
    return path


DatasetArgument = Annotated[str, typer.Argument(metavar="DATASET", help="The folder or URL that prep wrote to.")]
VideosOption = Annotated[
    list[str] | None,
    typer.Option("--videos", metavar="ID", help="Only this video, or a pattern in quotes; may be given again."),
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace the file if it exists; never a source or a file of a dataset.")
]
SalvageOption = Annotated[
    bool, typer.Option("--salvage", help="Prepare damaged sources too, from the frames that decode.")
]
GapsOption = Annotated[str, typer.Option(help="Gaps between frames above --max-gap: fail, close or keep.")]
MaxGapOption = Annotated[
    str, typer.Option(help="Longest time in seconds that a frame may last; a time-lapse may exceed it.")
]
MaxStallOption = Annotated[str, typer.Option(help="Seconds without progress after which a source fails.")]
CutsOption = Annotated[
    str | None,
    typer.Option(
        metavar="START,END",
        help="Columns of a list with the seconds of each file at which a video starts and ends; START,END,frames: with "
        "its first frame and the one after its last.",
    ),
]
ListRootOption = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="The folder or URL in which relative paths of lists begin.  [each list's own folder]"
    ),
]
ImageFpsOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="Make a video of each folder or list of pictures, and of each picture in a list of videos, at this rate.",
    ),
]
RunnerOption = Annotated[str, typer.Option(help="ray, or inline: one unit after the other, without Ray.")]
AddressOption = Annotated[str | None, typer.Option(help="HOST:PORT of a Ray cluster, or auto.  [a local Ray]")]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Units encoded at a time.  [all CPUs]")]
StreamsPerGpuOption = Annotated[
    int, typer.Option(min=0, help="Units that use each GPU at a time, all others the CPU; 0: no GPU.")
]
KeepSnapshotsOption = Annotated[
    str, typer.Option(help="How long a snapshot is kept after the next one replaces it: 0, 30m, 7d.")
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--types", metavar="COLUMN=TYPE,...", help="Of CSV columns: text, integer, float, boolean, json.  [inferred]"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
