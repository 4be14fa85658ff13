"""The sections of the page, each a pure function of what it says. A section about which nothing is known is empty, or
says why."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from ..jobs.progress.job_status import JobStatus, Task
from ..jobs.progress.node_work import NodeWork
from ..wording import byte_size, duration, three_digits, whole
from .content_summary import Contents
from .failure_groups import FailureGroups
from .page_charts import bar, gop_chart, percent, share_bars, throughput_chart
from .page_markup import Html, joined, tag
from .page_plan import Clip, Page, Sizes, Strip, Verdict, median_quality
from .page_words import how_many, name, quality

NOTHING = Html("")
_MOST_NODES = 16
_REASON_CHARACTERS = 800
_SIGNS = {"good": "✓", "running": "▸", "warning": "!", "bad": "✕", "unknown": "?"}


def verdict(found: Verdict, status: JobStatus | None) -> Html:
    """The banner: whether the job went well, and how far it is."""
    progress = NOTHING
    if status is not None and status.state == "running" and status.frames_expected:
        share = status.frames_done / status.frames_expected
        frames = f"{percent(share, 1)} of about {how_many(status.frames_expected, 'frame')} encoded"
        progress = tag("div", bar(share, "running"), tag("small", frames), class_="progress")
    details = tag("ul", *(tag("li", each) for each in found.details if each))
    return tag(
        "div",
        tag("div", _SIGNS[found.mood], class_="sign", aria_hidden="true"),
        tag("div", tag("strong", found.sentence), details, progress),
        class_=f"verdict {found.mood}",
    )


def tiles(page: Page) -> Html:
    """The numbers that one looks for first."""
    contents = page.dataset.contents
    failed = contents.failures.count
    shown = [
        (whole(contents.num_videos), "videos" if contents.num_videos != 1 else "video", ""),
        (whole(failed), "sources not in the dataset" if failed != 1 else "source not in the dataset", "bad"),
        (whole(contents.size.num_frames), "frames", ""),
        (duration(contents.size.duration_seconds), "of video", ""),
        (byte_size(contents.size.num_bytes), f"in {how_many(contents.num_shards, 'shard')}", ""),
    ]
    seconds = sum(each.seconds for each in page.history)
    if seconds:
        shown.append((three_digits(sum(each.frames for each in page.history) / seconds), "frames/s, all jobs", ""))
    tiled = (
        tag("div", tag("b", value), tag("span", what), class_=f"tile {kind if value != '0' else ''}".strip())
        for value, what, kind in shown
    )
    return tag("div", *tiled, class_="tiles")


def throughput(page: Page) -> Html:
    """Frames/s over time."""
    if not page.history:
        why = (
            "No job has kept a record of its course: jobs of this version do, those of earlier ones did not."
            if page.dataset.status
            else "No job has recorded anything."
        )
        return _section("Throughput over time", tag("p", why, class_="soft"))
    frames = sum(each.frames for each in page.history)
    seconds = sum(each.seconds for each in page.history)
    note = f"{how_many(frames, 'frame')} in {duration(seconds)}: {three_digits(frames / seconds)} frames/s on average."
    failed = sum(each.failed for each in page.history)
    if failed:
        note += f" Marks below the line: times in which sources failed, {whole(failed)} in all."
    return _section("Throughput over time", throughput_chart(page.history), tag("p", note, class_="soft"))


def sizes(page: Page) -> Html:
    """How large sources were and what they became."""
    contents = page.dataset.contents
    body = [_before_and_after(page.sizes)]
    if contents.size.num_frames:
        per_second = contents.size.num_bytes / contents.size.duration_seconds
        body.append(
            tag(
                "p",
                f"The dataset has {byte_size(contents.size.num_bytes)}: "
                f"{byte_size(contents.size.num_bytes / contents.size.num_frames)} for each frame, "
                f"{three_digits(8e-6 * per_second)} Mbit for each second of video.",
            )
        )
    found = contents.gop_bytes
    gops = NOTHING
    if found is not None:
        some = " (the chart and the quantiles are those of a random sample)" if found.sampled else ""
        gops = tag(
            "div",
            tag("h3", "Bytes of a GOP"),
            gop_chart(found),
            tag(
                "p",
                f"{how_many(found.count, 'GOP')} of {byte_size(found.mean)} on average; half are shorter than "
                f"{byte_size(found.median)}, 95\u00a0% shorter than {byte_size(found.percentile_95)}; the longest has "
                f"{byte_size(found.longest)}{some}.",
                class_="soft",
            ),
        )
    return _section("Size", tag("div", tag("div", tag("h3", "Before and after"), *body), gops, class_="columns"))


def _before_and_after(found: Sizes | None) -> Html:
    if found is None:
        return tag("p", "How large the sources were is not recorded.", class_="soft")
    largest = max(found.sources, found.made)
    rows = [("sources", found.sources, "other"), ("made of them", found.made, "")]
    lines = [
        tag(
            "tr",
            tag("th", label, scope="row"),
            tag("td", bar(count / largest, kind), class_="bar-cell"),
            tag("td", byte_size(count), class_="number"),
        )
        for label, count, kind in rows
    ]
    failed = f", {whole(found.failed)} of which failed and became nothing" if found.failed else ""
    note = (
        f"What jobs recorded of {how_many(found.num_sources, 'finished source')}{failed}: the dataset takes "
        f"{three_digits(found.made / found.sources)} times the bytes."
    )
    return joined([tag("table", tag("tbody", *lines), class_="bars"), tag("p", note, class_="soft")])


def rates_and_sizes(contents: Contents) -> Html:
    """Which frame rates, picture sizes and encoders there are."""
    total = contents.num_videos
    if not total:
        return NOTHING
    parts = [
        ("Frames per second", contents.rates),
        ("Width x height", contents.sizes),
        ("Codec and tools", contents.pipelines),
    ]
    columns = [tag("div", tag("h3", title), share_bars(shares, total)) for title, shares in parts]
    return _section("Rates and resolutions", tag("div", *columns, class_="columns"))


def changes(contents: Contents) -> Html:
    """What differs from the sources."""
    frames = [
        (contents.dropped, "of the sources dropped"),
        (contents.repeated, "of the sources shown more than once"),
        (contents.salvaged, "in place of ones that did not decode"),
    ]
    lines = [
        tag("li", f"{how_many(count, 'frame')} {what}, in {how_many(videos, 'video')}")
        for (count, videos), what in frames
        if count
    ]
    given_up = contents.given_up
    if not lines and not given_up.most:
        return NOTHING
    return _section(
        "What differs from the sources",
        share_bars(given_up, contents.num_videos) if given_up.most else NOTHING,
        tag("ul", *lines) if lines else NOTHING,
    )


def failures(found: FailureGroups) -> Html:
    """Sources that are not in the dataset, by reason."""
    if not found.count:
        return NOTHING
    rows = [
        tag(
            "tr",
            tag("td", whole(group.count), tag("small", f" {percent(group.count, found.looked_at)}"), class_="number"),
            tag("td", bar(group.count / found.looked_at, "failed"), class_="bar-cell"),
            tag(
                "td",
                tag("div", name(group.reason, _REASON_CHARACTERS)),
                tag("small", f"{'such as' if group.count > len(group.ids) else ''} ", _ids(group.ids)),
            ),
        )
        for group in found.groups
    ]
    more = found.kinds - len(found.groups)
    notes = [
        *([f"And {how_many(more, 'other reason')}: `shortgop info` lists all."] if more else []),
        *(
            [f"{whole(found.looked_at)} of {how_many(found.count, 'failure')} were looked at for this table."]
            if found.looked_at < found.count
            else []
        ),
    ]
    table = tag("table", tag("tbody", *rows), class_="reasons")
    return _section("Failures by reason", table, *(tag("p", note, class_="soft") for note in notes))


def work(status: JobStatus | None) -> Html:
    """What each machine did, and which units are slow or large."""
    if status is None:
        return NOTHING
    total = sum(status.nodes.values())
    nodes = [
        tag(
            "tr",
            tag("th", name(node) or "this process", _finished(status.node_work.get(node)), scope="row"),
            tag("td", bar(frames / total if total else 0), class_="bar-cell"),
            tag("td", how_many(frames, "frame"), class_="number"),
        )
        for node, frames in sorted(status.nodes.items(), key=lambda node: -node[1])[:_MOST_NODES]
    ]
    more = len(status.nodes) - len(nodes)
    parts = [
        ("Running", _tasks(status.running)),
        ("Slowest", _tasks(status.slowest)),
        ("Largest", _tasks(status.largest)),
    ]
    if nodes:
        table = tag("table", tag("tbody", *nodes), class_="bars")
        note = tag("p", f"And {how_many(more, 'other machine')}.", class_="soft") if more else NOTHING
        parts.insert(0, ("Machines", joined([table, note])))
    columns = [tag("div", tag("h3", title), content) for title, content in parts if content]
    if not columns:
        return NOTHING
    return _section("The last job's work", tag("div", *columns, class_="columns"))


def _finished(work: NodeWork | None) -> Html:
    """What became of the units that a machine finished."""
    if work is None:
        return NOTHING
    failed = [f"{how_many(work.sources_failed, 'source')} failed"] if work.sources_failed else []
    became = f"{byte_size(work.bytes_in)} became {byte_size(work.bytes_out)}"
    return tag("div", tag("small", ", ".join([how_many(work.units, "unit"), *failed, became])))


def _tasks(tasks: Sequence[Task]) -> Html:
    rows = [
        tag(
            "tr",
            tag("td", name(task.source), *([tag("small", f" on {name(task.node)}")] if task.node else [])),
            tag("td", duration(task.seconds), class_="number"),
            tag("td", how_many(task.frames, "frame"), class_="number"),
            tag("td", byte_size(task.num_bytes) if task.num_bytes else "", class_="number"),
        )
        for task in tasks
    ]
    return tag("table", tag("tbody", *rows), class_="tasks") if rows else NOTHING


def clips(found: Sequence[Clip], left_out: str) -> Html:
    """Random clips, with the same frames of their sources."""
    if not found and not left_out:
        return NOTHING
    cards = [
        tag(
            "article",
            tag("h3", name(clip.video)),
            tag("div", clip.labels, class_="labels") if clip.labels else NOTHING,
            _strip("source", clip.source),
            _strip("dataset", clip.stored),
            _quality(clip),
            class_="clip",
        )
        for clip in found
    ]
    note = tag("p", left_out, class_="soft") if left_out else NOTHING
    return _section(
        "Random clips beside their sources" if found else "Random clips",
        _median_quality(found), tag("div", *cards, class_="clips"), note,
    )  # fmt: skip


def _quality(clip: Clip) -> Html:
    if not clip.quality:
        return NOTHING
    said = f"Not measured: {name(clip.quality)}" if isinstance(clip.quality, str) else quality(clip.quality)
    return tag("p", said, class_="soft")


def _median_quality(found: Sequence[Clip]) -> Html:
    measured = median_quality(found)
    if measured is None:
        return NOTHING
    count, median = measured
    clips = how_many(count, "clip")
    of = f"of the {clips} that could be measured" if count < len(found) else f"of {clips}"
    text = (
        f"Quality: {quality(median)}, the median {of}, {how_many(median.frames, 'frame')} in all. That is the luma of "
        "the dataset's frames beside that of their source, scaled as for the dataset."
    )
    return tag("p", text)


def _strip(what: str, strip: Strip) -> Html:
    pictures = [
        tag(
            "img",
            src=f"data:image/jpeg;base64,{base64.b64encode(picture.data).decode()}",
            alt=picture.shows,
            title=picture.shows,
            width=picture.width,
            height=picture.height,
        )
        for picture in strip.pictures
    ]
    trouble = tag("p", f"Not shown: {name(strip.trouble)}", class_="soft") if strip.trouble else NOTHING
    return tag(
        "figure",
        tag("figcaption", tag("b", what), f" {strip.about}" if strip.about else ""),
        tag("div", *pictures, class_="frames") if pictures else NOTHING,
        trouble,
        class_="strip",
    )


def profile(page: Page) -> Html:
    """The options that the videos were encoded with."""
    options = [(key, value) for key, value in page.dataset.profile.items() if value is not None]
    if not options:
        return NOTHING
    rows = [tag("tr", tag("th", name(key), scope="row"), tag("td", name(str(value)))) for key, value in options]
    half = -(-len(rows) // 2)
    tables = [tag("div", tag("table", tag("tbody", *part))) for part in (rows[:half], rows[half:]) if part]
    return _section("Profile", tag("div", *tables, class_="columns"))


def _ids(ids: Iterable[str]) -> Html:
    return joined([each for video_id in ids for each in (tag("code", name(video_id, 80)), " ")])


def _section(title: str, *content: str) -> Html:
    return tag("section", tag("h2", title), *content)
