"""A loader over a web server that answers late, beside the same loader over the disk.

    python benchmarks/store_latency.py

The S3 server of the tests, which `stores.py` uses, answers some 90 requests a second, however many come at once: less
than a loader makes. nginx is no limit. It waits with each answer by its Lua module (Debian: nginx-light and
libnginx-mod-http-lua). Loaders are timed in turn, round by round, between two batches in the middle of a pass.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import footage
from stores import epochs_of, loader_of, timed

_MODULES = "/etc/nginx/modules-enabled/*.conf"
_SERVER = (
    "server {{ listen 127.0.0.1:{port}; root {root}; location / {{ access_by_lua_block {{ ngx.sleep({seconds}) }} }} }}"
)


@contextmanager
def late_servers(root: Path, latencies_ms: list[float]) -> Iterator[dict[float, str]]:
    """Serve a folder with these latencies; yields the URL of each."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        sys.exit("nginx is missing: apt install nginx-light libnginx-mod-http-lua")
    ports = {latency: free_port() for latency in latencies_ms}
    with tempfile.TemporaryDirectory() as folder:
        servers = "\n".join(
            _SERVER.format(port=port, root=root, seconds=latency / 1000) for latency, port in ports.items()
        )
        configuration = Path(folder) / "nginx.conf"
        configuration.write_text(
            f"include {_MODULES};\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/log;\n"
            f"events {{}}\nhttp {{\naccess_log off;\nsendfile on;\nkeepalive_requests 1000000;\n{servers}\n}}\n"
        )
        server = subprocess.Popen([nginx, "-c", str(configuration)])
        try:
            for port in ports.values():
                wait_for(port)
            yield {latency: f"http://127.0.0.1:{port}" for latency, port in ports.items()}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=20, help="Batches that are timed in each round.")
    parser.add_argument("--latency-ms", type=float, nargs="*", default=[1.0, 10.0, 50.0])
    options = parser.parse_args()
    disk = footage.make_dataset(footage.make_sources("stores", 12, 256, 20, preset="veryfast"), "256", name="-stores")
    with late_servers(disk.parent, options.latency_ms) as urls:
        places = {"disk": str(disk), **{f"{latency:g} ms": f"{url}/{disk.name}" for latency, url in urls.items()}}
        loaders = {name: loader_of(place) for name, place in places.items()}
        rates: dict[str, list[float]] = {name: [] for name in loaders}
        for turn in range(options.rounds + 1):
            for name, loader in loaders.items():
                batches = epochs_of(loader)(turn)
                rate = timed(batches, options.batches)
                del batches
                if turn:
                    rates[name].append(rate)
        for name, each in rates.items():
            ratios = [disk_rate / rate for disk_rate, rate in zip(rates["disk"], each, strict=True)]
            print(
                f"{name}: {statistics.median(each):.0f} clips a second, {statistics.median(ratios):.2f} times as long "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )
        for loader in loaders.values():
            loader.close()


if __name__ == "__main__":
    main()
