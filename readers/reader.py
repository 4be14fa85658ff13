"""The way from frames to a tensor: plan, fetch, decode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..manifests.dataset import open_manifest, open_timeline
from ..manifests.errors import CorruptDataError, DecodeError
from ..manifests.ragged import Array
from ..manifests.tables import Manifest
from ..manifests.video import VideoRow
from .copies import copy_frame
from .decoders import GopRequest, make_decoder
from .gops import GopStore
from .indices import FrameNumbers
from .metadata import VideoMetadata, video_metadata
from .plan import plan_frames


class SnapshotReader:
    """One snapshot of a dataset, ready to be read: its tables, its files and a decoder.

    May be used by any number of threads, goes on working in a forked process, and can be pickled: the copy opens the
    same snapshot anew.
    """

    def __init__(self, dataset: Path, snapshot: str, decoder: str, manifest: Manifest) -> None:
        self.dataset = dataset
        self.snapshot = snapshot
        self.manifest = manifest
        self._decoder_name = decoder
        self._decoder = make_decoder(decoder)
        self._store = GopStore(dataset, manifest)
        # A handful each.
        self._configs = [manifest.config(index) for index in range(len(manifest.configs))]
        self._patterns = [manifest.pattern(index) for index in range(len(manifest.patterns))]

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.dataset, self.snapshot, self._decoder_name)

    def read(self, video: VideoRow, frames: FrameNumbers) -> torch.Tensor:
        """Frames of a video, in the order given: uint8, (frames, height, width, 3), on the decoder's device.

        Besides the output, no more is in memory than one read of a few MB and what the decoder holds of one GOP.
        """
        config = self._configs[video.config]
        plan = plan_frames(video, frames)
        shape = (len(frames), config.height, config.width, 3)
        out = torch.empty(shape, dtype=torch.uint8, device=self._decoder.device)
        init, init_segment = None, -1
        for gop, data in self._store.fetch(plan.gops):
            if self._decoder.needs_init and gop.segment != init_segment:
                init, init_segment = self._store.init(gop), gop.segment
            pattern = self._patterns[self.manifest.gops.pattern[gop.gop]]
            try:
                self._decoder.decode(GopRequest(config, pattern, data, init, gop.frames, gop.rows), out)
            except (CorruptDataError, DecodeError) as error:
                raise self._store.located(error, gop) from error
        for row, decoded in plan.repeats:
            copy_frame(out[decoded], out[row])
        return out

    def timeline(self, video: VideoRow) -> Array:
        """For each frame of a video the pts of the source frame that it shows: int64, (num_frames,)."""
        return open_timeline(self.dataset, self.snapshot, video.first_frame, video.first_frame + video.num_frames)

    def metadata(self, video: VideoRow) -> VideoMetadata:
        """What is known of a video without decoding it."""
        lengths = self.manifest.gops.length[video.first_gop : video.first_gop + video.num_gops]
        return video_metadata(video, self._configs[video.config], int(lengths.sum()))


def _reopen(dataset: Path, snapshot: str, decoder: str) -> SnapshotReader:
    return SnapshotReader(dataset, snapshot, decoder, open_manifest(dataset, snapshot))
