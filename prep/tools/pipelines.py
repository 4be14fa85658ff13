"""What decodes, scales and encodes a source: a pure function of what runs here, of the source, and of the options.

Each of the three is chosen for itself, since GPUs differ: A100, H100, H200 and B200 decode and have no encoder. What a
source needs and the GPU's filters lack moves scaling to the CPU for this source alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ...errors import ToolError
from ..pictures.picture_filters import needs_zscale
from ..pictures.sizes import Sides, picture_layout, takes
from ..probing.picture_properties import Fields
from ..probing.source_video import SourceVideo
from ..profile import ENCODERS, NVENC_ENCODERS, PRESETS, SOFTWARE_ENCODERS, Profile
from ..running.gpu_errors import LACKS_ENCODER, NO_GPU, passes
from .capabilities import (
    SCALING,
    Capabilities,
    encodes,
    from_gpu,
    is_nvenc,
    nvdec,
)
from .nvdec_sizes import why_not_nvdec

Decoding = Literal["nvdec", "software"]
Scaling = Literal["scale_cuda", "software"]
Fits = Callable[[str], bool]

_BYTE_BITS, _MOST_BITS = 8, 10
# Codecs whose standards say what each sample of a decoded picture is (H.264 and H.265 in their Annex C, VP9 and AV1
# likewise). Those of MPEG leave the inverse transform to the decoder.
_EXACT_CODECS = {"h264", "hevc", "vp9", "av1"}


@dataclass(frozen=True)
class Pipeline:
    """What decodes, scales and encodes, and why the GPU does not do more of it.

    `downloads`: frames leave the GPU's memory between scaling and encoding. `b_frames`: how many the encoder gets in a
    row, which is less than the profile's where the GPU has none.
    """

    decoding: Decoding = "software"
    scaling: Scaling = "software"
    encoder: str = "libx264"
    downloads: bool = False
    preset: str | None = None
    b_frames: int = 3
    why: str = NO_GPU

    @property
    def uses_gpu(self) -> bool:
        return self.decoding == "nvdec" or is_nvenc(self.encoder)

    def to_json(self) -> str:
        """What the manifest records."""
        return json.dumps(
            {"decoding": self.decoding, "scaling": self.scaling, "encoder": self.encoder, "why": self.why}
        )


def choose_pipeline(capabilities: Capabilities, source: SourceVideo, profile: Profile) -> Pipeline:
    """The pipeline for a source. ToolError when no encoder runs."""
    layout = picture_layout(source, profile)
    encoder = choose_encoder(capabilities, profile, lambda name: takes(name, layout))
    pipeline = Pipeline(
        encoder=encoder,
        preset=profile.preset if encoder == profile.encoder or is_nvenc(encoder) else software_preset(profile),
        b_frames=_b_frames(capabilities, encoder, profile),
    )
    if profile.encoder.startswith("lib"):
        return replace(pipeline, why=f"--encoder {profile.encoder} was given")
    nvenc = NVENC_ENCODERS[profile.codec]
    reasons = []
    if encoder != nvenc:
        reasons.append(_why_not_nvenc(capabilities, nvenc))
    why_software = _why_not_decoded(capabilities, source)
    if why_software is None:
        pipeline = replace(pipeline, decoding="nvdec")
        why_scaled = _why_not_scaled(capabilities, source, profile)
        if why_scaled is None:
            stays = encoder == nvenc and capabilities.runs(from_gpu(nvenc)) and not layout.is_padded
            pipeline = replace(pipeline, scaling="scale_cuda", downloads=not stays)
        else:
            reasons.append(f"scaling: {why_scaled}")
    else:
        reasons.append(f"decoding: {why_software}")
    if not pipeline.uses_gpu and all(reason.endswith(NO_GPU) for reason in reasons):
        return pipeline
    return replace(pipeline, why="; ".join(reasons) or "all of it runs here")


class NoEncoderError(ToolError):
    """The encoder that a profile names does not run on this machine. It may run on another one."""


def choose_encoder(capabilities: Capabilities, profile: Profile, fits: Fits = lambda _name: True) -> str:
    """The encoder of the profile. For "auto": NVENC where it runs and `fits` the pictures, else x264 or x265. Where no
    GPU was tried, or others had its sessions or its memory, a profile that names NVENC gets the encoder on the CPU.
    ToolError when none runs, NoEncoderError when the named one does not."""
    preset = f" with --preset {profile.preset}" if profile.preset else ""
    named = profile.encoder
    tried = {trial.name for trial in capabilities.trials if not passes(trial.detail)}
    if named != "auto" and not (is_nvenc(named) and named not in tried):
        if encodes(capabilities, named):
            return named
        raise NoEncoderError(
            f"encoder {named} does not run here{preset}: {capabilities.detail(named)}; see `shortgop doctor`"
        )
    fitting = [name for name, codec in ENCODERS.items() if codec == profile.codec]
    fitting.sort(key=lambda name: (not fits(name), not is_nvenc(name)))
    for name in fitting:
        if encodes(capabilities, name):
            return name
    reasons = ", ".join(f"{name} ({capabilities.detail(name)})" for name in fitting)
    remedy = "see `shortgop doctor`"
    if capabilities.detail(SOFTWARE_ENCODERS[profile.codec]).startswith(LACKS_ENCODER):
        remedy = "run `pip install -U imageio-ffmpeg`, or set SHORTGOP_FFMPEG to the path of an FFmpeg that has one"
    raise ToolError(f"none of {reasons} runs{preset} with {capabilities.path}; {remedy}")


def on_cpu(profile: Profile, why: str) -> Pipeline:
    """The pipeline without a GPU, in place of one that failed."""
    encoder = SOFTWARE_ENCODERS[profile.codec]
    return Pipeline(encoder=encoder, preset=software_preset(profile), b_frames=profile.b_frames, why=why)


def decoded_by_nvdec(pipeline: Pipeline, capabilities: Capabilities, source: SourceVideo) -> Pipeline:
    """A pipeline on the CPU with NVDEC as its decoder, if NVDEC takes the source and gives exactly the same pictures:
    then the result is the same, byte for byte."""
    is_exact = source.codec in _EXACT_CODECS and source.picture.bits == _BYTE_BITS
    if not is_exact or _why_not_decoded(capabilities, source) is not None:
        return pipeline
    return replace(pipeline, decoding="nvdec")


def decoded_on_cpu(pipeline: Pipeline) -> Pipeline:
    """The pipeline with its encoder, and all else on the CPU, as a damaged source takes it."""
    if pipeline.decoding == "software":
        return pipeline
    return replace(pipeline, decoding="software", scaling="software", downloads=False, why="decoding: damaged")


def source_kind(source: SourceVideo) -> str | None:
    """The kind of a source as `capabilities.nvdec` takes it; None for one that no NVDEC decodes."""
    picture = source.picture
    if picture.chroma != "4:2:0" or picture.floating or picture.bits > _MOST_BITS:
        return None
    return source.codec if picture.bits == _BYTE_BITS else f"{source.codec} {picture.bits} bits"


def software_preset(profile: Profile) -> str | None:
    """The preset for the encoder on the CPU: its presets have other names than NVENC's, and an unknown one is left
    out."""
    return profile.preset if profile.preset in PRESETS[SOFTWARE_ENCODERS[profile.codec]] else None


def _b_frames(capabilities: Capabilities, encoder: str, profile: Profile) -> int:
    return profile.b_frames if capabilities.runs(encoder) or not is_nvenc(encoder) else 0


def _why_not_nvenc(capabilities: Capabilities, nvenc: str) -> str:
    if encodes(capabilities, nvenc):
        return f"{nvenc}: it does not take this size"
    return f"{nvenc}: {capabilities.detail(nvenc)}"


def _why_not_decoded(capabilities: Capabilities, source: SourceVideo) -> str | None:
    """Why NVDEC does not decode the source, or should not."""
    picture, kind = source.picture, source_kind(source)
    if not capabilities.runs(nvdec("h264")):
        return capabilities.detail(nvdec("h264"))
    if kind is None or not any(trial.name == nvdec(kind) for trial in capabilities.trials):
        return f"{picture.bits} bits of {picture.chroma} in {source.codec}"
    if not capabilities.runs(nvdec(kind)):
        return f"{kind}: {capabilities.detail(nvdec(kind))}"
    needs = {
        "alpha": picture.alpha or picture.alpha_layer or picture.decoder is not None,
        "interlaced": picture.fields != Fields.NO,
        # ffmpeg crops hardware frames at the right and the bottom only.
        "cropped by its container": source.crop is not None,
        # FFmpeg adds that of H.264 and HEVC, and only to pictures of decoders on the CPU. NVDEC adds that of AV1, and
        # whether it is that of other decoders, to the last bit, is not known.
        "film grain": picture.film_grain,
    }
    found = next((need for need, applies in needs.items() if applies), None)
    if found is None and source.codec in SOFTWARE_ENCODERS:
        return why_not_nvdec(source.codec, *source.coded_size)
    return found


def _why_not_scaled(capabilities: Capabilities, source: SourceVideo, profile: Profile) -> str | None:
    """What the source needs and the filters for CUDA frames lack, or do otherwise than ours."""
    picture, layout = source.picture, picture_layout(source, profile)
    needs = {
        "tone mapping": needs_zscale(source),
        "rotated": source.rotation != 0 or picture.mirrored,
        "cropped": layout.cut != layout.upright,
        "full range": picture.full_range,
        "10 bits": picture.bits > _BYTE_BITS,
        # In H.273 matrix 0 is RGB.
        "RGB": source.matrix == 0,
        "one side alone shrinks": _shrinks_one_side(source.coded_size, layout.scaled),
    }
    found = next((need for need, applies in needs.items() if applies), None)
    if found is None and not capabilities.runs(SCALING):
        return capabilities.detail(SCALING)
    return found


def _shrinks_one_side(size: Sides, scaled: Sides) -> bool:
    """Whether one side becomes less, and the other one stays. scale_cuda of FFmpeg 9.0 makes black pictures then, and
    reports no error: it filters both sides, the second without weights."""
    changes = [after - before for before, after in zip(size, scaled, strict=True)]
    return min(changes) < 0 and max(changes) == 0
