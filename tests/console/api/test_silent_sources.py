"""Each source is silenced in turn: no answer has a number for what that source feeds."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import httpx2
import pytest
from msgspec import convert

from bus_kit import (
    card,
    eco,
    hardware,
    node_seen,
    plan_made,
    polled,
    power,
)
from console_kit import ConsoleHarness
from joulie_answers.schema import responses
from joulie_answers.text.energy import energy_text
from joulie_answers.text.nodes import node_text
from joulie_bus.events import AnyEvent

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., Any]
FACTS: Mapping[str, tuple[AnyEvent, ...]] = {
    "nodes": (node_seen("n1", cores=96, gpus=8), node_seen("n2", cores=48)),
    "hardware": (hardware("n1", watts=600, gpus=8), hardware("n2", watts=600)),
    "readings": (power("n1", 150), power("n2", 300)),
    "plans": (plan_made("p1"), eco("n2")),
    "cards": (card("g1", "n1", used_mb=40_000),),
    "facility": (polled(ambient_c=24.5, it_w=1000),),
}


class Fed(NamedTuple):
    """What a source feeds, by the path of the answer; `*` is each item of a list."""

    path: str
    fields: tuple[str, ...]


FEEDS: Mapping[str, tuple[Fed, ...]] = {
    "readings": (
        Fed("cluster", ("measured_w", "trend_w_per_min")),
        Fed("nodes", ("items.*.measured_w", "items.*.trend_w_per_min")),
        Fed("nodes/n1", ("node.measured_w", "samples")),
    ),
    "plans": (Fed("cluster", ("plan",)), Fed("status", ("preset",))),
    "cards": (Fed("gpus", ("items", "free_gpus")),),
    "facility": (
        Fed("cluster", ("it_w", "cooling_w", "ambient_c")),
        Fed("nodes/n1", ("ambient_c",)),
    ),
    "ledger": (
        Fed("energy", ("meter_kwh", "pods_kwh", "idle_kwh", "unknown_kwh", "saved", "items")),
        Fed("saved", ("today.meter_kwh", "month.meter_kwh", "today.saved_kwh", "report")),
        Fed("gpus", ("idle",)),
    ),
    "decisions": (Fed("decisions", ("items",)),),
}


def found_in(tree: Any, field: str) -> list[Any]:
    """The values of a field, of each item of a list."""
    name, _, rest = field.partition(".")
    below = tree if name == "*" else [tree[name]]
    return [value for each in below for value in (found_in(each, rest) if rest else [each])]


async def answer(harness: ConsoleHarness, path: str) -> Any:
    async with httpx2.AsyncClient(base_url=harness.url) as client:
        while (found := await client.get(f"/v1/{path}")).status_code == 404:
            await asyncio.sleep(0)  # the console reads the facts after the harness
        assert found.status_code == 200, found.text
        return found.json()


@pytest.mark.parametrize("silent", FEEDS)
async def test_nothing_is_a_number_that_a_silent_source_feeds(
    silent: str, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        for source, facts in FACTS.items():
            if source != silent:
                await harness.publish(*facts)
        wrong = [
            f"{fed.path}: {field} is {value!r}"
            for fed in FEEDS[silent]
            for field in fed.fields
            for value in found_in(await answer(harness, fed.path), field)
            if value not in (None, [], {})
        ]

    assert wrong == []


class Says(NamedTuple):
    """What the text of an answer says instead of a number."""

    path: str
    answer: type[responses.Answer]
    text: Callable[[Any], str]
    instead: str


TEXTS: Mapping[str, Says] = {
    "ledger": Says("energy", responses.Energy, energy_text, "it has folded no reading yet"),
    "readings": Says(
        "nodes/n1", responses.NodeDetail, node_text, "measured   never, trend not known"
    ),
}


@pytest.mark.parametrize("silent", TEXTS)
async def test_a_text_says_what_is_not_known(silent: str, new_harness: NewHarness) -> None:
    path, kind, text, instead = TEXTS[silent]
    async with new_harness() as harness:
        for source, facts in FACTS.items():
            if source != silent:
                await harness.publish(*facts)
        found = await answer(harness, path)

    assert instead in text(convert(found, kind))
