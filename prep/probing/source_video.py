"""What is known of a source's video before it is encoded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from ...manifests.ragged import Array
from .containers.container_crop import ContainerCrop
from .containers.track_cut import NO_CUT, Cut
from .picture_properties import PLAIN_PICTURE, SourcePicture
from .recordings import period_of

EMPTY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class SourceVideo:
    """The video stream of a source that prep encodes. Arrays are int64, and empty where there is nothing of their kind.

    What it is:

    - `demuxer`: FFmpeg's name for the format; with "" ffmpeg detects it.
    - `width`, `height`: of the coded pictures after the container's `crop`, before `rotation` (degrees, a multiple of
      90) and `sample_aspect_ratio`. `primaries`, `transfer`, `matrix`: code points of ISO/IEC 23091-2.
    - `suspicion`: a sign of damage, "" if there is none. `is_cut_off`: the file ends before the end that it states.
      `is_by_fragment`: FFmpeg reads fragments of an MP4 one after the other, as the last one has no whole index.
    - `num_packets`: how many packets have frames that are shown. `places`: where it is probed by the index, a row (pts,
      position, bytes) for each packet, in decode order.

    When its frames are shown, in units of `timebase` seconds:

    - `pts`: of every frame, strictly rising; None when the container does not state them, so that the source has to be
      decoded. `end_pts`: where the last frame ends. `rate_hints`: the rates that the container states.
    - `entries`: those of frames that are shown, rising; a decoder that starts at one of them shows all later frames as
      they were encoded.
    - `not_coded`: those of packets of which FFmpeg shows nothing: the frame before is to be shown again.

    Where packets do not simply say that:

    - `has_decode_times`: although there are B-frames, pts rise in the order of decoding, so that no pts is that of its
      own frame. `decode_times`: the times of frames, rising, if they are those of decoding; none where there are no
      B-frames. `pts_falls`: how often the pts of packets do not rise in the order of decoding.
    - `has_unknown_delay`: H.264 that does not say how many frames a decoder has to hold back for its B-frames. FFmpeg
      then finds out as it goes, and leaves out a frame each time that it was too few.
    - `begins_unmarked`: decoding of H.264 starts at a frame that nothing marks for that; ffmpeg is told to put out the
      frames that it takes for corrupt therefore. Known where it was scanned.
    - `repeats_times`: every packet states a time, and some the same one; ffmpeg is told to keep to these times.
    - `first_counted`: of a raw stream whose headers state several rates, by which pts are counted: the number of its
      first keyframe. None for others.
    - `has_guessed_rate`: it has neither times nor a rate, and pts are FFmpeg's guess. `estimated_times`: those of all
      frames, where it states the times of some only, and not the rate of the others, or is a copy of such a stream.
    - `arrivals`: the pts of packets, where these are the times at which frames arrived, several at once, and `pts` are
      evened. `is_joined`: recordings were joined in it, whose times start anew, in a container of which that is looked
      for.

    What edits of an MP4 do:

    - `has_hidden`: FFmpeg hides the frames of some packets.
    - `is_without_edits`: edits do not count, as they hide what is decoded first, or as FFmpeg shows parts at another
      speed than they say; of the frames in the order shown, those before the `cut` are left out in their place.
    - `in_pauses`: the numbers of the frames that FFmpeg shows in place of pauses or between the parts of edits, where
      pts are those of several edits; None where FFmpeg's own are right.
    """

    path: str
    stream_index: int
    codec: str
    width: int
    height: int
    sample_aspect_ratio: Fraction
    rotation: int
    primaries: int
    transfer: int
    matrix: int
    timebase: Fraction
    pts: Array | None
    end_pts: int
    rate_hints: tuple[Fraction, ...]
    num_packets: int = 0
    demuxer: str = ""
    suspicion: str = ""
    picture: SourcePicture = PLAIN_PICTURE
    crop: ContainerCrop | None = None
    entries: Array = field(default_factory=EMPTY.copy)
    places: Array = field(default_factory=EMPTY.copy)
    has_decode_times: bool = False
    decode_times: Array = field(default_factory=EMPTY.copy)
    pts_falls: int = 0
    not_coded: Array = field(default_factory=EMPTY.copy)
    is_cut_off: bool = False
    has_unknown_delay: bool = False
    begins_unmarked: bool = False
    repeats_times: bool = False
    is_without_edits: bool = False
    cut: Cut = NO_CUT
    is_by_fragment: bool = False
    has_hidden: bool = False
    in_pauses: Array | None = None
    first_counted: int | None = None
    has_guessed_rate: bool = False
    estimated_times: Array = field(default_factory=EMPTY.copy)
    arrivals: Array = field(default_factory=EMPTY.copy)
    is_joined: bool = False

    @property
    def period(self) -> int | None:
        """After how many units its times begin anew; None if they do not."""
        return period_of(self.demuxer)

    @property
    def has_bursts(self) -> bool:
        """Whether frames arrived several at once, and are put at even times."""
        return len(self.arrivals) > 0

    @property
    def coded_size(self) -> tuple[int, int]:
        """Width and height of the decoded pictures."""
        return (self.crop.coded_width, self.crop.coded_height) if self.crop else (self.width, self.height)


def with_pts(source: SourceVideo, pts: Array, last_duration: int = 0) -> SourceVideo:
    """The source with its frames at `pts`. The last frame lasts `last_duration` or, where that is 0, the median
    interval."""
    if not last_duration:
        rate = source.rate_hints[0] if source.rate_hints else Fraction(25)
        last_duration = int(np.median(np.diff(pts))) if len(pts) > 1 else max(1, round(1 / (rate * source.timebase)))
    return replace(source, pts=pts, end_pts=int(pts[-1]) + last_duration)
