"""Edit lists of MP4 that FFmpeg does not follow: refused, in place of frames that no player shows there."""

from __future__ import annotations

import re
import shlex
import struct
from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset
from mp4_writer import box, full_box
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.manifests.mp4 import boxes
from shortgop.prep.probing.edit_list import why_edits_are_misread
from synthetic import read_number

FRAMES = 60
# A frame of 30 a second, in units of the media, whose length in the file is 1/15360 s; edits are in milliseconds.
FRAME = 512
EMPTY = -1

PAUSES = {
    "in the middle": ((1000, 0), (500, EMPTY), (1000, 30 * FRAME)),
    "at the end": ((2000, 0), (500, EMPTY)),
    "after one before all": ((100, EMPTY), (1000, 0), (500, EMPTY)),
}
FOLLOWED = {
    "a part": (((1000, 7 * FRAME),), range(7, 37)),
    "begins late": (((100, EMPTY), (200, EMPTY), (2000, 0)), range(FRAMES)),
    "ends with an edit of no duration": (((2000, 0), (0, EMPTY)), range(FRAMES)),
    "none": ((), range(FRAMES)),
}


def edited(folder: Path, edits: tuple[tuple[int, int], ...], version: int = 0) -> Path:
    """A video of which its edit list shows these parts: duration and beginning of each."""
    plain = encode_pictures(folder / "plain.mp4", numbered(range(FRAMES)), *X264, "-pix_fmt", "yuv420p")
    data = plain.read_bytes()
    moov = next(each for each in boxes(data) if each.type == b"moov")
    trak = next(each for each in boxes(data, moov.body, moov.stop) if each.type == b"trak")
    others = [data[each.start : each.stop] for each in boxes(data, trak.body, trak.stop) if each.type != b"edts"]
    rows = [struct.pack(">QqI" if version else ">IiI", *edit, 1 << 16) for edit in edits]
    edts = box(b"edts", full_box(b"elst", version, 0, struct.pack(">I", len(rows)), *rows))
    track = box(b"trak", others[0], *([edts] if edits else []), *others[1:])
    # The moov is the last box, so that no sample moves.
    path = folder / "x.mp4"
    path.write_bytes(
        data[: moov.start] + box(b"moov", data[moov.body : trak.start], track, data[trak.stop : moov.stop])
    )
    return path


def numbers(source: Path, out: Path) -> list[int]:
    assert make_dataset([source], out).failures == ()
    return [read_number(frame) for frame in shortgop.open(out)[0]]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("kind", PAUSES)
def test_a_pause_in_an_edit_list_does_not_become_the_beginning_of_the_video(
    kind: str, version: int, tmp_path: Path
) -> None:
    source = edited(tmp_path, PAUSES[kind], version)
    (failure,) = make_dataset([source], tmp_path / "dataset").failures
    assert "has a pause in its edit list" in failure.reason
    command = re.search("`ffmpeg (.*)`", failure.reason)
    assert command is not None
    whole = tmp_path / "whole.mov"
    ffmpeg(*shlex.split(command[1].replace("FILE", str(source)).replace("OUT.mov", str(whole))))
    assert numbers(whole, tmp_path / "whole") == list(range(FRAMES))


def test_an_edit_without_duration_is_called_that(tmp_path: Path) -> None:
    """It was called a stream without data, to be downloaded again."""
    (failure,) = make_dataset([edited(tmp_path, ((0, 0),))], tmp_path / "dataset").failures
    assert "has an edit list that states no duration" in failure.reason
    assert "-ignore_editlist 1" in failure.reason


@pytest.mark.parametrize("kind", FOLLOWED)
def test_edits_that_ffmpeg_follows_are_followed(kind: str, tmp_path: Path) -> None:
    edits, shown = FOLLOWED[kind]
    assert numbers(edited(tmp_path, edits), tmp_path / "dataset") == list(shown)


def test_an_edit_list_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    source = edited(tmp_path, PAUSES["at the end"])
    data = source.read_bytes()
    at = data.index(b"elst") + 4
    for damaged in (data[:at] + b"\7" + data[at + 1 :], data[: at + 3], b""):
        source.write_bytes(damaged)
        assert why_edits_are_misread(str(source), 1) == ""
    assert why_edits_are_misread(str(tmp_path / "not there.mp4"), 1) == ""
