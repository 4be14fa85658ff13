"""Long MP4s in a store: a look at one reads its index, and stretches of it are made from the bytes that they need."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from datasets import rows_of
from flaky_proxy import FlakyProxy
from shortgop.jobs.finding.addresses import parse
from shortgop.jobs.finding.store_files import StoreFile, copied
from shortgop.jobs.named_options import prepare_without_warning
from shortgop.prep.part_of_file import packet_range, probe_by_index
from shortgop.prep.probing.header_estimate import estimate
from shortgop.prep.probing.probe import probe
from store_helpers import put
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number

RATE = Fraction(30)
NUM_FRAMES = 1200
# Filled up to 3 Mbit/s, as a file has to be of some size for its parts to be worth fetching.
FILLED = "nal-hrd=cbr:bitrate=3000:vbv-maxrate=3000:vbv-bufsize=3000:b-adapt=0:scenecut=0"
FRONT = {"movflags": "faststart"}


def make(path: Path, params: str = FILLED, **options: Any) -> SyntheticVideo:
    pts = constant_rate_pts(RATE, NUM_FRAMES)
    return make_video(
        path, pts=pts, timebase=1 / RATE, gop=20, options={"preset": "ultrafast", "x264-params": params}, **options
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("long")


@pytest.fixture(scope="module")
def at_the_end(folder: Path) -> SyntheticVideo:
    """Make a long MP4 with sound, and with its index at the end, as most are recorded."""
    return make(folder / "end.mp4", b_frames=2, audio_start=Fraction(0))


@pytest.fixture(scope="module")
def in_front(folder: Path) -> SyntheticVideo:
    """Make a long MP4 with its index in front, as those for the web are."""
    return make(folder / "front.mp4", container_options=FRONT)


@pytest.fixture(scope="module")
def in_fragments(folder: Path) -> SyntheticVideo:
    """Make a long MP4 whose index is spread over the file."""
    return make(folder / "fragments.mp4", container_options={"movflags": "frag_keyframe+empty_moov"})


@pytest.fixture(scope="module")
def with_open_gops(folder: Path) -> SyntheticVideo:
    """Make a long MP4 whose keyframes are no frames from which everything decodes."""
    return make(folder / "open.mp4", f"{FILLED}:open-gop=1", b_frames=3)


def bytes_read(proxy: FlakyProxy) -> int:
    """How many bytes the GETs of ranges so far asked for."""
    total = 0
    for request in proxy.requests("GET", holding=".mp4"):
        first, _, last = request.range.removeprefix("bytes=").partition("-")
        total += int(last) - int(first) + 1 if first else int(last)
    return total


@pytest.mark.first_case_short
@pytest.mark.parametrize("kind", ["at_the_end", "in_front"])
def test_a_look_at_a_long_mp4_reads_its_index(
    kind: str, request: pytest.FixtureRequest, proxied_url: str, s3_proxy: FlakyProxy
) -> None:
    video: SyntheticVideo = request.getfixturevalue(kind)
    put(f"{proxied_url}/long.mp4", video.path)
    s3_proxy.forget()
    with copied(StoreFile(parse(f"{proxied_url}/long.mp4"))) as copy:
        assert estimate(copy.reader(), None).frames == NUM_FRAMES
    assert len(s3_proxy.requests()) <= 4
    assert bytes_read(s3_proxy) < video.path.stat().st_size / 10


@pytest.mark.parametrize("kind", ["at_the_end", "in_front", "with_open_gops"])
def test_the_index_says_which_packets_are_keyframes(kind: str, request: pytest.FixtureRequest, s3_url: str) -> None:
    """FFmpeg's parsers would say it from the content of packets, of which nearly all are not there."""
    video: SyntheticVideo = request.getfixturevalue(kind)
    put(f"{s3_url}/long.mp4", video.path)
    with copied(StoreFile(parse(f"{s3_url}/long.mp4"))) as copy:
        source = probe_by_index(copy)
    # What is not fetched reads as zeros, which are no sign of damage.
    assert source.suspicion == ""
    found = source.entries.tolist()
    assert found == probe(str(video.path)).entries.tolist()
    assert len(found) == NUM_FRAMES // 20


