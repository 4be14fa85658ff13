"""Copies of what a user gives to keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def own(values: Any) -> Any:
    """Values that whoever gave them cannot change any more: a copy of a list, an array or a tensor. An order or a table
    stays what it was made as, also where code writes the next epoch's weights into the same array."""
    if isinstance(values, torch.Tensor):
        return values.detach().clone()
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        return values
    return values.copy() if hasattr(values, "copy") else values
