"""Writes decoded frames into slots of a batch: cropped, resized, flipped, in the colours and numbers asked for."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import torch
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter

from ...errors import DecodeError, UsageError
from ...manifests.ragged import Array
from ..frame_format import Geometry, PixelFormat
from ..nearest_samples import nearest_samples
from . import swscale
from .planes import Arrangement, PlaneLayout, arrangement_of
from .tiling import TileWriter, tiles_for

# libavutil's names of 8-bit 4:2:0 in limited and in full range, and its number of full range.
_PLANAR = ("yuv420p", "yuvj420p")
_FULL_RANGE = 2
# Converters that a writer keeps, one for each size of crop and result, matrix and range. One takes about 0.1 MB, and
# 0.1 ms to make, where the conversion of a frame takes 0.02 to 0.2 ms.
_MAX_CONVERTERS = 128
# From so many elements on, torch uses several threads, which do not survive a fork: at::internal::GRAIN_SIZE.
_TORCH_GRAIN = 32768


class FrameWriter:
    """Writes frames into slots with one pixel format. Belongs to one thread."""

    def __init__(self, pixels: PixelFormat) -> None:
        self._pixels = pixels
        self._converters: OrderedDict[tuple[object, ...], tuple[TileWriter, ...]] = OrderedDict()
        self._reformatter: VideoReformatter | None = None
        self._scale, self._offset = _factors(pixels)
        # What is not converted straight into its slot: a whole frame as bytes, and some lines as floats.
        self._bytes: Array = np.empty((0, 0, 0), dtype=np.uint8)
        self._floats: Array = self._bytes
        # A part as it is, of which the nearest pixels are taken.
        self._part: Array = self._bytes
        self._part_is_packed = False
        self._arrangement = Arrangement(packed=False)
        # What was found for the last frame, since the next one is mostly of the same kind.
        self._slot_found: tuple[Geometry | None, object, Arrangement | None] = (None, None, None)
        self._tiles_found: tuple[object, object, object, tuple[TileWriter, ...]] = (None, None, None, ())

    def write(self, frame: VideoFrame, slot: Array, geometry: Geometry) -> None:
        """Write a part of a frame into `slot`, (channels, height, width), with any strides.

        The geometry lies within the frame. A slot of bfloat16 is given as its bits, uint16. DecodeError when the slot
        has another size, or the frame is in a format that cannot be converted.
        """
        arrangement = self._straight(slot, geometry)
        if arrangement is not None:
            self._write_bytes(frame, slot, geometry, arrangement)
            return
        self._stage(slot)
        self._write_bytes(frame, self._bytes, geometry, self._arrangement)
        pixels = self._bytes[:, :, ::-1] if geometry.flip else self._bytes
        if self._pixels.dtype == torch.uint8:
            slot[...] = pixels
        elif self._pixels.dtype == torch.float32:
            self._normalize(pixels, slot)
        else:
            lines = self._floats.shape[1]
            for top in range(0, slot.shape[1], lines):
                part = pixels[:, top : top + lines]
                floats = self._floats[:, : part.shape[1]]
                self._normalize(part, floats)
                _round(floats, slot[:, top : top + lines], self._pixels.dtype)

    def _normalize(self, part: Array, floats: Array) -> None:
        """Write bytes as the floats asked for, as float32."""
        np.multiply(part, self._scale, out=floats)
        if self._pixels.normalize is not None:
            np.add(floats, self._offset, out=floats)

    def _straight(self, slot: Array, geometry: Geometry) -> Arrangement | None:
        """The arrangement of a slot that frames are converted into straight away; None where they are not.

        DecodeError when frames of this geometry have another shape.
        """
        form = (slot.shape, slot.strides)
        known, known_form, arrangement = self._slot_found
        if geometry is known and form == known_form:
            return arrangement
        if slot.shape != self._pixels.shape(*geometry.size):
            raise DecodeError(f"a frame of {geometry.size} for a slot of shape {slot.shape}")
        arrangement = None
        if self._pixels.color == "yuv420":
            arrangement = Arrangement(packed=False)
        elif self._pixels.dtype == torch.uint8 and not geometry.flip:
            arrangement = arrangement_of(slot, self._pixels)
        self._slot_found = geometry, form, arrangement
        return arrangement

    def _stage(self, slot: Array) -> None:
        """Make memory of this slot's shape for bytes and for floats, with the channels where the slot has them."""
        height, width = slot.shape[1:]
        packed = self._pixels.color == "rgb" and slot.strides[0] < slot.strides[2]
        if self._bytes.shape != slot.shape or self._arrangement.packed != packed:
            self._arrangement = Arrangement(packed, height * width)
            self._bytes = _new_slot(slot.shape, np.uint8, packed=packed)
            # As few lines as torch copies without threads, which stay in the processor's cache.
            lines = max(1, (_TORCH_GRAIN - 1) // (slot.shape[0] * width))
            self._floats = _new_slot((slot.shape[0], lines, width), np.float32, packed=packed)

    def _write_bytes(self, frame: VideoFrame, slot: Array, geometry: Geometry, arrangement: Arrangement) -> None:
        if geometry.scales and self._pixels.interpolation == "nearest":
            self._write_nearest(frame, slot, geometry, packed=arrangement.packed)
            return
        tiles = self._tiles(frame, geometry, arrangement)
        if not tiles:
            self._reformat(frame, slot, geometry, packed=arrangement.packed)
            return
        y, u, v = frame.planes
        planes, strides = (y.buffer_ptr, u.buffer_ptr, v.buffer_ptr), (y.line_size, u.line_size, v.line_size)
        address = slot.ctypes.data
        for tile in tiles:
            tile.write(planes, strides, geometry.top, geometry.left, slot, address)

    def _write_nearest(self, frame: VideoFrame, slot: Array, geometry: Geometry, *, packed: bool) -> None:
        """Write the nearest pixels of the part as it is: those of masks stay what they are."""
        height, width = geometry.size
        if self._pixels.color == "yuv420":
            part = _cropped(frame, geometry)
            sizes = [(height, width)] + [(height // 2, width // 2)] * 2
            planes = [_nearest(_plane(part, number)[None], size) for number, size in enumerate(sizes)]
            slot.reshape(-1)[...] = np.concatenate([plane.reshape(-1) for plane in planes])
            return
        unscaled = replace(geometry, size=(geometry.height, geometry.width))
        if (self._part.shape[1:], self._part_is_packed) != (unscaled.size, packed):
            self._part = _new_slot(self._pixels.shape(*unscaled.size), np.uint8, packed=packed)
            self._part_is_packed = packed
        self._write_bytes(frame, self._part, unscaled, Arrangement(packed, geometry.height * geometry.width))
        slot[...] = _nearest(self._part, geometry.size)

    def _tiles(self, frame: VideoFrame, geometry: Geometry, arrangement: Arrangement) -> tuple[TileWriter, ...]:
        """A writer for each tile of such crops of frames of this colour; none for those that PyAV has to convert."""
        color = (frame.colorspace, frame.color_range, frame.format.name)
        known, known_arrangement, known_color, found = self._tiles_found
        if geometry is not known or arrangement is not known_arrangement or color != known_color:
            found = self._tiles_of(frame, geometry, arrangement)
            self._tiles_found = geometry, arrangement, color, found
        return found

    def _tiles_of(self, frame: VideoFrame, geometry: Geometry, arrangement: Arrangement) -> tuple[TileWriter, ...]:
        if not _can_tile(frame, geometry):
            return ()
        source, size, matrix, full_range = (geometry.height, geometry.width), geometry.size, *_colors_of(frame)
        key = (source, size, arrangement, matrix, full_range)
        found = self._converters.get(key)
        if found is None:
            layout, interpolation = PlaneLayout.of(self._pixels, size, arrangement), self._pixels.interpolation
            found = tuple(
                TileWriter(tile, matrix=matrix, full_range=full_range, interpolation=interpolation)
                for tile in tiles_for(source, size, layout, interpolation)
            )
            self._converters[key] = found
            if len(self._converters) > _MAX_CONVERTERS:
                self._converters.popitem(last=False)
        else:
            self._converters.move_to_end(key)
        return found

    def _reformat(self, frame: VideoFrame, slot: Array, geometry: Geometry, *, packed: bool) -> None:
        """Convert a frame with PyAV, which makes a new frame, and copy that into the slot."""
        if self._pixels.color == "yuv420":
            converted = self._converted(_cropped(frame, geometry), geometry, frame.format.name)
            slot.reshape(-1)[...] = np.concatenate([_plane(converted, number).reshape(-1) for number in range(3)])
            return
        rgb = swscale.RGB24 if packed or not geometry.scales else swscale.GBRP
        target = rgb if self._pixels.color == "rgb" else swscale.YUV444P
        if geometry.scales:
            slot[...] = self._channels(self._converted(_cropped(frame, geometry), geometry, target))
            return
        # A crop that is not resized is cut out of the converted frame, so that its pixels equal the whole frame's.
        channels = self._channels(self._converted(frame, geometry, target))
        top, left = geometry.top, geometry.left
        slot[...] = channels[:, top : top + geometry.height, left : left + geometry.width]

    def _converted(self, frame: VideoFrame, geometry: Geometry, target: str) -> VideoFrame:
        """The whole frame in a format of libswscale; resized if the geometry does."""
        if geometry.scales and self._pixels.interpolation != "bilinear":
            # PyAV cannot pass the parameters of the cubic filter, and libswscale's own are sharper.
            of = f"a frame in {frame.format.name} with matrix coefficients {int(frame.colorspace)}"
            why = "libswscale is not found in PyAV here, so frames are" if swscale.library() is None else f"{of} is"
            raise UsageError(
                f'{why} resized through PyAV\'s converter, which has only interpolation="bilinear": leave out '
                f"interpolation={self._pixels.interpolation!r}"
            )
        if self._reformatter is None:
            self._reformatter = VideoReformatter()
        height, width = geometry.size if geometry.scales else (frame.height, frame.width)
        flags = swscale.BILINEAR | (swscale.FULL_CHROMA | swscale.ACCURATE_ROUNDING if geometry.scales else 0)
        return self._reformatter.reformat(
            frame,
            width=width,
            height=height,
            format=target,
            dst_color_range=ColorRange.JPEG if self._pixels.color in ("ycbcr", "grey") else None,
            interpolation=Interpolation(flags),
            # By default libswscale starts a thread for each core, for each frame.
            threads=1,
        )

    def _channels(self, frame: VideoFrame) -> Array:
        """The channels of a converted frame: (channels, height, width)."""
        if self._pixels.color == "rgb":
            return frame.to_ndarray().transpose(2, 0, 1)
        return np.stack([_plane(frame, number) for number in range(self._pixels.channels)])


def _can_tile(frame: VideoFrame, geometry: Geometry) -> bool:
    """Whether frames of this kind are converted in tiles, straight into a slot. PyAV converts the others."""
    # For an odd height or width, libswscale uses other code, whose rounding differs between output formats.
    is_odd = not geometry.scales and any(side % 2 for side in geometry.size)
    is_known = frame.format.name in _PLANAR and int(frame.colorspace) in swscale.MATRICES
    return is_known and not is_odd and swscale.library() is not None


def _colors_of(frame: VideoFrame) -> tuple[int, bool]:
    """The matrix of a frame's colours, and whether they have the full range."""
    return int(frame.colorspace), frame.color_range == _FULL_RANGE or frame.format.name == _PLANAR[1]


def _cropped(frame: VideoFrame, geometry: Geometry) -> VideoFrame:
    """The crop of a frame, as a new frame, or the frame itself where that is all of it."""
    if (geometry.height, geometry.width) == (frame.height, frame.width):
        return frame
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


def _nearest(pixels: Array, size: tuple[int, int]) -> Array:
    """Of (channels, height, width), the pixels that are nearest to those of another (height, width)."""
    lines, columns = (nearest_samples(source, target) for source, target in zip(pixels.shape[1:], size, strict=True))
    # Fancy indices, or take along another order than that of memory, took 2 to 6 times as long.
    if pixels.strides[2] == 1:
        return pixels.take(lines, axis=1).take(columns, axis=2)
    return pixels.transpose(1, 2, 0).take(lines, axis=0).take(columns, axis=1).transpose(2, 0, 1)


def _plane(frame: VideoFrame, number: int) -> Array:
    """A plane of 8-bit samples, (height, width), without a copy."""
    plane = frame.planes[number]
    lines = np.frombuffer(plane, dtype=np.uint8).reshape(plane.height, plane.line_size)  # type: ignore[call-overload]
    return np.asarray(lines[:, : plane.width])


def _new_slot(shape: tuple[int, ...], dtype: type, *, packed: bool) -> Array:
    """Memory for a frame: (channels, height, width), with the channels of a pixel beside each other if `packed`."""
    if not packed:
        return np.empty(shape, dtype=dtype)
    channels, height, width = shape
    return np.empty((height, width, channels), dtype=dtype).transpose(2, 0, 1)


def _factors(pixels: PixelFormat) -> tuple[Array, Array]:
    """Scale and offset that turn bytes into the floats asked for: float32, (channels, 1, 1)."""
    channels = pixels.channels
    mean, std = (np.array(values) for values in pixels.mean_and_std or ((0,) * channels, (1,) * channels))
    shape = (channels, 1, 1)
    return (1 / (255 * std)).astype(np.float32).reshape(shape), (-mean / std).astype(np.float32).reshape(shape)


def _round(floats: Array, slot: Array, dtype: torch.dtype) -> None:
    """Write float32 values into a slot of float16, or of bfloat16 given as its bits; fewer than `_TORCH_GRAIN`."""
    # numpy takes 12 times as long.
    rounded = torch.from_numpy(slot)
    (rounded.view(dtype) if rounded.dtype != dtype else rounded).copy_(torch.from_numpy(floats))
