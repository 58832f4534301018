"""One order for all: every message takes a position, whatever becomes of it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from joulie_bus.events import Fact, NodeGone, SettingsDeclared, codec
from joulie_bus.events.bounds import EVENT_ID
from joulie_bus.events.codec import Envelope, seal
from joulie_bus.streams.records import Record, digest_of
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_bus.testing import (
    ANY_FACTS,
    any_fact,
    bound,
    claim,
    eco,
    node_seen,
    noon,
    power,
    producer,
    records,
)
from joulie_projections.fold import sequence as sequence_module
from joulie_projections.fold.commit import FirstBinding, Input, Inputs
from joulie_projections.fold.manifest import Range, chained, merkle_root
from joulie_projections.fold.quarantine_quota import BODIES_PER_SUBJECT, all_positions
from joulie_projections.fold.registry import evolve
from joulie_projections.fold.sequence import (
    FoldCursor,
    SequencedBatch,
    fold,
    poison_of,
    ranges_of,
    revert,
    sequence,
)
from joulie_projections.pods.load import Load
from joulie_projections.state.rows import changed_rows, empty_digests, state_digest, tables_of
from joulie_projections.state.state import ClusterState, Life, ProducerState
from joulie_projections.state.state_changes import Draft

FACTS = st.lists(st.integers(0, ANY_FACTS - 1).map(any_fact), min_size=1, max_size=30)
START = FoldCursor(0, {}, empty_digests(), b"")
CREATED = dict.fromkeys(Stream, "then")


def merged(*facts: Fact) -> list[Record]:
    by_stream = sorted(records(*facts), key=lambda record: MERGE_ORDER.index(record.stream))
    return list(by_stream)


def sequenced(
    told: list[Record], cursor: FoldCursor = START, cluster_state: ClusterState | None = None
) -> SequencedBatch:
    return sequence(cluster_state or ClusterState(), cursor, told, CREATED, noon())


def the_rest_counts(told: list[Record], done: SequencedBatch) -> list[int]:
    """What was set aside changes nothing, and all else counts; the positions set aside."""
    positions = [poison.position for poison in done.commit.poison]
    draft = Draft(ClusterState())
    fold(draft, told, 0, frozenset(positions))
    assert changed_rows(draft.changed(), empty_digests()) == (done.rows, done.commit.digests)
    return positions


def garbage(data: bytes, stream: Stream = Stream.OBS, number: int = 1) -> Record:
    return Record(stream, number, noon(), data)


def wire(event_id: str = "x:y:1", kind: str = "node.gone", **data: object) -> bytes:
    raw = msgspec.Raw(msgspec.msgpack.encode(data or {"node": "n"}))
    return seal(Envelope(id=event_id, type=kind, v=1, key="n", ts=0, data=raw))


def test_a_batch_names_its_positions_its_messages_and_its_place_in_the_chain() -> None:
    told = merged(power("a", 1), eco("a"), power("a", 2), node_seen("a"))
    before = FoldCursor(41, {Stream.DEC: Input("d", 7)}, empty_digests(), b"head")

    manifest = sequenced(told, before).commit.manifest

    ranges = (Range(Stream.PLAN, 1, 1), Range(Stream.OBS, 1, 1), Range(Stream.TEL, 1, 2))
    assert (manifest.p_from, manifest.p_to, manifest.ranges) == (42, 45, ranges)
    assert manifest.merkle_root == merkle_root([record.data for record in told])
    assert manifest.prev == b"head"
    assert manifest.head == chained(
        b"head", (42, 45), ranges, manifest.merkle_root, manifest.state_digest
    )


def test_a_batch_says_how_far_each_stream_was_read_and_keeps_what_it_did_not_read() -> None:
    before = START._replace(inputs={Stream.PLAN: Input("p", 3), Stream.TEL: Input("t", 1)})

    told = merged(power("a", 1), power("a", 2), node_seen("a"))
    done = sequenced(told, before)

    last = {record.stream: digest_of(record) for record in told}
    assert done.commit.inputs == {
        Stream.PLAN: Input("p", 3),
        Stream.TEL: Input("then", 2, last[Stream.TEL]),
        Stream.OBS: Input("then", 1, last[Stream.OBS]),
    }


def test_the_cluster_state_knows_the_newest_message_about_claims_and_its_digest() -> None:
    cluster_state, told = (
        ClusterState(),
        merged(claim("g1", "p1"), claim("g2", "p1"), node_seen("a")),
    )
    sequenced(told, cluster_state=cluster_state).draft.commit()

    newest = max(told, key=lambda each: (each.stream is Stream.CLAIM, each.sequence))
    assert cluster_state.claims == (2, digest_of(newest))


def test_an_input_of_an_older_database_has_no_digest() -> None:
    old = msgspec.msgpack.encode({Stream.TEL: ("then", 7)})

    assert msgspec.msgpack.decode(old, type=Inputs) == {Stream.TEL: Input("then", 7, b"")}


@given(facts=FACTS, batch=st.integers(1, 10))
@settings(deadline=None, max_examples=60)
def test_positions_are_contiguous_and_ranges_name_every_message_once(
    facts: list[Fact], batch: int
) -> None:
    cluster_state, cursor, told = ClusterState(), START, records(*facts)
    named: list[tuple[Stream, int]] = []
    for first in range(0, len(told), batch):
        done = sequenced(told[first : first + batch], cursor, cluster_state)
        done.draft.commit()

        manifest = done.commit.manifest
        assert manifest.p_from == cursor.position + 1
        assert (manifest.prev, manifest.state_digest) == (
            cursor.head,
            state_digest(done.cursor.digests),
        )
        named += [(r.stream, n) for r in manifest.ranges for n in range(r.first, r.last + 1)]
        cursor = done.cursor

    assert cursor.position == len(told)
    assert named == [(record.stream, record.sequence) for record in told]


@given(facts=FACTS, cut=st.integers(0, 30))
@settings(deadline=None, max_examples=60)
def test_wherever_batches_are_cut_the_digest_at_a_position_is_the_same(
    facts: list[Fact], cut: int
) -> None:
    told, cluster_state = records(*facts), ClusterState()
    cut = max(1, min(cut, len(told)))

    first = sequenced(told[:cut], START, cluster_state)
    first.draft.commit()
    last = sequenced(told[cut:], first.cursor, cluster_state) if told[cut:] else first

    assert last.cursor.digests == sequenced(told).cursor.digests


def test_ranges_break_where_the_stream_changes() -> None:
    told = [garbage(b"", stream, n) for stream, n in [("A", 1), ("A", 2), ("B", 9), ("A", 3)]]  # type: ignore[arg-type]

    assert [(r.stream, r.first, r.last) for r in ranges_of(told)] == [
        ("A", 1, 2),
        ("B", 9, 9),
        ("A", 3, 3),
    ]


def test_a_repeat_takes_a_position_and_changes_nothing() -> None:
    told = records(node_seen("a"), power("a", 100))

    done = sequenced([*told, told[1], told[0]])

    once = sequenced(told)
    assert (done.duplicates, done.cursor.position) == (2, 4)
    assert (done.rows, done.commit.poison) == (once.rows, [])


def test_a_reading_that_comes_twice_among_others_is_a_repeat() -> None:
    told = records(power("a", 1), power("a", 2), power("a", 3))

    done = sequenced([*told, told[2]])

    assert (done.duplicates, done.rows) == (1, sequenced(told).rows)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "truncated", id="nothing"),
        pytest.param(b"\xff\x00garbage", "Expected `object`", id="garbage"),
        pytest.param(wire("x:y"), "not producer:boot:seq", id="an id without a number"),
        pytest.param(wire("x:y:" + "9" * 5000), f"length <= {EVENT_ID}", id="an endless number"),
        pytest.param(wire("x:y:" + "9" * 25), "not producer:boot:seq", id="a number too large"),
        pytest.param(wire(kind="node.exploded"), "nobody here knows", id="an unknown type"),
        pytest.param(wire(nope=1), "missing required field", id="another shape"),
        pytest.param(
            wire(kind="telemetry.sampled", node="n", power_mw=-1), ">= 0", id="a value out of range"
        ),
        pytest.param(
            wire()[: -len(msgspec.msgpack.encode({"node": "n"}))] + b"\x91" * 100_000 + b"\xc0",
            "recursion",
            id="nested without end",
        ),
    ],
)
def test_what_cannot_be_read_takes_a_position_and_changes_nothing(data: bytes, why: str) -> None:
    done = sequenced([garbage(data), *records(node_seen("a"), name="another")], START)

    [poison] = done.commit.poison
    assert (poison.position, poison.stream, poison.sequence) == (1, "JOULIE_OBS", 1)
    assert why in poison.why
    assert poison.body == data
    assert [(row.table, row.key) for row in done.rows if row.table != "cluster"] == [
        ("node", "a"),
        ("producer", "obs:another"),
    ]


def test_a_decision_among_facts_is_poison() -> None:
    decision = producer().stamp(SettingsDeclared(settings="s", code="1", values={}))

    done = sequenced([garbage(decision.data)])

    [poison] = done.commit.poison
    assert "decision.settings-declared is a decision and no fact" in poison.why
    assert done.rows == []


NUMBERS = st.integers(1, 3).map(str) | st.sampled_from(["02", "-1", "", "1:2", "9" * 18])
READINGS = st.tuples(
    st.sampled_from(["a:x", "agent-n:x"])
    | st.sampled_from(["a:y", "b:x", ":x", "a", "a:x:z", "agent-m:x", "agent-n"]),
    NUMBERS,
    st.sampled_from([{"power_mw": 5}, {"power_mw": -1}, {"power_mw": 7, "provider": "p"}]),
    st.sampled_from(["telemetry.sampled", "telemetry.sampled", "node.gone"]),
    st.sampled_from(["joulie.tel.c.n", "joulie.agent.c.n"])
    | st.sampled_from(["", "joulie.agent.c.m", "joulie.tel.c.=6E", "joulie.plan.c.n", "n", "a..."]),
)


@given(told=st.lists(READINGS, max_size=25), cut=st.integers(0, 25))
@settings(deadline=None, max_examples=100)
def test_the_short_way_of_a_reading_leads_where_the_long_one_does(
    told: list[tuple[str, str, dict[str, object], str, str]], cut: int
) -> None:
    story = [
        Record(Stream.TEL, at, noon(at), wire(f"{life}:{number}", kind, node="n", **data), subject)
        for at, (life, number, data, kind, subject) in enumerate(told, 1)
    ]
    short = twice(story[:cut], story[cut:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "open_sample", lambda _: None)
        long = twice(story[:cut], story[cut:])

    assert short == long


def twice(first: list[Record], second: list[Record]) -> list[tuple[object, ...]]:
    """What two batches, one upon the other, leave behind."""
    cluster_state, left = ClusterState(), list[tuple[object, ...]]()
    for told, position in ((first, 0), (second, len(first))):
        draft = Draft(cluster_state)
        found = fold(draft, told, position)
        left.append((found, list(draft.changed())))
        draft.commit()
    return left


def test_the_number_after_the_largest_one_is_no_number_by_either_way() -> None:
    most = 10**18 - 1
    draft = Draft(ClusterState())
    draft.producers.put("tel:a", ProducerState((Life("x", most - 1),)))
    story = [
        Record(Stream.TEL, n, noon(), wire(f"a:x:{n}", "telemetry.sampled", node="n", power_mw=1))
        for n in (most, most + 1)
    ]

    [poison] = fold(draft, story, 0).poison

    assert (poison.position, draft.producers.get("tel:a")) == (2, ProducerState((Life("x", most),)))


@given(data=st.binary(max_size=60))
@settings(deadline=None, max_examples=100)
def test_whatever_bytes_come_the_order_goes_on(data: bytes) -> None:
    done = sequenced([garbage(data)])

    assert (done.cursor.position, len(done.commit.poison)) == (1, 1)


# --- what was set aside -----------------------------------------------------------------------


def falls_over(monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    """A bug: the fold of a node's facts changes something, and raises then."""

    def broken(draft: Draft, fact: Fact, at: int) -> None:
        evolve(draft, fact, at)
        if getattr(fact, "node", "") == node:
            raise KeyError(node)

    monkeypatch.setattr(sequence_module, "evolve", broken)


