"""Writes decoded frames into slots of a batch: cropped, resized, converted to RGB, and as floats if asked for."""

from __future__ import annotations

import numpy as np
import torch
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter

from ...errors import DecodeError
from ...manifests.ragged import Array
from ...manifests.records import CodecConfig
from ..output import Geometry, Output
from . import swscale
from .planes import PlaneLayout
from .tiling import Tile, TileWriter, tiles_for

# libavutil's names of 8-bit 4:2:0 in limited and in full range, and its number of full range.
_PLANAR = ("yuv420p", "yuvj420p")
_FULL_RANGE = 2


class FrameWriter:
    """Writes frames of one codec configuration into slots of a batch. Belongs to one thread."""

    def __init__(self, config: CodecConfig, output: Output) -> None:
        self._size = (config.height, config.width)
        self._output = output
        self._geometry = output.geometry(*self._size)
        self.shape = output.frame_shape(*self._size)
        self._reformatter: VideoReformatter | None = None
        # For an odd height or width, libswscale uses other code, whose rounding differs between output formats.
        same = self._geometry.scales or not (self._geometry.height % 2 or self._geometry.width % 2)
        self._tiles: tuple[Tile, ...] = ()
        if same and swscale.library() is not None:
            self._tiles = tiles_for(self._geometry, PlaneLayout.of(output, self._geometry))
        self._writers: dict[tuple[int, bool], tuple[TileWriter, ...]] = {}
        self._bytes = self._floats = np.zeros(0, dtype=np.uint8)
        if output.dtype != torch.uint8:
            self._bytes = np.empty(self.shape, dtype=np.uint8)
            self._floats = np.empty(self.shape, dtype=np.float32)
            self._scale, self._offset = _factors(output)

    def write(self, frame: VideoFrame, slot: Array) -> None:
        """Write a frame into `slot`, a contiguous array of shape `shape`.

        DecodeError when the frame is damaged, or its size is not that of the codec configuration.
        """
        if (frame.height, frame.width) != self._size:
            raise DecodeError(
                f"frames of {frame.width}x{frame.height}, the manifest says {self._size[1]}x{self._size[0]}"
            )
        if frame.is_corrupt:
            raise DecodeError("libavcodec says that a frame is damaged")
        if self._output.dtype == torch.uint8:
            self._write_bytes(frame, slot)
            return
        self._write_bytes(frame, self._bytes)
        floats = slot if slot.dtype == np.float32 else self._floats
        np.multiply(self._bytes, self._scale, out=floats)
        if self._output.normalize is not None:
            np.add(floats, self._offset, out=floats)
        if floats is not slot:
            slot[...] = floats

    def _write_bytes(self, frame: VideoFrame, slot: Array) -> None:
        writers = self._writers_for(frame)
        if not writers:
            self._reformat(frame, slot)
            return
        planes = [(plane.buffer_ptr, plane.line_size) for plane in frame.planes]
        address = slot.ctypes.data
        for writer in writers:
            writer.write(planes, slot, address)

    def _writers_for(self, frame: VideoFrame) -> tuple[TileWriter, ...]:
        """A writer for each tile of frames of this colour; none for frames that PyAV has to convert."""
        matrix, name = int(frame.colorspace), frame.format.name
        full_range = frame.color_range == _FULL_RANGE or name == _PLANAR[1]
        if name not in _PLANAR or matrix not in swscale.MATRICES:
            return ()
        writers = self._writers.get((matrix, full_range))
        if writers is None:
            writers = tuple(TileWriter(tile, matrix=matrix, full_range=full_range) for tile in self._tiles)
            self._writers[matrix, full_range] = writers
        return writers

    def _reformat(self, frame: VideoFrame, slot: Array) -> None:
        """Convert a frame with PyAV, which makes a new frame, and copy that into the slot."""
        geometry = self._geometry
        cut = (geometry.height, geometry.width) != self._size
        planes, planar = self._output.color == "yuv420", self._output.dimension_order == "NCHW"
        # A crop that is not resized is cut out of the converted frame, so that its pixels equal the whole frame's.
        if cut and (geometry.scales or planes):
            frame, cut = _cropped(frame, geometry), False
        if self._reformatter is None:
            self._reformatter = VideoReformatter()
        flags = swscale.BILINEAR | (swscale.FULL_CHROMA | swscale.ACCURATE_ROUNDING if geometry.scales else 0)
        converted = self._reformatter.reformat(
            frame,
            width=frame.width if cut else geometry.size[1],
            height=frame.height if cut else geometry.size[0],
            format=frame.format.name if planes else swscale.GBRP if planar and geometry.scales else swscale.RGB24,
            interpolation=Interpolation(flags),
            # By default libswscale starts a thread for each core, for each frame.
            threads=1,
        )
        if planes:
            parts = [_plane(converted, number).reshape(-1) for number in range(3)]
            slot.reshape(-1)[...] = np.concatenate(parts)
            return
        rgb = converted.to_ndarray()
        if cut:
            rgb = rgb[geometry.top : geometry.top + geometry.height, geometry.left : geometry.left + geometry.width]
        slot[...] = rgb.transpose(2, 0, 1) if planar else rgb


def _cropped(frame: VideoFrame, geometry: Geometry) -> VideoFrame:
    """The crop of a frame, as a new frame."""
    if frame.format.name not in _PLANAR:
        raise DecodeError(f"a crop of a frame in {frame.format.name}, which is not 8-bit 4:2:0")
    part = VideoFrame(geometry.width, geometry.height, frame.format.name)
    part.colorspace, part.color_range = frame.colorspace, frame.color_range
    for number in range(3):
        half = 2 if number else 1
        to = _plane(part, number)
        top, left = geometry.top // half, geometry.left // half
        to[...] = _plane(frame, number)[top : top + to.shape[0], left : left + to.shape[1]]
    return part


def _plane(frame: VideoFrame, number: int) -> Array:
    """A plane of 8-bit samples, (height, width), without a copy."""
    plane = frame.planes[number]
    lines = np.frombuffer(plane, dtype=np.uint8).reshape(plane.height, plane.line_size)  # type: ignore[call-overload]
    return np.asarray(lines[:, : plane.width])


def _factors(output: Output) -> tuple[Array, Array]:
    """Scale and offset that turn bytes into the floats asked for: float32, (3, 1, 1) or (3,)."""
    mean, std = (np.array(values) for values in output.normalize or ((0, 0, 0), (1, 1, 1)))
    shape = (3, 1, 1) if output.dimension_order == "NCHW" else (3,)
    return (1 / (255 * std)).astype(np.float32).reshape(shape), (-mean / std).astype(np.float32).reshape(shape)
