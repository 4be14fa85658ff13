"""The result of a job."""

from __future__ import annotations

from dataclasses import dataclass

from ..manifests.equal_contents import NO_EQUAL_CONTENTS, EqualContents
from ..manifests.lacking import NONE_LACK_FRAMES, Lacking
from ..manifests.operations.column_changes import HidingColumn, MixedColumn, TextColumn
from ..wording import NOT_THERE
from .planning.gpu_readable import NONE, NotForGpus
from .units_of_work.unit_results import Failure


@dataclass(frozen=True)
class Planned:
    """What a job would prepare, as far as it is known before anything is encoded: so many `sources`, whose files have
    `source_bytes`. `frames` are those that the headers of `sources_with_frames` of them tell. Of others the header says
    nothing, or was not read: that of files in stores, where there are a thousand or more, of pictures and of tars.
    `silent` are the ids of those whose header was read and says nothing: the file is damaged, or no video, and
    `failed_before` the ids of those that failed in an earlier job. `made_again` of them are sources of videos that the
    dataset has: lost ones, and those that would be `replaced` as their sources have changed. `bytes` is how much the
    job would add to the dataset, if that goes by the bytes of sources, as in the jobs before it, or where there are
    stretches by the frames of the dataset; None before the first one. `job_runs`: a job writes to the dataset now; of
    that only what it has published counts as done.
    """

    sources: int
    source_bytes: int
    frames: int
    sources_with_frames: int
    silent: tuple[str, ...] = ()
    failed_before: tuple[str, ...] = ()
    made_again: int = 0
    replaced: tuple[str, ...] = ()
    bytes: int | None = None
    job_runs: bool = False


@dataclass(frozen=True)
class Report:
    """The result of a job. `failures` lists every given source whose present content is not in the dataset.

    `repaired` are the ids of videos that were made again because their shards were missing or damaged, `lost` the ids
    of videos whose shards still are. `replaced` are the ids of videos that were made again because their source had
    changed, `outdated` the ids of those whose frames in the dataset are still the old ones; `failures` says why.
    `relabelled` counts videos that were in the dataset and have new columns from a list, `dropped` are the ids of
    sources that were left out because they were dropped.
    `videos_added` counts none of these. `frames_added` and `bytes_added` count all that was
    written. `equal_contents` says which videos of the dataset have the same content under different ids, `not_for_gpus`
    how many of the dataset's videos NVDEC does not decode, `lacking_frames` which of them lack many frames of their
    sources. `cut_off` are the ids of videos whose sources end before the end that they state, `guessed_rates` of those
    whose sources have neither times nor a rate. `mixed_columns` are those whose values are of several types since this
    job, `text_columns` those that were numbers or truth values before it and are text, `hiding_columns` those of lists
    that have the name of one of the dataset's own since. `planned` is None but for a dry run: that changes nothing, and
    the report says what there is and what would be done; its `failures` are sources of which that is known.
    """

    sources: int
    already_there: int
    videos_added: int
    frames_added: int
    bytes_added: int
    seconds: float
    failures: tuple[Failure, ...]
    snapshot: str | None
    repaired: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    relabelled: int = 0
    dropped: tuple[str, ...] = ()
    equal_contents: EqualContents = NO_EQUAL_CONTENTS
    not_for_gpus: NotForGpus = NONE
    lacking_frames: Lacking = NONE_LACK_FRAMES
    cut_off: tuple[str, ...] = ()
    guessed_rates: tuple[str, ...] = ()
    mixed_columns: tuple[MixedColumn, ...] = ()
    text_columns: tuple[TextColumn, ...] = ()
    hiding_columns: tuple[HidingColumn, ...] = ()
    planned: Planned | None = None

    @property
    def found_no_source(self) -> bool:
        """Whether none of the sources is there, and there are several: then the paths of a list mostly begin in another
        folder."""
        missing = sum(NOT_THERE in failure.reason for failure in self.failures)
        return missing == self.sources > 1
