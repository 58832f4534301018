"""Properties of the fold for generated facts, and the memory of a large cluster state."""

import os
import random
import subprocess
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bus_kit import (
    ANY_FACTS,
    any_fact,
    bound,
    hardware,
    node_seen,
    noon,
    one_of_each,
    pending,
    power,
    records,
    sender_of,
)
from joulie_bus.events import Fact, NodeGone, PodFinished, PodGone
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import FAMILIES
from joulie_projections.fold.node_facts import SETTLING_NS
from joulie_projections.fold.producers import LATER_LIMIT
from joulie_projections.fold.sequence import DECISIONS, fold
from joulie_projections.pods.load import NO_LOAD, Load, load_of, total_of
from joulie_projections.state.rows import encode, tables_of
from joulie_projections.state.state import ClusterState, PodState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.facility import halls_of

ANY = st.integers(0, ANY_FACTS - 1).map(any_fact)
FACTS = st.lists(ANY, max_size=30)
SEEN = st.builds(
    lambda pod, fast, devices, cores: bound(
        pod, "n", performance=fast, devices=devices, cores=cores
    ),
    st.sampled_from(["p", "p", "q"]),
    st.booleans(),
    st.none() | st.integers(0, 2),
    st.integers(0, 3),
)
# About two pods on a node, which are seen again and again, changed or not.
OF_PODS = st.one_of(
    SEEN,
    SEEN,
    SEEN,
    st.just(bound("p", "m")),
    st.just(power("n", 300)),
    st.builds(PodFinished, uid=st.sampled_from(["p", "q"])),
    st.builds(PodGone, uid=st.sampled_from(["p", "q"])),
)
ORDER = st.randoms(use_true_random=False)


def folded(log: list[Record]) -> ClusterState:
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    fold(draft, log, 0)
    draft.commit()
    return cluster_state


def rows_without_producers(cluster_state: ClusterState) -> dict[tuple[str, str], bytes]:
    """All rows except those of producers."""
    tables = tables_of(cluster_state).items()
    return {
        (table, key): encode(state)
        for table, states in tables
        for key, state in states.items()
        if table != "producer"
    }


# --- every event on every state ---------------------------------------------------------------


@given(before=FACTS)
@settings(deadline=None, max_examples=50)
def test_every_type_of_fact_folds_into_every_cluster_state(before: list[Fact]) -> None:
    cluster_state = folded(records(*before))
    every = [event for event in one_of_each("n1", "p1") if event.TYPE not in DECISIONS]

    result = fold(Draft(cluster_state), records(*every, name="another", boot="b2"), 0)

    assert (result.poison, result.duplicates) == ([], 0)


@given(facts=FACTS)
@settings(deadline=None, max_examples=60)
def test_the_load_of_nodes_equals_a_recount(facts: list[Fact]) -> None:
    cluster_state = folded(records(*facts))
    recount: dict[str, Load] = {}
    for pod in cluster_state.pods.values():
        if pod.node and not pod.finished:
            recount[pod.node] = recount.get(pod.node, NO_LOAD) + load_of(pod.pod)

    assert {name: node.load for name, node in cluster_state.nodes.items() if node.pods} == recount
    assert all(node.load == NO_LOAD for node in cluster_state.nodes.values() if not node.pods)


@given(facts=st.lists(OF_PODS, min_size=2, max_size=20))
@settings(deadline=None, max_examples=200)
def test_the_counts_of_nodes_equal_a_recount_also_of_pods_that_change(facts: list[Fact]) -> None:
    cluster_state = folded(records(*facts))
    running = [pod for pod in cluster_state.pods.values() if pod.node and not pod.finished]

    for name, node in cluster_state.nodes.items():
        here = [pod.pod for pod in running if pod.node == name]
        assert node.load == total_of(map(load_of, here))
        assert node.pods == len(here)
        assert node.performance_pods == sum(pod.workload == "performance" for pod in here)


@given(facts=FACTS)
@settings(deadline=None, max_examples=60)
def test_arrivals_are_running_pods_that_the_last_reading_may_not_include(facts: list[Fact]) -> None:
    cluster_state = folded(records(*facts))

    for name, node in cluster_state.nodes.items():
        for arrival in node.arrivals:
            pod = cluster_state.pods[arrival.uid]
            assert (pod.node, pod.finished, pod.bound_at) == (name, False, arrival.at)
            assert arrival.load == load_of(pod.pod)
            assert not node.samples or node.samples[-1].at < arrival.at + SETTLING_NS


