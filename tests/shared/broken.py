"""Damaged and misleading sources. Each function writes `target` and returns it."""

import subprocess
from fractions import Fraction
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np

from synthetic import add_tone


def empty_file(target: Path) -> Path:
    """Write no bytes at all, as an interrupted download leaves behind."""
    target.write_bytes(b"")
    return target


def text_file(target: Path) -> Path:
    """Write text, whatever the suffix of `target` promises."""
    target.write_text("<html><body>404 Not Found</body></html>\n" * 50)
    return target


def cut_in_the_middle(source: Path, target: Path, *, keep: float = 0.5) -> Path:
    """Keep the first part (0 to 1) of the bytes of `source`.

    What is left of an mp4 with its moov box at the end, where muxers put it by default, cannot be opened.
    With `+faststart` it opens, promises all of its frames and marks the last packet as corrupt; an mkv opens
    and has fewer frames than its duration calls for.
    """
    data = source.read_bytes()
    target.write_bytes(data[: int(len(data) * keep)])
    return target


def corrupted_payload(source: Path, target: Path, *, n_bytes: int | None = None) -> Path:
    """Overwrite bytes from the middle of the middle packet on with noise; by default up to that packet's end.

    By default, then, all packets keep their lengths and only one picture is damaged, with all that refer to
    it; decoders of H.264 and HEVC often show it without any complaint. With more bytes the next packets are
    hit too, and in Matroska the headers between them.
    """
    with av.open(source) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    packet = packets[len(packets) // 2]
    assert packet.pos is not None
    first, end = packet.pos + packet.size // 2, packet.pos + packet.size
    data = bytearray(source.read_bytes())
    noise = np.random.default_rng(0).bytes(n_bytes or end - first)
    data[first : first + len(noise)] = noise
    target.write_bytes(data)
    return target


def trimmed_by_edit_list(source: Path, target: Path, *, start_s: float) -> Path:
    """Write an mp4 that holds more frames than it shows, as phones do when one trims a recording.

    Its packets begin at the last keyframe before `start_s`, in seconds, and its edit list at `start_s`.
    Players decode the frames in between, and do not show them.
    """
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    cut = ("-ss", str(start_s), "-i", str(source), "-map", "0:v:0", "-c", "copy")
    subprocess.run([ffmpeg, "-v", "error", "-nostdin", "-y", *cut, str(target)], check=True)
    return target


def audio_only(target: Path) -> Path:
    """Write a second of sound and no video; the suffix of `target` says the container."""
    with av.open(target, "w") as container:
        add_tone(container, Fraction(0), Fraction(1))
    return target
