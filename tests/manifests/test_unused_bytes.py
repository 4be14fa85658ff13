"""Bytes that a store has received and nothing needs: of a source that failed, and of a job that was killed.

The former stay at the end of their shard until gc runs, the latter are gone with the next job.
"""

from __future__ import annotations

import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

import shortgop
from dataset_places import Places, left_over, names
from s3_uploads import unfinished_uploads
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.units_of_work.units import Item, Unit, plan_units
from shortgop.jobs.working.work import run_unit
from shortgop.manifests.dataset_files.parts import finished_parts, open_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.stored_bytes import live_bytes
from shortgop.manifests.operations.verify import verify
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.storage.interface import Storage
from shortgop.storage.network import PIECE_BYTES
from source_arguments import find_sources
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.long

RATE = Fraction(25)
SIZE = (480, 320)
# Noise cannot be compressed: more than a piece of an upload.
NOISE_FRAMES = 60
PROFILE = Profile(crf=2, preset="ultrafast", segment_seconds=Fraction(1))


def make_noise(path: Path, frames: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, frames * SIZE[0] * SIZE[1], dtype="u1")
    subprocess.run(
        [
            *(imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error"),
            *("-f", "rawvideo", "-pix_fmt", "gray", "-s", f"{SIZE[0]}x{SIZE[1]}", "-r", str(RATE), "-i", "pipe:0"),
            *("-c:v", "libx264", "-preset", "ultrafast", "-qp", "4", "-pix_fmt", "yuv420p", str(path)),
        ],
        input=noise.tobytes(),
        check=True,
    )


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two good sources, and between them one whose last packets are damaged."""
    folder = tmp_path_factory.mktemp("sources")
    for number, name in enumerate(("a.mp4", "c.mp4")):
        make_video(folder / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100 * number)
    make_noise(folder / "b.mp4", NOISE_FRAMES)
    whole = bytearray((folder / "b.mp4").read_bytes())
    # The index is behind the packets.
    end = whole.rindex(b"moov") - 4
    whole[end - len(whole) // 20 : end] = bytes(len(whole) // 20)
    (folder / "b.mp4").write_bytes(whole)
    return folder


def prepared(sources: Path, dataset: Storage) -> Storage:
    """The three sources as one unit."""
    create(dataset, PROFILE.to_json())
    items = [Item(source, *identity_of(source.path)) for source in find_sources([str(sources)])]
    planned = plan_units(items, profile_key=PROFILE.key(), done={}, shard_bytes=10**12)
    # A corpus of thousands of such sources has them in one unit.
    unit = Unit(planned[0].id, tuple(item for unit in planned for item in unit.items))
    done = run_unit(dataset, unit, Options(PROFILE), lambda _: None)
    assert (done.videos, [failure.id for failure in done.failures]) == (2, ["b.mp4"])
    publish(dataset)
    return dataset


def assert_whole(dataset: Storage) -> None:
    root, manifest = open_current(dataset)
    assert list(verify(dataset, manifest, snapshot=root.snapshot)) == []
    opened = shortgop.open(dataset.url)
    assert [read_number(opened[name][19]) for name in ("a.mp4", "c.mp4")] == [19, 119]


class TestBytesThatNobodyUsesInS3:
    where = "s3"

    def test_they_are_named_by_the_part_and_gone_after_gc(self, sources: Path, places: Places) -> None:
        dataset = prepared(sources, places.new())
        manifest = open_current(dataset)[1]
        (part,) = finished_parts(dataset)
        unused = open_part(dataset, part)[1]["unused"]
        # The source behind it has a shard of its own.
        assert len(manifest.shards) == 2
        ((shard, (start, stop)),) = unused.items()
        row = manifest.shards.name.texts().index(shard)
        # What fills a piece was sent.
        assert stop == PIECE_BYTES
        assert int(live_bytes(manifest)[row]) == start
        assert int(manifest.shards.length[row]) == stop
        assert_whole(dataset)

        done = collect(dataset)

        assert done.rewritten == (shard,)
        assert done.bytes_freed == stop - start
        manifest = open_current(dataset)[1]
        assert live_bytes(manifest).tolist() == manifest.shards.length.tolist()
        assert names(dataset, "shards") == set(manifest.shards.name.texts())
        assert_whole(dataset)

    def test_what_a_killed_job_was_sending_is_gone_with_the_next_job(self, places: Places, tmp_path: Path) -> None:
        make_noise(tmp_path / "long.mp4", 4 * NOISE_FRAMES)
        dataset = places.new()
        command = [sys.executable, "-m", "shortgop", "prep", str(tmp_path / "long.mp4"), "--out", dataset.url]
        options = ["--runner", "inline", "--crf", "2", "--preset", "ultrafast"]
        with subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) as job:
            while not unfinished_uploads(dataset.url):
                assert job.poll() is None, "the job ended before it was killed"
                time.sleep(0.01)
            job.kill()
        assert names(dataset, "shards") == set()

        assert subprocess.run([*command, *options], stderr=subprocess.DEVNULL, check=False).returncode == 0

        assert unfinished_uploads(dataset.url) == []
        assert left_over(dataset) == []
        root, manifest = open_current(dataset)
        assert list(verify(dataset, manifest, snapshot=root.snapshot)) == []
        assert names(dataset, "shards") == set(manifest.shards.name.texts())
        assert int(manifest.shards.length[0]) > 2 * PIECE_BYTES


class TestBytesThatNobodyUsesOnADisk:
    where = "disk"

    def test_a_disk_takes_them_back(self, sources: Path, places: Places) -> None:
        dataset = prepared(sources, places.new())
        (part,) = finished_parts(dataset)
        assert "unused" not in open_part(dataset, part)[1]
        manifest = open_current(dataset)[1]
        assert live_bytes(manifest).tolist() == manifest.shards.length.tolist()
        assert_whole(dataset)
