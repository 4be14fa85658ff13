"""Uploads that were begun and never finished. Their parts take room and show in no listing of files.

S3 lists them, which obstore does not offer and boto3 does. Without boto3, and in Google's stores, a rule of the bucket
removes them (AbortIncompleteMultipartUpload); Azure forgets them after a week by itself. Of a rule nothing is known
here, so in Google's stores nothing is said: it is all that could be done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..warned import warn
from .connections import has_boto3, s3_client
from .object_errors import STATUSES_TO_RETRY

if TYPE_CHECKING:
    from .connections import StoreRoot


# Below a root others may upload too, such as to a dataset that lies in a folder of this one. `Storage.start` makes
# keys of this form, and what is large goes to these folders. A snapshot gets its name by an upload of copied parts.
_OURS = re.compile(r"(shards|\.tmp)/[^/]+-[0-9a-f]{32}(\.\w+)?|manifest/\d+\.zip")


def abort_unfinished(root: StoreRoot, spared_seconds: float) -> int:
    """Abort the uploads that `Storage.start` began at this root, at least so long ago. Returns how many there were.

    Where that is not possible, or not allowed, nothing but room is lost. A DatasetWarning says so in S3, where there is
    something to do about it.
    """
    if root.scheme != "s3":
        return 0
    if not has_boto3():
        _warn(root, "`pip install shortgop[s3]`")
        return 0
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

    count = 0
    try:
        client = s3_client()
        for upload in _uploads(client, root):
            if is_ours(root, upload["Key"]) and is_old(upload["Initiated"], datetime.now(UTC), spared_seconds):
                count += _abort(client, root, upload)
    except (NoCredentialsError, PartialCredentialsError):
        _warn(root, "give boto3 credentials, which it does not find where shortgop does")
    except BotoCoreError:
        # No connection: the next job tries again.
        pass
    except ClientError as error:
        status, code = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
        if status in (401, 403):
            _warn(root, "allow s3:ListBucketMultipartUploads and s3:AbortMultipartUpload")
        # What such an answer left, the next job finds.
        elif status not in STATUSES_TO_RETRY:
            _warn(root, f"see why the server answered {status} {code} to {error.operation_name}")
    return count


def _uploads(client: Any, root: StoreRoot) -> Iterator[dict[str, Any]]:
    prefix = {"Prefix": f"{root.prefix}/"} if root.prefix else {}
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=root.bucket, **prefix):
        yield from page.get("Uploads", [])


def _abort(client: Any, root: StoreRoot, upload: dict[str, Any]) -> bool:
    """Whether an upload was there to be aborted: it may have ended since it was listed."""
    try:
        client.abort_multipart_upload(Bucket=root.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    except client.exceptions.NoSuchUpload:
        return False
    return True


def _warn(root: StoreRoot, remedy: str) -> None:
    """Say what stays. Once for each job: Python shows the same warning once in a process."""
    warn(
        f"what killed jobs have uploaded in part stays in the bucket {root.bucket}, and is paid for. To have each job "
        f"remove what is left in its dataset, {remedy}; or let the bucket do so by a lifecycle rule, "
        "AbortIncompleteMultipartUpload"
    )


def is_ours(root: StoreRoot, key: str) -> bool:
    """Whether a key in the bucket is one that an upload of this root has."""
    return _OURS.fullmatch(key.removeprefix(f"{root.prefix}/") if root.prefix else key) is not None


def is_old(began: datetime, now: datetime, spared_seconds: float) -> bool:
    """Whether an upload began at least so long ago. With 0 every one did, whatever the clocks say."""
    return spared_seconds == 0 or (now - began).total_seconds() >= spared_seconds
