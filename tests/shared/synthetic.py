"""Videos whose every frame shows its own number, made in a fraction of a second.

`make_video` writes a file; `read_number` says which frame a decoded picture is. A picture that is not one
frame (a blend, one torn between or within rows, a wrongly rotated one) raises AssertionError and is never
read as a third number, so tests may trust what they read. A number is drawn as a grid of black and white
cells:

    1 1 0 1 0 0 1 0   anchor: always the same, tells the levels of black and white, and which way is up
    n n n n n n n n   high byte of the number
    . . . . . . . .   the row above, inverted
    n n n n n n n n   low byte
    . . . . . . . .   inverted
    c c c c c c c c   CRC-8 of both bytes: it notices when rows come from different frames
    . . . . . . . .   inverted

The grid takes the same fraction of width and height in every size, so it reads back after any rescaling.
Around it something moves, so that P and B frames have work to do.
"""

import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import av
import numpy as np
from av.audio.stream import AudioStream
from av.codec.context import Flags
from av.container import OutputContainer
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
Rotation = Literal[0, 90, 180, 270]

GRID_ROWS, GRID_COLUMNS = 7, 8
GRID_MARGIN = 1 / 8  # of the width and of the height, on each side
SAMPLES_PER_CELL = 4  # points in each direction, in the middle half of the cell
MIN_CONTRAST = 80  # between the levels of black and white, of 255
MAX_DOUBT = 0.25  # how far a cell may be from black or white, as a part of the contrast
ANCHOR = 0b11010010

AUDIO_RATE = 48000  # Hz

_CPU_INFO = Path("/proc/cpuinfo")
# With AVX-512, x264 writes other bytes now and then (PyAV 18.1), and tests make a file again.
_ASM = ":asm=avx2" if _CPU_INFO.exists() and "avx512f" in _CPU_INFO.read_text(encoding="utf-8") else ""
# Every choice here is for speed and for GOPs without surprises: no scene cuts, as many B-frames as asked for.
ENCODER_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "libx264": {"preset": "veryfast", "crf": "23", "x264-params": f"b-adapt=0:scenecut=0{_ASM}"},
    "libx265": {
        "preset": "ultrafast",
        "crf": "25",
        "x265-params": "log-level=error:b-adapt=0:scenecut=0:pools=none:frame-threads=1",
    },
    "mpeg4": {"qmin": "5", "qmax": "5"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "crf": "30", "lag-in-frames": "0"},
}
# By H.273 number. An untagged video is made as BT.601, which is what players take it for if it is small.
MATRICES = {1: Colorspace.ITU709, 9: Colorspace.BT2020}
UNSPECIFIED = 2  # in H.273, but for the range


@dataclass(frozen=True, slots=True)
class SyntheticVideo:
    """A written file, described by what is found when it is read again. Tuples are in presentation order."""

    path: Path
    width: int  # pixels, as displayed after rotation
    height: int
    timebase: Fraction  # seconds, as the container has it: not always the one that was asked for
    pts: tuple[int, ...]  # in `timebase`
    durations: tuple[int, ...]  # as the packets say, in `timebase`: often not the time to the next frame
    first_number: int
    rotation: Rotation  # degrees counterclockwise that a player has to turn the coded picture

    @property
    def num_frames(self) -> int:
        """How many frames there are."""
        return len(self.pts)

    @property
    def numbers(self) -> range:
        """The number that each frame shows."""
        return range(self.first_number, self.first_number + len(self.pts))


def burn(number: int, width: int, height: int, background: Picture | None = None) -> Picture:
    """Draw `number`, of 16 bits, into an RGB picture (height, width, 3)."""
    picture = (moving_background(number, width, height) if background is None else background).copy()
    rows = _grid_edges(height, GRID_ROWS)
    columns = _grid_edges(width, GRID_COLUMNS)
    cells = (_cells(number) * 255).repeat(np.diff(rows), axis=0).repeat(np.diff(columns), axis=1)
    picture[rows[0] : rows[-1], columns[0] : columns[-1]] = cells[:, :, None]
    return picture


