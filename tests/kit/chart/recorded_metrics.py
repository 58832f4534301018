"""The metrics of an hour of a real `joulie demo` at rest, as far as the alert rules read them.

    PYTHONPATH=tests/kit/chart:tests/kit/process .venv/bin/python -m recorded_metrics DIRECTORY

records them anew: nodes report their power, a pod arrives every two minutes, and no client reads
the console.
"""

import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import yaml  # type: ignore[import-untyped]

from joulie_bus.runtime.ports import free_port
from joulie_demo import demo

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/chart/files/alerts.yaml"
FILE = ROOT / "tests/data/idle-hour.json.gz"
STEP_S = 1
SECONDS = 3600
SETTLES_S = 300  # after the start
NODES = "60"
AGE_STEP_S = 0.05  # of what is kept of an age
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)$")
GROWS = ("_total", "_bucket", "_position")  # also beyond the hour
Value = float | None


class Series(NamedTuple):
    """One value a second; None where the metric was absent."""

    name: str
    labels: str  # with the instance
    values: list[Value]
    growth: float = 0.0  # in an hour, of what is counted

    @property
    def key(self) -> str:
        return f"{self.name}{{{self.labels}}}"

    def at(self, second: int) -> Value:
        """Extended beyond the hour: what is counted goes on growing, all else is repeated."""
        times, within = divmod(second, len(self.values))
        value = self.values[within]
        return None if value is None else value + times * self.growth


def metrics_of_rules(rules: Path = RULES) -> set[str]:
    groups = yaml.safe_load(rules.read_text())["groups"]
    found = {name for group in groups for rule in group["rules"] for name in names_in(rule["expr"])}
    return {name for name in found if name.startswith("joulie_")}


def names_in(expression: str) -> list[str]:
    return re.findall(r"[a-z]\w*_\w+", expression)


def record(data: Path) -> dict[str, list[Value]]:
    words = ("--nodes", NODES, "--speed", "1", "--pods-per-second", "0.01")
    with demo(data, *words, PRESET="savings") as running:
        running.wait_until(lambda: bool(running.data.running()), 120)
        with _archiver(data) as address:
            time.sleep(SETTLES_S)
            ran = running.data.running()
            assert ran is not None
            found = _each_second(ran.metrics | {"archive": address})
        running.end()
    return found


@contextlib.contextmanager
def _archiver(data: Path) -> Generator[str]:
    """A demo has none."""
    address = f"127.0.0.1:{free_port()}"
    words = ("archive", "--dir", str(data.parent / "archive"), "--every", "1h", "--trim")
    archiver = subprocess.Popen(
        [sys.executable, "-m", "joulie_cli.main", *words, "--data", str(data)],
        env={**os.environ, "METRICS_ADDR": address},
    )
    try:
        yield address
    finally:
        archiver.terminate()
        archiver.wait()


def _each_second(addresses: Mapping[str, str]) -> dict[str, list[Value]]:
    wanted, found = metrics_of_rules(), dict[str, list[Value]]()
    began = time.monotonic()
    with ThreadPoolExecutor(len(addresses)) as threads:
        for second in range(SECONDS):
            time.sleep(max(0.0, began + second * STEP_S - time.monotonic()))
            parts = [(name, address, wanted) for name, address in addresses.items()]
            scraped = threads.map(_scraped, *zip(*parts, strict=True))
            now = dict(each for part in scraped for each in part)
            for key in found.keys() | now.keys():
                found.setdefault(key, [None] * second).append(now.get(key))
    return found


def _scraped(part: str, address: str, wanted: set[str]) -> list[tuple[str, float]]:
    """Nothing if it does not answer in time."""
    lines, found = list[str](), list[tuple[str, float]]()
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer,
    ):
        lines = answer.read().decode().splitlines()
    for line in lines:
        if (sample := SAMPLE.match(line)) is not None and sample[1] in wanted:
            labels = ",".join(filter(None, (sample[2], f'instance="{part}"')))
            found.append((f"{sample[1]}{{{labels}}}", _rounded(sample[1], float(sample[3]))))
    return found


def _rounded(name: str, value: float) -> float:
    is_age = name.endswith("_seconds")
    return round(round(value / AGE_STEP_S) * AGE_STEP_S, 2) if is_age else value


def save(found: Mapping[str, list[Value]], to: Path = FILE) -> None:
    """Runs of equal values are kept once."""
    packed = {key: list(map(list, _runs(values))) for key, values in sorted(found.items())}
    text = json.dumps(packed, separators=(",", ":"))
    to.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _runs(values: list[Value]) -> Iterator[tuple[Value, int]]:
    began = 0
    for at, value in enumerate(values):
        if at + 1 == len(values) or values[at + 1] != value:
            yield value, at + 1 - began
            began = at + 1


def idle_hour(file: Path = FILE) -> list[Series]:
    packed = json.loads(gzip.decompress(file.read_bytes()))
    return [_series(key, runs) for key, runs in packed.items()]


def _series(key: str, runs: list[tuple[Value, int]]) -> Series:
    (name, labels), values = _split(key), [value for value, times in runs for _ in range(times)]
    known = [value for value in values if value is not None]
    return Series(name, labels, values, known[-1] - known[0] if name.endswith(GROWS) else 0.0)


def _split(key: str) -> tuple[str, str]:
    name, _, labels = key.partition("{")
    return name, labels.removesuffix("}")


if __name__ == "__main__":
    os.nice(-15)  # other programs of this machine are not part of what is recorded
    save(record(Path(sys.argv[1])))
