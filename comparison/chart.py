"""Horizontal bars side by side, as a picture drawn by matplotlib, which the extra `bench` installs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ToolError
from ..manifests.operations.output_files import check_output, new_file
from .estimates import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".pdf", ".png", ".svg")
_INCHES_WIDE, _INCHES_PER_BAR, _INCHES_PER_TITLE = 10.0, 0.28, 0.45
_DOTS_PER_INCH = 100
_OURS, _OTHERS = "#14785a", "#96a5b9"
_ROOM_FOR_TEXT = 1.25  # of the longest bar
_NO_MATPLOTLIB = "a chart needs matplotlib: pip install 'shortgop[bench]', or matplotlib alone"


@dataclass(frozen=True)
class Bar:
    """One reader: its value with the ends of its interval, and the text behind it."""

    label: str
    value: Estimate
    text: str
    ours: bool = False


@dataclass(frozen=True)
class Group:
    """Bars that share a scale; shorter is better."""

    title: str
    bars: tuple[Bar, ...]


def check_chart(path: Path, *, overwrite: bool, sources: Iterable[str] = ()) -> None:
    """Raise what `write_chart` would raise, before anything is measured; nothing is written."""
    check_output(path, suffixes=SUFFIXES, overwrite=overwrite, sources=sources)
    try:
        import_module("matplotlib")
    except ImportError:
        raise ToolError(_NO_MATPLOTLIB) from None


def write_chart(
    groups: Sequence[Group],
    path: Path,
    *,
    title: str,
    note: str,
    overwrite: bool = False,
    sources: Iterable[str] = (),
) -> None:
    """Draw groups below each other into a file, a new one unless told to `overwrite`.

    The suffix of `path` decides the format, one of SUFFIXES. ToolError where matplotlib is missing; UsageError and
    OutputError as `manifests.operations.output_files.check_output` raises them, then `path` is as it was before.
    """
    check_chart(path, overwrite=overwrite, sources=sources)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    heights = [len(group.bars) + _INCHES_PER_TITLE / _INCHES_PER_BAR for group in groups]
    size = (_INCHES_WIDE, max(1.0, _INCHES_PER_BAR * sum(heights) + 2 * _INCHES_PER_TITLE))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title)
    figure.supxlabel(note, fontsize="small", color="grey")
    if groups:
        all_axes = figure.subplots(len(groups), 1, height_ratios=heights, squeeze=False)
        for axes, group in zip(all_axes[:, 0], groups, strict=True):
            _draw(axes, group)
    # Text in an SVG stays text, which can be searched.
    with new_file(path, overwrite=overwrite) as temporary, rc_context({"svg.fonttype": "none"}):
        figure.savefig(temporary, format=path.suffix.lower()[1:], dpi=_DOTS_PER_INCH)


def _draw(axes: Axes, group: Group) -> None:
    places = range(len(group.bars))
    values = [bar.value for bar in group.bars]
    errors = (
        [value.value - value.low for value in values],
        [value.high - value.value for value in values],
    )
    colours = [_OURS if bar.ours else _OTHERS for bar in group.bars]
    axes.barh(places, [value.value for value in values], xerr=errors, color=colours, height=0.7, capsize=2)
    for place, bar in zip(places, group.bars, strict=True):
        axes.annotate(bar.text, (bar.value.high, place), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(places, [bar.label for bar in group.bars])
    axes.set_xlim(0, _ROOM_FOR_TEXT * max((value.high for value in values), default=1.0))
    axes.invert_yaxis()
    axes.set_title(group.title, loc="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
