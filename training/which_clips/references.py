"""Which frames of a video others refer to, counted from the manifest's patterns, without a list of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...manifests.ragged import Array, offsets_of
from ...manifests.tables import Manifest


@dataclass(frozen=True, eq=False)
class ReferencedFrames:
    """The frames that other frames refer to.

    `before[p, k]` is how many of the first k frames of a GOP of pattern p, in the order they are shown, are referred
    to; behind the end of a GOP it stays the same. The rest are columns of the manifest.
    """

    before: Array
    patterns: Array
    first_gops: Array
    gop_frames: Array

    @staticmethod
    def of(manifest: Manifest) -> ReferencedFrames:
        frames, referenced = manifest.patterns.frames, manifest.patterns.referenced
        longest = max((len(frames.row(row)) for row in range(len(frames))), default=0)
        shown = np.zeros((len(frames), longest + 1), dtype=np.int64)
        for row in range(len(frames)):
            shown[row, frames.row(row) + 1] = referenced.row(row)
        return ReferencedFrames(
            shown.cumsum(axis=1), manifest.gops.pattern, manifest.first_gops, manifest.videos.gop_frames
        )

    def counts(self, videos: Array, stops: Array) -> Array:
        """How many frames before frame `stop` of each of these videos are referred to: int64, (videos,).

        A stop is at most the number of frames of its video.
        """
        totals = offsets_of(self.before[self.patterns, -1])
        whole, part = np.divmod(stops, self.gop_frames[videos].astype(np.int64))
        first = self.first_gops[videos]
        # Where a stop is at the end of a GOP, nothing is taken of the next one, which need not exist.
        cut = np.minimum(first + whole, max(0, len(self.patterns) - 1))
        within = self.before[self.patterns[cut], part] if len(self.patterns) else 0
        return np.asarray(totals[first + whole] - totals[first] + within, dtype=np.int64)

    def count(self, video: int, stop: int) -> int:
        """The same for one video, from its own GOPs alone."""
        whole, part = divmod(stop, int(self.gop_frames[video]))
        patterns = self.patterns[self.first_gops[video] : self.first_gops[video + 1]]
        within = int(self.before[patterns[whole], part]) if part else 0
        return int(self.before[patterns[:whole], -1].sum()) + within

    def frame(self, video: int, number: int) -> int:
        """The frame of a video that is its referenced one of this number, counted from 0."""
        patterns = self.patterns[self.first_gops[video] : self.first_gops[video + 1]]
        totals = np.cumsum(self.before[patterns, -1])
        gop = int(np.searchsorted(totals, number, side="right"))
        rest = number - int(totals[gop - 1]) if gop else number
        within = int(np.searchsorted(self.before[patterns[gop]], rest + 1)) - 1
        return gop * int(self.gop_frames[video]) + within
