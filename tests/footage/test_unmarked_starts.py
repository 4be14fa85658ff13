"""H.264 that begins at an I picture that is neither IDR nor has a recovery point: what decodes from it on is there."""

from __future__ import annotations

import random
import subprocess
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np
import pytest
from av.codec.context import Flags

import shortgop
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.kept_frames.damage import assess
from shortgop.prep.kept_frames.scan import scan
from shortgop.prep.probing.headers.h264_references import ReferenceReader
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from sweep import sample
from synthetic import burn, constant_rate_pts, make_video, read_number

RATE = Fraction(25)
FRAMES, GOP = 96, 24
OPEN_GOP = f"open-gop=1:keyint={GOP}:scenecut=0:b-adapt=0"
# What each container needs of headers in the stream, and its name in FFmpeg where the suffix does not say it.
IN_STREAM = ",h264_mp4toannexb,dump_extra"
CONTAINERS = {
    ".mp4": ("", ()), ".mkv": ("", ()), ".ts": (IN_STREAM, ()), ".avi": (IN_STREAM, ()),
    ".264": (IN_STREAM, ("-f", "h264")), ".mpg": (IN_STREAM, ("-f", "vob")),
}  # fmt: skip


def open_gops(folder: Path, params: str, *, b_frames: int = 3) -> Path:
    """A video of open GOPs of H.264."""
    pts = constant_rate_pts(RATE, FRAMES)
    options = {"x264-params": f"{OPEN_GOP}:{params}"}
    return make_video(
        folder / "whole.mkv", pts=pts, timebase=1 / RATE, gop=GOP, b_frames=b_frames, options=options
    ).path  # fmt: skip


def keyframes(path: Path) -> list[int]:
    with av.open(path) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    return [number for number, packet in enumerate(packets) if packet.is_keyframe]


def without_marks(whole: Path, target: Path, first_packet: int) -> Path:
    """The video from this packet on, without recovery points."""
    headers, named = CONTAINERS[target.suffix]
    filters = f"noise=drop='lt(n,{first_packet})',filter_units=remove_types=6{headers}"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-copyts", "-i", str(whole), "-c", "copy"]
    subprocess.run([*ffmpeg, "-bsf:v", filters, *named, str(target)], check=True)
    return target


def prepared(source: Path, *, salvage: bool = False) -> shortgop.Video:
    out = source.parent / "dataset"
    report = shortgop.prepare(source, out, runner="inline", salvage=salvage)
    assert [failure.reason for failure in report.failures] == []
    return shortgop.open(out)[0]


def numbers(video: shortgop.Video) -> list[int]:
    return [read_number(frame) for frame in video]


@pytest.mark.first_case_short
@pytest.mark.parametrize("references", [1, 3])
@pytest.mark.parametrize("suffix", CONTAINERS)
def test_all_frames_from_the_first_i_picture_on_are_there(suffix: str, references: int, tmp_path: Path) -> None:
    """FFmpeg leaves out those that are decoded before it has put out the I picture; with three references, all."""
    whole = open_gops(tmp_path, f"ref={references}")
    video = prepared(without_marks(whole, tmp_path / f"cut{suffix}", keyframes(whole)[1]))
    assert numbers(video) == list(range(GOP, FRAMES))
    assert video.metadata.fps == RATE
    times = video.source_pts(range(len(video))).tolist()
    assert len({later - time for time, later in pairwise(times)}) == 1
    # The three that are shown before it refer to frames that are not there.
    assert video.changes.dropped == (0 if suffix == ".mp4" else 3)