# --- lost, repeated and late messages ---------------------------------------------------------


@given(facts=st.lists(ANY, min_size=2, max_size=30), data=st.data())
@settings(deadline=None, max_examples=60)
def test_any_lost_message_is_recorded_as_missing(facts: list[Fact], data: st.DataObject) -> None:
    log = records(*(fact for fact in facts if sender_of(fact) == "tester"))
    assume(log)
    lost = data.draw(st.sampled_from(log))
    beside = [record for record in log if record.stream is lost.stream]
    assume(lost is not beside[-1])

    cluster_state = folded([record for record in log if record is not lost])

    [life] = cluster_state.producers[f"{FAMILIES[lost.stream][0]}:tester"].lives
    assert (life.high, life.missing, life.lost) == (len(beside), (lost.sequence,), 0)


@given(facts=FACTS.filter(bool), data=st.data())
@settings(deadline=None, max_examples=60)
def test_any_repeated_message_is_a_duplicate_and_changes_nothing(
    facts: list[Fact], data: st.DataObject
) -> None:
    log = records(*facts)
    again = log[data.draw(st.integers(0, len(log) - 1))]
    place = data.draw(st.integers(log.index(again) + 1, len(log)))
    repeated = [*log[:place], again, *log[place:]]

    assert fold(Draft(ClusterState()), repeated, 0).duplicates == 1
    assert rows_without_producers(folded(repeated)) == rows_without_producers(folded(log))


LIVES: dict[str, list[Fact]] = {
    "waits": [pending("a")],
    "runs": [pending("b"), bound("b", "n1")],
    "ends": [pending("c"), bound("c", "n1"), PodFinished(uid="c")],
    "goes": [pending("d"), bound("d", "n2"), PodFinished(uid="d"), PodGone(uid="d")],
}


@given(draw=ORDER)
@settings(deadline=None, max_examples=100)
def test_pods_do_not_depend_on_the_order_of_a_producers_messages(
    draw: random.Random,
) -> None:
    log = records(*(fact for life in LIVES.values() for fact in life))
    shuffled = draw.sample(log, len(log))

    cluster_state = folded(shuffled)

    there = {uid: pod.node for uid, pod in cluster_state.pods.items() if not pod.finished}
    assert there == {"a": "", "b": "n1"}
    assert {name: node.pods for name, node in cluster_state.nodes.items() if node.pods} == {"n1": 1}


@pytest.mark.parametrize(
    ("facts", "late", "left"),
    [
        pytest.param([bound("p", "n"), PodGone(uid="p")], 0, {}, id="bound after deletion"),
        pytest.param([pending("p"), PodGone(uid="p")], 0, {}, id="pending after deletion"),
        pytest.param([bound("p", "n"), PodFinished(uid="p")], 0, {}, id="bound after it finished"),
        pytest.param(
            [bound("p", "n"), power("n", 1)],
            0,
            {"p": PodState(pod=bound("p", "n").pod, node="n", bound_at=noon())},
            id="bound late and not superseded",
        ),
    ],
)
def test_a_late_message_is_folded_unless_it_is_superseded(
    facts: list[Fact], late: int, left: dict[str, PodState]
) -> None:
    sent = records(*facts)

    assert folded([*sent[:late], *sent[late + 1 :], sent[late]]).pods == left


def test_a_late_sighting_of_a_node_does_not_replace_a_newer_one() -> None:
    old, new = records(node_seen("n", power_profile="eco"), node_seen("n"))

    assert folded([new, old]).nodes["n"].labels == {"joulie.io/managed": "true"}


def test_a_late_deletion_does_not_remove_a_node_that_was_seen_later() -> None:
    first, gone, back = records(node_seen("n"), NodeGone(node="n"), node_seen("n"))

    assert folded([first, back, gone]).nodes["n"].present


def test_hardware_is_not_superseded_by_a_sighting_of_the_node() -> None:
    found, seen = records(hardware("n"), node_seen("n"))

    assert folded([seen, found]).nodes["n"].hardware == hardware("n")


