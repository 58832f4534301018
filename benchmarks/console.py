"""Measures the console under load: its clients beside the extender, and a large cluster.

    .venv/bin/python benchmarks/console.py [--nodes 5000] [--minutes 0.5] [--listeners 500]

All parts are separate processes, as `joulie up` starts them. First it calls the extender with and
without listeners (clients of the console's stream), in turns. The listeners run in a process of
their own on the same machine, so their share of its cores is part of the ratio. Then it opens the
page with all nodes, each with a reading every two seconds, and 300 decisions a second.
`--minutes 10` shows whether memory grows. Frames are rendered in software, and times depend on the
machine: compare ratios and memory.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import Page

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kit"))

from browser import new_context, running_chromium
from console_kit import EventReader, open_stream
from joulie_bus.events import AnyEvent
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import HostPort
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_bus.testing import Voices, hardware, node_seen, power
from joulie_cli.supervisor.supervisor import Supervisor
from joulie_projections.component.data_directory import DataDirectory

CLUSTER = Subjects("local")
DECISIONS_PER_S = 304  # two for each pod, in quarters of a second
CANDIDATES = 200  # nodes of one call
WARM = 20  # calls that are not counted
FRAMES = """lasting => new Promise(done => {
  const times = []; let last = performance.now(); const end = last + lasting;
  const frame = now => { times.push(now - last); last = now;
    now < end ? requestAnimationFrame(frame) : done(times) };
  requestAnimationFrame(frame);
})"""


def name_of(number: int) -> str:
    return f"node-{number:05d}"


class Stand(NamedTuple):
    """The running processes and their addresses."""

    bus: JetStreamLog
    says: Voices
    extender: int
    url: str
    pids: dict[str, int]

    async def tell(self, events: list[AnyEvent]) -> None:
        await self.bus.publish([self.says.stamp(event) for event in events])


@contextlib.asynccontextmanager
async def running(directory: Path, nodes: int) -> AsyncGenerator[Stand, None]:
    data = DataDirectory(directory / "data")
    doors = {name: HostPort("127.0.0.1", free_port()) for name in ("extender", "console")}
    addresses = {**doors, "metrics": HostPort("127.0.0.1", free_port())}
    extra = {
        "TWIN_STALENESS_THRESHOLD": "10h",
        "EXTENDER_DEADLINE": "10s",
    }
    parts: dict[str, Sequence[str]] = dict.fromkeys(("projector", "extender", "console"), ())
    async with Supervisor.over(data, parts, addresses, extra, CLUSTER) as supervisor:
        address = supervisor.broker.address_of(Role.ADMIN)
        async with JetStreamLog.open(address, "bench") as bus:
            found = data.running()
            assert found is not None
            says, url = Voices("bench", CLUSTER, time.time_ns), f"http://{doors['console']}"
            stand = Stand(bus, says, doors["extender"].port, url, found.parts)
            names = list(map(name_of, range(nodes)))
            for at in range(0, nodes, 250):
                part = names[at : at + 250]
                await stand.tell([*map(node_seen, part), *map(hardware, part)])
                await stand.tell([power(name, 200) for name in part])
            async with asyncio.timeout(120):
                while not await asyncio.to_thread(_knows, url, nodes):
                    await asyncio.sleep(0.2)
            yield stand


def _knows(url: str, nodes: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/v1/nodes?limit=1") as answer:
        return int(json.load(answer)["total"]) == nodes
    return False


def _decided(url: str) -> int:
    with urllib.request.urlopen(f"{url}/v1/cluster") as answer:
        return int(json.load(answer)["entries"])


# --- listeners beside the extender ------------------------------------------------------------


class Asked(NamedTuple):
    p50_ms: float
    p99_ms: float


class Scheduler:
    """A client like kube-scheduler: one keep-alive connection, the same nodes for each pod."""

    def __init__(self, port: int) -> None:
        self._door = http.client.HTTPConnection("127.0.0.1", port)
        self._names = list(map(name_of, range(CANDIDATES)))

    def ask(self, verb: str, uid: str) -> None:
        meta = {"name": uid, "namespace": "team", "uid": uid}
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
        body = json.dumps({"Pod": {"metadata": meta, "spec": spec}, "NodeNames": self._names})
        self._door.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
        answer = self._door.getresponse()
        answer.read()
        assert answer.status == 200

    def close(self) -> None:
        self._door.close()


def ask_extender(port: int, calls: int) -> Asked:
    scheduler = Scheduler(port)
    took: list[float] = []
    for _ in range(calls + WARM):
        started = time.perf_counter()
        scheduler.ask("prioritize", f"u-{time.time_ns()}")
        took.append(time.perf_counter() - started)
    scheduler.close()
    cuts = statistics.quantiles(took[WARM:], n=100)
    return Asked(cuts[49] * 1000, cuts[98] * 1000)


async def listen(url: str, count: int) -> None:
    """Runs in a process of its own until it is killed. Prints a line when all are connected."""
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for _ in range(count):
            ear = await stack.enter_async_context(open_stream(url, topics="decisions,cluster"))
            tasks.create_task(_hear(ear))
        print("all are connected", flush=True)


async def _hear(ear: EventReader) -> None:
    while True:
        await ear.next()


@contextlib.asynccontextmanager
async def listeners(url: str, count: int) -> AsyncGenerator[None, None]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--listen", url, "--listeners", str(count)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(120):
            assert await process.stdout.readline() == b"all are connected\n"
        yield
        assert process.returncode is None, "the listeners exited"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def compare(stand: Stand, count: int, calls: int) -> None:
    print(f"{count} listeners beside the extender, {CANDIDATES} candidates, {calls} calls a turn")
    print("             p50 ms   p99 ms")
    alone: list[Asked] = []
    beside: list[Asked] = []
    for _ in range(2):
        alone.append(await asyncio.to_thread(ask_extender, stand.extender, calls))
        print(f"  without {alone[-1].p50_ms:9.2f} {alone[-1].p99_ms:8.2f}", flush=True)
        async with listeners(stand.url, count):
            beside.append(await asyncio.to_thread(ask_extender, stand.extender, calls))
        print(f"  with    {beside[-1].p50_ms:9.2f} {beside[-1].p99_ms:8.2f}", flush=True)
    p50, p99 = (min(each[at] for each in beside) / min(each[at] for each in alone) for at in (0, 1))
    print(f"  ratio   {p50:9.2f} {p99:8.2f}")


# --- the page over a large cluster ------------------------------------------------------------


async def telemetry(stand: Stand, nodes: int) -> None:
    """A reading of every node every two seconds."""
    while True:
        for at in range(20):
            watts = 100 + time.time() % 300
            await stand.tell([power(name_of(number), watts) for number in range(at, nodes, 20)])
            await asyncio.sleep(0.1)


async def decisions(stand: Stand) -> None:
    """Two decisions for each pod. Decisions that were missed are not made up for."""
    scheduler = Scheduler(stand.extender)
    while True:
        started = time.monotonic()
        await asyncio.to_thread(_place, scheduler, DECISIONS_PER_S // 8)
        await asyncio.sleep(max(0.0, started + 0.25 - time.monotonic()))


def _place(scheduler: Scheduler, pods: int) -> None:
    for _ in range(pods):
        uid = f"u-{time.time_ns()}"
        scheduler.ask("filter", uid)
        scheduler.ask("prioritize", uid)


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def watch(stand: Stand, page: Page, nodes: int, minutes: float) -> None:
    await page.goto(stand.url)
    await page.locator("#totals .big").nth(1).wait_for(timeout=60_000)
    noise = [asyncio.create_task(work) for work in (telemetry(stand, nodes), decisions(stand))]
    print(f"{nodes} nodes, {DECISIONS_PER_S} decisions/s, {minutes:g} min")
    print("      s   decisions   frame p50   p95 ms   page heap MB   console RSS MB")
    started, slice_s = time.monotonic(), min(60.0, minutes * 60 / 3)
    while (second := time.monotonic() - started) < minutes * 60:
        await show(stand, page, second, slice_s)
    await show(stand, page, second, min(10.0, slice_s))
    for task in noise:
        assert not task.done(), task
        task.cancel()
    await asyncio.gather(*noise, return_exceptions=True)


async def show(stand: Stand, page: Page, second: float, slice_s: float) -> None:
    times: list[float] = []
    while sum(times) < slice_s * 1000:  # one call of the page must not last the whole time
        times += await page.evaluate(FRAMES, min(10_000, int(slice_s * 1000)))
    cuts = statistics.quantiles(times, n=20)
    protocol = await page.context.new_cdp_session(page)
    await protocol.send("HeapProfiler.collectGarbage")
    heap = (await protocol.send("Runtime.getHeapUsage"))["usedSize"] / 2**20
    rss = rss_mb(stand.pids["console"])
    decided = await asyncio.to_thread(_decided, stand.url)
    print(
        f"{second:7.0f} {decided:11} {cuts[9]:11.1f} {cuts[18]:8.1f} {heap:14.1f} {rss:16.0f}",
        flush=True,
    )


async def main(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        async with running(directory, args.nodes) as stand:
            if args.only != "page":
                await compare(stand, args.listeners, args.calls)
            if args.only != "listeners":
                async with (
                    running_chromium() as browser,
                    new_context(browser) as context,
                ):
                    await watch(stand, await context.new_page(), args.nodes, args.minutes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--listeners", type=int, default=500)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--only", choices=["page", "listeners"])
    parser.add_argument("--listen", help="run only the listeners, at this URL")
    given = parser.parse_args()
    asyncio.run(listen(given.listen, given.listeners) if given.listen else main(given))
