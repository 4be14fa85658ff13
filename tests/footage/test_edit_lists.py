"""Edit lists of MP4: what they say is shown, or refused where FFmpeg shows something else."""

from __future__ import annotations

import re
import shlex
import struct
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
import pytest

import shortgop
from datasets import make_dataset
from mp4_writer import box, full_box
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.manifests.mp4 import boxes
from shortgop.prep.probing.containers.edit_list import TrackEdits, track_edits
from synthetic import read_number

FRAMES = 60
# A frame of 30 a second, in units of the media, whose length in the file is 1/15360 s; edits are in milliseconds.
FRAME = 512
EMPTY = -1

FOLLOWED = {
    "a part": (((1000, 7 * FRAME),), range(7, 37)),
    "begins late": (((100, EMPTY), (200, EMPTY), (2000, 0)), range(FRAMES)),
    "ends with an edit of no duration": (((2000, 0), (0, EMPTY)), range(FRAMES)),
    "none": ((), range(FRAMES)),
}
PAUSES = {
    "in the middle": (((1000, 0), (500, EMPTY), (1000, 30 * FRAME)), [*range(30), *[29] * 15, *range(30, 60)]),
    "shorter than a frame": (((1000, 0), (5, EMPTY), (1000, 30 * FRAME)), range(FRAMES)),
    "at the end": (((2000, 0), (500, EMPTY)), range(FRAMES)),
    "after one before all": (((100, EMPTY), (1000, 0), (500, EMPTY)), range(30)),
}
# With GOPs of 12 frames, some parts begin at a keyframe and some do not.
PARTS = {
    "one behind the other": ((30, 0), (30, 30)),
    "with a part left out": ((20, 5), (20, 31)),
    "in another order": ((24, 12), (24, 0)),
    "three short ones": ((10, 30), (10, 10), (4, 3)),
}
B_FRAMES = {
    "libx264": ("-c:v", "libx264", "-bf", "2", "-g", "12", "-crf", "20"),
    "libx265": ("-c:v", "libx265", "-x265-params", "log-level=none:bframes=3:keyint=12:open-gop=0:pools=none"),
    "mpeg4": ("-c:v", "mpeg4", "-bf", "2", "-g", "12", "-q:v", "2"),
}
# In frames: how long each part is, where it begins (None: a pause), and its speed in 65536ths.
SPEEDS = {
    "slower": (((30, 0), (60, 30, 1 << 15)), [*range(30), *np.repeat(range(30, 60), 2)]),
    "slower in the middle": (
        ((10, 5), (20, 15, 1 << 15), (10, 25)),
        [*range(5, 15), *np.repeat(range(15, 25), 2), *range(25, 35)],
    ),
    "all of it slower": (((60, 20, 1 << 15),), range(20, 50)),
    "faster": (((30, 0), (15, 30, 1 << 17)), [*np.repeat(range(30), 2), *range(30, 60)]),
    "a part left out, and a pause": (
        ((10, 0), (5, None), (10, 40, 1 << 15)),
        [*range(9), *[9] * 6, *np.repeat(range(40, 45), 2)],
    ),
}


def edited(
    folder: Path,
    edits: Sequence[tuple[int, ...]],
    version: int = 0,
    options: Sequence[str] = X264,
    movie_timescale: int = 1000,
) -> Path:
    """A video of which its edit list shows these parts: duration, beginning, and perhaps speed in 65536ths of each."""
    plain = encode_pictures(folder / "plain.mp4", numbered(range(FRAMES)), *options, "-pix_fmt", "yuv420p")
    data = plain.read_bytes()
    moov = next(each for each in boxes(data) if each.type == b"moov")
    trak = next(each for each in boxes(data, moov.body, moov.stop) if each.type == b"trak")
    others = [data[each.start : each.stop] for each in boxes(data, trak.body, trak.stop) if each.type != b"edts"]
    rows = [struct.pack(">QqI" if version else ">IiI", *edit[:2], *(edit[2:] or (1 << 16,))) for edit in edits]
    edts = box(b"edts", full_box(b"elst", version, 0, struct.pack(">I", len(rows)), *rows))
    track = box(b"trak", others[0], *([edts] if edits else []), *others[1:])
    before = bytearray(data[moov.body : trak.start])
    struct.pack_into(">I", before, before.index(b"mvhd") + 4 + 12, movie_timescale)
    # The moov is the last box, so that no sample moves.
    path = folder / "x.mp4"
    path.write_bytes(data[: moov.start] + box(b"moov", bytes(before), track, data[trak.stop : moov.stop]))
    return path


