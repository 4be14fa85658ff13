"""Doing a step, in the process that calls it: a worker, or the driver without Ray.

A step that was done before finds its result, so a job that was killed goes on where it was. Whatever keeps the sections
of a long video from fitting together leads to Refused, and then the video is encoded whole.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import replace

from ...errors import OutputError, ToolError, UnreadableDataError
from ...manifests.dataset_files.parts import write_part
from ...manifests.dataset_files.sections import Unused, joined_sections, read_section, remove_sections, write_section
from ...manifests.tables import Manifest
from ...prep.encode_sections import encode_section
from ...prep.options import Options
from ...prep.section_survey import NotCutError
from ...prep.shards import ShardWriter
from ...prep.tools.pipelines import NoEncoderError
from ...prep.tools.tool_choice import choose_ffmpeg
from ...storage.interface import Storage
from ...storage.scratch import remove_abandoned
from ...whole_files import writing
from ..finding.fetched_sources import SourceFile, file_of, surveyed
from ..finding.store_files import NoRoomError
from ..units_of_work.steps import (
    Cut,
    Join,
    Look,
    MoreMemory,
    NoRoom,
    OneSection,
    Outcome,
    Refused,
    SectionDone,
    Sections,
    Step,
    Whole,
    copy_bytes,
)
from ..units_of_work.unit_results import OnProgress, UnitProgress, UnitResult
from ..units_of_work.units import Unit
from .work import (
    ANY_TERMS,
    FrameCount,
    MoreMemoryError,
    Terms,
    check_memory,
    check_unchanged,
    committed_result,
    in_files,
    is_of_the_machine,
    result_of,
    run_unit,
    unchanged,
    video_identity,
    with_revisions,
)


def run_step(
    dataset: Storage, step: Step, options: Options, on_progress: OnProgress, terms: Terms = ANY_TERMS
) -> Outcome:
    """Do a step in this process. OutputError and ToolError concern every source alike, and are raised."""
    with writing(dataset.url):
        # What is an error of one source has become its failure below.
        try:
            return _outcome(dataset, step, options, on_progress, terms)
        except MoreMemoryError as error:
            return MoreMemory(error.needed_bytes)
        except NoRoomError:
            return _no_room(step)
        except UnreadableDataError as error:
            # A machine that cannot look at the dataset cannot write to it either, as one without the network.
            raise OutputError(error.message, file=error.file) from error


def lacking_room(step: Step) -> NoRoom | None:
    """What to hand a step back with that would find no room here; None for one that may find it."""
    needed_bytes = copy_bytes(step)

    def lacks() -> bool:
        # Of a folder that is not there any more the copy says what is wrong.
        with contextlib.suppress(OSError):
            return needed_bytes > shutil.disk_usage(tempfile.gettempdir()).free
        return False

    if not needed_bytes or not lacks():
        return None
    # The copies of workers that were killed may take the room: this worker may be the one that replaces them.
    remove_abandoned()
    return _no_room(step) if lacks() else None


def _no_room(step: Step) -> NoRoom:
    # The copy is removed by now. A quota may allow less than is free.
    folder, needed_bytes = tempfile.gettempdir(), copy_bytes(step)
    disk = shutil.disk_usage(folder)
    return NoRoom(folder, min(disk.free, needed_bytes - 1) if needed_bytes else disk.free, disk.total)


def _outcome(dataset: Storage, step: Step, options: Options, on_progress: OnProgress, terms: Terms) -> Outcome:
    if isinstance(step, Whole):
        return run_unit(dataset, step.unit, options, on_progress, terms=terms)
    committed = committed_result(dataset, step.unit)
    if committed is not None:
        return committed
    if isinstance(step, Look):
        return _look(dataset, step.unit, options, on_progress, terms)
    try:
        if isinstance(step, OneSection):
            return _encode(dataset, step, options, on_progress)
        return _join(dataset, step, options)
    except Exception as error:  # one bad source must not fail the others; encoding it whole says why
        if is_of_the_machine(error, terms):
            raise
        return Refused()


def _look(dataset: Storage, unit: Unit, options: Options, on_progress: OnProgress, terms: Terms) -> Outcome:
    own = _for_sections(options)
    ffmpeg = choose_ffmpeg(own.profile, use_gpu=own.use_gpu)
    with contextlib.ExitStack() as stack:
        file: SourceFile | None = None
        try:
            file = stack.enter_context(file_of(dataset, unit.items[0].source, options.policy))
            check_unchanged(file, unit.items[0])
            needed_bytes = check_memory(file, own, terms.most_bytes) if unit.guesses_memory else None
            found = surveyed(file, own, ffmpeg.path)
        except Exception as error:  # as above; most often NotCutError
            if is_of_the_machine(error, terms):
                raise
            # What was fetched of the file need not be fetched again.
            return run_unit(dataset, unit, options, on_progress, file, terms=replace(terms, most_bytes=None))
    frames = sum(len(section.plan.grid) for section in found.sections)
    on_progress(UnitProgress(unit.id, 0, frames))
    return Sections(Cut(found.key, len(found.sections), found.dropped, found.repeated), found.sections, needed_bytes)


def _for_sections(options: Options) -> Options:
    """The options for what all sections of a video share. They need one encoder, and one ffmpeg that has it. A GPU that
    fails for one of them would leave it to another one."""
    return replace(options, use_gpu=False) if options.profile.encoder == "auto" else options


def _encode(dataset: Storage, step: OneSection, options: Options, on_progress: OnProgress) -> Outcome:
    name = _section_name(step.unit, step.cut, step.number)
    frames = len(step.section.plan.grid)
    if read_section(dataset, name) is not None:
        on_progress(UnitProgress(step.unit.id, frames, 0, step.number))
        return SectionDone()
    progress = FrameCount(step.unit.id, on_progress, step.number)
    profile = options.profile
    with contextlib.closing(ShardWriter(dataset, f"{step.unit.id}_{step.number}", profile.shard_bytes)) as shards:
        identity = video_identity(step.unit.items[0])
        try:
            own = _for_sections(options)
            ffmpeg = choose_ffmpeg(own.profile, use_gpu=own.use_gpu)
            item = step.unit.items[0]
            with file_of(dataset, item.source, options.policy) as file, unchanged(file, item):
                path = file.part(step.section.needed)
                rows = encode_section(path, step.section, identity, options, ffmpeg.path, shards, progress.add)
        except NoEncoderError:
            raise
        except ToolError as error:
            # Another machine chose the encoder.
            raise NotCutError(str(error)) from error
        files = shards.commit()
    rows, unused = in_files(rows, files)
    write_section(dataset, name, rows, unused)
    progress.report()
    return SectionDone()


def _join(dataset: Storage, step: Join, options: Options) -> UnitResult:
    unit, cut = step.unit, step.cut
    sections: list[Manifest] = []
    unused: Unused = {}
    for number in range(cut.sections):
        found = read_section(dataset, _section_name(unit, cut, number))
        if found is None:
            raise NotCutError(f"section {number} of {unit.items[0].source.given} is gone")
        sections.append(found[0])
        unused |= found[1]
    rows = with_revisions(unit, joined_sections(sections, dropped=cut.dropped, repeated=cut.repeated))
    write_part(dataset, unit.id, rows, options.profile.to_json(), unused=unused)
    remove_sections(dataset, unit.id)
    return result_of(unit, rows)


def _section_name(unit: Unit, cut: Cut, number: int) -> str:
    return f"{unit.id}-{cut.key}-{number}"
