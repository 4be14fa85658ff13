"""The ffmpeg command line, as a function of what is to be done."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shortgop.errors import EncodeError
from shortgop.prep.command import Encode, encode_argv
from shortgop.prep.kept_frames.kept import Kept
from shortgop.prep.probing.source_video import SourceVideo
from shortgop.prep.profile import ENCODERS, Profile, changed_profile
from shortgop.prep.timing.grid import TickRule
from shortgop.prep.tools.pipelines import Pipeline

SOURCE = SourceVideo(
    path="clip.mp4", stream_index=1, codec="h264", width=1280, height=720, sample_aspect_ratio=Fraction(1),
    rotation=0, primaries=1, transfer=1, matrix=1, timebase=Fraction(1, 90000), pts=np.arange(3), end_pts=3,
    rate_hints=(Fraction(30),),
)  # fmt: skip
RULE = TickRule(Fraction(1, 90000), Fraction(30000, 1001), 0, Fraction(1, 60))
ENCODE = Encode(SOURCE, RULE, 90, 1280, 720, Profile(), Pipeline())


def value_of(option: str, encode: Encode = ENCODE) -> str:
    argv = encode_argv(encode, "pipe:9")
    return argv[argv.index(option) + 1]


def test_a_pixel_too_many_is_cut_off_rather_than_scaled_away() -> None:
    odd = replace(ENCODE, source=replace(SOURCE, width=1281), width=1280)
    assert "crop=1280:720:0:0:exact=1" in value_of("-vf", odd)
    assert "crop" not in value_of("-vf")


@pytest.mark.parametrize(
    ("fps", "timescale", "frame_ticks"), [(Fraction(30000, 1001), 30000, 1001), (Fraction(25), 10000, 400)]
)
def test_a_frame_is_a_whole_number_of_ticks(fps: Fraction, timescale: int, frame_ticks: int) -> None:
    encode = replace(ENCODE, rule=replace(RULE, fps=fps))
    assert (encode.timescale, encode.frame_ticks) == (timescale, frame_ticks)


def test_a_source_with_too_many_damaged_places_is_an_error_that_names_it() -> None:
    def with_runs(count: int) -> Encode:
        return replace(ENCODE, kept=Kept("pts", tuple((10**6 + 2 * run, 10**6 + 2 * run) for run in range(count))))

    assert value_of("-vf", with_runs(4000)).count("between") == 4000
    with pytest.raises(EncodeError, match=r"clip\.mp4 has too many damaged places, .*; remux or re-encode"):
        encode_argv(with_runs(6000), "pipe:9")


def test_segments_are_whole_gops_of_about_the_length_asked_for() -> None:
    assert ENCODE.segment_gops == 19
    assert replace(ENCODE, profile=Profile(segment_seconds=Fraction(1, 100))).segment_gops == 1


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
def test_every_encoder_is_told_to_close_its_gops_and_refer_to_no_b_frame(encoder: str) -> None:
    between = 1 if ENCODERS[encoder] == "av1" else 2
    profile = changed_profile(
        None, {"encoder": encoder, "codec": ENCODERS[encoder], "gop_frames": 12, "b_frames": between}
    )
    text = " ".join(
        encode_argv(
            replace(ENCODE, profile=profile, pipeline=Pipeline(encoder=encoder, b_frames=profile.b_frames)), "pipe:9"
        )
    )
    unreferenced = {
        "libx264": "open-gop=0:b-pyramid=none:b-adapt=0",
        "libx265": "open-gop=0:bframes=2:b-pyramid=0:b-adapt=0",
        "h264_nvenc": "-no-scenecut 1 -b_adapt 0 -forced-idr 1 -strict_gop 1 -bf 2 -b_ref_mode disabled",
        "hevc_nvenc": "-no-scenecut 1 -b_adapt 0 -forced-idr 1 -strict_gop 1 -bf 2 -b_ref_mode disabled",
        "libsvtav1": "lp=1:hierarchical-levels=4",
        "av1_nvenc": "-no-scenecut 1 -b_adapt 0 -forced-idr 1 -strict_gop 1 -bf 0 -b_ref_mode disabled",
    }
    assert unreferenced[encoder] in text
    assert "keyint=12:min-keyint=12" in text or "-g 12 -force_key_frames expr:eq(mod(n,12),0)" in text


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
def test_fastdecode_is_what_the_encoder_has_for_it(encoder: str) -> None:
    profile = changed_profile(None, {"encoder": encoder, "codec": ENCODERS[encoder], "fastdecode": True})
    plain = encode_argv(
        replace(
            ENCODE,
            profile=replace(profile, fastdecode=False),
            pipeline=Pipeline(encoder=encoder, b_frames=profile.b_frames),
        ),
        "pipe:9",
    )
    fast = encode_argv(
        replace(ENCODE, profile=profile, pipeline=Pipeline(encoder=encoder, b_frames=profile.b_frames)), "pipe:9"
    )
    added = {
        "h264_nvenc": ["-coder", "cavlc"],
        "hevc_nvenc": [],
        "libx264": ["open-gop=0:b-pyramid=none:b-adapt=0:no-deblock=1:no-cabac=1"],
        "libx265": ["-tune", "fastdecode"],
        "libsvtav1": [
            "lp=1:hierarchical-levels=4:enable-dlf=0:enable-cdef=0:enable-restoration=0",
        ],
        "av1_nvenc": [],
    }[encoder]
    assert [word for word in fast if word not in plain] == added
    assert len(fast) - len(plain) == (0 if encoder in {"libx264", "libsvtav1"} else len(added))


def test_the_stream_the_count_and_the_colours_are_those_of_the_plan() -> None:
    assert value_of("-map") == "0:1"
    assert value_of("-frames:v") == "90"
    assert (value_of("-colorspace"), value_of("-color_primaries"), value_of("-color_trc")) == ("1", "1", "1")
    assert value_of("-color_range") == "tv"


def test_a_file_whose_name_looks_like_an_option_or_a_protocol_is_still_a_file() -> None:
    encode = replace(ENCODE, source=replace(SOURCE, path="-vcodec:x.mp4"))
    assert value_of("-i", encode) == "file:-vcodec:x.mp4"
