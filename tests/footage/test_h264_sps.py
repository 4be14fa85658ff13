"""What the headers of an H.264 stream say, beside what the decoder says of its frames."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

import shortgop.prep.probing.probe as probe_module
from field_pictures import BitWriter
from odd_pictures import X264, encode_pictures, numbered, remuxed
from shortgop.prep.probing.headers.access_units import HeaderReader, may_order_fields
from shortgop.prep.probing.headers.h264_sps import parse_sps
from shortgop.prep.probing.picture_properties import Fields
from shortgop.prep.probing.probe import probe
from synthetic import SyntheticVideo

# Options of x264, and whether no picture can be a field or have two.
STREAMS = {
    "plain": ("", True),
    "without colours and with a crop": ("crop-rect=0,0,8,8", True),
    "everything that comes before": (
        "sar=40/33:overscan=show:videoformat=pal:range=tv:colorprim=bt470bg:transfer=bt470bg:colormatrix=bt470bg"
        ":chromaloc=1",
        True,
    ),
    "rates of buffers": ("nal-hrd=vbr:vbv-maxrate=500:vbv-bufsize=500", True),
    "how pictures are shown": ("pic-struct=1", False),
    "both": ("nal-hrd=vbr:vbv-maxrate=500:vbv-bufsize=500:pic-struct=1", False),
    "fields": ("tff=1", False),
    "frames that could be fields": ("fake-interlaced=1", False),
}


def write(path: Path, params: str) -> None:
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", 25, options={"x264-params": f"{params}:log-level=error".lstrip(":")})
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for number in range(12):
            picture = np.full((64, 96, 3), 10 * number, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode())


@pytest.mark.parametrize("kind", STREAMS)
def test_headers_say_whether_frames_may_have_fields(kind: str, tmp_path: Path) -> None:
    params, has_only_frames = STREAMS[kind]
    write(tmp_path / "v.mp4", params)
    with av.open(str(tmp_path / "v.mp4")) as container:
        (stream,) = container.streams.video
        headers = HeaderReader("h264", stream.codec_context.extradata)
        frames = list(container.decode(stream))
    assert headers.has_only_frames == has_only_frames
    # x264 always says how many frames are to be held back.
    assert not headers.lacks_delay
    assert not (headers.has_only_frames and any(frame.interlaced_frame for frame in frames))
    assert (probe(str(tmp_path / "v.mp4")).picture.fields == Fields.NO) == (not frames[0].interlaced_frame)


def properties(path: Path) -> list[object]:
    found = probe(str(path))
    return [list(value) if isinstance(value, np.ndarray) else value for value in vars(found).values()]


@pytest.mark.parametrize("kind", STREAMS)
def test_one_frame_says_what_several_say(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "v.mp4", STREAMS[kind][0])
    found = properties(tmp_path / "v.mp4")
    monkeypatch.setattr(probe_module, "frame_of", lambda packet, stream: [])
    assert found == properties(tmp_path / "v.mp4")


def test_one_frame_says_how_pictures_are_turned(rotated_video: SyntheticVideo, monkeypatch: pytest.MonkeyPatch) -> None:
    found = properties(rotated_video.path)
    assert probe(str(rotated_video.path)).rotation == 90
    monkeypatch.setattr(probe_module, "frame_of", lambda packet, stream: [])
    assert found == properties(rotated_video.path)


def test_one_frame_is_decoded_where_it_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "first_frames", lambda path, stream_index: pytest.fail("several were decoded"))
    write(tmp_path / "v.mp4", "")
    assert probe(str(tmp_path / "v.mp4")).width == 96
    write(tmp_path / "fields.mp4", "tff=1")
    with pytest.raises(pytest.fail.Exception, match="several"):
        probe(str(tmp_path / "fields.mp4"))


def test_where_the_first_frame_does_not_decode_later_ones_are_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "v.mp4", "keyint=4:scenecut=0")
    with av.open(str(tmp_path / "v.mp4")) as container:
        first = next(packet for packet in container.demux(video=0) if packet.size)
        place, size = first.pos or 0, first.size
    content = (tmp_path / "v.mp4").read_bytes()
    # The lengths of its units stay.
    damaged = content[: place + 4] + bytes(size - 4) + content[place + size :]
    (tmp_path / "v.mp4").write_bytes(damaged)
    assert probe(str(tmp_path / "v.mp4")).width == 96


def test_one_header_with_fields_is_enough(tmp_path: Path) -> None:
    """Recordings of film and of video may be in one file."""
    found = []
    for name, params in {"film": "", "video": "tff=1"}.items():
        write(tmp_path / f"{name}.mp4", params)
        with av.open(str(tmp_path / f"{name}.mp4")) as container:
            found.append(container.streams.video[0].codec_context.extradata or b"")
    film, video = found
    size = int.from_bytes(video[6:8])
    headers = HeaderReader("h264", film)
    assert headers.has_only_frames
    headers.read(size.to_bytes(4) + video[8 : 8 + size])
    assert not headers.has_only_frames


def test_a_header_that_ends_early_says_nothing() -> None:
    assert not HeaderReader("h264", b"\0\0\0\1\x67\x64\0\x1e").has_only_frames
    assert not HeaderReader("h264", None).has_only_frames


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("difference", [1, -1])
def test_fields_of_different_orders_are_no_field_order(difference: int, suffix: str, tmp_path: Path) -> None:
    """FFmpeg takes them for one that the container states, and writes it into Matroska."""
    options = ("-pix_fmt", "yuv420p", *X264, "-profile:v", "baseline")
    raw = encode_pictures(tmp_path / "x.h264", numbered(range(4)), *options)
    start, old, *others = raw.read_bytes().split(b"\0\0\0\1")
    # id 0, a frame_num of so many bits, orders that follow from it, and offsets of these: of frames to which no other
    # refers, from the upper to the lower field, and of the one frame of each cycle.
    writer = BitWriter().put(66, 8).put(0, 8).put(30, 8).golomb(0, parse_sps(old).frame_num_bits - 4, 1).put(1, 1)
    writer.golomb(0, 1 if difference == 1 else 2, 1, 3)
    # One reference, no gaps, 96x64 of frames, direct_8x8_inference, no crop, no VUI, and the stop bit.
    new = b"\x67" + writer.golomb(1).put(0, 1).golomb(5, 3).put(0b11001, 5).aligned()
    raw.write_bytes(b"\0\0\0\1".join([start, new, *others]))
    source = remuxed(raw, tmp_path / f"x.{suffix}")
    with av.open(str(source)) as container:
        assert container.streams.video[0].codec_context.field_order == (2 if difference == 1 else 3)
        assert not any(frame.interlaced_frame for frame in container.decode(video=0))
    assert probe(str(source)).picture.fields not in (Fields.TOP_FIRST, Fields.BOTTOM_FIRST)


@pytest.mark.parametrize("present", [0, 1])
def test_slices_may_state_orders_of_fields(present: int) -> None:
    # Both ids 0, CAVLC, and whether slices have the order of the lower field.
    assert may_order_fields(b"\0\0\0\1\x68" + BitWriter().golomb(0, 0).put(present, 2).aligned()) == present
    assert not may_order_fields(b"\0\0\0\1\x68")
    assert not may_order_fields(None)
