import base64
import functools
import json
import math
import sys
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import NOON, one_of_each, producer
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    EVENT_TYPES,
    AnyEvent,
    NodeGone,
    PlanMade,
    PrioritizeDecided,
    SettingsDeclared,
    TelemetrySampled,
    codec,
)
from joulie_bus.events.codec import Envelope, Origin

HERE = "JOULIE_OBS 7"
EXAMPLES = [pytest.param(event, id=event.TYPE) for event in one_of_each()]
PRIORITIZED = next(event for event in one_of_each() if isinstance(event, PrioritizeDecided))


class Released(msgspec.Struct):
    """One line of the corpus. Lines are added, never edited: with every new type and version, and
    with every field that an event gets later.
    """

    type: str
    v: int
    bytes: str
    json: dict[str, Any]

    @property
    def envelope(self) -> Envelope:
        return codec.open_envelope(base64.b64decode(self.bytes), "the corpus")


CORPUS = [
    msgspec.json.decode(line, type=Released)
    for line in (Path(__file__).parents[1] / "released_events.jsonl").read_text().splitlines()
]


def envelope(data: object, type: str = "node.gone", v: int = 1) -> Envelope:
    raw = msgspec.Raw(msgspec.msgpack.encode(data))
    return Envelope(id="tester:b1:1", type=type, v=v, key="n1", ts=NOON, data=raw)


@pytest.mark.parametrize("event", EXAMPLES)
def test_an_event_comes_back_as_it_was(event: AnyEvent) -> None:
    opened = codec.open_envelope(producer().stamp(event).data, HERE)

    assert codec.read(opened, HERE) == event


@pytest.mark.parametrize("event", EXAMPLES)
def test_an_envelope_can_be_read_without_opening_the_event(event: AnyEvent) -> None:
    opened = codec.open_envelope(producer().stamp(event, cause="a:b:1", corr="c").data, HERE)

    assert (opened.id, opened.type, opened.v, opened.key, opened.ts, opened.cause, opened.corr) == (
        ("tester:b1:1", event.TYPE, event.VERSION, event.key, NOON, "a:b:1", "c")
    )


@pytest.mark.parametrize(
    ("sealed", "why"),
    [
        pytest.param(envelope({}, type="node.lost"), "has no event type 'node.lost'", id="type"),
        pytest.param(
            envelope({}, v=2),
            "this version of Joulie reads no version 2 of node.gone",
            id="version",
        ),
        pytest.param(
            envelope({}, v=0), "this version of Joulie reads no version 0 of node.gone", id="zero"
        ),
        pytest.param(envelope({}), "missing required field `node`", id="missing"),
        pytest.param(envelope({"node": 3}), "got `int` - at `$.node`", id="kind"),
        pytest.param(envelope(["n1"]), "Expected `object`, got `array`", id="shape"),
        pytest.param(
            envelope({"node": "n1", "power_mw": -1}, "telemetry.sampled"),
            "Expected `int` >= 0 - at `$.power_mw`",
            id="range",
        ),
        pytest.param(
            envelope({"node": "n1", "pod": {"uid": 1}}, "pod.bound"),
            "got `int` - at `$.pod.uid`",
            id="deep",
        ),
    ],
)
def test_what_is_not_an_event_is_named_with_its_place(sealed: Envelope, why: str) -> None:
    with pytest.raises(Undecodable) as caught:
        codec.read(sealed, HERE)

    assert why in caught.value.why
    assert str(caught.value).startswith(f"{HERE} is not an event we know: ")


def test_a_reading_is_opened_at_once_to_what_two_steps_give() -> None:
    sent = producer().stamp(TelemetrySampled(node="n1", power_mw=5), cause="a:b:1", corr="c").data

    opened, sample = codec.open_envelope(sent, HERE), codec.open_sample(sent)

    assert sample is not None
    assert sample.data == codec.read(opened, HERE)
    parts = [name for name in Envelope.__struct_fields__ if name not in ("prev", "data")]
    assert opened.prev == b"", "only decisions are promised"
    assert [getattr(sample, name) for name in parts] == [getattr(opened, name) for name in parts]


@pytest.mark.parametrize(
    "sealed",
    [
        pytest.param(envelope({"node": "n", "power_mw": -1}, "telemetry.sampled"), id="bad"),
        pytest.param(envelope({"node": "n", "power_mw": 1}, "telemetry.sampled", v=2), id="newer"),
        pytest.param(envelope({"node": "n", "power_mw": 1}, "node.gone"), id="something else"),
    ],
)
def test_what_is_no_reading_of_today_is_left_to_the_two_steps(sealed: Envelope) -> None:
    assert codec.open_sample(codec.seal(sealed)) is None


def test_what_is_opened_at_once_is_the_reading_of_today() -> None:
    said = typing.get_type_hints(codec.Sample)

    assert typing.get_args(said["type"]) == (TelemetrySampled.TYPE,)
    assert typing.get_args(said["v"]) == (TelemetrySampled.VERSION,)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="no MessagePack"),
        pytest.param(b"\x93\x01\x02\x03", id="no envelope"),
        pytest.param(b"\x81\xa2id\xa1\xff", id="no UTF-8"),
        pytest.param(b"\x81\xa1x" + b"\x91" * 100_000, id="endlessly nested"),
        pytest.param(producer().stamp(NodeGone(node="n1")).data[:-1], id="cut short"),
        pytest.param(producer().stamp(NodeGone(node="n1")).data + b"\x00", id="too long"),
    ],
)
def test_garbage_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(Undecodable, match=f"^{HERE} is not an event"):
        codec.open_envelope(data, HERE)


