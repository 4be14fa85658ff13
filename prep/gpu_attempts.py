"""Runs an encode on the GPU and, where the GPU fails, on the CPU: what a GPU does is never the fault of a source."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ..errors import CorruptDataError, EncodeError
from . import encode_run
from .encode_run import Count, Plan
from .manifest_rows import EncodedVideo
from .running.attempts import FfmpegFailedError
from .running.gpu_errors import passes
from .shards import ShardWriter
from .tools.pipelines import on_cpu

# How long to wait where the GPU's sessions or its memory are taken, before each further attempt.
_PAUSES_SECONDS = (1.0, 4.0)


def attempt(
    plan: Plan,
    ffmpeg_path: str,
    shards: ShardWriter,
    on_frames: Count,
    *,
    on_complaint: Callable[[], None] | None,
    on_difference: Callable[[str], None] | None = None,
) -> tuple[EncodedVideo, ...] | None:
    """Like `encode_run.attempt`. A pipeline that uses the GPU is tried again where another process has what it needs.
    Then, and after any other error and where it shows other frames than planned, the encode runs on the CPU."""

    def run(plan: Plan) -> tuple[EncodedVideo, ...] | None:
        return encode_run.attempt(
            plan, ffmpeg_path, shards, on_frames, on_complaint=on_complaint, on_difference=on_difference
        )

    if not plan.encode.pipeline.uses_gpu:
        return run(plan)
    why = ""
    for pause_seconds in (0.0, *_PAUSES_SECONDS):
        time.sleep(pause_seconds)
        try:
            videos = run(plan)
        except EncodeError as error:
            why = _why(error)
        else:
            if videos is not None:
                return videos
            why = "it showed other frames than planned"
        if not passes(why):
            break
    pipeline = on_cpu(plan.encode.profile, f"the GPU failed: {why}")
    return run(replace(plan, encode=replace(plan.encode, pipeline=pipeline)))


def _why(error: EncodeError) -> str:
    if isinstance(error, FfmpegFailedError):
        return error.cause
    if isinstance(error.__cause__, CorruptDataError):
        return "its GOPs were not as planned"
    return "ffmpeg stalled or was killed"
