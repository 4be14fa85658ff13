"""Which videos of a dataset no GPU's decoder can read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...manifests.tables import Manifest
from ...prep.tools.nvdec_sizes import why_not_nvdec


@dataclass(frozen=True)
class NotForGpus:
    """How many videos NVDEC does not decode, and the reason for one of them. The CPU decodes them like all others."""

    videos: int
    why: str


NONE = NotForGpus(0, "")


def not_for_gpus(manifest: Manifest) -> NotForGpus:
    """The videos whose size is below or above what NVDEC decodes of their codec."""
    videos_of = np.bincount(manifest.videos.config, minlength=len(manifest.configs))
    count, first = 0, ""
    for number in range(len(manifest.configs)):
        config = manifest.config(number)
        why = why_not_nvdec(config.codec, config.width, config.height)
        if why is not None:
            count += int(videos_of[number])
            first = first or why
    return NotForGpus(count, first)