@given(st.sampled_from(one_of_each()), st.data())
@settings(deadline=None)
def test_a_damaged_message_is_read_or_refused_and_nothing_else(
    event: AnyEvent, draw: st.DataObject
) -> None:
    data = bytearray(producer().stamp(event).data)
    data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))

    try:
        found = codec.decoded(bytes(data), HERE)
    except Undecodable:
        return
    assert isinstance(found, EVENT_TYPES)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused_wherever_it_hides(value: float) -> None:
    plan = PlanMade(
        plan="p", policy="x", view=0, nodes=0, performance=0, changes=0, inputs={"a": value}
    )
    declared = SettingsDeclared(settings="s", code="1", values={"a": value})
    shallow = msgspec.structs.replace(PRIORITIZED, perf_pressure=value)
    terms = msgspec.structs.replace(PRIORITIZED.top[0], trend=value)
    deep = msgspec.structs.replace(PRIORITIZED, top=[terms])

    for event in (plan, declared, shallow, deep):
        with pytest.raises(ValueError, match="is not a number that an event may hold"):
            codec.encode(event)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (("inputs", "share"), "plan.made"),
        (("values", "neutral"), "decision.settings-declared"),
        (("perf_pressure",), "decision.prioritize"),
        (("top", 0, "trend"), "decision.prioritize"),
    ],
    ids=lambda part: ".".join(map(str, part)) if isinstance(part, tuple) else part,
)
def test_a_number_that_is_none_is_refused_when_it_was_stored_all_the_same(
    place: tuple[str | int, ...], kind: str, value: float
) -> None:
    [event] = [event for event in one_of_each() if kind == event.TYPE]
    data: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(event))
    inner = functools.reduce(lambda held, part: held[part], place[:-1], data)
    inner[place[-1]] = value

    with pytest.raises(Undecodable, match="Expected `float`"):
        codec.read(envelope(data, kind), HERE)


def test_every_number_with_a_fraction_is_held_to_be_finite() -> None:
    schema = json.dumps(msgspec.json.schema_components(EVENT_TYPES)[1])

    assert schema.count('"number"') == schema.count(f'"maximum": {sys.float_info.max}') > 0


@pytest.mark.parametrize(
    ("version", "data"), [(1, {"host": "n1"}), (2, {"name": "n1"}), (3, {"node": "n1"})]
)
def test_an_old_event_is_brought_up_to_date_step_by_step(
    version: int, data: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeGone, "VERSION", 3)
    monkeypatch.setitem(codec.UPCASTERS, ("node.gone", 1), lambda old: {"name": old["host"]})
    monkeypatch.setitem(codec.UPCASTERS, ("node.gone", 2), lambda old: {"node": old["name"]})

    assert codec.read(envelope(data, v=version), HERE) == NodeGone(node="n1")


def test_an_old_event_without_an_upcaster_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NodeGone, "VERSION", 3)
    monkeypatch.setitem(codec.UPCASTERS, ("node.gone", 1), lambda old: old)

    with pytest.raises(Undecodable, match="this version of Joulie reads no version 2"):
        codec.read(envelope({"node": "n1"}), HERE)


@pytest.mark.parametrize(
    ("event_id", "origin"),
    [
        ("operator:4f2a:17", Origin("operator", "4f2a", 17)),
        ("extender-0:b:0", Origin("extender-0", "b", 0)),
    ],
)
def test_an_id_names_producer_boot_and_number(event_id: str, origin: Origin) -> None:
    assert codec.origin_of(event_id, HERE) == origin


@pytest.mark.parametrize(
    "event_id",
    [
        "",
        "a",
        "a:b",
        "a:b:",
        ":b:1",
        "a::1",
        "a:b:x",
        "a:b:-1",
        "a:b:1:2",
        "a:b:²",
        "a:b:" + "9" * 30,
    ],
)
def test_an_id_of_another_shape_is_refused(event_id: str) -> None:
    with pytest.raises(Undecodable, match="is not producer:boot:seq"):
        codec.origin_of(event_id, HERE)


def test_people_read_an_envelope_as_json_with_its_event_opened() -> None:
    sealed = producer().stamp(NodeGone(node="n1"), cause="operator:b1:3")
    shown = codec.to_json(codec.open_envelope(sealed.data, HERE))

    assert json.loads(shown) == {
        "id": "tester:b1:1",
        "type": "node.gone",
        "v": 1,
        "key": "n1",
        "ts": NOON,
        "cause": "operator:b1:3",
        "data": {"node": "n1"},
    }


@pytest.mark.parametrize("line", CORPUS, ids=lambda line: f"{line.type} v{line.v}")
def test_a_released_event_is_read_for_ever(line: Released) -> None:
    event = codec.read(line.envelope, "the corpus")

    assert (event.TYPE, line.envelope.v) == (line.type, line.v)
    assert json.loads(codec.to_json(line.envelope)) == line.json


@pytest.mark.parametrize("line", CORPUS, ids=lambda line: f"{line.type} v{line.v}")
def test_a_released_event_is_still_written_as_it_was(line: Released) -> None:
    event = codec.read(line.envelope, "the corpus")

    if line.v == event.VERSION:
        assert codec.encode(event) == bytes(line.envelope.data)


def test_the_corpus_holds_every_event_of_today_and_each_shape_once() -> None:
    released = {(line.type, line.v) for line in CORPUS}
    shapes = [(line.type, line.v, frozenset(line.json["data"])) for line in CORPUS]

    assert {(cls.TYPE, cls.VERSION) for cls in EVENT_TYPES} - released == set()
    assert len(shapes) == len(set(shapes))
