"""What many tests share: small videos whose frames show their numbers, and datasets, each made once in a test run."""

import gc
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

import large_datasets
import loader_helpers
from as_found import as_found
from bare_ray import local_ray
from cuda_ffmpeg import GpuMachine, Installed, install
from dataset_places import Places, copied, folders, prefixes, s3_settings
from datasets import make_dataset
from dead_mount import dead_mount
from example_manifests import failure, video
from flaky_proxy import FLAKY, Faults, FlakyProxy, flaky_proxy
from killed_steps import Killer, killer
from layers_everywhere import layers_everywhere
from nvcuvid_stub import Stub, compiled
from s3_server import empty, s3_server, share_models, url_in_bucket
from shortgop.manifests.dataset_files import root_file
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.layering import layers
from shortgop.manifests.merging.merge import merge
from shortgop.prep import gpu_attempts
from shortgop.prep.running import mounts, processes
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.training.datasets.clip_dataset import ClipDataset
from small_disks import mounted_disk
from synthetic import SyntheticVideo, constant_rate_pts, make_video, variable_rate_pts

# How long an example takes says more of the machine, and of what else runs on it, than of the code.
settings.register_profile("shortgop", deadline=None)
settings.register_profile("short", deadline=None, max_examples=40)
settings.load_profile("shortgop")


# A file's tests run in one process. These files take longest; were one of them the last, the other process would wait.
# Those that wait for Ray most of the time take turns with those that compute.
_FIRST = (
    "test_ray", "test_soft_gpu", "test_cluster_chaos", "test_loader_failures", "test_cluster", "test_killed_edits",
    "test_ray_data", "test_corpus_life", "test_cluster_machines", "test_gpu_prep", "test_ray_looks", "test_lost_tasks",
    "test_full_disks", "test_cluster_docs", "test_interruption", "test_kinds_of_machines", "test_damaged_beginnings",
    "test_status_watch", "test_schedule_simulation", "test_ray_start", "test_lost_roots", "test_hanging_looks",
    "test_autoscaler", "test_interrupted_passes", "test_unread_video", "test_progress_boards", "test_lost_power",
    "test_long_stretches", "test_ray_own_items", "test_long_sources", "test_loader_chaos", "test_guessed_memory",
    "test_streams_in_mid_gop", "test_sections", "test_memory_of_all_videos", "test_ray_sections", "test_gpu_sections",
    "test_task_memory", "test_growth", "test_second_attempts", "test_lost_head", "test_examples", "test_windows",
    "test_frames", "test_sample_videos", "test_salvage", "test_stalls", "test_far_sections", "test_gpu_placement",
)  # fmt: skip


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first, and then the others by their names."""
    places = {name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(_FIRST)))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of a test with the mark `first_case_short`, all other cases are long."""
    if not item.get_closest_marker("first_case_short"):
        return
    assert isinstance(item, pytest.Function)
    if any(item.callspec.indices.values()):
        item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Have garbage collections look at what tests make, and not at the million objects of modules and tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def video_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for sources that several tests read and none changes."""
    return tmp_path_factory.mktemp("videos")


@pytest.fixture(scope="session")
def constant_video(video_folder: Path) -> SyntheticVideo:
    """Make the usual web clip: H.264 in mp4, 100 frames at 30 per second, one keyframe."""
    path = video_folder / "constant.mp4"
    return make_video(path, pts=constant_rate_pts(Fraction(30), 100), timebase=Fraction(1, 30))


@pytest.fixture(scope="session")
def variable_video(video_folder: Path) -> SyntheticVideo:
    """Make what phones and screen recorders write: 100 frames, each with a duration of its own."""
    timebase = Fraction(1, 90000)
    pts = variable_rate_pts(1, 100, timebase)
    return make_video(video_folder / "variable.mp4", pts=pts, timebase=timebase)


@pytest.fixture(scope="session")
def late_video(video_folder: Path) -> SyntheticVideo:
    """Make a video that begins 3.5 s into the file, while the sound begins at 0."""
    timebase = Fraction(1, 90000)
    pts = variable_rate_pts(2, 60, timebase, start=315000)
    return make_video(video_folder / "late.mkv", pts=pts, timebase=timebase, audio_start=Fraction(0))


@pytest.fixture(scope="session")
def rotated_video(video_folder: Path) -> SyntheticVideo:
    """Make a portrait video as phones do: coded lying on its side, to be turned by 90 degrees when shown."""
    pts = constant_rate_pts(Fraction(30), 40)
    path = video_folder / "rotated.mp4"
    return make_video(path, pts=pts, timebase=Fraction(1, 30), size=(64, 96), rotation=90)


@pytest.fixture(scope="session")
def three_videos(tmp_path_factory: pytest.TempPathFactory, rotated_video: SyntheticVideo) -> Path:
    """Make a dataset of videos of different sizes and rates, of several segments each, which no test changes."""
    root = tmp_path_factory.mktemp("reader")
    rates = {"ntsc.mp4": (Fraction(30000, 1001), (98, 66)), "film.mkv": (Fraction(24), (128, 96))}
    for name, (rate, size) in rates.items():
        make_video(root / name, pts=constant_rate_pts(rate, 75), timebase=1 / rate, size=size)
    sources = [*(root / name for name in rates), rotated_video.path]
    assert make_dataset(sources, root / "dataset", gop_frames=8, segment_seconds=Fraction(1, 2)).failures == ()
    return root / "dataset"


@pytest.fixture
def no_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody replaces a zarr.json meanwhile: where there is none, it is not looked for again for a second."""
    monkeypatch.setattr(root_file, "_SECONDS_TO_LOOK_AGAIN", 0)


