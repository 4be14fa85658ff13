"""Which pipeline a source gets: a function of what runs on a machine, of the source, and of the options.

The reports are those of `gpu_reports`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_reports import CPU, H100, L4, NO_B_FRAMES, NO_ENGINE, NO_LIBRARY, OLD_DRIVER, REFUSED, TOO_OLD, TU117, report
from shortgop.errors import ToolError
from shortgop.prep.probing.containers.container_crop import ContainerCrop
from shortgop.prep.probing.picture_properties import Fields, SourcePicture
from shortgop.prep.probing.source_video import SourceVideo
from shortgop.prep.profile import Profile, Size
from shortgop.prep.running.gpu_errors import NO_GPU, cause_of, passes, wanted_driver
from shortgop.prep.tools.capabilities import Capabilities, Trial, gpu_rank
from shortgop.prep.tools.doctor import advice_of, choice_of
from shortgop.prep.tools.pipelines import Pipeline, choose_pipeline, decoded_by_nvdec, decoded_on_cpu, on_cpu

SOURCE = SourceVideo(
    path="clip.mp4", stream_index=0, codec="h264", width=1280, height=720, sample_aspect_ratio=Fraction(1),
    rotation=0, primaries=1, transfer=1, matrix=1, timebase=Fraction(1, 90000), pts=np.arange(3), end_pts=3,
    rate_hints=(Fraction(30),),
)  # fmt: skip
SMALL = Profile(size=Size(short_side=256))


def steps(pipeline: Pipeline) -> tuple[str, str, str, bool]:
    return pipeline.decoding, pipeline.scaling, pipeline.encoder, pipeline.downloads


@pytest.mark.parametrize(
    ("machine", "expected", "why"),
    [
        (L4, ("nvdec", "scale_cuda", "h264_nvenc", False), "all of it runs here"),
        (H100, ("nvdec", "scale_cuda", "libx264", True), "h264_nvenc: this GPU has no such encoder"),
        (OLD_DRIVER, ("nvdec", "scale_cuda", "libx264", True), f"h264_nvenc: {TOO_OLD}"),
        (CPU, ("software", "software", "libx264", False), NO_GPU),
    ],
    ids=["L4", "H100", "old-driver", "cpu"],
)  # fmt: skip
def test_each_machine_does_on_its_gpu_what_runs_there(
    machine: Capabilities, expected: tuple[str, str, str, bool], why: str
) -> None:
    pipeline = choose_pipeline(machine, SOURCE, SMALL)
    assert (steps(pipeline), pipeline.why) == (expected, why)


def test_a_chip_without_b_frames_encodes_without() -> None:
    pipeline = choose_pipeline(TU117, SOURCE, Profile(codec="hevc"))
    assert (pipeline.encoder, pipeline.b_frames) == ("hevc_nvenc", 0)
    assert choose_pipeline(L4, SOURCE, Profile(b_frames=2)).b_frames == 2


@pytest.mark.parametrize(
    ("change", "picture", "why"),
    [
        ({"rotation": 90}, {}, "rotated"),
        ({}, {"mirrored": True}, "rotated"),
        ({}, {"full_range": True}, "full range"),
        ({"width": 1281}, {}, "cropped"),
        ({"matrix": 0}, {}, "RGB"),
        ({"sample_aspect_ratio": Fraction(1, 2)}, {}, "one side alone shrinks"),
        ({"codec": "hevc", "transfer": 16}, {"bits": 10}, "tone mapping"),
        ({"codec": "hevc"}, {"bits": 10}, "10 bits"),
    ],
)
def test_what_the_gpus_filters_lack_is_scaled_on_the_cpu_and_still_decoded_on_the_gpu(
    change: dict[str, Any], picture: dict[str, Any], why: str
) -> None:
    of_source_size = not change.keys().isdisjoint({"width", "sample_aspect_ratio"})
    profile = Profile(size=Size() if of_source_size else Size(short_side=256))
    pipeline = choose_pipeline(L4, replace(SOURCE, picture=SourcePicture(**picture), **change), profile)
    assert steps(pipeline) == ("nvdec", "software", "h264_nvenc", False)
    assert pipeline.why == f"scaling: {why}"


@pytest.mark.parametrize(
    ("change", "picture", "why"),
    [
        ({}, {"fields": Fields.FLAGGED}, "interlaced"),
        ({}, {"alpha_layer": True}, "alpha"),
        ({"codec": "vp9"}, {"decoder": "libvpx-vp9"}, "alpha"),
        ({"crop": ContainerCrop(1280, 736, 0, 8, 1280, 720)}, {}, "cropped by its container"),
        ({}, {"film_grain": True}, "film grain"),
        ({}, {"chroma": "4:2:2"}, "8 bits of 4:2:2 in h264"),
        ({}, {"bits": 10}, "10 bits of 4:2:0 in h264"),
        ({"codec": "prores"}, {}, "8 bits of 4:2:0 in prores"),
        ({"codec": "av1"}, {}, "av1: not supported"),
        ({"width": 32, "height": 32}, {}, "h264 of 32x32 is below 48x16"),
    ],
)
def test_what_nvdec_lacks_is_decoded_on_the_cpu(change: dict[str, Any], picture: dict[str, Any], why: str) -> None:
    pipeline = choose_pipeline(H100, replace(SOURCE, picture=SourcePicture(**picture), **change), SMALL)
    assert steps(pipeline) == ("software", "software", "libx264", False)
    assert pipeline.why == f"h264_nvenc: {NO_ENGINE}; decoding: {why}"


@pytest.mark.parametrize(("grain", "decoding"), [(False, "nvdec"), (True, "software")])
def test_av1_with_film_grain_is_decoded_on_the_cpu(grain: bool, decoding: str) -> None:
    """NVDEC can add the grain, and it is not known whether it does so to the last bit as the CPU does."""
    source = replace(SOURCE, codec="av1", picture=SourcePicture(film_grain=grain))
    assert decoded_by_nvdec(Pipeline(), L4, source).decoding == decoding
    assert choose_pipeline(L4, source, SMALL).decoding == decoding


def test_borders_are_added_after_the_frames_have_left_the_gpu() -> None:
    """FFmpeg 9 has pad_cuda; it is not used."""
    padded = Profile(size=Size(exact=(256, 256)), fit="pad")
    assert steps(choose_pipeline(L4, SOURCE, padded)) == ("nvdec", "scale_cuda", "h264_nvenc", True)


def test_frames_leave_the_gpu_where_the_way_through_it_does_not_run() -> None:
    trials = [Trial("scale_cuda to h264_nvenc", False, "no filter") if each.name.endswith("to h264_nvenc") else each
              for each in L4.trials]  # fmt: skip
    machine = replace(L4, trials=tuple(trials))
    assert steps(choose_pipeline(machine, SOURCE, SMALL)) == ("nvdec", "scale_cuda", "h264_nvenc", True)


def test_a_scale_cuda_that_aliases_is_not_used() -> None:
    machine = report(scale_cuda="scale_cuda of this ffmpeg aliases; FFmpeg 9 has one that does not")
    pipeline = choose_pipeline(machine, SOURCE, SMALL)
    assert steps(pipeline) == ("nvdec", "software", "h264_nvenc", False)
    assert "FFmpeg 9" in pipeline.why


def test_a_size_that_nvenc_does_not_take_is_encoded_on_the_cpu() -> None:
    pipeline = choose_pipeline(L4, SOURCE, Profile(size=Size(short_side=32)))
    assert steps(pipeline) == ("nvdec", "scale_cuda", "libx264", True)
    assert pipeline.why == "h264_nvenc: it does not take this size"


def test_an_encoder_that_was_named_is_used_or_is_an_error() -> None:
    named = choose_pipeline(L4, SOURCE, Profile(encoder="libx264"))
    assert (steps(named), named.why) == (("software", "software", "libx264", False), "--encoder libx264 was given")
    with pytest.raises(ToolError, match="h264_nvenc does not run here: this GPU has no such encoder; .*doctor"):
        choose_pipeline(H100, SOURCE, Profile(encoder="h264_nvenc"))


def test_where_others_have_the_sessions_a_named_nvenc_leaves_the_source_to_the_cpu() -> None:
    """The machine is not one without the encoder: a session may be free for the next source."""
    pipeline = choose_pipeline(report(h264_nvenc=REFUSED), SOURCE, Profile(encoder="h264_nvenc", preset="p4"))
    assert (pipeline.encoder, pipeline.preset, pipeline.why) == ("libx264", None, f"h264_nvenc: {REFUSED}")


def test_where_the_gpu_is_left_alone_a_profile_for_it_is_encoded_on_the_cpu() -> None:
    """The job gave this unit no share of a GPU. NVENC's names of presets mean nothing to x264."""
    untried = replace(CPU, trials=CPU.trials[2:])
    pipeline = choose_pipeline(untried, SOURCE, Profile(encoder="h264_nvenc", preset="p4"))
    assert (steps(pipeline), pipeline.preset, pipeline.why) == (
        ("software", "software", "libx264", False),
        None,
        NO_GPU,
    )


