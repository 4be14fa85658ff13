"""MPEG-2 whose fields are pictures of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

import shortgop
from field_pictures import written
from mpeg2_fields import mpeg2_field_packets
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.headers.access_units import HeaderReader
from shortgop.prep.profile import Profile, Size
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

FRAMES, GOP = 24, 6


@pytest.fixture(scope="module")
def fields() -> list[bytes]:
    return mpeg2_field_packets(range(FRAMES), gop=GOP)


def prepared(source: Path, *, salvage: bool = False) -> tuple[Report, shortgop.Video | None]:
    out, profile = source.parent / f"dataset-{salvage}", Profile(preset="ultrafast", size=Size(short_side=128))
    report = prepare([str(source)], DiskStorage(out), profile, where=Where("inline"), policy=SourcePolicy(salvage))
    return report, None if report.failures else shortgop.open(out)[0]


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", [".ts", ".mkv", ".m2v"])
def test_two_fields_of_mpeg2_are_one_frame(suffix: str, fields: list[bytes], tmp_path: Path) -> None:
    source = tmp_path / f"x{suffix}"
    if suffix == ".m2v":
        source.write_bytes(b"".join(fields))
    else:
        written(source, fields)
    report, video = prepared(source)
    assert video is not None, report.failures
    assert [read_number(frame) for frame in video] == list(range(FRAMES))
    assert video.metadata.fps == 25
    assert (video.changes.dropped, video.changes.repeated) == (0, 0)


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", [".ts", ".mkv"])
@pytest.mark.parametrize("lost", [14, 15], ids=["a first field", "a second field"])
def test_no_frame_is_put_together_of_the_fields_of_two(
    lost: int, suffix: str, fields: list[bytes], tmp_path: Path
) -> None:
    """FFmpeg does so from a lost field on, up to the next GOP, and has no message for it in Matroska."""
    source = written(tmp_path / f"x{suffix}", fields, (lost,))
    report, _ = prepared(source)
    assert "a frame lacks a field" in report.failures[0].reason
    report, video = prepared(source, salvage=True)
    assert video is not None, report.failures
    numbers = [read_number(frame) for frame in video]
    ((first, stop),) = video.changes.salvaged
    assert numbers == [*range(first), *[first - 1] * (stop - first), *range(stop, FRAMES)]
    assert (first < 7, stop) == (True, 12 if suffix == ".mkv" else 17)


@pytest.mark.parametrize("suffix", [".ts", ".mkv"])
def test_mpeg2_that_is_cut_between_two_fields_ends_before_their_frame(
    suffix: str, fields: list[bytes], tmp_path: Path
) -> None:
    """FFmpeg shows the field as a frame, and leaves out the one before it."""
    report, video = prepared(written(tmp_path / f"x{suffix}", fields[:-1]))
    assert video is not None, report.failures
    numbers = [read_number(frame) for frame in video]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) in (FRAMES - 2, FRAMES - 1)


@pytest.mark.parametrize(("suffix", "first"), [(".ts", 2 * GOP), (".m2v", 2 * GOP), (".mkv", GOP)])
def test_mpeg2_that_begins_between_two_fields_starts_at_the_next_gop_that_is_there(
    suffix: str, first: int, fields: list[bytes], tmp_path: Path
) -> None:
    """All its pictures are keyframes for FFmpeg, which cannot decode those before the header of a sequence. Where it
    finds pictures by itself, it takes the first field of the next GOP for the second one of the frame before."""
    source = tmp_path / f"x{suffix}"
    if suffix == ".m2v":
        source.write_bytes(b"".join(fields[1:]))
    else:
        written(source, fields[1:])
    report, video = prepared(source)
    assert video is not None, report.failures
    assert [read_number(frame) for frame in video] == list(range(first, FRAMES))
    assert video.changes.salvaged == ()
    assert video.changes.dropped in (first - 1, first)


def test_fields_are_those_of_a_frame_if_they_have_its_number(fields: list[bytes]) -> None:
    reader = HeaderReader("mpeg2video", None)
    read = [reader.read(packet) for packet in (fields[0], fields[1], fields[2], fields[5])]
    assert [unit.is_second_field for unit in read] == [False, True, False, False]
    assert [unit.follows_half for unit in read] == [False, False, False, True]
    assert reader.is_in_mid_frame
    together = [reader.read(first + second) for first, second in ((fields[6], fields[7]), (fields[9], fields[10]))]
    assert [unit.lacks_field for unit in together] == [False, True]
