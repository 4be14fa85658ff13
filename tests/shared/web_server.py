"""A web server on loopback for files, with ranges and ETags, which wants a signature in the query."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class WebServer:
    """`root` is its URL. It serves the files of a folder to requests with the signature, which holds for GET alone.
    `tokens` are those that came with requests."""

    root: str
    requests: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


@contextlib.contextmanager
def web_server(folder: Path, signature: str, *, etags: bool = True) -> Iterator[WebServer]:
    """Serve a folder. Without `etags` files have only the time of their last change."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            running.requests.append(self.headers.get("Range", ""))
            running.tokens += self.headers.get_all("Authorization", [])
            file = folder / unquote(url.path).lstrip("/")
            if url.query != signature:
                self.answer(403, b"")
            elif not file.is_file():
                self.answer(404, b"")
            else:
                self.send_range(file.read_bytes(), formatdate(file.stat().st_mtime, usegmt=True))

        def send_range(self, data: bytes, modified: str) -> None:
            etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
            version = {"ETag": etag} if etags else {"Last-Modified": modified}
            if self.headers.get("If-Match", etag) != etag:
                self.answer(412, b"")
                return
            wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if wanted is None:
                self.answer(200, data, **version)
                return
            first, last = wanted.groups()
            start = int(first) if first else max(0, len(data) - int(last))
            stop = min(len(data), int(last) + 1) if first and last else len(data)
            if start >= stop:
                self.answer(416, b"")
                return
            version["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            self.answer(206, data[start:stop], **version)

        def do_HEAD(self) -> None:
            # A signature is one of GET alone.
            if signature:
                self.answer(403, b"")
            else:
                self.do_GET()

        def answer(self, status: int, data: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = WebServer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
