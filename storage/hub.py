"""Repositories of the Hugging Face Hub: what their URLs mean, who asks, and what lies in them.

Files are read from where the Hub leads to, as files of a web server are. URLs are those of Hugging Face's own tools:
https://huggingface.co/docs/huggingface_hub/guides/hf_file_system. So are the environment variables:
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin

from ..errors import ToolError, UsageError
from .network import is_server

_ENDPOINT = "https://huggingface.co"
# Revisions that hold a slash, which URLs need not write as %2F.
_REFS = re.compile(r"refs/(?:convert/[^/]+|pr/\d+)(?=/|$)")
# What owners and repositories may be called.
_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]+")
_WHO_ASKS = "Authorization"
_NEXT_PAGE = re.compile(r'<([^>]+)>\s*;\s*rel="next"')


class HubFile(NamedTuple):
    """A file in a repository, by its path there."""

    path: str
    num_bytes: int


@dataclass(frozen=True)
class HubPlace:
    """A path in a repository. `kind` is "datasets", "spaces" or "models", `repository` its owner and name."""

    kind: str
    repository: str
    revision: str
    path: str

    @property
    def files_url(self) -> str:
        """The URL below which the files are read."""
        kind = "" if self.kind == "models" else f"{self.kind}/"
        return f"{endpoint()}/{kind}{self.repository}/resolve/{self._in_url}"

    @property
    def listing_url(self) -> str:
        """The URL of the first page of what lies below the path."""
        return f"{endpoint()}/api/{self.kind}/{self.repository}/tree/{self._in_url}?recursive=true"

    @property
    def _in_url(self) -> str:
        return f"{quote(self.revision, safe='')}/{quote(self.path)}".rstrip("/")


def hub_place(url: str) -> HubPlace:
    """What hf://[datasets/ or spaces/]OWNER/NAME[@REVISION][/PATH] means; without a kind it is a model. UsageError for
    anything else."""
    rest = url.partition("://")[2].rstrip("/")
    kind = next((each for each in ("datasets", "spaces") if rest.startswith(f"{each}/")), "models")
    owner, _, rest = rest.removeprefix(f"{kind}/").partition("/")
    name, at, rest = _split_first(rest, "@/")
    if not _NAME.fullmatch(owner) or not _NAME.fullmatch(name):
        raise UsageError(f"{url} names no repository; write it like hf://datasets/OWNER/NAME/FOLDER")
    revision, path = "main", rest
    if at == "@":
        found = _REFS.match(rest)
        revision = found[0] if found else rest.partition("/")[0]
        path = rest[len(revision) :].removeprefix("/")
        if not revision:
            raise UsageError(f"{url} has no revision behind the @; write a branch, a tag or a commit, or leave it out")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        raise UsageError(f"{url}: a part of it is empty, '.' or '..'; a path in a repository has no such parts")
    return HubPlace(kind, f"{owner}/{name}", unquote(revision), path)


def _split_first(text: str, separators: str) -> tuple[str, str, str]:
    """A text before, at and behind the first of these characters."""
    at = next((at for at, each in enumerate(text) if each in separators), len(text))
    return text[:at], text[at : at + 1], text[at + 1 :]


def endpoint() -> str:
    """The server of the Hub. ToolError where the environment names what is none."""
    named = os.environ.get("HF_ENDPOINT", "").rstrip("/") or _ENDPOINT
    if not is_server(named):
        raise ToolError(f"HF_ENDPOINT is {named!r}, which is no server; write https://host, or unset it")
    return named


def request_headers() -> dict[str, str]:
    """What says who asks the Hub."""
    token, place = _token()
    if re.search(r"[^!-~]", token):
        raise ToolError(f"{place} has blanks or other characters that no token has; write one token there, and no more")
    return {_WHO_ASKS: f"Bearer {token}"} if token else {}


def token_tried() -> str:
    """Which token requests are made with, for messages."""
    token, place = _token()
    if token:
        return f"the token {token[:5]}... from {place}"
    return "no token (for a private repository set HF_TOKEN, or run `hf auth login`); or there is no such repository"


def _token() -> tuple[str, str]:
    """The token of this user, and where it comes from; "" where there is none."""
    if token := os.environ.get("HF_TOKEN", "").strip():
        return token, "HF_TOKEN"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    # As it is where the user has no home folder; Path.expanduser raises RuntimeError there.
    file = Path(os.path.expanduser(os.environ.get("HF_TOKEN_PATH") or f"{home}/token"))  # noqa: PTH111
    try:
        return file.read_text(encoding="utf-8").strip(), str(file)
    except (OSError, UnicodeDecodeError):
        return "", ""


def page_of_files(url: str, timeout_seconds: float) -> tuple[list[HubFile], str]:
    """The files of a page of a listing, and the URL of the next page, "" for none. Nothing lies at a path that the Hub
    does not know. OSError."""
    if not is_server(url):
        raise ValueError(f"the Hub named {url!r} as the next page of a listing")
    # The next page is where an answer says: the token is for the Hub alone.
    request = urllib.request.Request(url, headers=request_headers() if _is_of_the_hub(url) else {})  # noqa: S310
    try:
        with urllib.request.build_opener(_TokenStays).open(request, timeout=timeout_seconds) as answer:
            entries = json.load(answer)
            following = _NEXT_PAGE.search(answer.headers.get("Link", ""))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return [], ""
        raise
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        # As urllib says it where it notices the same before the answer.
        raise urllib.error.URLError(str(error) or type(error).__name__) from error
    files = [HubFile(each["path"], int(each["size"])) for each in entries if each.get("type") == "file"]
    return files, urljoin(url, following[1]) if following else ""


def _is_of_the_hub(url: str) -> bool:
    return url.startswith(f"{endpoint()}/")


class _TokenStays(urllib.request.HTTPRedirectHandler):
    """Where the Hub leads to another server, the token does not go along."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        following = super().redirect_request(*arguments)
        if following is not None and not _is_of_the_hub(following.full_url):
            following.remove_header(_WHO_ASKS)
        return following