def read_number(picture: Any) -> int:
    """Return the number that a picture shows, or raise AssertionError where there is a doubt.

    `picture` is a numpy array or torch tensor: RGB or grey, channels first or last, integers that use the
    whole range of their type, or floats from 0 to 1.
    """
    levels = _cell_levels(_as_channels_last(picture))
    anchor = _bits(ANCHOR)
    black, white = levels[0][anchor == 0].mean(), levels[0][anchor == 1].mean()
    # The messages are made only where one is needed: printing the levels takes longer than reading the number.
    if not white - black >= MIN_CONTRAST:  # also where there is no number
        raise AssertionError(f"no anchor row: {levels[0].round()}")
    levels = (levels - black) / (white - black)
    cells = np.rint(levels).clip(0, 1).astype(np.uint8)
    if not np.abs(levels - cells).max() <= MAX_DOUBT:
        raise AssertionError(f"neither black nor white: {levels.round(2)}")
    high, low = np.packbits(cells, axis=1)[[1, 3], 0].tolist()
    number = int(high) << 8 | int(low)
    if not (cells == _cells(number)).all():
        raise AssertionError(f"the rows contradict each other: {cells}")
    return number


def moving_background(number: int, width: int, height: int) -> Picture:
    """Make an RGB picture (height, width, 3) of coloured waves and grain, shifted along with `number`."""
    return np.roll(_texture(width, height), (number, 2 * number), axis=(0, 1))


def constant_rate_pts(rate: Fraction, n: int, timebase: Fraction | None = None, start: int = 0) -> tuple[int, ...]:
    """Return `n` pts from `start`, at `rate` frames per second, in `timebase` (1 / rate if not given)."""
    ticks = 1 if timebase is None else 1 / (rate * timebase)
    return tuple(start + math.floor(j * ticks + Fraction(1, 2)) for j in range(n))


def variable_rate_pts(
    seed: int, n: int, timebase: Fraction, mean_rate: Fraction = Fraction(30), start: int = 0
) -> tuple[int, ...]:
    """Return `n` pts from `start` in `timebase` seconds: durations vary by half, and some are long pauses."""
    rng = np.random.default_rng(seed)
    ticks = float(1 / (mean_rate * timebase))
    pauses = rng.choice([1, 8], n, p=[0.95, 0.05])
    durations = np.rint(ticks * rng.uniform(0.5, 1.5, n) * pauses).astype(np.int64).clip(min=1)
    return (start, *(start + durations[:-1].cumsum()).tolist())


