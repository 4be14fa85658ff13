"""An S3 server: moto's, in a process of its own.

    python s3_server.py [ADDRESS]

It listens at the address, by default 127.0.0.1. The first line on standard output is its port. It ends when its
standard input does, so that none is left behind.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    import pytest

BUCKET = "corpus"
OTHER_SETTINGS = ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN")


def environment(endpoint: str) -> dict[str, str]:
    """What makes plain s3:// URLs mean this server, in this process and its children. Nothing of the user's own
    settings is looked at."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_CONFIG_FILE": "/nowhere/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/nowhere/credentials",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def url_in_bucket(endpoint: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The s3:// URL of a prefix, with the environment that plain s3:// URLs want, and no other settings."""
    for name in OTHER_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{prefix}"


@contextlib.contextmanager
def running(script: str, *arguments: str) -> Iterator[str]:
    """The address of a server that a script of the tests starts."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            assert port, f"{script} did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            process.kill()


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of a new server, which holds one empty bucket."""
    with running("s3_server.py") as endpoint:
        make_bucket(endpoint, BUCKET)
        yield endpoint


def make_bucket(endpoint: str, name: str) -> None:
    request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
    request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, x")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def empty(endpoint: str) -> None:
    """Forget all that a server holds, but for its bucket: to list what is below a prefix, moto looks at all it has."""
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")) as answer:
        assert answer.status == 200
    make_bucket(endpoint, BUCKET)


def share_models() -> None:
    """Have boto3 read the model of S3 once in this process, and now: shortgop makes a client for each lock in S3, and
    reading it takes longer than all that is asked of most of them. Nothing of the user's own account is asked for."""
    import boto3
    import botocore.session
    from botocore.loaders import create_loader

    botocore.session.create_loader = functools.cache(create_loader)
    with mock.patch.dict(os.environ, environment("http://127.0.0.1:9")):
        for name in OTHER_SETTINGS:
            os.environ.pop(name, None)
        boto3.Session().client("s3", region_name="us-east-1")


Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class OneWriteAtATime:
    """Moto sees whether the condition of a PUT holds, and then puts: of two threads, both could win."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self.application(environ, start_response)
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if len(body) < length:
            start_response("400 Bad Request", [("Content-Length", "0")])
            return []
        environ["wsgi.input"] = io.BytesIO(body)
        with self.lock:
            return list(self.application(environ, start_response))


def main() -> None:
    # No request comes from another site's page.
    os.environ["MOTO_DISABLE_GLOBAL_CORS"] = "1"
    import botocore.utils
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server
    from werkzeug.test import run_wsgi_app

    class Handler(MotoRequestHandler):
        """Werkzeug's own closes the connection behind each answer: a third of what a small request takes."""

        # Else each answer waits 40 ms for the acknowledgement of its headers.
        disable_nagle_algorithm = True
        # An answer is one write.
        wbufsize = -1

        def run_wsgi(self) -> None:
            environ = self.make_environ()
            # What the application leaves of it would be taken for the next request.
            body = self.rfile.read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            chunks, status, headers = run_wsgi_app(self.server.app, environ, buffered=True)
            answer = b"".join(chunks)
            code, _, reason = status.partition(" ")
            self.send_response(int(code), reason)
            if "Content-Length" not in headers and code != "204":
                headers["Content-Length"] = str(len(answer))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

    # A listing of many keys would spend half of its time on parsing when they were written.
    botocore.utils.parse_timestamp = functools.cache(botocore.utils.parse_timestamp)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    s3, control = create_backend_app("s3"), create_backend_app("moto_api")

    # Moto's own dispatcher looks through the folders of all services for each request.
    def dispatched(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return (control if environ["PATH_INFO"].startswith("/moto-api/") else s3)(environ, start_response)

    application = OneWriteAtATime(dispatched)
    server = make_server((sys.argv[1:] or ["127.0.0.1"])[0], 0, application, threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
