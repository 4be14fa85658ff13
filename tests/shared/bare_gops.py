"""GOPs of real encoders without a dataset around them, for what takes a GOP's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import av
import numpy as np

from encodes import encode
from shortgop.manifests.mp4 import parse_fragment, parse_init
from shortgop.manifests.records import CodecConfig, Pattern
from shortgop.manifests.unit_kinds import access_unit_kinds
from shortgop.readers.decoders.base import GopRequest
from shortgop.readers.decoders.pyav import feed_gop, open_context
from shortgop.readers.frame_format import Geometry
from shortgop.readers.plan import Place

GOP_FRAMES = 8
# testsrc2 as `encodes` has it.
WIDTH, HEIGHT = 96, 64


@lru_cache
def gops(codec: str, *, b_frames: int = 3, more: tuple[str, ...] = ()) -> tuple[GopRequest, ...]:
    """Three GOPs of a test pattern, each as a request for all of its frames; `more` are options of ffmpeg."""
    return requests_of(*encode(codec, frames=3 * GOP_FRAMES, gop=GOP_FRAMES, b_frames=b_frames, more=more))


def requests_of(init_bytes: bytes, fragments: Sequence[bytes]) -> tuple[GopRequest, ...]:
    """GOPs as requests for all of their frames."""
    init = parse_init(init_bytes)
    config = CodecConfig(init.codec, init.extradata, init.width, init.height, 2, 2, 2, False)
    return tuple(_request(config, fragment) for fragment in fragments)


def _request(config: CodecConfig, data: bytes) -> GopRequest:
    fragment = parse_fragment(data)
    kind_of = access_unit_kinds(config.codec, config.extradata)
    shown = tuple(np.argsort(np.argsort(fragment.pts_ticks)).tolist())
    referenced = tuple(
        kind_of(data, offset, offset + size)[1]
        for offset, size in zip(fragment.offsets.tolist(), fragment.sizes.tolist(), strict=True)
    )
    return asking(GopRequest(config, Pattern(shown, referenced), data, (), (), ()), range(len(shown)))


def asking(request: GopRequest, frames: Any) -> GopRequest:
    """The same GOP, asked for these frames, which go to the slots of an output one after the other."""
    wanted = tuple(sorted(frames))
    places = tuple((Place(0, slot, 0),) for slot in range(len(wanted)))
    size = (request.config.height, request.config.width)
    return GopRequest(request.config, request.pattern, request.data, wanted, places, [Geometry(0, 0, *size, size)])


def luma_of(frame: Any) -> Any:
    """The luma of a frame in memory, as an array."""
    return np.frombuffer(frame.planes[0], np.uint8).reshape(frame.height, -1)[:, : frame.width].copy()


def pictures_of(request: GopRequest) -> dict[int, Any]:
    """The luma of the wanted frames of a GOP, as libavcodec decodes them from the samples themselves."""
    found: dict[int, Any] = {}
    feed_gop(
        open_context(request.config),
        request,
        lambda frame, places: found.update({request.frames[places[0].slot]: luma_of(frame)}),
    )
    return found


def pictures_of_stream(codec: str, stream: bytes) -> list[Any]:
    """The luma of all frames of an Annex B stream in the order they are shown, from nothing but its bytes."""
    context: Any = av.CodecContext.create(codec, "r")
    context.thread_count = 1
    packets = [*context.parse(stream), *context.parse(None)]
    return [luma_of(frame) for packet in [*packets, None] for frame in context.decode(packet)]
