"""A real Chromium, driven over its debugging pipe. No driver program, no download."""

import asyncio
import base64
import contextlib
import fcntl
import itertools
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

PATIENCE_S = 20.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The pipe is spoken on 3 and 4, and nothing else may come there.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # root in a container has none to give
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--enable-blink-features=ComputedAccessibilityInfo",  # names and roles as it tells them
    # Names are not looked up at all: what would leave the machine fails, and is seen.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def program() -> str | None:
    """Where Chromium is; None if this machine has none."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class PageFailed(AssertionError):
    """What the page's own JavaScript threw."""


class Page:
    """One tab."""

    def __init__(self, pipe: "_Pipe", session: str) -> None:
        self._pipe = pipe
        self._session = session
        self.requests: list[str] = []  # every URL that was asked for
        self.complaints: list[str] = []  # console errors and warnings, exceptions, CSP reports

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._pipe.call(method, params, self._session)

    async def begin(self) -> None:
        self._pipe.listen(self._session, self._hear)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.send(f"{domain}.enable")

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                told = details.get("exception", {}).get("description", details["text"])
                self.complaints.append(str(told))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                values = [str(arg.get("value", arg)) for arg in params["args"]]
                self.complaints.append(" ".join(values))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                entry = params["entry"]
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
            case _:
                pass

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def show(self, html: str) -> None:
        """A document of the test's own."""
        await self.open("about:blank")
        frame = (await self.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        await self.send("Page.setDocumentContent", frameId=frame, html=html)

    async def run(self, script: str) -> Any:
        """The value of an expression; promises are awaited."""
        answer = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if (thrown := answer.get("exceptionDetails")) is not None:
            raise PageFailed(thrown.get("exception", {}).get("description", thrown["text"]))
        return answer["result"].get("value")

    async def listen_to(self, script: str) -> Any:
        """`run` for scripts that ask for computed names and roles: the tree is built once for all,
        and not anew for each of them.
        """
        await self.send("Accessibility.enable")
        try:
            return await self.run(script)
        finally:
            await self.send("Accessibility.disable")

    async def until(self, condition: str, timeout_s: float = PATIENCE_S) -> Any:
        """Returns what the expression gives once that is true."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(PageFailed):
                if found := await self.run(condition):
                    return found
            await asyncio.sleep(0.02)
        shown = await self.run("document.body.innerText.slice(0, 2000)")
        raise AssertionError(f"never true: {condition}\n{self.complaints}\n{shown}")

    async def press(self, key: str, *, shift: bool = False) -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowDown": 40}
        keyed = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        text = {"text": "\r"} if key == "Enter" else {}
        modifiers = 8 if shift else 0
        down = {**keyed, **text, "modifiers": modifiers}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **down)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **keyed, modifiers=modifiers)

    async def write(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def click(self, selector: str) -> None:
        await self.until(f"!!document.querySelector({selector!r})")
        await self.run(f"document.querySelector({selector!r}).click()")

    async def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        # In the middle of a transition the page shows intermediate colours.
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme, still])

    async def picture(self, path: Path) -> None:
        shot = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


class _Pipe:
    """JSON messages with a NUL behind each."""

    def __init__(self, reader: asyncio.StreamReader, writer: int) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[str, Any] = {}

    def listen(self, session: str, hear: Any) -> None:
        self._listeners[session] = hear

    async def call(self, method: str, params: dict[str, Any], session: str = "") -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        os.write(self._writer, msgspec.json.encode(message) + b"\0")
        async with asyncio.timeout(PATIENCE_S):
            return await answer

    async def read(self) -> None:
        while data := await self._reader.readuntil(b"\0"):
            message = msgspec.json.decode(data[:-1])
            if "id" not in message:
                hear = self._listeners.get(message.get("sessionId", ""))
                if hear:
                    hear(message["method"], message["params"])
                continue
            answer = self._waiting.pop(message["id"])
            if answer.done():
                continue
            if "error" in message:
                answer.set_exception(PageFailed(str(message["error"])))
            else:
                answer.set_result(message["result"])


class Chromium:
    """`async with Chromium.running(directory) as browser`, then pages as many as one likes."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, directory: Path) -> AsyncGenerator["Chromium", None]:
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        process = await _started(directory, theirs_in, theirs_out)
        os.close(theirs_in)
        os.close(theirs_out)
        reader = asyncio.StreamReader(limit=2**26)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb")
        )
        pipe = _Pipe(reader, ours_out)
        reading = asyncio.create_task(pipe.read())
        try:
            yield cls(pipe)
        finally:
            with contextlib.suppress(Exception):
                await pipe.call("Browser.close", {})
            await _ended(process)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            transport.close()
            os.close(ours_out)

    @contextlib.asynccontextmanager
    async def page(self) -> AsyncGenerator[Page, None]:
        """A tab with a storage of its own."""
        context = await self._pipe.call("Target.createBrowserContext", {})
        of = {"browserContextId": context["browserContextId"]}
        target = await self._pipe.call("Target.createTarget", {"url": "about:blank", **of})
        attached = {"targetId": target["targetId"], "flatten": True}
        session = await self._pipe.call("Target.attachToTarget", attached)
        page = Page(self._pipe, session["sessionId"])
        await page.begin()
        try:
            yield page
        finally:
            await self._pipe.call("Target.disposeBrowserContext", of)


async def _started(directory: Path, reads: int, writes: int) -> Process:
    found = program()
    assert found is not None, "no Chromium here"
    # Far from 3 and 4, so that neither is overwritten by the other.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (reads, writes)]
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-S", "-c", _START, *map(str, ends), found),
            *_FLAGS,
            f"--user-data-dir={directory}",
            pass_fds=ends,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )
    finally:
        for end in ends:
            os.close(end)


async def _ended(process: Process) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), 10)
    if process.returncode is None:
        process.kill()
        await process.wait()