def test_a_pipeline_that_failed_has_one_on_the_cpu_in_its_place() -> None:
    profile = Profile(codec="hevc", preset="slow", b_frames=2)
    pipeline = on_cpu(profile, "the GPU failed")
    assert steps(pipeline) == ("software", "software", "libx265", False)
    assert (pipeline.preset, pipeline.b_frames, pipeline.uses_gpu) == ("slow", 2, False)


def test_damaged_sources_are_decoded_on_the_cpu_and_may_be_encoded_on_the_gpu() -> None:
    pipeline = decoded_on_cpu(choose_pipeline(L4, SOURCE, SMALL))
    assert (steps(pipeline), pipeline.why) == (("software", "software", "h264_nvenc", False), "decoding: damaged")


# Whatever the source and the machine


sources = st.builds(
    lambda codec, rotation, width, height, transfer, picture: replace(
        SOURCE, codec=codec, rotation=rotation, width=width, height=height, transfer=transfer, picture=picture
    ),
    st.sampled_from(["h264", "hevc", "vp9", "av1", "mpeg2video", "prores"]),
    st.sampled_from([0, 90, 180, 270]),
    st.integers(16, 5000),
    st.integers(16, 5000),
    st.sampled_from([1, 2, 16, 18]),
    st.builds(
        SourcePicture,
        bits=st.sampled_from([8, 10, 12]),
        chroma=st.sampled_from(["4:2:0", "4:2:2", "RGB", "gray"]),
        alpha=st.booleans(),
        full_range=st.booleans(),
        mirrored=st.booleans(),
        fields=st.sampled_from(Fields),
    ),
)
profiles = st.builds(
    Profile,
    size=st.sampled_from([Size(), Size(short_side=64), Size(exact=(320, 320))]),
    fit=st.sampled_from(["within", "pad", "crop", "stretch"]),
    encoder=st.sampled_from(["auto", "libx264"]),
)


