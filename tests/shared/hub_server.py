"""A server on loopback that answers as the Hugging Face Hub does for one repository of datasets.

It lists files in pages, and leads each request for a file to another server, by a signed URL that holds for GET alone.
It was written from the Hub's documentation, https://huggingface.co/docs/hub/api, and is not the Hub.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from web_server import WebServer, web_server

SIGNATURE = "X-Signature=abc"
_FILES_OF_PAGE = 3


@dataclass
class HubServer:
    """`endpoint` is its URL, and `files` the server that it leads to. `pages` are the listings that were asked for. So
    many `refusals` come before the next answers, and so many answers are `cut`. Listings are led to `listing_at`."""

    endpoint: str
    files: WebServer
    pages: list[str] = field(default_factory=list)
    refusals: int = 0
    cut: int = 0
    listing_at: str = ""


@contextlib.contextmanager
def hub_server(
    revisions: dict[str, Path], *, repository: str = "owner/name", token: str | None = None
) -> Iterator[HubServer]:
    """Serve a repository: a folder for each revision, which all lie in one folder. With a `token` it is private."""
    root = next(iter(revisions.values())).parent

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            head, _, rest = url.path.partition(f"/{repository}/")
            action, _, rest = rest.partition("/")
            revision, _, path = (unquote(each) for each in rest.partition("/"))
            if running.refusals:
                running.refusals -= 1
                self.answer(429, {"error": "Too many requests"})
            elif token is not None and self.headers.get("Authorization") != f"Bearer {token}":
                self.answer(401, {"error": "Invalid username or password."})
            elif revision not in revisions:
                self.answer(404, {"error": "Repository or revision not found"})
            elif (head, action) == ("/api/datasets", "tree"):
                running.pages.append(self.path)
                if running.listing_at:
                    self.answer(307, {}, Location=running.listing_at)
                    return
                self.list_files(revisions[revision], path, url.query)
            elif (head, action) == ("/datasets", "resolve") and (revisions[revision] / path).is_file():
                below = (revisions[revision] / path).relative_to(root)
                leads_to = f"{running.files.root}/{quote(str(below))}?{SIGNATURE}"
                self.answer(302, {}, Location=leads_to, ETag='"of the Hub"')
            else:
                self.answer(404, {"error": "Entry not found"})

        def do_HEAD(self) -> None:
            self.do_GET()

        def list_files(self, folder: Path, path: str, query: str) -> None:
            found = sorted(folder.joinpath(path).rglob("*"))
            if not found:
                self.answer(404, {"error": f"{path} does not exist"})
                return
            at = int(parse_qs(query).get("cursor", ["0"])[0])
            entries = [
                {"type": "file", "oid": "0", "size": each.stat().st_size, "path": str(each.relative_to(folder))}
                if each.is_file()
                else {"type": "directory", "oid": "0", "size": 0, "path": str(each.relative_to(folder))}
                for each in found[at : at + _FILES_OF_PAGE]
            ]
            more = at + _FILES_OF_PAGE < len(found)
            url = f"{running.endpoint}{urlsplit(self.path).path}?recursive=true&cursor={at + _FILES_OF_PAGE}"
            self.answer(200, entries, **({"Link": f'<{url}>; rel="next"'} if more else {}))

        def answer(self, status: int, content: Any, **headers: str) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.close_connection = is_cut = running.cut > 0
            running.cut -= is_cut
            if self.command == "GET":
                self.wfile.write(body[: len(body) // 2] if is_cut else body)

        def log_message(self, *_arguments: object) -> None:
            pass

    with web_server(root, SIGNATURE) as files:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running = HubServer(f"http://127.0.0.1:{server.server_port}", files)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield running
        finally:
            server.shutdown()
            server.server_close()
