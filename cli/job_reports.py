"""Reports for people: the result of a job, and the tools of a machine. For `prep`, `verify --repair` and `doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from rich.table import Table

from ..wording import byte_size, counted
from .printing import PlainConsole, cell

if TYPE_CHECKING:
    from ..jobs import outcome as job
    from ..jobs.units_of_work.unit_results import Failure
    from ..manifests.equal_contents import EqualContents
    from ..manifests.operations.lost_root import RestoredRoot
    from ..manifests.operations.recovery import Recovered
    from ..prep.tools.doctor import Diagnosis
    from ..readers.decoder_trial import DecoderTrial

_IDS_SHOWN = 10
_PAIRS_SHOWN = 3
# Of all failures, and of those for reasons of one kind: of a list with wrong paths all fail alike.
_FAILURES_SHOWN = 20
_OF_A_KIND_SHOWN = 5


def print_report(report: job.Report, dataset: str, out: PlainConsole, err: PlainConsole) -> None:
    """Print what was done on standard output, and what failed on standard error."""
    for line in (*_failures(report, dataset), *_problems(report)):
        err.print_line(line, style="yellow")
    for line in _results(report, dataset):
        out.print_line(line)


def show_types(file: str, types: Mapping[str, str]) -> None:
    """Print the types of a list's columns on standard error."""
    from ..jobs.finding.column_types import types_text
    from .app import err

    err.print_line(types_text(file, types))


def _failures(report: job.Report, dataset: str) -> Iterator[str]:
    """A line for each failure; if there are many, for some of each kind."""
    outdated = set(report.outdated)
    shown = _some_of_each_kind(report.failures) if len(report.failures) > _FAILURES_SHOWN else report.failures
    for failure in shown:
        what = "not replaced" if failure.id in outdated else "not in the dataset"
        yield f"{what}: {failure.id}: {failure.reason}"
    if more := len(report.failures) - len(shown):
        listing = "--json lists all"
        if report.planned is None:
            listing = f"`shortgop info {quote(dataset)}` lists those that are not in the dataset, {listing}"
        yield f"and {more} more: {listing}"


def _some_of_each_kind(failures: Sequence[Failure]) -> list[Failure]:
    from ..reporting.failure_groups import kind_of_reason

    some: list[Failure] = []
    of_kind: Counter[str] = Counter()
    for failure in failures:
        kind = kind_of_reason(failure.reason, failure.id, failure.source, failure.path)
        of_kind[kind] += 1
        if of_kind[kind] <= _OF_A_KIND_SHOWN:
            some.append(failure)
            if len(some) == _FAILURES_SHOWN:
                break
    return some


def _problems(report: job.Report) -> list[str]:
    lines = []
    if report.found_no_source:
        lines.append(
            f"none of the {report.sources} sources is there: if the paths of a list begin in another folder than its "
            "own, name that folder with --list-root"
        )
    said = {failure.id for failure in report.failures}
    rest = [video_id for video_id in report.lost if video_id not in said]
    if rest:
        lines.append(
            f"{counted(len(rest), 'video')} cannot be read because shards are missing or damaged: {some_of(rest)}; "
            "give the sources to make them again, or copy the shards to the dataset again"
        )
    lines += map(str, (*report.mixed_columns, *report.text_columns, *report.hiding_columns))
    lacking = report.lacking_frames
    if report.videos_added and lacking.videos:
        shown = ", ".join(f"{video_id} ({counted(frames, 'frame')})" for video_id, frames in lacking.shown)
        more = f" and {lacking.videos - len(lacking.shown)} more" if lacking.videos > len(lacking.shown) else ""
        verb = "lacks" if lacking.videos == 1 else "lack"
        lines.append(
            f"{counted(lacking.videos, 'video')} of the dataset {verb} many frames of the source, which refer to "
            f"frames that were cut off, were damaged, had wrong times or nearly coincide: {shown}{more}; `shortgop "
            "info` lists what differs"
        )
    if report.videos_added and report.cut_off:
        what = "its source is" if len(report.cut_off) == 1 else "their sources are"
        lines.append(
            f"{counted(len(report.cut_off), 'video')} of the dataset may lack an end, as {what} shorter than the "
            f"file's header says (cut off, or not wholly copied): {some_of(report.cut_off)}"
        )
    if report.videos_added and report.guessed_rates:
        what = "its source does not say" if len(report.guessed_rates) == 1 else "their sources do not say"
        lines.append(
            f"{counted(len(report.guessed_rates), 'video')} of the dataset may be too slow or too fast, as {what} how "
            f"many frames there are in a second, and 25 were taken: {some_of(report.guessed_rates)}; if that is wrong, "
            "give OUT.mp4 of `ffmpeg -r RATE -i FILE -c copy OUT.mp4`"
        )
    no_gpu = report.not_for_gpus
    if report.videos_added and no_gpu.videos:
        lines.append(
            f"{counted(no_gpu.videos, 'video')} of the dataset cannot be decoded by a GPU, as NVDEC takes other sizes "
            f"({no_gpu.why}); to read them on a GPU, prepare them with another --size or --codec"
        )
    return lines


