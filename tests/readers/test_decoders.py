"""Decoders: what each of them has to do, and that all of them give the same pixels.

TorchCodec has to load, on the FFmpeg that PyAV brings: `make test` sees to that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import av
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]

from encodes import AV1_PYRAMID
from fake_gpu import device_decoder_on_cpu
from kept_priority import kept_priority
from shortgop.errors import CorruptDataError, DecodeError
from shortgop.manifests.mp4 import boxes, parse_fragment, parse_init
from shortgop.manifests.records import CodecConfig, Pattern
from shortgop.manifests.unit_kinds import access_unit_kinds
from shortgop.readers.decoders import pyav
from shortgop.readers.decoders.base import Decoder, Target
from shortgop.readers.decoders.pyav import PyavDecoder
from shortgop.readers.frame_format import FrameFormat, Geometry
from shortgop.readers.plan import Place, needed_samples
from torchcodec_yardstick import TorchcodecDecoder, WholeRequest

BT601, BT709, UNSPECIFIED, BT2020 = 5, 1, 2, 9
BT2020_TRANSFER = 14
LIMITED, FULL = 1, 2


@dataclass(frozen=True)
class Encoding:
    """What to encode a GOP with; colours by their numbers in FFmpeg."""

    codec: str = "h264"
    width: int = 96
    height: int = 64
    num_frames: int = 16
    b_frames: int = 3
    hierarchical: bool = False
    matrix: int = UNSPECIFIED
    color_range: int = LIMITED


@dataclass(frozen=True)
class Gop:
    """A GOP, and what every decoder has to make of it: uint8, (frames, height, width, 3)."""

    config: CodecConfig
    pattern: Pattern
    init: bytes
    data: bytes
    expected: torch.Tensor

    def request(self, frames: list[int], slots: list[int] | None = None) -> WholeRequest:
        """Ask for these frames, in this order, or in these slots."""
        places = dict(zip(frames, range(len(frames)) if slots is None else slots, strict=True))
        wanted = tuple(sorted(places))
        size = (self.config.height, self.config.width)
        return WholeRequest(
            self.config,
            self.pattern,
            self.data,
            wanted,
            tuple((Place(0, places[frame], 0),) for frame in wanted),
            [Geometry(0, 0, *size, size)],
            self.init,
        )

    def blank(self, rows: int) -> torch.Tensor:
        """An output of one grey, which is no frame."""
        return torch.full((rows, self.config.height, self.config.width, 3), 77, dtype=torch.uint8)


def into(out: torch.Tensor) -> list[Target]:
    """Frames, (frames, height, width, 3), as what a decoder writes into."""
    return [Target(FrameFormat().pixels, out.permute(0, 3, 1, 2)[None])]


@lru_cache
def make_gop(encoding: Encoding = Encoding()) -> Gop:
    """Encode one GOP of noise that moves, so that neighbouring frames have much in common and no two are the same."""
    data = encode(encoding)
    cut = next(box.start for box in boxes(data) if box.type == b"moof")
    init_bytes, gop = data[:cut], data[cut:]
    init = parse_init(init_bytes)
    fragment = parse_fragment(gop)
    shown = np.argsort(np.argsort(fragment.pts_ticks)).tolist()
    kind_of = access_unit_kinds(init.codec, init.extradata)
    referenced = [
        kind_of(gop, offset, offset + size)[1]
        for offset, size in zip(fragment.offsets.tolist(), fragment.sizes.tolist(), strict=True)
    ]
    config = CodecConfig(
        init.codec, init.extradata, init.width, init.height, init.primaries, init.transfer, init.matrix, init.full_range
    )
    # Everything decoded, by a library of its own.
    expected = VideoDecoder(data, dimension_order="NHWC").get_all_frames().data
    assert len(expected) == encoding.num_frames
    return Gop(config, Pattern(tuple(shown), tuple(referenced)), init_bytes, gop, expected)


def encode(encoding: Encoding) -> bytes:
    """An MP4 with one fragment."""
    library = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1"}[encoding.codec]
    pyramid = ("normal" if encoding.hierarchical else "none") if encoding.codec == "h264" else "0"
    parameters = f"open-gop=0:b-adapt=0:scenecut=0:b-pyramid={pyramid}:bframes={encoding.b_frames}"
    if encoding.codec == "hevc":
        parameters += ":log-level=error:pools=none:frame-threads=1"
    options = {"preset": "ultrafast", "crf": "20", f"{library[3:]}-params": parameters}
    if encoding.codec == "av1":
        options = {"preset": "10", "crf": "30", "svtav1-params": AV1_PYRAMID}
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (encoding.height, encoding.width, 3), dtype=np.uint8)
    file = io.BytesIO()
    movflags = {"movflags": "frag_keyframe+delay_moov+default_base_moof+skip_trailer+write_colr"}
    with kept_priority(), av.open(file, "w", format="mp4", options=movflags) as container:
        stream: Any = container.add_stream(library, rate=30, options=options)
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = encoding.width, encoding.height, "yuv420p"
        context.gop_size, context.max_b_frames, context.thread_count = 250, encoding.b_frames, 1
        context.colorspace = context.color_primaries = encoding.matrix
        context.color_trc = BT2020_TRANSFER if encoding.matrix == BT2020 else encoding.matrix
        context.color_range = encoding.color_range
        if encoding.color_range == FULL:
            context.pix_fmt = "yuvj420p" if encoding.codec == "h264" else "yuv420p"
        for number in range(encoding.num_frames):
            picture = av.VideoFrame.from_ndarray(np.roll(noise, 2 * number, axis=1), "rgb24")
            frame = picture.reformat(format=context.pix_fmt)
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


@pytest.fixture(
    scope="module",
    params=[PyavDecoder(), TorchcodecDecoder(), device_decoder_on_cpu()],
    ids=lambda decoder: decoder.name,
)
def decoder(request: pytest.FixtureRequest, one_torch_thread: None) -> Any:
    return request.param


ENCODINGS = {
    "h264": Encoding(),
    "h264, no B-frames": Encoding(b_frames=0),
    "h264, hierarchical B-frames": Encoding(b_frames=7, hierarchical=True),
    "hevc": Encoding(codec="hevc"),
    "av1": Encoding(codec="av1"),
    "av1, width 98, full range": Encoding(codec="av1", width=98, matrix=BT709, color_range=FULL),
    "a single frame": Encoding(num_frames=1),
    "width 98": Encoding(width=98, height=66),
    "width 2": Encoding(width=2, height=2),
    "a width that swscale likes": Encoding(width=128, height=96, matrix=BT709),
    "BT.709": Encoding(width=98, matrix=BT709),
    "BT.601, full range": Encoding(width=98, matrix=BT601, color_range=FULL),
    "BT.709, full range": Encoding(matrix=BT709, color_range=FULL),
    "hevc, full range": Encoding(codec="hevc", width=98, matrix=BT709, color_range=FULL),
    "BT.2020": Encoding(width=130, height=130, matrix=BT2020),
}


class TestConformance:
    """What holds for every decoder."""

    @pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
    def test_all_frames(self, decoder: Decoder, encoding: Encoding) -> None:
        gop = make_gop(encoding)
        out = gop.blank(encoding.num_frames)
        packets = decoder.decode(gop.request(list(range(encoding.num_frames))), into(out)).packets
        assert torch.equal(out, gop.expected)
        assert packets == encoding.num_frames

    @pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
    def test_each_frame_alone(self, decoder: Decoder, encoding: Encoding) -> None:
        gop = make_gop(encoding)
        for frame in range(encoding.num_frames):
            out = gop.blank(1)
            decoder.decode(gop.request([frame]), into(out))
            assert torch.equal(out[0], gop.expected[frame])

    @settings(max_examples=40, deadline=None)
    @given(
        encoding=st.sampled_from(
            [Encoding(), Encoding(codec="hevc"), Encoding(codec="av1"), Encoding(b_frames=7, hierarchical=True)]
        ),
        frames=st.lists(st.integers(0, 15), min_size=1, unique=True),
    )
    def test_any_frames_in_any_order(self, decoder: Decoder, encoding: Encoding, frames: list[int]) -> None:
        gop = make_gop(encoding)
        out = gop.blank(len(frames))
        decoder.decode(gop.request(frames), into(out))
        assert torch.equal(out, gop.expected[frames])

    def test_only_the_slots_asked_for_are_written(self, decoder: Decoder) -> None:
        gop = make_gop()
        out = gop.blank(9)
        decoder.decode(gop.request([3, 10], slots=[7, 2]), into(out))
        assert torch.equal(out[[7, 2]], gop.expected[[3, 10]])
        assert (out[[0, 1, 3, 4, 5, 6, 8]] == 77).all()

    def test_gops_of_all_kinds_in_turns(self, decoder: Decoder) -> None:
        rng = random.Random(0)
        for _ in range(60):
            gop = make_gop(rng.choice(list(ENCODINGS.values())))
            frame = rng.randrange(len(gop.pattern))
            out = gop.blank(1)
            decoder.decode(gop.request([frame]), into(out))
            assert torch.equal(out[0], gop.expected[frame])

    def test_many_threads(self, decoder: Decoder) -> None:
        gops = [make_gop(encoding) for encoding in ENCODINGS.values()]

        def decode(seed: int) -> bool:
            rng = random.Random(seed)
            gop = rng.choice(gops)
            frames = rng.sample(range(len(gop.pattern)), rng.randint(1, len(gop.pattern)))
            out = gop.blank(len(frames))
            decoder.decode(gop.request(frames), into(out))
            return torch.equal(out, gop.expected[frames])

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(decode, range(100)))

    @pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
    def test_after_damaged_data_the_next_gop_is_whole(self, decoder: Decoder, codec: str) -> None:
        gop = make_gop(Encoding(codec=codec))
        for seed in range(10):
            request = dataclasses.replace(gop.request([0, 5]), data=with_noise(gop.data, seed))
            # Not all damage can be seen: that is what the CRC of each GOP is for.
            with contextlib.suppress(DecodeError):
                decoder.decode(request, into(gop.blank(2)))
            out = gop.blank(2)
            decoder.decode(gop.request([0, 5]), into(out))
            assert torch.equal(out, gop.expected[[0, 5]])

    def test_a_stream_of_nothing_is_an_error(self, decoder: Decoder) -> None:
        gop = make_gop()
        fragment = parse_fragment(gop.data)
        empty = gop.data[: int(fragment.offsets[0])] + bytes(int(fragment.sizes.sum()))
        with pytest.raises(DecodeError):
            decoder.decode(dataclasses.replace(gop.request([0]), data=empty), into(gop.blank(1)))

    def test_another_number_of_frames_than_the_manifest_says(self, decoder: Decoder) -> None:
        gop = make_gop()
        pattern = Pattern((*gop.pattern.frames, 16), (*gop.pattern.referenced, True))
        request = dataclasses.replace(gop.request([0]), pattern=pattern)
        with pytest.raises((CorruptDataError, DecodeError), match="16 frames, the manifest says 17"):
            decoder.decode(request, into(gop.blank(1)))

    def test_another_size_than_the_manifest_says(self, decoder: Decoder) -> None:
        gop = make_gop()
        with pytest.raises(DecodeError, match="64"):
            decoder.decode(gop.request([0]), into(torch.zeros((1, 66, 96, 3), dtype=torch.uint8)))


@pytest.mark.parametrize("encoding", [Encoding(), Encoding(codec="hevc")], ids=["h264", "hevc"])
def test_unreferenced_frames_are_left_out(encoding: Encoding) -> None:
    gop = make_gop(encoding)
    assert sum(gop.pattern.referenced) == 5
    frames = [frame for frame, used in zip(gop.pattern.frames, gop.pattern.referenced, strict=True) if used]
    out = gop.blank(len(frames))
    assert PyavDecoder().decode(gop.request(frames), into(out)).packets == 5
    assert torch.equal(out, gop.expected[frames])


def test_a_stream_that_does_not_say_how_far_frames_are_out_of_order() -> None:
    """Some hardware encoders leave it out; libavcodec then loses frames until it knows."""
    gop = make_gop(Encoding(b_frames=7, hierarchical=True))
    config = dataclasses.replace(gop.config, extradata=without_bitstream_restriction(gop.config.extradata))
    context: Any = av.CodecContext.create("h264", "r")
    context.extradata = config.extradata
    fragment = parse_fragment(gop.data)
    frames = []
    for offset, size in zip(fragment.offsets.tolist(), fragment.sizes.tolist(), strict=True):
        frames += context.decode(av.Packet(gop.data[offset : offset + size]))
    assert len(frames + context.decode(None)) < 16

    out = gop.blank(16)
    PyavDecoder().decode(dataclasses.replace(gop.request(list(range(16))), config=config), into(out))
    assert torch.equal(out, gop.expected)


def without_bitstream_restriction(avcc: bytes) -> bytes:
    """An avcC with the last part of the sequence parameter set's VUI taken out (ITU-T H.264, E.1.1)."""
    size = int.from_bytes(avcc[6:8], "big")
    sps = avcc[8 : 8 + size].replace(b"\0\0\3", b"\0\0")
    bits = "".join(f"{byte:08b}" for byte in sps).rstrip("0")[:-1]
    for flag in range(len(bits) - 8, 0, -1):
        # The flag, one more, and six Exp-Golomb codes up to the end.
        at, values = flag + 2, []
        for _ in range(6):
            zeros = len(bits[at:]) - len(bits[at:].lstrip("0"))
            values.append(int(bits[at + zeros : at + 2 * zeros + 1] or "0", 2) - 1)
            at += 2 * zeros + 1
        if bits[flag] == "1" and at == len(bits) and values[4] > 0 and values[4] <= values[5]:
            break
    bits = bits[:flag] + "01"
    bits += "0" * (-len(bits) % 8)
    shorter = bytearray()
    for start in range(0, len(bits), 8):
        byte = int(bits[start : start + 8], 2)
        if shorter[-2:] == b"\0\0" and byte <= 3:
            shorter.append(3)
        shorter.append(byte)
    return avcc[:6] + len(shorter).to_bytes(2, "big") + bytes(shorter) + avcc[8 + size :]


