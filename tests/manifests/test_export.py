"""Exported videos play anywhere, show the frames they should, and are the bytes of the dataset."""

import subprocess
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import imageio_ffmpeg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets import make_dataset
from shortgop.errors import (
    CorruptDataError,
    FrameIndexError,
    MissingDataError,
    OutputError,
    UsageError,
    VideoNotFoundError,
)
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.mp4 import boxes, parse_fragment
from shortgop.manifests.operations.export import export, frame_range
from shortgop.manifests.records import VideoRow
from shortgop.manifests.tables import Manifest
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, frame_to_rgb, make_video, read_number


@pytest.fixture(scope="module", params=["h264", "hevc", "av1"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset of a video of 100 frames at 30000/1001 per second, in segments of two GOPs of 16 frames."""
    folder = tmp_path_factory.mktemp("export")
    rate = Fraction(30000, 1001)
    make_video(folder / "v.mp4", pts=constant_rate_pts(rate, 100), timebase=1 / rate)
    make_dataset([folder / "v.mp4"], folder / "dataset", codec=request.param, segment_seconds=Fraction(1))
    return folder / "dataset"


@pytest.fixture
def manifest(dataset: Path) -> Manifest:
    manifest = open_current(DiskStorage(dataset))[1]
    assert len(manifest.segments) == 4
    return manifest


def shown(file: Path) -> list[tuple[int, Fraction]]:
    """Number and time of every frame that PyAV shows."""
    frames = []
    with av.open(str(file)) as container:
        for frame in container.decode(video=0):
            assert frame.pts is not None
            assert frame.time_base is not None
            frames.append((read_number(frame_to_rgb(frame)), frame.pts * frame.time_base))
    return frames


def complaints(file: Path) -> str:
    """Decode with ffmpeg; what it has to say about that."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "warning", "-nostdin", "-i", str(file), "-f", "null", "-"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def test_a_whole_video(dataset: Path, manifest: Manifest, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    assert export(DiskStorage(dataset), manifest, 0, out) == (0, 100)
    assert shown(out) == [(frame, frame * Fraction(1001, 30000)) for frame in range(100)]
    assert complaints(out) == ""
    with av.open(str(out)) as container:
        stream = container.streams.video[0]
        assert (stream.average_rate, stream.start_time) == (Fraction(30000, 1001), 0)
        assert stream.duration is not None
        assert stream.time_base is not None
        assert stream.duration * stream.time_base == 100 * Fraction(1001, 30000)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("asked", "written"),
    [((0, 1), (0, 16)), ((16, 32), (16, 32)), ((20, 21), (16, 32)), ((31, 65), (16, 80)), ((99, 100), (96, 100))],
)
def test_a_part_is_written_in_whole_gops(
    dataset: Path, manifest: Manifest, tmp_path: Path, asked: tuple[int, int], written: tuple[int, int]
) -> None:
    out = tmp_path / "out.mp4"
    assert export(DiskStorage(dataset), manifest, 0, out, start_frame=asked[0], stop_frame=asked[1]) == written
    times = [(frame, (frame - written[0]) * Fraction(1001, 30000)) for frame in range(*written)]
    assert shown(out) == times
    assert complaints(out) == ""


def test_fragments_are_numbered_anew(dataset: Path, manifest: Manifest, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    export(DiskStorage(dataset), manifest, 0, out, start_frame=20, stop_frame=70)
    data = out.read_bytes()
    found = list(boxes(data))
    assert [box.type for box in found] == [b"ftyp", b"moov", *[b"moof", b"mdat"] * 4]
    fragments = [
        parse_fragment(data[moof.start : mdat.stop]) for moof, mdat in zip(found[2::2], found[3::2], strict=True)
    ]
    assert [fragment.sequence_number for fragment in fragments] == [1, 2, 3, 4]
    steps = {b.decode_ticks - a.decode_ticks for a, b in pairwise(fragments)}
    assert fragments[0].decode_ticks == 0
    assert len(steps) == 1


def test_an_existing_file_is_replaced_and_a_link_followed(dataset: Path, manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "old.mp4").write_text("old")
    (tmp_path / "link.mp4").symlink_to("old.mp4")
    export(DiskStorage(dataset), manifest, 0, tmp_path / "link.mp4", overwrite=True)
    assert (tmp_path / "link.mp4").is_symlink()
    assert len(shown(tmp_path / "old.mp4")) == 100


@pytest.mark.parametrize(("start", "stop"), [(-1, 10), (10, 10), (20, 10), (0, 101), (100, 101)])
def test_frames_that_are_not_there(dataset: Path, manifest: Manifest, tmp_path: Path, start: int, stop: int) -> None:
    with pytest.raises(FrameIndexError, match=r"video 'v\.mp4' has frames 0 to 99"):
        export(DiskStorage(dataset), manifest, 0, tmp_path / "out.mp4", start_frame=start, stop_frame=stop)


@pytest.mark.parametrize("row", [-1, 1, 10**6])
def test_a_video_that_is_not_there(dataset: Path, manifest: Manifest, tmp_path: Path, row: int) -> None:
    with pytest.raises(VideoNotFoundError, match=f"no video number {row}; numbers start at 0 and end below 1"):
        export(DiskStorage(dataset), manifest, row, tmp_path / "out.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options", [{"row": True}, {"start_frame": True}, {"stop_frame": False}, {"stop_frame": 1.0}], ids=str
)
def test_booleans_and_floats_are_no_frames(
    dataset: Path, manifest: Manifest, tmp_path: Path, options: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {"row": 0, "out": tmp_path / "out.mp4"} | options
    with pytest.raises(UsageError, match="it has to be an integer"):
        export(DiskStorage(dataset), manifest, **arguments)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, True, "1", None, 5.0, Fraction(10**400)])
def test_seconds_where_no_part_of_a_video_begins(seconds: Any) -> None:
    with pytest.raises(UsageError, match=r"no frames from|has to be a number"):
        frame_range(a_video(Fraction(10), 50), seconds)


def test_places_where_nothing_can_be_written(dataset: Path, manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out, complaint in (
        (tmp_path, "is a folder"),
        (Path("/dev/null"), "is not an ordinary file"),
        (tmp_path / "nowhere" / "out.mp4", "make that folder first"),
        (tmp_path / "file" / "out.mp4", "a part of that path is a file"),
    ):
        with pytest.raises(OutputError, match=complaint):
            export(DiskStorage(dataset), manifest, 0, out)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_full_disk(dataset: Path, manifest: Manifest, small_disk: Path) -> None:
    out = small_disk / "out.mp4"
    out.write_bytes(bytes(5 * 2**20 - 20_000))
    with pytest.raises(OutputError, match=r"out\.mp4: No space left on device"):
        export(DiskStorage(dataset), manifest, 0, out, overwrite=True)
    assert [file.name for file in small_disk.iterdir()] == ["out.mp4"]
    assert out.stat().st_size == 5 * 2**20 - 20_000


def test_a_damaged_gop_is_not_exported(dataset: Path, manifest: Manifest, tmp_path: Path) -> None:
    (shard,) = (dataset / "shards").iterdir()
    content = shard.read_bytes()
    start, length = int(manifest.gops.offset[4]), int(manifest.gops.length[4])
    damaged = bytearray(content)
    damaged[start + length // 2] ^= 1
    out = tmp_path / "out.mp4"
    out.write_text("old")
    try:
        shard.write_bytes(damaged)
        with pytest.raises(
            CorruptDataError, match="their CRC-32 differs; run `shortgop verify .* --repair SOURCES`, or copy the shard"
        ) as caught:
            export(DiskStorage(dataset), manifest, 0, out, overwrite=True)
        error = caught.value
        assert (error.video, error.segment, error.file) == ("v.mp4", 2, str(shard))
        assert error.byte_range == (start, start + length)
        assert export(DiskStorage(dataset), manifest, 0, tmp_path / "rest.mp4", stop_frame=64) == (0, 64)
        shard.rename(tmp_path / "away")
        with pytest.raises(MissingDataError, match="video 'v.mp4': .*shard is missing; run `shortgop prep`"):
            export(DiskStorage(dataset), manifest, 0, out, overwrite=True)
    finally:
        shard.write_bytes(content)
    assert out.read_text() == "old"


def a_video(fps: Fraction, frames: int) -> VideoRow:
    return VideoRow("v", "v", "/v", "{}", fps.numerator, fps.denominator, frames, 16, 20, 0, 1, 90000, 0, 0, 0)


def test_seconds_stand_for_the_frames_that_are_on_the_screen() -> None:
    video = a_video(Fraction(10), 50)
    assert frame_range(video) == (0, 50)
    assert frame_range(video, Fraction(1), Fraction(2)) == (10, 20)
    assert frame_range(video, Fraction("1.05"), Fraction("1.11")) == (10, 12)
    assert frame_range(video, Fraction(4), Fraction(100)) == (40, 50)


@given(
    st.builds(Fraction, st.integers(1, 60000), st.sampled_from([1, 1001])),
    st.integers(1, 1000),
    st.fractions(0, 100),
    st.fractions(0, 100),
)
def test_a_frame_is_in_the_range_exactly_if_it_is_on_the_screen(
    fps: Fraction, frames: int, start: Fraction, end: Fraction
) -> None:
    video = a_video(fps, frames)
    on_screen = [k for k in range(frames) if k / fps < end and start < (k + 1) / fps] if start < end else []
    if not on_screen:
        with pytest.raises(UsageError, match="it has no frames from"):
            frame_range(video, start, end)
        return
    assert list(range(*frame_range(video, start, end))) == on_screen
