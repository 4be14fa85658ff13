"""Decoding into the memory of a device, without one: the order of its streams, and the pool of open decoders."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fake_gpu import (
    CONSUMER,
    ConvertsElsewhere,
    FakeGpu,
    FakeSource,
    MappingSource,
    ReadsTooEarly,
    UnmapsTooEarly,
    WritesTooEarly,
    fake_convert,
)
from shortgop.errors import UsageError
from shortgop.manifests.records import CodecConfig, Pattern
from shortgop.readers.decoders.base import GopRequest, Target
from shortgop.readers.decoders.device import DeviceDecoder
from shortgop.readers.decoders.surface_source import SurfaceSource
from shortgop.readers.frame_format import Geometry, PixelFormat
from shortgop.readers.gpu.decoder_pool import DecoderPool
from shortgop.readers.plan import Place

CPU = torch.device("cpu")
GEOMETRY = Geometry(0, 0, 2, 2, (2, 2))
NUM_GOPS, GOP_FRAMES = 6, 4


def config(number: int = 0, width: int = 64) -> CodecConfig:
    return CodecConfig("h264", bytes([number]), width, 48, 2, 2, 2, False)


def request(gop: int, *, damaged: bool = False) -> GopRequest:
    """All frames of a GOP, for slots of a batch that has the GOPs one after the other."""
    frames = tuple(range(GOP_FRAMES))
    places = tuple((Place(0, gop * GOP_FRAMES + frame, 0),) for frame in frames)
    pattern = Pattern(frames, (True,) * GOP_FRAMES)
    return GopRequest(config(gop % 2), pattern, b"\xff" if damaged else bytes([gop]), frames, places, [GEOMETRY])


def copying(gpu: FakeGpu) -> FakeSource:
    # Two GOPs' worth of memory for pictures, which is used again and again.
    return FakeSource(gpu, num_cells=2 * GOP_FRAMES)


def mapping(gpu: FakeGpu) -> MappingSource:
    # Fewer than the frames of a GOP.
    return MappingSource(gpu, num_surfaces=3)


Source = Callable[[FakeGpu], SurfaceSource]


def decoder_on(gpu: FakeGpu, source: Source = copying) -> DeviceDecoder:
    return DeviceDecoder(CPU, gpu=lambda: gpu, open_source=lambda _: source(gpu), convert=fake_convert(gpu))


def read(decoder: DeviceDecoder, batch: torch.Tensor, requests: list[GopRequest], threads: int) -> None:
    """What the reader does with a request."""
    targets = [Target(PixelFormat(), batch)]
    with decoder.request(), ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(decoder.decode, each, targets) for each in requests]
        for future in futures:
            future.result()


def two_batches_in_the_same_memory(gpu: FakeGpu, source: Source) -> list[torch.Tensor]:
    """What a consumer finds in two batches. It drops the first one at once, so the second one gets its memory."""
    decoder = decoder_on(gpu, source)
    batch = torch.zeros(1, NUM_GOPS * GOP_FRAMES, 3, 2, 2, dtype=torch.uint8)
    found: list[torch.Tensor] = []
    for order in (range(NUM_GOPS), reversed(range(NUM_GOPS))):
        moved = list(order)
        requests = [
            GopRequest(
                config(gop % 2), request(gop).pattern, bytes([gop]), request(gop).frames, request(to).places, [GEOMETRY]
            )
            for gop, to in zip(moved, range(NUM_GOPS), strict=True)
        ]
        read(decoder, batch, requests, threads=2)
        gpu.launch(lambda: found.append(batch[0, :, 0, 0, 0].clone()))
    gpu.finish()
    return found


def expected() -> list[torch.Tensor]:
    ascending = [gop * 16 + frame for gop in range(NUM_GOPS) for frame in range(GOP_FRAMES)]
    descending = [gop * 16 + frame for gop in reversed(range(NUM_GOPS)) for frame in range(GOP_FRAMES)]
    return [torch.tensor(each, dtype=torch.uint8) for each in (ascending, descending)]


def is_right(gpu: FakeGpu, source: Source = copying) -> bool:
    found = two_batches_in_the_same_memory(gpu, source)
    return len(found) == 2 and all(map(torch.equal, found, expected()))


@pytest.mark.first_case_short
@pytest.mark.parametrize("source", [copying, mapping])
@pytest.mark.parametrize("runs_ahead", [0.0, 0.3, 0.8])
def test_a_consumer_finds_the_frames_that_it_asked_for(runs_ahead: float, source: Source) -> None:
    """However the GPU orders what no stream and no event orders."""
    assert all(is_right(FakeGpu(seed, runs_ahead), source) for seed in range(60))


@pytest.mark.parametrize("source", [copying, mapping])
@pytest.mark.parametrize("broken", [WritesTooEarly, ConvertsElsewhere, ReadsTooEarly])
def test_each_broken_rule_is_seen(broken: type[FakeGpu], source: Source) -> None:
    """The GPU of this test is hard enough: without any one rule some order gives wrong frames."""
    assert not all(is_right(broken(seed), source) for seed in range(60))


def test_a_surface_that_is_unmapped_before_it_was_read_is_seen() -> None:
    def careless(gpu: FakeGpu) -> MappingSource:
        return MappingSource(gpu, num_surfaces=3, mapped=UnmapsTooEarly)

    assert not all(is_right(FakeGpu(seed), careless) for seed in range(60))


def test_after_an_error_the_memory_waits_for_what_was_launched() -> None:
    """Rule 4: the other GOPs' conversions may still run when the request fails, and the consumer uses the memory."""
    for seed in range(60):
        gpu = FakeGpu(seed)
        decoder = decoder_on(gpu)
        batch = torch.zeros(1, NUM_GOPS * GOP_FRAMES, 3, 2, 2, dtype=torch.uint8)
        requests = [request(gop, damaged=gop == 3) for gop in range(NUM_GOPS)]
        with pytest.raises(RuntimeError, match="damaged"):
            read(decoder, batch, requests, threads=2)
        gpu.launch(partial(_reuse, batch), CONSUMER)
        gpu.finish()
        assert (batch == 99).all()


