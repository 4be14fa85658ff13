"""The page of `shortgop report`: its numbers are the dataset's, its pictures the videos', and nothing in it is markup
that was meant as a name."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import re
import shutil
import time
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.container import InputContainer
from scale_data import made_up
from typer.testing import CliRunner

import shortgop
from dataset_paths import shard_path
from datasets import current_manifest, make_dataset
from odd_pictures import encode_pictures, ffmpeg, numbered
from report_footage import EVIL_ID, HOSTILE, RATE, make_footage
from shortgop.cli import app
from shortgop.jobs.progress.job_status import STATUS_KEY, read_status
from shortgop.manifests.tables import failures_table
from shortgop.reporting.content_summary import contents_of
from shortgop.reporting.dataset_report import read_page
from shortgop.reporting.page_html import page_html
from shortgop.reporting.page_plan import Dataset, plan_page
from shortgop.reporting.source_pictures import source_frames
from shortgop.storage.disk import DiskStorage
from shortgop.wording import byte_size
from store_helpers import put
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number

# The encoder could make B-frames, and makes none.
NO_B_FRAMES = ("libx264", "-bf", "2", "-x264-params", "b-adapt=1:b-bias=-100")


class Parsed(HTMLParser):
    """The elements of a page, its text, and what it refers to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.references: list[str] = []
        self.words: list[str] = []
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {key for key, _ in attrs}
        self.references += [str(value) for key, value in attrs if key in ("src", "href", "srcset", "action", "data")]
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" not in self._inside:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def page_of(place: Path | str, *, clips: int = 12, seed: int = 0) -> str:
    return page_html(read_page(str(place), clips=clips, seed=seed))


def text_of(place: Path | str, **options: int) -> str:
    return Parsed(page_of(place, **options)).text


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def pictures(data: bytes) -> Any:
    with av.open(io.BytesIO(data), format="jpeg_pipe") as container:
        assert isinstance(container, InputContainer)
        return next(container.decode(video=0)).to_ndarray(format="rgb24")


