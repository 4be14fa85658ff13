"""nginx for benchmarks: a server of a folder, or in front of an S3 server, that answers late.

It waits with each answer by its Lua module (Debian: nginx-light and libnginx-mod-http-lua), and is no limit to what is
measured, as servers written in Python are.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MODULES = "/etc/nginx/modules-enabled/*.conf"
_FOLDER = (
    "server {{ listen 127.0.0.1:{port}; root {root}; location / {{ access_by_lua_block {{ ngx.sleep({seconds}) }} }} }}"
)
# The name of the host stays as the client sent it, since it is signed.
_IN_FRONT = """
log_format counted '$request_method $body_bytes_sent $uri?$args';
lua_shared_dict late 64k;
upstream store {{ server {upstream}; keepalive 64; }}
server {{
    listen 127.0.0.1:{port};
    access_log {folder}/requests counted;
    client_max_body_size 0;
    location = /-late {{ content_by_lua_block {{ ngx.shared.late:set("seconds", tonumber(ngx.var.arg_seconds)) }} }}
    location / {{
        access_by_lua_block {{ ngx.sleep(ngx.shared.late:get("seconds") or 0) }}
        proxy_pass http://store;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $http_host;
        proxy_request_buffering off;
        proxy_buffers 32 64k;
        proxy_max_temp_file_size 0;
    }}
}}
"""


@contextmanager
def late_servers(root: Path, latencies_ms: list[float]) -> Iterator[dict[float, str]]:
    """Serve a folder with these latencies; yields the URL of each."""
    ports = {latency: free_port() for latency in latencies_ms}
    servers = "\n".join(_FOLDER.format(port=port, root=root, seconds=latency / 1000) for latency, port in ports.items())
    with tempfile.TemporaryDirectory() as folder, running(f"access_log off;\n{servers}", Path(folder), *ports.values()):
        yield {latency: f"http://127.0.0.1:{port}" for latency, port in ports.items()}


@dataclass
class LateStore:
    """An S3 server behind nginx, which waits with each answer and counts."""

    endpoint: str
    log: Path
    counted_from: int = 0

    def answer_after(self, seconds: float) -> None:
        """Wait so long with each answer from now on."""
        urllib.request.urlopen(f"{self.endpoint}/-late?seconds={seconds}").close()  # noqa: S310  # nginx's
        self.forget()

    def forget(self) -> None:
        """Count from here on."""
        self.counted_from = self.log.stat().st_size

    def traffic(self) -> tuple[int, int]:
        """Bytes of objects that were sent, and requests for them, since the last `forget`."""
        with self.log.open() as log:
            log.seek(self.counted_from)
            lines = [line.split(" ", 2) for line in log]
        gets = [int(sent) for method, sent, what in lines if method == "GET" and "list-type" not in what]
        return sum(gets), len(gets)

    def requests(self) -> int:
        """Requests of all kinds since the last `forget`."""
        with self.log.open() as log:
            log.seek(self.counted_from)
            return sum(1 for _ in log)


@contextmanager
def late_store(endpoint: str) -> Iterator[LateStore]:
    """nginx in front of the S3 server at http://HOST:PORT."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        upstream = endpoint.removeprefix("http://").rstrip("/")
        with running(_IN_FRONT.format(upstream=upstream, port=port, folder=folder), folder, port):
            yield LateStore(f"http://127.0.0.1:{port}", folder / "requests")


@contextmanager
def running(http: str, folder: Path, *ports: int) -> Iterator[None]:
    """nginx with these servers, until they have been used."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        sys.exit("nginx is missing: apt install nginx-light libnginx-mod-http-lua")
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"include {_MODULES};\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/log;\n"
        f"events {{}}\nhttp {{\nsendfile on;\nkeepalive_requests 1000000;\n{http}\n}}\n"
    )
    server = subprocess.Popen([nginx, "-c", str(configuration)])
    try:
        for port in ports:
            wait_for(port)
        yield
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(100):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nginx does not answer on port {port}: may this user read the folder?")
