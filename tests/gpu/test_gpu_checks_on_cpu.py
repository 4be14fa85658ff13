"""What the checks of `make gpu-check` compare and measure, on the CPU: right pictures pass, and others are noticed."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpu_decoding
import gpu_nvcuvid
import gpu_reader
import gpu_samples
import pytest
import torch
from check_record import FailedOutOfTimeError, OutOfTime, Record, Skipped, in_time, measure_each
from check_report import parse_report
from differences import EQUAL, difference
from gpu_conversion import cases, first_wrong
from gpu_decoding import CLIP_FRAMES, CLIP_STRIDE, clips_of, threaded_rate
from gpu_loading import clips, expected_frames, in_batches, loader_of, order_of, wrong_rows
from gpu_memory import Growth
from gpu_nvcuvid import look_at
from gpu_torchcodec import reason_of
from picture_verdicts import Verdicts
from sample_gops import Planes, check_each_codec, check_pictures, check_planes, cpu_pictures, cpu_planes, gops_of

import shortgop
from shortgop.readers.decoders.pyav import open_context
from shortgop.readers.decoders.pyav_upload import PyavUpload
from shortgop.readers.frame_format import PixelFormat


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
    grey = [Planes(torch.full_like(picture.y, 128), picture.uv) for picture in pictures[0]]
    with pytest.raises(
        RuntimeError, match=r"(?s)a\.mp4: frame 0 shows no number \(no anchor.*same number\. Chroma: equal"
    ):
        check_planes(gops[0], 0, grey[0], pictures[0][0])
    wrong = dataclasses.replace(gops[0], first_number=1)
    with pytest.raises(RuntimeError, match=r"a\.mp4: frame 1 shows 0"):
        check_pictures(open_context(wrong.config), wrong, pictures[0], [0], cpu_planes)


def reported(folder: Path) -> dict[str, Any]:
    lines = map(json.loads, (folder / "report").read_text().splitlines())
    return {line["figure"]: line["value"] for line in lines}


def test_pictures_of_a_surface_source_are_compared_too(samples_folder: Path, tmp_path: Path) -> None:
    """With libavcodec on the CPU in place of libnvcuvid."""
    gops = gops_of(samples_folder / "h264")
    verdicts = Verdicts(Record(tmp_path / "report", samples_folder), "h264")
    for gop, expected in zip(gops, cpu_pictures(gops), strict=True):
        source = PyavUpload(gop.config, torch.device("cpu"))
        for frames in (range(len(expected)), range(0, len(expected), 4), [len(expected) - 1]):
            with verdicts.request(gop, frames, "some"):
                look_at(source, gop, expected, frames, verdicts)
    verdicts.end()
    found = reported(tmp_path)
    assert found["pictures equal to the CPU's, h264"] == 90 + 23 + 7
    assert found["how pictures lie in memory, h264"]["a.mp4"].startswith("96x64, lines of 96 bytes, chroma ")


def fail() -> None:
    raise ValueError("no surface")


def test_which_pictures_are_wrong_is_said_of_each_request(samples_folder: Path, tmp_path: Path) -> None:
    """Of a.mp4 all are right, of b.mp4 one picture is another one, one does not come out, and one request fails."""
    gops = gops_of(samples_folder / "h264")
    pictures = cpu_pictures(gops)
    verdicts = Verdicts(Record(tmp_path / "report", samples_folder), "h264")
    with verdicts.request(gops[0], [0, 5], "two"):
        for number in (0, 5):
            verdicts.look(gops[0], number, pictures[0][number], pictures[0][number])
    with verdicts.request(gops[2], range(3), "the first three"):
        verdicts.look(gops[2], 0, pictures[2][1], pictures[2][0])
        verdicts.look(gops[2], 2, pictures[2][2], pictures[2][2])
    with verdicts.request(gops[3], [0], "one"):
        fail()
    assert not verdicts.is_hopeless(gops[3])
    with pytest.raises(
        RuntimeError, match=r"wrong are 0 of 2 of a\.mp4, 3 of 4 of b\.mp4\. the first three, b\.mp4 from"
    ):
        verdicts.end()
    first, second = reported(tmp_path)["wrong pictures, h264"]
    place = r"b\.mp4 from frame 1000, after two of a\.mp4 from frame 0"
    assert re.match(rf"the first three, {place}: frame 1000 shows 1001\. Y: .*; 2 pictures come out$", first)
    place = "one, b.mp4 from frame 1016, after the first three of b.mp4 from frame 1000"
    assert second.startswith(f"{place}: ValueError: no surface, at tests/gpu/test_gpu_checks_on_cpu.py:")
    assert second.endswith(" fail")


def test_videos_whose_requests_fail_again_and_again_are_left(samples_folder: Path, tmp_path: Path) -> None:
    gops = gops_of(samples_folder / "h264")
    verdicts = Verdicts(Record(tmp_path / "report", samples_folder), "h264")
    for _ in range(3):
        with verdicts.request(gops[0], [0], "one"):
            fail()
    assert (verdicts.is_hopeless(gops[0]), verdicts.is_hopeless(gops[2])) == (True, False)


def test_clips_for_the_figures_of_speed_are_whole(samples_folder: Path) -> None:
    gops = [gop for gop in gops_of(samples_folder / "h264") if gop.video == "b.mp4"]
    for clip in clips_of(gops, count=10):
        numbers = [gop.first_number + frame for gop, frames in clip for frame in frames]
        assert numbers == list(range(numbers[0], numbers[0] + CLIP_FRAMES * CLIP_STRIDE, CLIP_STRIDE))


def test_a_rate_counts_from_where_threads_begin_to_decode() -> None:
    """Threads that keep Python's lock had decoded all when the calling thread looked at the clock."""
    holding_the_lock: Any = ctypes.PyDLL(None)
    waits: Iterator[Callable[[], Any]] = iter([lambda: time.sleep(0.2), lambda: holding_the_lock.usleep(200_000)])

    def decode() -> int:
        next(waits)()
        return 1

    assert threaded_rate(lambda: decode, 1) <= 1 / 0.2