@pytest.fixture(scope="module")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset of three videos with labels, and of two failures. No test changes it."""
    return make_footage(tmp_path_factory.mktemp("report"))


def test_the_numbers_are_those_of_the_dataset(footage: Path) -> None:
    text, metadata = text_of(footage), shortgop.open(footage).metadata
    manifest = current_manifest(footage)
    assert "The job finished: 2 of 5 sources failed" in text
    assert f" {metadata.num_videos} videos " in text
    assert f" {metadata.num_frames} frames " in text
    assert " 2 sources not in the dataset " in text
    assert "30 3 100 %" in text.replace("\u00a0", " ")
    assert "128 x 96 2 67 %" in text.replace("\u00a0", " ")
    assert f"{metadata.num_gops} GOPs of {manifest.gops.length.mean() / 1000:.2f} kB on average" in text
    assert f" {metadata.num_bytes / 1000:.0f} kB in {len(manifest.shards)} shard " in text


def test_sizes_before_and_after_are_those_that_the_job_recorded(footage: Path) -> None:
    sources = sum(
        (footage.parent / name).stat().st_size for name in ("a.mp4", "b.mkv", "c.mp4", "broken1.mp4", "broken2.mp4")
    )
    found = read_page(str(footage), clips=0, seed=0).sizes
    assert found is not None
    assert (found.sources, found.num_sources, found.failed) == (sources, 5, 2)
    assert found.made == shortgop.open(footage).metadata.num_bytes
    # The table of machines has them, too.
    became = f"{byte_size(found.sources)} became {byte_size(found.made)} 210 frames"
    assert re.search(rf"this process \d units?, 2 sources failed, {became}", text_of(footage))


def test_failures_of_one_kind_are_one_line_with_their_ids(footage: Path) -> None:
    groups = read_page(str(footage), clips=0, seed=0).dataset.contents.failures.groups
    assert [(group.count, set(group.ids)) for group in groups] == [(2, {HOSTILE, "broken2.mp4"})]
    assert "2 100 % " in text_of(footage).replace("\u00a0", " ")


def test_clips_show_the_videos_and_their_sources_the_same_frames(footage: Path) -> None:
    clips = read_page(str(footage), clips=12, seed=3).clips
    assert len(clips) == 3
    opened = shortgop.open(footage)
    for clip in clips:
        assert (clip.stored.trouble, clip.source.trouble) == ("", "")
        stored = [read_number(pictures(picture.data)) for picture in clip.stored.pictures]
        source = [read_number(pictures(picture.data)) for picture in clip.source.pictures]
        first = int(re.search(r"frame (\d+) of", clip.stored.pictures[0].shows)[1])  # type: ignore[index]
        assert stored[0] == read_number(opened[clip.video][first])
        assert stored == source
        assert [number - stored[0] for number in stored] == [0, 15, 30, 45]


def test_sources_that_are_rotated_or_have_any_rate_show_the_same_frames(
    rotated_video: SyntheticVideo, variable_video: SyntheticVideo, late_video: SyntheticVideo, tmp_path: Path
) -> None:
    make_dataset([rotated_video.path, variable_video.path, late_video.path], tmp_path / "dataset")
    for seed in range(3):
        for clip in read_page(str(tmp_path / "dataset"), clips=3, seed=seed).clips:
            assert clip.source.trouble == ""
            for stored, source in zip(clip.stored.pictures, clip.source.pictures, strict=True):
                assert (stored.width, stored.height) == (source.width, source.height)
                assert read_number(pictures(stored.data)) == read_number(pictures(source.data))


@pytest.mark.parametrize(
    ("suffix", "encoding", "start", "more"),
    [
        ("avi", ("mpeg2video", "-q:v", "2", "-bf", "0"), "0.98", ()),
        ("mp4", (*NO_B_FRAMES, "-pix_fmt", "yuv420p"), "1.3", ("-movflags", "negative_cts_offsets")),
    ],
)
def test_a_source_that_was_cut_while_it_was_copied_shows_the_same_frames(
    suffix: str, encoding: tuple[str, ...], start: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    """Its frames are read without its edit, and their times count from elsewhere than those of the dataset."""
    full = encode_pictures(tmp_path / f"full.{suffix}", numbered(range(80)), "-c:v", *encoding, "-g", "24", rate=25)
    ffmpeg("-ss", start, "-i", full, "-c", "copy", *more, tmp_path / "cut.mp4")
    assert make_dataset([tmp_path / "cut.mp4"], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    first = 80 - len(video)
    assert first == math.ceil(25 * float(start))
    frames = [0, 5, 30]
    found = source_frames(str(tmp_path / "cut.mp4"), video.source_pts(frames).tolist())
    assert [read_number(picture.rgb) for picture in found.pictures] == [first + frame for frame in frames]


def test_other_seeds_show_other_clips(footage: Path) -> None:
    same, again, other = (read_page(str(footage), clips=2, seed=seed).clips for seed in (1, 1, 2))
    assert same == again != other


def test_a_source_that_is_gone_or_another_file_is_not_made_up(footage: Path, tmp_path: Path) -> None:
    for name in ("gone.mp4", "shorter.mp4", "folder.mp4"):
        make_video(tmp_path / name, pts=constant_rate_pts(RATE, 70), timebase=1 / RATE)
    make_dataset([tmp_path / name for name in ("gone.mp4", "shorter.mp4", "folder.mp4")], tmp_path / "dataset")
    (tmp_path / "gone.mp4").unlink()
    make_video(tmp_path / "shorter.mp4", pts=constant_rate_pts(RATE, 5), timebase=1 / RATE)
    (tmp_path / "folder.mp4").unlink()
    (tmp_path / "folder.mp4").mkdir()
    clips = {clip.video: clip for clip in read_page(str(tmp_path / "dataset"), clips=3, seed=0).clips}
    assert clips["gone.mp4"].source.trouble.endswith("gone.mp4 is not a file that can be read on this machine")
    assert "it may have changed since" in clips["shorter.mp4"].source.trouble
    assert "a folder of pictures" in clips["folder.mp4"].source.trouble
    for clip in clips.values():
        assert (len(clip.stored.pictures), clip.source.pictures) == (4, ())
    assert "Not shown: " in text_of(tmp_path / "dataset")


def test_a_source_that_does_not_answer_is_left_alone(dead: Path) -> None:
    with pytest.raises(shortgop.ShortGopError, match=r"a\.mp4: reading it made no progress for"):
        source_frames(str(dead / "a.mp4"), [0], stall_seconds=1)


def test_names_and_labels_are_text_and_never_markup(footage: Path) -> None:
    page = page_of(footage)
    parsed = Parsed(page)
    assert "script" not in parsed.tags
    assert not {each for each in parsed.attributes if each.startswith("on")}
    assert "<script" not in page
    assert EVIL_ID in parsed.text, "the id is shown as it is"
    assert "<script>alert(1)</script>" in parsed.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", page), "no text commands the reader's screen"
    assert "\\x1b[31m" in parsed.text


def test_the_page_needs_nothing_but_itself(footage: Path) -> None:
    parsed = Parsed(page_of(footage))
    assert all(each.startswith("data:") for each in parsed.references)
    assert parsed.tags.isdisjoint({"script", "iframe", "object", "embed", "form", "base"})


def test_the_same_values_give_the_same_page(footage: Path) -> None:
    page = read_page(str(footage), clips=1, seed=0)
    assert page_html(page) == page_html(page)


def test_a_second_job_goes_on_with_the_history_of_the_first(footage: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    for number in range(2):
        make_video(tmp_path / f"{number}.mp4", pts=constant_rate_pts(RATE, 30), timebase=1 / RATE)
        make_dataset([tmp_path / f"{number}.mp4"], dataset)
    history = read_status(DiskStorage(dataset)).history
    assert sum(each.frames for each in history) == 60
    assert sum(each.sources for each in history) == 2
    assert sum(each.bytes_in for each in history) == sum(file.stat().st_size for file in tmp_path.glob("*.mp4"))
    assert "60 frames in " in text_of(dataset)


def test_a_status_without_history_says_that_it_has_none(footage: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    make_video(tmp_path / "0.mp4", pts=constant_rate_pts(RATE, 30), timebase=1 / RATE)
    make_dataset([tmp_path / "0.mp4"], dataset)
    status = json.loads((dataset / STATUS_KEY).read_text())
    del status["history"]
    (dataset / STATUS_KEY).write_text(json.dumps(status))
    text = text_of(dataset)
    assert "No job has kept a record of its course" in text
    assert "What jobs recorded of 1 finished source" in text
    (dataset / STATUS_KEY).write_text("{")
    assert "No job has recorded how it went" in text_of(dataset)
    (dataset / STATUS_KEY).unlink()
    text = text_of(dataset)
    assert "No job has recorded how it went" in text
    assert "How large the sources were is not recorded" in text


def test_a_dataset_in_a_folder_whose_name_is_not_utf8(footage: Path, tmp_path: Path) -> None:
    """A page without a status says why, with the folder's name."""
    dataset = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(footage, dataset)
    (dataset / STATUS_KEY).unlink()
    assert run("report", dataset, "--out", tmp_path / "page.html", "--clips", "0").exit_code == 0
    assert rf"no job has left its progress in {tmp_path}/caf\udce9;" in (tmp_path / "page.html").read_text()


