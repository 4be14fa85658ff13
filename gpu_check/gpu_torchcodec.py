"""TorchCodec on the GPU, the yardstick: the same segments as MP4 files."""

from __future__ import annotations

import importlib
import re
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from check_record import Record, Skipped
from gpu_decoding import CLIP_FRAMES, CLIP_STRIDE, ready
from gpu_samples import FIRST_NUMBERS
from sample_gops import samples, shown_number

import shortgop
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.export import export
from shortgop.storage.disk import DiskStorage

_CLIPS = 20
# The major version of FFmpeg in PyAV's wheel, whose libraries TorchCodec is shown.
_FFMPEG = 8


def pictures(record: Record) -> None:
    """Every frame of exported files shows its number, on the GPU; how far colours are from ours; frames/s of clips."""
    ready()
    try:
        decoders = decoders_of_torchcodec()
    except (ImportError, OSError, RuntimeError) as error:
        print(error)
        raise Skipped(f"TorchCodec cannot be used: {reason_of(error)}") from error
    record.figure("torchcodec", version("torchcodec"))
    for codec in ("h264", "hevc"):
        dataset = samples(record, codec)
        manifest, opened = open_current(DiskStorage(dataset))[1], shortgop.open(dataset)
        for row, video in enumerate(opened):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "video.mp4")
                export(DiskStorage(dataset), manifest, row, file)
                data = file.read_bytes()
            decoder: Any = decoders.VideoDecoder(data, device="cuda")
            frames = decoder.get_frames_in_range(0, len(video)).data
            name = f"{codec} {video.metadata.width}x{video.metadata.height}"
            if frames.device.type != "cuda":
                raise RuntimeError(f"{name}: frames are on {frames.device}")
            record.figure(f"{name}: where it decoded", str(getattr(decoder, "cpu_fallback", "not told")))
            for number, frame in enumerate(frames):
                shown = shown_number(frame)
                if shown != FIRST_NUMBERS * row + number:
                    raise RuntimeError(f"{name}: frame {number} shows {shown}, not {FIRST_NUMBERS * row + number}")
            ours = video.get_frames_at(list(range(len(video)))).data
            levels = (frames.cpu().int() - ours.int()).abs()
            record.figure(
                f"{name}: largest and mean difference from our reader",
                [int(levels.max()), float(levels.float().mean())],
            )
            if len(video) > CLIP_FRAMES * CLIP_STRIDE:
                record.figure(
                    f"{name}: frames/s of clips, opened for each", _rate(decoders.VideoDecoder, data, len(video))
                )


def decoders_of_torchcodec() -> Any:
    """The module with its decoders; an error where its libraries cannot be loaded."""
    decoders: Any = importlib.import_module("torchcodec.decoders")
    # Some releases load them only when a decoder is made.
    libraries: Any = importlib.import_module("torchcodec._internally_replaced_utils")
    getattr(libraries, "load_core_libraries", lambda: None)()
    return decoders


def reason_of(error: BaseException) -> str:
    """What its long error says of the FFmpeg that PyAV brings: it has a traceback for each FFmpeg that it looks for."""
    said = _said_of_ffmpeg(str(error))
    return f"{said} ({error.__cause__})" if error.__cause__ else said


def _said_of_ffmpeg(error: str) -> str:
    part = re.search(rf"FFmpeg version {_FFMPEG}:?\s(.*?)(?=\nFFmpeg version |\[end of |\Z)", error, re.DOTALL)
    lines = [line.strip() for line in (part[1] if part else error).strip().splitlines() if line.strip()]
    missing = [line for line in lines if "cannot open shared object file" in line or "undefined symbol" in line]
    said = (missing or lines[-1:] if part else lines[:1]) or ["no reason is given"]
    return f"FFmpeg {_FFMPEG}: {said[0]}" if part else said[0]


def _rate(decoder: Any, data: bytes, frames: int) -> int:
    started = time.perf_counter()
    for clip in range(_CLIPS):
        start = clip % (frames - (CLIP_FRAMES - 1) * CLIP_STRIDE)
        wanted = list(range(start, start + (CLIP_FRAMES - 1) * CLIP_STRIDE + 1, CLIP_STRIDE))
        decoder(data, device="cuda").get_frames_at(wanted)
    torch.cuda.synchronize()
    return round(_CLIPS * CLIP_FRAMES / (time.perf_counter() - started))
