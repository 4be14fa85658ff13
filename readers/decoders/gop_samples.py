"""The samples of a GOP that a request needs: what every decoder sends."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import CorruptDataError
from ...manifests.mp4 import sample_bounds
from ...manifests.unit_kinds import referenced_stops
from ...wording import counted
from ..plan import needed_samples
from .base import GopRequest


def samples_of(request: GopRequest, numbers: Sequence[int] | None = None) -> list[tuple[int, memoryview]]:
    """The samples that the wanted frames need, or those of these numbers, in decode order: the number of the frame that
    a sample shows, and its bytes. In AV1 a sample may have frames beside that which it shows; without the latter, where
    that is not needed.

    CorruptDataError when the data is not a GOP of the request's pattern.
    """
    bounds, shown = sample_bounds(request.data), request.pattern.frames
    if len(bounds) - 1 != len(shown):
        raise CorruptDataError(f"the GOP has {counted(len(bounds) - 1, 'frame')}, the manifest says {len(shown)}")
    data = memoryview(request.data)
    needed = needed_samples(request.pattern, request.frames) if numbers is None else numbers
    stop_of = referenced_stops(request.config.codec, request.config.extradata)
    if stop_of is None:
        return [(shown[sample], data[bounds[sample] : bounds[sample + 1]]) for sample in needed]
    wanted, samples = set(request.frames), []
    for sample in needed:
        start, stop = bounds[sample], bounds[sample + 1]
        samples.append((shown[sample], data[start : stop if shown[sample] in wanted else stop_of(data, start, stop)]))
    return samples
