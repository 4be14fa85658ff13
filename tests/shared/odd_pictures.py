"""Sources whose pictures are not plain: made from numbered pictures by the ffmpeg program."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from shortgop.manifests.mp4 import Box, boxes
from synthetic import Picture, burn

RATE = 30
X264 = ("-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-bf", "0")


def ffmpeg(*arguments: str | Path, stdin: bytes = b"") -> bytes:
    """Run the ffmpeg program and return what it writes to its standard output."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error", *map(str, arguments)]
    return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, check=True).stdout


def encode_pictures(
    path: Path, pictures: Iterable[NDArray[np.uint8]], *options: str, pix_fmt: str = "rgb24", rate: int = RATE
) -> Path:
    """Write pictures of (height, width, channels) to a video; `options` are those of ffmpeg's output."""
    pictures = list(pictures)
    height, width = pictures[0].shape[:2]
    raw = ("-f", "rawvideo", "-pix_fmt", pix_fmt, "-s", f"{width}x{height}", "-r", str(rate), "-i", "-")
    ffmpeg(*raw, *options, path, stdin=b"".join(picture.tobytes() for picture in pictures))
    return path


def numbered(numbers: Iterable[int], size: tuple[int, int] = (96, 64)) -> list[Picture]:
    """Pictures that show their numbers."""
    return [burn(number, *size) for number in numbers]


def joined_h264(folder: Path, parts: Sequence[tuple[range, tuple[int, int], Sequence[str]]]) -> Path:
    """Write a raw H.264 stream of several parts, one behind the other: their numbers, sizes and options."""
    data = b""
    for index, (numbers, size, options) in enumerate(parts):
        file = folder / f"part{index}.h264"
        encode_pictures(file, numbered(numbers, size), *X264, *(options or ("-pix_fmt", "yuv420p")))
        data += file.read_bytes()
    joined = folder / "joined.h264"
    joined.write_bytes(data)
    return joined


def remuxed(source: Path, target: Path) -> Path:
    """Put a raw stream without B-frames into a container, a frame every 1/RATE seconds."""
    ffmpeg("-f", "h264", "-r", str(RATE), "-i", source, "-c", "copy", "-bsf:v", "setts=ts=N", target)
    return target


def h264_packets(path: Path, numbers: range, *options: str) -> list[tuple[int, bytes]]:
    """Packets of H.264 in the order of decoding, each with its parameter sets: the number of its frame, and its data.
    `path` is where a transport stream of them is written."""
    encode_pictures(path, numbered(numbers), *X264, "-sc_threshold", "0", "-pix_fmt", "yuv420p", *options)
    with av.open(path) as container:
        found = [(packet.pts or 0, bytes(packet)) for packet in container.demux(video=0) if packet.size]
    shown = sorted(pts for pts, _ in found)
    return [(numbers[shown.index(pts)], data) for pts, data in found]


def timed(
    template: Path, target: Path, packets: Iterable[tuple[int, int, bytes]], timebase: Fraction = Fraction(1, RATE)
) -> Path:
    """Write packets of H.264, each with its pts, its dts, in `timebase` seconds, and its data, as a stream like the one
    in `template`."""
    with av.open(template) as container, av.open(target, "w") as out:
        stream = out.add_stream_from_template(container.streams.video[0])
        for pts, dts, data in packets:
            packet = av.Packet(data)
            packet.stream, packet.time_base, packet.pts, packet.dts = stream, timebase, pts, dts
            packet.is_keyframe = b"\0\0\1\x65" in data
            out.mux(packet)
    return target


def two_sample_entries(first: Path, second: Path, target: Path) -> Path:
    """Write a fragmented MP4 whose track has the sample entries of two others, as camera apps and editors write it."""
    data = [_fragmented(source) for source in (first, second)]
    tops = [list(boxes(part)) for part in data]
    moovs = [next(box for box in top if box.type == b"moov") for top in tops]
    entry = _sample_entry(data[1], moovs[1])
    out = bytearray(_with_entry(data[0][: moovs[0].stop], moovs[0], data[1][entry.start : entry.stop]))
    ticks = 0
    for which, top in enumerate(tops):
        fragments = [box for box in top if box.type in {b"moof", b"mdat"}]
        start = ticks
        for moof, mdat in zip(fragments[::2], fragments[1::2], strict=True):
            ticks = start + _decode_ticks(data[which], moof)
            out += _moved(data[which][moof.start : mdat.stop], which + 1, ticks)
        ticks += _TICKS_PER_GOP
    target.write_bytes(out)
    return target


