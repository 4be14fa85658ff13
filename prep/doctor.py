"""Tries which encoders and decoders run on this machine, for `shortgop doctor`."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolError
from .encoders import choose_encoder
from .ffmpeg import Trial, candidates, find_ffmpeg, try_encoder, try_nvdec, unfit, version_of
from .profile import CODECS, ENCODERS, Profile

# The driver's video libraries, which containers and cloud images often lack.
_NVIDIA_LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")
_NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class FfmpegFound:
    """An ffmpeg on this machine; `problem` is None when it can be used."""

    path: str
    version: str
    origin: str
    problem: str | None


@dataclass(frozen=True)
class Diagnosis:
    """What `shortgop doctor` prints. `choices`: for each codec the encoder that "auto" takes, and why. `gpus`: the
    models that the driver lists."""

    ffmpegs: tuple[FfmpegFound, ...]
    chosen: str | None
    trials: tuple[Trial, ...]
    choices: dict[str, str]
    gpus: tuple[str, ...]
    nvidia_libraries: dict[str, bool]


def diagnose() -> Diagnosis:
    """Look for ffmpeg and GPUs, and try every encoder and NVDEC on a few frames."""
    ffmpegs = tuple(
        FfmpegFound(path, version_of(path) or "unknown", origin, unfit(path)) for path, origin in candidates()
    )
    trials: tuple[Trial, ...] = ()
    chosen = None
    try:
        chosen = find_ffmpeg().path
        trials = (*(try_encoder(chosen, encoder) for encoder in ENCODERS), try_nvdec(chosen))
        choices = {codec: _choice(chosen, codec) for codec in CODECS}
    except ToolError as error:
        choices = dict.fromkeys(CODECS, f"none: {error}")
    return Diagnosis(
        ffmpegs=ffmpegs,
        chosen=chosen,
        trials=trials,
        choices=choices,
        gpus=_gpu_models(),
        nvidia_libraries={name: _loads(name) for name in _NVIDIA_LIBRARIES},
    )


def _choice(ffmpeg_path: str, codec: str) -> str:
    try:
        encoder = choose_encoder(ffmpeg_path, Profile(codec=codec))
    except ToolError as error:
        return f"none: {error}"
    nvenc = next(name for name, written in ENCODERS.items() if written == codec and "nvenc" in name)
    if encoder == nvenc:
        return f"{encoder}: it runs on the GPU here"
    return f"{encoder}: {nvenc} does not run here ({try_encoder(ffmpeg_path, nvenc).detail})"


def _gpu_models() -> tuple[str, ...]:
    models = []
    for file in sorted(_NVIDIA_GPUS.glob("*/information")):
        fields = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        models.append(fields.get("Model", "unknown").strip())
    return tuple(models)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