def cut(source: str, folder: Path, name: str, *times: tuple[float, float | str]) -> Path:
    rows = [f"{source},clip{number},{start},{end}" for number, (start, end) in enumerate(times)]
    (folder / f"{name}.csv").write_text("\n".join(["path,id,start,end", *rows]) + "\n")
    report = shortgop.prepare(folder / f"{name}.csv", folder / name, cuts="start,end", runner="inline")
    assert report.failures == ()
    return folder / name


def numbers(dataset: Path) -> list[list[int]]:
    return [[read_number(frame) for frame in video] for video in shortgop.open(dataset)]


TIMES = ((2.5, 3.5), (35, 35.9), (0, 0.2))
SHOWN = [list(range(75, 105)), list(range(1050, 1077)), list(range(6))]


@pytest.mark.parametrize("kind", ["at_the_end", "in_front"])
def test_stretches_are_made_from_the_bytes_that_they_need(
    kind: str, request: pytest.FixtureRequest, proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path
) -> None:
    video: SyntheticVideo = request.getfixturevalue(kind)
    put(f"{proxied_url}/long.mp4", video.path)
    s3_proxy.forget()
    in_store = cut(f"{proxied_url}/long.mp4", tmp_path, "in_store", *TIMES)
    assert bytes_read(s3_proxy) < video.path.stat().st_size / 2
    assert numbers(in_store) == SHOWN
    on_disk, rows = rows_of(cut(str(video.path), tmp_path, "on_disk", *TIMES)), rows_of(in_store)
    differing = {name for name in rows if rows[name] != on_disk.get(name)}
    assert {name for name in differing if not name.startswith("bytes of")} <= {
        *("videos.source", "videos.path", "videos.identity", "shards.name", "snapshot"),
    }


@pytest.mark.first_case_short
@pytest.mark.parametrize("kind", ["in_fragments", "with_open_gops"])
def test_where_the_index_is_not_enough_the_whole_file_is_fetched(
    kind: str, request: pytest.FixtureRequest, s3_url: str, tmp_path: Path
) -> None:
    video: SyntheticVideo = request.getfixturevalue(kind)
    put(f"{s3_url}/long.mp4", video.path)
    assert numbers(cut(f"{s3_url}/long.mp4", tmp_path, "dataset", *TIMES)) == SHOWN


@pytest.mark.long
def test_stretches_of_most_of_a_file_are_made_from_the_whole(
    at_the_end: SyntheticVideo, s3_url: str, tmp_path: Path
) -> None:
    put(f"{s3_url}/long.mp4", at_the_end.path)
    (shown,) = numbers(cut(f"{s3_url}/long.mp4", tmp_path, "dataset", (1, "")))
    assert shown == list(range(30, NUM_FRAMES))


def test_damage_in_a_stretch_is_found(at_the_end: SyntheticVideo, s3_url: str, tmp_path: Path) -> None:
    data = bytearray(at_the_end.path.read_bytes())
    # In the middle of the video, and so of the stretch.
    data[len(data) // 2 : len(data) // 2 + 20_000] = random.Random(0).randbytes(20_000)
    put(f"{s3_url}/long.mp4", bytes(data))
    (tmp_path / "list.csv").write_text(f"path,start,end\n{s3_url}/long.mp4,19,21\n")
    report = prepare_without_warning(tmp_path / "list.csv", tmp_path / "dataset", cuts="start,end", runner="inline")
    (failure,) = report.failures
    assert "--salvage" in failure.reason
    assert f"{s3_url}/long.mp4" in failure.reason


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300), st.data())
def test_the_packets_of_a_range_hold_all_that_is_shown_in_it(sizes: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(sizes))))
    starts = np.cumsum([48, *sizes])[:-1]
    places = np.stack([np.array(order), starts, np.array(sizes)], axis=1)
    first, last = sorted(data.draw(st.tuples(st.sampled_from(order), st.sampled_from(order))))
    start, stop = packet_range(places, None, last)
    assert start == 48
    shown = places[places[:, 0] <= last]
    assert (shown[:, 1] + shown[:, 2]).max() <= stop
    start, _ = (
        packet_range(places, first, last)
        if np.flatnonzero(places[:, 0] <= last)[-1] >= order.index(first)
        else (int(starts[order.index(first)]), 0)
    )
    assert start == starts[order.index(first)]