@pytest.fixture
def empty_dataset(tmp_path: Path) -> Path:
    """Make a dataset with nothing in it."""
    create(DiskStorage(tmp_path / "dataset"), {"gop_frames": 4})
    return tmp_path / "dataset"


@pytest.fixture(scope="session")
def _published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "dataset"
    create(DiskStorage(path), {"gop_frames": 4})
    write_part(
        DiskStorage(path), "u1", merge([video("a", shard="u1-0.shard"), video("b", shard="u1-0.shard", offset=9000)])
    )
    write_part(DiskStorage(path), "u2", merge([video("c", shard="u2-0.shard"), failure("d", "cut short")]))
    publish(DiskStorage(path))
    return path


@pytest.fixture
def published(_published: Path, tmp_path: Path) -> Path:
    """Make a dataset of three videos and a failure, in two parts and one snapshot; there are no shards."""
    shutil.copytree(_published, tmp_path / "dataset")
    return tmp_path / "dataset"


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an example in a folder of its own, so that arguments can be written as a user would."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 5 MB, where that is allowed."""
    (tmp_path / "disk").mkdir()
    with mounted_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Mount a file system that answers neither reading nor closing; skipped where mounting is not allowed."""
    # No process that reads there ends when it is killed, however long one waits.
    monkeypatch.setattr(processes, "_GRACE_SECONDS", 1.0)
    monkeypatch.setattr(mounts, "_answered", {})  # a mount of an earlier test may have had the number of this one
    (folder := tmp_path / "dead").mkdir()
    with dead_mount(folder, size=100_000) as mounted:
        if mounted is None:
            pytest.skip("mounting a file system takes rights that are missing here")
        yield mounted
    for process in processes.left_behind:
        assert process.wait(60)


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """Let torch use one thread: with more, it waits for them in each of the many small steps of its conversion."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def clips_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the dataset that tests of loaders read: two videos, whose frames show 0 to 40 and 1000 to 1040."""
    return loader_helpers.make_clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="session")
def clips_dataset(clips_folder: Path) -> ClipDataset:
    """Open it: all clips of two neighbouring frames."""
    return loader_helpers.clips(clips_folder)


@pytest.fixture(scope="session")
def clips_shown(clips_dataset: ClipDataset) -> list[loader_helpers.Shown]:
    """Return what the batches of an undisturbed loader show."""
    return loader_helpers.undisturbed(clips_dataset)


@pytest.fixture(scope="module")
def bare_local_ray() -> Iterator[None]:
    """Let the Ray that this process starts for itself have only what a job needs."""
    with local_ray():
        yield


@pytest.fixture(scope="module", autouse=True)
def process_as_found() -> Iterator[None]:
    """Leave nothing of a file's tests for those of the next file."""
    with as_found():
        yield


@pytest.fixture
def no_other_loaders() -> None:
    """An error that was caught may hold those of earlier tests."""
    gc.collect()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Start an S3 server with one bucket, and stop it at the end of the test run."""
    share_models()
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def _emptied(s3_endpoint: str) -> Iterator[None]:
    yield
    empty(s3_endpoint)


@pytest.fixture(scope="session")
def _proxy(s3_endpoint: str) -> Iterator[FlakyProxy]:
    with flaky_proxy(s3_endpoint) as proxy:
        yield proxy


@pytest.fixture
def s3_url(s3_endpoint: str, _emptied: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an s3:// URL below which there is nothing, with the environment that plain s3:// URLs want."""
    return url_in_bucket(s3_endpoint, uuid.uuid4().hex, monkeypatch)


