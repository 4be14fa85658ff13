"""Sources in object stores and on web servers: what a URL means, and which parts of it are secrets.

A URL of a presigned download has its signature in the query. It is needed to read the file, and is never printed or
stored: messages and manifests have the URL without its query.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ..errors import UsageError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_WEB = ("http", "https")


@dataclass(frozen=True)
class Address:
    """A file or a folder in a store. `url` is what messages and manifests say: without a query, and without a slash at
    its end. `key` is the path below `root`; "" is the root itself. `root` is what `storage_at` takes."""

    url: str
    key: str
    root: str = field(repr=False)

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def is_on_the_web(self) -> bool:
        """Whether it is on a web server, which has files and no listings."""
        return _scheme(self.root) in _WEB

    @property
    def secret(self) -> str:
        """The query, which no message may have; "" without one."""
        return self.root.partition("?")[2] if self.is_on_the_web else ""

    def below(self, key: str) -> Address:
        """The address of another key in the same store."""
        root = self.url.removesuffix(self.key).rstrip("/")
        return Address(f"{root}/{key}" if key else root, key, self.root)


def is_url(text: str) -> bool:
    """Whether an argument or a line of a list is the URL of a store, and no path."""
    found = _URL.match(text)
    return found is not None and found[1].lower() != "file"


def shown(text: str) -> str:
    """What messages and manifests may say of a path or URL that the user gave: a URL of the web without what may be a
    secret in it."""
    if not is_url(text):
        return text
    scheme, rest = text.split("://", 1)
    host, slash, path = rest.partition("/")
    if scheme.lower() in _WEB:
        path = re.split(r"[?#]", path)[0]
        host = re.split(r"[?#]", host)[0]
    if scheme.lower() in _WEB or ":" in host.rpartition("@")[0]:
        host = host.rpartition("@")[2]
    return f"{scheme}://{host}{slash}{path}"


def beside(address: Address, path: str) -> str:
    """What a path in a list in a store means: a URL, or a path relative to that of the list."""
    if is_url(path):
        return path
    folder = address.url.rpartition("/")[0]
    return f"{folder}/{posixpath.normpath(path)}"


def parse(text: str) -> Address:
    """The address of a URL. UsageError for one without a bucket or a host, or with a password in it."""
    found = _URL.match(text)
    if found is None:
        raise UsageError(f"{text!r} is no URL; write it like s3://bucket/folder")
    scheme, rest = found[1].lower(), found[2]
    host, _, path = rest.partition("/")
    if "@" in host and (scheme in _WEB or ":" in host.rpartition("@")[0]):
        raise UsageError(
            f"{shown(text)!r} has a user or a password in front of its host, which is not used; take it out, and give "
            "credentials as the tools of that store take them (environment, profile), or a presigned URL"
        )
    if scheme in _WEB:
        return _web(text)
    if not host:
        raise UsageError(f"{text!r} names no bucket; write it like {scheme}://bucket/folder")
    key = path.strip("/")
    if any(part in ("", ".", "..") for part in key.split("/")) and key:
        raise UsageError(f"{text!r} has an empty part, `.` or `..` in its path; write the key of the object")
    root = f"{scheme}://{host}"
    return Address(f"{root}/{key}" if key else root, key, root)


def _web(text: str) -> Address:
    parts = urlsplit(text)
    folder, _, name = parts.path.rstrip("/").rpartition("/")
    if not parts.hostname or not name:
        raise UsageError(f"{shown(text)!r} names no file; write it like https://host/folder/video.mp4")
    place = f"{parts.scheme}://{parts.netloc}{folder}"
    query = f"?{parts.query}" if parts.query else ""
    return Address(f"{place}/{name}", unquote(name), place + query)


def _scheme(url: str) -> str:
    return url.partition("://")[0]
