"""What cannot fit into memory is refused before any of it is there."""

from __future__ import annotations

import itertools
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from process_memory import forget_peak, peak_bytes

import shortgop
from shortgop.machine_memory import _cgroup_limits, memory_limit_bytes
from shortgop.readers.memory_limit import fits, listed, too_many

# Of frames of 98x66; more than any machine has.
MANY = 10**12


@pytest.fixture(scope="module")
def dataset(three_videos: Path) -> shortgop.Dataset:
    return shortgop.open(three_videos)


REQUESTS: dict[str, Callable[[shortgop.Dataset], object]] = {
    "a rate": lambda d: d["ntsc.mp4"].get_frames_played_in_range(0, 1, fps=1e12),
    "a rate beyond all floats": lambda d: d["ntsc.mp4"].get_frames_played_in_range(0, 2, fps=1.7e308),
    "a rate for all frames": lambda d: d["ntsc.mp4"].get_all_frames(fps=1e12),
    "a range": lambda d: d["ntsc.mp4"].get_frames_at(range(-MANY, 0)),
    "a range longer than any list": lambda d: d["ntsc.mp4"].get_frames_at(range(10**30)),
    "an array of one number": lambda d: d["ntsc.mp4"].get_frames_at(np.broadcast_to(np.int64(3), (MANY,))),
    "a tensor of one number": lambda d: d["ntsc.mp4"].get_frames_at(torch.tensor(3).expand(MANY)),
    "times": lambda d: d["ntsc.mp4"].get_frames_played_at(np.broadcast_to(0.5, (MANY,))),
    "a clip": lambda d: d.get_clips([("ntsc.mp4", range(MANY))]),
    "a clip for an output": lambda d: d.get_clips([("ntsc.mp4", range(MANY))], out=torch.zeros(1)),
    "the sources' pts": lambda d: d["ntsc.mp4"].source_pts(range(MANY)),
    "the sources' seconds": lambda d: d["ntsc.mp4"].source_seconds(range(MANY)),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_cannot_fit_is_refused_before_it_is_allocated(name: str, dataset: shortgop.Dataset) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(shortgop.UsageError, match=r"GB: ask for fewer at a time") as caught:
            REQUESTS[name](dataset)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.video == "ntsc.mp4"
    assert peak < 10_000_000


def test_frames_without_end_are_refused_in_bounded_memory(
    dataset: shortgop.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a small machine, so that it does not take the memory of this one to find out.
    monkeypatch.setattr("shortgop.readers.memory_limit.memory_limit_bytes", lambda: 1 << 30)
    video = dataset["ntsc.mp4"]
    for read in (video.get_frames_at, video.get_frames_played_at, lambda frames: dataset.get_clips([(0, frames)])):
        with pytest.raises(shortgop.UsageError, match="this process can have 1.1 GB"):
            read(itertools.repeat(0))
    # None of the clips is too large.
    clips: Any = ((0, [3] * 1000) for _ in itertools.count())
    with pytest.raises(shortgop.UsageError, match="ask for fewer"):
        dataset.get_clips(clips)


def test_a_size_that_no_memory_holds_is_refused(three_videos: Path) -> None:
    video = shortgop.open(three_videos, size=(10**7, 10**7))[0]
    forget_peak()
    before = peak_bytes()
    for read in (lambda: video[0], lambda: video.get_frame_at(0), lambda: video.get_frames_at([0])):
        with pytest.raises(shortgop.UsageError, match="reading 1 frame of 300000000000000 bytes takes 3000"):
            read()
    assert peak_bytes() - before < 100_000_000


def test_what_fits_is_read(dataset: shortgop.Dataset) -> None:
    video = dataset["ntsc.mp4"]
    assert len(video.get_frames_at(range(75))) == 75
    assert len(video.get_frames_played_in_range(0, 1, fps=1000)) == 1000
    assert len(video.get_frames_at(itertools.repeat(3, 40))) == 40


def test_an_error_says_how_much_and_how_much_there_is() -> None:
    error = too_many(2 * 10**9, 3000, video="a")
    assert str(error).startswith("reading 2000000000 frames of 3000 bytes takes 7024.0 GB of memory, and")
    assert "more than 9223372036854775807 frames" in str(too_many(sys.maxsize, 3000))


def test_the_limit_is_looked_up_only_for_large_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shortgop.readers.memory_limit.memory_limit_bytes", lambda: 0)
    assert fits(16, 150_528)
    assert not fits(1600, 150_528)


def test_a_list_is_made_only_after_the_check() -> None:
    def refuse(count: int) -> None:
        raise ValueError(count)

    started = time.perf_counter()
    with pytest.raises(ValueError, match=str(sys.maxsize)):
        listed(range(10**30), refuse)
    with pytest.raises(ValueError, match="1000000000"):
        listed(range(10**9), refuse)
    assert time.perf_counter() - started < 30
    assert listed(iter(range(100_000)), lambda _: None) == list(range(100_000))


class TestMemoryLimit:
    """The machine's memory, or what its control groups leave of it."""

    def test_here(self) -> None:
        with Path("/proc/meminfo").open() as file:
            machine = int(file.readline().split()[1]) * 1024
        assert 0 < memory_limit_bytes() <= machine

    def test_version_2(self, tmp_path: Path) -> None:
        (tmp_path / "self").write_text("0::/job/step\n")
        (tmp_path / "job" / "step").mkdir(parents=True)
        (tmp_path / "job" / "step" / "memory.max").write_text("max\n")
        (tmp_path / "job" / "memory.max").write_text("5000\n")
        assert list(_cgroup_limits(tmp_path / "self", tmp_path)) == [5000]

    def test_version_1_in_a_container(self, tmp_path: Path) -> None:
        (tmp_path / "self").write_text("5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n")
        (tmp_path / "memory").mkdir()
        (tmp_path / "memory" / "memory.limit_in_bytes").write_text("7000\n")
        assert list(_cgroup_limits(tmp_path / "self", tmp_path)) == [7000]

    def test_neither(self, tmp_path: Path) -> None:
        assert list(_cgroup_limits(tmp_path / "missing", tmp_path)) == []
