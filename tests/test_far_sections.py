"""Long sources in stores, in sections: the dataset is that of the same file on a disk, and each section fetches little
more than the bytes that it decodes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import av
import pytest
from av.video.stream import VideoStream

import shortgop
from datasets import make_dataset, rows_of
from flaky_proxy import Faults, FlakyProxy
from processes import descendants, kill_workers
from shortgop.jobs.fetched_sources import file_of
from shortgop.jobs.look import look_at
from shortgop.jobs.order import Order
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.jobs.sources import find_sources
from shortgop.jobs.steps import Look, OneSection, Sections, run_step
from shortgop.jobs.units import MAY_BE_LONG_BYTES, Item, Unit, long_apart
from shortgop.prep.options import Options, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.section_plan import expected_seconds
from shortgop.storage.disk import DiskStorage
from store_helpers import put
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number, variable_rate_pts
from web_server import web_server

RATE = Fraction(30)
KHZ = Fraction(1, 90000)
PROFILE = Profile(segment_seconds=Fraction(1, 4), gop_frames=8)
OPEN_GOP = {"x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
OPEN_GOP_HEVC = {"x265-params": "log-level=error:open-gop=1:b-adapt=0:scenecut=0:pools=none:frame-threads=1"}
FRONT = {"movflags": "faststart"}
# What depends on where the source lies.
OF_PLACE = {"videos.source", "videos.path", "videos.identity", "shards.name", "snapshot"}


def prepared(
    source: str | Path, out: Path, profile: Profile = PROFILE, *, runner: str = "inline", seconds: float = 0.01
) -> Report:
    """Cut into as many sections as there may be, unless `seconds` says how long one takes."""
    where = Where(runner, workers=2 if runner == "ray" else None)
    policy = SourcePolicy(gaps="keep")
    return prepare([str(source)], DiskStorage(out), profile, where=where, policy=policy, section_seconds=seconds)


def num_shards(dataset: Path) -> int:
    return len(list((dataset / "shards").iterdir()))


def numbers(dataset: Path) -> list[int]:
    """The numbers that the frames of the only video show."""
    video = shortgop.open(dataset)[0]
    return [read_number(frame) for frame in video.get_frames_at(range(len(video))).data]


def assert_same(in_store: Path, on_disk: Path) -> None:
    """Row for row, and the bytes of all GOPs: the cuts are the same."""
    one, other = rows_of(in_store), rows_of(on_disk)
    names = [name for name in other if not name.startswith("bytes of") and name not in OF_PLACE]
    assert {name: one[name] for name in names} == {name: other[name] for name in names}
    assert not (in_store / "sections").exists()


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


@pytest.mark.parametrize("kind", SOURCES)
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


CLIP_FRAMES, COPIES = 600, 10


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a film of 50 MB and 200 s: 10 times the same 600 frames, filled up to 2 Mbit/s, and its index at the end."""
    folder = tmp_path_factory.mktemp("film")
    filled = "nal-hrd=cbr:bitrate=2000:vbv-maxrate=2000:vbv-bufsize=2000:b-adapt=0:scenecut=0"
    clip = make_video(
        folder / "clip.mp4", pts=constant_rate_pts(RATE, CLIP_FRAMES), timebase=1 / RATE, gop=60,
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
# About four sections.
FILM_SECONDS = expected_seconds(CLIP_FRAMES * COPIES, 96 * 64, CLIP_FRAMES * COPIES, 96 * 64) / 4


def prepared_film(source: str | Path, out: Path, *, runner: str = "inline") -> Report:
    return prepared(source, out, FILM_PROFILE, runner=runner, seconds=FILM_SECONDS)


@pytest.fixture(scope="module")
def film_on_disk(film: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dataset of the film as a local file."""
    dataset = tmp_path_factory.mktemp("on_disk") / "dataset"
    assert prepared_film(film, dataset).failures == ()
    assert num_shards(dataset) == 4
    return dataset


def bytes_read(proxy: FlakyProxy, suffix: str = ".mp4") -> int:
    """How many bytes the GETs of ranges so far asked for."""
    total = 0
    for request in proxy.requests("GET", holding=suffix):
        first, _, last = request.range.removeprefix("bytes=").partition("-")
        total += int(last) - int(first) + 1 if first else int(last)
    return total


@pytest.mark.parametrize("runner", ["inline", "ray"])
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


def remuxed(source: Path, out: Path) -> Path:
    """Copy a video into another container."""
    with av.open(source) as container, av.open(out, "w") as copy:
        (stream,) = container.streams.video
        to = copy.add_stream_from_template(stream)
        for packet in container.demux(stream):
            if packet.size:
                packet.stream = to
                copy.mux(packet)
    return out


def test_a_container_without_such_an_index_is_fetched_twice_whatever_the_number_of_sections(
    film: Path, proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path
) -> None:
    put(f"{proxied_url}/film.mkv", remuxed(film, tmp_path / "film.mkv"))
    s3_proxy.forget()
    report = prepared_film(f"{proxied_url}/film.mkv", tmp_path / "dataset")
    assert (report.frames_added, report.failures) == (CLIP_FRAMES * COPIES, ())
    assert num_shards(tmp_path / "dataset") == 4
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


def long_unit(url: str) -> Unit:
    """The only source below a URL, as a job sees it before it encodes anything."""
    (item,) = look_at(find_sources([url]), OPTIONS, {}, (), replace=False)[0]
    return Unit("0" * 16, (item,), is_long=True)


OPTIONS = Options(PROFILE, SourcePolicy(), section_seconds=0.01, use_gpu=False)


def nothing(_progress: object) -> None:
    """No progress is wanted."""


@pytest.fixture(scope="module")
def short_film(tmp_path_factory: pytest.TempPathFactory) -> SyntheticVideo:
    """Make an MP4 that is cut into many sections where these may be short."""
    path = tmp_path_factory.mktemp("short") / "v.mp4"
    return make_video(path, pts=constant_rate_pts(RATE, 300), timebase=1 / RATE, gop=8)


@pytest.fixture
def dataset(short_film: SyntheticVideo, tmp_path: Path) -> DiskStorage:
    """Make a dataset with another video."""
    other = make_video(tmp_path / "other.mp4", pts=constant_rate_pts(RATE, 20), timebase=1 / RATE)
    make_dataset([other.path], tmp_path / "dataset", gop_frames=8, segment_seconds=Fraction(1, 4))
    return DiskStorage(tmp_path / "dataset")


def test_a_section_takes_no_more_of_the_disk_than_its_stretch(film: Path, s3_url: str, dataset: DiskStorage) -> None:
    put(f"{s3_url}/film.mp4", film)
    unit = long_unit(s3_url)
    options = Options(FILM_PROFILE, SourcePolicy(), section_seconds=FILM_SECONDS, use_gpu=False)
    found = run_step(dataset, Look(unit), options, nothing)
    assert isinstance(found, Sections)
    taken = []
    for section in found.sections:
        with file_of(dataset, unit.items[0].source, options.policy) as file:
            taken.append(Path(file.part(section.needed)).stat().st_blocks * 512)
    assert len(taken) == 4
    assert max(taken) < film.stat().st_size / 3
    assert sum(taken) < 1.1 * film.stat().st_size


def test_an_object_that_is_replaced_between_two_sections_fails_and_is_not_mixed(
    short_film: SyntheticVideo, s3_url: str, dataset: DiskStorage, tmp_path: Path
) -> None:
    put(f"{s3_url}/v.mp4", short_film.path)
    other = make_video(
        tmp_path / "v.mp4", pts=constant_rate_pts(RATE, 300), timebase=1 / RATE, gop=8, first_number=1000
    )
    order = Order([long_unit(s3_url)])
    results = []
    while order:
        step = order.next()
        if isinstance(step, OneSection) and step.number == 2:
            put(f"{s3_url}/v.mp4", other.path)
        results.append(order.done(step, run_step(dataset, step, OPTIONS, nothing)))
    (result,) = filter(None, results)
    assert [failure.reason for failure in result.failures] == [
        f"{s3_url}/v.mp4 was replaced after the job had looked at it; run the same command again"
    ]
    report = prepared(f"{s3_url}/v.mp4", tmp_path / "again")
    assert report.failures == ()
    assert numbers(tmp_path / "again") == list(range(1000, 1300))


@pytest.mark.parametrize("etags", [True, False])
def test_sections_of_a_file_on_a_web_server(etags: bool, short_film: SyntheticVideo, tmp_path: Path) -> None:
    with web_server(short_film.path.parent, "sig=topsecret", etags=etags) as server:
        report = prepared(f"{server.root}/v.mp4?sig=topsecret", tmp_path / "dataset")
    assert report.failures == ()
    assert num_shards(tmp_path / "dataset") >= 3
    assert numbers(tmp_path / "dataset") == list(range(300))


def test_requests_that_fail_do_not_show(
    short_film: SyntheticVideo, proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path
) -> None:
    put(f"{proxied_url}/v.mp4", short_film.path)
    s3_proxy.faults(Faults(seed=1, cut=0.3, failed=0.1))
    for out, given in (("in_store", f"{proxied_url}/v.mp4"), ("on_disk", short_film.path)):
        assert prepared(given, tmp_path / out).failures == ()
    assert_same(tmp_path / "in_store", tmp_path / "on_disk")


def test_a_file_of_which_nothing_is_known_but_its_size_is_looked_at_by_a_worker(s3_url: str) -> None:
    put(f"{s3_url}/v.mp4", b"content")
    unit = long_unit(s3_url)

    def is_long(size_bytes: int, seconds: float) -> bool:
        item = Item(unit.items[0].source, 1, size_bytes)
        (found,) = long_apart([Unit("u", (item,))], "p", {"v.mp4": seconds} if seconds else {}, long_seconds=120)
        return found.is_long

    assert is_long(MAY_BE_LONG_BYTES, 0)
    assert not is_long(MAY_BE_LONG_BYTES - 1, 0)
    assert not is_long(MAY_BE_LONG_BYTES, 100)
    assert is_long(1, 130)


def without_packet(source: Path, number: int, out: Path) -> Path:
    """Copy a video without one of its packets."""
    with av.open(source) as container, av.open(out, "w") as copy:
        (stream,) = container.streams.video
        to = copy.add_stream_from_template(stream)
        for at, packet in enumerate(container.demux(stream)):
            if packet.size and at != number:
                packet.stream = to
                copy.mux(packet)
    return out


def with_noise(source: Path, out: Path) -> Path:
    """Copy a video, but for bytes in its middle."""
    data = bytearray(source.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 5_000] = Random(0).randbytes(5_000)
    out.write_bytes(data)
    return out


@pytest.mark.parametrize("kind", ["a packet is missing", "noise"])
def test_damage_within_a_section_is_found_as_in_a_local_file(
    kind: str, short_film: SyntheticVideo, s3_url: str, tmp_path: Path
) -> None:
    """The survey of a file in a store does not see it. Where a reference frame is missing, only the headers of the
    packets show it."""
    if kind == "noise":
        damaged = with_noise(short_film.path, tmp_path / "v.mp4")
    else:
        damaged = without_packet(short_film.path, 201, tmp_path / "v.mp4")
    put(f"{s3_url}/v.mp4", damaged)
    reasons = {}
    for out, given in (("in_store", f"{s3_url}/v.mp4"), ("on_disk", damaged)):
        (failure,) = prepared(given, tmp_path / out).failures
        reasons[out] = failure.reason.replace(str(given), "it")
    assert "--salvage" in reasons["in_store"]
    assert reasons["in_store"] == reasons["on_disk"]


_JOB = """
import sys
from pathlib import Path
from test_far_sections import SIX_SECTIONS, prepared

if __name__ == "__main__":
    prepared(sys.argv[1], Path(sys.argv[2]), runner=sys.argv[3], seconds=SIX_SECTIONS)
"""
SIX_SECTIONS = expected_seconds(300, 96 * 64, 300, 96 * 64) / 6
_PATIENCE_SECONDS = 300


def start(url: str, dataset: Path, runner: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _JOB, url, str(dataset), runner],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=Path(__file__).parent,
    )  # fmt: skip


def wait_for_sections(job: subprocess.Popen[bytes], dataset: Path, number: int) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not (dataset / "sections").is_dir() or len(list((dataset / "sections").iterdir())) < number:
        assert time.monotonic() < end, "waited in vain for sections"
        assert job.poll() is None, "the job ended too early"
        time.sleep(0.005)


@pytest.fixture
def short_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let temporary files lie in a folder of their own, whose name is short enough for the sockets of Ray."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr("tempfile.tempdir", None)
        yield Path(folder)


def test_a_job_whose_workers_and_driver_are_killed_goes_on_with_the_sections_that_are_there(
    short_film: SyntheticVideo, s3_url: str, tmp_path: Path, short_folder: Path
) -> None:
    put(f"{s3_url}/v.mp4", short_film.path)
    prepared(short_film.path, tmp_path / "on_disk", seconds=SIX_SECTIONS)
    assert num_shards(tmp_path / "on_disk") == 6
    dataset = tmp_path / "dataset"
    job = start(f"{s3_url}/v.mp4", dataset, "ray")
    wait_for_sections(job, dataset, 1)
    assert kill_workers(job.pid)
    wait_for_sections(job, dataset, 2)
    below = [pid for pid, _ in descendants(job.pid)]
    job.kill()
    job.wait()
    end = time.monotonic() + _PATIENCE_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < end, "processes of the job live on"
        time.sleep(0.05)
    kept = {file.name: file.stat().st_ino for file in (dataset / "shards").iterdir()}
    # In a process of its own: each process removes once what others left.
    assert start(f"{s3_url}/v.mp4", dataset, "inline").wait(_PATIENCE_SECONDS) == 0
    assert_same(dataset, tmp_path / "on_disk")
    # The shards of finished sections were not written again.
    assert {name: (dataset / "shards" / name).stat().st_ino for name in kept} == kept
    assert [path for path in short_folder.rglob("shortgop-*/*") if "source" in path.name] == []