def test_an_empty_dataset_has_a_page(empty_dataset: Path) -> None:
    text = text_of(empty_dataset)
    assert "there is no snapshot yet" in text
    assert "The dataset has no videos yet." in text
    assert " 0 videos " in text


def test_a_dataset_with_only_failures_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_text("not a video")
    make_dataset([tmp_path / "broken.mp4"], tmp_path / "dataset")
    text = text_of(tmp_path / "dataset")
    assert "The job finished, and the dataset has no video: 1 of 1 source failed" in text
    assert "Failures by reason" in text
    assert "Rates and resolutions" not in text


def test_lost_shards_are_said_first(tmp_path: Path) -> None:
    for number in range(2):
        make_video(tmp_path / f"{number}.mp4", pts=constant_rate_pts(RATE, 30), timebase=1 / RATE)
        make_dataset([tmp_path / f"{number}.mp4"], tmp_path / "dataset")
    manifest = current_manifest(tmp_path / "dataset")
    shard_path(tmp_path / "dataset", manifest.shards.name.text(int(manifest.segments.shard[0]))).unlink()
    page = read_page(str(tmp_path / "dataset"), clips=2, seed=0)
    assert page.verdict.mood == "bad"
    assert page.verdict.sentence == "1 of 2 random clips cannot be read"
    assert page.verdict.details[0] == "1 video cannot be read: shards are missing or damaged"
    without_clips = read_page(str(tmp_path / "dataset"), clips=0, seed=0).verdict
    assert (without_clips.mood, without_clips.sentence) == ("bad", page.verdict.details[0])
    assert [bool(clip.stored.trouble) for clip in page.clips] == [True, False]


