"""TorchCodec as a decoder of GOPs: the yardstick for what frames have to look like.

It opens each GOP as the small MP4 that the GOP makes together with its segment's init, and runs on the FFmpeg that PyAV
brings, so that equal frames are equal bit for bit.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]

from datasets import current_manifest
from shortgop.errors import DecodeError
from shortgop.manifests.layout import shard_path
from shortgop.manifests.ranges import read_gop, read_init
from shortgop.readers.decoders.base import DecodeCost, GopRequest


@dataclass(frozen=True)
class WholeRequest(GopRequest):
    """A request with the init of the GOP's segment: ftyp + moov."""

    init: bytes


class TorchcodecDecoder:
    """Gives frames as they are, (height, width, 3). Takes a `WholeRequest`."""

    name = "torchcodec"

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def decode(self, request: GopRequest, out: torch.Tensor) -> DecodeCost:
        """See `Decoder.decode`."""
        assert isinstance(request, WholeRequest)
        try:
            opened = VideoDecoder(b"".join((request.init, request.data)), dimension_order="NHWC")
            frames = opened.get_frames_at(list(request.frames)).data
        except (RuntimeError, ValueError, IndexError) as error:
            raise DecodeError(f"TorchCodec does not decode it: {error}") from error
        if len(opened) != len(request.pattern):
            raise DecodeError(f"TorchCodec finds {len(opened)} frames, the manifest says {len(request.pattern)}")
        if frames.shape[1:] != out.shape[1:]:
            raise DecodeError(f"frames of shape {tuple(frames.shape[1:])} where {tuple(out.shape[1:])} was expected")
        started = time.perf_counter()
        out[list(request.slots)] = frames
        packets = 1 + max(request.pattern.frames.index(frame) for frame in request.frames)
        return DecodeCost(packets, time.perf_counter() - started, warm=False)


def all_frames(dataset: Path, video_id: str) -> torch.Tensor:
    """Every frame of a video, each GOP decoded on its own: uint8, (frames, 3, height, width)."""
    manifest = current_manifest(dataset)
    video = manifest.video(manifest.row_of(video_id))
    gops = []
    for number in range(video.num_gops):
        segment = video.first_segment + number // video.segment_gops
        shard = shard_path(dataset, manifest.shards.name.text(int(manifest.segments.shard[segment])))
        descriptor = os.open(shard, os.O_RDONLY)
        try:
            data = read_init(descriptor, manifest, segment) + read_gop(descriptor, manifest, video.first_gop + number)
        finally:
            os.close(descriptor)
        gops.append(VideoDecoder(data).get_all_frames().data)
    return torch.cat(gops)
