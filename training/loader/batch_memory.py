"""How much memory the batches of a loader may take: what was given, or as much as they need."""

from __future__ import annotations

from ...machine_memory import memory_limit_bytes

# Where nothing is given: enough for most batches, and what all loaders of a process may have of the memory that it can
# have, divided by the ranks of the machine. What a loader cannot do without may be twice as much, whatever others hold:
# some of these were dropped, and Python has not collected them yet.
_USUAL_BYTES, _PARTS_OF_MEMORY = 1 << 30, 4


def room_for(fewest: int, better: int, batch_bytes: int, given: int | None, *, ranks: int, held: int) -> int:
    """Bytes for batches in memory, of which there have to be `fewest`, and would better be as many as `better` where
    the usual memory is too little. What other loaders of the process `held` leaves less for more than the fewest."""
    if given is not None:
        return given
    # The limit is in files, and mostly need not be looked up.
    if fewest * batch_bytes <= _USUAL_BYTES:
        return _USUAL_BYTES
    part = memory_limit_bytes() // (_PARTS_OF_MEMORY * ranks)
    wanted = min(better * batch_bytes, max(fewest * batch_bytes, part - held))
    return max(_USUAL_BYTES, min(wanted, 2 * part))


def room_on_device(batch_bytes: int, given: int | None) -> int:
    """Bytes for batches in a device's memory: torch tells where it has too little. Two batches are the fewest."""
    return max(_USUAL_BYTES, 2 * batch_bytes) if given is None else given
