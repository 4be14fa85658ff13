"""Uploads in parts, to a dataset in S3, that nobody has finished."""

from __future__ import annotations

import uuid

import boto3


def begin_upload(url: str) -> str:
    """Begin an upload as `Storage.start` does, and leave it. Returns its key."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    key = f"{prefix}/shards/u1-0-{uuid.uuid4().hex}.shard"
    boto3.client("s3").create_multipart_upload(Bucket=bucket, Key=key)
    return key


def unfinished_uploads(url: str) -> list[str]:
    """The keys of what is being uploaded, or was left, in ascending order."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    found = boto3.client("s3").list_multipart_uploads(Bucket=bucket, Prefix=f"{prefix}/")
    return sorted(upload["Key"] for upload in found.get("Uploads", []))