def make_video(
    path: Path,
    *,
    pts: Sequence[int],
    timebase: Fraction,
    size: tuple[int, int] = (96, 64),
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    gop: int = 250,
    b_frames: int = 2,
    options: Mapping[str, str] | None = None,
    container_options: Mapping[str, str] | None = None,
    rotation: Rotation = 0,
    sample_aspect_ratio: Fraction | None = None,
    colorspace: int = UNSPECIFIED,
    color_range: int = ColorRange.UNSPECIFIED,
    color_primaries: int = UNSPECIFIED,
    color_trc: int = UNSPECIFIED,
    audio_start: Fraction | None = None,
    first_number: int = 0,
) -> SyntheticVideo:
    """Write a video whose frame j has pts[j] and shows `first_number` + j; the suffix names the container.

    `size` is (width, height) as displayed: with `rotation` 90 or 270 the coded picture lies on its side.
    `gop` counts frames. The colour numbers are H.273's, as in FFmpeg; by default the file is untagged. The
    pixels are made to match. `audio_start`, in seconds, adds a tone from there on, as long as the video.
    """
    with av.open(path, "w", container_options=dict(container_options or {})) as container:
        options = {**ENCODER_OPTIONS.get(codec, {}), **(options or {})}
        stream = container.add_stream(codec, rate=_average_rate(pts, timebase), options=options)
        assert isinstance(stream, VideoStream)
        context = stream.codec_context
        context.width, context.height = size if rotation in {0, 180} else size[::-1]
        context.pix_fmt, context.time_base = pix_fmt, timebase
        context.gop_size, context.max_b_frames, context.thread_count = gop, b_frames, 1
        context.flags |= Flags.frame_duration  # otherwise the last frame gets whatever the rate suggests
        context.colorspace, context.color_range = colorspace, color_range
        context.color_primaries, context.color_trc = color_primaries, color_trc
        if sample_aspect_ratio is not None:
            context.sample_aspect_ratio = sample_aspect_ratio
        if rotation:
            stream.set_display_rotation(rotation)
        if audio_start is not None:
            add_tone(container, audio_start, (pts[-1] - pts[0]) * timebase)
        full_range = color_range == ColorRange.JPEG or pix_fmt.startswith("yuvj")
        reformatter = VideoReformatter()
        for j, (time, duration) in enumerate(zip(pts, _durations(pts), strict=True)):
            coded = np.rot90(burn(first_number + j, *size), -rotation // 90)
            frame = reformatter.reformat(
                av.VideoFrame.from_ndarray(np.ascontiguousarray(coded)),
                format=pix_fmt,
                dst_colorspace=MATRICES.get(colorspace, Colorspace.ITU601),
                dst_color_range=ColorRange.JPEG if full_range else ColorRange.MPEG,
                threads=1,
            )
            frame.pts, frame.duration, frame.time_base = time, duration, timebase
            frame.colorspace, frame.color_range = colorspace, color_range
            frame.color_primaries, frame.color_trc = color_primaries, color_trc
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return _describe(path, size, first_number, rotation)


def add_tone(container: OutputContainer, start: Fraction, duration: Fraction) -> None:
    """Write an audio stream; times are in seconds. All other streams must have been added before."""
    codecs = {"avi": "pcm_s16le", "webm": "libopus"}
    stream = container.add_stream(codecs.get(container.format.name, "aac"), rate=AUDIO_RATE)
    assert isinstance(stream, AudioStream)
    stream.codec_context.layout, stream.codec_context.bit_rate = "mono", 64_000
    samples = np.sin(np.arange(round(duration * AUDIO_RATE)) * (2 * np.pi * 440 / AUDIO_RATE)) * 8000
    frame = av.AudioFrame.from_ndarray(samples.astype(np.int16)[None], format="s16", layout="mono")
    frame.sample_rate, frame.time_base = AUDIO_RATE, Fraction(1, AUDIO_RATE)
    frame.pts = round(start * AUDIO_RATE)
    container.mux([*stream.encode(frame), *stream.encode()])


def frame_to_rgb(frame: av.VideoFrame) -> Picture:
    """Convert to RGB (height, width, 3), of 8 bits, as the tags of the frame say."""
    # One thread: to start others takes several times as long as to convert a small picture.
    rgb = frame.to_ndarray(format="rgb24", threads=1)
    assert rgb.dtype == np.uint8
    return cast(Picture, rgb)


def decode_rgb(path: Path) -> list[Picture]:
    """Decode the first video stream to RGB (height, width, 3), as coded: rotation is not applied."""
    with av.open(path) as container:
        container.streams.video[0].codec_context.thread_count = 1
        return [frame_to_rgb(frame) for frame in container.decode(video=0)]


def decode_rgb_with_ffmpeg(path: Path, size: tuple[int, int], *, filters: str = "null") -> list[Picture]:
    """Decode with the ffmpeg program, which rotates as the container says; `filters` must yield `size`."""
    # Only here: machines with a GPU for checks have no ffmpeg program.
    import imageio_ffmpeg

    command = [
        *(imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-nostdin", "-threads", "1", "-i", str(path)),
        *("-map", "0:v:0", "-vf", filters, "-fps_mode", "passthrough"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-"),
    ]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    width, height = size
    return list(np.frombuffer(output, np.uint8).reshape(-1, height, width, 3))


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _bits(*numbers: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.array(numbers, np.uint8))


def _cells(number: int) -> NDArray[np.uint8]:
    """Return the grid, 1 for white."""
    high, low = number.to_bytes(2, "big")
    crc = _crc8(high, low)
    return _bits(ANCHOR, high, 255 - high, low, 255 - low, crc, 255 - crc).reshape(GRID_ROWS, GRID_COLUMNS)


def _crc8(*numbers: int) -> int:
    """CRC-8, polynomial 0x2F: two numbers of 16 bits differ in at least 4 bits, those of the CRC included."""
    crc = 0xFF
    for byte in numbers:
        crc ^= byte
        for _ in range(8):
            crc = crc << 1 ^ (0x12F if crc & 0x80 else 0)
    return crc


def _grid_edges(length: int, cells: int) -> NDArray[np.int64]:
    """Say at which of `length` pixels each cell begins, and where the last one ends."""
    fractions = np.linspace(GRID_MARGIN, 1 - GRID_MARGIN, cells + 1)
    return np.rint(fractions * length).astype(np.int64)


def _grid_samples(length: int, cells: int) -> NDArray[np.int64]:
    """Choose, of `length` pixels, SAMPLES_PER_CELL in the middle half of each cell."""
    within_cell = 0.25 + (np.arange(SAMPLES_PER_CELL) + 0.5) / (2 * SAMPLES_PER_CELL)
    fractions = (np.arange(cells)[:, None] + within_cell) / cells
    return (length * (GRID_MARGIN + fractions.ravel() * (1 - 2 * GRID_MARGIN))).astype(np.int64)


def _cell_levels(picture: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean level of each cell, from 0 to 255."""
    height, width, _ = picture.shape
    points = np.ix_(_grid_samples(height, GRID_ROWS), _grid_samples(width, GRID_COLUMNS))
    samples = picture[points].astype(np.float64)
    brightest = np.iinfo(picture.dtype).max if np.issubdtype(picture.dtype, np.integer) else 1
    by_cell = samples.reshape(GRID_ROWS, SAMPLES_PER_CELL, GRID_COLUMNS, SAMPLES_PER_CELL, -1)
    return np.asarray(by_cell.mean(axis=(1, 3, 4)) * 255 / brightest)


def _as_channels_last(picture: Any) -> NDArray[Any]:
    array = np.asarray(picture.detach().cpu() if hasattr(picture, "detach") else picture)
    if array.ndim == 2:
        return array[:, :, None]
    _check(array.ndim == 3, f"one picture has 2 or 3 dimensions, got {array.shape}")
    return array if array.shape[2] in {1, 3} else array.transpose(1, 2, 0)


# Making it takes longer than all else that makes a frame.
@cache
def _texture(width: int, height: int) -> Picture:
    x, y = np.arange(width)[None, :, None], np.arange(height)[:, None, None]
    slopes_x, slopes_y = np.array([[1, 3, -2], [2, -1, 3]])  # of red, green and blue
    waves = np.abs((slopes_x * x + slopes_y * y) % 256 - 128)
    grain = np.random.default_rng(0).integers(0, 48, (height, width, 1))
    texture: Picture = (40 + waves + grain).astype(np.uint8)
    texture.flags.writeable = False
    return texture


def _durations(pts: Sequence[int]) -> list[int]:
    """Return the time to the next frame; the last one takes as long as the one before."""
    durations = np.diff(pts).tolist() or [1]
    return [*durations, durations[-1]][: len(pts)]


def _average_rate(pts: Sequence[int], timebase: Fraction) -> Fraction:
    """Return frames per second: 30000/1001 and the like where they may be meant, since pts are rounded."""
    if len(pts) == 1:
        return Fraction(25)
    return ((len(pts) - 1) / ((pts[-1] - pts[0]) * timebase)).limit_denominator(1001)


def _describe(path: Path, size: tuple[int, int], first_number: int, rotation: Rotation) -> SyntheticVideo:
    with av.open(path) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        times = sorted((packet.pts, packet.duration or 0) for packet in packets if packet.pts is not None)
        assert len(times) == len(packets), f"{path.name}: packets without pts"
        assert stream.time_base is not None
        return SyntheticVideo(
            path=path,
            width=size[0],
            height=size[1],
            timebase=stream.time_base,
            pts=tuple(pts for pts, _ in times),
            durations=tuple(duration for _, duration in times),
            first_number=first_number,
            rotation=rotation,
        )
