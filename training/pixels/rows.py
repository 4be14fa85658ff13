"""Rows of tensors that exist already, which clips are read into."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from ...errors import UsageError


@dataclass(frozen=True, eq=False)
class Rows:
    """Where clips go: clip i to row `numbers[i]` of each of these tensors, which have the names of items' entries.
    Entries in `apart` have no tensor, as they may be of another shape in each clip."""

    tensors: Mapping[str, torch.Tensor]
    numbers: Sequence[int]
    apart: Collection[str] = ()

    def of(self, places: Sequence[int]) -> Rows:
        """The rows of some of the clips."""
        return Rows(self.tensors, [self.numbers[place] for place in places], self.apart)

    def lacks(self, names: Sequence[str]) -> bool:
        """Whether one of these is kept apart."""
        return any(name in self.apart for name in names)

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor of this name. UsageError where there is none: the first item of the batches has no such entry."""
        if name not in self.tensors:
            raise UsageError(
                f"a clip has {name!r}, which the first item lacks; items of a batch have the same entries: where "
                "several datasets are mixed, give all of them outputs of the same names, or none"
            )
        return self.tensors[name]

    def views(self, name: str) -> list[torch.Tensor]:
        """The row of each clip in the tensor of this name."""
        tensor = self.tensor(name)
        return [tensor[number] for number in self.numbers]
