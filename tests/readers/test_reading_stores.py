"""A dataset in a store, or behind the local cache, reads as the same dataset on a disk does."""

from __future__ import annotations

import math
import pickle
import random
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import shortgop
from file_permissions import modes_count
from flaky_proxy import FLAKY, Faults, FlakyProxy
from shortgop.manifests.dataset_files.layout import snapshot_key
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.readers import fetching
from shortgop.readers.dataset import reader_of
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at
from store_helpers import put, put_up
from sweep import sample
from synthetic import read_number

Opener = Callable[..., shortgop.Dataset]


@pytest.fixture
def on_disk(three_videos: Path) -> shortgop.Dataset:
    return shortgop.open(three_videos)


@pytest.fixture(params=sample(["memory", "s3", "cached disk", "cached s3"], more=["flaky", "cached flaky"]))
def opener(request: pytest.FixtureRequest, three_videos: Path, tmp_path: Path) -> Opener:
    """What opens the dataset in a place that is no disk, or behind the cache."""
    place = str(three_videos)
    if "flaky" in request.param:
        place = request.getfixturevalue("proxied_url")
        request.getfixturevalue("s3_proxy").faults(FLAKY)
        put_up(three_videos, place)
    elif "disk" not in request.param:
        place = f"memory://{uuid.uuid4().hex}" if request.param == "memory" else request.getfixturevalue("s3_url")
        put_up(three_videos, place)
    cached: dict[str, Any] = {"cache_dir": tmp_path / "cache"} if "cached" in request.param else {}
    return lambda **options: shortgop.open(place, **{**cached, **options})


def test_any_frames_of_any_videos_are_those_of_the_disk(opener: Opener, on_disk: shortgop.Dataset) -> None:
    dataset = opener(threads=2)
    draws = random.Random(0)
    for _ in range(12):
        video = draws.choice(on_disk.ids)
        frames = [draws.randrange(len(on_disk[video])) for _ in range(draws.randint(1, 40))]
        ours, theirs = dataset[video].get_frames_at(frames), on_disk[video].get_frames_at(frames)
        assert torch.equal(ours.data, theirs.data)
        assert torch.equal(ours.pts_seconds, theirs.pts_seconds)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_whole_video_and_a_batch_are_those_of_the_disk(
    opener: Opener, on_disk: shortgop.Dataset, threads: int
) -> None:
    dataset = opener(threads=threads)
    for video in on_disk.ids:
        assert torch.equal(dataset[video].get_all_frames().data, on_disk[video].get_all_frames().data)
    requests = [("ntsc.mp4", range(start, start + 30, 3)) for start in range(0, 45, 7)]
    assert torch.equal(dataset.get_clips(requests).data, on_disk.get_clips(requests).data)


def test_a_copy_by_pickle_reads_the_same(opener: Opener, on_disk: shortgop.Dataset) -> None:
    copy = pickle.loads(pickle.dumps(opener()))
    assert torch.equal(copy["ntsc.mp4"][::9], on_disk["ntsc.mp4"][::9])


@pytest.fixture
def proxied(three_videos: Path, proxied_url: str, s3_proxy: FlakyProxy) -> str:
    """The dataset on a server whose requests are counted."""
    put_up(three_videos, proxied_url)
    s3_proxy.forget()
    return proxied_url