def test_a_dataset_in_a_store_and_its_sources_there(s3_url: str, tmp_path: Path) -> None:
    for number, suffix in enumerate(("mp4", "mkv")):
        timebase = Fraction(1, 1000) if suffix == "mkv" else 1 / RATE
        pts = constant_rate_pts(RATE, 40, timebase)
        make_video(tmp_path / f"{number}.{suffix}", pts=pts, timebase=timebase, first_number=100 * number)
        put(f"{s3_url}/in/{number}.{suffix}", tmp_path / f"{number}.{suffix}")
    shortgop.prepare(f"{s3_url}/in/", f"{s3_url}/dataset", runner="inline")
    done = run("report", f"{s3_url}/dataset", "--out", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert "all 2 sources are in the dataset" in done.output
    page = read_page(f"{s3_url}/dataset", clips=2, seed=0)
    for clip in page.clips:
        stored, source = (
            [read_number(pictures(picture.data)) for picture in strip.pictures] for strip in (clip.stored, clip.source)
        )
        assert stored == source
        assert len(stored) == 4
    assert page.history


@pytest.mark.long
def test_a_million_videos_and_a_million_failures_take_seconds_and_a_small_page() -> None:
    count = 1_000_000
    manifest = made_up(np.arange(count))
    rows = [
        (f"v{n}.mp4", f"v{n}.mp4", f"v{n}.mp4 has no frame {n % 77}: {'it was cut' if n % 2 else 'a gap'}", 0, "")
        for n in range(count)
    ]
    manifest = dataclasses.replace(manifest, failures=failures_table(rows))
    started = time.process_time()
    contents = contents_of(manifest)
    dataset = Dataset("/corpus", "000001", 3, {}, contents)
    page = page_html(plan_page(dataset, (), "", now=0.0))
    assert time.process_time() - started < 10
    assert len(page) < 100_000
    assert contents.num_videos == count
    assert contents.size.num_frames == int(manifest.videos.num_frames.sum())
    assert contents.failures.count == count
    assert contents.failures.kinds == 2
    assert "1,000,000 videos" in Parsed(page).text


def test_a_report_is_replaced_and_nothing_else_is(footage: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert run("report", footage, "--out", out, "--clips", 1).exit_code == 0
    out.write_text(out.read_text().replace("<body>", "<body>an earlier page"))
    assert run("report", footage, "--out", out, "--clips", 0).exit_code == 0
    assert "an earlier page" not in out.read_text()
    out.write_text("mine")
    refused = run("report", footage, "--out", out)
    assert (refused.exit_code, out.read_text()) == (2, "mine")
    assert "--overwrite" in refused.output
    assert run("report", footage, "--out", out, "--overwrite", "--clips", 0).exit_code == 0
    for wrong in (footage / "page.html", tmp_path / "page.txt", tmp_path):
        assert run("report", footage, "--out", wrong).exit_code == 2
    assert run("report", footage, "--out", out, "--clips", 1000).exit_code == 2
    assert run("report", tmp_path / "nothing", "--out", tmp_path / "new.html").exit_code in (1, 2)
    assert not (tmp_path / "new.html").exists()


def test_prep_writes_the_page_at_its_end_however_it_ends(tmp_path: Path) -> None:
    make_video(tmp_path / "a.mp4", pts=constant_rate_pts(RATE, 30), timebase=1 / RATE)
    (tmp_path / "broken.mp4").write_text("not a video")
    out = tmp_path / "page.html"
    command = ("prep", tmp_path, "--out", tmp_path / "dataset", "--runner", "inline", "--report", out)
    assert run(*command, "--max-failures", 0).exit_code == 1
    assert "The last job ended before it was done" in Parsed(out.read_text()).text
    done = run(*command)
    assert (done.exit_code, f"report: {out}, " in done.stderr) == (3, True)
    assert "The job finished: 1 of 1 source failed" in Parsed(out.read_text()).text
    (tmp_path / "mine.html").write_text("mine")
    assert run(*command[:-1], tmp_path / "mine.html").exit_code == 2
    assert (tmp_path / "mine.html").read_text() == "mine"
