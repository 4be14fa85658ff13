"""Tries what an ffmpeg does on this machine, each trial a process of its own over a few frames.

Only a run tells: an encoder that ffmpeg lists may lack its driver, its driver's video library, or an engine on the GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from ..profile import NVENC_ENCODERS, PRESETS, SOFTWARE_ENCODERS, Profile, presets_text
from ..running.ffmpeg import filter_has, lists, version_of
from ..running.gpu_errors import LACKS_ENCODER, NO_GPU, cause_of, lost_picture, passes, wanted_driver
from ..running.processes import Finished, name_of_signal
from ..running.trial_runs import run_trial
from .capabilities import (
    SCALING,
    Capabilities,
    Trial,
    from_gpu,
    nvdec,
    without_b_frames,
)
from .encoder_options import trial_options
from .gpu_filters import GRAIN_SHOWN, TELLING_OF_GRAIN, scaled_on_gpu
from .pipelines import software_preset

_TIMEOUT_SECONDS = 60
# Characters of what ffmpeg says, from its start.
_MOST_SAID = 2000
# How long to wait where others have the GPU's sessions or its memory, before each further attempt.
_PAUSES_SECONDS = (1.0, 4.0)
# Twice what NVENC and NVDEC take of every codec, since the trial of scaling halves it.
_SIDE = 512
# B-frames need some frames before NVENC puts the first packet out.
_FRAMES = 8
# NVENC warns of what a chip lacks, and its error says no more than that there is no capable device.
_QUIET = ("-v", "level+warning", "-nostdin")
_PICTURES = (*_QUIET, "-f", "lavfi", "-i", f"testsrc2=size={_SIDE}x{_SIDE}:rate=10")
_ON_GPU = (*_QUIET, "-hwaccel", "cuda", "-hwaccel_output_format", "cuda", *TELLING_OF_GRAIN)
_TO_NOTHING = ("-frames:v", str(_FRAMES), "-f", "null", "-")
# The time filters of prep, for frames that are in the GPU's memory.
_TIMES = ("settb=1/1000", "setpts=PTS*2", "fps=10:round=near:eof_action=pass", "tpad=stop=-1:stop_mode=clone")
# Kinds of sources, as `pipelines.source_kind` names them, and how a sample of each is made. Codecs that are not here
# are decoded on the CPU: no encoder makes a sample of them, or NVDEC is known to decode them otherwise.
_SAMPLES = {
    "h264": ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-f", "h264"),
    "hevc": ("-c:v", "libx265", "-x265-params", "log-level=none", "-pix_fmt", "yuv420p", "-f", "hevc"),
    "hevc 10 bits": ("-c:v", "libx265", "-x265-params", "log-level=none", "-pix_fmt", "yuv420p10le", "-f", "hevc"),
    "vp9": ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-pix_fmt", "yuv420p", "-f", "ivf"),
    "av1": ("-c:v", "libsvtav1", "-preset", "12", "-pix_fmt", "yuv420p", "-f", "ivf"),
    "mpeg2video": ("-c:v", "mpeg2video", "-pix_fmt", "yuv420p", "-f", "mpeg2video"),
}
SOURCE_KINDS = tuple(_SAMPLES)
# An option of scale_cuda since FFmpeg 9. Before, it took four pixels at any ratio, so that small pictures alias.
_FILTERS_OPTION = "use_filters"

_P = ParamSpec("_P")
_Found = TypeVar("_Found", Trial, Capabilities)
_known: dict[object, Any] = {}


def _remembered(function: Callable[_P, _Found]) -> Callable[_P, _Found]:
    """Like `cache`, but a trial that failed as others had the GPU's sessions or its memory is not kept."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _Found:
        key = (function.__name__, args, tuple(kwargs.items()))
        if key in _known:
            kept: _Found = _known[key]
            return kept
        found = function(*args, **kwargs)
        if not any(passes(trial.detail) for trial in _trials_of(found)):
            _known[key] = found
        return found

    return call


def _trials_of(found: Trial | Capabilities) -> tuple[Trial, ...]:
    return (found,) if isinstance(found, Trial) else found.trials


def capabilities_of(path: str, profile: Profile, *, use_gpu: bool = True, kinds: Collection[str] = ()) -> Capabilities:
    """What the ffmpeg at `path` does for this profile, and which of these `kinds` of sources it decodes on the GPU.

    The GPU is left alone where `use_gpu` is False, and where the profile names an encoder on the CPU. ToolError when
    ffmpeg is killed again and again; that is not kept, and the next call tries it anew.
    """
    named = profile.encoder.startswith("lib")
    preset = profile.preset if use_gpu or named else software_preset(profile)
    if not use_gpu or named:
        return _tried_on_cpu(path, profile.codec, preset, profile.b_frames)
    found = _tried(path, profile.codec, preset, profile.b_frames)
    if not found.runs(nvdec("h264")):
        return found
    more = tuple(try_nvdec(path, kind) for kind in kinds if kind in _SAMPLES and kind != "h264")
    return replace(found, trials=(*found.trials, *more))


@cache
def _tried_on_cpu(path: str, codec: str, preset: str | None, b_frames: int) -> Capabilities:
    trial = try_encoder(path, SOFTWARE_ENCODERS[codec], preset, b_frames)
    return Capabilities(path, version_of(path) or "", codec, preset, b_frames, (trial,))


@_remembered
def _tried(path: str, codec: str, preset: str | None, b_frames: int) -> Capabilities:
    on_cpu = _tried_on_cpu(path, codec, preset, b_frames)
    trials = _gpu_trials(path, NVENC_ENCODERS[codec], preset, b_frames)
    return replace(on_cpu, trials=(*trials, *on_cpu.trials))


