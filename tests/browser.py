"""A real browser that loads a file and tells what it met: Chromium or Chrome, through its DevTools protocol."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chromium-headless-shell",
)
_START_SECONDS, _ANSWER_SECONDS = 60, 60
_HEIGHT = 900
_IMAGES = "Promise.all([...document.images].map(image => image.decode().then(() => true, () => false)))"
_TOO_WIDE = """
    [...document.querySelectorAll("*")].filter(one => one.getBoundingClientRect().right > innerWidth + 1)
        .map(one => one.outerHTML.slice(0, 200))
"""


@dataclass
class Seen:
    """What a page did. `requests` are the addresses that it asked for besides its own and data in it, `console` what
    the browser printed, `images` whether each image decodes. `too_wide` has, for each width of the window, the elements
    that reach beyond it, and `scroll_widths` how wide the page is."""

    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    images: list[bool] = field(default_factory=list)
    too_wide: dict[int, list[str]] = field(default_factory=dict)
    scroll_widths: dict[int, int] = field(default_factory=dict)
    text: str = ""


def find_browser() -> str | None:
    """A browser on the PATH."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def look_at(browser: str, page: Path, widths: Sequence[int]) -> Seen:
    """Load a file in windows of these widths, in pixels."""
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        return asyncio.run(_look_at(browser, profile, page, widths))


async def _look_at(browser: str, profile: str, page: Path, widths: Sequence[int]) -> Seen:
    # A test often runs as root in a container, where the browser's own sandbox does not start.
    process = await asyncio.create_subprocess_exec(
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-port=0",
        f"--user-data-dir={profile}", "about:blank",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        address = await asyncio.wait_for(_address(process), _START_SECONDS)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=0) as socket,
        ):
            return await _Tab(socket, page).visit(widths)
    finally:
        process.kill()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = []
    async for line in process.stderr:
        said.append(line.decode(errors="replace"))
        if "DevTools listening on " in said[-1]:
            return said[-1].partition("DevTools listening on ")[2].strip()
    raise AssertionError(f"the browser did not start: {''.join(said)}")


class _Tab:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse, page: Path) -> None:
        self._socket = socket
        self._url = page.absolute().as_uri()
        self._session: str | None = None
        self._last = 0
        self._loaded = False
        self._seen = Seen()

    async def visit(self, widths: Sequence[int]) -> Seen:
        target = await self._call("Target.createTarget", url="about:blank")
        attached = await self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._call(f"{domain}.enable")
        for width in widths:
            await self._call(
                "Emulation.setDeviceMetricsOverride",
                width=width, height=_HEIGHT, deviceScaleFactor=1, mobile=False,
            )  # fmt: skip
            self._loaded = False
            await self._call("Page.navigate", url=self._url)
            while not self._loaded:
                self._note(await self._receive())
            self._seen.images += await self._value(_IMAGES)
            self._seen.too_wide[width] = await self._value(_TOO_WIDE)
            self._seen.scroll_widths[width] = await self._value("document.documentElement.scrollWidth")
        self._seen.text = await self._value("document.body.innerText")
        return self._seen

    async def _value(self, expression: str) -> Any:
        found = await self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return found["result"]["value"]

    async def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        session = {} if self._session is None else {"sessionId": self._session}
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters, **session})
        while True:
            message = await self._receive()
            if message.get("id") == self._last:
                assert "result" in message, message
                return dict(message["result"])
            self._note(message)

    async def _receive(self) -> dict[str, Any]:
        return dict(await asyncio.wait_for(self._socket.receive_json(), _ANSWER_SECONDS))

    def _note(self, message: dict[str, Any]) -> None:
        values = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self._seen.console.append(str(values))
            case "Network.requestWillBeSent":
                url = values["request"]["url"]
                if url != self._url and not url.startswith("data:"):
                    self._seen.requests.append(url)
