"""Unfinished uploads that a job cannot remove: it says that they stay, and what to do about it."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError, NoCredentialsError

from s3_uploads import begin_upload, unfinished_uploads
from shortgop.errors import DatasetWarning
from shortgop.storage import unfinished_uploads as module
from shortgop.storage.connections import StoreRoot
from shortgop.storage.locate import storage_at
from shortgop.storage.unfinished_uploads import abort_unfinished, is_ours

STAYS = "stays in the bucket corpus, and is paid for. To have each job remove what is left in its dataset, "
RULE = "by a lifecycle rule, AbortIncompleteMultipartUpload"


def warned(url: str) -> list[str]:
    """The warnings of a job that begins to write."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        with storage_at(url).lock():
            pass
    assert all(each.category is DatasetWarning for each in caught)
    return [str(each.message) for each in caught]


class _Body:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def stream(self, *_: Any, **__: Any) -> list[bytes]:
        return [self.content]


def answering(monkeypatch: pytest.MonkeyPatch, operation: str, answer: int | Exception, code: str = "") -> None:
    """Have requests of boto3 for one operation answered like this; the others go to the server."""
    client = boto3.client("s3", config=Config(retries={"max_attempts": 0}))

    def answered(**_: Any) -> AWSResponse:
        if isinstance(answer, Exception):
            raise answer
        body = f"<Error><Code>{code}</Code></Error>".encode()
        return AWSResponse("http://host", answer, {"content-type": "application/xml"}, _Body(body))

    client.meta.events.register(f"before-send.s3.{operation}", answered)
    monkeypatch.setattr(module, "s3_client", lambda: client)


def test_without_boto3(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    (message,) = warned(s3_url)
    assert f"{STAYS}`pip install shortgop[s3]`; or let the bucket do so {RULE}" in message


@pytest.mark.parametrize("operation", ["ListMultipartUploads", "AbortMultipartUpload"])
def test_without_permission(s3_url: str, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    key = begin_upload(s3_url)
    answering(monkeypatch, operation, 403, "AccessDenied")
    (message,) = warned(s3_url)
    assert f"{STAYS}allow s3:ListBucketMultipartUploads and s3:AbortMultipartUpload; or" in message
    assert unfinished_uploads(s3_url) == [key]


def test_a_store_that_lists_no_uploads(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "ListMultipartUploads", 501, "NotImplemented")
    (message,) = warned(s3_url)
    assert f"{STAYS}see why the server answered 501 NotImplemented to ListMultipartUploads; or" in message


def test_credentials_that_boto3_does_not_find(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "ListMultipartUploads", NoCredentialsError())
    (message,) = warned(s3_url)
    assert f"{STAYS}give boto3 credentials" in message


@pytest.mark.parametrize("answer", [EndpointConnectionError(endpoint_url="http://host"), 503])
def test_what_the_next_job_can_do_is_not_said(
    s3_url: str, monkeypatch: pytest.MonkeyPatch, answer: int | Exception
) -> None:
    answering(monkeypatch, "ListMultipartUploads", answer, "SlowDown")
    assert warned(s3_url) == []


def test_where_they_are_removed_nothing_is_said(s3_url: str) -> None:
    begin_upload(s3_url)
    assert warned(s3_url) == []
    assert unfinished_uploads(s3_url) == []


def test_an_upload_that_ended_meanwhile_does_not_keep_the_others(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sorted((begin_upload(s3_url), begin_upload(s3_url)))
    client = boto3.client("s3")
    monkeypatch.setattr(module, "s3_client", lambda: client)

    def ended(request: Any, **_: Any) -> AWSResponse | None:
        if first not in request.url:
            return None
        body = b"<Error><Code>NoSuchUpload</Code></Error>"
        return AWSResponse("http://host", 404, {"content-type": "application/xml"}, _Body(body))

    client.meta.events.register("before-send.s3.AbortMultipartUpload", ended)
    assert abort_unfinished(StoreRoot.of(s3_url), 0) == 1
    assert second not in unfinished_uploads(s3_url)


@pytest.mark.parametrize("url", ["memory://name", "az://container/dataset", "gs://bucket/dataset", "https://host/x"])
def test_where_a_job_could_never_remove_any_nothing_is_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert abort_unfinished(StoreRoot.of(url), 0) == 0


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (f"data/shards/u1-0-{'0f' * 16}.shard", True),
        (f"data/.tmp/000001.zip-{'0f' * 16}", True),
        ("data/manifest/000001.zip", True),
        ("data/manifest/notes.zip", False),
        ("data/below/manifest/000001.zip", False),
        ("other/manifest/000001.zip", False),
    ],
)
def test_uploads_of_shards_and_snapshots_of_a_dataset_are_its_own(key: str, expected: bool) -> None:
    assert is_ours(StoreRoot("s3", "corpus", "data"), key) == expected
