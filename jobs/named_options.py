"""`shortgop.prepare`: a job whose options are given by name. The command `shortgop prep` says itself what failed, and
calls `prepare_without_warning`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, cast

from ..arguments import exact_seconds, integer, is_boolean
from ..errors import WrongTypeError
from ..manifests.dataset_files.tidy import parse_duration
from ..prep.options import Number, named_policy
from ..prep.profile import ENCODERS, changed_profile, named_profile, parse_fps, parse_size
from ..storage.locate import storage_at
from ..storage.network import OF_A_JOB
from ..warned import warn
from ..wording import counted
from .dataset_profile import existing_profile
from .finding.importing import cuts_text, importing_of
from .finding.places import text_of, without_scheme
from .finding.typed_lines import OnTypes, ignore_types
from .outcome import Report
from .prepare import prepare as run_job
from .progress.tally import OnProgress, ignore
from .sources.failing import parse_max_failures
from .units_of_work.gpu_slots import DEFAULT_STREAMS_PER_GPU
from .units_of_work.where import Where

StrPath = str | os.PathLike[str]
_Options = ParamSpec("_Options")

# Options that are no field of a profile as they are: which field each sets, and to what.
_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "fps": ("fps", lambda value: parse_fps(_rate_text(value))),
    "size": ("size", lambda value: parse_size(_size_text(value))),
    "gop": ("gop_frames", lambda value: integer(value, "--gop")),
    "b_frames": ("b_frames", lambda value: integer(value, "--b-frames")),
    "crf": ("crf", lambda value: integer(value, "--crf")),
    "segment_seconds": ("segment_seconds", lambda value: exact_seconds(value, "--segment-seconds")),
    "shard_mb": ("shard_bytes", lambda value: integer(value, "--shard-mb") * 1_000_000),
}


def prepare_without_warning(
    sources: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    profile: str | None = None,
    fps: Number | None = None,
    size: int | str | tuple[int, int] | None = None,
    fit: str | None = None,
    upscale: bool | None = None,
    deinterlace: str | None = None,
    gop: int | None = None,
    b_frames: int | None = None,
    codec: str | None = None,
    encoder: str | None = None,
    crf: int | None = None,
    preset: str | None = None,
    fastdecode: bool | None = None,
    segment_seconds: Number | None = None,
    shard_mb: int | None = None,
    salvage: bool = False,
    gaps: str = "fail",
    max_gap: Number = 10,
    max_stall: Number = 120,
    changed: str = "keep",
    id_root: StrPath | None = None,
    cuts: str | tuple[str, ...] | None = None,
    list_root: StrPath | None = None,
    image_fps: Number | None = None,
    include_dropped: bool = False,
    max_failures: int | str | None = None,
    retry_failed: bool = False,
    types: Mapping[str, str] | None = None,
    check: bool = False,
    address: str | None = None,
    workers: int | None = None,
    runner: str = "ray",
    streams_per_gpu: int = DEFAULT_STREAMS_PER_GPU,
    keep_snapshots: str | int = "1d",
    dry_run: bool = False,
    on_types: OnTypes = ignore_types,
    on_recognised: Callable[[str], None] | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Re-encode `sources` into the dataset at `out`: what `shortgop prep` does, with its options under their names.

    `sources` are video files, folders, globs and lists, one or several. Videos that are in the dataset already are left
    alone. An option of the encoding (`profile` to `shard_mb`) that is None has its value in the dataset, in a new one
    that of the profile "fast". `fps` is "source" or a rate, `size` "source", a short side or (width, height),
    `segment_seconds`, `max_gap` and `max_stall` are seconds, and `keep_snapshots` is a text such as "30m", or 0.
    `max_failures` is a number of sources, or a part of them such as "5%". `types` gives the types of columns of CSV
    lists that are not to be inferred ("text", "integer", "float", "boolean", "json"), and `on_types` is called with
    each list and the types of its columns. `cuts` names the columns of a list with the times of stretches, "start,end",
    or with their frames, "start,end,frames", `list_root` is the folder or URL in which relative paths of lists begin,
    by default each list's own folder, and `image_fps` is the rate of folders and lists of pictures;
    `on_recognised` is called with a text for each source that is a dataset of another tool, and if folders have labels
    that are not read. Each GPU prepares `streams_per_gpu` sources at a time; with 0 no GPU is used.
    `on_progress` is called with a `Progress` often; what it raises ends the job. With `dry_run` nothing is changed, and
    the report says what would be done, in `planned`.

    The report lists sources that could not be prepared. They raise nothing; `shortgop.prepare` gives a DatasetWarning
    with their number. Raises UsageError for options and sources that make no sense, SourceError if a folder of sources
    does not answer, or if sources have changed and `changed` is "fail", OutputError if the dataset cannot be written,
    ToolError if ffmpeg or an encoder is missing, DatasetBusyError if another job writes to the dataset,
    TooManyFailuresError if more sources failed than `max_failures`. Finished work is kept, and the same call goes on
    from there.
    """
    salvage, include_dropped = _flag(salvage, "salvage"), _flag(include_dropped, "include_dropped")
    retry_failed, check = _flag(retry_failed, "retry_failed"), _flag(check, "check")
    dry_run = _flag(dry_run, "dry_run")
    where = Where(runner, address, workers, streams_per_gpu)
    given = _fields(
        fps=fps, size=size, fit=fit, upscale=upscale, deinterlace=deinterlace, gop=gop, b_frames=b_frames,
        codec=codec or ENCODERS.get(encoder or "auto"), encoder=encoder, crf=crf, preset=preset, fastdecode=fastdecode,
        segment_seconds=segment_seconds, shard_mb=shard_mb,
    )  # fmt: skip
    policy = named_policy(salvage=salvage, gaps=gaps, max_gap=max_gap, max_stall=max_stall)
    rate = None if image_fps is None else _rate_text(image_fps, "--image-fps")
    named_root = None if list_root is None else text_of(list_root)
    importing = importing_of(cuts_text(cuts), rate, on_recognised, named_root)
    keep_seconds = parse_duration(str(keep_snapshots))
    dataset = storage_at(out, network=OF_A_JOB)
    named = {} if profile is None else named_profile(profile, given.get("codec"))
    encoding = changed_profile(existing_profile(dataset), named | given)
    return run_job(
        _texts(sources),
        dataset,
        encoding,
        policy=policy,
        importing=importing,
        where=where,
        keep_snapshots_seconds=keep_seconds,
        check=check,
        changed=cast("Any", changed),
        id_root=None if id_root is None else without_scheme(text_of(id_root)),
        include_dropped=include_dropped,
        max_failures=parse_max_failures(max_failures),
        retry_failed=retry_failed,
        types=types,
        dry_run=dry_run,
        on_types=on_types,
        on_update=on_progress or ignore,
    )


