"""What the page says, as values: nothing here reads a file, and nothing here is HTML."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..jobs.progress.job_history import TimeStretch
from ..jobs.progress.job_status import JobStatus
from ..prep.picture_quality import Quality
from ..wording import duration, whole
from .content_summary import Contents
from .page_words import how_many, moment, name

Mood = Literal["good", "running", "warning", "bad", "unknown"]


@dataclass(frozen=True)
class Picture:
    """A JPEG, `width` x `height` pixels, and what it shows in words."""

    data: bytes
    width: int
    height: int
    shows: str


@dataclass(frozen=True)
class Strip:
    """Some frames of a clip. `about` says what they are frames of. Without pictures, `trouble` says why."""

    pictures: tuple[Picture, ...] = ()
    about: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class Clip:
    """A clip of a video in the dataset, and the same frames of its source. `quality` is that of these frames, or says
    why it was not measured; "" where that is said otherwise."""

    video: str
    labels: str
    stored: Strip
    source: Strip
    quality: Quality | str = ""


@dataclass(frozen=True)
class Verdict:
    """Whether the job went well, in a sentence, and what else to know about that."""

    mood: Mood
    sentence: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """A dataset as it was found. `snapshot` is "" before the first one. `lost_videos` cannot be read, because shards
    are missing or damaged. `status_changed` is when a running job last wrote its status, in seconds since 1970 by the
    clock of the disk or the store; None if not known. Without a status, `no_status` says why."""

    place: str
    snapshot: str
    format_version: int
    profile: Mapping[str, Any]
    contents: Contents
    lost_videos: int = 0
    status: JobStatus | None = None
    status_changed: float | None = None
    no_status: str = ""


@dataclass(frozen=True)
class Sizes:
    """Bytes of finished sources, and of what was made of them."""

    sources: int
    made: int
    num_sources: int
    failed: int


@dataclass(frozen=True)
class Page:
    """All that the page says. `written` is its time in seconds since 1970. `sizes` is None where no job has
    recorded how large sources were. `clips_left_out` says why there are no clips, or fewer than were asked for."""

    dataset: Dataset
    verdict: Verdict
    sizes: Sizes | None
    history: tuple[TimeStretch, ...]
    clips: tuple[Clip, ...]
    clips_left_out: str
    written: float


def plan_page(dataset: Dataset, clips: tuple[Clip, ...], clips_left_out: str, now: float) -> Page:
    """The page about a dataset, at the time `now` in seconds since 1970."""
    status = dataset.status
    history = tuple(each for each in status.history if each.seconds > 0) if status else ()
    verdict = verdict_of(dataset, now)
    unreadable = sum(bool(clip.stored.trouble) for clip in clips)
    if unreadable:
        said = f"{unreadable} of {how_many(len(clips), 'random clip')} cannot be read"
        verdict = Verdict("bad", said, (verdict.sentence, *verdict.details, "`shortgop verify` finds all such videos"))
    return Page(dataset, verdict, sizes_of(status), history, clips, clips_left_out, now)


def median_quality(clips: Sequence[Clip]) -> tuple[int, Quality] | None:
    """How many clips were measured, and the medians of their qualities, with the frames of all of them. None if no clip
    was measured."""
    found = [clip.quality for clip in clips if isinstance(clip.quality, Quality)]
    if not found:
        return None
    psnr_db, ssim = statistics.median(each.psnr_db for each in found), statistics.median(each.ssim for each in found)
    return len(found), Quality(psnr_db, ssim, sum(each.frames for each in found))


def sizes_of(status: JobStatus | None) -> Sizes | None:
    """What jobs recorded of the sources' sizes: all jobs whose history was kept, or else the last one."""
    if status is None:
        return None
    done = status.history
    if not done:
        sums = (status.bytes_in, status.bytes_out, status.sources_done, status.sources_failed)
    else:
        sums = (
            sum(each.bytes_in for each in done),
            sum(each.bytes_out for each in done),
            sum(each.sources for each in done),
            sum(each.failed for each in done),
        )
    return Sizes(*sums) if sums[0] > 0 else None


