"""The order of work on a GPU's streams: nothing is written before it may be, or read before it is there.

A GPU runs the work of one stream in order, and that of different streams in any order. An event is a mark in a stream;
another stream can wait for it. Four rules keep a batch right:

1. A batch's memory may have held something that the consumer's stream still reads: the writing stream waits for it.
2. Conversions run on the stream that the decoder writes surfaces on, so each reads its surface after that is written,
   and the decoder writes the next picture there after it was read.
3. The consumer's stream waits for the last conversion. The host waits for nothing.
4. Also after an error: what was launched still writes, and the consumer may use the memory again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol


class Gpu(Protocol):
    """The calls to a GPU that these rules need, and one for where its memory is short. Streams can be compared."""

    def current_stream(self) -> Any:
        """The stream that the calling thread's work goes to: the consumer's."""
        ...

    def decoder_stream(self) -> Any:
        """The stream on which decoders write surfaces."""
        ...

    def launching_on(self, stream: Any) -> contextlib.AbstractContextManager[None]:
        """The calling thread's work goes to `stream`, in the GPU's context."""
        ...

    def record(self, stream: Any) -> Any:
        """An event behind all work that `stream` has so far."""
        ...

    def wait(self, stream: Any, event: Any) -> None:
        """Later work of `stream` waits for the event."""
        ...

    def free_memory(self) -> None:
        """Give the driver back what is kept of the GPU's memory and not in use."""
        ...


@contextlib.contextmanager
def request_order(gpu: Gpu) -> Iterator[None]:
    """Around the decoding of a request, in the consumer's thread: rules 1, 3 and 4."""
    consumer, writer = gpu.current_stream(), gpu.decoder_stream()
    if consumer == writer:
        yield
        return
    gpu.wait(writer, gpu.record(consumer))
    try:
        yield
    finally:
        gpu.wait(consumer, gpu.record(writer))


def gop_order(gpu: Gpu) -> contextlib.AbstractContextManager[None]:
    """Around the decoding and the conversion of a GOP, in any thread: rule 2."""
    return gpu.launching_on(gpu.decoder_stream())
