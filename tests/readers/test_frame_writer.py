"""Frames into slots of a batch: libswscale called directly, the conversion by PyAV, and what both have to give."""

from __future__ import annotations

from typing import Any

import av
import numpy as np
import pytest
import torch
from av.video.reformatter import VideoReformatter
from torch.nn.functional import interpolate

from rounding import rounds_alike
from shortgop.errors import DecodeError, UsageError
from shortgop.manifests.ragged import Array
from shortgop.readers.convert import swscale
from shortgop.readers.convert.frame_writer import FrameWriter
from shortgop.readers.convert.tiling import Way
from shortgop.readers.decoders.pyav import check_frame
from shortgop.readers.frame_format import FrameFormat, Geometry
from shortgop.readers.nearest_samples import nearest_samples

GUARD = 77
COLOURS = [(2, False), (1, False), (1, True), (5, False), (5, True), (6, False), (7, False), (9, False), (4, False)]


def make_frame(height: int, width: int, *, matrix: int = 2, full_range: bool = False, smooth: bool = False) -> Any:
    """A frame of noise, or of waves as in photographs."""
    frame = av.VideoFrame(width, height, "yuvj420p" if full_range else "yuv420p")
    frame.colorspace, frame.color_range = matrix, 2 if full_range else 1
    rng = np.random.default_rng(0)
    for number, plane in enumerate(frame.planes):
        y, x = np.mgrid[: plane.height, : plane.line_size] * (2 if number else 1)
        # Colour changes slowly, which is why half its samples do.
        length, amount = (40, 1) if number else (7, 10)
        waves = (
            128
            + (30 if number else 60) * np.sin(x / length + number) * np.cos(y / length)
            + rng.normal(0, amount, x.shape)
        )
        noise = rng.integers(0, 256, x.shape)
        plane.update(np.clip(waves if smooth else noise, 0, 255).astype(np.uint8).tobytes())
    return frame


def slot_of(memory: Array, chosen: FrameFormat, geometry: Geometry) -> Array:
    """Memory as a slot: (channels, height, width)."""
    channels, height, width = chosen.pixels.shape(*geometry.size)
    if chosen.layout == "TCHW":
        return memory.reshape(channels, height, width)
    return memory.reshape(height, width, channels).transpose(2, 0, 1)


def written(frame: Any, writer: FrameWriter | None = None, **options: Any) -> Array:
    """The frame as it lies in a slot, which is surrounded by bytes that must not change."""
    chosen = FrameFormat(**options)
    geometry = chosen.geometry(frame.height, frame.width)
    shape = chosen.frame_shape(frame.height, frame.width)
    dtype = torch.zeros(0, dtype=chosen.dtype).numpy().dtype
    count = int(np.prod(shape))
    memory = np.full(count * dtype.itemsize + 512, GUARD, dtype=np.uint8)
    inner = memory[256 : 256 + count * dtype.itemsize]
    (writer or FrameWriter(chosen.pixels)).write(frame, slot_of(inner.view(dtype), chosen, geometry), geometry)
    assert (memory[:256] == GUARD).all()
    assert (memory[256 + inner.size :] == GUARD).all()
    return inner.view(dtype).reshape(shape)


def without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swscale, "library", lambda: None)


def rgb_of(frame: Any) -> Array:
    return np.asarray(VideoReformatter().reformat(frame, format="rgb24", threads=1).to_ndarray())


def test_the_library_is_found() -> None:
    assert swscale.library() is not None


