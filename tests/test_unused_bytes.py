"""A source that fails after a store has received bytes of it: they stay at the end of its shard until gc runs."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

import shortgop
from dataset_places import Places, names
from shortgop.jobs.identity import identity_of
from shortgop.jobs.sources import find_sources
from shortgop.jobs.units import Item, Unit, plan_units
from shortgop.jobs.work import run_unit
from shortgop.manifests.collect import collect
from shortgop.manifests.layout import create, open_current
from shortgop.manifests.parts import finished_parts, open_part
from shortgop.manifests.publish import publish
from shortgop.manifests.stored_bytes import live_bytes
from shortgop.manifests.verify import verify
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.storage.interface import Storage
from shortgop.storage.network import PIECE_BYTES
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
SIZE = (480, 320)
# Noise cannot be compressed: more than a piece of an upload.
NOISE_FRAMES = 60
PROFILE = Profile(crf=2, preset="ultrafast", segment_seconds=Fraction(1))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two good sources, and between them one whose last packets are damaged."""
    folder = tmp_path_factory.mktemp("sources")
    for number, name in enumerate(("a.mp4", "c.mp4")):
        make_video(folder / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100 * number)
    noise = np.random.default_rng(0).integers(0, 256, NOISE_FRAMES * SIZE[0] * SIZE[1], dtype="u1")
    subprocess.run(
        [
            *(imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error"),
            *("-f", "rawvideo", "-pix_fmt", "gray", "-s", f"{SIZE[0]}x{SIZE[1]}", "-r", str(RATE), "-i", "pipe:0"),
            *("-c:v", "libx264", "-preset", "ultrafast", "-qp", "4", "-pix_fmt", "yuv420p", str(folder / "b.mp4")),
        ],
        input=noise.tobytes(),
        check=True,
    )
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


class TestBytesThatNobodyUsesOnADisk:
    where = "disk"

    def test_a_disk_takes_them_back(self, sources: Path, places: Places) -> None:
        dataset = prepared(sources, places.new())
        (part,) = finished_parts(dataset)
        assert "unused" not in open_part(dataset, part)[1]
        manifest = open_current(dataset)[1]
        assert live_bytes(manifest).tolist() == manifest.shards.length.tolist()
        assert_whole(dataset)
