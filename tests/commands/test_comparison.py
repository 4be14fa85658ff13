"""Benchmarks: random requests, statistics, tables, and `shortgop bench` from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from floor import floor_task, packets_of
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import shortgop
from datasets import make_dataset
from example_manifests import failure
from shortgop.cli import app
from shortgop.comparison.accesses import Access, draw, parse_clip
from shortgop.comparison.chart import Bar, Group, check_chart, write_chart
from shortgop.comparison.estimates import Estimate, median, ratio_of_sums
from shortgop.comparison.files import runs, scan
from shortgop.comparison.measure import Options, measure, num_requests
from shortgop.comparison.peers import PEERS, load
from shortgop.comparison.tasks import FileSet
from shortgop.comparison.timing import LEAST_REQUESTS, Measured, alternate
from shortgop.errors import SourceError, ToolError, UsageError
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo


@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    access=st.builds(Access, st.integers(1, 6), st.integers(1, 5), st.integers(1, 4)),
    seed=st.integers(0, 100),
)
def test_every_drawn_clip_lies_in_its_video(lengths: list[int], access: Access, seed: int) -> None:
    if max(lengths) < access.span:
        with pytest.raises(UsageError, match="long enough"):
            draw(lengths, access, 3, seed)
        return
    requests = draw(lengths, access, 3, seed)
    assert requests == draw(lengths, access, 3, seed)
    for request in requests:
        assert len(request) == access.batch
        for number, frames in request:
            assert len(frames) == access.frames
            assert 0 <= frames[0] <= frames[-1] < lengths[number]
            assert {b - a for a, b in zip(frames, frames[1:], strict=False)} <= {access.stride}


def test_every_clip_is_as_likely_as_any_other() -> None:
    requests = draw([3, 0, 7], Access(2), 16_000, seed=1)
    counts = Counter(clip for request in requests for clip in request)
    assert set(counts) == {(0, range(f, f + 2)) for f in range(2)} | {(2, range(f, f + 2)) for f in range(6)}
    assert all(1800 < count < 2200 for count in counts.values())


def test_a_dataset_without_videos_has_nothing_to_read(empty_dataset: Path) -> None:
    write_part(DiskStorage(empty_dataset), "u1", failure("a", "no video"))
    publish(DiskStorage(empty_dataset))
    with pytest.raises(UsageError, match=f"{empty_dataset} has no video to read; prepare some first"):
        measure(str(empty_dataset), Options())


def test_large_batches_are_drawn_less_often() -> None:
    """All are in memory before the first is read."""
    assert [num_requests(Access(16, batch=batch)) for batch in (1, 40, 256)] == [5000, 5000, 781]
    assert num_requests(Access(16, batch=40_000)) == LEAST_REQUESTS
    with pytest.raises(UsageError, match="--batch is 40001; it takes up to 40000"):
        Options((Access(1), Access(16, batch=40_001)))


def test_long_clips_take_no_more_memory_than_short_ones() -> None:
    tracemalloc.start()
    try:
        kept = draw([100_000], Access(1000), 2000, seed=0)
        assert tracemalloc.get_traced_memory()[0] < 500 * len(kept)
    finally:
        tracemalloc.stop()


def test_a_clip_is_frames_by_stride() -> None:
    assert parse_clip("16x4", 32) == Access(16, 4, 32)
    assert Access(16, 4).span == 61
    for text in ("16", "16x", "0x1", "x", "16x4x2", "-1x1"):
        with pytest.raises(UsageError, match="FRAMESxSTRIDE"):
            parse_clip(text)


def test_every_reader_does_every_request_in_an_order_drawn_anew() -> None:
    order: list[tuple[str, int]] = []

    def noting(name: str) -> Callable[[int], object]:
        return lambda number: order.append((name, number))

    measured = alternate({name: noting(name) for name in "abc"}, requests=50)
    assert order[:3] == [("a", 0), ("b", 0), ("c", 0)], "one request of each that is not counted"
    turns = ["".join(name for name, _ in order[place : place + 3]) for place in range(3, len(order), 3)]
    assert [number for _, number in order[3:]] == [number for number in range(50) for _ in "abc"]
    assert set(turns) == {"abc", "acb", "bac", "bca", "cab", "cba"}
    assert [(each.name, each.requests) for each in measured.figures()] == [("a", 50), ("b", 50), ("c", 50)]


def test_a_reader_is_compared_with_the_first_one_in_the_same_requests() -> None:
    first = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    slower = np.array([3.0, 6.0, np.nan, 24.0, np.nan])
    ours, other = Measured({"ours": first, "other": slower}, {}).figures()
    assert (ours.requests, ours.milliseconds.value, ours.ratio) == (5, 4000.0, Estimate(1.0, 1.0, 1.0))
    assert (other.requests, other.milliseconds.value, other.mean_milliseconds) == (3, 6000.0, 11000.0)
    # The requests differ in what they cost, and the readers do not: the interval is of no width.
    assert (other.ratio, other.total_ratio) == (Estimate(3.0, 3.0, 3.0), Estimate(3.0, 3.0, 3.0))


def test_a_slow_reader_leaves_the_time_to_the_others() -> None:
    tasks = {"a": lambda _: None, "slow": lambda _: time.sleep(0.06), "b": lambda _: time.sleep(0.001)}
    counts = {each.name: each.requests for each in alternate(tasks, requests=1000, seconds=0.9).figures()}
    assert counts["slow"] <= 6
    assert counts["slow"] < counts["b"] <= counts["a"] < 1000


def test_a_reader_has_some_requests_however_slow_it_is() -> None:
    tasks = {"a": lambda _: None, "slow": lambda _: time.sleep(0.01)}
    measured = alternate(tasks, requests=100, seconds=0.001, least_requests=4)
    assert [each.requests for each in measured.figures()] == [4, 4]


def test_a_reader_that_raises_is_listed_with_its_reason() -> None:
    def broken(number: int) -> None:
        if number == 2:
            raise KeyError("no such frame\nand more")

    measured = alternate({"good": lambda _: None, "broken": broken}, requests=4)
    assert list(measured.seconds) == ["good"]
    assert measured.problems == {"broken": "KeyError: 'no such frame\\nand more'"}
    with pytest.raises(KeyError, match="no such frame"):
        alternate({"broken": broken, "good": lambda _: None}, requests=4)


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=60), st.floats(0.01, 100))
def test_an_estimate_lies_in_its_interval_and_scales(values: list[float], factor: float) -> None:
    array = np.array(values)
    estimate = median(array)
    assert min(values) <= estimate.low <= estimate.value <= estimate.high <= max(values)
    assert ratio_of_sums(array * factor, array).value == pytest.approx(factor)
    scaled = median(array * factor)
    assert (scaled.low, scaled.high) == pytest.approx((estimate.low * factor, estimate.high * factor))


@pytest.mark.parametrize("count", [15, 60])
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says(count: int) -> None:
    """Requests of very different cost, on a machine that is slower in some minutes than in others."""
    rng, held, held_total, runs_ = np.random.default_rng(count), 0, 0, 120
    true_median = 4.0
    true_total = 4.0 * np.exp(0.5**2 / 2)  # the mean of a lognormal
    for _ in range(runs_):
        cost = rng.lognormal(0, 1, count) * (1 + np.linspace(0, 1, count))
        ratios = true_median * rng.lognormal(0, 0.5, count)
        _, other = Measured({"ours": cost, "other": cost * ratios}, {}).figures()
        held += other.ratio.low <= true_median <= other.ratio.high
        held_total += other.total_ratio.low <= true_total <= other.total_ratio.high
    assert held / runs_ > 0.88
    # What few requests cost most decides, so that this one needs more of them.
    assert held_total / runs_ > (0.75 if count == 15 else 0.85)


def test_noise_that_all_readers_share_does_not_widen_the_ratio() -> None:
    rng = np.random.default_rng(0)
    cost = rng.lognormal(0, 1, 100)
    _, other = Measured({"ours": cost, "other": 2 * cost * rng.lognormal(0, 0.02, 100)}, {}).figures()
    assert other.milliseconds.high / other.milliseconds.low > 1.3
    assert other.ratio.high / other.ratio.low < 1.02


def test_an_estimate_is_shown_with_its_interval() -> None:
    assert str(Estimate(3.04, 0.994, 12.3)) == "3.0 (0.99-12)"


def test_seeking_pays_only_where_a_keyframe_lies_between(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    assert runs(scan(constant_video.path), [3, 3, 50, 99]) == [[3, 3, 50, 99]]
    make_dataset([constant_video.path], tmp_path / "d", gop_frames=10)
    CliRunner().invoke(app, ["export", str(tmp_path / "d"), "constant.mp4", str(tmp_path / "e.mp4")])
    assert runs(scan(tmp_path / "e.mp4"), [3, 4, 9, 10, 35]) == [[3, 4, 9], [10], [35]]


def test_a_file_that_is_no_video_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("no video")
    with pytest.raises(SourceError, match=r"a\.mp4 does not open"):
        scan(tmp_path / "a.mp4")


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("source", ["constant_video", "variable_video"])
def test_peers_read_the_frames_that_they_are_asked_for(
    name: str, source: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    readers, missing = load([name])
    if missing:
        pytest.skip(missing[name])
    if name == "torchcodec-approximate" and source == "variable_video":
        pytest.skip("approximate mode takes the rate for constant")
    path = request.getfixturevalue(source).path
    make_dataset([path], tmp_path / "d", crf=5)
    (opened,) = shortgop.open(tmp_path / "d")
    files = FileSet.of_sources("sources", [opened])
    frames = [5, 6, 40, 41, 77]
    found = torch.as_tensor(readers[name](files.files[0], files.frames[0][frames].tolist()))
    found = found if found.shape[-1] == 3 else found.permute(0, 2, 3, 1)
    expected = opened.get_frames_at(frames).data.permute(0, 2, 3, 1)
    # A neighbouring frame shows another number and differs by far more.
    assert (found.float() - expected.float()).abs().mean(dim=(1, 2, 3)).max() < 4


def test_a_chart_is_a_picture_or_a_drawing_by_its_suffix(tmp_path: Path) -> None:
    group = Group("clips", (Bar("shortgop", Estimate(2.0, 1.0, 3.0), "2.0 ms", ours=True),))
    for name in ("chart.png", "chart.SVG"):
        write_chart([group], tmp_path / name, title="Time", note="on this machine")
    with av.open(str(tmp_path / "chart.png")) as container:
        picture = next(container.decode(video=0))
    assert isinstance(picture, av.VideoFrame)
    assert len(np.unique(picture.to_ndarray(format="gray"))) > 10
    drawing = (tmp_path / "chart.SVG").read_text()
    assert all(text in drawing for text in ("clips", "shortgop", "2.0 ms", "Time", "on this machine"))


def test_a_chart_without_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ToolError, match=r"pip install 'shortgop\[bench\]'"):
        check_chart(tmp_path / "chart.png", overwrite=False)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def dataset(
    constant_video: SyntheticVideo, variable_video: SyntheticVideo, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    dataset = tmp_path_factory.mktemp("bench") / "dataset"
    make_dataset([constant_video.path, variable_video.path], dataset)
    return dataset


def test_the_floor_decodes_just_the_packets_that_are_needed(dataset: Path) -> None:
    _, manifest = open_current(DiskStorage(dataset))
    # Decoded in the order 0 4 1 2 3 8 5 6 7 12 9 10 11 15 13 14, where no other frame refers to those between.
    request = ((0, (0, 3, 6, 9)),)
    (gop,) = packets_of(dataset, manifest, request)
    assert [frame for _, frame in gop.packets] == [0, 4, 3, 8, 6, 12, 9]
    opened = shortgop.open(dataset)
    opened.get_clips(request)
    assert opened.stats().packets_decoded == 7
    # Raises where a frame does not come out.
    floor_task(dataset, [request, *draw([len(video) for video in opened], Access(4, 3), 3, seed=0)])(3)


QUICKLY = ("--seconds", 0.2)


def test_bench_measures_every_reader(dataset: Path, tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    patterns = ("--clip", "8x2", "--random-frames", "--batch", 2, "--threads", 2)
    result = run("bench", dataset, *patterns, *QUICKLY, "--peers", "pyav", "--exported", "--chart", chart, "--json")
    assert result.exit_code == 0, result.output
    report: Any = json.loads(result.stdout)
    assert [each["access"] for each in report["results"]] == [
        "clips of 8 frames, stride 2, batches of 2",
        "random frames, batches of 2",
    ]
    for each in report["results"]:
        readers = [(row["reader"], row["files"]) for row in each["readers"]]
        assert readers == [("shortgop", "dataset"), ("pyav", "sources"), ("pyav", "exported")]
        for row in each["readers"]:
            assert row["requests"] >= 5
            assert 0 < row["milliseconds"]["low"] <= row["milliseconds"]["value"] <= row["milliseconds"]["high"]
    assert (report["missing"], report["left_out"], report["videos"]) == ({}, {}, 2)
    words = chart.read_text()
    assert all(word in words for word in ("clips of 8 frames", "random frames", "pyav, exported", "shortgop, dataset"))


@pytest.mark.parametrize(
    ("patterns", "accesses"),
    [
        ((), ["clips of 16 frames, stride 4"]),
        (("--random-frames",), ["clips of 16 frames, stride 4", "random frames"]),
        (("--clip", "1x1"), ["random frames"]),
    ],
    ids=str,
)
def test_random_frames_are_measured_beside_the_default_clips(
    patterns: tuple[str, ...], accesses: list[str], dataset: Path
) -> None:
    result = run("bench", dataset, *patterns, "--seconds", 0.01, "--peers", "", "--json")
    assert result.exit_code == 0, result.output
    assert [each["access"] for each in json.loads(result.stdout)["results"]] == accesses


def test_bench_says_what_it_could_not_measure(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    source = tmp_path / "moved.mp4"
    source.write_bytes(constant_video.path.read_bytes())
    make_dataset([source], tmp_path / "d")
    source.unlink()
    result = run("bench", tmp_path / "d", "--clip", "4x1", *QUICKLY, "--peers", "pyav")
    assert result.exit_code == 0, result.output
    assert "not measured: pyav (sources): no source can be read" in result.stdout
    assert "is no file on this machine" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--clip", "16"), "--clip is '16'"),
        (("--peers", "vlc"), "there is no peer 'vlc'"),
        (("--clip", "500x1"), "that takes 500 frames, the longest has 218; choose shorter clips with --clip"),
        (("--seconds", "0"), "--seconds is 0.0"),
    ],
)
def test_what_cannot_be_measured_is_wrong_usage(arguments: tuple[str, ...], message: str, dataset: Path) -> None:
    result = run("bench", dataset, *arguments, *(() if "--seconds" in arguments else QUICKLY))
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_the_help_names_every_option_without_waiting_for_torch() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "shortgop", "bench", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--random-frames" in done.stdout
    assert not any(line.rpartition("|")[2].strip() in ("torch", "av") for line in done.stderr.splitlines())
