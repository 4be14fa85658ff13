"""Files that change behind a reader's back: what is noticed, what is said of it, and what still reads."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from pathlib import Path

import pytest

import shortgop
from dataset_paths import shard_path
from datasets import current_manifest
from shortgop.readers.decode_check import undecodable
from shortgop.storage.disk import DiskStorage
from synthetic import read_number


class flipped:  # noqa: N801
    """One bit of a file turned over, and back again."""

    def __init__(self, file: Path, byte: int, bit: int) -> None:
        self._file, self._byte, self._bit = file, byte, bit

    def _flip(self) -> None:
        with self._file.open("r+b") as file:
            file.seek(self._byte)
            (value,) = file.read(1)
            file.seek(self._byte)
            file.write(bytes([value ^ 1 << self._bit]))

    def __enter__(self) -> None:
        self._flip()

    def __exit__(self, *exc_info: object) -> None:
        self._flip()


@pytest.fixture
def copy(three_videos: Path, tmp_path: Path) -> Path:
    return shutil.copytree(three_videos, tmp_path / "copy")


def test_a_flipped_bit_anywhere_in_a_gop_is_found_and_only_there(copy: Path) -> None:
    dataset = shortgop.open(copy)
    manifest = current_manifest(copy)
    video = dataset["ntsc.mp4"]
    row = manifest.video(manifest.row_of(video.id))
    rng = random.Random(0)
    for gop in range(row.num_gops):
        offset, length = (int(column[row.first_gop + gop]) for column in (manifest.gops.offset, manifest.gops.length))
        segment = row.first_segment + gop // row.segment_gops
        shard = shard_path(copy, manifest.shards.name.text(int(manifest.segments.shard[segment])))
        with flipped(shard, rng.randrange(offset, offset + length), rng.randrange(8)):
            with pytest.raises(shortgop.CorruptDataError) as caught:
                video.get_frames_at([8 * gop, 0])
            error = caught.value
            assert (error.video, error.frame, error.segment) == ("ntsc.mp4", 8 * gop, segment)
            assert (error.file, error.byte_range) == (str(shard), (offset, offset + length))
            last = min(8 * gop + 7, 74)
            assert f"frames {8 * gop} to {last} of video 'ntsc.mp4': the bytes are not those" in str(error)
            rest = [frame for frame in range(75) if frame // 8 != gop]
            assert [read_number(picture) for picture in video.get_frames_at(rest).data] == rest


def test_a_shard_that_went_away_or_was_cut(copy: Path) -> None:
    dataset = shortgop.open(copy)
    video = dataset["film.mkv"]
    for shard in (copy / "shards").iterdir():
        os.truncate(shard, 100)
    with pytest.raises(
        shortgop.MissingDataError, match="ends before byte [0-9]+, it was cut; run `shortgop prep`"
    ) as caught:
        video[40]
    assert caught.value.video == "film.mkv"
    assert caught.value.frame == 40
    shutil.rmtree(copy / "shards")
    with pytest.raises(
        shortgop.MissingDataError, match="is missing; run `shortgop prep` on the same sources again"
    ) as caught:
        pickle.loads(pickle.dumps(video))[40]
    assert caught.value.byte_range is not None
    assert "shards/" in str(caught.value.file)


def test_every_gop_that_does_not_decode_is_listed(copy: Path) -> None:
    assert list(undecodable(DiskStorage(copy))) == []
    manifest = current_manifest(copy)
    shard = shard_path(copy, manifest.shards.name.text(0))
    done = []
    with flipped(shard, int(manifest.gops.offset[0]) + 99, 0):
        problems = list(undecodable(DiskStorage(copy), on_video=lambda: done.append(1)))
    assert len(problems) == 1
    assert problems[0][0] == "film.mkv"
    assert str(problems[0][1]).startswith("frames 0 to 7 of video 'film.mkv': ")
    assert len(done) == 3