@given(facts=FACTS, wrong=st.sampled_from(["n0", "n1", "n2"]))
@settings(deadline=None, max_examples=50)
def test_a_fold_that_falls_over_a_fact_leaves_the_rest_as_if_it_were_unreadable(
    facts: list[Fact], wrong: str
) -> None:
    told = merged(*facts)
    with pytest.MonkeyPatch.context() as patch:
        falls_over(patch, wrong)
        done = sequenced(told)

    positions = the_rest_counts(told, done)
    assert all("its fold failed: KeyError" in poison.why for poison in done.commit.poison)
    assert positions == [at for at, record in enumerate(told, 1) if is_of(record, wrong)]


def has_no_encoding(monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    """A bug: the facts of a node give a number that no row holds."""

    def overflowing(draft: Draft, fact: Fact, at: int) -> None:
        evolve(draft, fact, at)
        state = draft.nodes.get(node)
        if getattr(fact, "node", "") == node and state is not None:
            draft.nodes.put(node, replace(state, load=Load(warm_cpu_micro=10**20)))

    monkeypatch.setattr(sequence_module, "evolve", overflowing)


@given(facts=FACTS, wrong=st.sampled_from(["n0", "n1", "n2"]))
@settings(deadline=None, max_examples=50)
def test_a_fact_whose_row_has_no_encoding_leaves_the_rest_as_if_it_were_unreadable(
    facts: list[Fact], wrong: str
) -> None:
    told = merged(*facts)
    with pytest.MonkeyPatch.context() as patch:
        has_no_encoding(patch, wrong)
        done = sequenced(told)

    the_rest_counts(told, done)
    assert all("its rows cannot be written: OverflowError" in p.why for p in done.commit.poison)


def test_a_batch_of_nothing_but_facts_that_cannot_be_folded_takes_no_longer_than_it_has_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = records(*(node_seen("a") for _ in range(3000)))
    calls = 0

    def broken(draft: Draft, fact: Fact, at: int) -> None:
        nonlocal calls
        calls += 1
        raise KeyError

    monkeypatch.setattr(sequence_module, "evolve", broken)

    kept = sequenced(told).commit.poison
    assert all_positions(kept) == frozenset(range(1, 3001))
    assert len(kept) == BODIES_PER_SUBJECT + 1
    assert calls == 3001


def test_a_reason_is_printable_and_short() -> None:
    poison = poison_of(7, garbage(b""), "a\0b\n\ud800" + "x" * 9000 + "end")

    assert r"a\x00b\n\ud800x" in poison.why
    assert poison.why.endswith("end. It changed nothing.")
    assert poison.why.isprintable()
    assert len(poison.why) < 1100


def test_what_is_taken_back_was_never_there() -> None:
    told = merged(power("a", 1), node_seen("b"), bound("p", "a"))
    cluster_state = ClusterState()
    first = sequenced(told, START, cluster_state)
    first.draft.commit()
    before = {table: dict(held) for table, held in tables_of(cluster_state).items()}
    later = merged(node_seen("c"), eco("a"), NodeGone(node="b"), bound("p", "a"))
    second = sequenced(later, first.cursor, cluster_state)
    second.draft.commit()

    revert(cluster_state, second.changes)

    assert tables_of(cluster_state) == before


def is_of(record: Record, node: str) -> bool:
    envelope = codec.open_envelope(record.data, "it")
    return getattr(codec.read(envelope, "it"), "node", "") == node


def test_what_was_set_aside_stays_aside_though_it_could_be_read_now() -> None:
    told = records(node_seen("a"), node_seen("b"))
    draft = Draft(ClusterState())

    folded = fold(draft, told, 40, {41})

    assert (folded.poison, list(draft.nodes.changes)) == ([], ["b"])


def test_a_pod_is_bound_once_however_often_it_is_seen() -> None:
    told = records(node_seen("a"), bound("p", "a"), bound("p", "a"), bound("q", "nowhere"))

    done = sequenced(told)

    assert done.commit.bound == [
        FirstBinding(2, noon(1), "p", "team", "p", "a", 0),
        FirstBinding(4, noon(3), "q", "team", "q", "nowhere", 1),
    ]
