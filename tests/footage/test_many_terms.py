"""Sources that need long expressions of ffmpeg: many stretches, gaps, damaged places, recordings."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from shortgop.jobs.finding.importing import PLAIN, Importing
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.timing.expressions import sum_of
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
# More than ffmpeg's parser would nest: it takes a hundred.
MANY = 150
SMALL = (96, 64)
PROFILE = Profile(gop_frames=4, preset="ultrafast")


def prepared(source: Path, policy: SourcePolicy, importing: Importing = PLAIN) -> shortgop.Dataset:
    out = source.parent / "dataset"
    report = prepare(
        [str(source)], DiskStorage(out), PROFILE, where=Where("inline"), policy=policy, importing=importing
    )
    assert [failure.reason for failure in report.failures] == []
    return shortgop.open(out)


def numbers(video: shortgop.Video) -> list[int]:
    return [read_number(frame) for frame in video]


@given(st.lists(st.integers(0, 10**6), max_size=600))
def test_a_sum_of_many_terms_is_nested_a_few_levels_deep(terms: list[int]) -> None:
    text = sum_of(map(str, terms))
    assert eval(text) == sum(terms)  # digits, plus signs and parentheses
    depth = deepest = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        deepest = max(deepest, depth)
    assert deepest <= 3
    assert all(group.count("+") < 16 for group in text.replace("(", ")").split(")"))


def test_many_stretches_of_a_file(tmp_path: Path) -> None:
    make_video(tmp_path / "v.mp4", pts=range(2 * MANY), timebase=1 / RATE, size=SMALL)
    lines = [f"v.mp4,{2 * number}/25,{2 * number + 2}/25,{number:03}" for number in range(MANY)]
    (tmp_path / "list.csv").write_text("\n".join(["path,start,end,id", *lines]))
    dataset = prepared(tmp_path / "list.csv", SourcePolicy(), Importing(cuts=("start", "end")))
    assert [numbers(dataset[f"{number:03}"]) for number in range(MANY)] == [
        [2 * number, 2 * number + 1] for number in range(MANY)
    ]


def test_many_gaps_that_are_closed(tmp_path: Path) -> None:
    pts = [50 * (number // 2) + number % 2 for number in range(2 * MANY)]
    source = make_video(tmp_path / "v.mkv", pts=pts, timebase=1 / RATE, size=SMALL)
    (video,) = prepared(source.path, SourcePolicy(gaps="close", max_gap_seconds=Fraction(1)))
    assert numbers(video) == list(range(2 * MANY))


def test_many_damaged_places(tmp_path: Path) -> None:
    source = make_video(tmp_path / "v.mp4", pts=constant_rate_pts(RATE, 4 * MANY), timebase=1 / RATE, gop=2, size=SMALL)
    with av.open(source.path) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(source.path.read_bytes())
    # The second frame of every other GOP.
    for position, size in packets[3::4]:
        assert position is not None
        data[position : position + size] = random.Random(position).randbytes(size)
    source.path.write_bytes(data)
    (video,) = prepared(source.path, SourcePolicy(salvage=True))
    salvaged = {frame for first, stop in video.changes.salvaged for frame in range(first, stop)}
    assert len(video.changes.salvaged) > 100
    assert [number for frame, number in enumerate(numbers(video)) if frame not in salvaged] == [
        frame for frame in range(len(video)) if frame not in salvaged
    ]
    # Behind the last GOP, which is damaged too, nothing is sound.
    assert len(video) == 4 * MANY - 2


@pytest.mark.long
def test_many_recordings_that_were_joined(tmp_path: Path) -> None:
    one = make_video(tmp_path / "one.ts", pts=constant_rate_pts(RATE, 12), timebase=1 / RATE, gop=12, size=SMALL)
    joined = tmp_path / "joined.ts"
    joined.write_bytes(one.path.read_bytes() * MANY)
    (video,) = prepared(joined, SourcePolicy(salvage=True))
    salvaged = {frame for first, stop in video.changes.salvaged for frame in range(first, stop)}
    shown = numbers(video)
    assert len(shown) == 12 * MANY
    assert [number for frame, number in enumerate(shown) if frame not in salvaged] == [
        frame % 12 for frame in range(12 * MANY) if frame not in salvaged
    ]
    # At most the last packets before a join look incomplete.
    assert len(salvaged) <= 4 * MANY
