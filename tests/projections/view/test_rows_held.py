"""The rows of a view: interning, digests, columns, loading and memory."""

import os
import subprocess
import sys
from itertools import permutations
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import Engine

import reference_scoring
from bus_kit import ANY_FACTS, NOON, any_fact, ask, hardware, noon, records
from joulie_bus.events import Fact, GpuAsk, PodAsk
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.sequence import FoldCursor, fold, sequence
from joulie_projections.state import interning
from joulie_projections.state.cards import CardState, Claim
from joulie_projections.state.rows import (
    VIEWED,
    Row,
    cluster_state_of,
    digests_of,
    encode,
    tables_of,
)
from joulie_projections.state.state import ClusterState, NodeState, PodState, Sample, State
from joulie_projections.state.state_changes import Draft
from joulie_projections.store import store as store_module
from joulie_projections.store.store import Store
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.rows_held import HeldRows

MODEL, NODE_NAME = "NVIDIA-H100-80GB-HBM3", "node-1.example"
ASK = replace(ask("a-pod-of-mine"), cpu_milli=2500, gpu=GpuAsk(model=MODEL, vram_mb=40_000))
POD = PodState(pod=ASK, node=NODE_NAME, bound_at=NOON)
CLAIM = Claim(namespace="team-a", name="p", node=NODE_NAME, mb=40_000, expires_at=NOON)
CARD = CardState(at=NOON, node=NODE_NAME, model=MODEL, total_mb=81_559, claims={"u": CLAIM})
NODE = NodeState(ordinal=0, at=NOON, hardware=hardware(NODE_NAME))


def row(table: str, key: str, state: State) -> Row:
    return Row(table, key, encode(state))


def decoded(*rows: Row) -> ClusterState:
    return cluster_state_of(rows)


def test_equal_values_of_pods_are_interned() -> None:
    other = replace(POD, pod=replace(ASK, uid="another-pod-of-mine"))
    keys = ["".join(["a-pod-", "of-mine"]), "another-pod-of-mine"]
    cluster_state = decoded(row("pod", keys[0], POD), row("pod", keys[1], other))
    one, two = (cluster_state.pods[key] for key in keys)

    assert (one, two) == (POD, other)
    assert one.pod.uid is keys[0]
    assert one.node is two.node
    assert one.pod.gpu is two.pod.gpu
    assert one.pod.namespace is two.pod.namespace
    assert one.pod.cpu_milli is two.pod.cpu_milli


def test_equal_values_of_cards_and_nodes_are_interned() -> None:
    cards = decoded(row("gpu", "1", CARD), row("gpu", "2", CARD), row("node", NODE_NAME, NODE))
    one, two = cards.gpus["1"], cards.gpus["2"]
    found = cards.nodes[NODE_NAME].hardware

    assert (one, two, found) == (CARD, CARD, NODE.hardware)
    assert one.model is two.model
    assert one.claims["u"].node is one.node
    assert found is not None
    assert found.node is NODE_NAME


@given(facts=st.lists(st.integers(0, ANY_FACTS - 1).map(any_fact), max_size=40))
@settings(deadline=None, max_examples=100)
def test_interned_states_encode_to_the_same_rows(facts: list[Fact]) -> None:
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    fold(draft, records(*facts), 0)
    draft.commit()
    rows = rows_of(cluster_state)

    interned = decoded(*rows)

    assert tables_of(interned) == tables_of(cluster_state)
    assert rows_of(interned) == rows


# The same defaults, omitted and explicit, as producers of different versions send them.
OMITTED = [PodAsk(uid=uid, namespace="team", name="p") for uid in "ab"]
EXPLICIT = [
    replace(OMITTED[0], uid="c", gpu=GpuAsk()),
    replace(OMITTED[0], uid="d", rule="".join(["def", "ault"])),
]


@pytest.mark.parametrize("pods", list(permutations([*OMITTED, *EXPLICIT])))
def test_explicit_defaults_are_encoded_as_they_were_read(pods: list[PodAsk]) -> None:
    interning._same_gpu_ask.cache_clear()
    rows = [row("pod", pod.uid, PodState(pod=pod)) for pod in pods]

    lengths = {key: len(body or b"") for _, key, body in rows}
    assert lengths["a"] == lengths["b"] < lengths["c"] < lengths["d"]
    assert rows_of(decoded(*rows)) == rows


def rows_of(cluster_state: ClusterState) -> list[Row]:
    tables = tables_of(cluster_state).items()
    return [row(table, key, state) for table, held in tables for key, state in held.items()]


def test_replaced_and_deleted_rows_leave_the_digest_of_the_remaining_ones() -> None:
    held, moved = HeldRows(), replace(POD, node="n2")
    held.put([row("pod", "p", POD), row("gpu", "c", CARD)], 1)
    held.put([row("pod", "p", moved), Row("gpu", "c", None), Row("gpu", "missing", None)], 2)

    remaining = digests_of([row("pod", "p", moved)])
    assert held.matches({table: remaining[table].to_bytes(32) for table in VIEWED})
    assert not held.matches({"pod": bytes(32)})


# --- the columns ------------------------------------------------------------------------------

NAMES = ["n0", "n1", "n2"]


class Turn(NamedTuple):
    """The changes of one delta, and whether the columns are built after it."""

    changes: dict[str, NodeState | None]
    read: dict[str, NodeState]  # new readings of existing nodes
    is_built: bool