def test_source_pts_are_those_of_the_file(tmp_path: Path) -> None:
    whole = open_gops(tmp_path, "ref=3")
    video = prepared(without_marks(whole, tmp_path / "cut.mkv", keyframes(whole)[1]))
    assert video.source_pts([0, 1]).tolist() == [1000 * GOP // 25, 1000 * (GOP + 1) // 25]


def test_stretches_of_it_begin_where_they_should(tmp_path: Path) -> None:
    whole = open_gops(tmp_path, "ref=3")
    without_marks(whole, tmp_path / "cut.mkv", keyframes(whole)[1])
    (tmp_path / "list.csv").write_text("path,start,end,id\ncut.mkv,0,1,begin\ncut.mkv,1.2,2,middle\n")
    report = prepare(
        [str(tmp_path / "list.csv")], DiskStorage(tmp_path / "dataset"), Profile(), where=Where("inline"),
        importing=Importing(cuts=("start", "end")),
    )  # fmt: skip
    assert report.failures == ()
    dataset = shortgop.open(tmp_path / "dataset")
    assert numbers(dataset["begin"]) == list(range(GOP, GOP + 25))
    assert numbers(dataset["middle"]) == list(range(GOP + 30, GOP + 50))


@pytest.mark.parametrize("suffix", [".ts", ".264"])
def test_frames_before_the_first_i_picture_are_told_as_lost(suffix: str, tmp_path: Path) -> None:
    # Without B-frames, x264 makes all keyframes IDR.
    whole = open_gops(tmp_path, "ref=2", b_frames=1)
    video = prepared(without_marks(whole, tmp_path / f"cut{suffix}", keyframes(whole)[1] - 6))
    assert numbers(video) == list(range(GOP, FRAMES))
    assert (video.changes.dropped or 0) >= 6


def test_damage_costs_no_more_than_its_gop_where_no_keyframe_is_marked(tmp_path: Path) -> None:
    whole = open_gops(tmp_path, "ref=2")
    source = without_marks(whole, tmp_path / "whole.mp4", 0)
    with av.open(source) as container:
        place = [(packet.pos or 0, packet.size) for packet in container.demux(video=0)][GOP + 8]
    data = bytearray(source.read_bytes())
    data[place[0] : sum(place)] = random.Random(1).randbytes(place[1])
    source.write_bytes(data)
    shown = numbers(prepared(source, salvage=True))
    assert len(shown) == FRAMES
    assert shown[: GOP + 3] == list(range(GOP + 3))
    assert shown[2 * GOP :] == list(range(2 * GOP, FRAMES))


def flashing(path: Path) -> Path:
    """A video with IDR pictures at frames 0 and 48. Frame 12 shows another scene, so that it is an I picture, and the
    frames behind it refer to those before it, of their own scene."""
    rng = np.random.default_rng(1)
    one, other = (rng.integers(0, 255, (16, 24, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1) for _ in range(2))
    with av.open(path, "w") as out:
        params = "keyint=48:min-keyint=24:ref=2:scenecut=20:bframes=0"
        stream = out.add_stream("libx264", rate=25, options={"preset": "medium", "x264-params": params})
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = 96, 64, "yuv420p", 48
        for number in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(other if number == 12 else burn(number, 96, 64, one))
            frame.pts = number
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return path


def test_an_i_picture_behind_which_frames_refer_to_earlier_ones_is_no_start(tmp_path: Path) -> None:
    """FFmpeg shows them without a message, with other frames in place of those that they refer to."""
    whole = flashing(tmp_path / "whole.mkv")
    assert keyframes(whole) == [0, 48]
    with av.open(whole) as container:
        kinds = [int(frame.pict_type) for frame in container.decode(video=0)]
    assert [number for number, kind in enumerate(kinds) if kind == 1] == [0, 12, 48]
    source = without_marks(whole, tmp_path / "cut.mp4", 12)
    video = prepared(source)
    assert numbers(video) == list(range(48, FRAMES))
    assert video.changes.dropped == 36


@pytest.mark.parametrize("part", [3, 7, 12])
def test_a_program_stream_may_be_cut_anywhere(part: int, tmp_path: Path) -> None:
    """Few packets of one state their times: which frames come before the I picture, the decoder's order says."""
    whole = open_gops(tmp_path, "ref=3")
    stream = tmp_path / "cut.mpg"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(whole), "-c", "copy"]
    subprocess.run([*ffmpeg, "-bsf:v", "h264_mp4toannexb,dump_extra", "-f", "vob", str(stream)], check=True)
    data = stream.read_bytes()
    stream.write_bytes(data[len(data) * part // 40 :])
    shown = numbers(prepared(stream))
    assert shown == list(range(shown[0], FRAMES))
    assert shown[0] in {GOP, 2 * GOP}


@pytest.mark.parametrize("weights", [0, 2])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "gray"])
def test_which_frames_are_to_be_forgotten_is_read_behind_weights_of_references(
    pix_fmt: str, weights: int, tmp_path: Path
) -> None:
    """x264 makes the first P frame behind an I picture that is no IDR picture forget those before it."""
    made = tmp_path / "fade.mkv"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=96x64:d=3,fade=d=3"]
    params = f"{OPEN_GOP}:ref=3:b-pyramid=none:weightp={weights}"
    subprocess.run([*ffmpeg, "-pix_fmt", pix_fmt, "-c:v", "libx264", "-x264-params", params, str(made)], check=True)
    with av.open(made) as container:
        reader = ReferenceReader(container.streams.video[0].codec_context.extradata)
        frames = [reader.read(bytes(packet)) for packet in container.demux(video=0) if packet.size]
    held: list[int] = []
    forgets = 0
    for frame in frames:
        assert frame is not None
        assert set(frame.forgotten) <= set(held[-3:])
        forgets += bool(frame.forgotten)
        held += [frame.frame_num] if frame.is_reference else []
    assert forgets >= 2


def changing(path: Path, rng: random.Random) -> Path:
    """A video of three scenes that change now and then, encoded in one of many ways: frames refer to near and far
    ones."""
    params = (
        f"open-gop={rng.choice([0, 1])}:keyint={rng.choice([12, 24, 250])}:min-keyint={rng.choice([1, 12])}"
        f":ref={rng.choice([1, 2, 3, 4, 6])}:bframes={rng.choice([0, 1, 3, 5])}:scenecut={rng.choice([0, 40, 80])}"
        f":b-pyramid={rng.choice(['none', 'strict', 'normal'])}:b-adapt={rng.choice([0, 1, 2])}"
        f":weightp={rng.choice([0, 1, 2])}:weightb={rng.choice([0, 1])}:slices={rng.choice([1, 1, 3])}"
        f":direct={rng.choice(['spatial', 'temporal', 'auto'])}:{rng.choice(['interlaced=0', 'interlaced=0', 'tff=1'])}"
    )
    noise = np.random.default_rng(rng.randrange(1 << 32))
    scenes = noise.integers(0, 255, (3, 24, 40, 3), dtype=np.uint8).repeat(4, 1).repeat(4, 2)
    scene = 0
    with av.open(path, "w") as out:
        stream = out.add_stream("libx264", rate=25, options={"preset": "veryfast", "x264-params": params})
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
        for number in range(FRAMES):
            scene = rng.randrange(3) if rng.random() < 0.12 else scene
            frame = av.VideoFrame.from_ndarray(np.roll(scenes[scene], (2 * number, 3 * number), (0, 1)))
            frame.pts = number
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return path


def decoded(path: Path) -> dict[int, np.ndarray]:
    """The frames by their pts, also those that FFmpeg takes for corrupt."""
    with av.open(path) as container:
        container.streams.video[0].codec_context.flags |= Flags.output_corrupt
        return {frame.pts: frame.to_ndarray() for frame in container.decode(video=0) if frame.pts is not None}


# Without the comparison of reference lists, frames of the first two are wrong.
SEEDS = (5, 47)


@pytest.mark.parametrize("seed", sample(SEEDS, more=[seed for seed in range(60) if seed not in SEEDS]))
def test_no_frame_of_a_stream_that_is_cut_anywhere_counts_as_sound_and_is_not(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    whole = changing(tmp_path / "whole.mkv", rng)
    right = decoded(whole)
    for first_packet in [0, *rng.sample(range(1, FRAMES - 10), 6)]:
        cut = without_marks(whole, tmp_path / f"{first_packet}.mkv", first_packet)
        found = scan(str(cut), 0)
        if not any(packet.is_entry for packet in found.packets):
            # It is taken as FFmpeg takes it: docs/design/prep.md.
            continue
        damage = assess(found, max_hole_units=10_000)
        known = [packet.pts for packet in found.packets if packet.pts is not None]
        sound = known if damage is None else damage.sound_pts.tolist()
        shown = decoded(cut)
        wrong = [pts for pts in sound if not np.array_equal(shown[pts], right[pts])]
        assert wrong == [], first_packet