def parts_of(folder: Path, codec: str, parts: Sequence[tuple[int, int]]) -> Path:
    """A video with B-frames of which these parts are shown: how many frames, and from which on."""
    whole = edited(folder, (), options=B_FRAMES[codec])
    first_pts = min(pts for pts, _ in packets_of(whole))
    edits = [(count, begin * FRAME + first_pts) for count, begin in parts]
    return edited(folder, edits, options=B_FRAMES[codec], movie_timescale=30)


def packets_of(path: Path) -> list[tuple[int, int]]:
    with av.open(path) as container:
        return [(packet.pts or 0, packet.dts or 0) for packet in container.demux(video=0) if packet.size]


def numbers(source: Path, out: Path) -> list[int]:
    assert make_dataset([source], out).failures == ()
    return [read_number(frame) for frame in shortgop.open(out)[0]]


def refused(source: Path, out: Path) -> str:
    """The reason against it, whose command writes a file that has all frames."""
    (failure,) = make_dataset([source], out / "dataset").failures
    command = re.search("`ffmpeg (.*)`", failure.reason)
    assert command is not None
    whole = out / "whole.mov"
    ffmpeg(*shlex.split(command[1].replace("FILE", str(source)).replace("OUT.mov", str(whole))))
    assert numbers(whole, out / "whole") == list(range(FRAMES))
    return failure.reason


@pytest.mark.parametrize("kind", FOLLOWED)
def test_edits_that_ffmpeg_follows_are_followed(kind: str, tmp_path: Path) -> None:
    edits, shown = FOLLOWED[kind]
    assert numbers(edited(tmp_path, edits), tmp_path / "dataset") == list(shown)


@pytest.mark.first_case_short
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("kind", PAUSES)
def test_a_pause_in_an_edit_list_does_not_become_the_beginning_of_the_video(
    kind: str, version: int, tmp_path: Path
) -> None:
    """In place of it the frame before is shown, and FFmpeg shows the beginning again."""
    edits, shown = PAUSES[kind]
    source = edited(tmp_path, edits, version)
    assert numbers(source, tmp_path / "dataset") == list(shown)
    changes = shortgop.open(tmp_path / "dataset")[0].changes
    assert (changes.dropped, changes.repeated) == (0, int(kind == "in the middle"))


def test_a_long_pause_in_an_edit_list_is_a_gap(tmp_path: Path) -> None:
    source = edited(tmp_path, ((1000, 0), (15000, EMPTY), (1000, 30 * FRAME)))
    (failure,) = make_dataset([source], tmp_path / "dataset").failures
    assert "has 1 gap of more than 10 s in its timestamps, the first one of 15.033 s" in failure.reason


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", B_FRAMES)
@pytest.mark.parametrize("kind", PARTS)
def test_the_parts_of_a_video_with_b_frames_begin_when_its_edits_say(kind: str, codec: str, tmp_path: Path) -> None:
    """FFmpeg shows all parts but the first some frames late or early."""
    source = parts_of(tmp_path, codec, PARTS[kind])
    shown = [begin + frame for count, begin in PARTS[kind] for frame in range(count)]
    assert numbers(source, tmp_path / "dataset") == shown
    (video,) = shortgop.open(tmp_path / "dataset")
    assert (video.changes.dropped, video.changes.repeated) == (0, 0)
    times = video.source_pts(range(len(shown))).numpy() // FRAME
    np.testing.assert_array_equal(times - times[0], np.arange(len(shown)))


def test_a_part_that_begins_within_a_frame_shows_the_next_one_when_it_is_due(tmp_path: Path) -> None:
    """FFmpeg shows it as soon as the part begins."""
    source = edited(tmp_path, ((1000, 0), (900, 30 * FRAME + FRAME // 4)))
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    frames = {
        read_number(frame): int(pts) for frame, pts in zip(video, video.source_pts(range(len(video))), strict=True)
    }
    assert (frames[29], frames[31]) == (29 * FRAME, 30 * FRAME + FRAME * 3 // 4)


def test_stretches_of_a_video_of_several_edits_are_those_of_what_it_shows(tmp_path: Path) -> None:
    source = parts_of(tmp_path, "libx264", PARTS["with a part left out"])
    (tmp_path / "list.csv").write_text(f"path,start,end\n{source.name},0.5,1\n")
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cuts", cuts="start,end", runner="inline")
    assert report.failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "cuts")[0]] == [*range(20, 25), *range(31, 41)]


def test_stretches_of_a_video_that_is_shown_slower_are_those_of_what_it_shows(tmp_path: Path) -> None:
    source = edited(tmp_path, ((30, 0), (60, 30 * FRAME, 1 << 15)), movie_timescale=30)
    (tmp_path / "list.csv").write_text(f"path,start,end\n{source.name},0.5,2\n")
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cuts", cuts="start,end", runner="inline")
    assert report.failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "cuts")[0]] == list(SPEEDS["slower"][1])[15:60]


