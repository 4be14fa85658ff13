"""A GPU that is behind: a kernel that takes long, and the streams on which that is tried."""

from __future__ import annotations

from typing import Any

import torch

_CYCLES_PER_MILLISECOND = 2_000_000


def long_kernel(milliseconds: int = 10) -> None:
    """Keep the current stream busy for about so long, by a call that torch's own tests take."""
    cuda: Any = torch.cuda
    cuda._sleep(milliseconds * _CYCLES_PER_MILLISECOND)  # noqa: SLF001


def streams() -> dict[str, Any]:
    """The default stream, and another one."""
    cuda: Any = torch.cuda
    return {"default stream": cuda.default_stream(), "side stream": cuda.Stream()}
