"""How two tensors differ, in a line: what is left to go by when the machine is gone."""

from __future__ import annotations

import torch

EQUAL = "equal"
# Lines that a plane may be off, where something takes another height for it, or frames that a clip may be off.
_MOST_PLACES = 32


def difference(found: torch.Tensor, expected: torch.Tensor) -> str:
    """Which part differs, by how much and where; `EQUAL` where nothing does. Indices are those of each dimension."""
    found, expected = found.cpu(), expected.cpu()
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{tuple(found.shape)} of {found.dtype}, not {tuple(expected.shape)} of {expected.dtype}"
    differs = found != expected
    if not differs.any():
        return EQUAL
    # torch does little with uint16.
    found, expected = found.float(), expected.float()
    first = int(differs.flatten().to(torch.uint8).argmax())
    one, other = float(found.flatten()[first]), float(expected.flatten()[first])
    texts = [
        f"{100 * float(differs.float().mean()):.3g} % differ, by up to {float((found - expected).abs().max()):g}",
        f"at {', '.join(_span(differs, dimension) for dimension in range(differs.dim()))}",
        f"the first is {one:g} instead of {other:g}",
    ]
    if (found == found.flatten()[0]).all():
        texts.append("all are the same number")
    elif off := _places_off(found, expected):
        texts.append(f"what is at i of the first dimension should be at i {off:+d}")
    return "; ".join(texts)


def _span(differs: torch.Tensor, dimension: int) -> str:
    """From where to where something differs."""
    places = differs.movedim(dimension, 0).flatten(1).any(1).nonzero() if differs.dim() > 1 else differs.nonzero()
    return f"{int(places[0])} to {int(places[-1])} of {differs.shape[dimension]}"


def _places_off(found: torch.Tensor, expected: torch.Tensor) -> int:
    """By how many places all is off in the first dimension: lines of a plane, frames of a clip. 0 where that does not
    explain how they differ."""
    for places in range(1, min(_MOST_PLACES, len(found) - 1) + 1):
        if torch.equal(found[:-places], expected[places:]):
            return places
        if torch.equal(found[places:], expected[:-places]):
            return -places
    return 0
