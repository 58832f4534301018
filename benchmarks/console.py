"""The console over a large cluster: frames of the page, memory of both, and how soon one sees.

    .venv/bin/python benchmarks/console.py [NODES] [SECONDS]

Prints a table; asserts nothing. Frames are drawn by software here: trust ratios.
"""

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kit"))

from chromium import Chromium, Page
from joulie_bus.events import SettingsDeclared
from joulie_bus.testing import hardware, node_seen, power, running_broker
from joulie_console.testing import Stage, staging

DECISIONS_PER_S = 300
FRAMES = """new Promise(done => {
  const times = []; let last = performance.now(); const end = last + %d;
  const frame = now => { times.push(now - last); last = now;
    now < end ? requestAnimationFrame(frame) : done(times) };
  requestAnimationFrame(frame);
})"""


async def main(nodes: int, seconds: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        async with (
            running_broker(directory / "broker") as broker,
            staging(broker, directory) as stage,
            Chromium.running(directory / "profile") as browser,
            browser.page() as page,
        ):
            names = [f"node-{number:05d}" for number in range(nodes)]
            for at in range(0, nodes, 500):
                part = names[at : at + 500]
                await stage.tell(*map(node_seen, part), *map(hardware, part))
            await page.resize(1440, 900)
            await page.open(stage.url)
            await page.until("document.querySelectorAll('#totals .big').length > 1")
            noise = [
                asyncio.create_task(_telemetry(stage, names)),
                asyncio.create_task(_decisions(stage)),
            ]
            await _measure(page, nodes, seconds)
            for task in noise:
                task.cancel()
            await asyncio.gather(*noise, return_exceptions=True)


async def _telemetry(stage: Stage, names: list[str]) -> None:
    """Every node once in two seconds."""
    while True:
        for at in range(20):
            await stage.tell(*(power(name, 100 + time.time() % 300) for name in names[at::20]))
            await asyncio.sleep(0.1)


async def _decisions(stage: Stage) -> None:
    while True:
        await stage.record(
            *(
                SettingsDeclared(settings=f"s{number}", code="x", values={})
                for number in range(DECISIONS_PER_S // 4)
            )
        )
        await asyncio.sleep(0.25)


async def _measure(page: Page, nodes: int, seconds: int) -> None:
    print(f"{nodes} nodes, {DECISIONS_PER_S} decisions/s")
    print("    s   frame p50   p95 ms   page MB   process MB")
    for step in range(max(1, seconds // 10)):
        times: list[float] = await page.run(FRAMES % 10_000)
        cuts = statistics.quantiles(times, n=20)
        heap = (await page.send("Runtime.getHeapUsage"))["usedSize"] / 2**20
        ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{step * 10 + 10:5d} {cuts[9]:11.1f} {cuts[18]:8.1f} {heap:9.1f} {ours:12.0f}")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:3]]
    asyncio.run(main(*(given + [5_000, 60][len(given) :])))
