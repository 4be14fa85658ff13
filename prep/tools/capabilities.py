"""What one ffmpeg does on one machine: a report of trials, as plain data. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..profile import NVENC_ENCODERS
from ..running.gpu_errors import NO_GPU

SCALING = "scale_cuda"


@dataclass(frozen=True)
class Trial:
    """Whether a trial ran, and if not, the reason, and what ffmpeg `said`; and how many seconds it took."""

    name: str
    works: bool
    detail: str
    said: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Capabilities:
    """The trials of the ffmpeg at `path`, each a run over a few frames, for encodes in `codec` with `preset` and
    `b_frames` B-frames. What is not among the trials was not tried, and counts as not running."""

    path: str
    version: str
    codec: str
    preset: str | None
    b_frames: int
    trials: tuple[Trial, ...] = ()

    def runs(self, name: str) -> bool:
        return any(trial.works for trial in self.trials if trial.name == name)

    def detail(self, name: str) -> str:
        """Why a trial failed; that no GPU was at hand where it was not tried."""
        return next((trial.detail for trial in self.trials if trial.name == name), NO_GPU)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def nvdec(kind: str) -> str:
    """The name of the trial that decodes a kind of source with NVDEC: a codec of FFmpeg, "hevc 10 bits" and the
    like."""
    return f"nvdec {kind}"


def without_b_frames(encoder: str) -> str:
    """The name of the trial of an encoder that failed with B-frames."""
    return f"{encoder} without B-frames"


def from_gpu(encoder: str) -> str:
    """The name of the trial in which frames stay on the GPU from NVDEC through scale_cuda to the encoder."""
    return f"{SCALING} to {encoder}"


def encodes(capabilities: Capabilities, encoder: str) -> bool:
    """Whether the encoder runs, with or without B-frames."""
    return capabilities.runs(encoder) or capabilities.runs(without_b_frames(encoder))


def gpu_rank(capabilities: Capabilities) -> tuple[bool, bool, bool]:
    """How much of the work this ffmpeg leaves to the GPU; greater is more. Encoding counts most."""
    return (
        encodes(capabilities, NVENC_ENCODERS[capabilities.codec]),
        capabilities.runs(SCALING),
        capabilities.runs(nvdec("h264")),
    )


def is_nvenc(encoder: str) -> bool:
    return encoder in NVENC_ENCODERS.values()
