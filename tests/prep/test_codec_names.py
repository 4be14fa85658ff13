"""What decodes a source depends on its codec alone, whichever decoder PyAV takes to look at it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_reports import H100, L4
from odd_pictures import encode_pictures, numbered
from shortgop.prep.command import encode_argv
from shortgop.prep.encode import plan_video
from shortgop.prep.options import Options
from shortgop.prep.probing.probe import probe
from shortgop.prep.profile import Profile, Size
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.tools.pipelines import Pipeline, choose_pipeline, decoded_by_nvdec

SMALL = Profile(size=Size(short_side=128))


def made(path: Path, encoder: str) -> Path:
    """A source that a program encodes: SVT-AV1 within the process of the tests would give that a real-time priority."""
    coded = ("-cpu-used", "8") if encoder == "libaom-av1" else ()
    options = ("-c:v", encoder, *coded, "-pix_fmt", "yuv420p")
    return encode_pictures(path, numbered(range(12), (192, 144)), *options, rate=10)


@pytest.mark.parametrize(
    ("name", "encoder", "codec"),
    [
        ("a.mp4", "libaom-av1", "av1"),
        ("a.mkv", "libaom-av1", "av1"),
        ("a.webm", "libvpx-vp9", "vp9"),
        ("a.webm", "libvpx", "vp8"),
        ("a.mp4", "libx265", "hevc"),
    ],
)
def test_a_source_has_its_codecs_name(name: str, encoder: str, codec: str, tmp_path: Path) -> None:
    assert probe(str(made(tmp_path / name, encoder))).codec == codec


@pytest.mark.parametrize(("name", "encoder"), [("a.mp4", "libaom-av1"), ("a.webm", "libvpx-vp9")])
def test_av1_and_vp9_are_decoded_by_nvdec_whole_and_in_sections(name: str, encoder: str, tmp_path: Path) -> None:
    source = probe(str(made(tmp_path / name, encoder)))
    assert choose_pipeline(L4, source, SMALL).decoding == "nvdec"
    assert decoded_by_nvdec(Pipeline(), L4, source).decoding == "nvdec"


def test_av1_that_a_chip_does_not_decode_is_decoded_on_the_cpu(tmp_path: Path) -> None:
    source = probe(str(made(tmp_path / "a.mp4", "libaom-av1")))
    assert choose_pipeline(H100, source, SMALL).why.endswith("decoding: av1: not supported")


def test_of_av1_ffmpeg_takes_the_decoder_that_has_nvdec(tmp_path: Path) -> None:
    """FFmpeg takes libdav1d otherwise. With -hwaccel cuda it looks for a decoder that has it, unless one is named."""
    source = probe(str(made(tmp_path / "a.mp4", "libaom-av1")))
    encode = plan_video(source, Options(SMALL), find_ffmpeg().path).encode
    argv = encode_argv(replace(encode, pipeline=choose_pipeline(L4, source, SMALL)), "stats")
    options = argv[: argv.index("-i")]
    assert options[options.index("-hwaccel") + 1] == "cuda"
    assert not [word for word in options if word.startswith(("-c:", "-codec"))]
