"""What the tests of long sources in stores share: short videos that are cut into many sections."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av

import shortgop
from datasets import make_dataset, rows_of
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.jobs.sources.look import look_at
from shortgop.jobs.units_of_work.units import Unit
from shortgop.prep.options import Options, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.section_plan import expected_seconds
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(30)
PROFILE = Profile(segment_seconds=Fraction(1, 4), gop_frames=8)
OPTIONS = Options(PROFILE, SourcePolicy(), section_seconds=0.01, use_gpu=False)
# Of 300 frames of the usual size.
SIX_SECTIONS = expected_seconds(300, 96 * 64, 300, 96 * 64) / 6
# What depends on where the source lies.
OF_PLACE = {"videos.source", "videos.path", "videos.identity", "shards.name", "snapshot"}


def prepared(
    source: str | Path, out: Path, profile: Profile = PROFILE, *, runner: str = "inline", seconds: float = 0.01
) -> Report:
    """Cut into as many sections as there may be, unless `seconds` says how long one takes."""
    where = Where(runner, workers=2 if runner == "ray" else None)
    policy = SourcePolicy(gaps="keep")
    return prepare([str(source)], DiskStorage(out), profile, where=where, policy=policy, section_seconds=seconds)


def num_shards(dataset: Path) -> int:
    return len(list((dataset / "shards").iterdir()))


def numbers(dataset: Path) -> list[int]:
    """The numbers that the frames of the only video show."""
    video = shortgop.open(dataset)[0]
    return [read_number(frame) for frame in video.get_frames_at(range(len(video))).data]


def assert_same(in_store: Path, on_disk: Path) -> None:
    """Row for row, and the bytes of all GOPs: the cuts are the same."""
    one, other = rows_of(in_store), rows_of(on_disk)
    names = [name for name in other if not name.startswith("bytes of") and name not in OF_PLACE]
    assert {name: one[name] for name in names} == {name: other[name] for name in names}
    assert not (in_store / "sections").exists()


def remuxed(source: Path, out: Path, *, without: int | None = None) -> Path:
    """Copy a video into another container, or without the packet of this number."""
    with av.open(source) as container, av.open(out, "w") as copy:
        (stream,) = container.streams.video
        to = copy.add_stream_from_template(stream)
        for number, packet in enumerate(container.demux(stream)):
            if packet.size and number != without:
                packet.stream = to
                copy.mux(packet)
    return out


def long_unit(url: str) -> Unit:
    """The only source below a URL, as a job sees it before it encodes anything."""
    (looked,) = look_at(find_sources([url]), OPTIONS)
    return Unit("0" * 16, (looked.item,), is_long=True)


def nothing(_progress: object) -> None:
    """No progress is wanted."""


def other_dataset(folder: Path) -> DiskStorage:
    """A dataset with another video."""
    other = make_video(folder / "other.mp4", pts=constant_rate_pts(RATE, 20), timebase=1 / RATE)
    make_dataset([other.path], folder / "dataset", gop_frames=8, segment_seconds=Fraction(1, 4))
    return DiskStorage(folder / "dataset")