def test_the_error_of_a_thread_is_told_and_not_that_others_waited_for_it() -> None:
    threads = iter(range(3))

    def decode() -> int:
        if next(threads) == 1:
            raise MemoryError("no more")
        return 1

    with pytest.raises(MemoryError, match="no more"):
        threaded_rate(lambda: decode, 3)


def test_a_look_at_memory_ends_with_the_time_of_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow GPU was taken for one that hangs. What is too short to tell has not passed."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 1 << 31))
    # Five seconds are left for the check's end.
    growth = Growth(Record(tmp_path / "report", tmp_path, seconds=5.2))
    rounds = 0
    for _ in growth.rounds(1_000_000):
        growth.look()
        rounds += 1
    assert 4 <= rounds < 1_000_000
    growth.check()
    short = Growth(Record(tmp_path / "report", tmp_path, seconds=5))
    assert list(short.rounds(10)) == []
    with pytest.raises(OutOfTime, match="there was time for 0 looks at the memory"):
        short.check()


def looks_at(monkeypatch: pytest.MonkeyPatch, growth: Growth, rounds: int, used_gigabytes: list[int]) -> None:
    """What a check of so many rounds does, whose first rounds each have a look at the GPU's memory."""
    used = iter(used_gigabytes)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (100_000_000_000 - next(used) * 1_000_000_000, 10**11))
    for _ in zip(growth.rounds(rounds), used_gigabytes, strict=False):
        growth.look()


