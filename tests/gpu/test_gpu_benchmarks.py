"""What the benchmarks on a GPU read and how they measure, on the CPU: videos that are repeated, readers, and rates."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import gpu_benchmarks
import gpu_engines
import pytest
import torch
from bench_footage import CLIPS, LONG, Kind, copied, exported, make_benchmark_footage, repeated, source_of
from bench_readers import (
    Answer,
    Draw,
    Requests,
    a_frame_of_all,
    comparing,
    opened,
    ours,
    ours_at_once,
    random_clips,
    torchcodec,
)
from check_record import OutOfTime, Record
from check_report import parse_report
from gpu_decoding import Contexts

import shortgop
from datasets import make_dataset
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.readers.decoders.pyav import open_context
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video

PICTURE = "testsrc2=s={size}:r={rate}"
X264 = {"encoder": "libx264"}


@pytest.fixture(scope="module")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of 40 frames, and two of 32 that differ."""
    folder = tmp_path_factory.mktemp("footage")
    kinds = {
        LONG: Kind((PICTURE,), (96, 64), 10, 48, X264, keyint=24),
        CLIPS: Kind((PICTURE, f"{PICTURE},negate"), (64, 96), 10, 32, X264),
    }
    make_benchmark_footage(folder, kinds)
    return folder