def test_later_numbers_are_kept_only_while_numbers_are_missing() -> None:
    sent = records(node_seen("n"), pending("a"), pending("b"), pending("c"))

    [missing] = folded(sent[1:3]).producers["obs:tester"].lives
    [whole] = folded([*sent[1:3], sent[0], sent[3]]).producers["obs:tester"].lives

    assert missing.later == {"pod a": 2, "pod b": 3}
    assert (whole.missing, whole.later) == ((), {})


def test_the_number_of_later_numbers_is_bounded() -> None:
    sent = records(node_seen("n"), *(pending(f"p{number}") for number in range(LATER_LIMIT + 9)))

    [life] = folded(sent[1:]).producers["obs:tester"].lives

    assert len(life.later) == LATER_LIMIT
    assert min(life.later.values()) == 2 + 9


@given(facts=FACTS, draw=ORDER)
@settings(deadline=None, max_examples=60)
def test_producers_of_different_nodes_can_be_merged_in_any_order(
    facts: list[Fact], draw: random.Random
) -> None:
    here = records(*(power("a", number) for number in range(5)), name="here")
    there = records(*(power("b", number) for number in range(5)), name="there")
    start = records(*facts, node_seen("a"), node_seen("b"), start_s=-60)
    queues = [list(here), list(there)]
    merged: list[Record] = []
    while any(queues):
        merged.append(draw.choice([q for q in queues if q]).pop(0))

    assert rows_without_producers(folded([*start, *merged])) == rows_without_producers(
        folded([*start, *here, *there])
    )


# --- twin columns -----------------------------------------------------------------------------


@given(facts=FACTS)
@settings(deadline=None, max_examples=50)
def test_twin_columns_of_an_earlier_position_never_change(facts: list[Fact]) -> None:
    cluster_state, twin_columns = ClusterState(), TwinColumns.empty()
    seen: list[tuple[TwinColumns, dict[str, bytes]]] = []
    for record in records(*facts):
        draft = Draft(cluster_state)
        fold(draft, [record], 0)
        changed = dict(draft.nodes.changes)
        draft.commit()
        twin_columns = twin_columns.following(cluster_state, changed)
        seen.append((twin_columns, content(twin_columns)))

    assert all(content(earlier) == expected for earlier, expected in seen)
    assert (
        twin_columns.rows
        == TwinColumns.of(cluster_state.nodes, 0, halls_of(cluster_state.facilities)).rows
    )


def content(twin_columns: TwinColumns) -> dict[str, bytes]:
    return {name: column.tobytes() for name, column in twin_columns.columns.items()}


# --- memory -----------------------------------------------------------------------------------

MEASURE = """
from bus_kit import bound, caps, eco, hardware, node_seen, power, records
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.state.state_changes import Draft
from joulie_projections.state.rows import changed_rows, empty_digests
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState

state, digests = ClusterState(), empty_digests()


def commit(*facts, name, start_s=0.0):
    draft = Draft(state)
    fold(draft, records(*facts, name=name, start_s=start_s, step_s=0), 0)
    digests.update(changed_rows(draft.changed(), digests, state.fingerprints)[1])
    draft.commit()


names = [f"node-{number:05d}.example.internal" for number in range(5000)]
def facts_of(name):
    pods = (bound(f"uid-of-a-pod-{name}-{number}", name) for number in range(10))
    return (node_seen(name), hardware(name, gpus=8), eco(name), caps(name, 60), *pods)


for first in range(0, len(names), 10):
    facts = [fact for name in names[first : first + 10] for fact in facts_of(name)]
    commit(*facts, name=f"watcher-{first}")
for number in range(31):
    readings = (power(name, 300) for name in names)
    commit(*readings, name=f"meter-{number}", start_s=60 + number * 10)
columns = TwinColumns.of(state.nodes, 0)
samples = sum(len(node.samples) for node in state.nodes.values())
# getrusage would start with the peak of the parent process; VmHWM is of this process alone.
[kib] = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(len(state.nodes), len(state.pods), samples, len(columns), kib // 1024)
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_cluster_state_of_5000_nodes_with_pods_and_readings_takes_less_than_150_mb() -> None:
    run = subprocess.run(
        [sys.executable, "-c", MEASURE],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    nodes, pods, samples, rows, megabytes = (int(value) for value in run.stdout.split())
    assert (nodes, pods, samples, rows) == (5000, 50_000, 155_000, 5000)
    assert megabytes < 150
