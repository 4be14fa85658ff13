"""The cut of an MP4 track. `edit_list` finds it, with PyAV."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """The cut of a track that was opened without its edits: how many frames lie before it, `num_hidden`, and when, in
    units of the track, what players show at 0 is shown in the media, `begin`."""

    num_hidden: int = 0
    begin: int = 0


NO_CUT = Cut()
