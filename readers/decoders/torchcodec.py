"""TorchCodec, on the CPU: each GOP as the small MP4 that it makes together with its segment's init.

Slower than feeding packets, since every GOP is opened as a file and no packet is left out. It serves as the yardstick
for what frames have to look like.
"""

from __future__ import annotations

import time

import torch

from ...errors import DecodeError, ToolError, UsageError
from ..convert.copies import copy_frame
from ..output import Output
from .base import DecodeCost, GopRequest


class TorchcodecDecoder:
    """Decodes on the calling thread; ToolError where TorchCodec does not load.

    Frames come as they are: UsageError for an output of another size, colour or dtype.
    """

    name = "torchcodec"
    needs_init = True

    def __init__(self, output: Output) -> None:
        if not output.is_plain:
            raise UsageError('decoder="torchcodec" gives frames as they are: leave size, crop, dtype and color out')
        self._dimension_order = output.dimension_order
        self.device = torch.device("cpu")
        try:
            from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]
        except (ImportError, OSError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            installed = not isinstance(error, ModuleNotFoundError)
            remedy = "it needs FFmpeg's libraries" if installed else "pip install 'shortgop[torchcodec]'"
            raise ToolError(
                f"TorchCodec does not load: {reason}; {remedy}, or leave the choice of decoder to shortgop"
            ) from error
        self._open = VideoDecoder

    def decode(self, request: GopRequest, out: torch.Tensor) -> DecodeCost:
        """See `Decoder.decode`."""
        if request.init is None:
            raise ValueError("a request without the init")
        try:
            opened = self._open(
                b"".join((request.init, request.data)),
                dimension_order=self._dimension_order,
                num_ffmpeg_threads=1,
                device="cpu",
            )
            # It would make a tensor of a list, on torch's default device.
            frames = opened.get_frames_at(torch.tensor(request.frames, dtype=torch.int64, device="cpu")).data
        except (RuntimeError, ValueError, IndexError) as error:
            raise DecodeError(f"TorchCodec does not decode it: {error}") from error
        if len(opened) != len(request.pattern):
            raise DecodeError(f"TorchCodec finds {len(opened)} frames, the manifest says {len(request.pattern)}")
        if frames.shape[1:] != out.shape[1:]:
            raise DecodeError(f"frames of shape {tuple(frames.shape[1:])} where {tuple(out.shape[1:])} was expected")
        started = time.perf_counter()
        for slot, frame in zip(request.slots, frames, strict=True):
            copy_frame(frame, out[slot])
        packets = 1 + max(request.pattern.frames.index(frame) for frame in request.frames)
        return DecodeCost(packets, time.perf_counter() - started, warm=False)
