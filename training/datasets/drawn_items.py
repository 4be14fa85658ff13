"""A Dataset whose items are asked for by draws: what ClipDataset and MixedClips have in common."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch.utils.data

from ...errors import ShortGopError, UsageError, WrongTypeError
from ...stays_as_made import StaysAsMade
from ..pixels.rows import Rows
from ..which_clips.clips import Clips
from ..which_clips.draws import check_share, checked_epoch, in_epoch, one_draw
from .drawn_from import check_drawn_from, check_not_taken_for_places, new_name
from .ranks import notice_undivided
from .repetition import notice_repetition, notice_untold_epoch
from .shared import SharedNumbers

Item = dict[str, Any]

OF_ITEMS = ("pts_seconds", "video", "start", "frame_numbers", "mask", "draw", "dataset")
"""The entries that items have beside their frames, those of MixedClips included."""

# So many draws are named in the note of an error.
_NAMED = 8


class DrawnItems(StaysAsMade, torch.utils.data.Dataset[Item], ABC):
    """Items by draws, one by one or several together: all are made by `items`.

    Subclasses of users may make them in `__getitem__` instead, or add to them there: whatever reads items calls that
    then, or refuses to (`check_items`).
    """

    _FIXED: ClassVar[str]
    """What gives the clips of one epoch, so that they stay the same, for messages."""

    def __init__(self) -> None:
        self._shared = SharedNumbers()
        self.made_as = new_name()
        self._warned_of_repetition = self._warned_of_ranks = False

    def __getstate__(self) -> dict[str, Any]:
        # The index is worked out again where it is needed: it would be most of what is sent to a worker.
        return {name: value for name, value in self.__dict__.items() if name != "clip_index"}

    @property
    @abstractmethod
    def clip_index(self) -> Clips:
        """Which clips there are: from draws to videos and frames."""

    @property
    @abstractmethod
    def videos_fingerprint(self) -> str:
        """Differs where the videos that clips are taken from are others, or were made from other sources: the same in
        all snapshots and copies that have these videos."""

    @property
    @abstractmethod
    def snapshot(self) -> str:
        """Which snapshot is read, or which ones."""

    @property
    @abstractmethod
    def is_random(self) -> bool:
        """Whether clips or crops are others in each epoch."""

    @abstractmethod
    def items(self, draws: Sequence[int], rows: Rows | None = None) -> list[Item]:
        """The items of draws that hold their epoch, read together. A subclass that adds to items does so here: all
        loaders call it.

        With `rows`, the frames are read into these, and items have views of them; a transform's results lie elsewhere.
        """

    def set_epoch(self, epoch: int) -> None:
        """For samplers that yield indices: from now on they stand for the draws of this epoch, in all workers."""
        self._shared.epoch = checked_epoch(epoch, len(self))

    def __len__(self) -> int:
        if not self._warned_of_repetition and self.is_random:
            self._warned_of_repetition = notice_untold_epoch(self._shared)
        count = len(self.clip_index)
        if not self._warned_of_ranks:
            self._warned_of_ranks = notice_undivided(self, count)
        return count

    def __iter__(self) -> Iterator[Item]:
        # Indices never end, as those behind the last are draws of later epochs.
        return (self[index] for index in range(len(self)))

    def __getitem__(self, draw: int) -> Item:
        """The item of a draw; -1 is the last clip of the first epoch."""
        check_not_taken_for_places()
        draws = [one_draw(draw, len(self))]
        if self._has_own("__getitem__"):
            return self._noted_items(self.full_draws(draws))[0]
        return self.__getitems__(draws)[0]

    def __getitems__(self, draws: Sequence[int]) -> list[Item]:
        """The items of several draws, read together; DataLoader calls this.

        UsageError for more draws of an ElasticSampler than its rank has of a global batch.
        """
        check_not_taken_for_places()
        check_share(draws)
        if self._has_own("__getitem__") and not self._has_own("__getitems__"):
            # Only that makes the items of this subclass.
            return [self[draw] for draw in draws]
        return self._noted_items(self.full_draws(draws))

    def _noted_items(self, draws: Sequence[int]) -> list[Item]:
        with noting_draws(self, draws):
            return self.items(draws)

    def full_draws(self, draws: Sequence[int]) -> list[int]:
        """The draws that indices stand for in the epoch that was set; draws that hold an epoch stay as they are.

        DatasetWarning where this makes random clips the same ones again and again.
        """
        if not self._warned_of_repetition and self.is_random:
            self._warned_of_repetition = notice_repetition(self._shared, draws, len(self), fixed=self._FIXED)
        check_drawn_from(draws, self)
        return in_epoch(draws, self._shared.epoch, len(self))

    def check_items(self, reader: str) -> None:
        """UsageError for a subclass that makes items in `__getitem__` or `__getitems__`, where this reader calls
        `items` alone."""
        for name in ("__getitem__", "__getitems__"):
            if self._has_own(name):
                raise UsageError(
                    f"{type(self).__name__} has a {name} of its own, which {reader} does not call: it calls "
                    "items(draws, rows), so add to items there (docs/training.md shows how), or take a DataLoader"
                )

    def _has_own(self, name: str) -> bool:
        """Whether a subclass has a method of this name in place of the one here."""
        return getattr(type(self), name) is not getattr(DrawnItems, name)


@contextlib.contextmanager
def noting_draws(dataset: object, draws: Sequence[int]) -> Iterator[None]:
    """An error that comes from `items` of a subclass gets a note with the draws, which say what was read."""
    try:
        yield
    except Exception as error:
        # None where what was given hands on all that it is asked for to a dataset that it has.
        owner = next((base for base in type(dataset).__mro__ if "items" in vars(base)), None)
        # Errors of this package name the video, and those of transforms have a note.
        is_told = isinstance(error, ShortGopError) or bool(getattr(error, "__notes__", None))
        if draws and owner is not None and not _is_ours(owner) and not is_told:
            named = ", ".join(str(int(draw)) for draw in draws[:_NAMED])
            more = ", ..." if len(draws) > _NAMED else ""
            error.add_note(
                f"{owner.__name__}.items was called with the draws {named}{more}; dataset.items([{int(draws[0])}]) "
                "reads the first one alone"
            )
        raise


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def checked_metadata(metadata: Any, own: Sequence[str]) -> tuple[str, ...]:
    """The names of columns that items are to have. UsageError for one of their `own` entries."""
    if isinstance(metadata, str) or not isinstance(metadata, Iterable):
        raise WrongTypeError(f"metadata is {metadata!r}; it is a list of names of columns")
    names = tuple(metadata)
    for name in names:
        if name in own:
            raise UsageError(
                f"metadata names {name!r}, which items have already; if the list has such a column, "
                f"dataset.source.columns[{name!r}] has its values, by the numbers in `video` of items and batches. Or "
                "rename that column in the list"
            )
    return names
