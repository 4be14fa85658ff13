"""What a GOP's bytes must look like, and the pattern of its samples.

Prep checks segments with it to make sure that ffmpeg did what it was asked to do. `shortgop verify` checks them again.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..errors import CorruptDataError
from ..wording import counted
from .mp4 import Buffer, Fragment, parse_fragment
from .records import CodecConfig, Pattern
from .unit_kinds import access_unit_kinds


def frame_ticks(timescale: int, fps: Fraction) -> int:
    """Duration of a frame in ticks. CorruptDataError if it is not a whole number."""
    ticks = timescale / fps
    if ticks.denominator != 1:
        raise CorruptDataError(f"a frame at {fps} frames/s does not last a whole number of ticks of 1/{timescale} s")
    return ticks.numerator


def check_gop(
    data: Buffer,
    *,
    config: CodecConfig,
    num_frames: int,
    decode_ticks: int,
    media_time_ticks: int,
    frame_ticks: int,
) -> tuple[Fragment, Pattern]:
    """Parse the fragment of one GOP and check that it is what the format requires.

    The format requires `num_frames` samples, an IDR (in AV1 a key frame) as the first sample and nowhere else, decode
    times from `decode_ticks` in steps of `frame_ticks`, and presentation times that are a permutation of those of the
    GOP's own frames. Returns the sample table and the pattern. CorruptDataError says what is wrong.
    """
    fragment = parse_fragment(data)
    if len(fragment) != num_frames:
        raise CorruptDataError(f"the GOP has {counted(len(fragment), 'frame')}, not {num_frames} as planned")
    if fragment.decode_ticks != decode_ticks:
        raise CorruptDataError(f"the GOP starts at tick {fragment.decode_ticks}, not {decode_ticks} as planned")
    # The last sample's duration is the muxer's guess: nothing follows it, so nothing depends on it.
    if (fragment.duration_ticks[:-1] != frame_ticks).any():
        raise CorruptDataError(f"the GOP's frames do not last {frame_ticks} ticks each")
    shown = fragment.pts_ticks - (decode_ticks + media_time_ticks)
    frames, rest = np.divmod(shown, frame_ticks)
    if rest.any() or not np.array_equal(np.sort(frames), np.arange(num_frames)):
        raise CorruptDataError("the presentation times are not those of the GOP's own frames: the GOP is not closed")
    kind_of = access_unit_kinds(config.codec, config.extradata)
    kinds = [
        kind_of(data, offset, offset + size)
        for offset, size in zip(fragment.offsets.tolist(), fragment.sizes.tolist(), strict=True)
    ]
    if not kinds[0][0] or frames[0] != 0:
        raise CorruptDataError("the GOP does not start with an IDR that shows its first frame")
    if any(idr for idr, _ in kinds[1:]):
        raise CorruptDataError("the GOP has an IDR after its first sample")
    return fragment, Pattern(tuple(frames.tolist()), tuple(referenced for _, referenced in kinds))
