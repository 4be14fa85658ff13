"""Rows of tensors that exist already, which clips are read into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class Rows:
    """Where clips go: clip i to row `numbers[i]` of each of these tensors, which have the names of items' entries.

    An entry that may be of another shape in each clip has no tensor. Neither has what `items` of a subclass calls by
    another name.
    """

    tensors: Mapping[str, torch.Tensor]
    numbers: Sequence[int]

    def of(self, places: Sequence[int]) -> Rows:
        """The rows of some of the clips."""
        return Rows(self.tensors, [self.numbers[place] for place in places])

    def lacks(self, names: Sequence[str]) -> bool:
        """Whether one of these has no tensor: clips are read elsewhere then."""
        return any(name not in self.tensors for name in names)

    def views(self, name: str) -> list[torch.Tensor]:
        """The row of each clip in the tensor of this name."""
        tensor = self.tensors[name]
        return [tensor[number] for number in self.numbers]