_GOP = 10
_TICKS_PER_FRAME = 512
_TICKS_PER_GOP = _GOP * _TICKS_PER_FRAME


def _fragmented(source: Path) -> bytes:
    return ffmpeg(
        *("-f", "h264", "-r", str(RATE), "-i", source, "-c", "copy", "-bsf:v", "setts=ts=N"),
        *("-video_track_timescale", str(RATE * _TICKS_PER_FRAME)),
        *("-movflags", "+frag_keyframe+empty_moov+default_base_moof", "-f", "mp4", "-"),
    )


def _find(data: bytes, box: Box, *kinds: bytes) -> Box:
    for kind in kinds:
        skip = 8 if box.type == b"stsd" else 0
        box = next(child for child in boxes(data, box.body + skip, box.stop) if child.type == kind)
    return box


def _sample_entry(data: bytes, moov: Box) -> Box:
    return _find(data, moov, b"trak", b"mdia", b"minf", b"stbl", b"stsd", b"avc1")


def insert_box(data: bytes, at: int, box: bytes, *parents: Box) -> bytes:
    """Insert a box, and make those that it lies in as much longer."""
    out = bytearray(data)
    out[at:at] = box
    for parent in parents:
        (length,) = struct.unpack_from(">I", out, parent.start)
        struct.pack_into(">I", out, parent.start, length + len(box))
    return bytes(out)


def _with_entry(init: bytes, moov: Box, entry: bytes) -> bytes:
    path = [_find(init, moov, *kinds) for kinds in _STSD_PATH]
    stsd = path[-1]
    out = bytearray(insert_box(init, stsd.stop, entry, moov, *path))
    struct.pack_into(">I", out, stsd.body + 4, 2)
    return bytes(out)


def with_clean_aperture(data: bytes, width: int, height: int) -> bytes:
    """Say in an MP4, whose moov is its last box, that only the middle of its pictures is to be shown."""
    return with_entry_box(data, struct.pack(">I4sIIIIiIiI", 40, b"clap", width, 1, height, 1, 0, 1, 0, 1))


def with_entry_box(data: bytes, box: bytes) -> bytes:
    """Add a box to the sample entry of an MP4 whose moov is its last box."""
    moov = next(box for box in boxes(data) if box.type == b"moov")
    path = [_find(data, moov, *kinds) for kinds in _STSD_PATH]
    entry = next(boxes(data, path[-1].body + 8, path[-1].stop))
    return insert_box(data, entry.stop, box, moov, *path, entry)


def with_pixel_crop(data: bytes, left: int, right: int, top: int, bottom: int) -> bytes:
    """Say in a Matroska file whose track has a crop that it is this one, in pixels below 256."""
    sides = {b"\x54\xcc": left, b"\x54\xdd": right, b"\x54\xbb": top, b"\x54\xaa": bottom}
    for name, pixels in sides.items():
        # One byte long, as it was.
        at = data.index(name + b"\x81")
        data = data[: at + 3] + bytes([pixels]) + data[at + 4 :]
    return data


_STSD_PATH = [(b"trak", b"mdia", b"minf", b"stbl", b"stsd")[:depth] for depth in range(1, 6)]


def _decode_ticks(data: bytes, moof: Box) -> int:
    tfdt = _find(data, moof, b"traf", b"tfdt")
    return int(struct.unpack_from(">Q", data, tfdt.body + 4)[0])


def _moved(fragment: bytes, entry: int, ticks: int) -> bytes:
    """The fragment with its samples described by this entry (from 1), and starting at this time."""
    moof = next(boxes(fragment))
    traf = _find(fragment, moof, b"traf")
    tfhd, tfdt, trun = (_find(fragment, traf, kind) for kind in (b"tfhd", b"tfdt", b"trun"))
    out = bytearray(fragment)
    struct.pack_into(">Q", out, tfdt.body + 4, ticks)
    (flags,) = struct.unpack_from(">I", out, tfhd.body)
    struct.pack_into(">I", out, tfhd.body, flags | 0x2)
    (offset,) = struct.unpack_from(">i", out, trun.body + 8)
    struct.pack_into(">i", out, trun.body + 8, offset + 4)
    return insert_box(bytes(out), tfhd.body + 8, struct.pack(">I", entry), moof, traf, tfhd)
