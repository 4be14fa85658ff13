"""The options of each encoder: closed GOPs of exactly N frames, no scene cuts, B-frames that no frame refers to."""

from __future__ import annotations

from collections.abc import Sequence

from ..profile import Profile
from ..timing.pieces import keyframe_expression
from .capabilities import is_nvenc
from .pipelines import Pipeline

# What is added to the profile's CRF for NVENC's -cq. Not measured on any GPU yet: `make gpu-check` reports both
# encoders' bytes, PSNR and VMAF, from which it is to follow.
CQ_ABOVE_CRF = {"h264_nvenc": 0, "hevc_nvenc": 0, "av1_nvenc": 0}
_MAX_CQ = {"h264_nvenc": 51, "hevc_nvenc": 51, "av1_nvenc": 63}
# SVT-AV1's own preset differs between its versions.
_SVT_PRESET = "6"
# A pyramid of frames, of which no other refers to every second one, or each refers to those before it alone. One core
# works at an encode. docs/design/prep.md.
_SVT_PYRAMID, _SVT_FLAT = "lp=1:hierarchical-levels=4", "lp=1:pred-struct=1:hierarchical-levels=0"


def encoder_options(pipeline: Pipeline, profile: Profile, piece_frames: Sequence[int]) -> list[str]:
    """Options for ffmpeg. `piece_frames` are the lengths of the pieces of the output, each of which starts a GOP."""
    encoder, gop, b_frames, quality = pipeline.encoder, profile.gop_frames, pipeline.b_frames, str(profile.crf)
    forced = ["-force_key_frames", keyframe_expression(piece_frames, gop)]
    preset = pipeline.preset or (_SVT_PRESET if encoder == "libsvtav1" else None)
    options = ["-c:v", encoder, *(["-preset", preset] if preset else [])]
    keyframes = ["-g", str(gop), *forced]
    if encoder == "libx264":
        return [
            *options, "-threads", "1", "-crf", quality,
            *keyframes, "-keyint_min", str(gop), "-sc_threshold", "0", "-bf", str(b_frames),
            # Less than x264's own tune=fastdecode, which gives up weighted prediction too: that makes files larger
            # and decoding no faster (docs/benchmarks.md).
            "-x264-params", "open-gop=0:b-pyramid=none:b-adapt=0" + ":no-deblock=1:no-cabac=1" * profile.fastdecode,
        ]  # fmt: skip
    if encoder == "libx265":
        params = (
            f"keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:bframes={b_frames}:b-pyramid=0:b-adapt=0"
            ":pools=none:frame-threads=1:log-level=error:info=0"
        )
        tune = ["-tune", "fastdecode"] if profile.fastdecode else []
        # x265 starts a GOP every `keyint` frames by itself, but not where another piece begins.
        starts = [*keyframes, "-forced-idr", "1"] if len(piece_frames) > 1 else []
        return [*options, *tune, *starts, "-crf", quality, "-x265-params", params, "-tag:v", "hvc1"]
    if encoder == "libsvtav1":
        # The loop filters take 15 to 40 % of decoding, and 0.1 to 0.3 dB: docs/design/prep.md.
        unfiltered = ":enable-dlf=0:enable-cdef=0:enable-restoration=0" * profile.fastdecode
        return [*options, "-crf", quality, *keyframes, "-svtav1-params", _svt_structure(b_frames) + unfiltered]
    # With `-g 1` ffmpeg keeps the B-frames of NVENC's preset, and NVENC refuses that; all are keyframes with 0.
    nvenc_gop = ["-g", str(gop if gop > 1 else 0)]
    return [*options, *_nvenc_options(encoder, profile, b_frames), *nvenc_gop, *forced]


def trial_options(encoder: str, b_frames: int) -> list[str]:
    """Options with which a trial finds out whether an encoder runs, and encodes as prep needs it."""
    if is_nvenc(encoder):
        return ["-c:v", encoder, *_structure(encoder, b_frames)]
    return ["-c:v", encoder, *(["-svtav1-params", _svt_structure(b_frames)] if encoder == "libsvtav1" else [])]


def _svt_structure(b_frames: int) -> str:
    return _SVT_PYRAMID if b_frames else _SVT_FLAT


def _nvenc_options(encoder: str, profile: Profile, b_frames: int) -> list[str]:
    quality = min(max(profile.crf + CQ_ABOVE_CRF[encoder], 1), _MAX_CQ[encoder])
    return [
        # Constant quality: a rate that varies, and no limit to it. With -cq 0 NVENC would choose the quality itself.
        "-rc", "vbr", "-cq", str(quality), "-b:v", "0",
        # NVENC refuses a GOP that is not longer than its B-frames in a row and one frame more.
        *_structure(encoder, max(0, min(b_frames, profile.gop_frames - 2))),
        # Of the choices that make decoding faster, NVENC has only CAVLC, in H.264.
        *(["-coder", "cavlc"] if profile.fastdecode and encoder == "h264_nvenc" else []),
        *(["-tag:v", "hvc1"] if profile.codec == "hevc" else []),
        # Every key frame needs the sequence header before it. Whether NVENC repeats it as asked is not known.
        *(["-bsf:v", "dump_extra=freq=keyframe"] if encoder == "av1_nvenc" else []),
    ]  # fmt: skip


def _structure(encoder: str, b_frames: int) -> list[str]:
    # What NVENC's temporal units of AV1 are with B-frames is not known.
    in_a_row = 0 if encoder == "av1_nvenc" else b_frames
    return [
        # Without looking ahead NVENC neither moves keyframes nor B-frames. Presets that look ahead do it nevertheless
        # (ffmpeg takes 0 for no choice): then the two that follow keep both where they are.
        "-rc-lookahead", "0", "-no-scenecut", "1", "-b_adapt", "0",
        "-forced-idr", "1", "-strict_gop", "1", "-bf", str(in_a_row), "-b_ref_mode", "disabled",
    ]  # fmt: skip
