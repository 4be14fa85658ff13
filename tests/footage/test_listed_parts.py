"""Parts of a concat script that FFmpeg would read by what the first one says."""

from __future__ import annotations

from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.prep.probing.probe import probe
from synthetic import read_number

FRAMES = 20
SIZE, OTHER_SIZE = (96, 64), (160, 112)
X265 = ("-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-x265-params")
HEVC = (*X265, "log-level=error:pools=none:frame-threads=1")
HEVC_IN_FRAMES = (*X265, "log-level=error:pools=none:frame-threads=1:repeat-headers=1", "-tag:v", "hev1")
MPEG4 = ("-c:v", "mpeg4", "-q:v", "2")
FFV1 = ("-c:v", "ffv1", "-pix_fmt", "yuv420p")


def listed(folder: Path, suffix: str, *parts: tuple[tuple[str, ...], tuple[int, int]]) -> Path:
    """A script of parts with these options and sizes, whose frames show their numbers."""
    lines = ["ffconcat version 1.0", "# of a camera"]
    for number, (options, size) in enumerate(parts):
        pictures = numbered(range(number * FRAMES, (number + 1) * FRAMES), size)
        lines.append(f"file {encode_pictures(folder / f'{number}.{suffix}', pictures, *options).name}")
    script = folder / "x.ffconcat"
    script.write_text("\n".join(lines) + "\n")
    return script


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("suffix", "options"),
    [("mp4", HEVC), ("mkv", HEVC), ("mkv", FFV1), ("mp4", MPEG4), ("avi", ("-c:v", "huffyuv"))],
)
def test_a_part_is_not_decoded_by_the_parameters_of_the_first(
    suffix: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """HEVC, FFV1 and HuffYUV became wrong pictures without an error, and MPEG-4 was called damaged."""
    script = listed(tmp_path, suffix, (options, SIZE), (options, SIZE), (options, OTHER_SIZE))
    (failure,) = make_dataset([script], tmp_path / "dataset").failures
    assert f"names {tmp_path}/2.{suffix} in line 5, which is encoded with other parameters than" in failure.reason
    assert "convert them alike: `ffmpeg -i PART" in failure.reason


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("suffix", "first", "second"),
    [
        ("mp4", (HEVC, SIZE), ((*HEVC[:-1], f"{HEVC[-1]}:bframes=1:crf=20"), SIZE)),
        ("ts", (HEVC, SIZE), (HEVC, OTHER_SIZE)),
        ("mp4", (HEVC_IN_FRAMES, SIZE), (HEVC_IN_FRAMES, OTHER_SIZE)),
        ("mp4", ((*X264, "-pix_fmt", "yuv420p"), SIZE), ((*X264, "-pix_fmt", "yuv420p"), OTHER_SIZE)),
        ("avi", (MPEG4, SIZE), (MPEG4, OTHER_SIZE)),
    ],
)
def test_other_parameters_that_change_no_picture_are_prepared(
    suffix: str,
    first: tuple[tuple[str, ...], tuple[int, int]],
    second: tuple[tuple[str, ...], tuple[int, int]],
    tmp_path: Path,
) -> None:
    """Or that the frames state themselves."""
    script = listed(tmp_path, suffix, first, second)
    assert make_dataset([script], tmp_path / "dataset").failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]] == list(range(2 * FRAMES))


def test_a_part_of_another_codec_is_called_that(tmp_path: Path) -> None:
    script = listed(tmp_path, "mp4", ((*X264, "-pix_fmt", "yuv420p"), SIZE), (HEVC, SIZE))
    (failure,) = make_dataset([script], tmp_path / "dataset").failures
    assert f"names {tmp_path}/1.mp4 in line 4, which has another codec than {tmp_path}/0.mp4" in failure.reason


def reason_against(script: Path) -> str:
    (failure,) = make_dataset([script], script.parent / "dataset").failures
    return failure.reason