def _reuse(batch: torch.Tensor) -> None:
    batch.fill_(99)


def test_the_consumers_own_stream_may_be_the_decoders() -> None:
    """Then there is nothing to wait for."""
    gpu = FakeGpu(0)
    with gpu.launching_on(gpu.decoder_stream()):
        assert is_right(gpu)


def _in_child(decoder: DeviceDecoder, said: Any) -> None:
    try:
        with decoder.request():
            said.put("nothing")
    except UsageError as error:
        said.put(error.message)


def test_a_forked_process_is_told_what_to_do() -> None:
    fork = multiprocessing.get_context("fork")
    said = fork.Queue()
    child = fork.Process(target=_in_child, args=(decoder_on(FakeGpu(0)), said))
    child.start()
    assert "forked" in (message := said.get(timeout=30))
    assert 'multiprocessing_context="forkserver"' in message
    child.join()


def test_threads_that_begin_at_once_share_one_gpu() -> None:
    """Each GPU object may have a stream of its own, and a request waits for one stream."""
    made: list[FakeGpu] = []

    def start() -> FakeGpu:
        time.sleep(0.05)
        made.append(FakeGpu(0))
        return made[-1]

    decoder = DeviceDecoder(CPU, gpu=start, open_source=lambda _: FakeSource(made[0], 8), convert=lambda *_: None)

    def begin(_: int) -> None:
        with decoder.request():
            pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(4)))
    assert len(made) == 1


def pixels_of(decoders: Iterable[tuple[CodecConfig, int]]) -> int:
    return sum(each.width * each.height for each, _ in decoders)


