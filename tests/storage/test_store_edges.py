"""Datasets in stores that allow less than S3, and neighbours in a bucket."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner

import shortgop
from flaky_proxy import Faults, FlakyProxy
from s3_server import environment
from shortgop.cli import app
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.verify import verify
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from synthetic import read_number
from web_server import web_server


def test_a_dataset_on_a_web_server_is_read(three_videos: Path) -> None:
    with web_server(three_videos, "") as server:
        dataset = shortgop.open(server.root)
        assert [read_number(picture) for picture in dataset["ntsc.mp4"][3:6]] == [3, 4, 5]
        assert dataset.lost_ids == ()
        place = storage_at(server.root)
        root, manifest = open_current(place)
        assert list(verify(place, manifest, snapshot=root.snapshot)) == []
        assert CliRunner().invoke(app, ["info", server.root]).exit_code == 0


def test_a_dataset_on_a_web_server_is_copied(three_videos: Path, tmp_path: Path) -> None:
    with web_server(three_videos, "") as server:
        done = copy_videos([storage_at(server.root)], DiskStorage(tmp_path / "copy"))
    assert sorted(done.ids) == sorted(shortgop.open(three_videos).ids)


@contextmanager
def server_without_ranges(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_web_server_without_ranges_is_told(three_videos: Path) -> None:
    with server_without_ranges(three_videos) as url:
        with pytest.raises(shortgop.DatasetError, match="the server has no range requests|does not do this"):
            shortgop.open(url)
        done = CliRunner().invoke(app, ["info", url])
        assert done.exit_code == 1
        assert "Aborted" not in done.output


def test_what_is_no_store_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console of a store answers with pages, at a port of its own."""
    (tmp_path / "corpus/dataset").mkdir(parents=True)
    (tmp_path / "corpus/dataset/zarr.json").write_text("<html>")
    with server_without_ranges(tmp_path) as url:
        for name, value in environment(url).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(shortgop.UnreadableDataError, match="no ETag: its address or port may be wrong; fix that"):
            shortgop.open("s3://corpus/dataset")


def test_who_may_read_but_not_list_opens_a_dataset(three_videos: Path, proxied_url: str, s3_proxy: FlakyProxy) -> None:
    copy_videos([DiskStorage(three_videos)], storage_at(proxied_url))
    s3_proxy.faults(Faults(statuses=1, status=403, only="shards"))
    dataset = shortgop.open(proxied_url)
    assert read_number(dataset["ntsc.mp4"][7]) == 7
    assert dataset.lost_ids == ()


def test_a_bucket_that_does_not_exist_is_named(s3_url: str) -> None:
    assert s3_url
    with pytest.raises(shortgop.NotADatasetError, match="s3://nobody/dataset: there is no such bucket; check its name"):
        shortgop.open("s3://nobody/dataset")


@pytest.fixture
def place(s3_url: str) -> Storage:
    return storage_at(s3_url)


def test_uploads_of_others_are_left_alone(place: Storage, s3_endpoint: str) -> None:
    """Of a dataset below this one, and of what else uploads to the bucket. Its own are aborted."""
    client = boto3.client("s3", endpoint_url=s3_endpoint)
    bucket, _, prefix = place.url.removeprefix("s3://").partition("/")
    token = "0123456789abcdef" * 2
    others = [f"{prefix}/sub/shards/u1-0-{token}.shard", f"{prefix}/backup.tar", f"{prefix}/shards/other.bin"]
    own = [f"{prefix}/shards/u1-0-{token}.shard", f"{prefix}/.tmp/000001.zip-{token}"]
    for key in [*others, *own]:
        client.create_multipart_upload(Bucket=bucket, Key=key)
    with place.lock():
        pass
    left = client.list_multipart_uploads(Bucket=bucket, Prefix=f"{prefix}/").get("Uploads", [])
    assert sorted(upload["Key"] for upload in left) == sorted(others)
