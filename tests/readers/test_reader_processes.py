"""What reading takes of a process: copies, forks and threads, open files, and how much is read and decoded."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shortgop
from datasets import make_dataset
from left_open import open_files
from shortgop.readers.read_limits import ReadLimits
from shortgop.storage import disk
from synthetic import constant_rate_pts, make_video, read_number


@pytest.fixture(scope="module")
def dataset(three_videos: Path) -> shortgop.Dataset:
    return shortgop.open(three_videos)


@pytest.fixture(scope="module")
def video(dataset: shortgop.Dataset) -> shortgop.Video:
    return dataset["ntsc.mp4"]


def test_a_copy_by_pickle_reads_the_same(dataset: shortgop.Dataset, video: shortgop.Video) -> None:
    assert len(pickle.dumps(dataset)) < 1000
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.metadata == dataset.metadata
    assert torch.equal(copy[1][7], dataset[1][7])
    assert torch.equal(pickle.loads(pickle.dumps(video))[9], video[9])


def outcome_in_a_fork(check: Callable[[], bool]) -> bool:
    """Run `check` in a forked process; False when it does not end."""
    context = multiprocessing.get_context("fork")
    outcome = context.SimpleQueue()
    child = context.Process(target=lambda: outcome.put(check()))
    child.start()
    child.join(30)
    if child.is_alive():
        child.kill()
        return False
    return child.exitcode == 0 and bool(outcome.get())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_reads_on_while_others_are_reading(dataset: shortgop.Dataset) -> None:
    """What another thread holds at the moment of the fork is held forever in the child."""
    expected = {video.id: (video[20], video.source_pts([20, 3]).tolist()) for video in dataset}
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            for video in dataset:
                video.get_frames_at([3, 20])
                video.source_pts([3])

    def check() -> bool:
        return all(
            np.array_equal(dataset[name][20], frame) and dataset[name].source_pts([20, 3]).tolist() == pts
            for name, (frame, pts) in expected.items()
        )

    threads = [threading.Thread(target=keep_busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert all(outcome_in_a_fork(check) for _ in range(5))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_needs_none_of_torchs_threads(dataset: shortgop.Dataset) -> None:
    video = dataset["film.mkv"]
    # Large enough for torch to copy it with several threads.
    assert video[0].numel() > 32768
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.zeros(1 << 20).clone()

        def check() -> bool:
            batch = video.get_frames_at([3, 3, 9]), video.get_frame_at(3), video.get_all_frames()
            return len([*video, *batch, video.source_seconds([1])]) == len(video) + 4

        assert outcome_in_a_fork(check)
    finally:
        torch.set_num_threads(threads)


def test_many_threads_share_a_dataset(dataset: shortgop.Dataset) -> None:
    def read(seed: int) -> bool:
        rng = random.Random(seed)
        video = dataset[rng.randrange(3)]
        frames = [rng.randrange(len(video)) for _ in range(rng.randint(1, 20))]
        return [read_number(picture) for picture in video.get_frames_at(frames).data] == frames

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(200)))


@pytest.fixture
def many_shards(tmp_path: Path) -> Path:
    """Six videos, each in a shard of its own."""
    for number in range(6):
        source = make_video(
            tmp_path / f"{number:02}.mp4",
            pts=constant_rate_pts(Fraction(25), 8),
            timebase=Fraction(1, 25),
            first_number=100 * number,
        )
        make_dataset([source.path], tmp_path / "dataset")
    return tmp_path / "dataset"


def test_open_files_are_bounded(many_shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_MAX_OPEN_FILES", 2)
    videos = list(shortgop.open(many_shards))
    assert len(list((many_shards / "shards").iterdir())) == 6
    before = len(open_files())

    def read(number: int) -> bool:
        return read_number(videos[number][5]) == 100 * number + 5

    assert all(read(number) for number in [*range(6), *range(6)])
    assert len(open_files()) <= before + 2
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, 20 * list(range(6))))
    assert len(open_files()) <= before + 2
    videos.clear()
    assert len(open_files()) <= before


@pytest.fixture
def steps(video: shortgop.Video, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reading does, as it goes along."""
    done: list[str] = []
    reader: Any = video._reader

    def noting(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            done.append(step)
            return function(*args)

        return noted

    for step, owner in (("read", reader._store._source), ("decode", reader._decoder)):
        monkeypatch.setattr(owner, step, noting(step, getattr(owner, step)))
    return done


def test_a_long_request_holds_one_read_at_a_time(
    video: shortgop.Video, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader: Any = video._reader
    monkeypatch.setattr(reader._store, "_limits", ReadLimits(max_gap_bytes=0, max_read_bytes=1))
    assert [read_number(picture) for picture in video.get_all_frames().data] == list(range(75))
    assert steps == ["read", "decode"] * 10


def test_neighbours_are_read_together_and_each_gop_is_decoded_once(video: shortgop.Video, steps: list[str]) -> None:
    frames = [*range(75), *range(0, 75, 3)]
    assert [read_number(picture) for picture in video.get_frames_at(frames).data] == frames
    assert steps == ["read", *["decode"] * 10]
