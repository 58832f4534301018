"""Folding batches: positions, manifests, duplicates and the quarantine."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import (
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
from joulie_bus.events import Fact, NodeGone, SettingsDeclared, codec
from joulie_bus.events.bounds import EVENT_ID
from joulie_bus.events.codec import Envelope, seal
from joulie_bus.jetstream.publisher import WINDOW
from joulie_bus.streams.records import Record, digest_of
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.fold import sequence as sequence_module
from joulie_projections.fold.commit import FirstBinding, Input, Inputs
from joulie_projections.fold.manifest import Range, hash_of_all, rechained
from joulie_projections.fold.producers import MISSING_LIMIT, TelemetryCounter
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
    sent: list[Record], cursor: FoldCursor = START, cluster_state: ClusterState | None = None
) -> SequencedBatch:
    return sequence(cluster_state or ClusterState(), cursor, sent, CREATED, noon())


def quarantined_positions(sent: list[Record], result: SequencedBatch) -> list[int]:
    """The quarantined positions; asserts that all other records were folded."""
    positions = [poison.position for poison in result.commit.poison]
    draft = Draft(ClusterState())
    fold(draft, sent, 0, frozenset(positions))
    assert changed_rows(draft.changed(), empty_digests()) == (result.rows, result.commit.digests)
    return positions


def garbage(data: bytes, stream: Stream = Stream.OBS, number: int = 1) -> Record:
    return Record(stream, number, noon(), data)


def wire(event_id: str = "x:y:1", kind: str = "node.gone", **data: object) -> bytes:
    raw = msgspec.Raw(msgspec.msgpack.encode(data or {"node": "n"}))
    return seal(Envelope(id=event_id, type=kind, v=1, key="n", ts=0, data=raw))


def test_a_manifest_has_positions_message_ranges_and_chain_heads() -> None:
    sent = merged(power("a", 1), eco("a"), power("a", 2), node_seen("a"))
    before = FoldCursor(41, {Stream.DEC: Input("d", 7)}, empty_digests(), b"head")

    manifest = sequenced(sent, before).commit.manifest

    ranges = (Range(Stream.PLAN, 1, 1), Range(Stream.OBS, 1, 1), Range(Stream.TEL, 1, 2))
    assert (manifest.p_from, manifest.p_to, manifest.ranges) == (42, 45, ranges)
    assert manifest.facts_hash == hash_of_all([record.data for record in sent])
    assert manifest.prev == b"head"
    assert manifest == rechained(manifest)
    others = [
        manifest._replace(p_to=46),
        manifest._replace(facts_hash=b"other"),
        manifest._replace(state_digest=b"other"),
        manifest._replace(prev=b"other"),
        manifest._replace(committed_at=1),
        manifest._replace(fold_version="another"),
    ]
    assert manifest.head not in {rechained(each).head for each in others}


def test_a_batch_updates_the_inputs_of_the_streams_it_read() -> None:
    before = START._replace(inputs={Stream.PLAN: Input("p", 3), Stream.TEL: Input("t", 1)})

    sent = merged(power("a", 1), power("a", 2), node_seen("a"))
    result = sequenced(sent, before)

    last = {record.stream: digest_of(record) for record in sent}
    assert result.commit.inputs == {
        Stream.PLAN: Input("p", 3),
        Stream.TEL: Input("then", 2, last[Stream.TEL]),
        Stream.OBS: Input("then", 1, last[Stream.OBS]),
    }


def test_the_cluster_state_has_the_newest_claim_message_and_its_digest() -> None:
    cluster_state = ClusterState()
    sent = merged(claim("g1", "p1"), claim("g2", "p1"), node_seen("a"))
    sequenced(sent, cluster_state=cluster_state).draft.commit()

    newest = max(sent, key=lambda each: (each.stream is Stream.CLAIM, each.sequence))
    assert cluster_state.newest_claim == (2, digest_of(newest))


def test_an_input_of_an_earlier_version_has_no_digest() -> None:
    old = msgspec.msgpack.encode({Stream.TEL: ("then", 7)})

    assert msgspec.msgpack.decode(old, type=Inputs) == {Stream.TEL: Input("then", 7, b"")}


@given(facts=FACTS, batch=st.integers(1, 10))
@settings(deadline=None, max_examples=60)
def test_positions_are_contiguous_and_ranges_name_every_message_once(
    facts: list[Fact], batch: int
) -> None:
    cluster_state, cursor, sent = ClusterState(), START, records(*facts)
    named: list[tuple[Stream, int]] = []
    for first in range(0, len(sent), batch):
        result = sequenced(sent[first : first + batch], cursor, cluster_state)
        result.draft.commit()

        manifest = result.commit.manifest
        assert manifest.p_from == cursor.position + 1
        assert (manifest.prev, manifest.state_digest) == (
            cursor.head,
            state_digest(result.cursor.digests),
        )
        named += [(r.stream, n) for r in manifest.ranges for n in range(r.first, r.last + 1)]
        cursor = result.cursor

    assert cursor.position == len(sent)
    assert named == [(record.stream, record.sequence) for record in sent]


@given(facts=FACTS, cut=st.integers(0, 30))
@settings(deadline=None, max_examples=60)
def test_the_digest_at_a_position_does_not_depend_on_batch_boundaries(
    facts: list[Fact], cut: int
) -> None:
    sent, cluster_state = records(*facts), ClusterState()
    cut = max(1, min(cut, len(sent)))

    first = sequenced(sent[:cut], START, cluster_state)
    first.draft.commit()
    last = sequenced(sent[cut:], first.cursor, cluster_state) if sent[cut:] else first

    assert last.cursor.digests == sequenced(sent).cursor.digests


def test_a_new_range_starts_where_the_stream_changes() -> None:
    sent = [garbage(b"", stream, n) for stream, n in [("A", 1), ("A", 2), ("B", 9), ("A", 3)]]  # type: ignore[arg-type]

    assert [(r.stream, r.first, r.last) for r in ranges_of(sent)] == [
        ("A", 1, 2),
        ("B", 9, 9),
        ("A", 3, 3),
    ]


def test_a_duplicate_takes_a_position_and_changes_nothing() -> None:
    sent = records(node_seen("a"), power("a", 100))

    result = sequenced([*sent, sent[1], sent[0]])

    once = sequenced(sent)
    assert (result.duplicates, result.cursor.position) == (2, 4)
    assert (result.rows, result.commit.poison) == (once.rows, [])


def test_a_repeated_reading_is_a_duplicate() -> None:
    sent = records(power("a", 1), power("a", 2), power("a", 3))

    result = sequenced([*sent, sent[2]])

    assert (result.duplicates, result.rows) == (1, sequenced(sent).rows)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "truncated", id="empty"),
        pytest.param(b"\xff\x00garbage", "Expected `object`", id="garbage"),
        pytest.param(wire("x:y"), "not producer:boot:seq", id="an id without a number"),
        pytest.param(
            wire("x:y:" + "9" * 5000), f"length <= {EVENT_ID}", id="a number of 5000 digits"
        ),
        pytest.param(wire("x:y:" + "9" * 25), "not producer:boot:seq", id="a number too large"),
        pytest.param(
            wire(kind="node.exploded"),
            "this version of Joulie has no event type",
            id="an unknown type",
        ),
        pytest.param(wire(nope=1), "missing required field", id="another shape"),
        pytest.param(
            wire(kind="telemetry.sampled", node="n", power_mw=-1), ">= 0", id="a value out of range"
        ),
        pytest.param(
            wire()[: -len(msgspec.msgpack.encode({"node": "n"}))] + b"\x91" * 100_000 + b"\xc0",
            "recursion",
            id="nested too deeply",
        ),
    ],
)
def test_an_undecodable_message_takes_a_position_and_changes_nothing(data: bytes, why: str) -> None:
    result = sequenced([garbage(data), *records(node_seen("a"), name="another")], START)

    [poison] = result.commit.poison
    assert (poison.position, poison.stream, poison.sequence) == (1, "JOULIE_OBS", 1)
    assert why in poison.why
    assert poison.body == data
    assert [(row.table, row.key) for row in result.rows if row.table != "cluster"] == [
        ("node", "a"),
        ("producer", "obs:another"),
    ]


def test_a_decision_among_facts_is_quarantined() -> None:
    decision = producer().stamp(SettingsDeclared(settings="s", code="1", values={}))

    result = sequenced([garbage(decision.data)])

    [poison] = result.commit.poison
    assert "decision.settings-declared is a decision and no fact" in poison.why
    assert result.rows == []


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


@given(sent=st.lists(READINGS, max_size=25), cut=st.integers(0, 25))
@settings(deadline=None, max_examples=100)
def test_the_shortcut_for_readings_gives_the_general_result(
    sent: list[tuple[str, str, dict[str, object], str, str]], cut: int
) -> None:
    log = [
        Record(Stream.TEL, at, noon(at), wire(f"{life}:{number}", kind, node="n", **data), subject)
        for at, (life, number, data, kind, subject) in enumerate(sent, 1)
    ]
    shortcut = in_two_batches(log[:cut], log[cut:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "open_sample", lambda _: None)
        general = in_two_batches(log[:cut], log[cut:])

    assert shortcut == general


def in_two_batches(first: list[Record], second: list[Record]) -> list[tuple[object, ...]]:
    """The results and changes of folding two batches in sequence."""
    cluster_state, results = ClusterState(), list[tuple[object, ...]]()
    for sent, position in ((first, 0), (second, len(first))):
        draft = Draft(cluster_state)
        found = fold(draft, sent, position)
        results.append((found, list(draft.changed())))
        draft.commit()
    return results


def test_a_number_above_the_maximum_is_rejected() -> None:
    maximum = 10**18 - 1
    draft = Draft(ClusterState())
    draft.producers.put("tel:a", ProducerState((Life("x", maximum - 1),)))
    log = [
        Record(Stream.TEL, n, noon(), wire(f"a:x:{n}", "telemetry.sampled", node="n", power_mw=1))
        for n in (maximum, maximum + 1)
    ]

    [poison] = fold(draft, log, 0).poison

    assert (poison.position, draft.producers.get("tel:a")) == (
        2,
        ProducerState((Life("x", maximum),)),
    )


@given(data=st.binary(max_size=60))
@settings(deadline=None, max_examples=100)
def test_any_bytes_take_one_position(data: bytes) -> None:
    result = sequenced([garbage(data)])

    assert (result.cursor.position, len(result.commit.poison)) == (1, 1)


# --- the quarantine ---------------------------------------------------------------------------


def break_fold(monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    """Simulates a bug: the fold of the node's facts changes the draft and then raises."""

    def broken(draft: Draft, fact: Fact, at: int) -> None:
        evolve(draft, fact, at)
        if getattr(fact, "node", "") == node:
            raise KeyError(node)

    monkeypatch.setattr(sequence_module, "evolve", broken)


