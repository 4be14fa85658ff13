"""Putting objects into the stores of tests, over those that are there."""

from __future__ import annotations

import os
from pathlib import Path

import boto3
import obstore
from obstore.store import S3Store

from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at


def put(url: str, content: Path | bytes) -> None:
    """Put an object at an s3:// URL of the server that the environment names."""
    store, key = _store(url)
    obstore.put(store, key, content if isinstance(content, bytes) else content.read_bytes())


def put_raw(url: str, content: bytes) -> None:
    """Put an object whose key need not be a path."""
    bucket, _, key = url.partition("://")[2].partition("/")
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=content)


def remove(url: str) -> None:
    store, key = _store(url)
    obstore.delete(store, key)


def put_up(folder: Path, url: str) -> None:
    """Copy a dataset from a disk into a store."""
    store = storage_at(url)
    for each in DiskStorage(folder).files(""):
        store.put_new_file(each.key, folder / each.key)


def _store(url: str) -> tuple[S3Store, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    store = S3Store(bucket, endpoint=os.environ["AWS_ENDPOINT_URL"], client_options={"allow_http": True})
    return store, key
