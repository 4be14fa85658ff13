"""Small real files of many kinds, and ways to break them: what `fuzzing.py` prepares."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av

from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.tables import Manifest
from shortgop.prep.encode import prepare_video
from shortgop.prep.manifest_rows import Identity
from shortgop.prep.options import Options, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.shards import ShardWriter
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, frame_to_rgb, make_video, read_number

FRAMES, GOP = 32, 8
_OPEN_GOP = {"preset": "veryfast", "x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
_SOURCES: Mapping[str, dict[str, Any]] = {
    "index_last.mp4": {},
    "index_first.mp4": {"container_options": {"movflags": "faststart"}},
    "fragments.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}},
    "h264.mov": {},
    "h264.mkv": {},
    "hevc.mkv": {"codec": "libx265"},
    "vp9.webm": {"codec": "libvpx-vp9"},
    "vp8.webm": {"codec": "libvpx"},
    "h264.ts": {},
    "open_gop.ts": {"options": _OPEN_GOP},
    "hevc.ts": {"codec": "libx265"},
    "mpeg2.ts": {"codec": "mpeg2video"},
    "mpeg4.avi": {"codec": "mpeg4"},
    "plain.avi": {"codec": "mpeg4", "b_frames": 0},
    "h264.avi": {},
    "h264.flv": {},
    "mpeg2.mpg": {"codec": "mpeg2video"},
}


@dataclass(frozen=True)
class Whole:
    """A source as it was made. `numbers` are those its frames show, by pts; `payloads` the same by a packet's bytes;
    `is_timed`: packets
    say when their frames are shown; `packets` are the byte ranges of its packets, in decode order."""

    path: Path
    codec: str
    numbers: dict[int, int]
    payloads: dict[bytes, int]
    is_timed: bool
    packets: list[tuple[int, int]]


def make_sources(folder: Path) -> list[Whole]:
    """Write one source of every kind."""
    wholes = []
    for name, how in _SOURCES.items():
        pts = constant_rate_pts(Fraction(25), FRAMES)
        audio = Fraction(0) if name in ("h264.mkv", "h264.ts", "plain.avi") else None
        video = make_video(folder / name, pts=pts, timebase=Fraction(1, 25), gop=GOP, audio_start=audio, **how)
        wholes.append(describe(video.path))
    return [_with_decoded_times(whole, folder) if whole.path.name == "h264.avi" else whole for whole in wholes]


def _with_decoded_times(whole: Whole, folder: Path) -> Whole:
    """The same where the packets have no pts: times are those that prep finds in the whole file."""
    dataset = folder / f"{whole.path.name} dataset"
    rows = prepare(whole.path, dataset, SourcePolicy())
    shutil.rmtree(dataset)
    assert rows.timeline is not None
    return replace(whole, numbers={pts: frame for frame, pts in enumerate(rows.timeline.pts.tolist())}, is_timed=False)


def describe(path: Path) -> Whole:
    with av.open(path) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        codec = container.streams.video[0].codec_context.name
    shown = _numbers_by_packet(path)
    numbers = {pts: shown[number] for number, packet in enumerate(packets) if (pts := packet.pts) is not None}
    return Whole(
        path=path,
        codec=codec,
        numbers=numbers,
        payloads={bytes(packet): shown[number] for number, packet in enumerate(packets)},
        is_timed=True,
        packets=[(packet.pos, packet.pos + packet.size) for packet in packets if packet.pos is not None],
    )


def _numbers_by_packet(path: Path) -> dict[int, int]:
    """Which number the frame of each packet shows; the packets are counted in decode order."""
    found: dict[int, int] = {}
    with av.open(path) as container:
        decoder = container.streams.video[0].codec_context
        decoder.thread_count = 1
        decoder.flags |= av.codec.context.Flags.copy_opaque
        for number, packet in enumerate(container.demux(video=0)):
            packet.opaque = number
            for frame in packet.decode():
                assert isinstance(frame.opaque, int)
                found[frame.opaque] = read_number(frame_to_rgb(frame))
    return found


# Ways to break a file: each takes its bytes, the whole it was made from, and a source of chance.

Break = Callable[[bytearray, Whole, random.Random], None]


def _span(rng: random.Random, length: int, longest: int) -> slice:
    start = rng.randrange(length)
    return slice(start, min(length, start + rng.randrange(1, longest)))


def _cut_end(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    del data[rng.randrange(len(data) // 20, len(data)) :]


def _cut_start(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    del data[: rng.randrange(1, len(data) * 9 // 10)]


def _cut_between_packets(data: bytearray, whole: Whole, rng: random.Random) -> None:
    del data[rng.choice(whole.packets)[1] :]


def _flip_bits(data: bytearray, _whole: Whole, rng: random.Random, most: int = 40) -> None:
    for _ in range(rng.randrange(1, most)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _zeros(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    hit = _span(rng, len(data), 2000)
    data[hit] = bytes(hit.stop - hit.start)


def _noise(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    hit = _span(rng, len(data), 2000)
    data[hit] = rng.randbytes(hit.stop - hit.start)


def _leave_out(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    del data[_span(rng, len(data), 3000)]


def _leave_out_packets(data: bytearray, whole: Whole, rng: random.Random) -> None:
    first = rng.randrange(len(whole.packets))
    last = min(len(whole.packets) - 1, first + rng.randrange(4))
    del data[whole.packets[first][0] : whole.packets[last][1]]


def _repeat(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    hit = _span(rng, len(data), 3000)
    data[hit.stop : hit.stop] = data[hit]


def _swap_bytes(data: bytearray, _whole: Whole, rng: random.Random) -> None:
    size = rng.randrange(100, 2000)
    at = rng.randrange(max(1, len(data) - 2 * size))
    data[at : at + 2 * size] = data[at + size : at + 2 * size] + data[at : at + size]


def _swap_packets(data: bytearray, whole: Whole, rng: random.Random) -> None:
    (first, first_end), (second, second_end) = sorted(rng.sample(whole.packets, 2))
    data[first:second_end] = data[second:second_end] + data[first_end:second] + data[first:first_end]


def _noise_in_packet(data: bytearray, whole: Whole, rng: random.Random) -> None:
    start, end = rng.choice(whole.packets)
    hit = slice(rng.randrange(start, end), end)
    length = hit.stop - hit.start
    data[hit] = rng.choice([rng.randbytes(length), bytes(length)])


def _lying_header(data: bytearray, whole: Whole, rng: random.Random) -> None:
    # What is not in packets is headers, indexes and tables.
    places = [at for at in (rng.randrange(len(data)) for _ in range(400)) if not _in_packet(at, whole)]
    for at in places[: rng.randrange(1, 12)]:
        data[at] = rng.randrange(256)


def _zero_box(data: bytearray, whole: Whole, rng: random.Random) -> None:
    places = [at for at in (rng.randrange(len(data)) for _ in range(200)) if not _in_packet(at, whole)]
    at = (places or [0])[0]
    data[at : at + rng.choice([4, 8, 16, 64])] = bytes(len(data[at : at + rng.choice([4, 8, 16, 64])]))


def _in_packet(at: int, whole: Whole) -> bool:
    return any(start <= at < end for start, end in whole.packets)


BREAKS: Mapping[str, Break] = {
    "cut end": _cut_end,
    "cut between packets": _cut_between_packets,
    "cut start": _cut_start,
    "flip one bit": partial(_flip_bits, most=2),
    "flip bits": _flip_bits,
    "zeros": _zeros,
    "noise": _noise,
    "noise in a packet": _noise_in_packet,
    "leave out": _leave_out,
    "leave out packets": _leave_out_packets,
    "repeat": _repeat,
    "swap bytes": _swap_bytes,
    "swap packets": _swap_packets,
    "lying header": _lying_header,
    "zeroed box": _zero_box,
}


def break_file(whole: Whole, number: int) -> tuple[str, bytes]:
    """(kind, bytes) of the case of this number."""
    rng = random.Random(number)
    kind = rng.choice(list(BREAKS))
    data = bytearray(whole.path.read_bytes())
    BREAKS[kind](data, whole, rng)
    return kind, bytes(data)


def prepare(source: Path, dataset: Path, policy: SourcePolicy) -> Manifest:
    """Prepare one source into a dataset with one shard."""
    profile = Profile(preset="ultrafast", gop_frames=4)
    create(DiskStorage(dataset), profile.to_json())
    shards = ShardWriter(DiskStorage(dataset), "unit", 1 << 30)
    identity = Identity("x", str(source), str(source), "{}", 0)
    try:
        rows = prepare_video(str(source), identity, Options(profile, policy), find_ffmpeg().path, shards)
        shards.commit()
    finally:
        shards.close()
    return rows