def test_a_video_of_several_edits_that_is_damaged_is_refused(tmp_path: Path) -> None:
    source = parts_of(tmp_path, "libx264", PARTS["one behind the other"])
    data = bytearray(source.read_bytes())
    at = data.index(b"mdat") + 4
    middle = (at + data.index(b"moov")) // 2
    data[middle : middle + 400] = bytes(400)
    source.write_bytes(data)
    (failure,) = make_dataset([source], tmp_path / "dataset").failures
    assert "has several edits, and what they show does not decode" in failure.reason
    assert "-ignore_editlist 1" in failure.reason


@pytest.mark.first_case_short
@pytest.mark.parametrize("coded", [X264, B_FRAMES["libx264"]], ids=["plain", "b-frames"])
@pytest.mark.parametrize("kind", SPEEDS)
def test_parts_that_edits_show_slower_or_faster_are_shown_so(kind: str, coded: Sequence[str], tmp_path: Path) -> None:
    """As phones slow motion down. FFmpeg shows parts as they were recorded, and more of them or less."""
    parts, shown = SPEEDS[kind]
    first_pts = min(pts for pts, _ in packets_of(edited(tmp_path, (), options=coded)))
    edits = [(part[0], EMPTY if part[1] is None else part[1] * FRAME + first_pts, *part[2:]) for part in parts]
    source = edited(tmp_path, edits, options=coded, movie_timescale=30)
    assert numbers(source, tmp_path / "dataset") == list(shown)


@pytest.mark.parametrize("edit", [(1000, 30 * FRAME, 0), (1000, 10 * FRAME, 1 << 15)], ids=["stands still", "again"])
def test_an_edit_that_shows_a_picture_for_long_or_a_part_again_slower_is_refused(
    edit: tuple[int, ...], tmp_path: Path
) -> None:
    """FFmpeg shows it as it was recorded, so that what comes after it is late or early."""
    source = edited(tmp_path, ((1000, 0), edit))
    assert "slower or faster than it was recorded, or one picture for long" in refused(source, tmp_path)


def test_an_edit_without_duration_is_called_that(tmp_path: Path) -> None:
    """It was called a stream without data, to be downloaded again."""
    assert "has an edit list that states no duration" in refused(edited(tmp_path, ((0, 0),)), tmp_path)


def test_an_edit_list_of_pauses_alone_is_called_that(tmp_path: Path) -> None:
    """It was called a stream without data, too."""
    for number, edits in enumerate((((500, EMPTY), (1500, EMPTY)), ((500, EMPTY, 1 << 15), (1500, EMPTY)))):
        source = edited(tmp_path, edits)
        found = refused(source, tmp_path / str(number))
        assert "has an edit list of pauses alone, which shows nothing of its video" in found


def test_an_edit_list_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    source = edited(tmp_path, PAUSES["at the end"][0])
    data = source.read_bytes()
    at, movie = data.index(b"elst") + 4, data.index(b"mvhd") + 4
    damaged = tmp_path / "damaged.mp4"
    with av.open(str(source)) as container:
        (track,) = container.streams.video
        found = track_edits(str(source), track)
        assert [(edit.duration, edit.begin) for edit in found.stated] == [(2000, 0), (500, EMPTY)]
        # An edit of 2 s of a media with 15360 units in each.
        assert [edit.duration for edit in found.in_units] == [2 * 30 * FRAME, 15 * FRAME]
        of_no_version = data[:at] + b"\7" + data[at + 1 :]
        for content in (of_no_version, data[: at + 3], data[: movie + 3], b""):
            damaged.write_bytes(content)
            assert track_edits(str(damaged), track) == TrackEdits()
        assert track_edits(str(tmp_path / "not there.mp4"), track) == TrackEdits()
