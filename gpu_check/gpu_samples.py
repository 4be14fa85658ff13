"""The sample datasets of the checks, whose frames show their numbers: `gpu_samples.py FOLDER` makes them.

They are encoded on the CPU, so that what a GPU decodes does not depend on what it encodes. `make gpu-wheels` makes them
where there is an ffmpeg; on a machine without one they come with the wheels.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import synthetic

RATE = Fraction(30)
GOP_FRAMES = 16
# Width, height and number of frames. Lines of 456 bytes are not aligned; 530 and 532 lines have the same coded height
# in macroblocks; the last GOP is short.
VIDEOS = {"a.mp4": (640, 360, 100), "b.mp4": (960, 530, 40), "c.mp4": (960, 532, 40), "d.mp4": (456, 256, 100)}
# Video v shows the numbers from 1000 * v on.
FIRST_NUMBERS = 1000
ENCODERS = {"h264": "libx264", "hevc": "libx265"}
# In ISO/IEC 23091-2. Untagged colours would leave a choice to each decoder.
BT709 = 1
MADE = "made"


def make_samples(
    folder: Path,
    videos: Mapping[str, tuple[int, int, int]] = VIDEOS,
    encoders: Mapping[str, str] = ENCODERS,
) -> None:
    """Write a dataset for each codec below `folder`, from the same videos. ToolError without an ffmpeg."""
    # Every check imports this module, and few make samples: a tenth of what a check takes to start.
    from shortgop.jobs.prepare import Where, prepare
    from shortgop.prep.profile import Profile
    from shortgop.storage.disk import DiskStorage

    with tempfile.TemporaryDirectory() as sources:
        for number, (name, (width, height, frames)) in enumerate(videos.items()):
            pts = synthetic.constant_rate_pts(RATE, frames)
            synthetic.make_video(
                Path(sources, name),
                pts=pts,
                timebase=1 / RATE,
                size=(width, height),
                first_number=FIRST_NUMBERS * number,
                colorspace=BT709,
                color_primaries=BT709,
                color_trc=BT709,
            )
        for codec, encoder in encoders.items():
            profile = Profile(codec=codec, encoder=encoder, gop_frames=GOP_FRAMES, segment_seconds=Fraction(2))
            report = prepare([sources], DiskStorage(folder / codec), profile, where=Where(runner="inline"))
            if report.failures:
                raise RuntimeError(f"the samples were not made: {report.failures}")
    (folder / MADE).touch()


if __name__ == "__main__":
    make_samples(Path(sys.argv[1]))
