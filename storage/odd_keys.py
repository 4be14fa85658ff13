"""Listing what obstore cannot list: keys that it has no path for.

obstore gives up a whole page of a listing for one key with an empty part, `.`, `..` or a control character, and it
cannot be told to begin behind such a key. boto3 lists any key of S3. Nothing here does so for Google's stores and
Azure.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .connections import has_boto3, s3_client

if TYPE_CHECKING:
    from obstore import ObjectMeta

    from .connections import StoreRoot


def is_odd(key: str) -> bool:
    """Whether obstore has no path for a key: such an object can be listed here, and not read."""
    if not key.isprintable() and any(ord(one) < 32 or ord(one) == 127 for one in key):
        return True
    return any(part in ("", ".", "..") for part in key.split("/"))


def pages_behind(root: StoreRoot, prefix: str, last: str | None, refused: OSError) -> Iterator[list[ObjectMeta]]:
    """The pages of a listing behind the key `last`, odd keys among them, and without the markers of folders, whose keys
    end with a slash. OSError: `refused`, what obstore said, where boto3 cannot list them."""
    if root.scheme != "s3":
        raise refused
    if not has_boto3():
        raise OSError(
            errno.EILSEQ,
            f"{refused.strerror}, and is passed over with boto3 alone (`pip install shortgop[s3]`)",
            refused.filename,
        )
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

    asked: dict[str, Any] = {"Bucket": root.bucket}
    if prefix:
        asked["Prefix"] = f"{prefix}/"
    if last is not None:
        asked["StartAfter"] = last
    try:
        for page in s3_client().get_paginator("list_objects_v2").paginate(**asked):
            yield [
                {
                    "path": each["Key"],
                    "size": each["Size"],
                    "last_modified": each["LastModified"],
                    "e_tag": each["ETag"],
                    "version": None,
                }
                for each in page.get("Contents", [])
                if not each["Key"].endswith("/")
            ]
    except (NoCredentialsError, PartialCredentialsError):
        raise OSError(
            errno.EILSEQ,
            f"{refused.strerror}, and boto3, which lists such keys, finds no credentials",
            refused.filename,
        ) from None
    except (BotoCoreError, ClientError) as error:
        raise OSError(errno.EIO, f"the listing broke off: {error}", refused.filename) from error
