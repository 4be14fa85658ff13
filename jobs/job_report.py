"""Makes the report of a job from what was known before it, what became of the sources, and what the dataset has now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..manifests.equal_contents import equal_contents
from ..manifests.lacking import NONE_LACK_FRAMES, cut_off, guessed_rates, lacking_frames
from ..manifests.operations.column_changes import HidingColumn, MixedColumn, TextColumn
from ..manifests.tables import Manifest
from .outcome import Report
from .planning.deciding import Decided
from .planning.gpu_readable import not_for_gpus
from .planning.how import How
from .planning.survey import Survey
from .running import Totals
from .sources.changed import changed_failure
from .units_of_work.unit_results import Failure


def report_of(
    decided: Decided,
    survey: Survey,
    totals: Totals,
    how: How,
    *,
    snapshot: str | None,
    manifest: Manifest,
    num_sources: int,
    mixed: tuple[MixedColumn, ...],
    became_text: tuple[TextColumn, ...],
    hiding: tuple[HidingColumn, ...],
) -> Report:
    """The report of a job that left this snapshot. `survey` says what became of all sources."""
    before, lost = decided.known.manifest, decided.known.lost
    changed = survey.replaced.union(item.source.id for item in survey.kept)
    repaired = _made_again(before, manifest, lost.keys() - changed)
    replaced = _made_again(before, manifest, survey.replaced)
    still_lost = lost.keys() - repaired - replaced
    return Report(
        sources=num_sources,
        already_there=survey.there,
        videos_added=totals.videos - len(repaired) - len(replaced),
        frames_added=totals.frames,
        bytes_added=totals.bytes,
        seconds=how.tally.seconds,
        failures=(
            *(_with_context(failure, lost, survey.replaced) for failure in totals.failures),
            *(changed_failure(item, lost) for item in survey.kept),
            *decided.aside.values(),
        ),
        snapshot=snapshot,
        repaired=tuple(sorted(repaired)),
        lost=tuple(sorted(still_lost)),
        replaced=tuple(sorted(replaced)),
        outdated=tuple(sorted(changed - replaced - still_lost)),
        relabelled=decided.relabelled,
        dropped=decided.left_out,
        equal_contents=equal_contents(manifest),
        not_for_gpus=not_for_gpus(manifest),
        lacking_frames=lacking_frames(manifest) if how.options.profile.fps is None else NONE_LACK_FRAMES,
        cut_off=cut_off(manifest),
        guessed_rates=guessed_rates(manifest),
        mixed_columns=mixed,
        text_columns=became_text,
        hiding_columns=hiding,
    )


def _made_again(before: Manifest, after: Manifest, ids: Collection[str]) -> set[str]:
    def revision(manifest: Manifest, video_id: str) -> int:
        return int(manifest.videos.revision[manifest.row_of(video_id)])

    return {video_id for video_id in ids if revision(after, video_id) > revision(before, video_id)}


def _with_context(failure: Failure, lost: Mapping[str, str], to_replace: Collection[str]) -> Failure:
    """The failure of a source that could not be prepared. If the dataset has a video of it, the reason also says which
    frames: `lost` says what is wrong with lost videos, `to_replace` are the ids of those whose sources changed."""
    if failure.id in lost:
        what = f"its frames in the dataset are lost: {lost[failure.id]}"
    elif failure.id in to_replace:
        what = "the dataset keeps the frames of the old file"
    else:
        return failure
    return replace(failure, reason=f"{failure.reason}; {what}")