@given(facts=FACTS, broken_node=st.sampled_from(["n0", "n1", "n2"]))
@settings(deadline=None, max_examples=50)
def test_a_fact_whose_fold_raises_is_quarantined_alone(facts: list[Fact], broken_node: str) -> None:
    sent = merged(*facts)
    with pytest.MonkeyPatch.context() as patch:
        break_fold(patch, broken_node)
        result = sequenced(sent)

    positions = quarantined_positions(sent, result)
    assert all("its fold failed: KeyError" in poison.why for poison in result.commit.poison)
    assert positions == [at for at, record in enumerate(sent, 1) if is_of(record, broken_node)]


def overflow_rows(monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    """Simulates a bug: the node's facts give a number that cannot be encoded."""

    def overflowing(draft: Draft, fact: Fact, at: int) -> None:
        evolve(draft, fact, at)
        state = draft.nodes.get(node)
        if getattr(fact, "node", "") == node and state is not None:
            draft.nodes.put(node, replace(state, load=Load(warm_cpu_micro=10**20)))

    monkeypatch.setattr(sequence_module, "evolve", overflowing)


@given(facts=FACTS, broken_node=st.sampled_from(["n0", "n1", "n2"]))
@settings(deadline=None, max_examples=50)
def test_a_fact_whose_row_cannot_be_encoded_is_quarantined_alone(
    facts: list[Fact], broken_node: str
) -> None:
    sent = merged(*facts)
    with pytest.MonkeyPatch.context() as patch:
        overflow_rows(patch, broken_node)
        result = sequenced(sent)

    quarantined_positions(sent, result)
    assert all("its rows cannot be written: OverflowError" in p.why for p in result.commit.poison)


def test_a_batch_of_failing_facts_folds_each_fact_at_most_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = records(*(node_seen("a") for _ in range(3000)))
    calls = 0

    def broken(draft: Draft, fact: Fact, at: int) -> None:
        nonlocal calls
        calls += 1
        raise KeyError

    monkeypatch.setattr(sequence_module, "evolve", broken)

    kept = sequenced(sent).commit.poison
    assert all_positions(kept) == frozenset(range(1, 3001))
    assert len(kept) == BODIES_PER_SUBJECT + 1
    assert calls == 3001


def test_a_reason_is_printable_and_bounded() -> None:
    poison = poison_of(7, garbage(b""), "a\0b\n\ud800" + "x" * 9000 + "end")

    assert r"a\x00b\n\ud800x" in poison.why
    assert poison.why.endswith("end. It changed nothing.")
    assert poison.why.isprintable()
    assert len(poison.why) < 1100


def test_revert_restores_the_state_before_a_batch() -> None:
    sent = merged(power("a", 1), node_seen("b"), bound("p", "a"))
    cluster_state = ClusterState()
    first = sequenced(sent, START, cluster_state)
    first.draft.commit()
    before = {table: dict(states) for table, states in tables_of(cluster_state).items()}
    later = merged(node_seen("c"), eco("a"), NodeGone(node="b"), bound("p", "a"))
    second = sequenced(later, first.cursor, cluster_state)
    second.draft.commit()

    revert(cluster_state, second.changes)

    assert tables_of(cluster_state) == before


def is_of(record: Record, node: str) -> bool:
    envelope = codec.open_envelope(record.data, "it")
    return getattr(codec.read(envelope, "it"), "node", "") == node


def test_a_quarantined_position_is_skipped_though_it_can_be_folded() -> None:
    sent = records(node_seen("a"), node_seen("b"))
    draft = Draft(ClusterState())

    folded = fold(draft, sent, 40, {41})

    assert (folded.poison, list(draft.nodes.changes)) == ([], ["b"])


def test_only_the_first_sighting_of_a_binding_is_reported() -> None:
    sent = records(node_seen("a"), bound("p", "a"), bound("p", "a"), bound("q", "nowhere"))

    result = sequenced(sent)

    assert result.commit.bound == [
        FirstBinding(2, noon(1), "p", "team", "p", "a", 0),
        FirstBinding(4, noon(3), "q", "team", "q", "nowhere", 1),
    ]


def test_as_many_messages_may_be_late_as_a_publisher_sends_without_an_answer() -> None:
    """Beyond the limit, a late message counts as a duplicate, and its fact is lost."""
    assert WINDOW <= MISSING_LIMIT


def test_a_batch_with_a_failing_fact_still_counts_its_duplicates_and_bindings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(draft: Draft, fact: Fact, at: int) -> None:
        if isinstance(fact, NodeGone):
            raise RuntimeError("no")
        evolve(draft, fact, at)

    monkeypatch.setattr(sequence_module, "evolve", fails)
    [seen, gone, pod] = records(node_seen("a"), NodeGone(node="b"), bound("p", "a"))

    found = fold(Draft(ClusterState()), [seen, seen, gone, pod, pod], 10)

    assert found.duplicates == 2
    assert [each.position for each in found.poison] == [13]
    assert [(each.position, each.ordinal) for each in found.bound] == [(14, 0)]


def test_a_pod_that_is_bound_to_an_unknown_node_gets_the_row_of_that_node() -> None:
    found = fold(Draft(ClusterState()), records(node_seen("a"), bound("p", "b")), 0)

    assert [each.ordinal for each in found.bound] == [1]


@pytest.mark.parametrize(
    ("event_id", "agent", "is_next"),
    [
        ("agent-n:x:4", "agent-n:", True),
        ("agent-n:x:5", "agent-n:", False),
        ("agent-m:x:4", "agent-n:", False),
        ("agent-n:x:4", "", False),
        ("scraper:x:8", "", True),
        ("scraper:y:8", "", False),
    ],
)
def test_the_next_number_of_the_one_sender_of_a_subject_is_counted_at_once(
    event_id: str, agent: str, is_next: bool
) -> None:
    draft = Draft(ClusterState())
    draft.producers.put("agent:agent-n", ProducerState((Life("x", 3),)))
    draft.producers.put("tel:scraper", ProducerState((Life("x", 7),)))

    assert TelemetryCounter(draft).is_next(event_id, agent) is is_next


def test_a_counter_takes_over_numbers_that_were_compared_elsewhere() -> None:
    draft = Draft(ClusterState())
    draft.producers.put("agent:agent-n", ProducerState((Life("x", 3),)))
    draft.producers.put("tel:scraper", ProducerState((Life("a", 1), Life("x", 7))))
    counter = TelemetryCounter(draft)

    assert (counter.highest("agent-n:x"), counter.highest("scraper:x")) == (3, 7)
    assert (counter.highest("agent-n:y"), counter.highest("scraper:a")) == (None, None)
    counter.continue_to({"agent-n:x": 9, "scraper:x": 20})
    assert counter.is_next("agent-n:x:10", "agent-n:")
    counter.flush()

    assert draft.producers.get("agent:agent-n") == ProducerState((Life("x", 10),))
    assert draft.producers.get("tel:scraper") == ProducerState((Life("a", 1), Life("x", 20)))
    assert not counter.is_next("scraper:x:20")


def test_a_late_message_that_a_newer_one_superseded_is_no_duplicate() -> None:
    first, late, newer = records(node_seen("b"), node_seen("a", cores=8), node_seen("a", cores=96))
    draft = Draft(ClusterState())

    found = fold(draft, [first, newer, late, late], 0)

    assert found.duplicates == 1
    node = draft.nodes.get("a")
    assert node is not None
    assert node.cpu_milli == 96_000


def test_a_reading_under_the_key_of_another_node_is_quarantined() -> None:
    first, second = records(power("a", 100), power("a", 200))
    envelope = codec.open_envelope(second.data, "it")
    forged = second._replace(data=seal(replace(envelope, key="b")))

    assert fold(Draft(ClusterState()), [first, second], 0).poison == []
    [poison] = fold(Draft(ClusterState()), [first, forged], 0).poison
    assert (poison.position, "key" in poison.why) == (2, True)
