"""Messages decoded many at a time give what the codec gives for each alone."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus_kit import NOON
from joulie_audit.columns import layouts
from joulie_audit.columns.arrays import listed
from joulie_audit.columns.facts import fact_tables
from joulie_audit.columns.messages import Messages
from joulie_bus.events import TelemetrySampled, codec
from joulie_bus.events.bounds import LARGEST, MOST_MW, NAME
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

SUBJECTS = ["joulie.agent.c.n1", "joulie.agent.c.n2", "joulie.tel.c.n1", "joulie.tel.c.n2", "odd"]
COUNTS = st.sampled_from([0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32, MOST_MW, LARGEST])
SMALL = COUNTS.filter(lambda value: value <= MOST_MW)
PRODUCERS = st.sampled_from(["agent-n1:b1", "agent-n2:b1", "meter:b", "meter:", "é:b", ""])
DIGITS = st.sampled_from(["0", "1", "9", "12", "01", "x1", "1x", "", "9" * 18, "9" * 19, "²"])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Of a reading, some with a field that the codec refuses."""
    fields = {
        "node": draw(st.sampled_from(["n1", "n2", "é", "n\n"])),
        "power_mw": draw(SMALL),
        **draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "source": st.sampled_from(["static", "kepler", "other"]),
                    "provider": st.sampled_from(["agent", "", "x" * 257]),
                    "min_mw": st.one_of(st.none(), SMALL),
                    "mean_mw": st.one_of(SMALL, st.just(MOST_MW + 1)),
                    "counted_from": st.one_of(COUNTS, st.just(-1)),
                    "energy_uj": st.one_of(COUNTS, st.just(2**64 - 1)),
                    "late_ms": st.integers(0, 300),
                    "card_mw": st.sampled_from([{}, {"g": 1}]),
                    "later": st.just(1),
                },
            )
        ),
    }
    message = {
        "id": f"{draw(PRODUCERS)}:{draw(DIGITS)}",
        "type": draw(st.sampled_from(["telemetry.sampled"] * 9 + ["telemetry.other"])),
        "v": draw(st.sampled_from([1] * 9 + [2])),
        "key": draw(st.sampled_from([fields["node"], "n1", "n" * (NAME + 1)])),
        "ts": draw(st.sampled_from([NOON, 0, -1, 2**63])),
        "data": fields,
    }
    return msgspec.msgpack.encode(message)


def tables_of(messages: Sequence[Record]) -> tuple[dict[str, list[Any]], list[bool]]:
    made = fact_tables(Messages.of(list(enumerate(messages, 1))), ())
    readings = {name: list(listed(values)) for name, values in made.typed["readings"].items()}
    return readings, made.plain.tolist()


def require_same(messages: Sequence[Record]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "FEWEST", 1)
        together = tables_of(messages)
        patch.setattr(layouts, "FEWEST", len(messages) + 1)
        assert together == tables_of(messages)


def stored(data: Sequence[bytes], subjects: Sequence[str]) -> list[Record]:
    return [
        Record(Stream.TEL, at, NOON + at, body, subjects[at % len(subjects)])
        for at, body in enumerate(data, 1)
    ]


@given(st.lists(bodies(), max_size=12), st.lists(st.sampled_from(SUBJECTS), min_size=1))
def test_any_readings_have_the_rows_that_the_codec_gives(
    data: list[bytes], subjects: list[str]
) -> None:
    require_same(stored(data, subjects))


@given(
    st.lists(bodies(), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=20),
)
def test_one_changed_byte_anywhere_is_seen(
    data: list[bytes], changes: list[tuple[int, int]]
) -> None:
    changed = [with_byte(body, at, value) for body in data for at, value in changes]

    require_same(stored([*data, *changed], SUBJECTS))


def with_byte(body: bytes, at: int, value: int) -> bytes:
    at %= len(body)
    return body[:at] + bytes([value]) + body[at + 1 :]


def test_each_byte_of_a_reading_may_change() -> None:
    body = reading(7)
    changed = [with_byte(body, at, value) for at in range(len(body)) for value in range(256)]

    require_same(stored([body, *changed], SUBJECTS[:1]))


def test_a_number_with_a_zero_before_it_is_not_plain() -> None:
    messages = stored([reading(7, f"{number:02d}") for number in range(50)], SUBJECTS[:1])

    require_same(messages)
    assert tables_of(messages)[1] == [False] * 10 + [True] * 40


def test_a_text_as_long_in_bytes_and_longer_in_characters_is_refused() -> None:
    names = ["é" + "n" * (NAME - 1), *["n" * (NAME + 1)] * 40]

    require_same(stored([reading(7, node=name) for name in names], SUBJECTS[:1]))


def reading(number: int, digits: str = "", node: str = "n1") -> bytes:
    fact = TelemetrySampled(
        node="n1", power_mw=300_000 + number, provider="agent", counted_from=NOON, energy_uj=number
    )
    envelope = codec.Envelope(
        id=f"agent-n1:b1:{digits or number}",
        type=fact.TYPE,
        v=fact.VERSION,
        key=fact.node,
        ts=NOON,
        data=msgspec.Raw(msgspec.msgpack.encode(msgspec.structs.replace(fact, node=node))),
    )
    return codec.seal(envelope)


def test_readings_of_an_agent_are_decoded_together() -> None:
    """Else all of them would be decoded one by one, which only takes longer."""
    data = [reading(number) for number in range(128, 1128)]

    found = list(layouts.decoded_in_layouts(data, np.arange(len(data))))

    assert sum(len(each.rows) for each in found) == len(data)
    assert len(found) < 12