TURNS = st.builds(
    Turn,
    st.dictionaries(st.sampled_from(NAMES), reference_scoring.states | st.none(), max_size=2),
    st.dictionaries(st.sampled_from(NAMES), reference_scoring.states, max_size=3),
    st.booleans(),
)


def as_read(node: NodeState, read: NodeState) -> NodeState:
    return replace(
        node,
        at=read.at,
        samples=read.samples,
        source=read.source,
        provider=read.provider,
        arrivals=read.arrivals,
    )


def content(twin_columns: TwinColumns) -> tuple[dict[str, int], dict[str, bytes]]:
    used = max(twin_columns.rows.values(), default=0) + 1
    return twin_columns.rows, {
        name: column[:used].tobytes() for name, column in twin_columns.columns.items()
    }


@pytest.mark.slow
@given(st.lists(TURNS, max_size=8))
@settings(deadline=None, max_examples=100)
@pytest.mark.long
def test_columns_after_any_deltas_equal_columns_built_at_once(
    turns: list[Turn],
) -> None:
    held, nodes = HeldRows(), dict[str, NodeState]()
    for position, turn in enumerate(turns):
        changed = dict[str, NodeState | None]()
        for name, state in turn.changes.items():
            changed[name] = None if state is None else replace(state, ordinal=NAMES.index(name))
        for name, read in turn.read.items():
            before = changed.get(name) or nodes.get(name)
            if before is not None:
                changed[name] = as_read(before, read)
        held.put(
            [
                Row("node", name, None if state is None else encode(state))
                for name, state in changed.items()
            ],
            position,
        )
        nodes = {name: node for name, node in {**nodes, **changed}.items() if node is not None}
        if turn.is_built:
            assert content(held.twin_columns()) == content(TwinColumns.of(nodes, 0))


def test_a_new_reading_changes_only_its_columns() -> None:
    held = HeldRows()
    held.put([row("node", NODE_NAME, NODE)], 1)
    before = held.twin_columns()

    held.put([row("node", NODE_NAME, replace(NODE, samples=(Sample(NOON, 250_000),)))], 2)
    after = held.twin_columns()

    own = {name for name, column in after.columns.items() if column is not before.columns[name]}
    assert own == {"sampled_at", "measured_w"}
    assert (after.rows is before.rows, after.labels is before.labels) == (True, True)


# --- loading ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("portion", [1, 2, 1000])
def test_rows_do_not_depend_on_the_size_of_portions(
    writer: Engine, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    store = Store(writer)
    leased = store.acquire("me", 10, "inc", lambda _: True)
    assert leased is not None
    sent = records(*map(any_fact, range(ANY_FACTS)))
    cursor = FoldCursor(0, {}, leased.digests, b"")
    batch = sequence(ClusterState(), cursor, sent, dict.fromkeys(Stream, ""), noon())
    store.commit(leased.epoch, batch.commit)
    monkeypatch.setattr(store_module, "PORTION", portion)

    with store.reading(VIEWED) as (found, portions):
        sizes = [(rows[0].table, rows) for rows in portions]
    whole = store.load(VIEWED)

    assert (found, [each for _, rows in sizes for each in rows]) == whole
    assert max(len(rows) for _, rows in sizes) <= portion


def test_an_empty_database_has_no_checkpoint_and_no_rows(writer: Engine) -> None:
    with Store(writer).reading(VIEWED) as (found, portions):
        assert (found, list(portions)) == (None, [])


MEASURE = """
from joulie_bus.events import GpuAsk, PodAsk
from bus_kit import NOON, SECOND, hardware
from joulie_projections.state.cards import CardState
from joulie_projections.view.rows_held import HeldRows
from joulie_projections.state.rows import Row, encode
from joulie_projections.state.state import NodeState, PodState, Sample

held = HeldRows()
for number in range(5000):
    name = f"node-{number:05d}.example.internal"
    samples = tuple(Sample(NOON + at * SECOND + number, 300_000 + at + number) for at in range(31))
    node = NodeState(ordinal=number, at=NOON, hardware=hardware(name, gpus=8), samples=samples)
    rows = [Row("node", name, encode(node))]
    for at in range(10):
        uid = f"8f1c0f5e-{number:05d}-4000-8000-{at:012d}"
        gpu = GpuAsk(model="NVIDIA-H100-80GB-HBM3", vram_mb=40_000)
        pod = PodAsk(uid=uid, namespace="team", name=f"web-{uid}", cpu_milli=2000, gpu=gpu)
        rows.append(Row("pod", uid, encode(PodState(pod=pod, node=name, bound_at=NOON + number))))
    for at in range(8):
        card = CardState(at=NOON, node=name, model="NVIDIA-H100-80GB-HBM3", total_mb=81_559)
        rows.append(Row("gpu", f"GPU-{number:05d}-{at:012d}", encode(card)))
    held.put(rows, number)
columns = held.twin_columns()
# getrusage would start with the peak of the parent process; VmHWM is of this process alone.
[kib] = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(len(columns), len(held.cluster_state.pods), len(columns.cards), kib // 1024)
"""


@pytest.mark.slow
def test_a_view_of_5000_nodes_with_pods_and_cards_takes_less_than_150_mb() -> None:
    run = subprocess.run(
        [sys.executable, "-c", MEASURE],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert run.stdout.split()[:3] == ["5000", "50000", "40000"]
    assert int(run.stdout.split()[3]) < 150
