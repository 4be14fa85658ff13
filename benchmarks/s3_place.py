"""An S3 server for a benchmark: that of the tests, or another one of which the endpoint is known."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import boto3

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "shared"))
from s3_server import BUCKET, environment, s3_server


@contextmanager
def s3_at(endpoint: str | None) -> Iterator[str]:
    """The endpoint of this server; without one, of a server of the tests that runs meanwhile."""
    with nullcontext(endpoint) if endpoint else s3_server() as found:
        yield found


@contextmanager
def means(endpoint: str) -> Iterator[str]:
    """Meanwhile plain s3:// URLs mean this server; yields one below which nothing is. Credentials of the environment
    are used, if there are any."""
    before = dict(os.environ)
    os.environ.update({**environment(endpoint), **before, "AWS_ENDPOINT_URL": endpoint})
    try:
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}/{uuid.uuid4().hex}"
    finally:
        os.environ.clear()
        os.environ.update(before)
