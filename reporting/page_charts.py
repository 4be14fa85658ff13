"""Charts as inline SVG and CSS. An SVG here has shapes alone, which stretch with the page; its labels are HTML beside
it, so that they stay readable on a narrow screen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..jobs.progress.job_history import TimeStretch
from ..wording import byte_size, duration, three_digits, whole
from .content_summary import GopBytes, Shares
from .page_markup import Html, joined, tag
from .page_words import how_many, moment

_WIDTH, _HEIGHT = 1000.0, 100.0
# Where one job ends and another begins, some width is left free, of all of it together at most a part.
_GAP_WIDTH, _MOST_FOR_GAPS = 6.0, 0.25
_NEW_JOB_SECONDS = 2.0
# Without the one at 0.
_MOST_TICKS = 4


def nice_ticks(largest: float) -> list[float]:
    """Round values from 0 on, the last of which is `largest` or above."""
    if largest <= 0:
        return [0.0, 1.0]
    power, least = 10.0 ** math.floor(math.log10(largest / _MOST_TICKS)), largest * (1 - 1e-9)
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10, 20) if factor * power * _MOST_TICKS >= least)
    return [step * number for number in range(math.ceil(least / step) + 1)]


def throughput_chart(history: Sequence[TimeStretch]) -> Html:
    """Frames/s over time. The time between two jobs is left out. Marks below say where sources failed."""
    rates = [max(0.0, each.frames / each.seconds) for each in history]
    ticks = nice_ticks(max(rates))
    begins = [
        number > 0 and each.start - history[number - 1].stop > _NEW_JOB_SECONDS for number, each in enumerate(history)
    ]
    gap = min(_GAP_WIDTH, _MOST_FOR_GAPS * _WIDTH / max(1, sum(begins)))
    width_of_second = (_WIDTH - gap * sum(begins)) / sum(each.seconds for each in history)
    shapes, x = [], 0.0
    for stretch, rate, begins_anew in zip(history, rates, begins, strict=True):
        x += gap if begins_anew else 0.0
        width, height = stretch.seconds * width_of_second, _HEIGHT * rate / ticks[-1]
        failed = f", {stretch.failed} failed" if stretch.failed else ""
        hint = tag(
            "title",
            f"{moment(stretch.start)}, {duration(stretch.seconds)}: {three_digits(rate)} frames/s, "
            f"{how_many(stretch.sources, 'source')} finished{failed}",
        )
        shapes.append(_rect(hint, "value", x=x, y=_HEIGHT - height, width=width, height=height))
        if stretch.failed:
            shapes.append(_rect(hint, "failed", x=x, y=_HEIGHT + 2, width=max(width, 3.0), height=6))
        x += width
    restarts = sum(begins)
    between = f" ({how_many(restarts, 'break')} between jobs left out)" if restarts else ""
    worked = f"{duration(sum(each.seconds for each in history))} of work{between}"
    return _chart(
        shapes, ticks, "frames/s", [moment(history[0].start), worked, moment(history[-1].stop)], height=_HEIGHT + 8
    )


def gop_chart(found: GopBytes) -> Html:
    """How many GOPs have which length; bars are equally wide in logarithms."""
    ticks = nice_ticks(max(count for _, _, count in found.bars))
    width = _WIDTH / len(found.bars)
    shapes = []
    for number, (first, stop, count) in enumerate(found.bars):
        height = _HEIGHT * count / ticks[-1]
        hint = tag("title", f"{byte_size(first)} to {byte_size(stop - 1)}: {how_many(count, 'GOP')}")
        shapes.append(_rect(hint, "value", x=number * width + 1, y=_HEIGHT - height, width=width - 2, height=height))
    middle = found.bars[len(found.bars) // 2][0]
    labels = [byte_size(found.bars[0][0]), byte_size(middle), byte_size(found.longest)]
    return _chart(shapes, ticks, "GOPs", labels if len(found.bars) > 1 else labels[:1], height=_HEIGHT)


def share_bars(shares: Shares, total: int) -> Html:
    """A table with a bar for each value, as long as its share of all videos."""
    rows = [(share.label, share.videos, "") for share in shares.most]
    if shares.other_values:
        rows.append((f"{how_many(shares.other_values, 'other value')}", shares.other_videos, "other"))
    lines = [
        tag(
            "tr",
            tag("th", label, scope="row"),
            tag("td", bar(count / total if total else 0.0, kind), class_="bar-cell"),
            tag("td", whole(count), tag("small", f" {percent(count, total)}"), class_="number"),
        )
        for label, count, kind in rows
    ]
    return tag("table", tag("tbody", *lines), class_="bars")


def bar(share: float, kind: str = "") -> Html:
    """A bar of this share, 0 to 1, of the width that it has."""
    width = f"width:{100 * min(1.0, max(0.0, share)):.2f}%"
    return tag("span", tag("span", class_=f"fill {kind}".strip(), style=width), class_="track")


def percent(part: float, total: float) -> str:
    """A share in percent, never rounded to all or nothing."""
    if not total:
        return "0\u00a0%"
    value = 100 * part / total
    if 0 < value < 0.1:
        return "< 0.1\u00a0%"
    if 99.9 < value < 100:
        return "> 99.9\u00a0%"
    is_rounded = value == 0 or 9.95 <= value < 99.5 or value >= 100
    return f"{value:.{0 if is_rounded else 1}f}\u00a0%"


def _rect(hint: Html, kind: str, *, x: float, y: float, width: float, height: float) -> Html:
    # Neighbours overlap a little, so that no hairline shows between them.
    return tag(
        "rect", hint, x=f"{x:.2f}", y=f"{y:.2f}", width=f"{width + 0.3:.2f}", height=f"{height:.2f}", class_=kind
    )


def _chart(shapes: Sequence[Html], ticks: Sequence[float], unit: str, below: Sequence[str], *, height: float) -> Html:
    places = [f"bottom:{100 * (height - _HEIGHT + _HEIGHT * tick / ticks[-1]) / height:.2f}%" for tick in ticks]
    lines = [tag("span", class_="gridline", style=place) for place in places]
    labels = [tag("span", f"{tick:,.10g}", style=place) for tick, place in zip(ticks, places, strict=True)]
    svg = tag(
        "svg", joined(shapes), viewBox=f"0 0 {_WIDTH:.0f} {height:.0f}", preserveAspectRatio="none", role="img",
        aria_label=f"{unit} over {' to '.join(below)}",
    )  # fmt: skip
    return tag(
        "div",
        tag("div", unit, class_="unit"),
        tag("div", *lines, svg, *labels, class_="plot"),
        tag("div", *(tag("span", each) for each in below), class_="below"),
        class_="chart",
    )
