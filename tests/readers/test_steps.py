"""Frame after frame, each by a request of its own: the decoder goes on where it was, and every frame is right."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shortgop
from bare_gops import GOP_FRAMES, HEIGHT, WIDTH, asking, gops
from datasets import make_dataset
from shortgop.errors import DecodeError
from shortgop.manifests.mp4 import sample_bounds
from shortgop.manifests.records import Pattern
from shortgop.readers.decoders import pyav
from shortgop.readers.decoders.base import GopRequest, Target
from shortgop.readers.decoders.pyav import PyavDecoder
from shortgop.readers.decoders.visits import MAX_VISITS, Position, is_step
from shortgop.readers.frame_format import FrameFormat
from synthetic import constant_rate_pts, make_video, read_number
from test_reader_processes import outcome_in_a_fork

FRAMES = 40
# As prep makes them: I, then P and the three B before it, and a P at the end.
PATTERN = Pattern((0, 4, 1, 2, 3, 8, 5, 6, 7, 12, 9, 10, 11, 15, 13, 14), (True, True, *(False,) * 3) * 3 + (True,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos of 40 frames, which show 0, 1, 2, ..., in GOPs of 16 with three B-frames between two others."""
    root = tmp_path_factory.mktemp("steps")
    for name in ("a", "b", "c"):
        make_video(root / f"{name}.mp4", pts=constant_rate_pts(Fraction(30), FRAMES), timebase=Fraction(1, 30))
    assert make_dataset(sorted(root.glob("*.mp4")), root / "dataset", gop_frames=16).failures == ()
    return root / "dataset"


def packets_of_each(dataset: shortgop.Dataset, requests: Sequence[Sequence[int]], video: str = "a.mp4") -> list[int]:
    """Read these frames of a video, request by request: how many packets each took. The frames are right."""
    counts = []
    for frames in requests:
        before = dataset.stats().packets_decoded
        clip = dataset.get_clips([(video, frames)]).data[0]
        counts.append(dataset.stats().packets_decoded - before)
        assert [read_number(picture) for picture in clip] == list(frames)
    return counts


class TestPackets:
    """How many packets each request takes. From its start, a GOP takes 1 for frame 0, and 5 for frame 11."""

    def test_a_step_takes_one_packet(self, folder: Path) -> None:
        counts = packets_of_each(shortgop.open(folder), [[frame] for frame in range(32)])
        # Frame 1 is the first that follows another one. The last frame was decoded for those before it.
        assert counts == [1, 3, *(1,) * 13, 0] * 2

    def test_the_same_by_the_video(self, folder: Path) -> None:
        dataset = shortgop.open(folder)
        video = dataset["a.mp4"]
        assert [read_number(video[frame]) for frame in range(16)] == list(range(16))
        assert dataset.stats().packets_decoded == 17

    @pytest.mark.parametrize(
        ("requests", "expected"),
        [
            pytest.param([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]], [3, 4, 2, 2, 2], id="two at a time"),
            pytest.param([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], [5, 6, 4], id="four at a time"),
            pytest.param([[0], [2], [4], [6], [8]], [1, 3, 1, 1, 1], id="every second"),
            # Frame 12 is in the decoder already, and the step from it leads out of the GOP.
            pytest.param([[0], [4], [8], [12]], [1, 3, 1, 0], id="every fourth"),
            pytest.param([[5], [6], [8], [9]], [4, 4, 1, 1], id="from the middle, with a gap"),
        ],
    )
    def test_chunks_and_strides(self, folder: Path, requests: list[list[int]], expected: list[int]) -> None:
        assert packets_of_each(shortgop.open(folder), requests) == expected

    @pytest.mark.parametrize(
        "requests",
        [
            pytest.param([[0], [8]], id="a step out of the GOP"),
            pytest.param([[9], [9], [8], [7]], id="the same frame, and backwards"),
            pytest.param([[1], [11]], id="a large step"),
            pytest.param([[4], [20], [36], [25], [12]], id="other GOPs"),
        ],
    )
    def test_other_requests_take_what_they_took(self, folder: Path, requests: list[list[int]]) -> None:
        alone = [packets_of_each(shortgop.open(folder), [frames])[0] for frames in requests]
        assert packets_of_each(shortgop.open(folder), requests) == alone

    def test_back_and_on_again(self, folder: Path) -> None:
        # Frame 2 has come out, so the GOP begins anew.
        assert packets_of_each(shortgop.open(folder), [[1], [2], [3], [2], [3]]) == [3, 3, 1, 3, 3]

    def test_videos_side_by_side(self, folder: Path) -> None:
        dataset = shortgop.open(folder)
        counts = {
            (name, frame): packets_of_each(dataset, [[frame]], name)[0]
            for frame in range(16)
            for name in ("a.mp4", "b.mp4", "c.mp4")
        }
        for name in ("a.mp4", "b.mp4", "c.mp4"):
            assert [counts[name, frame] for frame in range(16)] == [1, 3, *(1,) * 13, 0]

    def test_videos_in_one_batch(self, folder: Path) -> None:
        dataset = shortgop.open(folder)
        for frame in range(16):
            clips = dataset.get_clips([(name, [frame]) for name in ("a.mp4", "b.mp4", "c.mp4")])
            assert {read_number(clip.data[0]) for clip in clips} == {frame}
        assert dataset.stats().packets_decoded == 3 * 17


