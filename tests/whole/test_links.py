"""README.md, CHANGELOG.md and the pages below docs: each link to a file or a heading of the checkout leads there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documents import PAGES, ROOT

CHECKED = [*PAGES, ROOT / "CHANGELOG.md"]


def places_of(page: Path) -> set[str]:
    """The names by which links find the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def lost_links(page: Path) -> list[str]:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        file, _, place = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (place and place not in places_of(target)):
            lost.append(link)
    return lost


@pytest.mark.parametrize("page", CHECKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_link_leads_to_what_exists(page: Path) -> None:
    assert lost_links(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`, and c\n[1](#a-b-and-c) [2](page.md#a-b-and-c) [3](#d) [4](other.md) [5](https://x.y/#z)\n"
    )
    assert lost_links(page) == ["#d", "other.md"]
