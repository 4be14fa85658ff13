"""What size a video gets: at most what was asked for, in the shape of its source, and one that can be encoded."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, numbered
from shortgop import EncodeError
from shortgop.prep.pictures.sizes import ENCODER_LIMITS, check_taken, picture_layout, takes
from shortgop.prep.probing.source_video import SourceVideo
from shortgop.prep.profile import ENCODERS, FITS, MAX_SIDE, Profile, Size, changed_profile
from synthetic import read_number

SOURCE = SourceVideo(
    path="clip.mp4", stream_index=0, codec="h264", width=1280, height=720, sample_aspect_ratio=Fraction(1),
    rotation=0, primaries=1, transfer=1, matrix=1, timebase=Fraction(1, 90000), pts=np.arange(3), end_pts=3,
    rate_hints=(Fraction(30),),
)  # fmt: skip
PAL = {"width": 720, "height": 576, "sample_aspect_ratio": Fraction(16, 15)}


def size_of(source: dict[str, Any], size: Size, **options: Any) -> tuple[int, int]:
    layout = picture_layout(replace(SOURCE, **source), Profile(size=size, **options))
    return layout.width, layout.height


@pytest.mark.parametrize(
    ("source", "size", "expected"),
    [
        ({}, Size(), (1280, 720)),
        ({}, Size(short_side=256), (456, 256)),
        ({"rotation": 90}, Size(), (720, 1280)),
        ({"rotation": 270}, Size(short_side=256), (256, 456)),
        ({"rotation": 180}, Size(), (1280, 720)),
        ({"width": 1279, "height": 719}, Size(), (1278, 718)),
        ({"width": 1279, "height": 719}, Size(short_side=1080), (1278, 718)),
        (PAL, Size(), (768, 576)),
        (PAL, Size(short_side=288), (384, 288)),
        (PAL | {"rotation": 90}, Size(short_side=288), (288, 384)),
        ({"width": 1, "height": 1}, Size(), (2, 2)),
        # Asked for more than there is.
        ({"width": 2, "height": 2}, Size(short_side=256), (2, 2)),
        ({"width": 8192, "height": 64}, Size(short_side=256), (8192, 64)),
        ({"width": 320, "height": 240}, Size(exact=(640, 480)), (320, 240)),
        # A width and a height: within them.
        ({}, Size(exact=(320, 320)), (320, 180)),
        ({"rotation": 90}, Size(exact=(320, 320)), (180, 320)),
        (PAL, Size(exact=(384, 384)), (384, 288)),
        # Larger than any encoder takes.
        ({"width": 20000, "height": 200}, Size(), (16384, 164)),
        ({"width": 16000, "height": 16000}, Size(), (11580, 11580)),
        ({"sample_aspect_ratio": Fraction(100)}, Size(), (16384, 92)),
    ],
)
def test_sizes_are_even_upright_square_and_at_most_those_asked_for(
    source: dict[str, Any], size: Size, expected: tuple[int, int]
) -> None:
    assert size_of(source, size) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fit": "within"}, (400, 224)),
        ({"fit": "pad"}, (400, 300)),
        ({"fit": "crop"}, (400, 300)),
        ({"fit": "stretch"}, (400, 300)),
    ],
    ids=str,
)
def test_each_way_to_bring_a_picture_into_a_width_and_a_height(
    options: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert size_of({}, Size(exact=(400, 300)), **options) == expected
    # A smaller picture stays as large as it is, but for the black around it, unless it may be enlarged.
    tiny = {"width": 64, "height": 36}
    unscaled = {"within": (64, 36), "pad": (400, 300), "crop": (64, 36), "stretch": (64, 36)}[options["fit"]]
    assert size_of(tiny, Size(exact=(400, 300)), **options) == unscaled
    assert size_of(tiny, Size(exact=(400, 300)), upscale=True, **options) == expected


def test_upscaling_makes_the_short_side_what_was_asked_for() -> None:
    assert size_of({"width": 2, "height": 2}, Size(short_side=256), upscale=True) == (256, 256)
    assert size_of({"width": 320, "height": 180}, Size(short_side=256), upscale=True) == (456, 256)
    # Not past what can be encoded.
    assert size_of({"width": 8192, "height": 64}, Size(short_side=256), upscale=True) == (16384, 128)


even = st.integers(1, MAX_SIDE // 2).map(lambda side: 2 * side)
sources = st.builds(
    lambda width, height, aspect, rotation: replace(
        SOURCE, width=width, height=height, sample_aspect_ratio=aspect, rotation=rotation
    ),
    width=st.integers(1, 40_000),
    height=st.integers(1, 40_000),
    aspect=st.just(Fraction(1)) | st.fractions(Fraction(1, 8), 8, max_denominator=99),
    rotation=st.sampled_from([0, 90, 180, 270]),
)
sizes = st.one_of(
    st.just(Size()),
    st.builds(lambda side: Size(short_side=side), even),
    st.builds(lambda width, height: Size(exact=(width, height)), even, even),
)


@given(sources, sizes, st.sampled_from(FITS), st.booleans())
def test_any_size_is_even_no_larger_than_asked_for_and_of_its_sources_shape(
    source: SourceVideo, size: Size, fit: str, upscale: bool
) -> None:
    layout = picture_layout(source, Profile(size=size, fit=fit, upscale=upscale))
    shape = [source.width * source.sample_aspect_ratio, Fraction(source.height)]
    if source.rotation in (90, 270):
        shape.reverse()
    for side in (layout.width, layout.height, *layout.scaled):
        assert side in range(2, MAX_SIDE + 1, 2)
    width, height = layout.scaled
    if size.exact is None:
        assert takes("libx264", layout)
    if size.short_side:
        assert min(width, height) <= size.short_side
    if size.exact:
        assert layout.width <= size.exact[0]
        assert layout.height <= size.exact[1]
    if not upscale:
        assert width <= max(Fraction(2), shape[0])
        assert height <= max(Fraction(2), shape[1])
    if size.exact is None or fit in ("within", "pad"):
        # Both sides are scaled alike, but for a pixel or two of rounding and the least side of two pixels.
        scales = [(width - 2) / shape[0], (height - 2) / shape[1]]
        assert max(scales) <= min((width + 2) / shape[0], (height + 2) / shape[1])
    assert all(0 < kept <= whole for kept, whole in zip(layout.cut, layout.upright, strict=True))
    assert all(at % 2 == 0 for at in (*layout.cut_at, *layout.pad_at))
    assert all(at + kept <= whole for at, kept, whole in zip(layout.cut_at, layout.cut, layout.upright, strict=True))
    assert layout.pad_at[0] + width <= layout.width
    assert layout.pad_at[1] + height <= layout.height


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
def test_a_size_that_an_encoder_does_not_take_is_refused_with_what_to_do(encoder: str) -> None:
    limits = ENCODER_LIMITS[encoder]
    profile = changed_profile(None, {"codec": ENCODERS[encoder], "encoder": encoder})
    padded = replace(profile, size=Size(exact=(16384, 16384)), fit="pad")
    for width, height, wanted in ((64, limits.min_height - 2, profile), (16384, 16384, padded)):
        source = replace(SOURCE, width=width, height=height or 1)
        layout = picture_layout(source, wanted)
        if takes(encoder, layout):
            assert (encoder, height) in {("libx264", 0), ("libsvtav1", 0)}
            continue
        with pytest.raises(EncodeError, match=rf"clip.mp4.*{width}x{height}.*{encoder}.*; choose"):
            check_taken(encoder, layout, source, wanted)


SHAPES = [(2, 2), (1, 1), (3, 3), (2, 640), (640, 2), (97, 65), (1999, 2), (16, 16)]


@pytest.mark.first_case_short
@pytest.mark.parametrize("fit", FITS)
def test_pictures_of_any_shape_are_encoded(fit: str, tmp_path: Path) -> None:
    sources = [
        encode_pictures(tmp_path / f"{width}x{height}.mkv", numbered(range(3), (width, height)), "-c:v", "ffv1")
        for width, height in SHAPES
    ]
    options = {"size": Size(exact=(64, 48)), "fit": fit}
    report = make_dataset(sources, tmp_path / "dataset", **options)
    assert report.failures == ()
    assert [len(video) for video in shortgop.open(tmp_path / "dataset")] == [3] * len(SHAPES)


def test_a_picture_too_small_for_hevc_is_refused_with_what_to_do(tmp_path: Path) -> None:
    source = encode_pictures(tmp_path / "x.mkv", numbered(range(2), (8, 8)), "-c:v", "ffv1")
    (failure,) = make_dataset([source], tmp_path / "dataset", codec="hevc", encoder="libx265").failures
    assert "x.mkv: its frames of 8x8" in failure.reason
    assert "--fit pad" in failure.reason


def test_padding_is_black_and_the_picture_in_the_middle_of_it(tmp_path: Path) -> None:
    white = [np.full((64, 96, 3), 255, np.uint8)] * 2
    source = encode_pictures(tmp_path / "x.mp4", white, "-pix_fmt", "yuv420p", *X264)
    make_dataset([source], tmp_path / "dataset", size=Size(exact=(96, 96)), fit="pad", crf=1)
    frame = shortgop.open(tmp_path / "dataset")[0][0].numpy().astype(int)
    assert frame.shape == (3, 96, 96)
    assert max(frame[:, :14].max(), frame[:, 82:].max()) <= 4
    assert frame[:, 18:78].min() >= 250


def test_a_crop_keeps_the_middle(tmp_path: Path) -> None:
    wide = [np.pad(picture, ((0, 0), (52, 52), (0, 0))) for picture in numbered(range(3))]
    source = encode_pictures(tmp_path / "x.mp4", wide, "-pix_fmt", "yuv420p", *X264)
    make_dataset([source], tmp_path / "dataset", size=Size(exact=(96, 64)), fit="crop")
    video = shortgop.open(tmp_path / "dataset")[0]
    assert [read_number(frame) for frame in video] == [0, 1, 2]