@pytest.fixture
def s3_proxy(_proxy: FlakyProxy) -> FlakyProxy:
    """Return what sits between `proxied_url` and the server: it counts requests and, told so, makes them fail."""
    proxy = replace(_proxy, prefix=uuid.uuid4().hex)
    proxy.faults(Faults())
    proxy.forget()
    return proxy


@pytest.fixture
def proxied_url(s3_proxy: FlakyProxy, _emptied: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an s3:// URL below which there is nothing, of the same server behind the proxy."""
    return url_in_bucket(s3_proxy.endpoint, s3_proxy.prefix, monkeypatch)


@pytest.fixture(scope="class")
def disk_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Return places in folders."""
    return folders(tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="class")
def layered_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Return places in folders. Datasets have layers there however small they are: each publication adds one."""
    with layers_everywhere():
        yield folders(tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="class")
def s3_places(s3_endpoint: str, _emptied: None) -> Iterator[Places]:
    """Return places in S3, in this process and its children."""
    with s3_settings(s3_endpoint):
        yield prefixes()


@pytest.fixture(scope="class")
def flaky_places(_proxy: FlakyProxy, _emptied: None) -> Iterator[Places]:
    """Return places in S3 over a network where one request in ten fails, bodies are cut, and answers are lost."""
    _proxy.faults(FLAKY)
    with s3_settings(_proxy.endpoint):
        yield prefixes()
    _proxy.faults(Faults())


@pytest.fixture(scope="class")
def places(request: pytest.FixtureRequest) -> Places:
    """Return places of the kind that the class of the test names: `where` is "disk", "layered", "s3" or "flaky"."""
    found = request.getfixturevalue(f"{request.cls.where}_places")
    assert isinstance(found, Places)
    return found


@pytest.fixture(scope="class")
def killed_copies(places: Places) -> Iterator[Killer]:
    """Start the process that has operations killed, where the URLs of these places mean the same as here."""
    with killer() as run:
        yield run


@pytest.fixture
def empty_place(places: Places) -> Storage:
    """Make a dataset with nothing in it, at a place of that kind."""
    place = places.new()
    create(place, {"gop_frames": 4})
    return place


@pytest.fixture
def published_place(_published: Path, places: Places) -> Storage:
    """Copy the dataset of `published` to a place of that kind."""
    return copied(_published, places.new())


@pytest.fixture
def small_datasets_have_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MIN_ROWS", 1)


@pytest.fixture
def large(small_datasets_have_layers: None, tmp_path: Path) -> Storage:
    """A dataset with one snapshot of all that is old, to which little is added."""
    return large_datasets.published(tmp_path / "dataset", [large_datasets.OLD])


@pytest.fixture(scope="module")
def gpu_ffmpegs(tmp_path_factory: pytest.TempPathFactory) -> GpuMachine:
    """Install an ffmpeg for each kind of GPU once: trying it takes seconds."""
    known: dict[str, Installed] = {}

    def get(**has: Any) -> Installed:
        key = repr(sorted(has.items()))
        # A program that refuses sessions remembers which ones.
        if key not in known or "refusals" in has:
            known[key] = install(tmp_path_factory.mktemp("ffmpeg"), **has)
        known[key].log.write_text("")
        return known[key]

    return get


@pytest.fixture
def gpu_machine(gpu_ffmpegs: GpuMachine, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuMachine]:
    """Let prep use the ffmpeg of a machine with this GPU."""

    def use(**has: Any) -> Installed:
        gpu = gpu_ffmpegs(**has)
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, gpu.path)
        find_ffmpeg.cache_clear()
        return gpu

    monkeypatch.setattr(gpu_attempts, "_PAUSES_SECONDS", (0.0, 0.0))
    yield use
    monkeypatch.undo()
    find_ffmpeg.cache_clear()


@pytest.fixture(scope="session")
def nvcuvid_library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compile the library that records the calls of libnvcuvid."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    return compiled(tmp_path_factory.mktemp("nvcuvid"))


@pytest.fixture
def stub(nvcuvid_library: Any) -> Iterator[Stub]:
    """Begin to record calls, and see that nothing is left open."""
    stub = Stub(nvcuvid_library)
    yield stub
    assert stub.open_handles == (0, 0, 0), "something was left open"
