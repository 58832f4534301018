"""A fold of readings in columns leaves the state that their messages leave, one by one."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import ANY_FACTS, NOON, any_fact, hardware, node_seen, noon, power, producer, sender_of
from joulie_audit.columns.facts import fact_tables
from joulie_audit.columns.ledger_columns import arrays_of
from joulie_audit.columns.messages import Messages
from joulie_audit.columns.part_readings import column_part
from joulie_audit.columns.tables import READINGS
from joulie_audit.recompute.column_part import ColumnBatch, ColumnPart
from joulie_audit.recompute.fold import FoldedState, rows_of
from joulie_audit.recompute.foldable import Foldable
from joulie_bus.errors import ArchiveBroken
from joulie_bus.events import Fact, NodeGone, PodsUsed, PodUse, TelemetrySampled, packed_uid
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream, agent_name, stream_of
from joulie_projections.fold.commit import Input
from joulie_projections.fold.manifest import Manifest
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.state.rows import digests_of, empty_digests
from joulie_projections.state.state import ClusterState

NAMES = [f"n{number}" for number in range(3)]


class Sent(NamedTuple):
    fact: Fact
    after_s: float
    fate: str = "stored"


def recorded(sent: Sequence[Sent], *, by_agents: bool = True) -> list[Record]:
    """As their streams store them. A reading is an agent's, or one program's that reads all."""
    producers: dict[tuple[str, Stream], Producer] = {}
    boots, numbers = Counter[str](), Counter[Stream]()
    log: list[Record] = []
    now_s = 0.0
    for fact, after_s, fate in sent:
        now_s += after_s
        stream = stream_of(fact)
        node = getattr(fact, "node", "") if by_agents and stream is Stream.TEL else ""
        name = sender_of(fact, agent_name(node) if node else "tester")
        if fate == "restarted":
            boots[name] += 1
            producers.pop((name, stream), None)
        voice = producers.setdefault((name, stream), producer(name, f"b{boots[name]}"))
        message = voice.stamp(fact)
        data = message.data[:-1] if fate == "garbled" else message.data
        for _ in range({"lost": 0, "twice": 2}.get(fate, 1)):
            numbers[stream] += 1
            log.append(Record(stream, numbers[stream], noon(now_s), data, message.subject))
    return log


def in_columns(log: Sequence[Record], first: int, set_aside: Collection[int] = ()) -> ColumnPart:
    messages = Messages.of(list(enumerate(log, first)))
    readings = fact_tables(messages, set_aside).typed[READINGS.name]
    return column_part(arrays_of(readings, READINGS.kinds), messages, "a part")


def batches(part: ColumnPart, cuts: Sequence[int]) -> Iterator[ColumnBatch]:
    for begin, end in pairwise(cuts):
        yield ColumnBatch(part, begin, end)


def seen(folded: FoldedState) -> tuple[object, ...]:
    """All that a reader of the state sees."""
    twins = folded.twin_columns()
    columns = {name: column.tobytes() for name, column in twins.columns.items()}
    rows = sorted(rows_of(folded.cluster_state))
    return folded.position, columns, dict(twins.rows), twins.updated_at().tobytes(), rows


READINGS_OF_NODES = st.builds(
    TelemetrySampled,
    node=st.sampled_from(NAMES),
    power_mw=st.integers(0, 900_000) | st.just(10**12),
    source=st.sampled_from(["kepler", "kepler", "utilization"]),
    provider=st.sampled_from(["", "agent"]),
    late_ms=st.sampled_from([0, 0, 0, 0, 1000, 30_000, 400_000]),
    pod_uj=st.sampled_from([{}, {}, {}, {"p": 5}]),
)
LOST_OR_SEEN = st.builds(NodeGone, node=st.sampled_from(NAMES)) | st.builds(
    node_seen, st.sampled_from(NAMES)
)
USED = st.builds(
    lambda node: PodsUsed(node=node, source="cgroup-v2", pods=(PodUse(packed_uid("p"), 60, 1, 2),)),
    st.sampled_from(NAMES),
)
ANY = st.integers(0, ANY_FACTS - 1).map(any_fact)
FATES = st.sampled_from(["stored"] * 20 + ["lost", "twice", "garbled", "restarted"])
LATER_S = st.sampled_from([0.0, 0.1, 1.0, 3.0, 3.0, 9.9, 10.0, 61.0, 310.0, -1.0])
SENT = st.builds(
    Sent,
    st.one_of(READINGS_OF_NODES, READINGS_OF_NODES, READINGS_OF_NODES, USED, ANY, LOST_OR_SEEN),
    LATER_S,
    FATES,
)
START = [
    *(Sent(node_seen(name), 1.0) for name in NAMES),
    *(Sent(hardware(name), 1.0) for name in NAMES),
    *(Sent(power(name, 100), 1.0) for name in NAMES),
]


@given(
    sent=st.lists(SENT, min_size=1, max_size=60),
    by_agents=st.booleans(),
    cuts=st.sets(st.integers(1, 80), max_size=12),
    looks=st.sets(st.integers(0, 12), max_size=4),
    aside=st.sets(st.integers(1, 80), max_size=1),
)
@settings(deadline=None, max_examples=150)
def test_columns_fold_to_the_state_of_the_messages(
    sent: list[Sent], by_agents: bool, cuts: set[int], looks: set[int], aside: set[int]
) -> None:
    log = recorded([*START, *sent], by_agents=by_agents)
    ends = sorted({0, len(START), len(log), *(cut for cut in cuts if cut < len(log))})
    middle = ends[len(ends) // 2]
    begins = sorted({0, len(START), middle} - {len(log)})
    parts = {
        begin: in_columns(log[begin:end], begin + 1, aside)
        for begin, end in pairwise([*begins, len(log)])
    }
    of_messages, of_columns = FoldedState(set_aside=aside), FoldedState(set_aside=aside)

    for number, (begin, end) in enumerate(pairwise(ends)):
        of_messages.skip(log[begin:end])
        before = max(at for at in begins if at <= begin)
        of_columns.skip(ColumnBatch(parts[before], begin - before, end - before))
        if number in looks:
            assert seen(of_columns) == seen(of_messages)

    assert seen(of_columns) == seen(of_messages)


# --- a quiet cluster --------------------------------------------------------------------------

NODES, TURNS, BATCH = 40, 30, 20


class Past(NamedTuple):
    """Agents that read every ten seconds, after the first reading of each."""

    start: list[Record]
    log: list[Record]
    manifests: list[Manifest]

    @property
    def first(self) -> int:
        return len(self.start) + 1

    def begun(self) -> FoldedState:
        start = FoldedState()
        start.skip(self.start)
        digests = digests_of(rows_of(start.cluster_state))
        inputs = {Stream.OBS: Input("x", 2 * NODES), Stream.TEL: Input("x", NODES)}
        cursor = FoldCursor(start.position, inputs, digests, b"")
        return FoldedState(start.cluster_state, cursor)

    def flaws(self, part: ColumnPart, folded: FoldedState) -> list[str]:
        found = [
            flaw
            for each in self.manifests
            for flaw in folded.advance(
                ColumnBatch(part, each.p_from - self.first, each.p_to - self.first + 1), each
            )
        ]
        return [flaw.what for flaw in (*found, *folded.settle())]


@pytest.fixture(scope="module")
def past() -> Past:
    names = [f"node-{number:03d}" for number in range(NODES)]
    start = [Sent(fact, 0.1) for name in names for fact in (node_seen(name), hardware(name))]
    start += [Sent(power(name, 300), 0.1) for name in names]
    read = [
        Sent(power(name, 300 + turn % 7), 10 / NODES) for turn in range(TURNS) for name in names
    ]
    log = recorded([*start, *read])
    return Past(log[: len(start)], log[len(start) :], manifests_of(log, len(start)))


def manifests_of(log: Sequence[Record], first: int) -> list[Manifest]:
    """Of what comes after the first batch, as the projector commits it."""
    state, cursor = ClusterState(), FoldCursor(0, {}, empty_digests(), b"")
    manifests: list[Manifest] = []
    for begin, end in pairwise([0, *range(first, len(log) + 1, BATCH)]):
        done = sequence(state, cursor, log[begin:end], dict.fromkeys(Stream, "x"), NOON)
        done.draft.commit()
        cursor = done.cursor
        manifests.append(done.commit.manifest)
    return manifests[1:]


def test_a_part_in_columns_has_the_state_that_the_manifests_record(past: Past) -> None:
    part, folded = in_columns(past.log, past.first), past.begun()

    assert Foldable(part, 0, folded.cluster_state, ()).messages == []
    assert past.flaws(part, folded) == []
    assert folded.position == past.manifests[-1].p_to


def test_a_changed_reading_is_named_by_its_batch(past: Past) -> None:
    log = list(past.log)
    log[333] = log[333]._replace(at=log[333].at + 60_000_000_000)
    batch = past.manifests[333 // BATCH]

    found = past.flaws(in_columns(log, past.first), past.begun())

    assert found == [f"state at {batch.p_to} differs"]


def test_changed_bytes_are_named_by_their_batch(past: Past) -> None:
    log = list(past.log)
    log[333] = log[333]._replace(data=log[333].data.replace(b"agent-node", b"agent-nodf"))
    batch = past.manifests[333 // BATCH]

    found = past.flaws(in_columns(log, past.first), past.begun())

    assert found[0] == f"facts at {batch.p_from} to {batch.p_to} differ"


def test_a_changed_cell_of_a_part_ends_the_fold(past: Past) -> None:
    part = in_columns(past.log, past.first)
    power_mw = part.readings.power_mw.copy()
    power_mw[-1] += 1
    forged = replace(part, readings=part.readings._replace(power_mw=power_mw))

    with pytest.raises(ArchiveBroken, match="its readings are not those of its messages"):
        past.flaws(forged, past.begun())


def test_a_forged_number_is_not_counted(past: Past) -> None:
    """A message that its sender may not write, in place of one that was lost."""
    log = list(past.log)
    theirs = log[5 * NODES]  # of the first node
    log[5 * NODES] = theirs._replace(subject=log[5 * NODES + 1].subject)
    part = in_columns(log, past.first)
    of_messages, of_columns = past.begun(), past.begun()

    of_messages.skip(log)
    of_columns.skip(ColumnBatch(part, 0, len(part)))

    assert seen(of_columns) == seen(of_messages)
    assert len(part.others) == 1


def test_a_node_that_goes_and_comes_again_is_folded_by_its_messages(past: Past) -> None:
    gone, back = NodeGone(node="node-007"), node_seen("node-007")
    between = recorded([Sent(gone, 200.0), Sent(back, 1.0)])
    log = [*past.log[:777], between[0], *past.log[777:900], between[1], *past.log[900:]]
    part = in_columns(log, past.first)
    of_messages, of_columns = past.begun(), past.begun()

    of_messages.skip(log)
    for batch in batches(part, [*range(0, len(log), 100), len(log)]):
        of_columns.skip(batch)

    assert seen(of_columns) == seen(of_messages)
