"""How evenly sources are divided into units, by bytes alone and by seconds of work too: python benchmarks/unit_costs.py

Nothing is encoded: the sources are made up, and the seconds are those that jobs expect. Clips last 20 s in the median,
in 1080p, 720p and 480p, made smaller to 256. Recordings of screens have a twentieth of the bytes.
"""

from __future__ import annotations

import math
from random import Random

from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work.units import Item, Unit, divided, long_apart, plan_units
from shortgop.prep.profile import Profile, Size
from shortgop.prep.section_plan import SECTION_SECONDS, expected_pixels, expected_seconds

_SOURCES = 10_000
_SIZES = [(1920, 1080), (1280, 720), (854, 480)]
_FPS, _MEDIAN_SECONDS, _MEDIAN_BITS_PER_PIXEL = 30, 20.0, 0.067
_OF_SCREENS = 1 / 20


def corpus(part_of_screens: float) -> tuple[list[Item], dict[str, float]]:
    """Sources, and how many seconds each is expected to take."""
    rng, items, seconds = Random(1), [], {}  # noqa: S311  # no secrets
    for number in range(_SOURCES):
        width, height = rng.choice(_SIZES)
        frames = int(_FPS * rng.lognormvariate(math.log(_MEDIAN_SECONDS), 1))
        bits = rng.lognormvariate(math.log(_MEDIAN_BITS_PER_PIXEL), 0.8)
        if rng.random() < part_of_screens:
            bits *= _OF_SCREENS
        name = f"{number:06}"
        items.append(Item(Source(name, name, name, "{}"), 1, int(frames * width * height * bits / 8)))
        pixels = expected_pixels(width, height, Size(short_side=256))
        seconds[name] = expected_seconds(frames, width * height, frames, pixels)
    return items, seconds


def said(units: list[Unit], seconds: dict[str, float]) -> str:
    lasts = sorted(sum(seconds[item.source.id] for item in unit.items) for unit in units)
    median, most = lasts[len(lasts) // 2], lasts[9 * len(lasts) // 10]
    return f"{len(units)} units, median {median:.0f} s, nine tenths up to {most:.0f} s, longest {lasts[-1]:.0f} s"


def main() -> None:
    for what, part in (("recordings of screens", 1.0), ("a fifth of them", 0.2), ("none", 0.0)):
        items, seconds = corpus(part)
        units = plan_units(items, profile_key="", done={}, shard_bytes=Profile().shard_bytes)
        by_bytes = long_apart(units, "", seconds, long_seconds=2 * SECTION_SECONDS)
        print(f"{what}, by bytes: {said(by_bytes, seconds)}")
        print(f"{what}: {said(list(divided(by_bytes, '', seconds, unit_seconds=SECTION_SECONDS)), seconds)}")


if __name__ == "__main__":
    main()
