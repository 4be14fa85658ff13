"""Long sources in stores, in sections: the dataset is that of the same file on a disk, and each section fetches little
more than the bytes that it decodes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
from av.video.stream import VideoStream

import shortgop
from far_sections import (
    RATE,
    assert_same,
    long_unit,
    nothing,
    num_shards,
    numbers,
    other_dataset,
    prepared,
    remuxed,
)
from flaky_proxy import FlakyProxy
from shortgop.jobs.finding.fetched_sources import file_of
from shortgop.jobs.prepare import Report
from shortgop.jobs.units_of_work.steps import Look, OneSection, Sections, copy_bytes
from shortgop.jobs.working.step_work import run_step
from shortgop.prep.options import Options, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.section_plan import expected_seconds
from store_helpers import put
from sweep import sample
from synthetic import constant_rate_pts, make_video, read_number, variable_rate_pts

pytestmark = pytest.mark.long

KHZ = Fraction(1, 90000)
OPEN_GOP = {"x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
OPEN_GOP_HEVC = {"x265-params": "log-level=error:open-gop=1:b-adapt=0:scenecut=0:pools=none:frame-threads=1"}
FRONT = {"movflags": "faststart"}


IN_MS = {"pts": constant_rate_pts(RATE, 300, Fraction(1, 1000)), "timebase": Fraction(1, 1000)}
SOURCES: dict[str, dict[str, Any]] = {
    "long GOPs": {"gop": 95},
    "with sound": {"gop": 20, "audio_start": Fraction(0)},
    "in front": {"gop": 20, "container_options": FRONT},
    "open GOPs": {"gop": 20, "b_frames": 3, "options": OPEN_GOP},
    "HEVC": {"gop": 20, "b_frames": 3, "codec": "libx265", "options": OPEN_GOP_HEVC},
    "variable": {"gop": 20, "pts": variable_rate_pts(3, 300, KHZ), "timebase": KHZ},
    "late": {"gop": 20, "pts": constant_rate_pts(RATE, 300, KHZ, start=180000), "timebase": KHZ},
    # Containers whose index does not say where all packets lie.
    "v.mkv": {"gop": 20, **IN_MS, "audio_start": Fraction(1)},
    "open.mkv": {"gop": 20, "b_frames": 3, "codec": "libx265", "options": OPEN_GOP_HEVC, **IN_MS},
    "vp9.webm": {"gop": 20, "codec": "libvpx-vp9", "b_frames": 0, **IN_MS},
    "mpeg4.avi": {"gop": 20, "codec": "mpeg4", "b_frames": 0},
    "flash.flv": {"gop": 20, **IN_MS},
    "fragments.mp4": {"gop": 20, "container_options": {"movflags": "frag_keyframe+empty_moov"}},
}


# How GOPs are coded and when they are shown is no matter of where the file lies: `test_sections.py` has all kinds.
MORE_IN_A_SWEEP = ("with sound", "HEVC", "late", "vp9.webm")


@pytest.mark.parametrize(
    "kind", sample([kind for kind in SOURCES if kind not in MORE_IN_A_SWEEP], more=MORE_IN_A_SWEEP)
)
def test_the_dataset_is_that_of_the_same_file_on_a_disk(kind: str, s3_url: str, tmp_path: Path) -> None:
    name = kind if "." in kind else "v.mp4"
    source = make_video(tmp_path / name, **{"pts": constant_rate_pts(RATE, 300), "timebase": 1 / RATE, **SOURCES[kind]})
    put(f"{s3_url}/{name}", source.path)
    for out, given in (("in_store", f"{s3_url}/{name}"), ("on_disk", source.path)):
        assert prepared(given, tmp_path / out).failures == ()
    assert num_shards(tmp_path / "in_store") == num_shards(tmp_path / "on_disk") >= 3
    assert_same(tmp_path / "in_store", tmp_path / "on_disk")
    timeline = shortgop.open(tmp_path / "in_store")[0].source_pts(range(len(numbers(tmp_path / "in_store"))))
    assert numbers(tmp_path / "in_store") == [source.pts.index(pts) for pts in timeline.tolist()]


CLIP_FRAMES, COPIES = 600, 6


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a film of 50 MB and 120 s: 6 times the same 600 frames, filled to 3.3 Mbit/s, with its index at the end."""
    folder = tmp_path_factory.mktemp("film")
    filled = "nal-hrd=cbr:bitrate=3300:vbv-maxrate=3300:vbv-bufsize=3300:b-adapt=0:scenecut=0"
    clip = make_video(
        folder / "clip.mp4", pts=constant_rate_pts(RATE, CLIP_FRAMES), timebase=1 / RATE, gop=36,
        options={"preset": "ultrafast", "x264-params": filled},
    )  # fmt: skip
    to: VideoStream | None = None
    with av.open(folder / "film.mp4", "w") as out:
        for copy in range(COPIES):
            with av.open(clip.path) as container:
                (stream,) = container.streams.video
                to = to or out.add_stream_from_template(stream)
                shift = copy * round(CLIP_FRAMES / RATE / clip.timebase)
                for packet in container.demux(stream):
                    if packet.pts is not None and packet.dts is not None:
                        packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, to
                        out.mux(packet)
    return folder / "film.mp4"


