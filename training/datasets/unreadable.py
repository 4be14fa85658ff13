"""Clips that cannot be read: other clips come in their place, the same ones on every rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ...arguments import integer
from ...errors import DatasetError, DecodeError, UnreadableDataError
from ...warned import warn
from ..pixels.rows import Rows
from ..which_clips.clips import Clip, Clips
from ..which_clips.draws import split_draws
from ..which_clips.keyed import below, hashes, key
from .shared import SharedNumbers

Otherwise = Literal["skip"] | Callable[[Exception, int], int | None]
ReadClips = Callable[[list[Clip], Rows | None], dict[str, Any]]
"""Reads clips: a dict of tensors with a row for each clip, or of lists with an element for each."""

# In a row, for one sample.
_MAX_ATTEMPTS = 100


@dataclass(frozen=True)
class Skipping:
    """How clips that cannot be read are replaced: see `on_error` and `max_skipped` of ClipDataset."""

    on_error: Otherwise
    max_skipped: int
    seed: int


def read_what_can_be(
    clips: list[Clip], rows: Rows | None, read: ReadClips, *, index: Clips, shared: SharedNumbers, how: Skipping
) -> tuple[list[Clip], dict[str, Any]]:
    """Read clips, or others of `index` in place of those that cannot be read; returns the clips that were read.

    DatasetError after too many.
    """
    try:
        return clips, read(clips, rows)
    except (DatasetError, DecodeError) as error:
        if _is_out_of_reach(error, how):
            raise
        # One of them, or several: each is read alone to tell.
        alone = [None if rows is None else rows.of([place]) for place in range(len(clips))]
    pairs = [
        _read_one_or_another(clip, own, read, index=index, shared=shared, how=how)
        for clip, own in zip(clips, alone, strict=True)
    ]
    outputs = [output for _, output in pairs]
    return [clip for clip, _ in pairs], {name: [each[name][0] for each in outputs] for name in outputs[0]}


def _read_one_or_another(
    clip: Clip, rows: Rows | None, read: ReadClips, *, index: Clips, shared: SharedNumbers, how: Skipping
) -> tuple[Clip, dict[str, Any]]:
    tried = clip
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return tried, read([tried], rows)
        except (DatasetError, DecodeError) as error:
            if _is_out_of_reach(error, how):
                raise
            shared.count_skipped()
            if shared.skipped > how.max_skipped:
                raise DatasetError(
                    f"{shared.skipped} clips could not be read, more than max_skipped={how.max_skipped}; "
                    f"`shortgop verify` tells what is damaged. The last one: {error}"
                ) from error
            chosen = how.on_error(error, tried.draw) if callable(how.on_error) else None
            substitute = (
                _substitute(clip.draw, attempt, len(index), how.seed) if chosen is None else integer(chosen, "a draw")
            )
            warn(f"draw {tried.draw} is skipped, draw {substitute} comes in its place: {error}")
            tried = index.clips([substitute])[0]
    raise DatasetError(
        f"{_MAX_ATTEMPTS} clips in place of draw {clip.draw} could not be read either; `shortgop verify` tells "
        "what is damaged"
    )


def _is_out_of_reach(error: Exception, how: Skipping) -> bool:
    """Whether the data may be intact, as where credentials have expired or a store does not answer: then other ranks
    may read the clip, and each clip in its place takes as long to fail. A function of the user's decides for itself."""
    return isinstance(error, UnreadableDataError) and not callable(how.on_error)


def _substitute(draw: int, attempt: int, count: int, seed: int) -> int:
    """Another draw of the same round: each of the other clips is equally likely."""
    rounds, indices = split_draws([draw], count)
    # Numbers from the clip's own on are one higher, so that it is left out. If there is no other clip, it is the same
    # one.
    chosen = int(below(hashes(key(seed, "substitute", attempt), draw), max(1, count - 1)))
    chosen += int(count > 1 and chosen >= int(indices[0]))
    return int(rounds[0]) * count + chosen