def _gpu_trials(path: str, nvenc: str, preset: str | None, b_frames: int) -> Iterator[Trial]:
    first = try_nvdec(path)
    yield first
    if first.works:
        scaling = _try_scaling(path, SCALING, (), downloads=True)
        yield scaling
    encoder = try_encoder(path, nvenc, preset, b_frames)
    yield encoder
    if not encoder.works and b_frames and _may_work_without_b_frames(encoder.detail):
        plain = try_encoder(path, nvenc, preset, 0)
        yield replace(plain, name=without_b_frames(nvenc))
        encoder, b_frames = plain, 0
    if encoder.works and first.works and scaling.works:
        options = trial_options(nvenc, b_frames)
        yield _try_scaling(path, from_gpu(nvenc), options, downloads=False)


def _may_work_without_b_frames(why: str) -> bool:
    lacks = why == NO_GPU or why.startswith(LACKS_ENCODER)
    return not lacks and wanted_driver(why) is None and not passes(why)


@_remembered
def try_encoder(path: str, encoder: str, preset: str | None = None, b_frames: int = 3) -> Trial:
    """Encode a few frames."""
    options, refused = trial_options(encoder, b_frames), _why_not_preset(encoder, preset)
    chosen = ["-preset", preset] if preset and refused is None else []
    found = _trial(encoder, [path, *_PICTURES, "-pix_fmt", "yuv420p", *options, *chosen, *_TO_NOTHING])
    if found.works:
        return found if refused is None else Trial(encoder, works=False, detail=refused)
    # ffmpeg looks at options first: it calls those of an encoder that it does not have unknown.
    return (
        found if lists(path, "encoders", encoder) else Trial(encoder, works=False, detail=f"{LACKS_ENCODER} {encoder}")
    )


def _why_not_preset(encoder: str, preset: str | None) -> str | None:
    """Why an encoder does not get this preset, which another encoder has: NVENC, x264 and x265 would take numbers, for
    others than SVT-AV1 means by them. Of presets that no encoder is known to have ffmpeg says whether it does."""
    if preset is None or preset in PRESETS[encoder] or not any(preset in names for names in PRESETS.values()):
        return None
    return f"its presets are {presets_text(encoder)}, and {preset} is none of them"


@_remembered
def try_nvdec(path: str, kind: str = "h264") -> Trial:
    """Decode a source of this kind on the GPU. hwdownload fails if ffmpeg falls back to software."""
    sample = _sample(path, kind)
    if isinstance(sample, Trial):
        return sample
    layout = "p010le" if kind.endswith("10 bits") else "nv12"
    argv = [path, *_ON_GPU, *_from_pipe(kind), "-vf", f"{GRAIN_SHOWN},hwdownload,format={layout}", "-f", "null", "-"]
    return _trial(nvdec(kind), argv, stdin=sample)


def _try_scaling(path: str, name: str, encoder: Sequence[str], *, downloads: bool) -> Trial:
    """Decode, repeat and scale frames in the GPU's memory, and download or encode them, as prep does."""
    if not filter_has(path, SCALING, _FILTERS_OPTION):
        return Trial(name, works=False, detail=f"{SCALING} of this ffmpeg aliases; FFmpeg 9 has one that does not")
    sample = _sample(path, "h264")
    if isinstance(sample, Trial):
        return sample
    scale = scaled_on_gpu((_SIDE, _SIDE), (_SIDE // 2, _SIDE // 2), downloads=downloads)
    filters = ",".join((*_TIMES, *scale))
    return _trial(name, [path, *_ON_GPU, *_from_pipe("h264"), "-vf", filters, *encoder, *_TO_NOTHING], stdin=sample)


def _from_pipe(kind: str) -> list[str]:
    return ["-f", "mpegvideo" if kind == "mpeg2video" else _SAMPLES[kind][-1], "-i", "pipe:0"]


@cache
def _sample(path: str, kind: str) -> bytes | Trial:
    argv = [path, *_PICTURES, "-frames:v", "2", "-threads", "1", *_SAMPLES[kind], "pipe:1"]
    try:
        done = run_trial(argv, timeout_seconds=_TIMEOUT_SECONDS)
    except OSError as error:
        return Trial(nvdec(kind), works=False, detail=f"no sample to decode: {error}")
    if done.returncode:
        return Trial(nvdec(kind), works=False, detail=f"no sample to decode: {_why(done)}")
    return done.stdout


def _trial(name: str, argv: Sequence[str], stdin: bytes = b"") -> Trial:
    """The trial by this command line, again where it fails as others have the GPU's sessions or its memory."""
    found = _one_trial(name, argv, stdin)
    for pause_seconds in _PAUSES_SECONDS:
        if not passes(found.detail):
            break
        time.sleep(pause_seconds)
        found = _one_trial(name, argv, stdin)
    return found


def _one_trial(name: str, argv: Sequence[str], stdin: bytes) -> Trial:
    started, said = time.perf_counter(), ""
    try:
        done = run_trial(argv, stdin=stdin, timeout_seconds=_TIMEOUT_SECONDS)
    except TimeoutError:
        works, detail = False, f"it did not end within {_TIMEOUT_SECONDS} s"
    except OSError as error:
        works, detail = False, str(error)
    else:
        said = done.stderr.decode(errors="replace")
        works = done.returncode == 0 and not lost_picture(said)
        detail = "runs" if works else _why(done)
    return Trial(name, works, detail, said[:_MOST_SAID], round(time.perf_counter() - started, 2))


def _why(failed: Finished) -> str:
    if failed.returncode < 0:
        return f"it was ended by {name_of_signal(failed.returncode)}"
    return cause_of(failed.stderr.decode(errors="replace"))
