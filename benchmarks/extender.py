"""Measures the extender's answers as kube-scheduler sees them, beside an echo and a bare extender.

    make bench NAME=extender [ARGS="--calls 1500 --nodes 5000"]

The extender is the real one: broker, projector and database run beside it, and every answer is
spooled and shipped. The client is another process with one keep-alive connection and prepared
bodies. For each pod it calls filter with a list of its own, and prioritize with the nodes that
filter passed. "500 names" are in the order in which kube-scheduler lists them on two cores. All
other lists are random, which is the worst case: no list helps with the next one.
Client and extender each have a core of their own. The kernel sometimes puts both on one core; then
an answer waits for the work after the previous one, and the client waits too. 5,000 readings a
second use both cores. The bare extender, which does not process readings, shows their share of a
99th percentile. Absolute times depend on the machine; the ratios to `bare` are comparable.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
from called_extender import (
    Caller,
    args,
    await_port,
    cpu_s,
    name_of,
    ours,
    pod,
)
from extenders_beside import HERE
from report import Table

from joulie_bus.runtime.ports import free_port

SMALLEST = {"nodes": 500, "calls": 300, "few": 0, "names": [500], "readings": 500}
FAT = 9_000  # bytes of a whole node
WARM = 60  # calls that are not counted
SAMPLE = 500  # nodes that kube-scheduler sends in a cluster of 5,000
SAMPLED, ALL = f"{SAMPLE} names", "5000 at random"
CORES = sorted(os.sched_getaffinity(0))  # read before any thread is pinned


class Figures(NamedTuple):
    p50_ms: float
    p99_ms: float
    per_s: float
    cpu_ms: float


def whole_node(number: int) -> dict[str, Any]:
    name = name_of(number)
    images = [{"names": [f"registry/{n}@sha256:{'0' * 64}"], "sizeBytes": n} for n in range(60)]
    labels = {f"feature.node.kubernetes.io/cpu-{n}": "true" for n in range(40)}
    lean = len(json.dumps([name, labels, images]))
    metadata = {"name": name, "labels": labels, "annotations": {"fill": "x" * (FAT - lean)}}
    return {"metadata": metadata, "spec": {}, "status": {"images": images}}


class Question(NamedTuple):
    """Both calls for one pod. The body of prioritize is made from the reply of filter."""

    filter: bytes
    prioritize: Callable[[bytes], bytes]


def drawn(size: int, nodes: int) -> Iterator[list[int]]:
    draw = random.Random(size)
    while True:
        yield draw.sample(range(nodes), size)


def walked(size: int, nodes: int) -> Iterator[list[int]]:
    """Lists as recorded from kube-scheduler 1.34.1 on two cores, with 5,000 nodes that all have
    room: for each pod the next nodes of a round. Two workers take chunks of `sqrt(nodes)`
    consecutive nodes (parallelism.go). In 63 of 100 lists one worker did all; in 18 it was delayed
    once, and the other one continued; in 10 they alternated at about every other node.
    """
    draw, start = random.Random(size), 0
    while True:
        (turns,) = draw.choices([0.0, 1 / size, 0.008, 0.028, 0.8], [63, 18, 6, 3, 10])
        takes = set(draw.sample(range(size), round(turns * size)))
        yield [(start + at) % nodes for at in _two_workers(size, math.isqrt(nodes), takes)]
        start += size


def _two_workers(size: int, chunk: int, takes: set[int]) -> Iterator[int]:
    """Places in the round, in the order of their checks; at `takes` the other worker takes over."""
    chunks = (iter(range(first, first + chunk)) for first in itertools.count(0, chunk))
    works, waits = iter(range(0)), iter(range(0))
    for number in range(size):
        if number in takes:
            works, waits = waits, works
        at = next(works, None)
        if at is None:
            works = next(chunks)
            at = next(works)
        yield at


def by_names(lists: Iterator[list[int]], count: int) -> Iterator[Question]:
    for number, listed in enumerate(itertools.islice(lists, count)):
        names = list(map(name_of, listed))
        asking = pod(number)

        def then(reply: bytes, asking: dict[str, Any] = asking) -> bytes:
            return args(asking, None, msgspec.json.decode(reply)["NodeNames"])

        yield Question(args(asking, None, names), then)


def by_nodes(size: int, count: int) -> Iterator[Question]:
    items = [whole_node(number) for number in range(size)]
    for number in range(count):
        asking = {**pod(number), "metadata": {"name": "p", "uid": str(number)}}
        body = args(asking, {"metadata": {}, "items": items}, None)
        yield Question(body, lambda _, body=body: body)  # type: ignore[misc]


def keep_apart(asked: int) -> None:
    """Pins this thread to the first core, and all threads of the called process to the last."""
    os.sched_setaffinity(0, CORES[:1])
    for thread in Path(f"/proc/{asked}/task").iterdir():
        os.sched_setaffinity(int(thread.name), CORES[-1:])


def measure(port: int, pid: int, questions: Iterator[Question]) -> dict[str, Figures]:
    keep_apart(pid)
    caller = Caller(port)
    took: dict[str, list[float]] = {"filter": [], "prioritize": []}
    before = 0.0
    for at, question in enumerate(questions):
        if at == WARM or at == 0:
            took = {"filter": [], "prioritize": []}
            before = cpu_s(pid)
        started = time.perf_counter()
        reply = caller.call("filter", question.filter)
        took["filter"].append(time.perf_counter() - started)
        body = question.prioritize(reply)
        started = time.perf_counter()
        caller.call("prioritize", body)
        took["prioritize"].append(time.perf_counter() - started)
    caller.close()
    both = sum(map(len, took.values()))
    cpu = (cpu_s(pid) - before) / both * 1000
    return {verb: figures(times, cpu) for verb, times in took.items()}


def figures(times: list[float], cpu_ms: float) -> Figures:
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return Figures(median(ordered) * 1000, p99 * 1000, len(times) / sum(times), cpu_ms)


def floor_ms(question: Question, size: int) -> float:
    """The time to decode the request and encode a reply, without any other work."""
    reply = [{"Host": name_of(number), "Score": 41} for number in range(size)]
    times = []
    for _ in range(30):
        started = time.perf_counter()
        msgspec.json.decode(question.filter)
        msgspec.json.encode(reply)
        times.append(time.perf_counter() - started)
    return median(times) * 1000


@contextlib.contextmanager
def peer(kind: str, nodes: int) -> Generator[tuple[int, int], None, None]:
    port = free_port()
    command = [sys.executable, str(HERE / "peers.py"), kind, str(port), str(nodes)]
    process = subprocess.Popen(command)
    try:
        await_port(port)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def telemetry(data: Path, nodes: int, per_s: int) -> Generator[None, None, None]:
    """Readings of all nodes in turn, by another process."""
    command = [sys.executable, str(HERE / "readings.py"), str(data), str(nodes), str(per_s)]
    process = subprocess.Popen(command)
    try:
        time.sleep(3)
        assert process.poll() is None
        yield
    finally:
        process.kill()
        process.wait()


async def of_peer(kind: str, nodes: int, questions: Iterator[Question]) -> dict[str, Figures]:
    with peer(kind, nodes) as (port, pid):
        return await asyncio.to_thread(measure, port, pid, questions)


Asking = tuple[str, Callable[[], Iterator[Question]]]


def askings(nodes: int, calls: int, few: int, names: list[int]) -> list[Asking]:
    made: list[Asking] = []
    for size in names:
        if size == SAMPLE <= nodes:
            made.append((SAMPLED, lambda: by_names(walked(SAMPLE, nodes), calls + WARM)))
        if size <= nodes:
            made.append(
                (f"{size} at random", lambda size=size: by_names(drawn(size, nodes), calls + WARM))  # type: ignore[misc]
            )
    made += [
        (f"{size} nodes", lambda size=size: by_nodes(size, few))  # type: ignore[misc]
        for size in (500, 5000)
        if size <= nodes and few
    ]
    return made


async def compare(args: argparse.Namespace) -> list[Table]:
    tables = list[Table]()
    nodes = args.nodes
    with tempfile.TemporaryDirectory() as place:
        async with ours(nodes, Path(place)) as (port, pid, data):
            for asking, questions in askings(nodes, args.calls, args.few, args.names):
                found = {kind: await of_peer(kind, nodes, questions()) for kind in (BARE, ECHO)}
                found[OURS] = await asyncio.to_thread(measure, port, pid, questions())
                if asking in (SAMPLED, ALL):
                    storm = f"{args.readings} readings/s"
                    with telemetry(data, nodes, args.readings):
                        busy = await asyncio.to_thread(measure, port, pid, questions())
                        found[f"{OURS}, {storm}"] = busy
                        found[f"{BARE}, {storm}"] = await of_peer(BARE, nodes, questions())
                tables.append(Table(title=asking, rows=rows(found)))
                print(f"{asking}: measured", flush=True)
                size = int(asking.split()[0])
                floor = {"decode and encode only, ms": floor_ms(next(questions()), size)}
                tables.append(Table.of(f"{asking}, floor", floor))
            memory = Table.of("memory", {"of the extender, MiB": resident_mib(pid)})
    return [*tables, memory]


BARE, ECHO, OURS = "bare", "echo", "joulie"


def rows(found: Mapping[str, dict[str, Figures]]) -> dict[str, dict[str, float]]:
    return {
        f"{verb}, {server}": {
            "p50 ms": each.p50_ms,
            "p99 ms": each.p99_ms,
            "calls per second": each.per_s,
            "CPU ms": each.cpu_ms,
            "p50 of the bare one's": each.p50_ms / found[BARE][verb].p50_ms,
        }
        for server, verbs in found.items()
        for verb, each in verbs.items()
    }


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--few", type=int, default=12, help="calls with whole nodes; 0 for none")
    parser.add_argument("--readings", type=int, default=5000, help="a second, beside some calls")
    parser.add_argument("--names", type=int, nargs="*", default=[100, 500, 5000])


def measured(args: argparse.Namespace) -> list[Table]:
    return asyncio.run(compare(args))
