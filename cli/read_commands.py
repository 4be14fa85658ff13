"""Commands that read a dataset: `read`, `export` and `bench`."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..errors import DatasetWarning, UsageError
from ..storage.locate import storage_at
from ..wording import byte_size, counted
from .app import EXIT_SOMETHING_MISSING, app, end_tidily_on_signals, err, errors, out
from .edit_commands import FromOption, print_unknown, some_ids_in
from .parameters import (
    DatasetArgument,
    JsonOption,
    OverwriteOption,
    VideosOption,
    folder_here,
    on_this_host,
)
from .printing import print_json
from .progress import loop_bar

# Videos that were not written, of which the reason is printed.
_REASONS_SHOWN = 5


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


@app.command(short_help="Write videos, or a part of one, as ordinary MP4s.")
def export(  # noqa: PLR0917  # typer makes options of them
    dataset: DatasetArgument,
    video: Annotated[str | None, typer.Argument(metavar="VIDEO", help="The video's id, or its number.")] = None,
    out_path: Annotated[Path | None, typer.Argument(metavar="OUT.mp4", callback=on_this_host)] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", parser=folder_here, help="Where many videos go, in place of VIDEO."),
    ] = None,
    all_videos: Annotated[bool, typer.Option("--all", help="All videos.")] = False,
    videos: VideosOption = None,
    from_file: FromOption = None,
    start: Annotated[str | None, typer.Option(help="Seconds, of one VIDEO.  [0]")] = None,
    end: Annotated[str | None, typer.Option(help="Seconds, of one VIDEO.  [the end]")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a video, or a part of it, as an ordinary MP4, without re-encoding; or many videos into a FOLDER, to files
    that are called like their ids.

    A part has whole GOPs: it begins up to a GOP before --start, and ends up to one after --end. A file that is there
    stays as it is without --overwrite, and is not compared, so the command for many goes on after an interruption.

    Exit status: 0 done, 3 some of many videos are not in the dataset, are damaged, or have no file that can be written;
    the others are written.
    """
    with errors(goes_on=folder is not None and not overwrite):
        if folder is None and video is not None and out_path is not None:
            if all_videos or videos or from_file:
                raise UsageError("--all, --videos and --from take --out FOLDER in place of VIDEO OUT.mp4")
            _export_one(dataset, video, out_path, start, end, overwrite=overwrite, as_json=as_json)
            return
        if folder is None or video is not None or all_videos == bool(videos or from_file):
            raise UsageError(
                "say what to export: VIDEO OUT.mp4; or --out FOLDER with --all, or with --videos ID or --from FILE"
            )
        if start is not None or end is not None:
            raise UsageError("--start and --end are for one video; give VIDEO OUT.mp4, or leave them out")
        listed = some_ids_in(from_file, videos)
        _export_many(
            dataset, folder, None if all_videos else (listed, videos or ()), overwrite=overwrite, as_json=as_json
        )


def _export_one(
    dataset: str, video: str, out_path: Path, start: str | None, end: str | None, *, overwrite: bool, as_json: bool
) -> None:
    from ..arguments import exact_seconds
    from ..manifests.dataset_files.snapshots import open_current
    from ..manifests.operations.export import export as write
    from ..manifests.operations.export import frame_range

    storage = storage_at(dataset)
    _, manifest = open_current(storage)
    by_number = video.isdecimal() and video not in manifest.row_of_id and int(video) < len(manifest.videos)
    row = int(video) if by_number else manifest.row_of(video)
    video_id = manifest.videos.id.text(row)
    seconds = (
        exact_seconds("0" if start is None else start, "--start"),
        None if end is None else exact_seconds(end, "--end"),
    )
    first, stop = frame_range(manifest.video(row), *seconds)
    first, stop = write(storage, manifest, row, out_path, start_frame=first, stop_frame=stop, overwrite=overwrite)
    if as_json:
        print_json({"video": video_id, "out": str(out_path), "first_frame": first, "stop_frame": stop})
    else:
        out.print_line(f"frames {first} to {stop - 1} of {video_id}: {out_path}")


def _export_many(
    dataset: str, folder: Path, chosen: tuple[Sequence[str], Sequence[str]] | None, *, overwrite: bool, as_json: bool
) -> None:
    """`chosen` are ids, and ids or patterns; None for all videos."""
    from ..manifests.dataset_files.snapshots import open_current
    from ..manifests.id_patterns import pattern_of_folder
    from ..manifests.operations.export_many import export_many

    end_tidily_on_signals()
    storage = storage_at(dataset)
    _, manifest = open_current(storage)
    ids, patterns = chosen or (None, ())
    with loop_bar(err, "videos", None) as advance:
        done = export_many(storage, manifest, folder, ids, patterns=patterns, overwrite=overwrite, on_video=advance)
    if as_json:
        files = {
            name: {each: str(file) for each, file in getattr(done, name).items()} for name in ("written", "already")
        }
        print_json({**dataclasses.asdict(done), **files, "out": str(folder)})
    else:
        print_unknown(done.unknown, done.near, pattern_of_folder(done.unknown, done.near))
        for video_id, reason in list(done.refused.items())[:_REASONS_SHOWN]:
            err.print_line(f"{video_id}: {reason}", style="yellow")
        if len(done.refused) > _REASONS_SHOWN:
            err.print_line(
                f"{len(done.refused) - _REASONS_SHOWN} more were not written; --json lists all", style="yellow"
            )
        count = len(done.already)
        there = (
            f"; {counted(count, 'file')} {'was' if count == 1 else 'were'} there already, not compared and left as "
            f"{'it is' if count == 1 else 'they are'}"
            if done.already
            else ""
        )
        out.print_line(f"{counted(len(done.written), 'video')}, {byte_size(done.num_bytes)} written to {folder}{there}")
    if done.unknown or done.refused:
        raise typer.Exit(EXIT_SOMETHING_MISSING)


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