@given(sources, profiles, st.sampled_from([L4, H100, OLD_DRIVER, CPU]))
def test_every_source_has_a_pipeline_whose_steps_fit_together(
    source: SourceVideo, profile: Profile, machine: Capabilities
) -> None:
    pipeline = choose_pipeline(machine, source, profile)
    picture = source.picture
    assert machine.runs(pipeline.encoder)
    assert pipeline.why
    if pipeline.scaling == "scale_cuda":
        assert pipeline.decoding == "nvdec"
        assert (source.rotation, picture.bits, picture.fields, picture.chroma) == (0, 8, Fields.NO, "4:2:0")
        assert not picture.alpha
    if not pipeline.downloads and pipeline.scaling == "scale_cuda":
        assert pipeline.encoder == "h264_nvenc"
    assert json.loads(pipeline.to_json()).keys() == {"decoding", "scaling", "encoder", "why"}


# Reports, and what is said of them


def test_an_ffmpeg_that_encodes_on_the_gpu_ranks_above_one_that_only_scales() -> None:
    assert sorted([CPU, L4, H100], key=gpu_rank) == [CPU, H100, L4]


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (L4, "h264_nvenc: decoding on the GPU, scaling on the GPU"),
        (H100, f"libx264: decoding on the GPU, scaling on the GPU; h264_nvenc does not run here ({NO_ENGINE})"),
        (CPU, "libx264: decoding on the CPU, scaling on the CPU; h264_nvenc does not run here (no GPU was at hand)"),
        (TU117, f"hevc_nvenc: decoding on the GPU, scaling on the GPU; without B-frames ({NO_B_FRAMES})"),
    ],
    ids=["L4", "H100", "cpu", "TU117"],
)  # fmt: skip
def test_doctor_says_what_is_taken_and_why(machine: Capabilities, text: str) -> None:
    assert choice_of(machine) == text


