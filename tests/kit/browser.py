"""The system's Chromium, driven by Playwright, and axe-core's audit of a page."""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncGenerator
from functools import cache
from importlib.resources import files
from typing import Any

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Route,
    ViewportSize,
    async_playwright,
    expect,
)

PATIENCE_MS = 60_000  # a slow machine
expect.set_options(timeout=PATIENCE_MS)

VIEWPORT: ViewportSize = {"width": 1440, "height": 900}
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# This list replaces Playwright's. The first one starts a process for a page that may follow.
FEATURES_OFF = (
    "SpareRendererForSitePerProcess",
    "BackForwardCache",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
)
FLAGS = (
    "--no-sandbox",  # root in a container has none to give
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    f"--disable-features={','.join(FEATURES_OFF)}",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Names are not looked up at all: what would leave the machine fails, and is seen.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# Of axe-core's rules: all of WCAG 2.2 A and AA, and its best practices.
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
AXE_RUN = """async ([type, values]) => {
  const found = await axe.run({
    runOnly: { type, values },
    resultTypes: ['violations'],
    rules: { 'target-size': { enabled: true } },
  });
  return found.violations.flatMap(rule => rule.nodes.map(
    node => `${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`));
}"""


def program() -> str | None:
    """The path of Chromium; None if this machine has none."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.asynccontextmanager
async def running_chromium() -> AsyncGenerator[Browser, None]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program(), args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def new_context(browser: Browser) -> AsyncGenerator[BrowserContext, None]:
    """Tabs with one storage and one cache. No motion: a transition shows colours in between."""
    context = await browser.new_context(
        viewport=VIEWPORT, color_scheme="light", reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context
    finally:
        await context.close()


@contextlib.asynccontextmanager
async def used_again(page: Page) -> AsyncGenerator[Page, None]:
    """A tab that several tests use, because a new one costs Chromium three processes. Afterwards it
    is empty, with the settings of `new_context`; its cache stays."""
    try:
        yield page
    finally:
        async with asyncio.timeout(PATIENCE_MS / 1000):  # some of these calls have no limit
            await cleared(page)


async def cleared(page: Page) -> None:
    for other in page.context.pages:
        if other is not page:
            await other.close()
    await page.unroute_all(behavior="ignoreErrors")
    await page.evaluate("location.protocol === 'http:' && localStorage.clear()")
    await page.evaluate("location.replace('about:blank')")  # keeps its process
    await page.wait_for_url("about:blank")
    await page.set_viewport_size(VIEWPORT)
    await page.emulate_media(color_scheme="light", reduced_motion="reduce")


@contextlib.asynccontextmanager
async def held(page: Page, addresses: re.Pattern[str]) -> AsyncGenerator[None, None]:
    """Requests for these addresses wait until the block ends, however it ends."""
    released = asyncio.Event()

    async def hold(route: Route) -> None:
        await released.wait()
        await route.continue_()

    await page.route(addresses, hold)
    try:
        yield
    finally:
        released.set()


def complaints_of(page: Page) -> list[str]:
    """The page's errors and warnings from now on, the browser's reports about it included."""
    found: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            found.append(f"{message.text} {message.location.get('url', '')}")

    page.on("console", listen)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


@cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text()


async def accessibility_faults(page: Page, *rules: str) -> list[str]:
    """What axe-core finds by these rules, or by all."""
    await page.evaluate(_axe())
    chosen = ["rule", list(rules)] if rules else ["tag", list(TAGS)]
    faults: Any = await page.evaluate(AXE_RUN, chosen)
    return list(faults)
