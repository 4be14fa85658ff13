"""ClipDataset: the Dataset that training code uses."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch.utils.data

from ...arguments import integer
from ...errors import DatasetWarning, UsageError
from ...lazy import lazy
from ...manifests.ragged import Array
from ...readers.dataset import Dataset
from ...readers.stats import Stats
from ...warned import warn
from ..pixels.clip_pixels import read_clips
from ..pixels.named_outputs import Outputs
from ..pixels.opened import OpenedDataset
from ..pixels.outputs import Output
from ..pixels.rows import Rows
from ..pixels.transforms import Read, Transform, check_transform, explaining_forks, joined, transformed
from ..which_clips.clip_table import ClipTable, table_of_own
from ..which_clips.clips import NO_CLIPS, Clip, Clips
from ..which_clips.clips_by import ClipsBy
from ..which_clips.offsets import at_least_one, listed
from ..which_clips.policy_index import Policy, index_of, is_random, policy_of
from ..which_clips.stretches import Stretches, within
from ..which_clips.video_table import VideoTable
from .drawn_items import OF_ITEMS, DrawnItems, Item, checked_metadata
from .reading_options import READING, dataset_to_read
from .unreadable import Otherwise, Skipping, read_what_can_be

OnError = Literal["raise"] | Otherwise


class ClipDataset(DrawnItems):
    """Clips of a prepared dataset as a map-style Dataset, for any DataLoader and any Sampler.

        dataset = shortgop.ClipDataset("DATASET", shortgop.RandomClips(16, stride=4), size=(224, 224), crop="center",
                                       metadata=["label"])
        sampler = shortgop.ElasticSampler(dataset, global_batch_size=32)
        for batch in DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=4):
            batch["frames"]  # uint8, (32, 16, 3, 224, 224)

    An item is a dict:

    - `frames`: (frames, 3, height, width), uint8, or as the dataset was told to read;
    - `pts_seconds`: float64, (frames,): when each frame is shown, in seconds from the start of its video;
    - `video`: the video's number; `start`: the frame where the clip starts; `stretch`, if there are any, its number;
    - `frame_numbers`: int64, (frames,): which frames of the video these are; where `mask` is False, the frame that
      stands in, also where it is painted black;
    - `mask`: bool, (frames,), where the policy pads: True where a frame is the one that was called for;
    - `draw`: the integer that stands for the item: it tells the clip, and everything that is random about it;
    - with `outputs`, each of them under its name in place of `frames`, and `crop`, int64, (top, left, height, width) in
      pixels of the decoded frame, and `flip`, bool, that were drawn; where several outputs have no `shared`,
      `crop_input` and `flip_input` for the output "input" and so on;
    - the columns named in `metadata`, those of the source list or of the dataset, as `Dataset.columns` has them ("id",
      "fps", "num_frames", ...): numbers as tensors, texts as they are.

    Parameters:

    - `dataset`: the path of a prepared dataset, or a shortgop.Dataset. With a path, what is not named here is passed
      on to shortgop.open: `size`, `crop`, `interpolation`, `dtype`, `normalize`, `threads`, `device`, ...
    - `clips`: a policy (AllClips, RandomClips, UniformClips, CenterClips, RandomFrames, SegmentFrames, ClipsBy,
      ClipsAt), a ClipTable, or a MultiRate or Offsets alone, which stands for RandomClips of it.
    - `outputs`: what frames become, as a dict of shortgop.Output by name: several of them are made of one decode, and
      each has a size, crop, dtype, ... and frames of its own. Without it items have `frames` as the dataset was opened.
    - `videos`: ids or numbers, to take clips of these alone, in this order: where a list of ids says which. Where
      columns say it, give `shortgop.open(...).where(...)` as the dataset. Or Stretches, to take clips from parts of
      videos.
    - `seed`: of all that is random about clips.
    - `transform`: a callable on the frames of one item; with `transform_batch`, on those of all clips that are read
      together, (clips, frames, ...). With `outputs` it gets a dict of them and returns one. Python's, numpy's and
      torch's generators are seeded by the draw around it, and put back after it.
    - `on_error`: what to do when a clip cannot be read because its data is missing or damaged. "raise"; "skip", which
      takes another clip in its place, chosen by the draw so that it is the same one on every rank; or a callable that
      gets the error and the draw and returns another draw, or None for the choice of "skip". After `max_skipped` clips
      it is an error. `skipped` counts them. With "skip" UnreadableDataError is one at once: the data may be intact.

    Indices from 0 to `len` - 1 are draws of the first epoch. For a sampler that yields these in every epoch,
    `set_epoch` makes their random choices other ones, and a DatasetWarning reminds of it. ElasticSampler yields draws
    that hold the epoch.

    Reads of several items, as a DataLoader's, are planned together: each GOP is read and decoded once. Pickles as the
    dataset's path and the policy. UsageError for videos that are too short where the policy's rule is "error".
    """

    _FIXED = "dataset.clip_table()"
    _ENTRIES: ClassVar[tuple[str, ...]] = OF_ITEMS
    _REMEDIES: ClassVar = {name: f"make another one, with {name}=..." for name in READING}

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Dataset,
        clips: Policy,
        *,
        outputs: Mapping[str, Output] | None = None,
        videos: Iterable[str | int] | Stretches | None = None,
        seed: int = 0,
        metadata: Sequence[str] = (),
        transform: Transform | None = None,
        transform_batch: bool = False,
        on_error: OnError = "raise",
        max_skipped: int = 100,
        **reading: Any,
    ) -> None:
        opened = dataset_to_read(dataset, reading)
        _check_on_error(on_error)
        self._opened = OpenedDataset(opened)
        self._stretches = videos if isinstance(videos, Stretches) else None
        own = self._ENTRIES if self._stretches is None else (*self._ENTRIES, "stretch")
        self._metadata = checked_metadata(metadata, ("frames", *own))
        self._policy = policy_of(clips)
        named = videos.videos if isinstance(videos, Stretches) else videos
        self._rows = self._opened.chosen_rows if named is None else self._opened.rows(named)
        self._seed = integer(seed, "seed")
        self._outputs = None
        if outputs is not None:
            self._opened.check_plain()
            self._outputs = Outputs(outputs, taken=(*own, *self._metadata), seed=self._seed)
        check_transform(transform)
        if transform_batch and transform is None:
            raise UsageError("transform_batch says how transform is called, and there is no transform")
        self._transform, self._transform_batch = transform, bool(transform_batch)
        limit = at_least_one(max_skipped, "max_skipped")
        self._skipping = None if on_error == "raise" else Skipping(on_error, limit, self._seed)
        super().__init__()
        self._check_clips()
        self._stays(ClipDataset)

    def _check_clips(self) -> None:
        """Errors of the policy and of names come when the dataset is made, and not in a worker."""
        table = self.clip_index
        if len(table) and len(self.source):
            self._opened.check_columns(self._metadata, self._rows)
            if self._outputs is not None:
                self._outputs.positions(len(table.clips([0])[0].frames))
        elif len(table.too_short):
            warn(NO_CLIPS)

    @lazy
    def videos_fingerprint(self) -> str:
        """Differs where the videos that clips are taken from are others, or were made from other sources: the same in
        all snapshots and copies that have these videos."""
        return self._opened.fingerprint(self._rows)

    @lazy
    def clip_index(self) -> Clips:
        """Which clips there are: from draws to videos and frames."""
        return index_of(self._policy, self._table, self._rows, self._opened.rows, self._seed)

    @property
    def _table(self) -> VideoTable:
        table = self._opened.table(self._rows)
        return table if self._stretches is None else within(self._stretches, table)

    @property
    def metadata_names(self) -> tuple[str, ...]:
        """The columns that items have."""
        return self._metadata

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed, as a tuple: MixedClips has several."""
        return (self._seed,)

    @property
    def source(self) -> Dataset:
        """The dataset that clips are read from."""
        return self._opened.dataset

    @property
    def snapshot(self) -> str:
        """Which of the dataset's snapshots that is."""
        return self._opened.snapshot

    @property
    def opened_from(self) -> tuple[str, str]:
        """Where the dataset lies, and which snapshot of it is open: what rows are of."""
        return self._opened.path, self.snapshot

    @property
    def video_rows(self) -> Array:
        """The rows that clips are taken from, and at which frame of each they begin, which is 0 but for Stretches:
        int64, (entries, 2)."""
        table = self._table
        firsts = np.zeros(len(table), dtype=np.int64) if table.first_frames is None else table.first_frames
        return np.column_stack([table.rows, firsts])

    @property
    def too_short(self) -> tuple[str, ...]:
        """The ids of videos that have fewer frames than a clip spans, or whose stretches have, and are left out or
        padded; also of those of which align leaves no start, which are left out."""
        table = self._opened.table(self._rows)
        return tuple(table.name(place) for place in self.clip_index.too_short.tolist())

    @property
    def video_numbers(self) -> Array:
        """The numbers of the videos that clips are taken from, int64: in the order of `videos`, with an entry for each
        stretch, or ascending."""
        return np.arange(len(self.source)) if self._rows is None else self._opened.numbers_of(self._rows)

    def column(self, name: str) -> list[Any]:
        """What the source list said of each video in a column, such as labels for ClassBalanced or weights: in the
        order of `video_numbers`."""
        columns, numbers = self.source.columns, self.video_numbers
        if name not in columns:
            raise UsageError(f"the dataset has no column {name!r}; it has {', '.join(columns)}")
        if columns.present(name)[numbers].all():
            return cast(list[Any], columns[name][numbers].tolist())
        return [self._opened.values(row, [name])[name] for row in self._opened.rows_at(numbers).tolist()]

    @property
    def skipped(self) -> int:
        """How many clips could not be read and were replaced by others, in all workers."""
        return self._shared.skipped

    @property
    def skipped_here(self) -> int:
        """The same in this process alone."""
        return self._shared.skipped_here

    def __repr__(self) -> str:
        return f"<ClipDataset of {self.source!r}: {len(self)} clips, {self._policy!r}>"

    def example(self, draw: int) -> Item:
        """The item of a draw, to see what items consist of. Clips that are skipped for it are not counted."""
        with self.uncounted():
            return self.items([draw])[0]

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Clips that are skipped meanwhile are neither counted nor told."""
        before = self._shared.skipped_here
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DatasetWarning)
            yield
        self._shared.count_skipped(before - self._shared.skipped_here)

    @property
    def is_random(self) -> bool:
        """Whether clips or crops are others in each epoch."""
        if self._outputs is not None and self._outputs.are_random:
            return True
        return is_random(self._policy)

    @property
    def transforms_batches(self) -> bool:
        """Whether the transform is called with all clips that are read together, so that it matters which these are."""
        return self._transform is not None and self._transform_batch

    @property
    def has_transform(self) -> bool:
        """Whether items go through a transform."""
        return self._transform is not None

    @property
    def device(self) -> torch.device:
        """Where frames come: the CPU, or the GPU that decodes them."""
        return self.source.device

    def will_need(self, draws: Sequence[int]) -> None:
        """Ask the system to have the bytes of these items in memory soon. It does not wait, and bytes that cannot be
        read are no error here."""
        clips = self.clip_index.clips(draws)
        self._opened.will_need([clip.video for clip in clips], [clip.frames.tolist() for clip in clips])

    def use_threads(self, threads: int) -> None:
        """Decode on this many threads from now on, as `threads` of shortgop.open."""
        self._opened.use_threads(threads)

    @property
    def threads(self) -> int:
        """How many threads decode."""
        return self._opened.threads

    def on_threads(self, threads: int) -> contextlib.AbstractContextManager[None]:
        """Decode on this many threads in a `with` block, and then on as many as before."""
        return self._opened.on_threads(threads)

    def stats(self) -> Stats:
        """As Dataset.stats: counts and times of reading in this process."""
        return self.source.stats()

    def items(self, draws: Sequence[int], rows: Rows | None = None) -> list[Item]:
        """The items of draws that hold their epoch, read together. A subclass that adds to items does so here: all
        loaders call it.

        With `rows`, the frames are read into these, and items have views of them; a transform's results lie elsewhere.
        """
        with explaining_forks():
            return self._items(self.clip_index.clips(draws), rows)

    def clip_table(self, draws: Sequence[int] | None = None) -> ClipTable:
        """The clips of these draws, or of the first epoch, as a table that can be written down and read back.

        A dataset of the table has the same clips, whatever becomes of the policy and of how it draws.
        """
        chosen = range(len(self)) if draws is None else [integer(draw, "a draw") for draw in listed(draws, "draws")]
        ids = self._opened.manifest.videos.id
        clips = self.clip_index.clips(chosen)
        masks = [clip.mask for clip in clips if clip.mask is not None]
        lengths = sorted({len(clip.frames) for clip in clips})
        if len(lengths) > 1:
            raise UsageError(
                f"clips have {lengths[0]} to {lengths[-1]} frames, and those of a ClipTable as many each: give "
                "ClipsBy a number of frames and ends=, or keep its function in place of the table"
            )
        return table_of_own(
            videos=[ids.text(clip.video) for clip in clips],
            starts=np.array([clip.start for clip in clips], dtype=np.int64),
            frames=np.array([clip.frames for clip in clips], dtype=np.int64),
            mask=np.array(masks) if masks else None,
            black=self._is_black,
        )

    def _items(self, clips: list[Clip], rows: Rows | None) -> list[Item]:
        names = ("frames",) if self._outputs is None else tuple(self._outputs.named)
        apart = rows is not None and rows.lacks(names)
        rows = None if apart or self._transform is not None else rows
        read_clips_of = partial(self._read, several=apart)
        if self._skipping is None:
            read = read_clips_of(clips, rows)
        else:
            clips, read = read_what_can_be(
                clips, rows, read_clips_of, index=self.clip_index, shared=self._shared, how=self._skipping
            )
        frames = transformed(
            self._transform,
            [clip.draw for clip in clips],
            {name: read.pop(name) for name in names},
            seed=self._seed,
            together=self._transform_batch,
            named=self._outputs is not None,
            tell=lambda place: self._told(clips[place]),
        )
        return joined(frames, self._other_entries(clips, read))

    def _told(self, clip: Clip) -> str:
        name = self._opened.manifest.videos.id.text(clip.video)
        return f"draw {clip.draw}, which starts at frame {clip.start} of video {name!r}"

    def _other_entries(self, clips: list[Clip], read: Mapping[str, Read]) -> list[Item]:
        """What the item of each clip has besides its frames. `read` is what was read with these."""
        numbers = self._opened.numbers_of([clip.video for clip in clips]).tolist()
        return [
            {
                **{name: column[place] for name, column in read.items()},
                "video": video,
                "start": clip.start,
                **({} if clip.stretch is None else {"stretch": clip.stretch}),
                # Copies, since the rows of a ClipTable belong to all items of their clip.
                "frame_numbers": torch.tensor(clip.frames, dtype=torch.int64, device="cpu"),
                **({} if clip.mask is None else {"mask": torch.tensor(clip.mask, device="cpu")}),
                "draw": clip.draw,
                **self._opened.columns(clip.video, self._metadata),
            }
            for place, (clip, video) in enumerate(zip(clips, numbers, strict=True))
        ]

    def _read(self, clips: list[Clip], rows: Rows | None, *, several: bool) -> dict[str, Read]:
        """`several` says that clips may differ in size also where neither a transform nor the dataset says so."""
        several = several or self._is_ragged or (self._transform is not None and not self._transform_batch)
        black, num_clips = self._is_black, len(self.clip_index)
        return read_clips(self._opened, self._outputs, clips, rows, num_clips=num_clips, black=black, several=several)

    @property
    def _is_ragged(self) -> bool:
        """Whether a clip's number of frames or their size is the clip's own, so that items are for a collate_fn."""
        counted_by_clip = isinstance(self._policy, ClipsBy) and self._policy.num_frames is None
        return counted_by_clip or (self._outputs is not None and self._outputs.have_sizes_of_clips)

    @property
    def _is_black(self) -> bool:
        if isinstance(self._policy, ClipTable):
            return self._policy.black
        return getattr(self._policy, "ends", None) == "black"


def _check_on_error(on_error: Any) -> None:
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise UsageError(f'on_error is {on_error!r}; it can be "raise", "skip" or a callable')
