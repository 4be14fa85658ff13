"""Commands that read a dataset: `read`, `export` and `bench`."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated

import typer

from ..errors import DatasetWarning
from ..storage.locate import storage_at
from ..wording import counted
from .app import app, err, errors, out
from .parameters import (
    DatasetArgument,
    JsonOption,
    OverwriteOption,
    on_this_host,
)
from .printing import print_json


@app.command()
def read(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    video: Annotated[str, typer.Argument(metavar="VIDEO", help="The video's id, or its number.")],
    frames: Annotated[str, typer.Option(help="Frame numbers: 0,30,60 or 0:90:10.")],
    out_path: Annotated[
        Path,
        typer.Option(
            "--out",
            callback=on_this_host,
            help="The contact sheet: a file ending in .png, .jpg, .webp, .bmp or .tif.",
        ),
    ],
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Read frames of a video into a contact sheet."""
    with errors():
        from ..manifests.operations.output_files import sources_in
        from ..readers.indices import parse_indices
        from ..readers.open_dataset import open as open_dataset
        from ..readers.sheet import check_sheet, write_sheet

        with warnings.catch_warnings():
            # The warning may concern other videos. Reading this one fails if it is lost.
            warnings.simplefilter("ignore", DatasetWarning)
            opened = open_dataset(dataset, dimension_order="NHWC")
        chosen = opened[int(video)] if video not in opened and video.isdecimal() else opened[video]
        indices = parse_indices(frames, len(chosen))
        size = (chosen.metadata.height, chosen.metadata.width)
        check_sheet(len(indices), *size, out_path, overwrite=overwrite, sources=sources_in(storage_at(dataset)))
        start = time.perf_counter()
        batch = chosen.get_frames_at(indices)
        seconds = time.perf_counter() - start
        write_sheet(batch.data, out_path, overwrite=overwrite, sources=sources_in(storage_at(dataset)))
        pts = chosen.source_pts(indices).tolist()
        if as_json:
            print_json({
                "video": chosen.id, "frames": indices, "pts_seconds": batch.pts_seconds.tolist(), "source_pts": pts,
                "source_timebase": str(chosen.source_timebase), "seconds": seconds, "out": str(out_path),
            })  # fmt: skip
        else:
            frames_read = counted(len(indices), "frame")
            out.print_line(f"{frames_read} of {chosen.id} read in {1000 * seconds:.1f} ms: {out_path}")


@app.command(short_help="Write a video, or a part of it, as an ordinary MP4.")
def export(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    video: Annotated[str, typer.Argument(metavar="VIDEO", help="The video's id, or its number.")],
    out_path: Annotated[Path, typer.Argument(metavar="OUT.mp4", callback=on_this_host)],
    start: Annotated[str, typer.Option(help="Seconds.")] = "0",
    end: Annotated[str | None, typer.Option(help="Seconds.  [the end]")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a video, or a part of it, as an ordinary MP4, without re-encoding.

    A part has whole GOPs: it begins up to a GOP before --start, and ends up to one after --end.
    """
    with errors():
        from ..arguments import exact_seconds
        from ..manifests.dataset_files.snapshots import open_current
        from ..manifests.operations.export import export as write
        from ..manifests.operations.export import frame_range

        storage = storage_at(dataset)
        _, manifest = open_current(storage)
        by_number = video.isdecimal() and video not in manifest.row_of_id and int(video) < len(manifest.videos)
        row = int(video) if by_number else manifest.row_of(video)
        video_id = manifest.videos.id.text(row)
        seconds = (exact_seconds(start, "--start"), None if end is None else exact_seconds(end, "--end"))
        first, stop = frame_range(manifest.video(row), *seconds)
        first, stop = write(
            storage_at(dataset), manifest, row, out_path, start_frame=first, stop_frame=stop, overwrite=overwrite
        )
        if as_json:
            print_json({"video": video_id, "out": str(out_path), "first_frame": first, "stop_frame": stop})
        else:
            out.print_line(f"frames {first} to {stop - 1} of {video_id}: {out_path}")


@app.command(short_help="Compare random reads with other libraries.")
def bench(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    clip: Annotated[
        list[str] | None, typer.Option(help="Frames and stride, such as 16x4; may be given several times.  [16x4]")
    ] = None,
    random_frames: Annotated[bool, typer.Option("--random-frames", help="Single frames as well.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Clips, or frames, to read at a time.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads that share a batch.")] = 1,
    seconds: Annotated[float, typer.Option(help="Seconds for each pattern, for all readers together.")] = 20.0,
    peers: Annotated[
        str | None, typer.Option(help="Libraries to compare with.  [torchcodec,pyav,opencv,decord]")
    ] = None,
    exported: Annotated[bool, typer.Option("--exported", help="Peers read exported MP4s too.")] = False,
    chart: Annotated[
        Path | None, typer.Option(callback=on_this_host, help="A chart: a file ending in .png, .svg or .pdf.")
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare how long random reads take: of the dataset, and of its sources with other libraries, in turn."""
    with errors():
        from ..comparison.accesses import Access, parse_clip
        from ..comparison.chart import check_chart
        from ..comparison.measure import Options, measure
        from ..comparison.report import report_json, report_lines, report_table, write_report_chart
        from ..manifests.operations.output_files import sources_in

        accesses = [parse_clip(text, batch) for text in clip or ["16x4"]]
        accesses += [Access(1, batch=batch)] if random_frames else []
        names = {} if peers is None else {"peers": tuple(name for name in peers.split(",") if name)}
        options = Options(tuple(accesses), threads, seconds=seconds, exported=exported, **names)
        if chart is not None:
            check_chart(chart, overwrite=overwrite, sources=sources_in(storage_at(dataset)))
        report = measure(dataset, options, err.print_line)
        if chart is not None:
            write_report_chart(report, chart, overwrite=overwrite, sources=sources_in(storage_at(dataset)))
        if as_json:
            print_json(report_json(report))
        else:
            out.print(report_table(report))
            for line in report_lines(report):
                out.print_line(line)