class TestRequests:
    def test_a_small_dataset_opens_with_three(self, proxied: str, s3_proxy: FlakyProxy) -> None:
        """The root, the snapshot, and a list of the shards."""
        dataset = shortgop.open(proxied)
        assert s3_proxy.counts() == {"GET": 3}
        assert dataset.stats().requests == 0, "counted from then on"

    def test_a_clip_takes_one(self, proxied: str, s3_proxy: FlakyProxy) -> None:
        """32 frames of four GOPs, in two segments of one shard."""
        dataset = shortgop.open(proxied)
        s3_proxy.forget()
        batch = dataset["ntsc.mp4"].get_frames_at(range(2, 34))
        assert [read_number(frame) for frame in batch.data] == list(range(2, 34))
        requests = s3_proxy.requests()
        assert [(each.method, each.status) for each in requests] == [("GET", 206)]
        stats = dataset.stats()
        assert (stats.requests, stats.reads, stats.retries, stats.hedges) == (1, 1, 0, 0)
        first, last = map(int, requests[0].range.removeprefix("bytes=").split("-"))
        assert stats.bytes_received == stats.bytes_read == last + 1 - first
        assert stats.wait_seconds > 0

    def test_a_batch_takes_one_for_each_run_of_a_shard(self, proxied: str, s3_proxy: FlakyProxy) -> None:
        dataset = shortgop.open(proxied, max_gap_bytes=0)
        s3_proxy.forget()
        dataset.get_clips([("ntsc.mp4", [0, 9, 17]), ("ntsc.mp4", [3, 11, 20]), ("ntsc.mp4", [60, 61, 70])])
        # GOPs 0 and 1 of the first segment, 2 of the next, behind its init, then 7 and 8, which two segments have.
        assert len(s3_proxy.requests()) == 4
        s3_proxy.forget()
        shortgop.open(proxied, max_gap_bytes=1 << 20)["ntsc.mp4"].get_frames_at([0, 70])
        assert len(s3_proxy.requests(holding="shards/")) == 2, "a list, and one read over all that lies between"

    def test_of_what_the_cache_has_none(self, proxied: str, s3_proxy: FlakyProxy, tmp_path: Path) -> None:
        """Also in another process of this host, here a dataset that was opened anew."""
        options: dict[str, Any] = {"cache_dir": tmp_path, "cache_bytes": 1 << 30}
        first = shortgop.open(proxied, **options)
        first["film.mkv"].get_frames_at(range(20))
        assert (first.stats().cache_hits, first.stats().cache_misses) == (0, 3)
        wait_for(lambda: len(entries_in(tmp_path)) == 3)
        second = shortgop.open(proxied, **options)
        s3_proxy.forget()
        batch = second["film.mkv"].get_frames_at(range(4, 24))
        assert [read_number(frame) for frame in batch.data] == list(range(4, 24))
        assert s3_proxy.requests() == []
        assert (second.stats().cache_hits, second.stats().cache_misses, second.stats().requests) == (3, 0, 0)

    def test_a_damaged_entry_is_fetched_again(self, proxied: str, s3_proxy: FlakyProxy, tmp_path: Path) -> None:
        dataset = shortgop.open(proxied, cache_dir=tmp_path, cache_bytes=1 << 30)
        expected = dataset["film.mkv"].get_frames_at(range(8)).data
        wait_for(lambda: len(entries_in(tmp_path)) == 1)
        file = entries_in(tmp_path)[0]
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        for requests in (1, 0):
            s3_proxy.forget()
            assert torch.equal(dataset["film.mkv"].get_frames_at(range(8)).data, expected)
            assert len(s3_proxy.requests()) == requests
            wait_for(lambda: file.read_bytes() != data)

    def test_those_that_fail_are_made_again_and_counted(self, proxied: str, s3_proxy: FlakyProxy) -> None:
        dataset = shortgop.open(proxied, max_gap_bytes=0)
        s3_proxy.faults(Faults(seed=1, failed=0.2, cut=0.2))
        for start in range(0, 60, 9):
            batch = dataset["ntsc.mp4"].get_frames_at(range(start, start + 9))
            assert [read_number(frame) for frame in batch.data] == list(range(start, start + 9))
        assert dataset.stats().retries > 0

    def test_a_late_one_is_hedged(self, proxied: str, s3_proxy: FlakyProxy) -> None:
        dataset = shortgop.open(proxied, hedge_after=0.2)
        s3_proxy.faults(Faults(silent=1))
        assert read_number(dataset["ntsc.mp4"][40]) == 40
        assert dataset.stats().hedges == 1

    def test_what_has_no_answer_in_time_is_an_error(self, proxied: str, s3_proxy: FlakyProxy) -> None:
        """As a service needs it, which has to answer: a silent server, and one that fails each time. Others wait for
        minutes."""
        dataset = shortgop.open(proxied, give_up_after=0.5)
        # A busy machine may take as long for the second one's answer.
        late = "no answer in time"
        for faults, why in ((Faults(silent=100), late), (Faults(seed=1, failed=1.0), f"answered 5|{late}")):
            s3_proxy.faults(faults)
            began = time.monotonic()
            with pytest.raises(shortgop.UnreadableDataError, match=why) as caught:
                dataset["ntsc.mp4"].get_frame_at(40)
            assert caught.value.video == "ntsc.mp4"
            with pytest.raises(shortgop.UnreadableDataError):
                shortgop.open(proxied, give_up_after=0.5)
            assert time.monotonic() - began < 20
        s3_proxy.faults(Faults())
        assert read_number(dataset["ntsc.mp4"][40]) == 40

    def test_a_late_one_is_hedged_and_given_up_where_the_second_is_late_too(
        self, proxied: str, s3_proxy: FlakyProxy
    ) -> None:
        dataset = shortgop.open(proxied, hedge_after=0.2, give_up_after=2)
        s3_proxy.faults(Faults(silent=1))
        assert read_number(dataset["ntsc.mp4"][40]) == 40
        s3_proxy.faults(Faults(silent=100))
        with pytest.raises(shortgop.UnreadableDataError, match="no answer in time"):
            dataset["film.mkv"].get_frame_at(4)
        assert dataset.stats().hedges == 2


