"""Other libraries that read videos, each used as its own documentation advises.

Each gets a file and the numbers of frames in it, ascending, and returns RGB, on one thread. None is asked to resize.
A library is imported when it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import UsageError
from .files import VideoFile, runs
from .timing import explained

Read = Callable[[VideoFile, Sequence[int]], Any]


def _torchcodec(*, seek_mode: str | None = None, keep_open: bool = False) -> Read:
    import torchcodec.decoders

    decoder_type: Any = vars(torchcodec.decoders)["VideoDecoder"]
    mappings: dict[str, str] = {}
    opened: dict[str, Any] = {}

    def decoder_of(file: VideoFile) -> Any:
        if seek_mode is not None:
            return decoder_type(file.path, seek_mode=seek_mode, num_ffmpeg_threads=1)
        mapping = mappings.get(file.path)
        if mapping is None:
            mapping = mappings[file.path] = _mapping(file)
        return decoder_type(file.path, custom_frame_mappings=mapping, num_ffmpeg_threads=1)

    def read(file: VideoFile, frames: Sequence[int]) -> Any:
        decoder = opened.get(file.path)
        if decoder is None:
            decoder = decoder_of(file)
            if keep_open:
                opened[file.path] = decoder
        return decoder.get_frames_at(list(frames)).data

    return read


def _mapping(file: VideoFile) -> str:
    """What `ffprobe -show_entries frame=pts,duration,key_frame` writes as JSON."""
    columns = (file.pts.tolist(), file.durations.tolist(), file.keyframes.astype(int).tolist())
    frames = [{"pts": pts, "duration": ticks, "key_frame": key} for pts, ticks, key in zip(*columns, strict=True)]
    return json.dumps({"frames": frames})


def _pyav() -> Read:
    import av
    from av.video.reformatter import VideoReformatter

    def read(file: VideoFile, frames: Sequence[int]) -> Any:
        pictures = []
        # A new one for each frame costs as much as decoding.
        reformatter = VideoReformatter()
        with av.open(file.path) as container:
            stream = container.streams.best("video")
            if stream is None:
                raise LookupError("no video stream")
            stream.codec_context.thread_count = 1
            for run in runs(file, frames):
                wanted = set(file.pts[run].tolist())
                container.seek(int(file.pts[run[0]]), stream=stream)
                for frame in container.decode(stream):
                    if not isinstance(frame, av.VideoFrame) or frame.pts is None:
                        continue
                    if frame.pts in wanted:
                        picture = reformatter.reformat(frame, format="rgb24", threads=1).to_ndarray()
                        pictures += [picture] * run.count(int(np.searchsorted(file.pts, frame.pts)))
                    if frame.pts >= file.pts[run[-1]]:
                        break
        return np.stack(_all(pictures, frames))

    return read


def _opencv(*, seek_always: bool = False) -> Read:
    import cv2

    cv2.setNumThreads(1)

    def read(file: VideoFile, frames: Sequence[int]) -> Any:
        capture = cv2.VideoCapture(file.path, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
        pictures = []
        try:
            for run in [[frame] for frame in frames] if seek_always else runs(file, frames):
                capture.set(cv2.CAP_PROP_POS_FRAMES, run[0])
                wanted = set(run)
                for frame in range(run[0], run[-1] + 1):
                    if not capture.grab():
                        break
                    if frame in wanted:
                        _, picture = capture.retrieve()
                        pictures += [cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)] * run.count(frame)
        finally:
            capture.release()
        return np.stack(_all(pictures, frames))

    return read


def _decord() -> Read:
    import decord

    def read(file: VideoFile, frames: Sequence[int]) -> Any:
        return decord.VideoReader(file.path, ctx=decord.cpu(0), num_threads=1).get_batch(list(frames)).asnumpy()

    return read


def _imageio() -> Read:
    import imageio.v3 as iio

    def read(file: VideoFile, frames: Sequence[int]) -> Any:
        # With a constant rate it seeks, without it decodes from the start.
        constant = bool(np.ptp(np.diff(file.pts)) <= 1)
        with iio.imopen(file.path, "r", plugin="pyav") as opened:
            return np.stack([opened.read(index=i, constant_framerate=constant, thread_count=1) for i in frames])

    return read


def _spdl() -> Read:
    import spdl.io

    def read(file: VideoFile, frames: Sequence[int]) -> Any:
        pieces = []
        for run in runs(file, frames):
            half = _half_frame(file, run[-1])
            window = (max(0.0, float(file.seconds(run[0])) - half), float(file.seconds(run[-1])) + half)
            decoded = spdl.io.decode_packets(spdl.io.demux_video(file.path, timestamp=window))
            buffer = spdl.io.convert_frames(decoded)
            array = spdl.io.to_numpy(buffer)
            pieces.append(array[np.asarray(run) - run[0]])
        return np.concatenate(pieces)

    return read


def _half_frame(file: VideoFile, frame: int) -> float:
    """Half the time for which a frame is shown."""
    return float(int(file.durations[frame]) * file.timebase / 2) or 1e-3


def _all(pictures: list[Any], frames: Sequence[int]) -> list[Any]:
    if len(pictures) != len(frames):
        raise LookupError(f"it found {len(pictures)} of {len(frames)} frames")
    return pictures


PEERS: dict[str, Callable[[], Read]] = {
    "torchcodec": lambda: _torchcodec(seek_mode="exact"),
    "torchcodec-approximate": lambda: _torchcodec(seek_mode="approximate"),
    "torchcodec-mappings": _torchcodec,
    "torchcodec-open": lambda: _torchcodec(seek_mode="exact", keep_open=True),
    "pyav": _pyav,
    "opencv": _opencv,
    "opencv-seek": lambda: _opencv(seek_always=True),
    "decord": _decord,
    "imageio": _imageio,
    "spdl": _spdl,
}
"""By name. `torchcodec-open` keeps every file open, the others open theirs for each clip; `torchcodec-mappings` is
given the packet list; `opencv` reads on where no keyframe lies between, `opencv-seek` sets the position each time."""


def load(names: Iterable[str]) -> tuple[dict[str, Read], dict[str, str]]:
    """The peers with these names, and the reasons why others do not load. UsageError for an unknown name."""
    readers: dict[str, Read] = {}
    missing: dict[str, str] = {}
    for name in names:
        if name not in PEERS:
            raise UsageError(f"there is no peer {name!r}; there are {', '.join(PEERS)}")
        try:
            readers[name] = PEERS[name]()
        except (ImportError, OSError, RuntimeError) as error:
            missing[name] = explained(error)
    return readers, missing
