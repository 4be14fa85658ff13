"""A proxy in front of an S3 server that does what networks do, and counts the requests that come through it.

    python flaky_proxy.py UPSTREAM

The first line on standard output is its port. It ends when its standard input does.

What goes wrong is a draw from a generator with a seed, the same for the same requests in the same order. Nothing goes
wrong until `FlakyProxy.faults` says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import re
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from yarl import URL

from s3_server import running

CONTROL = "/-proxy"


@dataclass(frozen=True)
class Faults:
    """What goes wrong. The rates are shares of the requests that could fail this way."""

    seed: int = 0
    latency_seconds: float = 0.0
    # Answered with 500 or 503, and never seen by the server.
    failed: float = 0.0
    # Of answers with a body: the connection is cut in the middle of it.
    cut: float = 0.0
    # Of PUTs and POSTs: the server did it, and the connection is cut before the answer.
    lost: float = 0.0
    # Of GETs: answered this much later than the others.
    slow: float = 0.0
    slow_seconds: float = 1.0
    # The answers of the next so many PUTs with a body are lost, whatever the rate.
    lost_puts: int = 0
    # Never answered, and nothing is sent: the next so many requests.
    silent: int = 0
    # The next so many requests get this status, 0 for none.
    statuses: int = 0
    status: int = 503
    # Copies are answered with 411, as by Ceph 16, which asks for a Content-Length.
    no_copies: bool = False
    # Conditions that the server does not get to see: the name of a header, or "" for none.
    hidden_headers: tuple[str, ...] = ()
    # Only keys that hold this text are concerned. What is counted is not.
    only: str = ""


# How often what fails over a bad network.
FLAKY = Faults(seed=1, failed=0.1, cut=0.1, lost=0.1, slow=0.05, slow_seconds=0.3)


@dataclass(frozen=True)
class Request:
    """One request as it came in. `key` is that of the object, the prefix of a listing, or all those to be removed."""

    method: str
    key: str
    query: str = ""
    range: str = ""
    status: int = 0


@dataclass
class FlakyProxy:
    """How a test speaks to the proxy. What concerns no key below `prefix` is left alone and not counted: it may come
    from a thread of an earlier test."""

    endpoint: str
    prefix: str = ""

    def faults(self, faults: Faults) -> None:
        """From now on this goes wrong. The generator starts anew."""
        self._control("faults", {**asdict(faults), "below": self.prefix})

    def requests(self, *methods: str, holding: str = "") -> list[Request]:
        """The requests since the last `forget`, of these methods if any are given, whose key holds this text."""
        found = [Request(**each) for each in self._control("requests", {})]
        ours = [each for each in found if self.prefix in each.key]
        return [each for each in ours if (not methods or each.method in methods) and holding in each.key]

    def forget(self) -> None:
        """Forget the requests so far."""
        self._control("forget", {})

    def counts(self) -> dict[str, int]:
        """How many requests of each method there were since the last `forget`."""
        methods = [each.method for each in self.requests()]
        return {method: methods.count(method) for method in sorted(set(methods))}

    def _control(self, what: str, content: dict[str, Any]) -> Any:
        url = f"{self.endpoint}{CONTROL}/{what}"
        with urllib.request.urlopen(url, data=json.dumps(content).encode()) as answer:
            return json.load(answer)


@contextlib.contextmanager
def flaky_proxy(upstream: str, address: str = "127.0.0.1") -> Iterator[FlakyProxy]:
    """A new proxy in front of a server, which listens at this address."""
    with running("flaky_proxy.py", upstream, address) as endpoint:
        yield FlakyProxy(endpoint)


@dataclass
class _State:
    upstream: str
    faults: Faults = Faults()
    # Only keys below this prefix are concerned, whatever else they hold.
    below: str = ""
    draws: random.Random = field(default_factory=lambda: random.Random(0))
    left: dict[str, int] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)

    def next_of(self, count: str) -> bool:
        """Whether this request is one of the next so many that something happens to."""
        if self.left.get(count, 0) <= 0:
            return False
        self.left[count] -= 1
        return True

    def drawn(self, rate: float) -> bool:
        return rate > 0 and self.draws.random() < rate


# https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
_CODES = {
    400: "InvalidRequest",
    403: "AccessDenied",
    411: "MissingContentLength",
    429: "SlowDown",
    501: "NotImplemented",
    503: "SlowDown",
}
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade"}


async def _forward(state: _State, session: ClientSession, request: web.Request) -> web.StreamResponse:
    body = await request.read()
    path, _, query = request.raw_path.partition("?")
    key = path.strip("/").partition("/")[2]
    key = (
        key
        or request.query.get("prefix", "")
        or " ".join(re.findall("<Key>(.*?)</Key>", body.decode("utf8", "replace")))
    )
    noted = asdict(Request(request.method, key, query, request.headers.get("Range", "")))
    state.requests.append(noted)
    faults = state.faults if state.faults.only in key and state.below in key else Faults()
    await asyncio.sleep(faults.latency_seconds)
    if faults.silent and state.next_of("silent"):
        await asyncio.sleep(3600)
    status = faults.status if faults.statuses and state.next_of("statuses") else 0
    if request.method == "GET" and not status and state.drawn(faults.slow):
        await asyncio.sleep(faults.slow_seconds)
    if faults.no_copies and "x-amz-copy-source" in request.headers:
        status = 411
    if status or state.drawn(faults.failed):
        status = status or state.draws.choice([500, 503])
        noted["status"] = status
        code = _CODES.get(status, "InternalError")
        return web.Response(status=status, text=f"<Error><Code>{code}</Code></Error>", content_type="application/xml")
    hidden = _HOP_BY_HOP | {each.lower() for each in faults.hidden_headers}
    headers = [(name, value) for name, value in request.headers.items() if name.lower() not in hidden]
    url = URL(f"{state.upstream}{request.raw_path}", encoded=True)
    async with session.request(request.method, url, headers=headers, data=body or None) as answer:
        content = await answer.read()
        noted["status"] = answer.status
        writing = request.method in ("PUT", "POST")
        if writing and ((faults.lost_puts and body and state.next_of("lost_puts")) or state.drawn(faults.lost)):
            _hang_up(request)
        kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP]
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        response.headers.extend(kept)
    await response.prepare(request)
    if request.method == "GET" and len(content) > 1 and state.drawn(faults.cut):
        await response.write(content[: state.draws.randrange(1, len(content))])
        _hang_up(request)
    if request.method != "HEAD":
        await response.write(content)
    await response.write_eof()
    return response


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        # What was written already still goes out.
        request.transport.close()
    raise ConnectionResetError


async def _control(state: _State, request: web.Request) -> web.Response:
    content = json.loads(await request.read() or b"{}")
    match request.match_info["what"]:
        case "faults":
            state.below = content.pop("below")
            state.faults = Faults(**{**content, "hidden_headers": tuple(content["hidden_headers"])})
            state.draws = random.Random(state.faults.seed)
            state.left = {name: getattr(state.faults, name) for name in ("lost_puts", "silent", "statuses")}
        case "forget":
            state.requests.clear()
        case "requests":
            return web.json_response(state.requests)
        case unknown:
            raise web.HTTPNotFound(text=unknown)
    return web.json_response({})


async def _serve(upstream: str, address: str) -> None:
    state = _State(upstream)
    # It reports each connection that is cut on purpose.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    timeout = ClientTimeout(total=60)
    async with ClientSession(
        auto_decompress=False,
        connector=TCPConnector(limit=0),
        timeout=timeout,
        # A client of Azure has signed that there is none.
        skip_auto_headers=("Content-Type",),
    ) as session:
        application = web.Application(client_max_size=1 << 30)

        async def control(request: web.Request) -> web.Response:
            return await _control(state, request)

        async def forward(request: web.Request) -> web.StreamResponse:
            return await _forward(state, session, request)

        application.router.add_post(f"{CONTROL}/{{what}}", control)
        application.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, address, 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))
