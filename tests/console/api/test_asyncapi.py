"""The AsyncAPI document: every message is in it, as it is sent."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import jsonschema_rs  # schemathesis brings it
import msgspec
import pytest

from bus_kit import one_of_each, producer
from console_kit import ConsoleHarness, open_stream
from joulie_answers.schema.responses import STREAM_VALUES
from joulie_bus.events import EVENT_TYPES, AnyEvent, CapOrder
from joulie_bus.events.codec import open_envelope
from joulie_bus.streams.channels import CHANNELS
from joulie_console.schema.asyncapi import document
from joulie_projections.chain.head import Head
from joulie_projections.chain.signed import Handover, Retirement

pytestmark = pytest.mark.anyio
DOCUMENT: dict[str, Any] = json.loads(json.dumps(document("1.0.0")))
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]
NOTE = f"joulie/x\n1\n{'A' * 43}=\nentry AA==\ntime 1\nkey k\n\n\u2014 joulie/x AAAAAAAA\n"
HEAD = Head(note=NOTE)


def references(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        yield from [tree["$ref"]] if "$ref" in tree else []
        for part in tree.values():
            yield from references(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from references(part)


def found_at(reference: str) -> Any:
    tree: Any = DOCUMENT
    for part in reference.removeprefix("#/").split("/"):
        tree = tree[part]
    return tree


def refuse_unlike(message: str, value: object) -> None:
    """Raises if the value is not as the payload of the message says."""
    schema = {**MESSAGES[message]["payload"], "components": DOCUMENT["components"]}
    jsonschema_rs.Draft7Validator(schema).validate(value)


async def test_the_console_serves_it_without_a_token(browser: httpx2.AsyncClient) -> None:
    answer = await browser.get("/asyncapi.json")

    assert answer.json() == DOCUMENT
    assert answer.headers["content-type"] == "application/json"


def test_it_has_the_fields_that_asyncapi_requires() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= DOCUMENT["info"].keys()
    assert {each["action"] for each in DOCUMENT["operations"].values()} == {"receive"}
    assert all({"host", "protocol"} <= each.keys() for each in DOCUMENT["servers"].values())


def test_every_reference_leads_somewhere() -> None:
    named = set(references(DOCUMENT))

    assert len(named) > 80
    assert [reference for reference in named if not found_at(reference)] == []


def test_every_subject_is_a_channel_with_its_events() -> None:
    channels = {
        each["address"]: {ref.rpartition("/")[2] for ref in references(each["messages"])}
        for each in DOCUMENT["channels"].values()
    }

    assert channels.keys() == {*(channel.address for channel in CHANNELS), "/v1/stream"}
    assert all(channels.values())
    for channel in CHANNELS:
        assert {cls.__name__ for cls in channel.events} <= channels[channel.address]


def test_every_event_is_a_message_of_a_channel() -> None:
    used = {ref for each in DOCUMENT["channels"].values() for ref in references(each["messages"])}

    assert {cls.__name__ for cls in EVENT_TYPES} <= MESSAGES.keys()
    assert used == {f"#/components/messages/{name}" for name in MESSAGES}
    assert [MESSAGES[cls.__name__]["name"] for cls in EVENT_TYPES] == [e.TYPE for e in EVENT_TYPES]


@pytest.mark.parametrize("event", [pytest.param(each, id=each.TYPE) for each in one_of_each()])
def test_an_event_as_it_is_sent_fits_its_schema(event: AnyEvent) -> None:
    envelope = open_envelope(producer().stamp(event).data, "here")
    sent = msgspec.to_builtins(envelope, builtin_types=(msgspec.Raw,))
    sent["data"] = json.loads(msgspec.json.encode(event))

    refuse_unlike(type(event).__name__, sent)
    for wrong in ({**sent, "type": "other"}, {**sent, "data": 5}, {"data": sent["data"]}):
        with pytest.raises(jsonschema_rs.ValidationError):
            refuse_unlike(type(event).__name__, wrong)


@pytest.mark.parametrize(
    "value",
    [
        CapOrder(node="n1", plan="p1", view=1),
        HEAD,
        Handover(pos=1, hash=b"h", signed_at=1, old=b"o", new=b"n"),
        Retirement(key_id="k", since=1, pos=1, signed_at=1, by="k2"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_messages_fit_their_schema(value: msgspec.Struct) -> None:
    refuse_unlike(type(value).__name__, json.loads(msgspec.json.encode(value)))


async def test_events_of_the_stream_fit_their_schema(scenario: ConsoleHarness) -> None:
    seen = set[str]()
    topics = "decisions,plans,transitions,cluster"
    async with open_stream(scenario.url, "0.0", topics=topics) as reader:
        while seen != {"decision", "plan", "transition", "cluster"}:
            event = await reader.next()
            refuse_unlike(f"stream.{event.event}", event.data)
            seen.add(event.event)

    assert seen < STREAM_VALUES.keys()
