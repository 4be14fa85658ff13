"""H.264 whose fields are pictures of their own, two packets for each frame, as camcorders record it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import pytest

import shortgop
from datasets import make_dataset
from field_pictures import HALF, field_packets, written
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.headers.access_units import HeaderReader
from shortgop.prep.probing.probe import probe
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, read_number

FRAMES, GOP = 20, 8


@pytest.mark.parametrize("suffix", [".ts", ".flv", ".mkv", ".mp4", ".h264"])
def test_two_fields_in_two_packets_are_one_frame(suffix: str, tmp_path: Path) -> None:
    """The second field of a frame has the number of the first one, which was taken for a sign of a missing frame."""
    packets = field_packets(range(FRAMES), gop=GOP)
    if suffix == ".h264":
        (tmp_path / "x.h264").write_bytes(b"".join(packets))
    else:
        written(tmp_path / f"x{suffix}", packets)
    assert make_dataset([tmp_path / f"x{suffix}"], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    assert [read_number(frame) for frame in video] == list(range(FRAMES))
    assert video.metadata.average_fps == pytest.approx(25)
    assert (video.changes.dropped, video.changes.repeated) == (0, 0)


@pytest.mark.parametrize("suffix", [".ts", ".mkv"])
def test_two_fields_in_one_packet_of_the_file_are_one_frame(suffix: str, tmp_path: Path) -> None:
    """FFmpeg takes them apart in a transport stream, and the last frame was shown for one tick more."""
    fields = field_packets(range(FRAMES), gop=GOP)
    both = [first + second for first, second in zip(fields[::2], fields[1::2], strict=True)]
    make_dataset([written(tmp_path / f"x{suffix}", both, each=2 * HALF)], tmp_path / "dataset")
    video = shortgop.open(tmp_path / "dataset")[0]
    assert [read_number(frame) for frame in video] == list(range(FRAMES))
    assert (video.changes.dropped, video.changes.repeated) == (0, 0)


def test_headers_alone_tell_the_frames_and_that_the_last_one_lasts_for_two_fields(tmp_path: Path) -> None:
    source = probe(str(written(tmp_path / "x.mkv", field_packets(range(FRAMES), gop=GOP))))
    assert source.pts is not None
    assert (source.num_packets, source.suspicion) == (FRAMES, "")
    assert source.pts.tolist() == list(range(0, 40 * FRAMES, 40))
    assert source.end_pts == 40 * FRAMES


def salvaged(source: Path, out: Path, **policy: Any) -> tuple[shortgop.Video | None, str]:
    report = prepare([str(source)], DiskStorage(out), Profile(), where=Where("inline"), policy=SourcePolicy(**policy))
    reason = report.failures[0].reason if report.failures else ""
    return (None, reason) if reason else (shortgop.open(out)[0], "")


@pytest.mark.parametrize("lost", [(22, 23), (22,), (23,)], ids=["a frame", "a first field", "a second field"])
def test_of_a_lost_field_its_frame_and_those_up_to_the_next_keyframe_are_lost(
    lost: tuple[int, ...], tmp_path: Path
) -> None:
    source = written(tmp_path / "x.mkv", field_packets(range(FRAMES), gop=GOP), lost)
    video, reason = salvaged(source, tmp_path / "without")
    assert video is None
    assert "is damaged" in reason
    video, _ = salvaged(source, tmp_path / "with", salvage=True)
    assert video is not None
    first, stop = video.changes.salvaged[0]
    assert (len(video), len(video.changes.salvaged), stop) == (FRAMES, 1, 2 * GOP)
    assert first in (10, 11)
    shown = [read_number(frame) for frame in video]
    assert shown == [*range(first), *[first - 1] * (stop - first), *range(stop, FRAMES)]


def test_a_file_that_is_cut_between_two_fields_ends_before_their_frame(tmp_path: Path) -> None:
    source = written(tmp_path / "x.mkv", field_packets(range(FRAMES), gop=GOP)[:-3])
    video, reason = salvaged(source, tmp_path / "dataset")
    assert video is not None, reason
    shown = [read_number(frame) for frame in video]
    assert shown == list(range(len(shown)))
    assert len(shown) in (FRAMES - 3, FRAMES - 2)


@pytest.mark.parametrize("first_field", [1, 5])
def test_a_recording_that_begins_between_two_fields_starts_at_the_next_keyframe(
    first_field: int, tmp_path: Path
) -> None:
    fields = field_packets(range(FRAMES), gop=GOP)
    video, reason = salvaged(written(tmp_path / "x.ts", fields, tuple(range(first_field))), tmp_path / "dataset")
    assert video is not None, reason
    assert [read_number(frame) for frame in video] == list(range(GOP, FRAMES))
    assert video.changes.dropped == GOP - first_field // 2


def test_a_damaged_packet_is_not_taken_for_parameter_sets(constant_video: SyntheticVideo) -> None:
    """By those, every frame behind it would be a field without its partner."""
    with av.open(constant_video.path) as container:
        reader = HeaderReader("h264", container.streams.video[0].codec_context.extradata)
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    _, sets, *_ = field_packets(range(1), gop=1)[0].split(b"\0\0\0\1")
    units = [reader.read(packets[0]), reader.read((1 << 20).to_bytes(4) + sets), reader.read(packets[1])]
    assert reader.has_only_frames
    assert [(unit.is_entry, unit.follows_half) for unit in units] == [(True, False), (False, False), (False, False)]