def _warning_of_failures(run: Callable[_Options, Report]) -> Callable[_Options, Report]:
    """`run` under the name `prepare`, with a DatasetWarning where sources failed, the values of a column are of several
    types since, or it hides one of the dataset's own: whoever does not look at the report would train on something
    else."""

    names = list(signature(run).parameters)

    @wraps(run)
    def prepare(*args: _Options.args, **kwargs: _Options.kwargs) -> Report:
        for name in kwargs:
            if name not in names:
                begun = [each for each in names if name.startswith(each) or each.startswith(name)]
                near = begun or difflib.get_close_matches(name, names)
                raise WrongTypeError(
                    f"prepare has no parameter {name!r}"
                    + (f"; there is {', '.join(near)}" if near else "; its docstring names all")
                )
        report = run(*args, **kwargs)
        if report.failures:
            warn(_failures_text(report))
        for changed in (*report.mixed_columns, *report.text_columns, *report.hiding_columns):
            warn(str(changed))
        return report

    prepare.__name__ = prepare.__qualname__ = "prepare"
    return prepare


prepare = _warning_of_failures(prepare_without_warning)


def _failures_text(report: Report) -> str:
    failures, outdated = report.failures, len(report.outdated)
    failed = len(failures) - outdated
    verb = "could not" if report.planned is None else "cannot"
    counts = [f"{failed} of {counted(report.sources, 'source')} {verb} be prepared"] if failed else []
    counts += [f"{counted(outdated, 'source')} changed and not replaced"] if outdated else []
    more = "all are" if len(failures) > 1 else "that is"
    begin = "; the paths of a list may begin in another folder: list_root names it" if report.found_no_source else ""
    return (
        f"{', '.join(counts)}: {failures[0].id}: {failures[0].reason} ({more} in `failures` of the report that "
        f"shortgop.prepare returns){begin}"
    )


def _flag(value: Any, option: str) -> bool:
    """A boolean of Python, numpy or torch. WrongTypeError for anything else, also for an array of them."""
    if not is_boolean(value) or getattr(value, "ndim", None):
        raise WrongTypeError(f"{option} is {value!r}; it has to be True or False")
    return bool(value)


def _texts(sources: Any) -> list[str]:
    """The sources that a caller gives, one or several. WrongTypeError for what is no path."""
    if hasattr(sources, "columns"):
        # Its items would be names of columns.
        raise WrongTypeError(
            f"sources is a {type(sources).__name__}; write it as a Parquet or CSV list and give its path"
        )
    is_one = isinstance(sources, str | bytes | os.PathLike)
    try:
        # What has no __iter__ may be a sequence.
        several = iter([sources] if is_one else sources)
    except TypeError:
        several = iter([sources])
    return [text_of(source) for source in several]


def _fields(**options: Any) -> dict[str, Any]:
    """The fields of a profile that these options set. Those that are None are left out."""
    fields: dict[str, Any] = {}
    for option, value in options.items():
        if value is not None:
            field, read = _FIELDS.get(option, (option, _as_is))
            fields[field] = read(value)
    return fields


def _as_is(value: Any) -> Any:
    return value


def _rate_text(value: Number, option: str = "--fps") -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction | str):
        raise WrongTypeError(f"{option} is {value!r}; it has to be a number" + " or 'source'" * (option == "--fps"))
    return str(value)


def _size_text(size: int | str | tuple[int, int]) -> str:
    return "x".join(map(str, size)) if isinstance(size, tuple | list) else str(size)
