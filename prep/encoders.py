"""Chooses the encoder and decoder that prep uses on this machine, by trying them."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ToolError
from .ffmpeg import try_encoder, try_nvdec
from .profile import ENCODERS, Profile


def choose_encoder(ffmpeg_path: str, profile: Profile, takes: Callable[[str], bool] = lambda _name: True) -> str:
    """The encoder of the profile. For "auto": NVENC where it runs and `takes` the pictures, else x264 or x265.
    ToolError when none runs."""
    if profile.encoder != "auto":
        trial = try_encoder(ffmpeg_path, profile.encoder, profile.preset)
        if not trial.works:
            preset = f" with --preset {profile.preset}" if profile.preset else ""
            raise ToolError(
                f"encoder {profile.encoder} does not run here{preset}: {trial.detail}; see `shortgop doctor`"
            )
        return profile.encoder
    fitting = [name for name, codec in ENCODERS.items() if codec == profile.codec]
    fitting.sort(key=lambda name: (not takes(name), "nvenc" not in name))
    for name in fitting:
        if try_encoder(ffmpeg_path, name, profile.preset).works:
            return name
    preset = f" with --preset {profile.preset}" if profile.preset else ""
    raise ToolError(f"none of {', '.join(fitting)} runs{preset} with {ffmpeg_path}; see `shortgop doctor`")


def choose_nvdec(ffmpeg_path: str, profile: Profile) -> bool:
    """Whether to decode on the GPU: where a trial succeeds, unless the profile names an encoder on the CPU.

    Decoder and encoder are chosen separately: an H200 has NVDEC but no NVENC.
    """
    return not profile.encoder.startswith("lib") and try_nvdec(ffmpeg_path).works
