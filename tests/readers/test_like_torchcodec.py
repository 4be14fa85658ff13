"""A Video against TorchCodec's VideoDecoder on the exported MP4: every field, every form of index and time.

Both decode with the same FFmpeg, so frames are equal bit for bit and times float for float. Where TorchCodec raises an
error that callers may catch (IndexError, ValueError, TypeError), so does a Video. It reads some of what TorchCodec
refuses by accident (empty lists, whole floats in an array), and refuses booleans and fractions, of which TorchCodec
makes indices.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchcodec import samplers
from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]

import shortgop
from dataset_paths import shard_path
from datasets import current_manifest, make_dataset
from shortgop.manifests.mp4 import parse_fragment
from shortgop.manifests.operations.export import export
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

# Rate, frames, what make_video is told. In the order of their ids, each is followed by the next one's GOPs.
VIDEOS: dict[str, tuple[Fraction, int, dict[str, Any]]] = {
    "a.mp4": (Fraction(10), 16, {"colorspace": 1, "color_primaries": 1, "color_trc": 1}),
    "b.mp4": (Fraction(30000, 1001), 75, {}),
    "c.mp4": (Fraction(7, 3), 12, {"size": (64, 96)}),
    "d.mp4": (Fraction(24), 1, {}),
    "e.mp4": (Fraction(60), 40, {"codec": "libx265"}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("like")
    for name, (rate, count, options) in VIDEOS.items():
        make_video(root / name, pts=constant_rate_pts(rate, count), timebase=1 / rate, first_number=300, **options)
    report = make_dataset([root / name for name in VIDEOS], root / "dataset", gop_frames=8, segment_seconds=Fraction(1))
    assert report.failures == ()
    manifest = current_manifest(root / "dataset")
    for name in VIDEOS:
        export(DiskStorage(root / "dataset"), manifest, manifest.row_of(name), root / f"exported-{name}")
    return root


@pytest.fixture(scope="module")
def dataset(folder: Path) -> shortgop.Dataset:
    return shortgop.open(folder / "dataset")


Pair = tuple[shortgop.Video, VideoDecoder]


@pytest.fixture(scope="module", params=VIDEOS)
def pair(request: pytest.FixtureRequest, folder: Path, dataset: shortgop.Dataset) -> Pair:
    return dataset[request.param], VideoDecoder(folder / f"exported-{request.param}")


@pytest.fixture(scope="module")
def video(dataset: shortgop.Dataset) -> shortgop.Video:
    return dataset["a.mp4"]


@pytest.fixture
def peer(folder: Path) -> VideoDecoder:
    """A new one each time: after some errors it gives wrong frames."""
    return VideoDecoder(folder / "exported-a.mp4")


def assert_same(ours: Any, theirs: Any) -> None:
    assert type(ours).__name__ == type(theirs).__name__
    if isinstance(ours, torch.Tensor):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
        return
    assert_same(ours.data, theirs.data)
    for name in ("pts_seconds", "duration_seconds"):
        assert np.array_equal(np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))), name


class TestMetadata:
    """All that TorchCodec says of the exported file, the dataset says of the video."""

    def test_every_field(self, pair: Pair) -> None:
        video, peer = pair
        fields = set(vars(peer.metadata)) - {"bit_rate"}
        if len(video) == 1:
            # libavformat has nothing to guess the rate from, and says 48.
            fields -= {"average_fps_from_header"}
        assert {name: getattr(video.metadata, name) for name in fields} == {
            name: getattr(peer.metadata, name) for name in fields
        }

    def test_the_bit_rate_is_that_of_what_is_read(self, pair: Pair, folder: Path) -> None:
        video, peer = pair
        manifest = current_manifest(folder / "dataset")
        row, gops = manifest.video(manifest.row_of(video.id)), manifest.gops
        data = shard_path(folder / "dataset", manifest.shards.name.text(0)).read_bytes()
        pictures = 0
        for gop in range(row.first_gop, row.first_gop + row.num_gops):
            fragment = data[int(gops.offset[gop]) : int(gops.offset[gop] + gops.length[gop])]
            pictures += int(parse_fragment(fragment).sizes.sum())
        expected = peer.metadata.bit_rate
        assert expected is not None
        # FFmpeg rounds, one way or the other.
        assert abs(float(8 * pictures / row.duration) - expected) <= 1
        assert video.metadata.bit_rate > expected

    def test_public_attributes(self, pair: Pair) -> None:
        video, peer = pair
        missing = {name for name in dir(peer) if not name.startswith("_")} - set(dir(video))
        assert missing == set()
        assert video.stream_index == peer.stream_index == video.metadata.stream_index == 0
        assert len(video) == len(peer)
        assert bool(video.cpu_fallback) is bool(peer.cpu_fallback) is False
        peer.get_frame_at(0)
        assert (str(video.cpu_fallback), video.cpu_fallback.status_known) == (str(peer.cpu_fallback), True)


def test_random_requests_by_number(pair: Pair) -> None:
    video, peer = pair
    rng, count = random.Random(0), len(video)
    for _ in range(12):
        frames = [rng.randrange(-count, count) for _ in range(rng.randint(1, 12))]
        assert_same(video.get_frames_at(frames), peer.get_frames_at(frames))
        assert_same(video.get_frames_at(torch.tensor(frames)), peer.get_frames_at(torch.tensor(frames)))
        number: Any = frames[0]
        assert_same(video[number], peer[number])
        assert_same(video.get_frame_at(frames[0]), peer.get_frame_at(frames[0]))
        start = rng.randrange(count)
        stop, step = start + rng.randint(1, 30), rng.randint(1, 9)
        assert_same(video[start:stop:step], peer[start:stop:step])
        assert_same(video.get_frames_in_range(start, stop, step), peer.get_frames_in_range(start, stop, step))


def test_random_requests_by_time(pair: Pair) -> None:
    video, peer = pair
    rng, end = random.Random(0), video.metadata.end_stream_seconds
    edges = [frame / float(video.metadata.fps) for frame in range(len(video))]
    for _ in range(12):
        times = [rng.choice([rng.uniform(0, end), rng.choice(edges)]) for _ in range(rng.randint(1, 8))]
        times = [min(time, np.nextafter(end, 0)) for time in times]
        assert_same(video.get_frames_played_at(times), peer.get_frames_played_at(times))
        assert_same(video.get_frame_played_at(times[0]), peer.get_frame_played_at(times[0]))
        first, last = min(times), rng.choice([max(times), end])
        fps = rng.choice([None, 1.0, 7.3, 30, 100])
        assert_same(
            video.get_frames_played_in_range(first, last, fps=fps),
            peer.get_frames_played_in_range(first, last, fps=fps),
        )
        assert_same(video.get_all_frames(fps=fps), peer.get_all_frames(fps=fps))


SAME: dict[str, Callable[[Any], Any]] = {
    "each in turn": lambda v: torch.stack(list(v)),
    "all": lambda v: v.get_all_frames(),
    "the last": lambda v: v[-1],
    "every seventh": lambda v: v[::7],
    "an empty slice": lambda v: v[5:5],
    "a slice that ends behind": lambda v: v[10:1000],
    "numbers from before to behind": lambda v: v.get_frames_in_range(-10, 1000, 2),
    "an empty range of times": lambda v: v.get_frames_played_in_range(0.2, 0.2),
    "a range within a frame": lambda v: v.get_frames_played_in_range(0.2, 0.20001),
    "np.int8": lambda v: v[np.int8(3)],
    "np.uint64": lambda v: v.get_frame_at(np.uint64(3)),
    "an array of no dimension": lambda v: v.get_frame_at(np.array(3)),
    "a tensor of no dimension": lambda v: v.get_frame_at(torch.tensor(3)),
    "a tensor of one element": lambda v: v.get_frame_at(torch.tensor([3])),
    "a tuple": lambda v: v.get_frames_at((1, 2)),
    "a range": lambda v: v.get_frames_at(range(3)),
    "tensors in a list": lambda v: v.get_frames_at([torch.tensor(1), 2]),
    "whole floats": lambda v: v.get_frames_at(torch.tensor([1.0, 2.0])),
    "whole floats of 16 bits": lambda v: v.get_frames_at(torch.tensor([1, 2], dtype=torch.float16)),
    "bfloat16": lambda v: v.get_frames_at(torch.tensor([1, 2], dtype=torch.bfloat16)),
    "uint8": lambda v: v.get_frames_at(torch.tensor([1, 2], dtype=torch.uint8)),
    "a slice of numpy's numbers": lambda v: v[np.int64(1) : np.uint8(9) : np.int16(2)],
    "a slice of tensors": lambda v: v[torch.tensor(1) : torch.tensor(5)],
    "a slice that begins before": lambda v: v[-100:3],
    "no time at all": lambda v: v.get_frame_played_at(-0.0),
    "an integer of seconds": lambda v: v.get_frame_played_at(1),
    "a fraction of a second": lambda v: v.get_frame_played_at(Fraction(3, 7)),
    "a decimal": lambda v: v.get_frame_played_at(Decimal("0.33")),
    "times in a float32 tensor": lambda v: v.get_frames_played_at(torch.tensor([0.1, 0.7])),
    "times in an array": lambda v: v.get_frames_played_at(np.array([0.1, 0.7])),
    "times that are tensors": lambda v: v.get_frames_played_at([torch.tensor(0.7), torch.tensor(0.2)]),
    "a range of tensors": lambda v: v.get_frames_played_in_range(torch.tensor(0.3), torch.tensor(1.0)),
    "a range of decimals": lambda v: v.get_frames_played_in_range(Decimal("0.3"), Decimal("1.5")),
    "a range to the exact end": lambda v: v.get_frames_played_in_range(Fraction(1), Fraction(8, 5)),
    "a rate that is a fraction": lambda v: v.get_all_frames(fps=Fraction(7, 2)),
    "a rate that is a float32": lambda v: v.get_all_frames(fps=np.float32(10.3)),
    "a rate so low that no frame is left": lambda v: v.get_all_frames(fps=1e-9),
}


@pytest.mark.parametrize("name", SAME)
def test_whatever_form_it_has(name: str, video: shortgop.Video, peer: VideoDecoder) -> None:
    assert_same(SAME[name](video), SAME[name](peer))


def test_a_rate_may_be_a_text(video: shortgop.Video, peer: VideoDecoder) -> None:
    ours = video.get_frames_played_in_range(0.5, 1.5, fps="24000/1001")
    assert_same(ours, peer.get_frames_played_in_range(0.5, 1.5, fps=24000 / 1001))


ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "behind the last frame": (lambda v: v[16], IndexError),
    "before the first": (lambda v: v.get_frame_at(-17), IndexError),
    "among others": (lambda v: v.get_frames_at([0, 16]), IndexError),
    "behind in a float tensor": (lambda v: v.get_frames_at(torch.tensor([16.0])), IndexError),
    "a text": (lambda v: v["3"], TypeError),
    "a float": (lambda v: v[3.0], TypeError),
    "nothing": (lambda v: v[None], TypeError),
    "a numpy boolean": (lambda v: v[np.bool_(True)], TypeError),
    "a boolean tensor": (lambda v: v[torch.tensor(True)], TypeError),
    "a slice of floats": (lambda v: v[1.0:5], TypeError),
    "a slice of texts": (lambda v: v["1":"5"], TypeError),
    "a range of texts": (lambda v: v.get_frames_in_range("1", 5), TypeError),
    "a step of 0": (lambda v: v[0:5:0], ValueError),
    "the end": (lambda v: v.get_frame_played_at(1.6), IndexError),
    "before the start": (lambda v: v.get_frame_played_at(-1e-9), IndexError),
    "not a number": (lambda v: v.get_frame_played_at(float("nan")), IndexError),
    "infinity": (lambda v: v.get_frame_played_at(float("inf")), IndexError),
    "a text for a time": (lambda v: v.get_frame_played_at("0.3"), TypeError),
    "no time": (lambda v: v.get_frame_played_at(None), TypeError),
    "texts for times": (lambda v: v.get_frames_played_at(["0.3"]), ValueError),
    "a text for times": (lambda v: v.get_frames_played_at("0.3"), ValueError),
    "a range from the end": (lambda v: v.get_frames_played_in_range(1.6, 1.6), ValueError),
    "a range beyond the end": (lambda v: v.get_frames_played_in_range(0, 1.7), ValueError),
    "a range from before": (lambda v: v.get_frames_played_in_range(-1, 1), ValueError),
    "a range backwards": (lambda v: v.get_frames_played_in_range(1, 0.5), ValueError),
    "a range to not a number": (lambda v: v.get_frames_played_in_range(0, float("nan")), ValueError),
    "a range of no times": (lambda v: v.get_frames_played_in_range(0, None), TypeError),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_of_the_kind_that_torchcodec_raises(name: str, video: shortgop.Video, peer: VideoDecoder) -> None:
    call, kind = ERRORS[name]
    for decoder in (peer, video):
        with pytest.raises(kind):
            call(decoder)
    with pytest.raises(shortgop.ShortGopError):
        call(video)


@pytest.mark.parametrize(
    ("indices", "frames"),
    [
        ([np.uint64(1), 2], [1, 2]),
        (np.array([1.0, 2.0]), [1, 2]),
        (np.array([1, 2], dtype=np.uint64), [1, 2]),
        (np.array([1, 2], dtype=np.longdouble), [1, 2]),
        ({1: None, 2: None}.keys(), [1, 2]),
        ([], []),
        (torch.tensor([]), []),
    ],
    ids=repr,
)
def test_what_only_a_video_reads(video: shortgop.Video, indices: Any, frames: list[int]) -> None:
    batch = video.get_frames_at(indices)
    assert [read_number(picture) - 300 for picture in batch.data] == frames


class TestTheEnd:
    """16 frames at 10 frames/s end at 8/5 s; the float nearest to that is later."""

    @pytest.mark.parametrize("end", [Fraction(16, 10), Decimal("1.6"), np.longdouble(8) / 5, 1.6], ids=repr)
    def test_the_next_video_is_not_read(self, dataset: shortgop.Dataset, end: Any) -> None:
        video = dataset["a.mp4"]
        for call in (video.get_frame_played_at, lambda time: video.get_frames_played_at([0.0, time])):
            with pytest.raises(shortgop.FrameIndexError, match="just before 1.6 s"):
                call(end)

    def test_just_before_it_the_last_frame_is_shown(self, video: shortgop.Video) -> None:
        for time in (Fraction(16, 10) - Fraction(1, 10**30), Decimal("1.5999999999999999999"), np.nextafter(1.6, 0)):
            assert read_number(video.get_frame_played_at(time).data) == 315

    def test_a_range_to_the_end_has_the_last_frame_and_no_other(self, dataset: shortgop.Dataset) -> None:
        for name, (rate, count, _) in VIDEOS.items():
            video = dataset[name]
            for end in (count / rate, video.metadata.end_stream_seconds):
                assert len(video.get_frames_played_in_range(0, end)) == count


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble, torch.tensor])
def test_a_time_means_the_same_alone_and_in_a_list(dataset: shortgop.Dataset, kind: Any) -> None:
    """A float32 of 0.1 is not the 0.1 that a comparison at its own precision takes it for."""
    video = dataset["b.mp4"]
    for number in range(60):
        time = kind(number * 1001 / 30000)
        alone = video.get_frame_played_at(time)
        assert alone.pts_seconds == video.get_frames_played_at([time]).pts_seconds.item()
        assert alone.pts_seconds == video.get_frame_played_at(float(time)).pts_seconds


@pytest.mark.parametrize("color", ["rgb", "yuv420"])
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_every_sampler_of_torchcodec_takes_a_video(folder: Path, color: Any, order: Any) -> None:
    video = shortgop.open(folder / "dataset", color=color, dimension_order=order)["b.mp4"]
    peer = VideoDecoder(folder / "exported-b.mp4", dimension_order=order)
    options: dict[str, dict[str, Any]] = {
        "clips_at_random_indices": {"num_clips": 3, "num_frames_per_clip": 4, "num_indices_between_frames": 5},
        "clips_at_regular_indices": {"num_clips": 3, "num_frames_per_clip": 4, "num_indices_between_frames": 2},
        "clips_at_random_timestamps": {"num_clips": 3, "num_frames_per_clip": 4, "seconds_between_frames": 0.11},
        "clips_at_regular_timestamps": {"seconds_between_clip_starts": 0.7, "num_frames_per_clip": 4},
    }
    assert set(options) == {name for name in dir(samplers) if name.startswith("clips_")}
    for name, arguments in options.items():
        clips = []
        for decoder in (video, peer):
            torch.manual_seed(7)
            clips.append(getattr(samplers, name)(decoder, **arguments))
        ours, theirs = clips
        assert torch.equal(ours.pts_seconds, theirs.pts_seconds)
        assert ours.data.ndim == 5
        if color == "rgb":
            assert torch.equal(ours.data, theirs.data)
        else:
            assert ours.data.shape == (*theirs.data.shape[:2], 1, 96, 96)
            assert read_number(ours.data[0, 0, 0, :64]) == read_number(theirs.data[0, 0])
