"""Keys that a machine or a container of Amazon's gets for its role, from servers as they answer there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from s3_server import OTHER_SETTINGS, environment
from shortgop.storage.locate import storage_at

_KEYS = {
    "Code": "Success",
    "Type": "AWS-HMAC",
    "AccessKeyId": "ROLEKEY",
    "SecretAccessKey": "secret",
    "Token": "role-token",
    "LastUpdated": "2026-01-01T00:00:00Z",
    "Expiration": "2099-01-01T00:00:00Z",
}


@dataclass
class Cloud:
    """A server for both keys and objects: which paths were asked for, and how the request for the object was signed."""

    url: str
    paths: list[str] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """Run a server, and let this process be without keys of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            # Version 2 of the service for instances gives a token first.
            running.paths.append(self.path)
            self.answer(b"session", {})

        def do_GET(self) -> None:
            running.paths.append(self.path)
            if self.path == "/latest/meta-data/iam/security-credentials/":
                self.answer(b"reader", {})
            elif self.path in ("/latest/meta-data/iam/security-credentials/reader", "/container"):
                self.answer(json.dumps(_KEYS).encode(), {"Content-Type": "application/json"})
            else:
                running.signatures.append(self.headers.get("Authorization", ""))
                running.tokens.append(self.headers.get("x-amz-security-token", ""))
                about = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
                self.answer(b"abc", {**about, "Content-Range": "bytes 0-2/3"}, status=206)

        def answer(self, body: bytes, headers: dict[str, str], status: int = 200) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Cloud(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for name in OTHER_SETTINGS:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment(running.url).items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
            monkeypatch.delenv(name)
        yield running
        server.shutdown()
        thread.join()


def test_an_instance_reads_with_the_keys_of_its_role(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", cloud.url)
    assert storage_at("s3://corpus/dataset").read("zarr.json") == b"abc"
    assert cloud.paths[0] == "/latest/api/token"
    assert "Credential=ROLEKEY/" in cloud.signatures[0]
    assert cloud.tokens == ["role-token"]


def test_a_container_reads_with_the_keys_of_its_role(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{cloud.url}/container")
    # Such as the service for pods on EKS gives to each.
    (tmp_path / "token").write_text("container")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    assert storage_at("s3://corpus/dataset").read("zarr.json") == b"abc"
    assert cloud.paths[0] == "/container"
    assert "Credential=ROLEKEY/" in cloud.signatures[0]
    assert cloud.tokens == ["role-token"]
