"""Parts of a concat script that FFmpeg would decode by the parameters of the first one."""

from __future__ import annotations

from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, numbered
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
