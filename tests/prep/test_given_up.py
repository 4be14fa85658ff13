"""What a video has not of its source: short texts, always the same for the same loss."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shortgop.prep.given_up import given_up
from shortgop.prep.probing.picture_properties import Fields, SourcePicture
from shortgop.prep.probing.source_video import SourceVideo
from shortgop.prep.profile import Profile, Size

SOURCE = SourceVideo(
    path="clip.mp4", stream_index=0, codec="h264", width=1280, height=720, sample_aspect_ratio=Fraction(1),
    rotation=0, primaries=1, transfer=1, matrix=1, timebase=Fraction(1, 90000), pts=np.arange(3), end_pts=3,
    rate_hints=(Fraction(30),),
)  # fmt: skip
LARGER = "incoming frame - w: 1920 h: 1080 fmt: 0 csp: bt709 range: tv alpha: unspecified"
DEEPER = "incoming frame - w: 1280 h: 720 fmt: 62 csp: bt709 range: tv alpha: unspecified"


@pytest.mark.parametrize(
    ("source", "picture", "profile", "expected"),
    [
        ({}, {}, {}, ()),
        ({"width": 1281}, {}, {}, ()),
        ({"rotation": 90}, {"mirrored": True}, {}, ()),
        ({}, {}, {"size": Size(short_side=256)}, ("scaled",)),
        ({}, {}, {"size": Size(short_side=720)}, ()),
        ({}, {}, {"size": Size(exact=(640, 640))}, ("scaled",)),
        ({}, {}, {"size": Size(exact=(640, 640)), "fit": "pad"}, ("scaled",)),
        ({}, {}, {"size": Size(exact=(1280, 1280)), "fit": "pad"}, ()),
        ({}, {}, {"size": Size(exact=(640, 640)), "fit": "crop"}, ("cropped", "scaled")),
        ({}, {}, {"size": Size(exact=(720, 720)), "fit": "crop"}, ("cropped",)),
        ({}, {}, {"size": Size(exact=(640, 640)), "fit": "stretch"}, ("stretched", "scaled")),
        ({}, {}, {"size": Size(exact=(640, 360)), "fit": "stretch"}, ("scaled",)),
        ({"sample_aspect_ratio": Fraction(4, 3)}, {}, {}, ("scaled",)),
        ({"sample_aspect_ratio": Fraction(4, 3), "rotation": 90}, {}, {}, ("scaled",)),
        ({"width": 8192, "height": 64}, {}, {"size": Size(short_side=2)}, ("scaled",)),
        ({}, {"fields": Fields.FLAGGED}, {}, ("deinterlaced",)),
        ({}, {"fields": Fields.FLAGGED}, {"deinterlace": "never"}, ()),
        ({"width": 2, "height": 2}, {"fields": Fields.TOP_FIRST}, {}, ()),
        ({"transfer": 16, "primaries": 9, "matrix": 9}, {"bits": 10}, {}, ("tone-mapped", "10 bits to 8")),
        ({"transfer": 18}, {}, {}, ("tone-mapped",)),
        ({}, {"bits": 12, "chroma": "4:2:2"}, {}, ("12 bits to 8", "chroma 4:2:2 to 4:2:0")),
        ({}, {"alpha": True, "chroma": "RGB"}, {}, ("alpha over black", "RGB to 4:2:0")),
        ({}, {"chroma": "gray"}, {}, ()),
        ({}, {"full_range": True}, {}, ("full range to limited",)),
        ({}, {"full_range": True, "chroma": "RGB"}, {}, ("RGB to 4:2:0",)),
        ({}, {"tags": ("stereo 3D",), "left_behind": ("audio", "data")}, {},
         ("stereo 3D tag dropped", "audio dropped", "data dropped")),
    ],
)  # fmt: skip
def test_what_is_lost_is_told(
    source: dict[str, Any], picture: dict[str, Any], profile: dict[str, Any], expected: tuple[str, ...]
) -> None:
    made = replace(SOURCE, picture=SourcePicture(**picture), **source)
    assert given_up(made, Profile(**profile)) == expected


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([LARGER], ("resolution changes: scaled to the first frame's",)),
        ([DEEPER, LARGER], ("resolution changes: scaled to the first frame's",)),
        ([DEEPER], ("pixels change: converted to the first frame's",)),
        # As FFmpeg 6 writes it.
        (["incoming frame - w: 640 h: 480 fmt: 0"], ("resolution changes: scaled to the first frame's",)),
    ],
)
def test_changes_in_mid_stream_are_told(reports: list[str], expected: tuple[str, ...]) -> None:
    assert given_up(SOURCE, Profile(), reports) == expected