def test_doctor_says_which_driver_would_do() -> None:
    (advice,) = advice_of([OLD_DRIVER], "580.65.06")
    assert "driver 610.00 or newer" in advice
    assert "this machine has 580.65.06" in advice
    assert advice_of([L4, H100, CPU], None) == ()


OTHER_SIZE = (
    "NVDEC's pictures had another size than planned, as where a stream is cropped at the left or changes its size"
)
LACKING = "the driver is too old for this ffmpeg: it has no cuMemAllocAsync"
# How ffmpeg goes on where it makes no device, whatever the cause.
NO_DEVICE = "[error] Device creation failed: -12.\n[dec:h264 @ 0x2] [error] No device available for decoder: device"
NOT_READY = "cu->cuInit(0) failed -> CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"
TAKEN = "cu->cuCtxCreate(&ctx, 0, device) failed -> CUDA_ERROR_DEVICE_UNAVAILABLE"


@pytest.mark.parametrize(
    ("said", "cause", "comes_back"),
    [
        ("[h264_nvenc @ 0x1] Cannot load libcuda.so.1\nError", NO_GPU, False),
        ("Cannot load libnvidia-encode.so.1", NO_LIBRARY, False),
        ("OpenEncodeSessionEx failed: unsupported device (2)\nNo capable devices found", NO_ENGINE, False),
        ("OpenEncodeSessionEx failed: out of memory (10): (no details)\nNo capable devices found", REFUSED, True),
        ("OpenEncodeSessionEx failed: incompatible client key (21)", REFUSED, True),
        (
            "[hevc_nvenc @ 0x1] [warning] Max B-frames 3 exceed 0\n[hevc_nvenc @ 0x1] [fatal] No capable devices found",
            NO_B_FRAMES,
            False,
        ),
        ("[swscaler @ 0x1] [warning] no accelerated scaler\n[out#0 @ 0x2] [error] it broke", "it broke", False),
        ("cuMemAlloc() failed -> CUDA_ERROR_OUT_OF_MEMORY", "the GPU was out of memory", True),
        ("The minimum required Nvidia driver for nvenc is 610.00 or newer", TOO_OLD, False),
        ("[Parsed_scale_cuda_3 @ 0x1] Rescaled value for width or height is too big.", OTHER_SIZE, False),
        ("[CUDA @ 0x1] Cannot load cuMemAllocAsync\nNo device available for decoder", LACKING, False),
        (NO_DEVICE, "this ffmpeg was built without CUDA", False),
        (f"[CUDA @ 0x1] [error] {NOT_READY}\n{NO_DEVICE}", NOT_READY, False),
        (f"[h264_nvenc @ 0x1] [error] {TAKEN}\n[h264_nvenc @ 0x1] [fatal] No capable devices found", TAKEN, False),
        ("[av1_nvenc @ 0x1] [warning] x\n[av1_nvenc @ 0x1] [fatal] No capable devices found", NO_ENGINE, False),
        ("[AVHWDeviceContext @ 0x1] [x] moov atom not found\nmore", "moov atom not found", False),
        ("", "it failed without a message", False),
    ],
)  # fmt: skip
def test_ffmpegs_messages_have_causes(said: str, cause: str, comes_back: bool) -> None:
    assert (cause_of(said), passes(cause_of(said))) == (cause, comes_back)
    assert wanted_driver(cause_of(said)) == ("610.00" if "minimum" in said else None)


def test_a_very_long_line_of_ffmpeg_is_cut_short() -> None:
    line = "[Parsed_select_1 @ 0x1] Error while parsing expression '" + "between(pts,0,1)+" * 200
    assert cause_of(line).startswith("Error while parsing expression 'between(pts,0,1)+")
    assert len(cause_of(line)) <= 403
