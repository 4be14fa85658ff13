"""TorchCodec as a decoder of GOPs: the yardstick for what frames have to look like.

It opens each GOP as the small MP4 that the GOP makes together with its segment's init, and runs on the FFmpeg that PyAV
brings, so that equal frames are equal bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]

from datasets import current_manifest
from shortgop.errors import DecodeError
from shortgop.manifests.dataset_files.layout import shard_key
from shortgop.manifests.operations.shard_bytes import ShardBytes, gop_piece, init_piece
from shortgop.readers.decoders.base import DecodeCost, GopRequest, Target
from shortgop.storage.disk import DiskStorage


@dataclass(frozen=True)
class WholeRequest(GopRequest):
    """A request with the init of the GOP's segment: ftyp + moov."""

    init: bytes


class TorchcodecDecoder:
    """Gives frames as they are, in one target. Takes a `WholeRequest`."""

    name = "torchcodec"

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def decode(self, request: GopRequest, targets: Sequence[Target]) -> DecodeCost:
        """See `Decoder.decode`."""
        assert isinstance(request, WholeRequest)
        try:
            opened = VideoDecoder(b"".join((request.init, request.data)), dimension_order="NCHW")
            frames = opened.get_frames_at(list(request.frames)).data
        except (RuntimeError, ValueError, IndexError) as error:
            raise DecodeError(f"TorchCodec does not decode it: {error}") from error
        if len(opened) != len(request.pattern):
            raise DecodeError(f"TorchCodec finds {len(opened)} frames, the manifest says {len(request.pattern)}")
        slots = targets[0].slots
        if frames.shape[1:] != slots.shape[2:]:
            raise DecodeError(f"frames of shape {tuple(frames.shape[1:])} where {tuple(slots.shape[2:])} was expected")
        started = time.perf_counter()
        for frame, places in zip(frames, request.places, strict=True):
            for place in places:
                targets[place.output].slot(place.slot)[...] = frame
        packets = 1 + max(request.pattern.frames.index(frame) for frame in request.frames)
        return DecodeCost(packets, time.perf_counter() - started, warm=False)


def all_frames(dataset: Path, video_id: str) -> torch.Tensor:
    """Every frame of a video, each GOP decoded on its own: uint8, (frames, 3, height, width)."""
    manifest = current_manifest(dataset)
    video = manifest.video(manifest.row_of(video_id))
    source, gops = ShardBytes(DiskStorage(dataset)), []
    for number in range(video.num_gops):
        segment = video.first_segment + number // video.segment_gops
        shard = shard_key(manifest.shards.name.text(int(manifest.segments.shard[segment])))
        data = source.piece(shard, init_piece(manifest, segment))
        data += source.piece(shard, gop_piece(manifest, video.first_gop + number))
        gops.append(VideoDecoder(data).get_all_frames().data)
    return torch.cat(gops)
