"""Fragmented MP4 straight from ffmpeg, as prep has it written: an init, and a fragment for each GOP."""

import os
import subprocess
from functools import lru_cache

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
    structure = AV1_PYRAMID if b_frames else AV1_FLAT
    command = [
        *(imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-nostdin"),
        *("-f", "lavfi", "-i", f"testsrc2=size=96x64:rate={RATE}", "-frames:v", str(frames), "-pix_fmt", "yuv420p"),
        *(
            option.format(gop=gop, b_frames=b_frames, open_gop=int(open_gop), structure=structure)
            for option in ENCODERS[codec]
        ),
        *([] if open_gop else ["-force_key_frames", forced or f"expr:eq(mod(n,{gop}),0)"]),
        *("-threads", "1", "-video_track_timescale", str(TIMESCALE), *more),
        *("-movflags", "+frag_keyframe+delay_moov+default_base_moof+skip_trailer", "-f", "mp4", "pipe:1"),
    ]
    quiet = {**os.environ, "SVT_LOG": "1"}
    data = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=quiet).stdout
    parts = list(boxes(data))
    init, *moofs = [index for index, box in enumerate(parts) if box.type in {b"moov", b"moof"}]
    return data[: parts[init].stop], tuple(data[parts[moof].start : parts[moof + 1].stop] for moof in moofs)
