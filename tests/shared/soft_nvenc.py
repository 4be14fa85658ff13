"""What the tests of NVENC on the driver in software share: what NVENC is asked, and what the checks for GPUs report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_ffmpeg
import pytest
from check_record import Record

Asked = Callable[[], list[dict[str, Any]]]
ENCODERS = {"h264": ("h264_nvenc", "libx264"), "hevc": ("hevc_nvenc", "libx265")}
# NVENC takes H.264 from 145 pixels a line on.
SIZE = 160


def asked_of_nvenc(path: Path, patch: pytest.MonkeyPatch) -> Asked:
    """What prep asks of NVENC for datasets from now on, session by session. Trials are left out: they ask for another
    size."""
    patch.setenv("SOFT_NVENC_ASKED", str(path))

    def sessions() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line["height"] == SIZE]

    return sessions


def figures_of(check: Any, folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a check reports when it passes."""
    patch.setattr(gpu_ffmpeg, "preload_video_libraries", lambda: None)
    (folder / "report").unlink(missing_ok=True)
    check(Record(folder / "report", folder))
    lines = map(json.loads, (folder / "report").read_text().splitlines())
    return {line["figure"]: line["value"] for line in lines}
