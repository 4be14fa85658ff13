"""Raw streams whose headers state another rate further on: each frame has the time that the rates before it say."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

import shortgop
from cut_sources import cut, numbers, write_list
from datasets import make_dataset
from odd_pictures import encode_pictures, numbered
from shortgop.jobs.prepare import Where, prepare
from shortgop.manifests.lacking import GUESSED_RATE
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.headers.stated_rates import counted_times
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

GOP = 12
CODECS = {
    "h264": ("-c:v", "libx264", "-preset", "veryfast", "-g", str(GOP), "-x264-params", "scenecut=0:b-adapt=0"),
    "hevc": (
        *("-c:v", "libx265", "-preset", "ultrafast", "-x265-params"),
        "log-level=error:keyint=12:scenecut=0:repeat-headers=1:open-gop=0:pools=none:frame-threads=1",
    ),
    "m2v": ("-c:v", "mpeg2video", "-q:v", "2", "-g", str(GOP)),
}
# A camera that is slower at night: its rates, and how many frames it takes at each.
NIGHT = [(30, 36), (15, 24), (30, 12), (60, 40)]


def encoded(suffix: str, b_frames: int) -> tuple[str, ...]:
    options = CODECS[suffix]
    if suffix == "hevc":
        return (*options[:-1], f"{options[-1]}:bframes={b_frames}", "-pix_fmt", "yuv420p")
    return (*options, "-bf", str(b_frames), "-pix_fmt", "yuv420p")


def stream(folder: Path, suffix: str, parts: Sequence[tuple[int, int]], b_frames: int = 0) -> Path:
    """A raw stream of parts of these rates and lengths, whose frames show their numbers."""
    data, first = b"", 0
    for rate, count in parts:
        part = folder / f"part.{suffix}"
        data += encode_pictures(
            part, numbered(range(first, first + count)), *encoded(suffix, b_frames), rate=rate
        ).read_bytes()
        first += count
    source = folder / f"x.{suffix}"
    source.write_bytes(data)
    return source


def packets_in(source: Path) -> list[bytes]:
    with av.open(source) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


def due(parts: Sequence[tuple[int, int]]) -> list[Fraction]:
    """When each frame is due, in seconds after the first."""
    times = [Fraction(0)]
    for rate, count in parts:
        times += [times[-1] + Fraction(number, rate) for number in range(1, count + 1)]
    return times[:-1]


@pytest.mark.first_case_short
@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("suffix", CODECS)
def test_each_part_of_a_raw_stream_has_the_rate_that_it_states(suffix: str, b_frames: int, tmp_path: Path) -> None:
    """FFmpeg counts all frames of H.264 at the first rate, and around a change it counts others wrongly."""
    source = stream(tmp_path, suffix, NIGHT, b_frames)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    times = due(NIGHT)
    assert video.metadata.fps == 60
    assert [read_number(frame) for frame in video] == [
        max(number for number, time in enumerate(times) if time <= Fraction(tick, 60)) for tick in range(len(video))
    ]
    assert len(video) == round(60 * (times[-1] + Fraction(1, 60)))
    shown = dict(zip(numbers(video), video.source_seconds(range(len(video))).tolist(), strict=True))
    assert [shown[number] - shown[0] for number in range(len(times))] == pytest.approx([float(time) for time in times])
    assert video.changes.dropped == 0
    assert GUESSED_RATE not in video.changes.given_up

    starts = (0.2, 1.2, 2.8, 3.2)
    cuts = write_list(tmp_path, *(f"{source.name},{start},{start + 0.4}" for start in starts))
    assert cut(cuts, tmp_path / "cuts").failures == ()
    for part, start in zip(shortgop.open(tmp_path / "cuts"), starts, strict=True):
        first = numbers(part)[0]
        # To half of the usual interval.
        assert float(times[first]) == pytest.approx(start, abs=1 / 60 + 1e-6)
        assert numbers(part) == [
            max(number for number, time in enumerate(times) if time <= times[first] + Fraction(tick, 60))
            for tick in range(len(part))
        ]
        assert len(part) in (23, 24)
        assert part.source_seconds([0]).item() - shown[0] == pytest.approx(float(times[first]))


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["h264", "hevc"])
def test_what_is_cut_off_of_it_moves_no_other_frame(suffix: str, tmp_path: Path) -> None:
    """A recording that begins within a GOP, and one that ends within a frame."""
    packets = packets_in(stream(tmp_path, suffix, NIGHT, 2))
    times = [float(time) for time in due(NIGHT)]
    for name, part, first in (("end", [*packets[:-1], packets[-1][:20]], 0), ("start", packets[5:], GOP)):
        source = tmp_path / f"{name}.{suffix}"
        source.write_bytes(b"".join(part))
        assert make_dataset([source], tmp_path / name).failures == ()
        (video,) = shortgop.open(tmp_path / name)
        shown = dict(zip(numbers(video), video.source_seconds(range(len(video))).tolist(), strict=True))
        there = sorted(shown)
        assert there == list(range(first, there[-1] + 1))
        assert there[-1] >= len(times) - 8
        seconds = [shown[number] - shown[first] for number in there]
        assert seconds == pytest.approx([times[number] - times[first] for number in there])


def test_where_frames_are_missing_it_is_not_guessed_which(tmp_path: Path) -> None:
    source = stream(tmp_path, "hevc", NIGHT)
    packets = packets_in(source)
    source.write_bytes(b"".join(packets[:17] + packets[18:]))
    policy = SourcePolicy(salvage=True)
    report = prepare([str(source)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where("inline"), policy=policy)
    (failure,) = report.failures
    assert "its headers state several rates, so it is not known when its frames are shown" in failure.reason
    assert "cut it where the rate changes" in failure.reason


def test_hours_of_two_rates_are_few_terms(tmp_path: Path) -> None:
    """ffmpeg moves each frame of a part by as much more as it is behind the one before."""
    parts = [(25, 24), (12, 24)] * 40
    source = stream(tmp_path, "h264", parts[:2])
    source.write_bytes(source.read_bytes() * 40)
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert len(video) == pytest.approx(float(sum(Fraction(count, rate) for rate, count in parts)) * 25, abs=1)


def test_rates_change_at_keyframes_only() -> None:
    """Durations that change elsewhere are those of film, whose frames are shown for two fields and three in turn."""
    assert counted_times([4, 4, 4, 4], [0, 2]) is None
    found = counted_times([4, 4, 2, 2], [0, 2])
    assert found is not None
    assert (found[0].tolist(), found[1]) == ([0, 4, 8, 10], 2)
    assert counted_times([4, 6, 4, 6], [0, 2]) is None
    assert counted_times([], []) is None


def test_a_rate_that_is_none_changes_none() -> None:
    """As of H.264 that was taken out of a file of another timebase: 90,000 frames a second."""
    assert counted_times([4, 4, 0, 0], [0, 2]) is None
    found = counted_times([4, 0, 4, 2], [0, 1, 2, 3])
    assert found is not None
    assert np.diff(found[0]).tolist() == [4, 4, 4]
    assert counted_times([0, 0, 4, 2], [0, 2, 3]) is None


def test_a_raw_stream_that_states_a_rate_only_further_on_is_told(tmp_path: Path) -> None:
    """Its beginning is taken as 25 frames/s, like a stream that states none."""
    parts = []
    for first, coded in ((0, ("-c:v", "libopenh264", "-b:v", "1M")), (GOP, encoded("h264", 0))):
        part = encode_pictures(tmp_path / "part.h264", numbered(range(first, first + GOP)), *coded, rate=15)
        parts.append(part.read_bytes())
    source = tmp_path / "x.h264"
    source.write_bytes(b"".join(parts))
    assert make_dataset([source], tmp_path / "dataset").guessed_rates == ("x.h264",)
    (video,) = shortgop.open(tmp_path / "dataset")
    assert video.changes.given_up == (GUESSED_RATE,)
    shown = dict(zip(numbers(video), video.source_seconds(range(len(video))).tolist(), strict=True))
    assert [shown[number] - shown[0] for number in range(2 * GOP)] == pytest.approx(
        [number / 25 for number in range(GOP)] + [GOP / 25 + number / 15 for number in range(GOP)]
    )
    # One that states it from its beginning on is not told of, whatever follows.
    source.write_bytes(b"".join(parts[::-1]))
    assert make_dataset([source], tmp_path / "other").guessed_rates == ()
