"""A real browser that loads files and tells what it met: Chromium or Chrome through the DevTools protocol, Firefox
through WebDriver BiDi."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

REQUIRE_BROWSER = "SHORTGOP_REQUIRE_BROWSER"
BROWSERS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    "firefox": ("firefox", "firefox-esr"),
}
_START_SECONDS, _ANSWER_SECONDS = 60, 60
_HEIGHT = 900
# Values are asked for as JSON: the two protocols write other ones differently.
_IMAGES = (
    "Promise.all([...document.images].map(image => image.decode().then(() => true, () => false))).then(JSON.stringify)"
)
_TOO_WIDE = """
    JSON.stringify([...document.querySelectorAll("*")]
        .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
        .map(one => one.outerHTML.slice(0, 200)))
"""
_BOXES = """
    JSON.stringify(SELECTORS.map(selector => [...document.querySelectorAll(selector)]
        .map(one => one.getBoundingClientRect())
        .map(box => [box.left, box.top, box.right, box.bottom])))
"""
_SCROLL_WIDTH = "JSON.stringify(document.documentElement.scrollWidth)"
_TEXT = "JSON.stringify(document.body.innerText)"


class Box(NamedTuple):
    """Where an element is in the window, in pixels from its upper left corner."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def is_inside(self, other: Box) -> bool:
        """Whether no part of it lies outside of the other one, but for a pixel's rounding."""
        return (
            self.left >= other.left - 1
            and self.top >= other.top - 1
            and self.right <= other.right + 1
            and self.bottom <= other.bottom + 1
        )


@dataclass
class Seen:
    """What a page did. `requests` are the addresses that it asked for besides its own and data in it, `console` what
    the browser printed, `images` whether each image decodes. `too_wide` has, for each width of the window, the elements
    that reach beyond it, `scroll_widths` how wide the page is, and `boxes` where the elements are that each selector
    finds."""

    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    images: list[bool] = field(default_factory=list)
    too_wide: dict[int, list[str]] = field(default_factory=dict)
    scroll_widths: dict[int, int] = field(default_factory=dict)
    boxes: dict[int, dict[str, list[Box]]] = field(default_factory=dict)
    text: str = ""


def find_browser() -> tuple[str, str] | None:
    """The kind and the path of the first browser on the PATH."""
    there = ((kind, shutil.which(name)) for kind, names in BROWSERS.items() for name in names)
    return next(((kind, path) for kind, path in there if path), None)


def browser_or_skip() -> tuple[str, str]:
    """The browser that `find_browser` finds. Where there is none, the test is skipped; with SHORTGOP_REQUIRE_BROWSER=1
    it fails."""
    browser = find_browser()
    if browser is not None:
        return browser
    missing = "there is no Chromium, Chrome or Firefox on the PATH"
    if os.environ.get(REQUIRE_BROWSER, "") not in {"", "0"}:
        pytest.fail(f"{missing}, and {REQUIRE_BROWSER} is set")
    pytest.skip(missing)


def look_at(
    kind: str, browser: str, pages: Sequence[Path], widths: Sequence[int], boxes_of: Sequence[str] = ()
) -> list[Seen]:
    """Load each file in windows of these widths, in pixels, one after the other in the same browser. `boxes_of`: CSS
    selectors."""
    visit = _in_chromium if kind == "chromium" else _in_firefox
    urls = [page.absolute().as_uri() for page in pages]
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        return asyncio.run(visit(browser, profile, urls, widths, boxes_of))


async def _in_chromium(
    browser: str, profile: str, urls: Sequence[str], widths: Sequence[int], boxes_of: Sequence[str]
) -> list[Seen]:
    # A test often runs as root in a container, where the browser's own sandbox does not start.
    options = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    async with _started(browser, options, "DevTools listening on ") as tab:
        target = await tab.call("Target.createTarget", url="about:blank")
        attached = await tab.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab.more = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.call(f"{domain}.enable")

        async def value(script: str) -> str:
            found = await tab.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
            return str(found["result"]["value"])

        seen, noted = [], ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        for url in urls:
            for width in widths:
                size = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": False}
                await tab.call("Emulation.setDeviceMetricsOverride", **size)
                await tab.call("Page.navigate", url=url)
                await tab.until("Page.loadEventFired")
                await _measure(tab.seen, width, boxes_of, value)
            seen.append(tab.found(url, console=noted, request="Network.requestWillBeSent"))
        return seen


