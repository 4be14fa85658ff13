"""What a loader's time went into."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

# Below this part of the time, waiting is not worth a change.
_NEGLIGIBLE = 0.05


@dataclass(frozen=True)
class LoaderStats:
    """Counts and times of a ClipLoader since it was made.

    Seconds of workers are added up over all of them, and those of reading and decoding over their threads.
    """

    batches: int = 0
    clips: int = 0
    """Clips that workers read; some may be of batches that were never delivered."""
    start_seconds: float = 0.0
    """How long the training loop waited for the first batch of each pass; for that of the first pass workers start."""
    wait_seconds: float = 0.0
    """How long it waited for the others."""
    step_seconds: float = 0.0
    """How long it took between receiving a batch and asking for the next."""
    bytes_seconds: float = 0.0
    """How long workers waited for bytes, and compared checksums."""
    decode_seconds: float = 0.0
    """How long they decoded and converted."""
    busy_seconds: float = 0.0
    """How long they worked on clips, all told; with one thread the rest of it is planning and transforms."""
    idle_seconds: float = 0.0
    """How long they had nothing to do, since all batches were full or in the consumer's hands."""
    copied_batches: int = 0
    """Batches that were copied, as the consumer kept so many earlier ones that no memory was left to fill."""
    skipped: int = 0
    """Clips that could not be read and were replaced by others."""
    restarts: int = 0
    """Workers that died and were replaced."""
    on_device: bool = False
    """Whether a GPU decoded, for which threads of this process read; there were no workers."""

    def __add__(self, other: LoaderStats) -> LoaderStats:
        added = LoaderStats(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))
        return replace(added, on_device=self.on_device or other.on_device)

    def with_step(self, wait_seconds: float, step_seconds: float, *, starts: bool) -> LoaderStats:
        """With the times of one more batch in the training loop; `starts` with the first one of a pass."""
        return replace(
            self,
            start_seconds=self.start_seconds + wait_seconds * starts,
            wait_seconds=self.wait_seconds + wait_seconds * (not starts),
            step_seconds=self.step_seconds + step_seconds,
        )

    @property
    def advice(self) -> str:
        """Which of storage, decoding and training the others wait for, and what to change."""
        total = self.wait_seconds + self.step_seconds
        if not self.batches or not total:
            return "no batch was delivered yet"
        waited = self.wait_seconds / total
        kept = (
            f" {self.copied_batches} of {self.batches} batches were copied since earlier ones are kept: drop those "
            "that are no longer needed."
            if self.copied_batches
            else ""
        )
        who = "threads" if self.on_device else "workers"
        if waited < _NEGLIGIBLE:
            fewer = "" if self.on_device else "; fewer workers may do"
            return f"training waits {waited:.0%} of the time: the loader is fast enough{fewer}.{kept}"
        reading = self.bytes_seconds + self.decode_seconds
        if self.bytes_seconds > self.decode_seconds:
            ahead = "a larger prefetch_bytes" if self.on_device else "more workers or threads"
            return (
                f"training waits {waited:.0%} of the time, and {who} spend {self.bytes_seconds / reading:.0%} of "
                f"reading on waiting for bytes: take faster storage, or {ahead}, with which more are waited for at the "
                f"same time.{kept}"
            )
        if self.busy_seconds > 2 * reading and reading:
            return (
                f"training waits {waited:.0%} of the time, and workers spend {1 - reading / self.busy_seconds:.0%} of "
                f"theirs outside reading and decoding: look at the transform, or take more workers.{kept}"
            )
        if self.idle_seconds > self.busy_seconds:
            return (
                f"training waits {waited:.0%} of the time, though workers are idle for longer than they work: "
                f"batches come unevenly; take smaller ones.{kept}"
            )
        more = "" if self.on_device else "more workers or threads if CPUs are idle, or "
        return (
            f"training waits {waited:.0%} of the time, and {who} spend theirs on decoding: take {more}"
            f"videos prepared with a smaller --size or the profile `fast`.{kept}"
        )
