"""The page as one HTML file: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from . import page_sections as sections
from .page_markup import Html, joined, tag
from .page_plan import Page
from .page_style import STYLE
from .page_words import moment, name

GENERATOR = "shortgop report"
# The browser loads nothing from elsewhere, even if content of the page asks for that.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page_html(page: Page) -> str:
    """The whole page. The same values give the same text."""
    dataset = page.dataset
    title = name(dataset.place.rstrip("/").rpartition("/")[2] or dataset.place)
    snapshot = f"snapshot {name(dataset.snapshot)}, " if dataset.snapshot else ""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=GENERATOR),
        # Without it a browser would ask for /favicon.ico.
        Html('<link rel="icon" href="data:,">'),
        tag("title", f"{title}: {page.verdict.sentence}"),
        Html(f"<style>{STYLE}</style>"),
    )
    header = tag(
        "header",
        tag("p", GENERATOR, class_="eyebrow"),
        tag("h1", title),
        tag("p", tag("code", name(dataset.place)), class_="soft"),
    )
    contents = dataset.contents
    main = tag(
        "main",
        sections.verdict(page.verdict, dataset.status),
        sections.tiles(page),
        sections.failures(contents.failures),
        sections.throughput(page),
        sections.sizes(page),
        sections.rates_and_sizes(contents),
        sections.clips(page.clips, page.clips_left_out),
        sections.changes(contents),
        sections.work(dataset.status),
        sections.profile(page),
    )
    footer = tag("footer", f"Written {moment(page.written)} of {snapshot}format version {dataset.format_version}.")
    return joined([Html("<!doctype html>\n"), tag("html", head, tag("body", header, main, footer), lang="en"), "\n"])
