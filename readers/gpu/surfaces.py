"""What a decoder on a GPU gives: a plane of luma and a plane of chroma in pairs, NV12 or P010."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...errors import DecodeError


@dataclass(frozen=True, eq=False)
class Surface:
    """A decoded frame in 4:2:0, on any device. The planes are views without the decoder's padding.

    `y` is (height, width), `uv` (ceil(height / 2), ceil(width / 2), 2) with U before V. Lines may have gaps after them;
    the samples of a line may not. Samples are uint8 where `bit_depth` is 8 (NV12), and otherwise uint16 with the value
    in the upper bits (P010, P016). `matrix` is the number of ISO/IEC 23091-2.

    DecodeError for planes that do not go together.
    """

    y: torch.Tensor
    uv: torch.Tensor
    bit_depth: int
    matrix: int
    full_range: bool

    def __post_init__(self) -> None:
        if not 8 <= self.bit_depth <= 14:
            raise DecodeError(f"a surface of {self.bit_depth} bits; 8 to 14 are converted")
        dtype = torch.uint8 if self.bit_depth == 8 else torch.uint16
        shape = (-(-self.y.shape[0] // 2), -(-self.y.shape[-1] // 2), 2)
        if self.y.dim() != 2 or tuple(self.uv.shape) != shape:
            raise DecodeError(f"a surface with planes of {tuple(self.y.shape)} and {tuple(self.uv.shape)}: not 4:2:0")
        if (self.y.dtype, self.uv.dtype) != (dtype, dtype) or self.y.device != self.uv.device:
            raise DecodeError(
                f"a surface of {self.y.dtype} and {self.uv.dtype}, and {self.bit_depth} bits need {dtype}"
            )
        # The stride of a dimension of one element may be anything.
        if (self.width > 1 and self.y.stride(1) != 1) or self.uv.stride(2) != 1:
            raise DecodeError("a surface whose samples have gaps within a line")
        if self.uv.shape[1] > 1 and self.uv.stride(1) != 2:
            raise DecodeError("a surface whose pairs of chroma have gaps within a line")

    @property
    def height(self) -> int:
        return int(self.y.shape[0])

    @property
    def width(self) -> int:
        return int(self.y.shape[1])
