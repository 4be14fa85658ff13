"""Sources in object stores and on web servers: what a URL means, and which parts of it are secrets.

A presigned URL has its signature in the query. It is needed to read the file, and is never printed or stored: messages
and manifests have the URL without its query.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ...errors import UsageError
from ...storage.hub import hub_place

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_WEB = ("http", "https")


@dataclass(frozen=True)
class Address:
    """A file or a folder in a store. `url` is what messages and manifests say: without a query, and without a slash at
    its end. `key` is the path below `root`, the URL of a storage; "" is the root itself. `query` is sent to a web
    server only."""

    url: str
    key: str
    root: str
    query: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def is_on_the_web(self) -> bool:
        """Whether it is on a web server, which has files and no listings."""
        return is_on_the_web(self.root)

    def below(self, key: str) -> Address:
        """The address of another key in the same store."""
        return Address(f"{self.root}/{key}", key, self.root)


def is_on_the_web(url: str) -> bool:
    """Whether a URL is one of a web server."""
    return url.partition("://")[0].lower() in _WEB


def is_store_url(text: str) -> bool:
    """Whether an argument or a line of a list is the URL of a store, and no path. A file:// URL is none."""
    # Most lines of a list are paths, and the pattern takes longer to say so.
    found = _URL.match(text) if "://" in text else None
    return found is not None and found[1].lower() != "file"


def shown(text: str) -> str:
    """What messages and manifests may say of a path or URL that the user gave: a URL without a password in front of its
    host, and without the query that a web server gets."""
    if not is_store_url(text):
        return text
    scheme, rest = text.split("://", 1)
    if scheme.lower() in _WEB:
        rest = re.split(r"[?#]", rest)[0]
    host, slash, path = rest.partition("/")
    if scheme.lower() in _WEB or ":" in host.rpartition("@")[0]:
        host = host.rpartition("@")[2]
    return f"{scheme}://{host}{slash}{path}"


def url_below(folder: str, path: str) -> str:
    """What a path in a list means whose paths begin in the folder at a URL: a URL, or a path relative to it."""
    if is_store_url(path):
        return path
    scheme, _, rest = folder.partition("://")
    return f"{scheme}://{posixpath.normpath(posixpath.join(rest, path))}"


def parse(text: str) -> Address:
    """The address of a URL. UsageError for one without a bucket or a file, or with a password in it."""
    found = _URL.match(text)
    if found is None:
        raise UsageError(f"{text!r} is no URL; write it like s3://bucket/folder")
    scheme, rest = found[1].lower(), found[2]
    host, _, path = rest.partition("/")
    user = re.split(r"[?#]", host)[0].rpartition("@")[0]
    if user and (scheme in _WEB or ":" in user):
        raise UsageError(
            f"{shown(text)!r} has a user or a password in front of its host, which is not used; take it out, and give "
            "credentials as the tools of that store take them (environment, profile), or a presigned URL"
        )
    if scheme in _WEB:
        return _on_the_web(text)
    if scheme == "hf":
        return _on_the_hub(text)
    if not host:
        raise UsageError(f"{text!r} names no bucket; write it like {scheme}://bucket/folder")
    key = path.rstrip("/")
    if key and any(part in ("", ".", "..") for part in key.split("/")):
        raise UsageError(f"{text!r} has an empty part, `.` or `..` in its path; write the key of the object")
    root = f"{scheme}://{host}"
    return Address(f"{root}/{key}" if key else root, key, root)


def _on_the_hub(text: str) -> Address:
    """The address of a path in a repository of the Hugging Face Hub: the root is the repository."""
    text = f"hf{text[2:]}".rstrip("/")
    path = hub_place(text).path
    return Address(text, path, text.removesuffix(f"/{path}") if path else text)


def _on_the_web(text: str) -> Address:
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UsageError(f"{shown(text)!r} is no URL: {error}") from None
    folder, _, name = parts.path.rpartition("/")
    if not parts.hostname or not name:
        raise UsageError(f"{shown(text)!r} names no file; write it like https://host/folder/video.mp4")
    root = f"{parts.scheme}://{parts.netloc}{folder}"
    return Address(f"{root}/{name}", unquote(name), root, parts.query)
