"""The options for NVENC, against the option tables of the real ffmpeg: no GPU is needed to read these."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

from shortgop.prep.profile import ENCODERS, Profile, changed_profile
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.running.gpu_errors import NO_GPU
from shortgop.prep.tools.capability_trials import try_encoder
from shortgop.prep.tools.encoder_options import encoder_options, trial_options
from shortgop.prep.tools.pipelines import Pipeline

NVENC = ["h264_nvenc", "hevc_nvenc", "av1_nvenc"]
# Options of ffmpeg itself, and of every encoder of libavcodec.
GENERAL = {"-c:v", "-g", "-force_key_frames", "-bf", "-b:v", "-tag:v", "-bsf:v"}


@cache
def option_table(encoder: str) -> dict[str, tuple[str, tuple[float, float], frozenset[str]]]:
    """By option: its type, its range, and the names that it takes for values."""
    text = subprocess.run(
        [find_ffmpeg().path, "-hide_banner", "-h", f"encoder={encoder}"], capture_output=True, text=True, check=True
    ).stdout
    table: dict[str, tuple[str, tuple[float, float], frozenset[str]]] = {}
    option = ""
    for line in text.splitlines():
        if first := re.match(r"  (-\S+) +<(\w+)> ", line):
            option = first[1]
            limits = re.search(r"\(from (\S+) to ([^\s)]+)\)", line)
            low, high = (limits[1], limits[2]) if limits else ("0", "1")
            table[option] = (first[2], (float(low), float(high.replace("INT_MAX", "2147483647"))), frozenset())
        elif name := re.match(r"     (\S+) ", line):
            kind, limits_of, names = table[option]
            table[option] = (kind, limits_of, names | {name[1]})
    return table


def takes(encoder: str, option: str, value: str) -> bool:
    kind, (low, high), names = option_table(encoder)[option]
    if value in names:
        return True
    return kind in {"int", "float", "boolean"} and re.fullmatch(r"\d+", value) is not None and low <= int(value) <= high


def pairs(options: list[str]) -> dict[str, str]:
    return dict(zip(options[::2], options[1::2], strict=True))


@pytest.mark.parametrize("encoder", NVENC)
@pytest.mark.parametrize("fastdecode", [True, False])
@pytest.mark.parametrize("crf", [1, 23, 51])
@pytest.mark.parametrize("b_frames", [0, 1])
@pytest.mark.parametrize("preset", [None, "p1", "p7", "slow"])
def test_ffmpeg_has_every_option_and_takes_its_value(
    encoder: str, fastdecode: bool, crf: int, b_frames: int, preset: str | None
) -> None:
    profile = Profile(
        encoder=encoder, codec=ENCODERS[encoder], fastdecode=fastdecode, crf=crf, b_frames=b_frames, preset=preset
    )
    options = pairs(encoder_options(Pipeline(encoder=encoder, preset=preset, b_frames=b_frames), profile, [40]))
    wrong = {
        option: value
        for option, value in options.items()
        if option not in GENERAL and not takes(encoder, option, value)
    }
    assert wrong == {}


@pytest.mark.parametrize("encoder", NVENC)
def test_gops_are_closed_and_no_frame_refers_to_a_b_frame(encoder: str) -> None:
    options = pairs(trial_options(encoder, 3))
    wanted = {
        "-bf": "0" if encoder == "av1_nvenc" else "3", "-b_ref_mode": "disabled", "-strict_gop": "1",
        "-no-scenecut": "1", "-forced-idr": "1", "-b_adapt": "0", "-rc-lookahead": "0",
    }  # fmt: skip
    assert wanted.items() <= options.items()
    assert all(takes(encoder, option, value) for option, value in options.items() if option not in GENERAL)


@pytest.mark.parametrize("encoder", NVENC)
def test_keyframes_are_where_the_pieces_and_gops_start(encoder: str) -> None:
    profile = changed_profile(None, {"encoder": encoder, "codec": ENCODERS[encoder], "gop_frames": 8})
    options = pairs(encoder_options(Pipeline(encoder=encoder), profile, [12, 20]))
    assert (options["-g"], options["-force_key_frames"]) == ("8", "expr:eq(mod(n-(gte(n,12)*12),8),0)")


@pytest.mark.parametrize(("gop", "g", "b_frames"), [(1, "0", "0"), (2, "2", "0"), (4, "4", "2"), (5, "5", "3")])
def test_a_gop_is_longer_than_its_b_frames_in_a_row_and_one_frame_more(gop: int, g: str, b_frames: str) -> None:
    """NVENC refuses others. ffmpeg asks for keyframes alone with `-g 0`: with 1 the B-frames of NVENC's preset stay."""
    options = pairs(encoder_options(Pipeline(encoder="h264_nvenc", b_frames=3), Profile(gop_frames=gop), [40]))
    assert (options["-g"], options["-bf"]) == (g, b_frames)


@pytest.mark.parametrize(("crf", "cq"), [(23, "23"), (0, "1"), (51, "51")])
def test_quality_is_constant_and_never_left_to_nvenc(crf: int, cq: str) -> None:
    """With -cq 0 it would be."""
    options = pairs(encoder_options(Pipeline(encoder="h264_nvenc"), Profile(crf=crf), [8]))
    assert (options["-rc"], options["-cq"], options["-b:v"]) == ("vbr", cq, "0")


@pytest.mark.parametrize("encoder", NVENC)
def test_the_real_ffmpeg_starts_with_them_and_misses_only_the_gpu(encoder: str) -> None:
    trial = try_encoder(find_ffmpeg().path, encoder)
    assert trial.works or trial.detail == NO_GPU, "this test is for machines without a GPU, or with one that encodes"


def test_a_table_is_read_as_ffmpeg_prints_it() -> None:
    table = option_table("h264_nvenc")
    kind, limits, names = table["-cq"]
    assert (kind, limits, len(names)) == ("float", (0, 51), 0)
    assert table["-b_ref_mode"][2] == {"disabled", "each", "middle"}
    assert not takes("h264_nvenc", "-cq", "52")
    assert not takes("h264_nvenc", "-b_ref_mode", "all")
