"""Copies inside S3 of objects that are too long for one request, by boto3: obstore copies an object as a single part.

Each part is copied by the store, and the new object appears with the last request, if its key is still free. So no byte
comes back to this host.
"""

from __future__ import annotations

import contextlib
import errno
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .connections import StoreRoot, s3_client
from .lease import TEMPORARY

# What S3 copies or takes in one request.
MAX_REQUEST_BYTES = 5_000_000_000
_PART_BYTES = 1 << 30
# An object has 10,000 parts at most, so beyond 10 TB they are longer.
_MAX_PARTS = 10_000
_CONCURRENT_PARTS = 8
# The store did not decide, since another request to the key came at the same time.
_UNDECIDED = "ConditionalRequestConflict"
_ATTEMPTS = 5


def checks_conditions(root: StoreRoot) -> bool:
    """Whether the store refuses to complete an upload to a key that is taken, where that is asked for. Stores that do
    not know the condition pass over it. Six small requests."""
    with _explained(root, ""):
        client, key = s3_client(), root.key(f"{TEMPORARY}/condition-{uuid.uuid4().hex}")
        client.put_object(Bucket=root.bucket, Key=key, Body=b"taken")
        try:
            with _upload(client, root.bucket, key) as upload:
                part = client.upload_part(**upload, PartNumber=1, Body=b"new")
                return not _completed(client, upload, [{"PartNumber": 1, "ETag": part["ETag"]}])
        finally:
            client.delete_object(Bucket=root.bucket, Key=key)


def copy_new_in_parts(root: StoreRoot, source: str, key: str, num_bytes: int) -> bool:
    """Copy a file of this length to a free key, both below the root. False if the key is taken."""
    length = max(_PART_BYTES, -(-num_bytes // _MAX_PARTS))
    starts = range(0, num_bytes, length)
    with _explained(root, key):
        client = s3_client()
        for _ in range(_ATTEMPTS):
            with _upload(client, root.bucket, root.key(key)) as upload:

                def copied(number: int, upload: dict[str, str] = upload) -> dict[str, Any]:
                    start = starts[number]
                    answer = client.upload_part_copy(
                        **upload,
                        PartNumber=number + 1,
                        CopySource={"Bucket": root.bucket, "Key": root.key(source)},
                        CopySourceRange=f"bytes={start}-{min(start + length, num_bytes) - 1}",
                    )
                    return {"PartNumber": number + 1, "ETag": answer["CopyPartResult"]["ETag"]}

                with ThreadPoolExecutor(_CONCURRENT_PARTS, "shortgop-copies") as threads:
                    parts = list(threads.map(copied, range(len(starts))))
                done = _completed(client, upload, parts)
            if done is not None:
                return done
    raise OSError(errno.EAGAIN, "other requests for it come all the time", key)


@contextlib.contextmanager
def _upload(client: Any, bucket: str, key: str) -> Iterator[dict[str, str]]:
    """Begins an upload in parts, and yields what requests for it say. It is aborted at the end; that does nothing to
    one that is complete."""
    upload = {"Bucket": bucket, "Key": key}
    upload["UploadId"] = client.create_multipart_upload(**upload)["UploadId"]
    try:
        yield upload
    finally:
        # What stays, the next job removes.
        with contextlib.suppress(Exception):
            client.abort_multipart_upload(**upload)


def _completed(client: Any, upload: dict[str, str], parts: list[dict[str, Any]]) -> bool | None:
    """Complete an upload if its key is free. False if it is taken, None if the store did not decide."""
    from botocore.exceptions import ClientError

    try:
        client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
    except ClientError as error:
        # The upload is gone if an earlier attempt completed it and its answer was lost.
        if error.response["Error"]["Code"] in ("PreconditionFailed", "NoSuchUpload"):
            return False
        if error.response["Error"]["Code"] == _UNDECIDED:
            return None
        raise
    return True


@contextlib.contextmanager
def _explained(root: StoreRoot, key: str) -> Iterator[None]:
    """Errors of boto3 become those of the operating system."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

    place = f"s3://{root.bucket}/{root.key(key)}"
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise OSError(errno.EACCES, f"{error}, which boto3 needs for files of more than 5 GB", place) from error
    except ClientError as error:
        status, code = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
        number = {401: errno.EACCES, 403: errno.EACCES, 405: errno.ENOTSUP, 411: errno.ENOTSUP, 501: errno.ENOTSUP}
        text = f"the server answered {status} {code} to {error.operation_name}"
        raise OSError(number.get(status, errno.EIO), text, place) from error
    except BotoCoreError as error:
        raise OSError(errno.EIO, str(error).partition("\n")[0], place) from error
