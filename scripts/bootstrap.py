"""Makes a virtual environment that has pip: `bootstrap.py DIR`. Needs nothing but a Python that runs.

Distributions split Python up: Debian's has `venv` but neither `ensurepip` nor `pip`. So pip comes from
ensurepip, else from a pip that belongs to this Python, else as a wheel from the package index.
"""

import configparser
import hashlib
import http.client
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

WHEEL = "pip-26.3-py3-none-any.whl"
WHEEL_SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"
DEFAULT_INDEX = "https://pypi.org/simple"
TIMEOUT_S = 60


class BootstrapError(Exception):
    """This way of getting pip does not work here."""


def run(*argv: str | Path) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BootstrapError(lines[-1] if lines else f"exit status {done.returncode}")


def from_ensurepip(python: Path) -> None:
    run(python, "-m", "ensurepip", "--default-pip")


def from_own_pip(python: Path) -> None:
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "pip")


def from_index(python: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(folder) / WHEEL
        wheel.write_bytes(download_wheel(index_url()))
        # A wheel is a zip file, and Python runs a package inside one.
        run(python, wheel / "pip", "install", "--quiet", "--no-index", wheel)


def index_url() -> str:
    """The index that pip itself would ask."""
    if url := os.environ.get("PIP_INDEX_URL"):
        return url
    config = configparser.RawConfigParser()
    home = Path.home()
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", xdg / "pip" / "pip.conf"]
    config.read([*files, Path(os.environ.get("PIP_CONFIG_FILE", os.devnull))])
    return config.get("global", "index-url", fallback=DEFAULT_INDEX)


def download_wheel(index: str) -> bytes:
    if "@" in urllib.parse.urlsplit(index).netloc:
        raise BootstrapError("not from an index whose URL holds a password")
    page_url = index.rstrip("/") + "/pip/"
    page = fetch(page_url).decode()
    link = re.search(rf"""href=["']([^"'#]*{re.escape(WHEEL)})""", page)
    if link is None:
        raise BootstrapError(f"{page_url} does not list {WHEEL}")
    wheel = fetch(urllib.parse.urljoin(page_url, link[1]))
    if (found := hashlib.sha256(wheel).hexdigest()) != WHEEL_SHA256:
        raise BootstrapError(f"{WHEEL} from {index} has SHA-256 {found}, expected {WHEEL_SHA256}")
    return wheel


def fetch(url: str) -> bytes:
    try:
        return read(url, ssl.create_default_context())
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLCertVerificationError):
            raise
        # A bare machine may have no CA certificates. The wheel's digest keeps it safe, not the connection.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return read(url, context)


def read(url: str, context: ssl.SSLContext) -> bytes:
    # Whoever runs this chooses the index, and with it the scheme.
    with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=context) as response:  # noqa: S310
        content: bytes = response.read()
        return content


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: bootstrap.py DIR")
    folder = Path(sys.argv[1])
    ways: list[tuple[str, Callable[[Path], None]]] = [
        ("ensurepip", from_ensurepip),
        ("the pip of " + sys.executable, from_own_pip),
        ("the package index", from_index),
    ]
    # Not EnvBuilder: only the command line's `python -m venv` links to Python instead of copying it.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", folder], check=True)
    failures = []
    for name, install_pip in ways:
        try:
            install_pip(folder / "bin" / "python")
        except (BootstrapError, OSError, ValueError, http.client.HTTPException) as error:
            failures.append(f"  from {name}: {error}")
        else:
            return
    shutil.rmtree(folder)
    print("bootstrap: no way to get pip into a virtual environment", *failures, sep="\n", file=sys.stderr)
    sys.exit("Mend one of them; on Debian and Ubuntu `apt-get install python3-venv` brings ensurepip.")


if __name__ == "__main__":
    main()
