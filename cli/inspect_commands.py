"""Commands that show a dataset's content, and this machine's tools: `info`, `doctor`."""

from __future__ import annotations

import dataclasses

import typer

from ..storage.locate import storage_at
from ..wording import byte_size, counted
from .app import EXIT_FAILED, app, err, errors, out
from .job_reports import print_diagnosis
from .parameters import DatasetArgument, JsonOption
from .printing import print_json, video_table

_VIDEOS_SHOWN = 20


@app.command(short_help="Show what is in a dataset.")
def info(dataset: DatasetArgument, as_json: JsonOption = False) -> None:
    """Show what is in a dataset, and which sources are not in it, and why."""
    with errors():
        from ..manifests.operations.summary import summarize

        summary = summarize(storage_at(dataset), max_videos=None if as_json else _VIDEOS_SHOWN)
        if as_json:
            print_json(dataclasses.asdict(summary))
            return
        out.print_line(
            f"{counted(summary.num_videos, 'video')}, {counted(summary.num_frames, 'frame')} "
            f"({summary.duration_seconds:.1f} s), {counted(summary.num_gops, 'GOP')} in "
            f"{counted(summary.num_shards, 'shard')}, {byte_size(summary.num_bytes)}; "
            f"format {summary.format_version}, snapshot {summary.snapshot}"
        )
        out.print_line("profile: " + ", ".join(f"{k} {v}" for k, v in summary.profile.items() if v is not None))
        out.print(video_table(summary.videos))
        if summary.num_videos > _VIDEOS_SHOWN:
            out.print_line(f"and {summary.num_videos - _VIDEOS_SHOWN} more: --json lists all")
        out.print_lines(f"not in the dataset: {failure.id}: {failure.reason}" for failure in summary.failures)
        if summary.trouble:
            err.print_line(summary.trouble, style="red")


@app.command(short_help="Show which ffmpegs, encoders and decoders run here.")
def doctor(as_json: JsonOption = False) -> None:
    """Show which ffmpegs, encoders and decoders this machine has, which of them run, and which would be used."""
    with errors():
        from ..prep.tools.doctor import diagnose
        from ..readers.decoder_trial import try_decoders, versions

        diagnosis, decoders, found = diagnose(), try_decoders(), versions()
        if as_json:
            tried = [dataclasses.asdict(decoder) for decoder in decoders]
            print_json({**diagnosis.to_json(), "decoders": tried, "versions": found})
            return
        print_diagnosis(diagnosis, decoders, found, out)
        if diagnosis.chosen is None:
            raise typer.Exit(EXIT_FAILED)