@pytest.mark.parametrize(
    "limits", [{"_MAX_CONTEXTS": 2}, {"_MAX_PIXELS": 100 * 70}], ids=["by number", "by the size of their pictures"]
)
def test_contexts_are_bounded(limits: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = PyavDecoder()
    opened: list[CodecConfig] = []
    original = pyav.open_context

    def counted(config: CodecConfig) -> Any:
        opened.append(config)
        return original(config)

    monkeypatch.setattr(pyav, "open_context", counted)
    for name, limit in {"_KEPT_CONTEXTS": 1, **limits}.items():
        monkeypatch.setattr(pyav, name, limit)
    gops = [
        make_gop(encoding)
        for encoding in (Encoding(width=66, height=34), Encoding(width=98, height=66), Encoding(width=2, height=2))
    ]

    def decode(*numbers: int) -> int:
        before = len(opened)
        for number in numbers:
            decoder.decode(gops[number].request([1]), into(gops[number].blank(1)))
        return len(opened) - before

    if "_MAX_CONTEXTS" in limits:
        assert decode(0, 0, 1, 1, 0) == 2
        assert decode(2, 0, 2, 0) == 1
        assert decode(1) == 1
        assert len(decoder._local.contexts) == 2
    else:
        # The first two are too large together, either of them with the third is not.
        assert decode(0, 1, 0, 1) == 4
        assert decode(2, 1, 2, 1) == 1
        assert len(decoder._local.contexts) == 2


def test_a_context_is_dropped_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = PyavDecoder()
    gop = make_gop()
    decoder.decode(gop.request([0]), into(gop.blank(1)))
    assert len(decoder._local.contexts) == 1
    with pytest.raises(DecodeError):
        decoder.decode(gop.request([0]), into(torch.zeros((1, 2, 2, 3), dtype=torch.uint8)))
    assert len(decoder._local.contexts) == 0


def test_frames_that_do_not_come_out_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a slot of the output that was not written."""
    monkeypatch.setattr(pyav, "needed_samples", lambda pattern, frames: needed_samples(pattern, [0]))
    gop = make_gop()
    with pytest.raises(DecodeError, match="no frame 5"):
        PyavDecoder().decode(gop.request([0, 5, 7]), into(gop.blank(3)))


def test_what_libavcodec_would_patch_up_is_an_error() -> None:
    gop = make_gop()
    for seed in range(10):
        request = dataclasses.replace(gop.request([0]), data=with_noise(gop.data, seed))
        with pytest.raises(DecodeError, match="libavcodec does not decode the GOP"):
            PyavDecoder().decode(request, into(gop.blank(1)))


def with_noise(data: bytes, seed: int) -> bytes:
    """A fragment whose first sample has other bytes behind the headers of its slice."""
    fragment = parse_fragment(data)
    start, stop = int(fragment.offsets[0]), int(fragment.offsets[0] + fragment.sizes[0])
    start += (stop - start) // 3
    return data[:start] + random.Random(seed).randbytes(stop - start) + data[stop:]
