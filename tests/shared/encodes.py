"""Fragmented MP4 straight from ffmpeg, as prep has it written: an init, and a fragment for each GOP."""

import os
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import imageio_ffmpeg

from shortgop.manifests.mp4 import boxes

RATE = 30
TIMESCALE = 30000
FRAME_TICKS = TIMESCALE // RATE

AV1_PYRAMID, AV1_FLAT = "lp=1:hierarchical-levels=4", "lp=1:pred-struct=1:hierarchical-levels=0"
ENCODERS = {
    "h264": [
        *("-c:v", "libx264", "-preset", "veryfast", "-crf", "30", "-g", "{gop}", "-keyint_min", "{gop}"),
        *("-sc_threshold", "0", "-bf", "{b_frames}", "-x264-params", "open-gop={open_gop}:b-pyramid=none:b-adapt=0"),
    ],
    "hevc": [
        *("-c:v", "libx265", "-preset", "ultrafast", "-crf", "30", "-tag:v", "hvc1", "-x265-params"),
        (
            "keyint={gop}:min-keyint={gop}:scenecut=0:open-gop={open_gop}:bframes={b_frames}:b-pyramid=0:b-adapt=0"
            ":pools=none:frame-threads=1:log-level=none"
        ),
    ],
    "av1": [
        *("-c:v", "libsvtav1", "-preset", "12", "-crf", "50", "-g", "{gop}"),
        *("-svtav1-params", "{structure}"),
    ],
}


@lru_cache
def encode(
    codec: str = "h264",
    *,
    frames: int = 24,
    gop: int = 8,
    b_frames: int = 3,
    open_gop: bool = False,
    forced: str | None = None,
    more: tuple[str, ...] = (),
) -> tuple[bytes, tuple[bytes, ...]]:
    """Init and fragments of a test pattern; `forced` is ffmpeg's expression for keyframes, by default each `gop`."""
    options = _options(codec, gop=gop, b_frames=b_frames, open_gop=open_gop, forced=forced, more=more)
    command = [*_from_pattern(frames), *options, "pipe:1"]
    quiet = {**os.environ, "SVT_LOG": "1"}
    return _parts(subprocess.run(command, stdout=subprocess.PIPE, check=True, env=quiet).stdout)


def encode_in_sizes(
    sizes: Sequence[tuple[int, int]], folder: Path, *, codec: str = "h264", frames: int, gop: int
) -> list[tuple[bytes, tuple[bytes, ...]]]:
    """The same pattern in each of these sizes, (width, height), from one run of ffmpeg."""
    command = _from_pattern(frames)
    files = [folder / f"{width}x{height}.mp4" for width, height in sizes]
    for file, (width, height) in zip(files, sizes, strict=True):
        options = _options(codec, gop=gop, b_frames=1, more=("-s", f"{width}x{height}"))
        command += ["-map", "0:v", "-frames:v", str(frames), *options, str(file)]
    subprocess.run(command, check=True)
    return [_parts(file.read_bytes()) for file in files]


def _from_pattern(frames: int) -> list[str]:
    return [
        *(imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-nostdin"),
        *("-f", "lavfi", "-i", f"testsrc2=size=96x64:rate={RATE}", "-frames:v", str(frames)),
    ]


def _options(
    codec: str, *, gop: int, b_frames: int, open_gop: bool = False, forced: str | None = None, more: Sequence[str] = ()
) -> list[str]:
    """What comes before the name of an output."""
    structure = AV1_PYRAMID if b_frames else AV1_FLAT
    return [
        *("-pix_fmt", "yuv420p"),
        *(
            option.format(gop=gop, b_frames=b_frames, open_gop=int(open_gop), structure=structure)
            for option in ENCODERS[codec]
        ),
        *([] if open_gop else ["-force_key_frames", forced or f"expr:eq(mod(n,{gop}),0)"]),
        *("-threads", "1", "-video_track_timescale", str(TIMESCALE), *more),
        *("-movflags", "+frag_keyframe+delay_moov+default_base_moof+skip_trailer", "-f", "mp4"),
    ]


def _parts(data: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """The init and the fragments of a file."""
    parts = list(boxes(data))
    init, *moofs = [index for index, box in enumerate(parts) if box.type in {b"moov", b"moof"}]
    return data[: parts[init].stop], tuple(data[parts[moof].start : parts[moof + 1].stop] for moof in moofs)
