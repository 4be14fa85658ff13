"""Pictures that are turned or mirrored when they are shown."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

import shortgop
from datasets import current_manifest, make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered, remuxed
from shortgop.manifests.operations.export import export
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

_ORIENTATION = 0x112
# How to store a picture so that Exif's orientation turns it upright.
_STORED: dict[int, Callable[[Any], Any]] = {
    1: lambda picture: picture,
    2: np.fliplr,
    3: lambda picture: np.rot90(picture, 2),
    4: np.flipud,
    5: lambda picture: picture.transpose(1, 0, 2),
    6: np.rot90,
    7: lambda picture: np.rot90(picture, 2).transpose(1, 0, 2),
    8: lambda picture: np.rot90(picture, 3),
}


@pytest.mark.parametrize("flip", ["hflip", "vflip"])
@pytest.mark.parametrize("rotation", [0, 90, 270])
def test_pictures_that_are_mirrored_when_shown_are_mirrored(rotation: int, flip: str, tmp_path: Path) -> None:
    """What the exported file shows is what ffmpeg itself shows of the source, and is not turned again."""
    plain = encode_pictures(tmp_path / "plain.h264", numbered(range(2), (64, 64)), "-pix_fmt", "yuv420p", *X264)
    source = tmp_path / "x.mp4"
    turn = ("-display_rotation", str(rotation), f"-display_{flip}")
    ffmpeg(*turn, "-i", remuxed(plain, tmp_path / "plain.mp4"), "-c", "copy", source)
    shown = ffmpeg("-i", source, "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    assert make_dataset([source], tmp_path / "dataset", crf=5).failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    expected = np.frombuffer(shown, np.uint8).reshape(64, 64, 3).transpose(2, 0, 1).astype(int)
    assert np.abs(video[0].numpy() - expected).mean() < 6
    export(DiskStorage(tmp_path / "dataset"), current_manifest(tmp_path / "dataset"), 0, tmp_path / "out.mp4")
    with av.open(tmp_path / "out.mp4") as container:
        assert next(container.decode(video=0)).rotation == 0


@pytest.mark.parametrize("orientation", _STORED)
def test_photographs_that_say_how_the_camera_was_held_are_turned_upright(orientation: int, tmp_path: Path) -> None:
    """Exif in Motion JPEG, which PyAV has no name for: it told nothing of the picture, and mirrors were passed over."""
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    data = io.BytesIO()
    for picture in numbered(range(5), (96, 64)):
        Image.fromarray(_STORED[orientation](picture)).save(data, "JPEG", exif=exif, quality=90)
    (tmp_path / "x.mjpeg").write_bytes(data.getvalue())
    assert make_dataset([tmp_path / "x.mjpeg"], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    assert video[0].shape == (3, 64, 96)
    assert [read_number(frame) for frame in video] == list(range(5))
