"""The steps in which units are done, and what each may come to: a unit at once, or a long video in sections.

A long video takes a look at its source, a step for each section, and one that joins them. `step_work` does them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...prep.section_survey import Section
from ...prep.timing.stretch import Stretch
from .unit_results import UnitResult
from .units import Unit


@dataclass(frozen=True)
class Cut:
    """How a long video is cut. `key` differs for other cuts or other frames; `dropped` and `repeated` count source
    frames of the whole video."""

    key: str
    sections: int
    dropped: int
    repeated: int


@dataclass(frozen=True)
class Whole:
    """Encode a unit in one go."""

    unit: Unit


@dataclass(frozen=True)
class Look:
    """Look at the source of a long unit and cut it, or encode it at once."""

    unit: Unit


@dataclass(frozen=True, eq=False)
class OneSection:
    """Encode section `number`."""

    unit: Unit
    cut: Cut
    number: int
    section: Section


@dataclass(frozen=True)
class Join:
    """Make the part of a long unit of all its sections."""

    unit: Unit
    cut: Cut


@dataclass(frozen=True, eq=False)
class Sections:
    """The outcome of a look: the source is encoded in these sections, which take `needed_bytes` of memory each; None
    where that was known before, or is not known now."""

    cut: Cut
    sections: tuple[Section, ...]
    needed_bytes: int | None = None


@dataclass(frozen=True)
class SectionDone:
    """A section is in the dataset."""


@dataclass(frozen=True)
class Refused:
    """The video has to be encoded whole."""


@dataclass(frozen=True)
class MoreMemory:
    """The step takes so much memory, and was not done."""

    needed_bytes: int


@dataclass(frozen=True)
class NoRoom:
    """The machine has no room for the copy of a source in a store, and the step was not done. It has room for
    `most_bytes` in `folder` now, and never for more than `disk_bytes`. `node` is the machine's name."""

    folder: str
    most_bytes: int
    disk_bytes: int
    node: str = ""


Step = Whole | Look | OneSection | Join
Outcome = UnitResult | Sections | SectionDone | Refused | MoreMemory | NoRoom

GpuUse = Literal["needs", "uses", "may use", "leaves"]
"""Whether a step cannot do without a GPU, uses one that it has, uses one in some cases, or leaves GPUs alone."""


def gpu_use(kind: type[Step], encoder: str) -> GpuUse:
    """What steps of a kind do with a GPU, in a profile that names this encoder."""
    if kind is Join or encoder.startswith("lib"):
        return "leaves"
    if encoder != "auto":
        return "needs"
    # A look that finds that the video cannot be cut encodes it whole. Of a section a GPU takes the decoding alone.
    return "uses" if kind is Whole else "may use"


def copy_bytes(step: Step) -> int:
    """How much room the copies of sources in stores take that a step makes, one at a time; 0 where that is not known
    beforehand, because a part of a file may do."""
    in_stores = [item for item in step.unit.items if item.source.in_store is not None]
    if in_stores and isinstance(step, OneSection):
        needed = step.section.needed
        return 0 if needed is None else sum(stop - start for start, stop in needed.ranges)
    if not isinstance(step, Whole):
        return 0
    return max((item.size_bytes for item in in_stores if not isinstance(item.source.part, Stretch)), default=0)