def test_what_is_a_step() -> None:
    assert is_step(PATTERN, 3, [4])
    assert is_step(PATTERN, 3, [7, 9])
    # Backwards, the same frame again, a large step, and one after which the next frame is in another GOP.
    assert not any(is_step(PATTERN, 3, frames) for frames in ([2], [3], [8], [7, 12]))
    assert is_step(PATTERN, 13, [14])
    assert not is_step(PATTERN, 14, [15])


def test_where_a_context_can_go_on() -> None:
    # I, P and the first B were sent, and I and B have come out.
    position = Position(next_sample=3, inside={4})
    assert position.leads_to(PATTERN, [2, 4, 15])
    assert not any(position.leads_to(PATTERN, [frame, 15]) for frame in (0, 1))


KINDS = {
    "h264": ("h264", 3, ()),
    "h264 without B-frames": ("h264", 0, ()),
    "h264 whose B-frames others refer to": ("h264", 3, ("-x264-params", "b-pyramid=normal")),
    "hevc": ("hevc", 3, ()),
    "av1": ("av1", 0, ()),
    "av1 with hidden frames": ("av1", 3, ()),
}


def decoded(decoder: PyavDecoder, request: GopRequest) -> torch.Tensor:
    """The wanted frames of a GOP: (frames, 3, height, width)."""
    out = torch.full((1, len(request.frames), 3, HEIGHT, WIDTH), 77, dtype=torch.uint8)
    decoder.decode(request, [Target(FrameFormat().pixels, out)])
    return out[0]


@lru_cache
def whole(kind: str) -> tuple[tuple[GopRequest, torch.Tensor], ...]:
    """Three GOPs, and all their frames."""
    codec, b_frames, more = KINDS[kind]
    return tuple((gop, decoded(PyavDecoder(), gop)) for gop in gops(codec, b_frames=b_frames, more=more))


walks = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from([-3, -2, -1, 0, 1, 1, 1, 2, 3]), st.lists(st.integers(0, 3), max_size=3)
    ),
    max_size=30,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(walk=walks)
def test_any_requests_give_the_frames_that_a_new_decoder_gives(
    kind: str, walk: list[tuple[int, int, list[int]]]
) -> None:
    decoder, at = PyavDecoder(), [0, 0, 0]
    for number, step, more in walk:
        at[number] = (at[number] + step) % GOP_FRAMES
        frames = sorted({at[number], *(min(at[number] + each, GOP_FRAMES - 1) for each in more)})
        at[number] = frames[-1]
        gop, expected = whole(kind)[number]
        request = dataclasses.replace(asking(gop, frames), gop=number)
        assert torch.equal(decoded(decoder, request), expected[frames])


@pytest.mark.parametrize("kind", KINDS)
def test_every_codec_goes_on(kind: str) -> None:
    decoder = PyavDecoder()
    gop, expected = whole(kind)[0]
    packets = 0
    for frame in range(GOP_FRAMES):
        # The bytes of a request may be overwritten once it has its frames.
        data = bytearray(gop.data)
        out = torch.empty((1, 1, 3, HEIGHT, WIDTH), dtype=torch.uint8)
        request = dataclasses.replace(asking(gop, [frame]), gop=7, data=memoryview(data))
        packets += decoder.decode(request, [Target(FrameFormat().pixels, out)]).packets
        assert torch.equal(out[0, 0], expected[frame])
        data[:] = bytes(len(data))
    # The first frame is decoded once more for the second one. Where B-frames are referred to, libavcodec holds two
    # frames back until the GOP ends, so that the last one is decoded from the start.
    assert packets <= GOP_FRAMES + (6 if "others" in kind else 2)


def test_a_picture_that_was_left_out_of_its_packet() -> None:
    """Of AV1's packet for frame 1, only the hidden frames are sent for others. It cannot come out afterwards."""
    decoder = PyavDecoder()
    gop, expected = whole("av1 with hidden frames")[0]
    for frame in (2, 3, 1):
        assert torch.equal(decoded(decoder, dataclasses.replace(asking(gop, [frame]), gop=0))[0], expected[frame])