class TestReadingAhead:
    @pytest.mark.parametrize("mixed", [False, True])
    def test_what_was_announced_is_fetched_before_it_is_asked_for(
        self, proxied: str, s3_proxy: FlakyProxy, mixed: bool
    ) -> None:
        alone = shortgop.ClipDataset(proxied, shortgop.AllClips(8), videos=["ntsc.mp4"])
        clips = shortgop.MixedClips([alone]) if mixed else alone
        s3_proxy.faults(Faults(latency_seconds=0.3))
        clips.will_need([0, 1, 2])
        # Their GOPs are neighbours.
        wait_for(lambda: clips.stats().reads == 1)
        before = clips.stats()
        items = clips.items(clips.full_draws([0, 1, 2]))
        used = clips.stats() - before
        assert used.requests == 0
        assert used.wait_seconds < 0.2
        for item in items:
            first = int(item["start"])
            assert [read_number(frame) for frame in item["frames"]] == list(range(first, first + 8))

    def test_batches_that_share_gops_were_both_announced(self, proxied: str, s3_proxy: FlakyProxy) -> None:
        """The first batch must not take away what the second one needs: that would wait for another request."""
        dataset = shortgop.open(proxied, max_gap_bytes=0)
        reader = reader_of(dataset)
        s3_proxy.faults(Faults(latency_seconds=0.3))
        batches = [[0, 20], [20, 21, 40], [40]]
        for frames in batches:
            reader.will_need([1], [frames])
        # Each of their three GOPs once.
        wait_for(lambda: dataset.stats().reads == 3)
        before = dataset.stats()
        for frames in batches:
            batch = dataset["ntsc.mp4"].get_frames_at(frames)
            assert [read_number(frame) for frame in batch.data] == frames
        used = dataset.stats() - before
        assert (used.requests, used.wait_seconds < 0.2) == (0, True)
        # Nothing stays for batches that have come.
        dataset["ntsc.mp4"].get_frames_at([20])
        assert (dataset.stats() - before).requests == 1

    @pytest.mark.parametrize("workers", [0, 1])
    def test_a_loader_delivers_the_clips_of_a_store(
        self, clips_folder: Path, s3_url: str, tmp_path: Path, workers: int
    ) -> None:
        put_up(clips_folder, s3_url)
        clips = shortgop.ClipDataset(shortgop.open(s3_url, cache_dir=tmp_path), shortgop.AllClips(4, stride=2))
        sampler = shortgop.ElasticSampler(clips, 8)
        seen = 0
        with shortgop.ClipLoader(clips, sampler, workers=workers, threads=1) as loader:
            for batch in loader:
                for video, start, frames in zip(batch["video"], batch["start"], batch["frames"], strict=True):
                    first = 1000 * int(video) + int(start)
                    assert [read_number(frame) for frame in frames] == list(range(first, first + 8, 2))
                    seen += 1
        assert seen == len(sampler)

    def test_the_reads_of_a_batch_run_side_by_side(self, proxied: str, s3_proxy: FlakyProxy) -> None:
        dataset = shortgop.open(proxied, max_gap_bytes=0)
        s3_proxy.faults(Faults(latency_seconds=0.5))
        # Every other GOP: each is a request.
        batch = dataset["ntsc.mp4"].get_frames_at([0, 16, 32, 48, 64])
        assert [read_number(frame) for frame in batch.data] == [0, 16, 32, 48, 64]
        stats = dataset.stats()
        assert stats.requests == 5
        assert stats.wait_seconds < 5 * 0.5

    def test_what_nobody_takes_is_bounded(self, proxied: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetching, "_MAX_BYTES_AHEAD", 10_000)
        dataset = shortgop.open(proxied, max_gap_bytes=0)
        reader = reader_of(dataset)
        for video in range(3):
            reader.will_need([video], [list(range(0, 40, 8))])
        bytes_ahead = dataset.stats().bytes_read
        wait_for(lambda: dataset.stats().requests > 0)
        assert bytes_ahead <= 10_000 + 5_000
        # A batch that is longer comes a part at a time.
        frames = dataset["ntsc.mp4"].get_all_frames().data
        assert [read_number(frame) for frame in frames] == list(range(75))

    def test_one_error_does_not_keep_others_from_being_read(self, three_videos: Path, proxied_url: str) -> None:
        put_up(three_videos, proxied_url)
        dataset = shortgop.open(proxied_url)
        storage_at(proxied_url).remove("shards")
        for _ in range(2):
            with pytest.raises(shortgop.MissingDataError, match=r"frames 0 to 7 of video 'film.mkv'.*is missing; run"):
                dataset["film.mkv"].get_frames_at(range(30))
        put_up(three_videos, proxied_url)
        assert read_number(dataset["film.mkv"][9]) == 9


