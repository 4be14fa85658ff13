"""A local cache that is filled before a dataset in a store is read: `fill_cache` and `shortgop cache`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shortgop
from flaky_proxy import FlakyProxy
from shortgop.cli import app
from shortgop.readers.cache_filling import Filling, cached_bytes, fill_cache
from shortgop.readers.dataset import reader_of
from shortgop.storage.range_cache import RangeCache
from store_helpers import put_up


@pytest.fixture
def proxied(three_videos: Path, proxied_url: str, s3_proxy: FlakyProxy) -> str:
    """The dataset on a server whose requests are counted."""
    put_up(three_videos, proxied_url)
    s3_proxy.forget()
    return proxied_url


def bytes_of_each_video(place: str) -> list[int]:
    """What each video takes in a cache."""
    manifest = reader_of(shortgop.open(place)).manifest
    return list(cached_bytes(manifest, np.arange(len(manifest.videos))).tolist())


class TestFilling:
    def test_videos_are_read_without_requests_then(self, proxied: str, s3_proxy: FlakyProxy, tmp_path: Path) -> None:
        dataset = shortgop.open(proxied, cache_dir=tmp_path, cache_bytes=1 << 30)
        states: list[Filling] = []
        done = fill_cache(dataset, ["film.mkv", "ntsc.mp4"], on_progress=states.append)
        assert (done.videos, done.videos_done, done.left_out) == (2, 2, 0)
        assert [state.videos_done for state in states] == [0, 1, 2]
        assert done.bytes_fetched == dataset.stats().bytes_read > 0
        s3_proxy.forget()
        dataset["film.mkv"].get_all_frames()
        dataset["ntsc.mp4"].get_all_frames()
        assert s3_proxy.requests() == []
        # Again: what is there is not fetched.
        assert fill_cache(dataset, ["film.mkv", "ntsc.mp4"]).bytes_fetched == 0
        assert s3_proxy.requests() == []

    def test_a_video_that_does_not_fit_leaves_room_for_those_after_it(self, proxied: str, tmp_path: Path) -> None:
        sizes = bytes_of_each_video(proxied)
        smallest, middle, largest = sorted(range(3), key=sizes.__getitem__)
        limit = sizes[smallest] + sizes[middle]
        dataset = shortgop.open(proxied, cache_dir=tmp_path, cache_bytes=limit)
        done = fill_cache(dataset, [smallest, largest, middle])
        assert (done.videos_done, done.left_out) == (2, 1)
        assert RangeCache(tmp_path, 1).used_bytes == limit

    def test_videos_are_taken_as_long_as_they_fit(self, proxied: str, tmp_path: Path) -> None:
        sizes = bytes_of_each_video(proxied)
        dataset = shortgop.open(proxied, cache_dir=tmp_path, cache_bytes=sizes[0] + sizes[1])
        done = fill_cache(dataset)
        assert (done.videos_done, done.left_out) == (2, 1)
        assert RangeCache(tmp_path, 1).used_bytes == sizes[0] + sizes[1]
        with pytest.raises(shortgop.UsageError, match="give it more"):
            fill_cache(shortgop.open(proxied, cache_dir=tmp_path, cache_bytes=100))
        with pytest.raises(shortgop.UsageError, match="without a cache"):
            fill_cache(shortgop.open(proxied))

    def test_a_cache_that_takes_nothing_is_an_error(self, proxied: str, tmp_path: Path) -> None:
        dataset = shortgop.open(proxied, cache_dir=tmp_path, cache_bytes=1 << 30)
        fill_cache(dataset, ["film.mkv"])
        index = sqlite3.connect(tmp_path / "ranges-1" / "index.sqlite")
        with contextlib.closing(index), index:
            index.execute("UPDATE state SET value = 'many' WHERE name = 'bytes'")
        run = CliRunner().invoke(
            app, ["cache", proxied, "--all", "--cache-dir", str(tmp_path), "--cache-bytes", str(1 << 30)]
        )
        assert run.exit_code == 1
        assert "cannot write" in run.output

    @pytest.mark.parametrize("place", ["s3://corpus/c", Path("s3://corpus/c"), "s3:/corpus/c", "file:///c"])
    def test_a_cache_is_a_folder_of_this_host(
        self, proxied: str, place: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(shortgop.UsageError, match="a folder of this host, given as a path"):
            shortgop.open(proxied, cache_dir=place)
        run = CliRunner().invoke(app, ["cache", proxied, "--all", "--cache-dir", str(place), "--cache-bytes", "1000"])
        assert run.exit_code == 2
        assert list(tmp_path.iterdir()) == []

    def test_a_name_behind_a_tilde_that_is_no_users_is_a_name(
        self, proxied: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        fill_cache(shortgop.open(proxied, cache_dir="~nobody-has-this-name/cache", cache_bytes=1 << 30))
        assert [each.name for each in tmp_path.iterdir()] == ["~nobody-has-this-name"]

    def test_the_command(self, proxied: str, tmp_path: Path) -> None:
        cache = ["--cache-dir", str(tmp_path), "--cache-bytes", "1GB"]
        run = CliRunner().invoke(app, ["cache", proxied, "--videos", "film.mkv", *cache])
        assert run.exit_code == 0, run.output
        assert "1 video in" in run.output
        run = CliRunner().invoke(app, ["cache", proxied, "--videos", "film.mkv", *cache])
        assert run.stdout == f"1 video in {tmp_path}, of which this command fetched 0 B\n"
        run = CliRunner().invoke(app, ["cache", proxied, "--all", *cache, "--json"])
        assert json.loads(run.stdout)["videos_done"] == 3
        assert CliRunner().invoke(app, ["cache", proxied, *cache]).exit_code == 2
        size = bytes_of_each_video(proxied)[0]
        small = ["--cache-dir", str(tmp_path / "small"), "--cache-bytes", str(size)]
        run = CliRunner().invoke(app, ["cache", proxied, "--all", *small])
        assert run.exit_code == 3
        assert "did not fit" in run.output
