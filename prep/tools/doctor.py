"""Tries which encoders and decoders run on this machine, for `shortgop doctor`."""

from __future__ import annotations

import contextlib
import ctypes
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import ToolError
from ..profile import CODECS, NVENC_ENCODERS, Profile, changed_profile
from ..running.driver_folder import FOLDERS, hidden_driver
from ..running.ffmpeg import candidates, unfit, version_of
from ..running.gpu_errors import NO_GPU, wanted_driver
from .capabilities import SCALING, Capabilities, Trial, encodes, from_gpu, is_nvenc, nvdec
from .capability_trials import SOURCE_KINDS, capabilities_of
from .pipelines import choose_encoder
from .tool_choice import choose_ffmpeg

# The driver's video libraries, which containers and cloud images often lack.
_NVIDIA_LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")
_NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class FfmpegFound:
    """An ffmpeg on this machine; `problem` is None when it can be used."""

    path: str
    version: str
    origin: str
    problem: str | None


@dataclass(frozen=True)
class Diagnosis:
    """What `shortgop doctor` prints. `choices`: for each codec the pipeline that "auto" takes for an ordinary source,
    and why. `capabilities`: what was tried for each codec, with the ffmpeg that is used for it. `gpus`: the models that
    the driver lists. `advice`: what would let the GPU do more."""

    ffmpegs: tuple[FfmpegFound, ...]
    chosen: str | None
    trials: tuple[Trial, ...]
    choices: dict[str, str]
    capabilities: tuple[Capabilities, ...]
    gpus: tuple[str, ...]
    driver: str | None
    nvidia_libraries: dict[str, bool]
    advice: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, without what ffmpeg said of each trial: that is long, with addresses that differ from run
        to run, and `detail` has the reason."""
        found = asdict(self)
        for trials in (found["trials"], *(each["trials"] for each in found["capabilities"])):
            for trial in trials:
                del trial["said"]
        return found


def diagnose() -> Diagnosis:
    """Look for ffmpeg and GPUs, and try encoders, NVDEC and the GPU's filters on a few frames."""
    ffmpegs = tuple(_looked_at(path, origin) for path, origin in candidates())
    chosen, found = None, []
    try:
        chosen = choose_ffmpeg(Profile()).path
        for codec in CODECS:
            profile = changed_profile(None, {"codec": codec})
            found.append(capabilities_of(choose_ffmpeg(profile).path, profile, kinds=SOURCE_KINDS))
        choices = {each.codec: choice_of(each) for each in found}
    except ToolError as error:
        choices = dict.fromkeys(CODECS, f"none: {error}")
    driver = _driver()
    return Diagnosis(
        ffmpegs=ffmpegs,
        chosen=chosen,
        trials=tuple({trial.name: trial for each in found for trial in each.trials}.values()),
        choices=choices,
        capabilities=tuple(found),
        gpus=_gpu_models(),
        driver=driver,
        nvidia_libraries={name: _loads(name) for name in _NVIDIA_LIBRARIES},
        advice=advice_of(found, driver),
    )


def _looked_at(path: str, origin: str) -> FfmpegFound:
    try:
        return FfmpegFound(path, version_of(path) or "unknown", origin, unfit(path))
    except ToolError as error:
        return FfmpegFound(path, "unknown", origin, str(error))


def choice_of(found: Capabilities) -> str:
    """What "auto" takes for an ordinary source, such as H.264 of 8 bits that stands upright."""
    nvenc = NVENC_ENCODERS[found.codec]
    try:
        encoder = choose_encoder(found, changed_profile(None, {"codec": found.codec}))
    except ToolError as error:
        return f"none: {error}"
    decodes = found.runs(nvdec("h264"))
    scales = decodes and found.runs(SCALING)
    steps = [
        f"decoding on the {'GPU' if decodes else 'CPU'}",
        f"scaling on the {'GPU' if scales else 'CPU'}",
    ]
    reasons = [] if is_nvenc(encoder) else [f"{nvenc} does not run here ({found.detail(nvenc)})"]
    if is_nvenc(encoder) and not found.runs(nvenc):
        reasons.append(f"without B-frames ({found.detail(nvenc)})")
    if is_nvenc(encoder) and scales and not found.runs(from_gpu(nvenc)):
        reasons.append(f"frames pass through the CPU's memory ({found.detail(from_gpu(nvenc))})")
    reasons += [
        f"{name} does not run here ({found.detail(name)})"
        for name in (nvdec("h264"), SCALING)
        if not found.runs(name) and found.detail(name) != NO_GPU
    ]
    return f"{encoder}: {'; '.join([', '.join(steps), *reasons])}"


def advice_of(found: list[Capabilities], driver: str | None) -> tuple[str, ...]:
    """What would let the GPU do more, where that is known."""
    wanted = {
        version
        for each in found
        if not encodes(each, NVENC_ENCODERS[each.codec])
        and (version := wanted_driver(each.detail(NVENC_ENCODERS[each.codec]))) is not None
    }
    return tuple(
        f"NVENC needs NVIDIA driver {version} or newer with this ffmpeg"
        + (f", and this machine has {driver}" if driver else "")
        + "; update the driver, or put an earlier FFmpeg that runs here on the PATH or into SHORTGOP_FFMPEG"
        for version in sorted(wanted)
    )


def _driver() -> str | None:
    """The version of the NVIDIA driver that is loaded."""
    if not _NVIDIA_DRIVER.exists():
        return None
    match = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", _NVIDIA_DRIVER.read_text())
    return match[0] if match else None


def _gpu_models() -> tuple[str, ...]:
    models = []
    for file in sorted(_NVIDIA_GPUS.glob("*/information")):
        fields = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        models.append(fields.get("Model", "unknown").strip())
    return tuple(models)


def _loads(library: str) -> bool:
    """Whether ffmpeg can load it."""
    folder = hidden_driver(FOLDERS)
    for name in (library, f"{folder}/{library}") if folder else (library,):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False