def _planned(planned: job.Planned) -> Iterator[str]:
    """What a dry run says of what would be prepared."""
    if planned.job_runs:
        yield "a job writes to the dataset now; of that only what it has published counts as done"
    if not planned.sources:
        yield "would prepare nothing"
        return
    again = f", {planned.made_again} of them for videos that the dataset has" if planned.made_again else ""
    yield f"would prepare {counted(planned.sources, 'source')}, {byte_size(planned.source_bytes)}{again}"
    if planned.replaced:
        yield f"{counted(len(planned.replaced), 'video')} would be replaced: {some_of(planned.replaced)}"
    if planned.frames:
        few = planned.sources_with_frames < planned.sources
        of = f" in the {planned.sources_with_frames} whose headers tell it" if few else ""
        yield f"about {counted(planned.frames, 'frame')}{of}"
    if planned.silent:
        one = len(planned.silent) == 1
        why = "its header does not say that it is a video" if one else "their headers do not say that they are videos"
        yield f"{counted(len(planned.silent), 'source')} may fail, as {why}: {some_of(planned.silent)}"
    if planned.failed_before:
        yield f"{counted(len(planned.failed_before), 'source')} failed before: {some_of(planned.failed_before)}"
    if planned.bytes is None:
        yield "how much room they take: prepare some of them first, and --dry-run tells it of the others"
    else:
        room = f"about {byte_size(planned.bytes)} in the dataset"
        yield f"{room}, if these sources are like those of the jobs before"


def _results(report: job.Report, dataset: str) -> list[str]:
    lines = [] if report.planned is None else [*_planned(report.planned)]
    if report.repaired:
        lines.append(
            f"{counted(len(report.repaired), 'video')} made again because shards were missing or damaged: "
            f"{some_of(report.repaired)}"
        )
    if report.replaced:
        lines.append(
            f"{counted(len(report.replaced), 'video')} replaced from changed sources: {some_of(report.replaced)}"
        )
    if report.videos_added:
        rate = report.frames_added / report.seconds if report.seconds else 0
        lines.append(
            f"{counted(report.videos_added, 'video')}, {counted(report.frames_added, 'frame')}, "
            f"{byte_size(report.bytes_added)} added to {dataset} in {report.seconds:.1f} s from start to end "
            f"({rate:.0f} frames/s)"
        )
    if report.relabelled:
        got = "got" if report.planned is None else "would get"
        lines.append(
            f"{counted(report.relabelled, 'video')} already in the dataset {got} new columns: the list's values, over "
            "those that they had"
        )
    if report.dropped:
        was, them = ("it was", "it") if len(report.dropped) == 1 else ("they were", "them")
        lines.append(
            f"{counted(len(report.dropped), 'source')} left out because {was} dropped: {some_of(report.dropped)}; "
            f"--include-dropped takes {them} in again"
        )
    there = f"{report.already_there} of {counted(report.sources, 'source')} already in the dataset"
    rest = [there] if report.already_there else []
    failed = len(report.failures) - len(report.outdated)
    if failed:
        rest.append(f"{failed} could not be prepared" if report.planned is None else f"{failed} cannot be prepared")
    if report.outdated:
        rest.append(f"{len(report.outdated)} changed and not replaced")
    if rest or not lines:
        lines.append("; ".join(rest or ["nothing to do"]))
    if report.planned is not None:
        lines.append("nothing was changed; damage within files shows only when they are encoded")
    return [*lines, *_equal(report.equal_contents)]