FILM_PROFILE = Profile(segment_seconds=Fraction(1), gop_frames=30)
# About three sections.
FILM_SECONDS = expected_seconds(CLIP_FRAMES * COPIES, 96 * 64, CLIP_FRAMES * COPIES, 96 * 64) / 3


def prepared_film(source: str | Path, out: Path, *, runner: str = "inline") -> Report:
    return prepared(source, out, FILM_PROFILE, runner=runner, seconds=FILM_SECONDS)


@pytest.fixture(scope="module")
def film_on_disk(film: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dataset of the film as a local file."""
    dataset = tmp_path_factory.mktemp("on_disk") / "dataset"
    assert prepared_film(film, dataset).failures == ()
    assert num_shards(dataset) == 3
    return dataset


def bytes_read(proxy: FlakyProxy, suffix: str = ".mp4") -> int:
    """How many bytes the GETs of ranges so far asked for."""
    total = 0
    for request in proxy.requests("GET", holding=suffix):
        first, _, last = request.range.removeprefix("bytes=").partition("-")
        total += int(last) - int(first) + 1 if first else int(last)
    return total


@pytest.mark.parametrize("runner", sample(["inline"], more=["ray"]))
def test_all_sections_together_fetch_little_more_than_the_file(
    runner: str, film: Path, film_on_disk: Path, proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path
) -> None:
    put(f"{proxied_url}/film.mp4", film)
    s3_proxy.forget()
    report = prepared_film(f"{proxied_url}/film.mp4", tmp_path / "dataset", runner=runner)
    assert (report.frames_added, report.failures) == (CLIP_FRAMES * COPIES, ())
    assert bytes_read(s3_proxy) < 1.1 * film.stat().st_size
    assert len(s3_proxy.requests()) < 50
    assert_same(tmp_path / "dataset", film_on_disk)
    video = shortgop.open(tmp_path / "dataset")[0]
    looked_at = range(0, CLIP_FRAMES * COPIES, 37)
    assert [read_number(frame) for frame in video.get_frames_at(looked_at).data] == [
        number % CLIP_FRAMES for number in looked_at
    ]


def test_a_container_without_such_an_index_is_fetched_twice_whatever_the_number_of_sections(
    film: Path, proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path
) -> None:
    put(f"{proxied_url}/film.mkv", remuxed(film, tmp_path / "film.mkv"))
    s3_proxy.forget()
    report = prepared_film(f"{proxied_url}/film.mkv", tmp_path / "dataset")
    assert (report.frames_added, report.failures) == (CLIP_FRAMES * COPIES, ())
    assert num_shards(tmp_path / "dataset") == 3
    assert bytes_read(s3_proxy, ".mkv") < 2.15 * (tmp_path / "film.mkv").stat().st_size


def test_a_file_that_cannot_be_cut_is_fetched_once(
    film: Path, proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path
) -> None:
    put(f"{proxied_url}/clip.ts", remuxed(film.with_name("clip.mp4"), tmp_path / "clip.ts"))
    s3_proxy.forget()
    report = prepared(f"{proxied_url}/clip.ts", tmp_path / "dataset", seconds=FILM_SECONDS / COPIES)
    assert (report.frames_added, report.failures) == (CLIP_FRAMES, ())
    assert num_shards(tmp_path / "dataset") == 1
    # The end comes three times, as the file is opened: by the driver, and by the worker that looks and encodes.
    assert bytes_read(s3_proxy, ".ts") < 1.15 * (tmp_path / "clip.ts").stat().st_size + (3 << 18)


def test_a_section_takes_no_more_of_the_disk_than_its_stretch(film: Path, s3_url: str, tmp_path: Path) -> None:
    dataset = other_dataset(tmp_path)
    put(f"{s3_url}/film.mp4", film)
    unit = long_unit(s3_url)
    options = Options(FILM_PROFILE, SourcePolicy(), section_seconds=FILM_SECONDS, use_gpu=False)
    found = run_step(dataset, Look(unit), options, nothing)
    assert isinstance(found, Sections)
    taken = []
    for section in found.sections:
        with file_of(dataset, unit.items[0].source, options.policy) as file:
            taken.append(Path(file.part(section.needed)).stat().st_blocks * 512)
    assert len(taken) == 3
    assert max(taken) < film.stat().st_size / 2
    assert sum(taken) < 1.1 * film.stat().st_size
    steps = [OneSection(unit, found.cut, number, section) for number, section in enumerate(found.sections)]
    for step, taken_bytes in zip(steps, taken, strict=True):
        assert 0.9 * taken_bytes < copy_bytes(step) <= taken_bytes
        (item,) = unit.items
        local = replace(item, source=item.source._replace(in_store=None))
        assert copy_bytes(replace(step, unit=replace(unit, items=(local,)))) == 0, "it is not copied"
