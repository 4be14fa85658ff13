"""What the checks of `make gpu-check` compare and measure, on the CPU: right pictures pass, and others are noticed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gpu_reader
import gpu_samples
import pytest
import torch
from gpu_decoding import CLIP_FRAMES, CLIP_STRIDE, clips_of
from gpu_loading import clips, expected_frames, in_batches, loader_of, order_of, wrong_rows
from gpu_nvcuvid import check_gop
from sample_gops import check_pictures, cpu_pictures, cpu_planes, gops_of

import shortgop
from shortgop.readers.decoders.pyav import open_context
from shortgop.readers.decoders.pyav_upload import PyavUpload


@pytest.fixture(scope="module")
def samples_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    gpu_samples.make_samples(folder, {"a.mp4": (96, 64, 20), "b.mp4": (64, 96, 70)}, {"h264": "libx264"})
    return folder


def test_the_samples_show_their_numbers_and_the_comparison_notices_what_does_not(samples_folder: Path) -> None:
    gops = gops_of(samples_folder / "h264")
    assert [len(gop.pattern) for gop in gops] == [16, 4, 16, 16, 16, 16, 6]
    pictures = cpu_pictures(gops)
    for gop, expected in zip(gops, pictures, strict=True):
        for frames in (range(len(expected)), range(0, len(expected), 4), [len(expected) - 1]):
            assert check_pictures(open_context(gop.config), gop, expected, frames, cpu_planes) == len(frames)
    with pytest.raises(RuntimeError, match=r"a\.mp4: frame 0 differs from the CPU's"):
        check_pictures(open_context(gops[0].config), gops[0], pictures[1][:1], [0], cpu_planes)
    wrong = dataclasses.replace(gops[0], first_number=1)
    with pytest.raises(RuntimeError, match=r"a\.mp4: frame 1 shows 0"):
        check_pictures(open_context(wrong.config), wrong, pictures[0], [0], cpu_planes)


def test_pictures_of_a_surface_source_are_compared_too(samples_folder: Path) -> None:
    """With libavcodec on the CPU in place of libnvcuvid."""
    gops = gops_of(samples_folder / "h264")
    pictures = cpu_pictures(gops)
    for gop, expected in zip(gops, pictures, strict=True):
        source = PyavUpload(gop.config, torch.device("cpu"))
        for frames in (range(len(expected)), range(0, len(expected), 4), [len(expected) - 1]):
            assert check_gop(source, gop, expected, frames) == len(frames)
    with pytest.raises(RuntimeError, match=r"a\.mp4: frame 0 differs from the CPU's"):
        check_gop(PyavUpload(gops[0].config, torch.device("cpu")), gops[0], pictures[1][:1], [0])


def test_clips_for_the_figures_of_speed_are_whole(samples_folder: Path) -> None:
    gops = [gop for gop in gops_of(samples_folder / "h264") if gop.video == "b.mp4"]
    for clip in clips_of(gops, count=10):
        numbers = [gop.first_number + frame for gop, frames in clip for frame in frames]
        assert numbers == list(range(numbers[0], numbers[0] + CLIP_FRAMES * CLIP_STRIDE, CLIP_STRIDE))


def test_batches_of_the_samples_are_those_of_the_order_and_others_are_noticed(samples_folder: Path) -> None:
    dataset = clips(samples_folder / "h264")
    expected, order = expected_frames(dataset), order_of(len(dataset), 3)
    batches: list[Any] = list(loader_of(dataset, order, 0))
    for batch, draws in zip(batches, in_batches(order), strict=True):
        assert wrong_rows(batch["frames"], draws, expected) == 0
        other = batch["frames"].clone()
        other[2] = 0
        assert wrong_rows(other, draws, expected) == 1
        assert wrong_rows(other[:3], draws, expected) == len(draws)
    assert isinstance(batches[0]["frames"], torch.Tensor)


def test_what_compares_a_device_with_the_cpu_passes_for_the_cpu(samples_folder: Path) -> None:
    found = gpu_reader.compared(samples_folder / "h264", "cpu")
    assert (
        found.pop("frames equal to the CPU's, threads=1") == found.pop("frames equal to the CPU's, threads=None") == 90
    )
    assert list(found.values()) == [[0.0, 0.0]] * len(gpu_reader.FORMATS)


def test_what_compares_a_device_notices_a_level(samples_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = shortgop.open

    def other_colours(folder: Path, device: str | None = None, **options: Any) -> Any:
        # Each colour is off where the device would be asked.
        return original(folder, **{**options, "color": "ycbcr"} if device else options)

    monkeypatch.setattr(shortgop, "open", other_colours)
    with pytest.raises(RuntimeError, match="differ from the CPU's, which they should equal|frame 0 shows"):
        gpu_reader.compared(samples_folder / "h264", "cpu")


def test_a_damaged_gop_is_noticed_by_its_check(samples_folder: Path, tmp_path: Path) -> None:
    said = gpu_reader.read_damaged(samples_folder / "h264", tmp_path / "copy", "cpu")
    assert "CRC-32" in said


def test_speeds_are_those_of_all_readers_and_scenarios(samples_folder: Path) -> None:
    found = dict(gpu_reader.speeds(samples_folder / "h264", "cpu", seconds=0.02))
    assert len(found) == 5
    *rates, engines = found.values()
    assert all(rate > 0 for scenario in rates for rate in scenario.values())
    assert set(engines.values()) == {0.0}, "the CPU has no engines"
