"""What the training loop gets: a dict of tensors that knows where to go on after it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torch.utils._pytree import register_pytree_node


class Batch(dict[str, Any]):
    """A batch: tensors by the names of items' entries, (batch, ...), and lists of what are no tensors.

    `state` is where to resume after this batch: give it to ClipLoader.load_state_dict. None with samplers that have no
    states. A copy by `copy` has it too; what pickle, torch.save and `{**batch}` make of a batch is a dict without it.
    """

    state: Mapping[str, Any] | None = None

    def copy(self) -> Batch:
        """The same entries and state."""
        return batch_of(self, self.state)

    def __reduce__(self) -> Any:
        # torch.load takes no other subclass of dict for data.
        return OrderedDict, (), None, None, iter(self.items())


def batch_of(entries: Mapping[str, Any], state: Mapping[str, Any] | None) -> Batch:
    """A batch of these entries, with this state."""
    batch = Batch(entries)
    batch.state = state
    return batch


# So that torch's functions on trees of tensors take it for a dict.
register_pytree_node(
    Batch,
    lambda batch: (list(batch.values()), (list(batch), batch.state)),
    lambda values, context: batch_of(dict(zip(context[0], values, strict=True)), context[1]),
)