def test_gops_without_a_number_are_decoded_from_their_start() -> None:
    decoder = PyavDecoder()
    for gop, expected in whole("h264"):
        for frame in range(GOP_FRAMES):
            assert torch.equal(decoded(decoder, asking(gop, [frame]))[0], expected[frame])


def steps(decoder: PyavDecoder, gops_read: int) -> Iterator[torch.Tensor]:
    """Three frames in a row of many GOPs that are read side by side."""
    gop, _ = whole("h264")[0]
    for frame in range(3):
        for number in range(gops_read):
            yield decoded(decoder, dataclasses.replace(asking(gop, [frame]), gop=number))[0]


def open_contexts(decoder: PyavDecoder) -> tuple[int, int]:
    """How many contexts are in a GOP, and how many in none."""
    kept = decoder._local
    return sum(visit.context is not None for visit in kept.visits.values()), len(kept.contexts)


def test_contexts_that_stay_are_few() -> None:
    decoder = PyavDecoder()
    frames = list(steps(decoder, MAX_VISITS))
    assert open_contexts(decoder) == (MAX_VISITS, 0)
    assert all(torch.equal(each, whole("h264")[0][1][number // MAX_VISITS]) for number, each in enumerate(frames))
    # More than that are decoded from their starts, by one context.
    more = PyavDecoder()
    list(steps(more, MAX_VISITS + 1))
    assert open_contexts(more) == (0, 1)
    # GOPs that are read no more lose theirs to others.
    gop, _ = whole("h264")[1]
    for number in range(100, 100 + MAX_VISITS):
        decoded(decoder, dataclasses.replace(asking(gop, [5]), gop=number))
    assert open_contexts(decoder) == (0, 1)


def test_contexts_of_large_pictures_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyav, "_KEPT_CONTEXTS", 2)
    monkeypatch.setattr(pyav, "_MAX_PIXELS", 3 * WIDTH * HEIGHT)
    decoder = PyavDecoder()
    for number, frame in enumerate(steps(decoder, 6)):
        assert torch.equal(frame, whole("h264")[0][1][number // 6])
        assert sum(open_contexts(decoder)) <= 3


def test_after_an_error_the_gop_is_decoded_from_its_start() -> None:
    decoder = PyavDecoder()
    gop, expected = whole("h264")[0]
    one, two, three = (dataclasses.replace(asking(gop, [frame]), gop=0) for frame in (1, 2, 3))
    decoded(decoder, one)
    decoded(decoder, two)
    assert open_contexts(decoder) == (1, 0)
    with pytest.raises(DecodeError):
        decoder.decode(three, [Target(FrameFormat().pixels, torch.zeros((1, 1, 3, 2, 2), dtype=torch.uint8))])
    assert open_contexts(decoder) == (0, 0)
    assert torch.equal(decoded(decoder, three)[0], expected[3])


def test_threads_step_through_the_same_video(folder: Path) -> None:
    dataset = shortgop.open(folder, threads=2)

    def numbers(seed: int) -> list[int]:
        rng = random.Random(seed)
        frames = [frame for frame in range(FRAMES) if rng.random() < 0.8]
        return [frame - read_number(dataset["a.mp4"][frame]) for frame in frames]

    with ThreadPoolExecutor(4) as threads:
        assert not any(any(found) for found in threads.map(numbers, range(8)))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_and_its_parent_both_go_on(folder: Path) -> None:
    dataset = shortgop.open(folder)
    assert packets_of_each(dataset, [[0], [1], [2]]) == [1, 3, 1]
    assert outcome_in_a_fork(lambda: packets_of_each(dataset, [[3], [4], [5]]) == [1, 1, 1])
    assert packets_of_each(dataset, [[3], [4], [5]]) == [1, 1, 1]


@pytest.mark.parametrize("kind", ["h264", "hevc"])
def test_damage_in_a_packet_that_a_frame_does_not_need_is_no_error(kind: str) -> None:
    """A decoder that is to stay takes the packets behind, too: of these frames only 7 needs the damaged one."""
    gop, expected = whole(kind)[0]
    assert gop.pattern.frames == (0, 4, 1, 2, 3, 7, 5, 6)
    first, stop = sample_bounds(gop.data)[5:7]
    data = bytearray(gop.data)
    data[first + 6 : stop] = bytes(value ^ 0x5A for value in data[first + 6 : stop])
    damaged, decoder = dataclasses.replace(gop, data=bytes(data)), PyavDecoder()
    for frame in range(5):
        assert torch.equal(decoded(decoder, dataclasses.replace(asking(damaged, [frame]), gop=0))[0], expected[frame])
    with pytest.raises(DecodeError):
        decoded(decoder, dataclasses.replace(asking(damaged, [7]), gop=0))