@pytest.mark.parametrize("way", ["directly", "through PyAV"])
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "size",
    [(2, 2), (16, 8), (34, 40), (64, 96), (66, 98), (67, 98), (66, 97), (130, 130), (256, 342), (256, 454), (256, 456)],
)
def test_rgb_is_what_pyav_makes_of_it(
    size: tuple[int, int], order: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way != "directly":
        without_the_library(monkeypatch)
    for matrix, full_range in COLOURS:
        frame = make_frame(*size, matrix=matrix, full_range=full_range)
        slot = written(frame, dimension_order=order)
        assert rounds_alike(slot.transpose(1, 2, 0) if order == "NCHW" else slot, rgb_of(frame))


@pytest.mark.parametrize("way", [None, "last columns padded", "columns padded"])
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_every_way_to_cut_a_picture_up_that_may_be_taken_is_right(
    order: Any, way: Way | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which others come into question depends on the processor; those that copy from padded memory always do."""
    for width in range(2, 82, 2):
        frame = make_frame(34, width, matrix=1)
        if way is not None and width >= 16:
            monkeypatch.setattr("shortgop.readers.convert.tiling.way_for", lambda *_, **__: way)
        slot = written(frame, dimension_order=order)
        assert rounds_alike(slot.transpose(1, 2, 0) if order == "NCHW" else slot, rgb_of(frame)), width


@pytest.mark.parametrize("options", [{"size": (50, 62)}, {"size": 33}, {"crop": (10, 20, 40, 64), "size": (96, 64)}])
@pytest.mark.parametrize("colour", [{}, {"dimension_order": "NHWC"}, {"color": "yuv420"}], ids=str)
def test_both_ways_resize_alike(
    options: dict[str, Any], colour: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "color" in colour and options["size"] == 33:
        options = {"size": 34}
    for matrix, full_range in COLOURS:
        frame = make_frame(96, 128, matrix=matrix, full_range=full_range)
        direct = written(frame, **options, **colour)
        with monkeypatch.context() as patch:
            without_the_library(patch)
            assert np.array_equal(written(frame, **options, **colour), direct)


@pytest.mark.parametrize("way", ["directly", "through PyAV"])
@pytest.mark.parametrize("crop", [(0, 0, 64, 96), (2, 4, 11, 13), (30, 20, 33, 75), (0, 32, 64, 64), (62, 94, 4, 4)])
def test_a_crop_is_a_part_of_the_whole(
    crop: tuple[int, int, int, int], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way != "directly":
        without_the_library(monkeypatch)
    frame = make_frame(66, 98, matrix=1)
    top, left, height, width = crop
    expected = rgb_of(frame)[top : top + height, left : left + width]
    for order in ("NCHW", "NHWC"):
        slot = written(frame, crop=crop, dimension_order=order)
        found = slot.transpose(1, 2, 0) if order == "NCHW" else slot
        assert np.array_equal(found, expected)


# Mean difference, in levels of 256, to the same done with floats; most of it is rounding to whole levels.
RESIZE_MEAN, RESIZE_99TH = 1.5, 4


@pytest.mark.parametrize("size", [(112, 200), (64, 114), (224, 224), (100, 300), (40, 60)])
def test_resizing_is_antialiased_bilinear(size: tuple[int, int]) -> None:
    frame = make_frame(256, 456, matrix=1, smooth=True)
    whole = torch.from_numpy(rgb_of(frame)).permute(2, 0, 1).float()[None]
    found = torch.from_numpy(written(frame, size=size)).float()

    def difference(expected: torch.Tensor) -> torch.Tensor:
        return (found - expected[0].round()).abs().flatten()

    same = difference(interpolate(whole, size=size, mode="bilinear", antialias=True))
    assert same.mean() < RESIZE_MEAN
    assert same.quantile(0.99) <= RESIZE_99TH
    # What that bound is good for: half a pixel of the result, and skipped pixels of the source, would be seen.
    half = torch.nn.functional.pad(whole, (456 // size[1] // 2 + 1, 0, 0, 0), mode="replicate")[..., :456]
    shifted = difference(interpolate(half, size=size, mode="bilinear", antialias=True))
    assert shifted.mean() > 2 * RESIZE_MEAN
    skipping = difference(interpolate(whole, size=size, mode="bilinear", antialias=False))
    assert skipping.mean() > 2 * RESIZE_MEAN


# The same for grey, which is filtered as it is: nothing but rounding remains.
GREY_MEAN = 0.25


@pytest.mark.parametrize("size", [(112, 200), (64, 114), (40, 60), (300, 456), (256, 300), (512, 912), (336, 598)])
def test_bicubic_resizing_is_that_of_pil_and_torchvision(size: tuple[int, int]) -> None:
    """Its a is -0.5, and it is antialiased where it reduces."""
    frame = make_frame(256, 456, matrix=1, smooth=True)
    whole = torch.from_numpy(written(frame, color="grey")).float()[None]
    found = torch.from_numpy(written(frame, size=size, color="grey", interpolation="bicubic")).float()

    def mean_difference(mode: str, *, antialias: bool) -> float:
        expected = interpolate(whole, size=size, mode=mode, antialias=antialias)[0].clamp(0, 255).round()
        return float((found - expected).abs().mean())

    assert mean_difference("bicubic", antialias=True) < GREY_MEAN
    # Without antialiasing torch's filter is another one where it enlarges, too: OpenCV's, with a = -0.75.
    assert mean_difference("bicubic", antialias=False) > 1.5 * GREY_MEAN
    assert mean_difference("bilinear", antialias=True) > 3 * GREY_MEAN
    colours = torch.from_numpy(written(frame, size=size, interpolation="bicubic")).float()
    expected = interpolate(
        torch.from_numpy(rgb_of(frame)).permute(2, 0, 1).float()[None], size, mode="bicubic", antialias=True
    )
    assert (colours - expected[0].clamp(0, 255)).abs().mean() < RESIZE_MEAN


def test_bicubic_overshoots_at_edges_and_ends_at_black_and_white() -> None:
    frame = make_frame(64, 96, full_range=True)
    edge = np.zeros((64, frame.planes[0].line_size), dtype=np.uint8)
    edge[:, 48:] = 255
    frame.planes[0].update(edge.tobytes())
    for size in ((64, 192), (128, 192), (48, 72)):
        found = written(frame, size=size, color="grey", interpolation="bicubic")[0].astype(int)
        middle = size[1] // 2
        assert (found[:, : middle - 2] == 0).all()
        assert (found[:, middle + 2 :] == 255).all()
        assert (np.diff(found, axis=1) >= 0).all()


@pytest.mark.parametrize("colour", [{}, {"color": "ycbcr"}, {"color": "grey"}, {"color": "yuv420"}], ids=str)
@pytest.mark.parametrize("crop", [None, (2, 4, 34, 50)])
def test_pictures_that_keep_their_size_do_not_depend_on_the_interpolation(colour: dict[str, Any], crop: Any) -> None:
    frame = make_frame(66, 98, matrix=1)
    plain = written(frame, crop=crop, **colour)
    for interpolation in ("bicubic", "nearest"):
        assert np.array_equal(written(frame, crop=crop, **colour, interpolation=interpolation), plain)


@pytest.mark.parametrize("way", ["directly", "through PyAV"])
@pytest.mark.parametrize("options", [{}, {"color": "grey"}, {"color": "ycbcr"}, {"dimension_order": "NHWC"}], ids=str)
def test_nearest_pixels_are_those_of_torch_s_nearest_exact(
    options: dict[str, Any], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way != "directly":
        without_the_library(monkeypatch)
    order = (2, 0, 1) if "dimension_order" in options else (0, 1, 2)
    for height, width in ((64, 96), (65, 97), (2, 2)):
        frame = make_frame(height, width, matrix=1)
        whole = torch.from_numpy(written(frame, **options).transpose(order))
        for size in ((32, 48), (56, 80), (128, 192), (33, 50), (64, 40), (1, 1)):
            found = written(frame, size=size, interpolation="nearest", **options).transpose(order)
            assert torch.equal(torch.from_numpy(found), interpolate(whole[None], size, mode="nearest-exact")[0])


def test_one_writer_takes_nearest_pixels_for_planes_and_for_packed_pixels() -> None:
    """As two outputs of one clip do that have other layouts."""
    frame = make_frame(64, 96, matrix=1)
    options: dict[str, Any] = {"size": (32, 48), "interpolation": "nearest"}
    writer = FrameWriter(FrameFormat(**options).pixels)
    for order in ("NCHW", "NHWC", "NCHW"):
        found = written(frame, writer, dimension_order=order, **options)
        assert np.array_equal(found, written(frame, dimension_order=order, **options))


@pytest.mark.parametrize("crop", [None, (2, 4, 34, 50)])
def test_nearest_planes_are_each_plane_s_own_samples(crop: Any) -> None:
    frame = make_frame(66, 98, matrix=1)
    height, width = crop[2:] if crop else (66, 98)
    whole = written(frame, color="yuv420", crop=crop).reshape(-1)
    found = written(frame, color="yuv420", crop=crop, size=(40, 60), interpolation="nearest").reshape(-1)
    for half, start, to in ((1, 0, 0), (2, height * width, 2400), (2, height * width * 5 // 4, 3000)):
        source, size = (height // half, width // half), (40 // half, 60 // half)
        plane = torch.from_numpy(whole[start : start + source[0] * source[1]].reshape(1, 1, *source))
        expected = interpolate(plane, size, mode="nearest-exact").reshape(-1)
        assert torch.equal(torch.from_numpy(found[to : to + expected.numel()]), expected)


def test_nearest_samples_are_torch_s_for_all_sizes() -> None:
    """But for middles just between two samples, which torch rounds to either."""
    for source in (*range(1, 60), 256, 360, 455, 720, 1080, 1920):
        for target in (*range(1, 60), 224, 256, 336, 500):
            samples = torch.arange(source, dtype=torch.float32)[None, None]
            expected = interpolate(samples, target, mode="nearest-exact")[0, 0]
            between = (2 * np.arange(target) + 1) * source % (2 * target) == 0
            found = nearest_samples(source, target)
            assert (found == expected.numpy())[~between].all(), (source, target)
            assert (found[between] * 2 * target == (2 * np.flatnonzero(between) + 1) * source).all()


def test_where_pyav_has_to_resize_bicubic_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = make_frame(64, 96, matrix=1)
    without_the_library(monkeypatch)
    assert np.array_equal(written(frame, interpolation="bicubic"), written(frame))
    with pytest.raises(
        UsageError, match="libswscale is not found .* only interpolation=\"bilinear\": leave .*'bicubic'"
    ):
        written(frame, size=(32, 48), interpolation="bicubic")


@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_floats(order: Any, dtype: torch.dtype) -> None:
    frame = make_frame(34, 50, matrix=1)
    levels = torch.from_numpy(rgb_of(frame))
    if order == "NCHW":
        levels = levels.permute(2, 0, 1)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    channels = (3, 1, 1) if order == "NCHW" else (3,)
    tolerance = 2e-3 if dtype == torch.float16 else 1e-6
    slot = torch.from_numpy(written(frame, dtype=dtype, dimension_order=order))
    assert slot.dtype == dtype
    assert (slot.float() - levels / 255).abs().max() < tolerance
    slot = torch.from_numpy(written(frame, dtype=dtype, normalize=(mean, std), dimension_order=order))
    expected = (levels / 255 - torch.tensor(mean).reshape(channels)) / torch.tensor(std).reshape(channels)
    assert (slot.float() - expected).abs().max() < 2 * tolerance


@pytest.mark.parametrize("way", ["directly", "through PyAV"])
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("crop", [None, (10, 20, 34, 50)])
def test_planes_come_as_they_are(
    crop: tuple[int, int, int, int] | None, full_range: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way != "directly":
        without_the_library(monkeypatch)
    frame = make_frame(66, 98, full_range=full_range)
    top, left, height, width = crop or (0, 0, 66, 98)
    expected = []
    for number, plane in enumerate(frame.planes):
        half = 2 if number else 1
        lines = np.frombuffer(plane, dtype=np.uint8).reshape(plane.height, plane.line_size)
        part = lines[top // half : (top + height) // half, left // half : (left + width) // half]
        expected.append(part.reshape(-1))
    slot = written(frame, color="yuv420", crop=crop)
    assert slot.shape == (1, height * 3 // 2, width)
    assert np.array_equal(slot.reshape(-1), np.concatenate(expected))


def test_frames_of_another_size_or_kind() -> None:
    with pytest.raises(DecodeError, match="frames of 96x64, the manifest says 98x66"):
        check_frame(make_frame(64, 96), (66, 98))
    with pytest.raises(DecodeError, match=r"a frame of \(64, 96\) for a slot of shape \(3, 66, 98\)"):
        FrameWriter(FrameFormat().pixels).write(
            make_frame(64, 96), np.zeros((3, 66, 98), dtype=np.uint8), Geometry(0, 0, 64, 96, (64, 96))
        )
    deep = av.VideoFrame(98, 66, "yuv420p10le")
    with pytest.raises(DecodeError, match="yuv420p10le, which is not 8-bit 4:2:0"):
        written(deep, crop=(0, 0, 4, 4), size=8)
