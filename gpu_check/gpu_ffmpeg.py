"""FFmpeg on the GPU: NVDEC in the program that prep runs, and which encoders of NVENC encode a frame.

The checks of the program need no PyAV, so that they also run where only the program was carried.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from check_record import Record, Skipped
from gpu_driver import compute_capability, preload_video_libraries, require_gpu
from gpu_environment import names_in

from shortgop.errors import ToolError
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.running.gpu_errors import NO_ENCODER
from shortgop.prep.tools.capability_trials import try_encoder, try_nvdec

ENCODERS = ("h264_nvenc", "hevc_nvenc", "av1_nvenc")
FILTERS = ("scale_cuda", "pad_cuda", "transpose_cuda", "bwdif_cuda", "yadif_cuda", "hwdownload", "hwupload_cuda")
WORKS = "works"
NO_NVENC = "this GPU has no NVENC"
# Of A100 and A30; H100, H200 and GH200; B200 and GB200; as NVIDIA's table of encoders has it.
_WITHOUT_NVENC = {(8, 0), (9, 0), (10, 0)}
# What NVENC, libavcodec and prep's trials say on a GPU that has no encoder, such as A100, H100 and H200.
# "No capable devices found" is no such answer: FFmpeg ends with it after any error.
_NO_ENGINE = re.compile(rf"unsupported device|codec not supported|no encode device|{NO_ENCODER}", re.IGNORECASE)
# FFmpeg's words, and those that prep's trials make of them.
_NO_LIBRARY = re.compile(r"cannot load libnvidia-encode|libnvidia-encode is missing", re.IGNORECASE)


def ffmpeg_nvdec(record: Record) -> None:
    """Whether the ffmpeg that prep would run decodes on the GPU, and what CUDA parts it was built with."""
    path = ffmpeg_of(record)
    record.figure("hwaccels", names_in(_listed(path, "-hwaccels"), ("cuda", "vulkan", "vdpau")))
    record.figure("encoders", names_in(_listed(path, "-encoders"), ENCODERS))
    record.figure("filters", names_in(_listed(path, "-filters"), FILTERS))
    trial = try_nvdec(path)
    record.figure("-hwaccel cuda", trial.detail)
    if not trial.works:
        record.figure("ffmpeg said", trial.said.splitlines())
        raise RuntimeError(f"-hwaccel cuda does not decode: {trial.detail}")


def ffmpeg_nvenc(record: Record) -> None:
    """Which encoders of NVENC encode two frames in the ffmpeg that prep would run."""
    path = ffmpeg_of(record)
    said = {}
    for encoder in ENCODERS:
        trial = try_encoder(path, encoder)
        said[encoder] = WORKS if trial.works else trial.detail
        record.figure(encoder, said[encoder])
        if not trial.works:
            record.figure(f"ffmpeg said of {encoder}", trial.said.splitlines())
    _record_verdict(record, said)


def pyav_nvenc(record: Record) -> None:
    """Which encoders of NVENC encode two frames in PyAV, whose libraries want an older driver than imageio-ffmpeg's."""
    require_gpu()
    preload_video_libraries()
    said = {}
    for encoder in ENCODERS:
        said[encoder] = _encode(encoder)
        record.figure(encoder, said[encoder])
    _record_verdict(record, said)


def _record_verdict(record: Record, said: Mapping[str, str]) -> None:
    lacks_nvenc = WORKS not in said.values() and chip_lacks_nvenc()
    record.figure("NVENC", verdict(said, lacks_nvenc))


def chip_lacks_nvenc() -> bool:
    """Whether no GPU of this kind has NVENC. The encoders do not say so where the driver's library is missing, or is
    too old for them: they find that first."""
    return compute_capability(require_gpu()) in _WITHOUT_NVENC


def verdict(said: Mapping[str, str], lacks_nvenc: bool = False) -> str:
    """What the answers of the encoders mean; each is `WORKS` or an error. Of a chip that lacks NVENC any error is an
    answer. Skipped where the driver's library is missing; RuntimeError where it is not known what they mean."""
    working = [encoder for encoder, answer in said.items() if answer == WORKS]
    if working:
        return f"{', '.join(working)} encode"
    if said and (lacks_nvenc or all(_NO_ENGINE.search(answer) for answer in said.values())):
        return NO_NVENC
    if missing := [answer for answer in said.values() if _NO_LIBRARY.search(answer)]:
        raise Skipped(f"the driver's libnvidia-encode.so.1 is missing: {missing[0]}")
    raise RuntimeError("; ".join(f"{encoder}: {answer}" for encoder, answer in said.items()) or "no encoder was tried")


def _encode(encoder: str) -> str:
    import av
    import numpy as np
    from av.codec.context import CodecContext
    from libav_log import logged

    texts: list[str] = []
    packets: list[Any] = []
    try:
        with logged() as texts:
            context: Any = CodecContext.create(encoder, "w")
            context.width, context.height, context.pix_fmt = 256, 256, "yuv420p"
            context.time_base = Fraction(1, 30)
            for pts in range(2):
                frame = av.VideoFrame.from_ndarray(np.zeros((384, 256), np.uint8), format="yuv420p")
                frame.pts = pts
                packets += context.encode(frame)
            packets += context.encode(None)
    except Exception as error:  # noqa: BLE001  # which one it is, is what is asked
        return f"{type(error).__name__}: {error} ({'; '.join(texts) or 'nothing was logged'})"
    return WORKS if len(packets) == 2 else f"{len(packets)} packets for 2 frames"


def ffmpeg_of(record: Record) -> str:
    """The ffmpeg that prep would run; Skipped without a GPU or an ffmpeg."""
    require_gpu()
    try:
        found = find_ffmpeg()
    except ToolError as error:
        raise Skipped(f"{error}; `make gpu-ffmpeg` packs one that can be carried") from error
    record.figure("ffmpeg", f"{found.version} ({found.origin})")
    return found.path


def _listed(path: str, option: str) -> str:
    return subprocess.run(
        [path, "-hide_banner", option], capture_output=True, text=True, timeout=20, check=False
    ).stdout