def test_growth_that_a_short_look_at_memory_saw_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was skipped, as a check that had no time."""
    growth = Growth(Record(tmp_path / "report", tmp_path))
    looks_at(monkeypatch, growth, 3, [0, 1, 20])
    with pytest.raises(RuntimeError, match="memory of the GPU grows: 0, 1000, 20000 MB"):
        growth.check()


def test_a_loader_that_ends_early_is_no_lack_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growth = Growth(Record(tmp_path / "report", tmp_path))
    looks_at(monkeypatch, growth, 200, [1, 1])
    with pytest.raises(RuntimeError, match="the check ended in round 3, after 2 looks at the memory"):
        growth.check()


def test_an_error_of_the_first_call_of_cuda_is_a_failure_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU with a broken memory was a reason to skip all checks of torch, as one that torch does not use is."""
    monkeypatch.setattr(gpu_decoding, "require_gpu", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu_decoding, "why_not_torch", lambda: "torch does not use the GPU: no driver")
    with pytest.raises(Skipped, match="no driver"):
        gpu_decoding.ready()

    def broken(*_shape: int, device: str) -> None:
        raise RuntimeError(f"{device.upper()} error: uncorrectable ECC error encountered")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", broken)
    with pytest.raises(RuntimeError, match="ECC") as caught:
        gpu_decoding.ready()
    assert not isinstance(caught.value, Skipped)


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


@pytest.mark.long
def test_what_compares_a_device_with_the_cpu_passes_for_the_cpu(samples_folder: Path) -> None:
    found = dict(gpu_reader.compared(samples_folder / "h264", "cpu"))
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
        list(gpu_reader.compared(samples_folder / "h264", "cpu"))