class Pool(RuleBasedStateMachine):
    """A pool against what it promises, with any order of taking and returning decoders."""

    MAX_IDLE, MAX_PIXELS = 3, 64 * 48 * 4

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.pool = DecoderPool(self.open_one, max_idle=self.MAX_IDLE, max_idle_pixels=self.MAX_PIXELS)
        self.in_use: list[tuple[Any, tuple[CodecConfig, int]]] = []
        self.idle: list[tuple[CodecConfig, int]] = []
        self.most_idle, self.most_pixels = self.MAX_IDLE, self.MAX_PIXELS

    def open_one(self, wanted: CodecConfig) -> tuple[CodecConfig, int]:
        self.opened += 1
        return wanted, self.opened

    @rule(number=st.integers(0, 2), width=st.sampled_from([64, 128]))
    def take(self, number: int, width: int) -> None:
        wanted = config(number, width)
        context = self.pool.taken(wanted)
        decoder, warm = context.__enter__()
        assert decoder[0] == wanted, "a decoder of another configuration"
        assert decoder not in [each for _, each in self.in_use], "a decoder for two at a time"
        fitting = [each for each in self.idle if each[0] == wanted]
        assert warm == bool(fitting)
        assert not warm or decoder == fitting[-1]
        if warm:
            self.idle.remove(decoder)
        self.in_use.append((context, decoder))
        self.most_idle = max(self.most_idle, len(self.in_use))
        self.most_pixels = max(self.most_pixels, pixels_of(each for _, each in self.in_use))

    @precondition(lambda self: self.in_use)
    @rule(which=st.integers(0, 100))
    def give_back(self, which: int) -> None:
        context, decoder = self.in_use.pop(which % len(self.in_use))
        context.__exit__(None, None, None)
        self.idle.append(decoder)
        while len(self.idle) > self.most_idle or (len(self.idle) > 1 and pixels_of(self.idle) > self.most_pixels):
            del self.idle[0]

    @precondition(lambda self: self.in_use)
    @rule(which=st.integers(0, 100))
    def fail(self, which: int) -> None:
        """What was in use when an error was raised never comes back."""
        context, _ = self.in_use.pop(which % len(self.in_use))
        error = RuntimeError("damaged")
        assert not context.__exit__(RuntimeError, error, None), "the error is lost"

    @rule()
    def shrink(self) -> None:
        self.pool.shrink()
        self.idle.clear()
        self.most_pixels = pixels_of(each for _, each in self.in_use)

    @invariant()
    def nothing_else_is_open(self) -> None:
        assert [decoder for _, decoder in self.pool._idle.values()] == self.idle


TestPool = Pool.TestCase


def test_a_decoder_that_was_last_used_for_the_same_video_comes_before_others_of_its_kind() -> None:
    """Reconfiguring one for another size is said to take 5 ms, and takes a new parser."""
    numbers = itertools.count()
    pool = DecoderPool(
        lambda _: next(numbers), max_idle=4, max_idle_pixels=20_000_000, kind=lambda config: config.codec
    )
    small, large = config(width=64), config(width=128)
    with pool.taken(small) as (for_small, _), pool.taken(large) as (for_large, _):
        assert for_small != for_large
    for wanted, decoder in ((small, for_small), (large, for_large), (small, for_small), (small, for_small)):
        with pool.taken(wanted) as (found, warm):
            assert (found, warm) == (decoder, True)
    with pool.taken(small) as (found, _), pool.taken(small) as (other, warm):
        assert (found, other, warm) == (for_small, for_large, True)


def test_requests_that_use_many_large_decoders_at_once_find_them_open_again() -> None:
    """28 threads, each with a video in 4K. Opening a decoder takes 50 ms, and closing one waits for the whole GPU."""
    opened: list[CodecConfig] = []

    def open_one(wanted: CodecConfig) -> CodecConfig:
        opened.append(wanted)
        return wanted

    pool = DecoderPool(open_one, max_idle=4, max_idle_pixels=20_000_000)
    for _ in range(3):
        with contextlib.ExitStack() as request:
            for _ in range(28):
                request.enter_context(pool.taken(CodecConfig("hevc", b"", 3840, 2160, 2, 2, 2, False)))
    assert len(opened) == 28