async def _in_firefox(
    browser: str, profile: str, urls: Sequence[str], widths: Sequence[int], boxes_of: Sequence[str]
) -> list[Seen]:
    options = ["--headless", "--no-remote", "--remote-debugging-port", "0", "--profile", profile]
    async with _started(browser, options, "WebDriver BiDi listening on ", "/session") as tab:
        await tab.call("session.new", capabilities={})
        await tab.call("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        context = (await tab.call("browsingContext.getTree"))["contexts"][0]["context"]

        async def value(script: str) -> str:
            found = await tab.call("script.evaluate", expression=script, target={"context": context}, awaitPromise=True)
            return str(found["result"]["value"])

        seen = []
        for url in urls:
            for width in widths:
                size = {"width": width, "height": _HEIGHT}
                await tab.call("browsingContext.setViewport", context=context, viewport=size)
                await tab.call("browsingContext.navigate", context=context, url=url, wait="complete")
                await _measure(tab.seen, width, boxes_of, value)
            seen.append(tab.found(url, console=("log.entryAdded",), request="network.beforeRequestSent"))
        return seen


async def _measure(seen: Seen, width: int, boxes_of: Sequence[str], value: Any) -> None:
    seen.images += json.loads(await value(_IMAGES))
    seen.too_wide[width] = json.loads(await value(_TOO_WIDE))
    seen.scroll_widths[width] = json.loads(await value(_SCROLL_WIDTH))
    found = json.loads(await value(_BOXES.replace("SELECTORS", json.dumps(boxes_of))))
    seen.boxes[width] = {
        selector: [Box(*sides) for sides in each] for selector, each in zip(boxes_of, found, strict=True)
    }
    seen.text = json.loads(await value(_TEXT))


class _Tab:
    """A connection to a browser. `more` goes with every call; `said` are all events."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0
        self._said: list[dict[str, Any]] = []
        self.more: dict[str, str] = {}
        self.seen = Seen()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters, **self.more})
        while True:
            message = await self._next()
            if message.get("id") == self._last:
                assert "result" in message, message
                return dict(message["result"])

    async def until(self, event: str) -> None:
        """Wait for the first such event after the last call that waited for one."""
        while not any(each.pop("waited_for", None) == event for each in self._said):
            await self._next()

    def found(self, url: str, *, console: Sequence[str], request: str) -> Seen:
        """What was seen of the page at this address; the next page starts anew."""
        seen, said = self.seen, self._said
        self.seen, self._said = Seen(), []
        for event in said:
            if event["method"] in console:
                seen.console.append(str(event["params"]))
            if event["method"] == request:
                asked = event["params"]["request"]["url"]
                if asked != url and not asked.startswith("data:"):
                    seen.requests.append(asked)
        return seen

    async def _next(self) -> dict[str, Any]:
        message = dict(await asyncio.wait_for(self._socket.receive_json(), _ANSWER_SECONDS))
        if "method" in message:
            self._said.append(message | {"waited_for": message["method"]})
        return message


@contextlib.asynccontextmanager
async def _started(browser: str, options: Sequence[str], mark: str, path: str = "") -> AsyncIterator[_Tab]:
    """A browser's process, whose standard error has its address behind `mark`."""
    process = await asyncio.create_subprocess_exec(
        browser, *options,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        address = await asyncio.wait_for(_address(process, mark), _START_SECONDS)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{address}{path}", max_msg_size=0) as socket,
        ):
            yield _Tab(socket)
    finally:
        process.kill()
        await process.wait()


async def _address(process: asyncio.subprocess.Process, mark: str) -> str:
    assert process.stderr is not None
    said = []
    async for line in process.stderr:
        said.append(line.decode(errors="replace"))
        if mark in said[-1]:
            return said[-1].partition(mark)[2].strip()
    raise AssertionError(f"the browser did not start: {''.join(said)}")