@pytest.mark.parametrize("num_cut", [1, 500, 2000])
def test_a_manifest_that_was_cut_at_its_front_is_damaged(
    three_videos: Path, s3_url: str, tmp_path: Path, num_cut: int
) -> None:
    put_up(three_videos, s3_url)
    snapshot = snapshot_key(str(open_current(DiskStorage(three_videos))[0].snapshot))
    cut = (three_videos / snapshot).read_bytes()[num_cut:]
    put(f"{s3_url}/{snapshot}", cut)
    shutil.copytree(three_videos, tmp_path / "copy")
    (tmp_path / "copy" / snapshot).write_bytes(cut)
    for place in (s3_url, tmp_path / "copy"):
        with pytest.raises(shortgop.CorruptDataError, match="not a whole zip file.* copy"):
            shortgop.open(place)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"cache_dir": 3}, "cache_dir is 3"),
        ({"cache_dir": "a\0b"}, r"cache_dir is '.*a\\x00b', which has a null byte"),
        ({"cache_bytes": 0}, "cache_bytes is 0"),
        ({"cache_bytes": 1.5}, "cache_bytes is 1.5"),
        ({"max_gap_bytes": -1}, "max_gap_bytes is -1"),
        ({"hedge_after": 0}, "hedge_after is 0"),
        ({"hedge_after": "1"}, "hedge_after is '1'"),
        ({"hedge_after": math.nan}, "hedge_after is nan"),
        ({"give_up_after": 0}, "give_up_after is 0"),
        ({"give_up_after": math.inf}, "give_up_after is inf"),
        ({"give_up_after": "1"}, "give_up_after is '1'"),
    ],
)
def test_options_that_make_no_sense(three_videos: Path, options: dict[str, Any], error: str) -> None:
    with pytest.raises(shortgop.UsageError, match=error):
        shortgop.open(three_videos, **options)


def test_a_cache_dir_that_is_a_file_is_refused(three_videos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(shortgop.UsageError, match="which is a file"):
        shortgop.open(three_videos, cache_dir=tmp_path / "file")


def test_a_cache_dir_that_cannot_be_looked_at_is_no_error_of_python(three_videos: Path, tmp_path: Path) -> None:
    """What cannot be kept there is told when it is read."""
    (tmp_path / "closed").mkdir(mode=0)
    assert len(shortgop.open(three_videos, cache_dir=tmp_path / ("long" * 100))) == 3
    with modes_count():
        assert len(shortgop.open(three_videos, cache_dir=tmp_path / "closed/cache")) == 3


def entries_in(folder: Path) -> list[Path]:
    return [path for path in folder.glob("ranges-1/*/*") if path.stat().st_size]


def wait_for(condition: Callable[[], bool]) -> None:
    """What was fetched is put into the cache after it was handed over."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
