"""An ffmpeg for machines without a GPU that takes the command lines for one: a program, started as the real one is.

It does on the CPU what is asked of the GPU, with the real ffmpeg: it decodes in software, takes `scale` for
`scale_cuda` and x264, x265 or SVT-AV1 for NVENC, and leaves all else as it is. Or it fails as FFmpeg does where a GPU
lacks something, in the words of its source. What it was asked is in a log, a JSON object for each run.

    gpu = cuda_ffmpeg(folder, nvenc=False)      # as an H100
    monkeypatch.setenv("SHORTGOP_FFMPEG", gpu.path)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Gpu
from typing import Any, NamedTuple

NO_DRIVER = "Cannot load libcuda.so.1"
NO_ENGINE = "OpenEncodeSessionEx failed: unsupported device (2): (no details)\nNo capable devices found"
NO_SESSION = "OpenEncodeSessionEx failed: out of memory (10): (no details)\nNo capable devices found"
NO_MEMORY = "cu->cuMemAlloc(&data, size) failed -> CUDA_ERROR_OUT_OF_MEMORY: out of memory"
OLD_DRIVER = (
    "Driver does not support the required nvenc API version. Required: 13.1 Found: 13.0\n"
    "The minimum required Nvidia driver for nvenc is 610.00 or newer"
)
NO_B_FRAMES = "Max B-frames 3 exceed 0\nNo capable devices found"
# A GPU that is lost while ffmpeg runs, in the words of its filters, of its copies and of its decoders.
ILLEGAL_ADDRESS = (
    "cu->cuLaunchKernel(func, x, y, 1, 32, 16, 1, 0, cu_stream, args, NULL) failed -> CUDA_ERROR_ILLEGAL_ADDRESS: "
    "an illegal memory access was encountered"
)
BITS_LOST = "cu->cuMemAlloc(&data, size) failed -> CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"
LAUNCH_FAILED = (
    "decoder->cvdl->cuvidDecodePicture(decoder->decoder, &ctx->pic_params) failed -> CUDA_ERROR_LAUNCH_FAILED"
)
GPU_GONE = "cu->cuInit(0) failed -> CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
LOST_DECODER = "cuvidCreateDecoder failed -> CUDA_ERROR_NOT_SUPPORTED: operation not supported"

_SOFTWARE = {"h264_nvenc": "libx264", "hevc_nvenc": "libx265", "av1_nvenc": "libsvtav1"}
# Options of NVENC, each with a value, that the encoders on the CPU lack, understand otherwise or do not need.
_OF_NVENC = {
    "-rc", "-cq", "-b:v", "-rc-lookahead", "-no-scenecut", "-b_adapt", "-forced-idr", "-strict_gop", "-bf",
    "-b_ref_mode", "-coder", "-preset", "-bsf:v",
}  # fmt: skip


# What the machine has. Texts are what ffmpeg says where something is missing. `refuse` says what the first `refusals`
# encodes on the GPU fail with, after so many frames (`refuse_after`), or after them a signal ends ffmpeg (`signal`), as
# where the driver crashes. A session lasts `session_seconds` at least. `faults` are filters that change frames as a
# decoder on the GPU that errs and says nothing: `SKIPS` leaves out a frame, and one frame of `GREY` shows nothing.
# `forced_keyframes`: the encoder on the GPU starts GOPs where it is told to.
L4 = {
    "nvdec": "", "scale_cuda": True, "nvenc": "", "most_b_frames": 4,
    "refuse": "", "refusals": 0, "refuse_after": 0, "signal": 0, "session_seconds": 0.0, "faults": "",
    "forced_keyframes": True,
}  # fmt: skip
SKIPS, GREY = "select='not(eq(n,3))'", "drawbox=color=gray:t=fill:enable='eq(n,3)'"


class Installed(NamedTuple):
    """The program, and where it writes its log."""

    path: str
    log: Path

    def runs(self) -> list[dict[str, Any]]:
        """What it was asked to encode, in order; trials and questions are left out."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if "-copyts" in line["argv"]]


GpuMachine = Callable[..., Installed]
"""Gives the ffmpeg of a machine that has what its arguments name."""


def install(folder: Path, **has: Any) -> Installed:
    """Write the program into a folder, for the GPU `L4` with other values for what `has` names."""
    import imageio_ffmpeg

    folder.mkdir(parents=True, exist_ok=True)
    log, program = folder / "log", folder / "ffmpeg"
    gpu = {**L4, **has, "real": imageio_ffmpeg.get_ffmpeg_exe(), "log": str(log)}
    (folder / "gpu.json").write_text(json.dumps(gpu))
    log.touch()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{__file__}" "{folder}/gpu.json" "$@"\n')
    program.chmod(0o755)
    return Installed(str(program), log)