def test_a_part_of_other_units_of_time_is_not_timed_by_those_of_the_first(tmp_path: Path) -> None:
    """The part was as many times slower as its units are finer, or began before the end of the first one."""
    plain = (*X264, "-pix_fmt", "yuv420p", "-video_track_timescale")
    script = listed(tmp_path, "mp4", ((*plain, "15360"), SIZE), ((*plain, "90000"), SIZE))
    assert f"names {tmp_path}/1.mp4 in line 4, which has other units of time (1/90000 s) than" in reason_against(script)


def test_a_part_that_is_turned_otherwise_is_not_shown_upside_down(tmp_path: Path) -> None:
    """As of a camera that was turned between two files."""
    script = listed(tmp_path, "mp4", *2 * [((*X264, "-pix_fmt", "yuv420p"), SIZE)])
    ffmpeg("-display_rotation", "180", "-i", tmp_path / "1.mp4", "-c", "copy", tmp_path / "turned.mp4")
    (tmp_path / "turned.mp4").rename(tmp_path / "1.mp4")
    assert f"names {tmp_path}/1.mp4 in line 4, which is turned otherwise than" in reason_against(script)


def test_a_part_whose_sound_comes_first_is_not_called_damaged(tmp_path: Path) -> None:
    script = listed(tmp_path, "mp4", *2 * [((*X264, "-pix_fmt", "yuv420p"), SIZE)])
    sound = ("-f", "lavfi", "-i", "sine=d=0.7", "-map", "1:a", "-map", "0:v", "-c:v", "copy", "-c:a", "aac")
    ffmpeg("-i", tmp_path / "1.mp4", *sound, tmp_path / "sound.mp4")
    (tmp_path / "sound.mp4").rename(tmp_path / "1.mp4")
    assert f"names {tmp_path}/1.mp4 in line 4, which has its streams in another order" in reason_against(script)


def test_a_part_whose_name_stands_behind_a_tab_is_looked_at_too(tmp_path: Path) -> None:
    """FFmpeg reads it, and its pictures were wrong ones without an error."""
    script = listed(tmp_path, "mp4", (HEVC, SIZE), (HEVC, OTHER_SIZE))
    script.write_text(script.read_text().replace("file ", "\n \t file\t "))
    assert f"names {tmp_path}/1.mp4 in line 6, which is encoded with other parameters than" in reason_against(script)


@pytest.mark.parametrize(("content", "said"), [(b"", "is empty"), (b"<html>Not found</html>", "is an HTML page")])
def test_a_part_that_a_server_did_not_give_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    script = listed(tmp_path, "mp4", ((*X264, "-pix_fmt", "yuv420p"), SIZE), ((*X264, "-pix_fmt", "yuv420p"), SIZE))
    (tmp_path / "1.mp4").write_bytes(content)
    with pytest.raises(shortgop.NotAVideoError, match=rf"names .*/1\.mp4, which {said}"):
        probe(str(script))


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('5"\\ a.mp4', '5" a.mp4'),
        ("'5\" a#.mp4'", '5" a#.mp4'),
        ("\u3000a\u2028b.mp4", "\u3000a\u2028b.mp4"),
        ("\xa0a\x0b\x1c\x85.mp4", "\xa0a\x0b\x1c\x85.mp4"),
    ],
)
def test_names_are_quoted_as_ffmpeg_reads_them(line: str, name: str, tmp_path: Path) -> None:
    """A double quote is a part of a name, as are what Python takes for spaces and for ends of lines."""
    script = listed(tmp_path, "mp4", ((*X264, "-pix_fmt", "yuv420p"), SIZE))
    (tmp_path / "0.mp4").rename(tmp_path / name)
    script.write_text(script.read_text().replace("0.mp4", line))
    assert probe(str(script)).num_packets == FRAMES
    script.write_text(script.read_text() + 'file "missing.mp4"\n')
    with pytest.raises(shortgop.SourceNotFoundError, match='there is no file .*/"missing.mp4"'):
        probe(str(script))