def test_repeated_videos_show_their_frames_again(footage: Path, tmp_path: Path) -> None:
    """Of two videos, five: the first twice, the other three times, the first once, and so on."""
    repeated(footage / CLIPS, tmp_path / "many", [2, 3, 1, 1, 4])
    first, other = shortgop.open(footage / CLIPS)
    made = shortgop.open(tmp_path / "many")
    assert [len(video) for video in made] == [64, 96, 32, 32, 128]
    for video, original in zip(made, (first, other, first, other, first), strict=True):
        frames = original.get_frames_at(range(32)).data
        assert torch.equal(video.get_frames_at(range(len(video))).data, frames.repeat(len(video) // 32, 1, 1, 1))
        assert set(video.source_pts(range(len(video))).diff().tolist()) == set(
            original.source_pts([0, 1]).diff().tolist()
        )
    storage = DiskStorage(tmp_path / "many")
    problems = list(verify(storage, open_current(storage)[1]))
    assert {problem.what for problem in problems} == {"no segment or GOP covers these bytes"}, "of shorter videos"


def test_videos_that_end_within_a_segment_are_not_repeated(tmp_path: Path) -> None:
    source = make_video(tmp_path / "a.mp4", pts=constant_rate_pts(Fraction(10), 20), timebase=Fraction(1, 10))
    make_dataset([source.path], tmp_path / "dataset")
    with pytest.raises(ValueError, match="do not end with a whole segment"):
        repeated(tmp_path / "dataset", tmp_path / "many", [2])


def test_files_for_other_libraries_have_the_same_frames(footage: Path, tmp_path: Path) -> None:
    repeated(footage / CLIPS, tmp_path / "many", [2, 1])
    files = exported(tmp_path / "many", tmp_path)
    requests: Requests = [(0, [0, 31, 32, 63]), (1, [1, 2, 3, 31])]
    for found, expected in zip(torchcodec(files, "cpu", 2)(requests), ours(tmp_path / "many")(requests), strict=True):
        assert torch.equal(found, expected)
    with av.open(str(files[0])) as container:
        assert container.streams.video[0].frames == 64, "the file's table says how many there are"


def test_a_source_is_copied_at_a_constant_rate(footage: Path, tmp_path: Path) -> None:
    copied(source_of(footage / LONG), tmp_path / "long.mp4", 3)
    with av.open(str(tmp_path / "long.mp4")) as container:
        times = [frame.time for frame in container.decode(video=0) if frame.time is not None]
        keyframes = [packet.is_keyframe for packet in av.open(str(tmp_path / "long.mp4")).demux(video=0)]
    assert times == pytest.approx([frame / 10 for frame in range(3 * 48)])
    assert sum(keyframes) == 6


def test_several_readers_answer_in_the_order_of_the_requests(footage: Path) -> None:
    requests = random_clips(random.Random(0), [32, 32], 7, 4, 3)
    at_once, alone = ours_at_once(footage / CLIPS, 3), ours(footage / CLIPS)
    for some in (requests, requests[:2]):
        assert all(torch.equal(*both) for both in zip(at_once(some), alone(some), strict=True))


def test_a_frame_of_all_videos_is_one_that_each_has() -> None:
    asked = [a_frame_of_all(random.Random(seed), [3, 9]) for seed in range(50)]
    assert {tuple(row for row, _ in requests) for requests in asked} == {(0, 1)}
    assert {tuple(frames) for requests in asked for _, frames in requests} == {(0,), (1,), (2,)}


def compared(answers: Mapping[str, Answer], expected: Answer, draw: Draw, **options: Any) -> dict[str, dict[str, Any]]:
    """What comes last of `comparing`."""
    *_, found = comparing(answers, expected, draw, **options)
    return found


def test_readers_are_compared_and_those_that_fail_are_named(footage: Path) -> None:
    right = ours(footage / CLIPS)

    def brighter(requests: Requests) -> Iterable[torch.Tensor]:
        return [clip.clamp(max=254) + 1 for clip in right(requests)]

    def failing_later() -> Answer:
        calls = iter(range(3))

        def answer(requests: Requests) -> Iterable[torch.Tensor]:
            if next(calls) == 2:
                raise MemoryError("no more")
            return right(requests)

        return answer

    def not_there() -> Answer:
        raise ImportError("it is not here")

    readers = {"right": lambda: right, "brighter": lambda: brighter, "later": failing_later, "absent": not_there}
    answers, failed = opened(readers)
    assert failed == {"absent": "ImportError: it is not here"}
    found = compared(answers, right, lambda rng: random_clips(rng, [32, 32], 2, 2, 1), seconds=0.01, rounds=3)
    assert found["later"] == {"failed": "MemoryError: no more"}
    assert found["right"]["frames/s"] > 0
    assert (found["right"]["mean difference"], found["brighter"]["mean difference"]) == (0, pytest.approx(1, abs=0.1))


def test_readers_that_take_long_to_open_leave_time_to_measure_those_before_them(footage: Path) -> None:
    """The second one opens files for two seconds, of three that there are, and then the third would have no time."""
    right, waits = ours(footage / CLIPS), iter([1.5, 0.5])

    def slow_to_open(requests: Requests) -> Iterable[torch.Tensor]:
        time.sleep(next(waits, 0))
        return right(requests)

    found = compared(
        {"first": right, "slow": slow_to_open, "last": right},
        right,
        lambda rng: random_clips(rng, [32, 32], 2, 2, 1),
        seconds=0.2,
        deadline=time.perf_counter() + 3,
    )
    assert found["first"]["frames/s"] > 0
    assert found["slow"]["frames/s"] > 0
    assert found["last"] == {"not measured": "there was no time for it"}


def test_readers_whose_requests_take_long_do_not_use_up_the_time_of_others(footage: Path) -> None:
    """What a killed benchmark was about to measure would be lost, of other videos too."""
    right = ours(footage / CLIPS)

    def slow(requests: Requests) -> Iterable[torch.Tensor]:
        time.sleep(0.2)
        return right(requests)

    started = time.perf_counter()
    found = compared(
        {"slow": slow}, right, lambda rng: random_clips(rng, [32, 32], 2, 2, 1), seconds=0, deadline=started + 0.3
    )
    assert found["slow"]["not measured"].startswith("its first requests came at ")


def test_wrong_frames_are_an_error_also_where_there_is_no_time_to_measure(footage: Path) -> None:
    right = ours(footage / CLIPS)

    def slow_and_wrong(requests: Requests) -> Iterable[torch.Tensor]:
        time.sleep(0.2)
        return [255 - clip for clip in right(requests)]

    found = compared(
        {"shortgop": slow_and_wrong, "shortgop, later": right},
        right,
        lambda rng: random_clips(rng, [32, 32], 2, 2, 1),
        seconds=0,
        deadline=time.perf_counter() + 0.3,
    )
    assert all("not measured" in figures for figures in found.values())
    assert gpu_benchmarks.wrong_of_ours(found) == ["shortgop"]


def test_which_readers_of_ours_are_wrong() -> None:
    found: dict[str, dict[str, Any]] = {
        "shortgop": {"frames/s": 9, "mean difference": 0.0},
        "shortgop, 4 at once": {"frames/s": 9, "mean difference": 0.01},
        "shortgop, broken": {"failed": "OSError: no"},
        "TorchCodec": {"frames/s": 9, "mean difference": 1.5},
    }
    assert gpu_benchmarks.wrong_of_ours(found) == ["shortgop, 4 at once", "shortgop, broken"]


def test_what_is_known_before_another_library_crashes_is_told(footage: Path) -> None:
    """In its first requests or later. It takes the process with it, and so what was only remembered."""
    right = ours(footage / CLIPS)
    draw = partial(random_clips, lengths=[32, 32], count=2, frames=2, stride=1)
    told = list(comparing({"ours": right, "theirs": right}, right, draw, seconds=0, rounds=3))
    (opened_ours, opened_theirs), after_a_round = told[:2], told[2]
    assert opened_ours["ours"]["not measured"].startswith("its first requests came at ")
    assert opened_ours["theirs"] == {"not measured": "it was not asked yet, or did not end"}
    assert opened_theirs["theirs"]["not measured"].startswith("its first requests came at ")
    assert after_a_round["ours"]["frames/s"] > 0
    # Two readers, and the two rounds behind their first requests.
    assert len(told) == 4


def test_what_is_told_in_between_counts_for_nothing_at_the_end(tmp_path: Path) -> None:
    in_between, last = {"ours": {"not measured": "not yet"}}, {"ours": {"frames/s": 9}}
    record = Record(tmp_path / "report", tmp_path)
    assert gpu_benchmarks.recorded(record, "GOPs of 12", iter([("one", in_between), ("one", last)])) == []
    assert parse_report((tmp_path / "report").read_bytes()).figures == {"GOPs of 12, one": last}


def test_a_benchmark_that_lacks_figures_has_not_passed(tmp_path: Path) -> None:
    found = {"one frame": {"ours": {"frames/s": 9}, "theirs": {"not measured": "there was no time for it"}}}
    lacking = gpu_benchmarks.recorded(Record(tmp_path / "report", tmp_path), "GOPs of 12", iter(found.items()))
    with pytest.raises(OutOfTime, match="no time to measure 1 reader: GOPs of 12, one frame: theirs"):
        gpu_benchmarks.check_measured(lacking)
    gpu_benchmarks.check_measured([])


def test_a_level_in_one_value_of_many_is_no_equality(footage: Path) -> None:
    right = ours(footage / CLIPS)

    def one_off(requests: Requests) -> Iterable[torch.Tensor]:
        first, *others = (clip.clone() for clip in right(requests))
        first[0, 0, 0, 0] ^= 1
        return [first, *others]

    draw = partial(random_clips, lengths=[32, 32], count=6, frames=16, stride=1)
    found = compared({"one off": one_off}, right, draw, seconds=0, rounds=2)
    assert 0 < found["one off"]["mean difference"] < 1e-5


def test_the_same_requests_are_made_of_all_readers(footage: Path) -> None:
    asked: dict[str, list[Requests]] = {"one": [], "other": []}

    def noting(name: str) -> Answer:
        def answer(requests: Requests) -> Iterable[torch.Tensor]:
            asked[name].append(requests)
            return ours(footage / CLIPS)(requests)

        return answer

    compared(
        {name: noting(name) for name in asked},
        ours(footage / CLIPS),
        lambda rng: random_clips(rng, [32, 32], 2, 2, 1),
        seconds=0,
        rounds=3,
    )
    assert asked["one"] == asked["other"]
    assert len(asked["one"]) == 4


@pytest.mark.long
def test_benchmarks_compare_all_readers_in_all_ways(footage: Path) -> None:
    """On the CPU, where PyNvVideoCodec does not open."""
    found = dict(gpu_benchmarks.frames_of_cameras(footage / CLIPS, "cpu", repeats=1, seconds=0))
    found |= dict(gpu_benchmarks.clips_of_long(footage / LONG, "cpu", 24, seconds=0))
    found |= dict(gpu_benchmarks.clips_of_small(footage / LONG, "cpu", 24, seconds=0))
    found |= dict(gpu_benchmarks.clips_and_frames(footage / CLIPS, "cpu", repeats=6, seconds=0))
    lacking = found.pop("readers that do not open")
    assert {name.split(",")[0] for name in lacking} == {"PyNvVideoCodec"}
    assert len(found) == 2 + 1 + 6
    for figures in found.values():
        assert all(each["frames/s"] > 0 for each in figures.values())
        assert all(not each["mean difference"] for name, each in figures.items() if "source" not in name)


def test_what_readers_get_out_of_the_engines_is_said(footage: Path) -> None:
    found = dict(
        gpu_engines.use_of_engines(footage / LONG, "cpu", lambda: Contexts(open_context), seconds=0.02, rounds=2)
    )
    whole, by_reader, at_work, part = found.values()
    assert all(rate > 0 for rate in (*whole.values(), *by_reader.values()))
    assert set(at_work.values()) == {0.0}, "the CPU has no engines"
    assert part == pytest.approx(max(by_reader.values()) / max(whole.values()), abs=0.01)


def test_ways_that_there_is_no_time_for_are_named(footage: Path) -> None:
    """Then nothing is decoded, and no part is told that the best of what was not measured would be."""
    found = dict(gpu_engines.use_of_engines(footage / LONG, "cpu", lambda: Contexts(open_context), deadline=0))
    assert list(found) == ["not measured"]
    assert [name for name in found["not measured"] if "from start to end" in name] == [
        f"{threads} threads from start to end" for threads in (1, 2, 4)
    ]
    assert len(found["not measured"]) == 3 + 5


def test_what_would_end_behind_the_deadline_is_not_begun(footage: Path) -> None:
    """A thread that takes a second leaves no time for two, and a reader needs two rounds of ten seconds."""
    deadline = time.perf_counter() + 2.5

    def slow() -> Contexts:
        time.sleep(1)
        return Contexts(open_context)

    found = dict(gpu_engines.use_of_engines(footage / LONG, "cpu", slow, seconds=10, rounds=2, deadline=deadline))
    assert list(found["packets/s from start to end"]) == ["1 threads"]
    assert len(found["not measured"]) == 2 + 5
    assert len(found) == 2


def test_packets_are_counted_once_where_frames_share_them(footage: Path) -> None:
    """A request for one frame ten times gives ten frames and decodes a packet."""
    rates = gpu_engines.measured_rates([shortgop.open(footage / LONG)], lambda _: [(0, [0] * 10)], 0, seconds=0.02)
    assert rates.frames == pytest.approx(10 * rates.packets)


def test_several_readers_request_at_once(footage: Path) -> None:
    readers = [shortgop.open(footage / LONG) for _ in range(2)]
    gate, first = threading.Barrier(2, timeout=20), threading.local()

    def meeting(rng: random.Random) -> Requests:
        if not hasattr(first, "met"):
            gate.wait()
            first.met = True
        return random_clips(rng, [48], 1, 1, 1)

    assert gpu_engines.measured_rates(readers, meeting, 0, seconds=0.02).frames > 0
    assert all(dataset.stats().frames_delivered > 0 for dataset in readers)