def test_how_pictures_differ_is_said_in_a_line() -> None:
    expected = torch.randint(0, 200, (40, 30), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert difference(expected.clone(), expected) == EQUAL
    found = expected.clone()
    found[38:, 5] += 3
    said = f"the first is {int(found[38, 5])} instead of {int(expected[38, 5])}"
    assert difference(found, expected) == f"0.167 % differ, by up to 3; at 38 to 39 of 40, 5 to 5 of 30; {said}"
    # As where chroma is looked for below another height.
    assert difference(expected[2:], expected[:-2]).endswith("; what is at i of the first dimension should be at i +2")
    assert difference(expected[:-1], expected[1:]).endswith("should be at i -1")
    nothing = torch.zeros((2, 3, 4), dtype=torch.uint16)
    assert difference(nothing, torch.full_like(nothing, 9)).endswith("all are the same number")
    assert difference(expected[:1], expected).startswith("(1, 30) of torch.uint8, not (40, 30)")


def test_the_other_codec_is_checked_where_one_fails() -> None:
    asked = []

    def check(codec: str) -> None:
        asked.append(codec)
        if codec == "h264":
            raise ValueError("no H.264")

    with pytest.raises(RuntimeError, match=r"^h264: ValueError: no H\.264$"):
        check_each_codec(check)
    assert asked == ["h264", "hevc"]


def test_what_is_wrong_with_converted_frames_is_told() -> None:
    case = next(iter(cases(PixelFormat(), largest=96)))
    expected = [torch.zeros(4, 4)] * 2
    found = [expected[0], torch.ones(4, 4)]
    said = first_wrong("triton", case, found, expected)
    assert said.startswith(f"triton: {case.surfaces[1].width}x{case.surfaces[1].height} of 8 bits, Geometry(")
    assert "100 % differ, by up to 1" in said


def test_a_damaged_gop_is_noticed_by_its_check(samples_folder: Path, tmp_path: Path) -> None:
    said = gpu_reader.read_damaged(samples_folder / "h264", tmp_path / "copy", "cpu")
    assert "CRC-32" in said


def test_the_cost_of_a_new_decoder_is_not_that_of_the_first_use_of_nvdec(
    samples_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something has been decoded before, by a decoder that is closed again."""
    one, other = gops_of(samples_folder / "h264")[:2]
    gops = [dataclasses.replace(one, video="b.mp4"), dataclasses.replace(other, video="c.mp4")]
    decoding: list[int] = []
    numbers = itertools.count()

    class Sources:
        def __init__(self, gpu: object) -> None:
            self.number = next(numbers)

        def in_order(self) -> contextlib.AbstractContextManager[None]:
            return contextlib.nullcontext()

        def of(self, _: object) -> int:
            return self.number

    monkeypatch.setattr(gpu_nvcuvid, "Sources", Sources)
    monkeypatch.setattr(gpu_nvcuvid, "decode_with", lambda source, *_: decoding.append(source))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    gpu: Any = None
    costs = gpu_nvcuvid._costs(gops, gpu)
    assert list(costs)[:2] == ["b.mp4, new", "b.mp4, open"]
    assert decoding == [0, 1, 1, 1, 1]


ERROR_OF_TORCHCODEC = """Could not load libtorchcodec. Likely causes:
          1. FFmpeg is not properly installed in your environment.
        [start of libtorchcodec loading traceback]
FFmpeg version 8:
Traceback (most recent call last):
  File "torch/_ops.py", line 1488, in load_library
OSError: {reason}

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
OSError: Could not load this library: libtorchcodec_core8.so
FFmpeg version 7:
Traceback (most recent call last):
OSError: libavutil.so.59: cannot open shared object file: No such file or directory
[end of libtorchcodec loading traceback]."""


def test_of_torchcodecs_error_the_part_about_our_ffmpeg_is_kept() -> None:
    missing = "libnppicc.so.13: cannot open shared object file: No such file or directory"
    long = RuntimeError(ERROR_OF_TORCHCODEC.format(reason=missing))
    assert reason_of(long) == f"FFmpeg 8: OSError: {missing}"
    other = RuntimeError(ERROR_OF_TORCHCODEC.format(reason="invalid ELF header"))
    assert reason_of(other) == "FFmpeg 8: OSError: Could not load this library: libtorchcodec_core8.so"


def test_an_error_without_a_part_for_each_ffmpeg_is_kept_with_its_cause() -> None:
    error = OSError("Could not load this library: libtorchcodec_image.so")
    error.__cause__ = OSError("libnvrtc.so.13: cannot open shared object file")
    cause = "libnvrtc.so.13: cannot open shared object file"
    assert reason_of(error) == f"Could not load this library: libtorchcodec_image.so ({cause})"
    assert reason_of(ImportError("No module named 'torchcodec'")) == "No module named 'torchcodec'"


def test_measurements_end_with_the_time_of_their_check(tmp_path: Path) -> None:
    """Those that would not end before are named. A check that went on was killed, and taken for one that hangs."""
    record, measured = Record(tmp_path / "report", tmp_path, seconds=5.5), list[str]()

    def measure_until_it_is_over() -> None:
        for name, seconds in in_time(record, {"first": 0.4, "second": 0.4, "third": 0.0}.items()):
            time.sleep(seconds)
            measured.append(name)

    with pytest.raises(OutOfTime, match="^there was no time to measure second; third$"):
        measure_until_it_is_over()
    assert measured == ["first"]
    record.measure_until += 60
    measure_until_it_is_over()
    assert measured[1:] == ["first", "second", "third"]


def test_measurements_go_on_where_one_fails(tmp_path: Path) -> None:
    """What one library cannot do says nothing of what the other does."""

    def fails() -> dict[str, float]:
        raise ValueError("no decoder")

    def is_slow() -> dict[str, float]:
        time.sleep(0.6)
        return {}

    record = Record(tmp_path / "report", tmp_path, seconds=60)
    with pytest.raises(RuntimeError, match="^h264: ValueError: no decoder$"):
        measure_each(record, {"h264": fails, "hevc": lambda: {"frames/s": 13}})
    assert parse_report((tmp_path / "report").read_bytes()).figures == {"hevc, frames/s": 13}
    record = Record(tmp_path / "report", tmp_path, seconds=5.5)
    with pytest.raises(FailedOutOfTimeError, match="^h264: ValueError: no decoder; there was no time to measure hevc$"):
        measure_each(record, {"h264": fails, "slow": is_slow, "hevc": dict})