def verdict_of(dataset: Dataset, now: float) -> Verdict:
    """Whether the job went well."""
    failed = dataset.contents.failures.count
    missing = [f"{how_many(failed, 'source')} {'is' if failed == 1 else 'are'} not in the dataset; reasons below"]
    details = (*(missing if failed else []), *_about_snapshot(dataset))
    job = _of_job(dataset, now)
    if dataset.lost_videos:
        lost = f"{how_many(dataset.lost_videos, 'video')} cannot be read: shards are missing or damaged"
        remedy = "`shortgop prep` on the same sources makes them again"
        return Verdict("bad", lost, (remedy, job.sentence, *job.details, *details))
    return Verdict(job.mood, job.sentence, (*job.details, *details))


def _about_snapshot(dataset: Dataset) -> list[str]:
    if not dataset.snapshot:
        return ["there is no snapshot yet"]
    runs = dataset.status is not None and dataset.status.state == "running"
    return [f"what is said of the dataset is of snapshot {name(dataset.snapshot)}; the job is further"] if runs else []


def _of_job(dataset: Dataset, now: float) -> Verdict:
    status = dataset.status
    if status is None:
        mood: Mood = "warning" if dataset.contents.failures.count else "unknown"
        return Verdict(mood, "No job has recorded how it went", (dataset.no_status,) if dataset.no_status else ())
    if status.state == "running":
        return _running(status, now, dataset.status_changed)
    return _over(status, dataset.contents.num_videos)


def _running(status: JobStatus, now: float, changed: float | None) -> Verdict:
    failures = [_failed(status)] if status.sources_failed else []
    who = f"process {status.pid} on {name(status.host)}, since {moment(status.started)}"
    if status.has_died:
        dead = f"{_done(status)}; the same command goes on from there"
        return Verdict("warning", "A job was running, and its process has died", (dead, *failures, who))
    if status.may_be_dead(now, changed):
        silent = duration(status.silent_seconds(now, changed))
        sentence = f"A job was running, and has not been heard of for {silent}"
        dead = f"{_done(status)}; it may be dead, unless clocks of machines differ: the same command goes on from there"
        return Verdict("warning", sentence, (dead, *failures, who))
    note = [f"now: {name(status.note)}"] if status.note else []
    return Verdict("running", f"A job is running: {_done(status)}{status.time_left}", (*failures, *note, who))


def _over(status: JobStatus, num_videos: int) -> Verdict:
    seconds = status.written - status.started
    took = f"it took {duration(seconds)}, until {moment(status.written)}, on {name(status.host)}"
    if status.state != "finished":
        return Verdict("bad", "The last job ended before it was done", (name(status.reason), _done(status), took))
    if not status.sources_failed:
        return Verdict("good", f"The job finished: {_all_sources(status)}", (*_there_before(status), took))
    if not num_videos:
        return Verdict("bad", f"The job finished, and the dataset has no video: {_failed(status)}", (took,))
    return Verdict("warning", f"The job finished: {_failed(status)}", (took,))


def _all_sources(status: JobStatus) -> str:
    count = status.sources_total + status.sources_there
    if not count:
        return "nothing was left to do"
    return "its source is in the dataset" if count == 1 else f"all {whole(count)} sources are in the dataset"


def _there_before(status: JobStatus) -> list[str]:
    if not status.sources_there:
        return []
    there, prepared = how_many(status.sources_there, "source"), whole(status.sources_total)
    verb = "was" if status.sources_there == 1 else "were"
    return [f"{there} {verb} in the dataset before, and the job prepared {prepared}"]


def _done(status: JobStatus) -> str:
    of_all = how_many(status.sources_total, "source")
    return f"{whole(status.sources_done)} of {of_all} done{status.there_before(grouped=True)}"


def _failed(status: JobStatus) -> str:
    of_all = how_many(status.sources_total, "source")
    return f"{whole(status.sources_failed)} of {of_all} failed{status.there_before(grouped=True)}"
