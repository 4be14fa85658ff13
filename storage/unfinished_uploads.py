"""Uploads that were begun and never finished. Their parts take room and show in no listing of files.

S3 lists them, which obstore does not offer and boto3 does. Without boto3, and in Google's stores, a rule of the bucket
removes them (AbortIncompleteMultipartUpload); Azure forgets them after a week by itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connections import StoreRoot


# Below a root others may upload too, such as to a dataset that lies in a folder of this one. `Storage.start` makes
# keys of this form, and what is large goes to these folders.
_OURS = re.compile(r"(shards|\.tmp)/[^/]+-[0-9a-f]{32}(\.\w+)?")


def abort_unfinished(root: StoreRoot, spared_seconds: float) -> int:
    """Abort the uploads that `Storage.start` began at this root, at least so long ago. Returns how many there were.
    Zero where that is not possible, or not allowed: nothing but room is lost."""
    if root.scheme != "s3" or importlib.util.find_spec("boto3") is None:
        return 0
    from botocore.exceptions import BotoCoreError, ClientError

    count = 0
    with contextlib.suppress(BotoCoreError, ClientError):
        client = _client()
        prefix = {"Prefix": f"{root.prefix}/"} if root.prefix else {}
        for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=root.bucket, **prefix):
            for upload in page.get("Uploads", []):
                if not is_ours(root, upload["Key"]):
                    continue
                if is_old(upload["Initiated"], datetime.now(UTC), spared_seconds):
                    client.abort_multipart_upload(Bucket=root.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                    count += 1
    return count


def is_ours(root: StoreRoot, key: str) -> bool:
    """Whether a key in the bucket is one that an upload of this root has."""
    return _OURS.fullmatch(key.removeprefix(f"{root.prefix}/") if root.prefix else key) is not None


def is_old(began: datetime, now: datetime, spared_seconds: float) -> bool:
    """Whether an upload began at least so long ago. With 0 every one did, whatever the clocks say."""
    return spared_seconds == 0 or (now - began).total_seconds() >= spared_seconds


def _client() -> Any:
    import boto3
    from botocore.config import Config

    session = boto3.Session()
    region = os.environ.get("AWS_REGION") or session.region_name or "us-east-1"
    # Amazon's answers differ from those of other stores in the checksums that recent clients want.
    config = Config(retries={"mode": "standard", "max_attempts": 8}, response_checksum_validation="when_required")
    return session.client("s3", region_name=region, config=config)
