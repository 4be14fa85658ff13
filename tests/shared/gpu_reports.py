"""What GPUs report of prep's steps. None was recorded on hardware: they are what `capabilities_of` finds on these GPUs
by NVIDIA's application notes."""

from __future__ import annotations

from dataclasses import replace

from shortgop.prep.running.gpu_errors import NO_GPU
from shortgop.prep.tools.capabilities import Capabilities, Trial

NO_ENGINE = "this GPU has no such encoder"
TOO_OLD = "NVENC of this ffmpeg needs driver 610.00 or newer"
REFUSED = "NVENC refused a session, as too many were open"
NO_LIBRARY = "the driver's libnvidia-encode is missing; containers need NVIDIA_DRIVER_CAPABILITIES=video"
ALL_KINDS = ("h264", "hevc", "hevc 10 bits", "vp9", "av1", "mpeg2video")


def report(codec: str = "h264", *, kinds: tuple[str, ...] = ALL_KINDS, **said: str) -> Capabilities:
    """What a GPU that decodes these kinds reports; `said` is what ffmpeg says of trials that fail."""
    nvenc = f"{codec}_nvenc"
    names = [*(f"nvdec {kind}" for kind in ALL_KINDS), "scale_cuda", nvenc, f"scale_cuda to {nvenc}"]
    reasons = {f"nvdec {kind}": "not supported" for kind in ALL_KINDS if kind not in kinds} | said
    trials = [Trial(name, name not in reasons, reasons.get(name, "runs")) for name in names]
    software = {"h264": "libx264", "hevc": "libx265"}[codec]
    return Capabilities("/ffmpeg", "9.0", codec, None, 3, (*trials, Trial(software, works=True, detail="runs")))


L4 = report()
H100 = report(kinds=("h264", "hevc", "hevc 10 bits", "vp9", "mpeg2video"), h264_nvenc=NO_ENGINE)
OLD_DRIVER = report(h264_nvenc=TOO_OLD)
NO_B_FRAMES = "this GPU's encoder takes 0 B-frames at most"
# A GeForce GTX 1650 encodes HEVC without B-frames.
TU117 = replace(
    report("hevc", hevc_nvenc=NO_B_FRAMES),
    trials=(
        *report("hevc", hevc_nvenc=NO_B_FRAMES).trials,
        Trial("hevc_nvenc without B-frames", works=True, detail="runs"),
    ),
)
CPU = Capabilities(
    "/ffmpeg", "9.0", "h264", None, 3,
    (Trial("nvdec h264", False, NO_GPU), Trial("h264_nvenc", False, NO_GPU), Trial("libx264", True, "runs")),
)  # fmt: skip