def in_software(argv: list[str], *, faults: str = "") -> list[str]:
    """The command line that does on the CPU what this one asks of the GPU."""
    done: list[str] = []
    words = iter(argv)
    encoder = _value(argv, "-c:v", last=True)
    for word in words:
        if word in ("-hwaccel", "-hwaccel_output_format"):
            next(words)
        elif word in _OF_NVENC and encoder in _SOFTWARE:
            value = next(words)
            if word == "-bf":
                done += _structure(str(encoder), _value(argv, "-g"), value)
            elif word == "-cq":
                done += ["-crf", value]
        elif word == "-c:v":
            value = next(words)
            done += [word, _SOFTWARE.get(value, value)]
        elif word == "-vf":
            done += [word, software_filters(next(words), faults=faults)]
        else:
            done.append(word)
    return done


def software_filters(chain: str, *, faults: str = "") -> str:
    """The filters for frames in the CPU's memory. NVDEC gives NV12, whatever a decoder in software would give."""
    filters = []
    for each in _split(chain):
        if each.startswith("scale_cuda="):
            options = dict(option.split("=", 1) for option in each.removeprefix("scale_cuda=").split(":"))
            filters += [
                f"scale=w={options['w']}:h={options['h']}:flags={options['interp_algo']}",
                f"format={options['format']}",
            ]
        elif each != "hwdownload":
            filters.append(each)
    return ",".join(["format=nv12", *([faults] if faults else []), *filters])


def _split(chain: str) -> list[str]:
    """The filters of a chain; commas between quotes belong to one."""
    filters, quoted = [""], False
    for letter in chain:
        quoted ^= letter == "'"
        if letter == "," and not quoted:
            filters.append("")
        else:
            filters[-1] += letter
    return filters


def _structure(encoder: str, gop: str | None, b_frames: str) -> list[str]:
    gop = gop or "16"
    if encoder == "h264_nvenc":
        return ["-bf", b_frames, "-threads", "1", "-preset", "ultrafast", "-sc_threshold", "0",
                "-keyint_min", gop, "-x264-params", "open-gop=0:b-pyramid=none:b-adapt=0"]  # fmt: skip
    if encoder == "av1_nvenc":
        return ["-preset", "12", "-svtav1-params", "lp=1:pred-struct=1:hierarchical-levels=0"]
    return ["-preset", "ultrafast", "-forced-idr", "1", "-x265-params",
            f"keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:bframes={b_frames}:b-pyramid=0:b-adapt=0:pools=none"
            ":frame-threads=1:log-level=none"]  # fmt: skip


def _value(argv: list[str], option: str, *, last: bool = False) -> str | None:
    places = [place for place, word in enumerate(argv[:-1]) if word == option]
    return argv[places[-1 if last else 0] + 1] if places else None


def complaint(gpu: Gpu, argv: list[str]) -> str:
    """What ffmpeg says of this GPU when it fails at this command line; "" where it does not."""
    encoder = _value(argv, "-c:v", last=True)
    on_gpu = "-hwaccel" in argv
    if on_gpu and gpu.nvdec:
        return str(gpu.nvdec)
    if encoder in _SOFTWARE:
        if gpu.nvenc:
            return str(gpu.nvenc)
        if int(_value(argv, "-bf") or 0) > gpu.most_b_frames:
            return NO_B_FRAMES
    return ""


def _refused(gpu: Gpu, argv: list[str]) -> str:
    if "-copyts" not in argv or not ("-hwaccel" in argv or _value(argv, "-c:v", last=True) in _SOFTWARE):
        return ""
    for number in range(gpu.refusals):
        try:
            os.close(os.open(f"{gpu.log}.{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return str(gpu.refuse)
    return ""


def main() -> None:
    """Take a command line as ffmpeg does."""
    gpu, argv = Gpu(**json.loads(Path(sys.argv[1]).read_text())), sys.argv[2:]
    started = time.time()
    said = complaint(gpu, argv) or _refused(gpu, argv)
    on_gpu = "-hwaccel" in argv or _value(argv, "-c:v", last=True) in _SOFTWARE
    if on_gpu and "-copyts" in argv and gpu.session_seconds and not said:
        time.sleep(gpu.session_seconds)
    with Path(gpu.log).open("a") as log:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        line = {"argv": argv, "on_gpu": on_gpu, "said": said, "from": started, "to": time.time(), "visible": visible}
        log.write(json.dumps(line) + "\n")
    if said and gpu.refuse_after:
        # What was made before is in the output, as of a GPU that fails within a source.
        some = in_software(argv)
        some[-1:-1] = ["-frames:v", str(gpu.refuse_after)]
        subprocess.run([gpu.real, *some], close_fds=False, check=True)
        if gpu.signal:
            os.kill(os.getpid(), gpu.signal)
    if said:
        sys.exit("\n".join(f"[h264_nvenc @ 0x55] {each}" for each in said.splitlines()))
    if argv[-1] == "filter=scale_cuda" and not gpu.scale_cuda:
        print("Unknown filter 'scale_cuda'.")
        return
    if on_gpu and not gpu.forced_keyframes:
        argv = ["7" if before == "-g" else word for before, word in zip(["", *argv], argv, strict=False)]
        argv = ["expr:eq(mod(n,7),0)" if word.startswith("expr:") else word for word in argv]
    os.execv(gpu.real, [gpu.real, *(in_software(argv, faults=gpu.faults) if on_gpu else argv)])


if __name__ == "__main__":
    main()
