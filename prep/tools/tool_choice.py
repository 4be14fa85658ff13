"""Chooses the ffmpeg and the pipeline that prep uses on this machine, by trials."""

from __future__ import annotations

from ..probing.pyav_version import check_pyav
from ..probing.source_video import SourceVideo
from ..profile import NVENC_ENCODERS, SOFTWARE_ENCODERS, Profile
from ..running.ffmpeg import Ffmpeg, find_ffmpeg, usable_ffmpegs
from ..running.gpu_errors import NO_GPU
from .capabilities import Capabilities, encodes, gpu_rank
from .capability_trials import capabilities_of
from .pipelines import Pipeline, choose_encoder, choose_pipeline, decoded_by_nvdec, source_kind


def choose_ffmpeg(profile: Profile, *, use_gpu: bool = True) -> Ffmpeg:
    """The first usable ffmpeg that has an encoder on the CPU for the profile or, where its NVENC does not run at a GPU,
    the one that leaves most of the work to the GPU. ToolError without any, and if prep does not read sources with the
    PyAV of this machine."""
    check_pyav()
    first = find_ffmpeg(SOFTWARE_ENCODERS[profile.codec])
    if not use_gpu or profile.encoder.startswith("lib"):
        return first
    found, nvenc = capabilities_of(first.path, profile), NVENC_ENCODERS[profile.codec]
    if encodes(found, nvenc) or found.detail(nvenc) == NO_GPU:
        return first
    return max(usable_ffmpegs(), key=lambda each: _rank(capabilities_of(each.path, profile)))


def _rank(capabilities: Capabilities) -> tuple[bool, ...]:
    """How good an ffmpeg is for a machine with a GPU. One that encodes at all comes before one that only decodes."""
    encoders = (NVENC_ENCODERS[capabilities.codec], SOFTWARE_ENCODERS[capabilities.codec])
    return (any(encodes(capabilities, encoder) for encoder in encoders), *gpu_rank(capabilities))


def check_tools(profile: Profile, *, use_gpu: bool = True) -> None:
    """ToolError if ffmpeg is missing, PyAV is of another release, or if the encoder or its preset does not run here."""
    ffmpeg = choose_ffmpeg(profile, use_gpu=use_gpu)
    choose_encoder(capabilities_of(ffmpeg.path, profile, use_gpu=use_gpu), profile)


def pipeline_for(ffmpeg_path: str, source: SourceVideo, profile: Profile, *, use_gpu: bool) -> Pipeline:
    """The pipeline for a source on this machine. ToolError when no encoder runs."""
    kind = source_kind(source)
    kinds = () if kind is None else (kind,)
    return choose_pipeline(capabilities_of(ffmpeg_path, profile, use_gpu=use_gpu, kinds=kinds), source, profile)


def section_pipeline(ffmpeg_path: str, source: SourceVideo, profile: Profile, *, use_gpu: bool) -> Pipeline:
    """The pipeline for a section of a source on this machine. Where the profile names no encoder, all machines scale
    and encode alike, on the CPU, and those with a GPU decode there: no seam can be seen. ToolError when no encoder
    runs."""
    if profile.encoder != "auto":
        return pipeline_for(ffmpeg_path, source, profile, use_gpu=use_gpu)
    pipeline = pipeline_for(ffmpeg_path, source, profile, use_gpu=False)
    kind = source_kind(source)
    if not use_gpu or kind is None:
        return pipeline
    return decoded_by_nvdec(pipeline, capabilities_of(ffmpeg_path, profile, kinds=(kind,)), source)