def _equal(equal: EqualContents) -> list[str]:
    if not equal.videos:
        return []
    shown = equal.pairs[:_PAIRS_SHOWN]
    pairs = ", ".join(f"{again} is {first}" for first, again in shown)
    more = f" and {equal.videos - len(shown)} more" if equal.videos > len(shown) else ""
    verb = "has" if equal.videos == 1 else "have"
    return [f"{counted(equal.videos, 'video')} {verb} the same content as another one under another id: {pairs}{more}"]


def root_lines(done: RestoredRoot) -> list[str]:
    """What is said of a zarr.json that was made again."""
    lines = [f"{done.why}; made again: it names snapshot {done.snapshot}"]
    if done.id_roots:
        lines.append(f"by the paths of its videos, files get their ids below {some_of(done.id_roots)}")
    if done.kept:
        lines.append(f"the damaged one is kept as {done.kept}: nothing reads it")
    return lines


def recovery_lines(done: Recovered) -> list[str]:
    """What is said of a snapshot that was made again."""
    of = f"of {counted(done.parts, 'part')}: {counted(done.videos, 'video')}"
    lines = [f"snapshot {done.damaged} was lost or damaged ({done.why}); made again as {done.snapshot} {of}"]
    if done.lacking:
        lines.append(f"without what was in {counted(len(done.lacking), 'lost file')}: {some_of(done.lacking)}")
    if done.kept:
        lines.append(f"kept as {some_of(done.kept)}: nothing reads them; remove them when you do not need them")
    return lines


def some_of(ids: Sequence[str]) -> str:
    """The first ids, and how many more there are."""
    return ", ".join(ids[:_IDS_SHOWN]) + (f" and {len(ids) - _IDS_SHOWN} more" if len(ids) > _IDS_SHOWN else "")


def print_diagnosis(
    diagnosis: Diagnosis, decoders: Sequence[DecoderTrial], versions: Mapping[str, str], out: PlainConsole
) -> None:
    """Print which tools of this machine run, and which would be used."""
    table = Table("what", "runs", "detail")
    for ffmpeg in diagnosis.ffmpegs:
        codecs = [each.codec for each in diagnosis.capabilities if each.path == ffmpeg.path]
        used = "used" if len(codecs) == len(diagnosis.capabilities) else f"used for {', '.join(codecs)}"
        chosen = used if codecs or ffmpeg.path == diagnosis.chosen else "not needed"
        detail = ffmpeg.problem or f"{chosen}, version {ffmpeg.version}"
        table.add_row(f"ffmpeg ({ffmpeg.origin})", _yes(not ffmpeg.problem), cell(detail))
    trials = [(trial.name, trial.works, trial.detail) for trial in diagnosis.trials]
    for name, works, detail in [*trials, *((d.name, d.works, d.detail) for d in decoders)]:
        table.add_row(name, _yes(works), cell(detail))
    for library, loads in diagnosis.nvidia_libraries.items():
        table.add_row(library, _yes(loads), "loads" if loads else "not on this machine")
    out.print(table)
    driver = f", driver {diagnosis.driver}" if diagnosis.driver else ""
    out.print_line("GPU: " + (", ".join(diagnosis.gpus) or "the NVIDIA driver lists none") + driver)
    for ffmpeg in diagnosis.ffmpegs:
        out.print_line(f"ffmpeg of {ffmpeg.origin}: {ffmpeg.path}")
    for codec, choice in diagnosis.choices.items():
        out.print_line(f"{codec} is encoded with {choice}")
    for line in diagnosis.advice:
        out.print_line(line)
    out.print_line(", ".join(f"{name} {version}" for name, version in versions.items()))


def _yes(works: bool) -> str:
    return "yes" if works else "no"
