"""The fold: the same facts in the same order give the same state, however they are batched."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import (
    ANY_FACTS,
    any_fact,
    ask,
    asleep,
    bound,
    caps,
    completed,
    draining,
    eco,
    hardware,
    node_seen,
    noon,
    pending,
    performance,
    plan_made,
    polled,
    power,
    producer,
    records,
    waking,
)
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    FACT_TYPES,
    CapsSet,
    Fact,
    NodeGone,
    NodeSeen,
    PodBound,
    PodFinished,
    PodGone,
    Profile,
)
from joulie_bus.events.codec import Origin, open_envelope, origin_of
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream, agent_name, cap_writer_name
from joulie_projections.fold.node_facts import cluster_of, with_sample
from joulie_projections.fold.producers import (
    KEPT_LIVES,
    MISSING_LIMIT,
    NAMES_LIMIT,
    RETIRED_LIVES,
    is_new,
)
from joulie_projections.fold.sequence import fold
from joulie_projections.state.rows import encode, tables_of
from joulie_projections.state.state import (
    ClusterRow,
    ClusterState,
    FacilityReading,
    FacilityState,
    Life,
    NodeState,
    PodState,
    ProducerState,
    Sample,
)
from joulie_projections.state.state_changes import Draft

FACTS = st.lists(st.integers(0, ANY_FACTS - 1).map(any_fact), max_size=40)
Rows = dict[tuple[str, str], bytes]


def folded(*batches: Sequence[Record]) -> ClusterState:
    """One draft per batch."""
    cluster_state = ClusterState()
    for batch in batches:
        draft = Draft(cluster_state)
        fold(draft, batch, 0)
        draft.commit()
    return cluster_state


def after(*facts: Fact) -> ClusterState:
    return folded(records(*facts))


def not_ready(node: str) -> NodeSeen:
    return replace(node_seen(node), ready=False)


def cordoned(node: str) -> NodeSeen:
    return replace(node_seen(node), schedulable=False)


def rows(cluster_state: ClusterState) -> Rows:
    tables = tables_of(cluster_state).items()
    return {
        (table, key): encode(state) for table, states in tables for key, state in states.items()
    }


def test_the_generator_produces_every_type_of_fact() -> None:
    kinds = {type(any_fact(choice)) for choice in range(len(FACT_TYPES))}

    assert kinds == set(FACT_TYPES)


@given(facts=FACTS)
@settings(deadline=None, max_examples=100)
def test_one_draft_and_a_draft_per_fact_give_the_same_rows(facts: list[Fact]) -> None:
    log = records(*facts)

    assert rows(folded(*([record] for record in log))) == rows(folded(log))


@given(facts=FACTS, cut=st.integers(0, 40))
@settings(deadline=None, max_examples=60)
def test_two_batches_give_the_rows_of_one(facts: list[Fact], cut: int) -> None:
    log = records(*facts)

    assert rows(folded(log[:cut], log[cut:])) == rows(folded(log))


def is_remembered(record: Record, gone: set[str]) -> bool:
    """The numbers of an agent are dropped with its node."""
    origin = origin_of(open_envelope(record.data, "here").id, "here")
    names = {name(node) for node in gone for name in (agent_name, cap_writer_name)}
    return origin.producer not in names


@given(facts=FACTS, again=st.lists(st.integers(0, 39), max_size=10))
@settings(deadline=None, max_examples=60)
def test_repeated_messages_change_nothing(facts: list[Fact], again: list[int]) -> None:
    log = records(*facts)
    gone = {fact.node for fact in facts if isinstance(fact, NodeGone)}
    repeats = [
        log[number] for number in again if number < len(log) and is_remembered(log[number], gone)
    ]

    assert rows(folded(log, repeats)) == rows(folded(log))


@given(facts=FACTS)
@settings(deadline=None, max_examples=100)
def test_pod_counts_of_nodes_equal_a_recount(facts: list[Fact]) -> None:
    cluster_state = after(*facts)
    running = [pod for pod in cluster_state.pods.values() if pod.node and not pod.finished]

    assert {name: node.pods for name, node in cluster_state.nodes.items() if node.pods} == Counter(
        pod.node for pod in running
    )
    assert {
        name: node.performance_pods
        for name, node in cluster_state.nodes.items()
        if node.performance_pods
    } == Counter(pod.node for pod in running if pod.pod.workload == "performance")


@given(facts=FACTS)
@settings(deadline=None, max_examples=60)
def test_no_two_nodes_share_a_row(facts: list[Fact]) -> None:
    ordinals = [node.ordinal for node in after(*facts).nodes.values()]

    assert len(set(ordinals)) == len(ordinals)


@given(before=FACTS, discarded=FACTS)
@settings(deadline=None, max_examples=60)
def test_a_discarded_draft_does_not_change_the_cluster_state(
    before: list[Fact], discarded: list[Fact]
) -> None:
    cluster_state = after(*before)
    before_fold = rows(cluster_state)

    fold(Draft(cluster_state), records(*discarded, name="another"), 0)

    assert rows(cluster_state) == before_fold


# --- nodes ------------------------------------------------------------------------------------


def test_the_last_fact_of_each_type_sets_the_fields_of_a_node() -> None:
    seen, found = node_seen("n", cores=96, gpus=8, power_profile="eco"), hardware("n", gpus=8)

    cluster_state = after(seen, found, power("n", 300), performance("n"), caps("n", 60, 70))

    assert cluster_state.nodes["n"] == NodeState(
        ordinal=0,
        at=noon(4),
        uid="uid-n",
        present=True,
        labels={"joulie.io/managed": "true", "joulie.io/power-profile": "eco"},
        ready=True,
        schedulable=True,
        cpu_milli=96_000,
        gpus=8,
        hardware=found,
        profile="performance",
        cpu_cap_pct=60,
        gpu_cap_pct=70,
        class_at=noon(3),
        caps_at=noon(4),
        samples=(Sample(noon(2), 300_000),),
        source="kepler",
    )


def test_a_node_has_the_time_of_its_last_class_and_cap_change() -> None:
    node = after(performance("n"), draining("n"), power("n", 5), caps("n"), completed("n"))

    assert (node.nodes["n"].class_at, node.nodes["n"].caps_at) == (noon(4), noon(3))


def test_caps_in_watts_are_kept_in_addition_to_the_percentage() -> None:
    fact = CapsSet(plan="p", node="n", cpu_cap_pct=60, cpu_cap_mw_per_socket=240_000, gpu_cap_mw=5)
    node = after(fact).nodes["n"]

    assert (node.cpu_cap_pct, node.cpu_cap_mw_per_socket) == (60, 240_000)
    assert (node.gpu_cap_pct, node.gpu_cap_mw) == (None, 5)


def test_missing_caps_remove_the_caps() -> None:
    node = after(caps("n", 60, 60), caps("n")).nodes["n"]

    assert (node.cpu_cap_pct, node.gpu_cap_pct) == (None, None)


def test_a_profile_ends_the_drain_and_a_drain_keeps_the_profile() -> None:
    cluster_state = after(
        performance("a"), draining("a"), performance("b"), draining("b"), eco("b")
    )

    a, b = cluster_state.nodes["a"], cluster_state.nodes["b"]
    assert (a.profile, a.draining, b.profile, b.draining) == ("performance", True, "eco", False)


@pytest.mark.parametrize("profile", ["performance", "eco"])
def test_a_completed_transition_sets_the_profile_and_ends_the_drain(profile: Profile) -> None:
    node = after(performance("n"), draining("n"), completed("n", profile)).nodes["n"]

    assert (node.profile, node.draining) == (profile, False)


@pytest.mark.parametrize(
    ("facts", "power_state"),
    [
        pytest.param([node_seen("n")], "", id="awake"),
        pytest.param([asleep("n")], "asleep", id="asleep"),
        pytest.param([asleep("n"), node_seen("n")], "asleep", id="asleep and still ready"),
        pytest.param([asleep("n"), waking("n")], "waking", id="waking"),
        pytest.param([asleep("n"), waking("n"), node_seen("n")], "", id="awake"),
        pytest.param([waking("n"), asleep("n")], "asleep", id="asleep again"),
        pytest.param([waking("n"), not_ready("n")], "waking", id="still booting"),
        pytest.param([asleep("n"), eco("n"), power("n", 5)], "asleep", id="other facts"),
        pytest.param([node_seen("n"), asleep("n"), waking("n")], "", id="it never slept"),
        pytest.param([waking("n"), cordoned("n")], "waking", id="ready and still cordoned"),
    ],
)
def test_a_plan_sets_the_power_state_and_a_ready_sighting_ends_waking(
    facts: list[Fact], power_state: str
) -> None:
    assert after(*facts).nodes["n"].power_state == power_state


def test_a_node_is_empty_since_its_last_pod_ended() -> None:
    facts = (node_seen("n"), bound("a", "n"), bound("b", "n"), PodFinished(uid="a"))

    assert after(*facts).nodes["n"].emptied_at == 0
    assert after(*facts, PodFinished(uid="b")).nodes["n"].emptied_at == noon(4)
    assert after(*facts, PodGone(uid="b"), PodGone(uid="a")).nodes["n"].emptied_at == noon(4)


@pytest.mark.parametrize(("exempt", "counted"), [("daemonset", 1), ("mirror", 1), ("critical", 0)])
def test_only_pods_that_belong_to_a_node_leave_it_empty(exempt: str, counted: int) -> None:
    daemon = PodBound(pod=replace(ask("d"), exempt=exempt), node="n")
    facts = (node_seen("n"), daemon, bound("a", "n"), PodFinished(uid="a"))

    node = after(*facts).nodes["n"]

    assert (node.pods, node.daemon_pods) == (1, counted)
    assert node.emptied_at == (noon(3) if counted else 0)
    assert after(*facts, PodGone(uid="d")).nodes["n"].daemon_pods == 0


def test_a_plan_without_changes_updates_the_time_of_the_plan() -> None:
    cluster_state = after(plan_made("first"), power("n", 1), plan_made("second"))

    assert (cluster_state.planned_at, cluster_state.cluster["cluster"].plan) == (
        noon(2),
        plan_made("second"),
    )


def test_a_deleted_node_is_removed() -> None:
    assert after(node_seen("n"), power("n", 300), NodeGone(node="n")).nodes == {}


def test_a_recreated_node_starts_without_history() -> None:
    cluster_state = after(node_seen("n"), power("n", 300), NodeGone(node="n"), node_seen("n"))

    assert (cluster_state.nodes["n"].ordinal, cluster_state.nodes["n"].samples) == (0, ())


def test_a_node_takes_the_smallest_free_row() -> None:
    three = [node_seen(name) for name in "abc"]
    left = [NodeGone(node="b"), NodeGone(node="a")]

    cluster_state = after(*three, *left, node_seen("d"), node_seen("e"), node_seen("f"))

    rows_by_name = {name: node.ordinal for name, node in cluster_state.nodes.items()}
    assert rows_by_name == {"c": 2, "d": 0, "e": 1, "f": 3}


@given(facts=FACTS)
@settings(deadline=None, max_examples=60)
def test_every_row_belongs_to_a_node_or_is_free(facts: list[Fact]) -> None:
    cluster_state = after(*facts)
    cluster = cluster_state.cluster.get("cluster", ClusterRow())
    used = [node.ordinal for node in cluster_state.nodes.values()]

    assert sorted([*used, *cluster.free_rows]) == list(range(cluster.rows))


def test_pods_of_a_deleted_node_are_counted_when_it_is_recreated() -> None:
    gone = after(
        node_seen("n"), eco("n"), bound("p", "n", performance=True), NodeGone(node="n")
    ).nodes["n"]
    back = after(
        node_seen("n"), bound("p", "n", performance=True), NodeGone(node="n"), node_seen("n")
    ).nodes["n"]

    assert (gone.present, gone.at, gone.pods, gone.performance_pods) == (False, noon(3), 1, 1)
    assert (back.present, back.pods, back.performance_pods) == (True, 1, 1)


def test_a_deleted_node_is_removed_with_its_last_pod() -> None:
    cluster_state = after(node_seen("n"), bound("p", "n"), NodeGone(node="n"), PodGone(uid="p"))

    assert (cluster_state.nodes, cluster_state.pods) == ({}, {})


# --- the facility -----------------------------------------------------------------------------


def test_a_failed_poll_keeps_the_last_reading_and_its_time() -> None:
    cluster_state = after(polled(ambient_c=24.5, it_w=30_000), polled(ambient_c=-3), polled())

    assert cluster_state.facilities == {
        "hall": FacilityState(
            ambient_mdeg=FacilityReading(noon(1), -3000), it_mw=FacilityReading(noon(0), 30_000_000)
        )
    }


# --- pods -------------------------------------------------------------------------------------


def test_a_pod_that_is_bound_before_its_node_is_seen_counts() -> None:
    cluster_state = after(bound("p", "n"), node_seen("n"))

    assert (cluster_state.nodes["n"].pods, cluster_state.nodes["n"].present) == (1, True)


def test_a_bound_pod_does_not_become_pending() -> None:
    cluster_state = after(node_seen("n"), bound("p", "n"), pending("p"))

    assert cluster_state.pods["p"] == PodState(pod=pending("p").pod, node="n", bound_at=noon(1))


def test_a_second_binding_of_a_pod_is_ignored() -> None:
    cluster_state = after(bound("p", "a"), bound("p", "b"))

    assert (
        cluster_state.pods["p"].node,
        cluster_state.nodes["a"].pods,
        "b" in cluster_state.nodes,
    ) == ("a", 1, False)


def test_a_finished_pod_is_kept_and_no_longer_counted() -> None:
    cluster_state = after(
        node_seen("n"), bound("p", "n"), PodFinished(uid="p"), PodFinished(uid="p")
    )

    assert (cluster_state.pods["p"].finished, cluster_state.nodes["n"].pods) == (True, 0)


@pytest.mark.parametrize("last", [bound("p", "n"), pending("p")], ids=["bound", "pending"])
def test_a_finished_pod_stays_finished(last: Fact) -> None:
    cluster_state = after(node_seen("n"), bound("p", "n"), PodFinished(uid="p"), last)

    assert (cluster_state.pods["p"].finished, cluster_state.nodes["n"].pods) == (True, 0)


# --- readings ---------------------------------------------------------------------------------


def samples_every(step_s: float, count: int) -> tuple[Sample, ...]:
    samples: tuple[Sample, ...] = ()
    for number in range(count):
        samples = with_sample(samples, Sample(noon(number * step_s), number))
    return samples


def test_the_newest_reading_is_always_kept() -> None:
    assert samples_every(0.1, 77)[-1] == Sample(noon(76 * 0.1), 76)


def test_frequent_readings_are_kept_at_a_minimum_spacing() -> None:
    times = [sample.at - noon() for sample in samples_every(1, 26)]

    assert [time // 10**9 for time in times] == [0, 10, 20, 25]


def test_readings_older_than_five_minutes_are_dropped() -> None:
    samples = samples_every(10, 100)

    assert (samples[0].at, len(samples)) == (noon(990 - 300), 31)


@given(steps=st.lists(st.integers(0, 20_000), min_size=1, max_size=80))
@settings(deadline=None, max_examples=60)
def test_at_most_32_readings_are_kept_and_the_newest_is_last(steps: list[int]) -> None:
    samples: tuple[Sample, ...] = ()
    at = noon()
    for step_ms in steps:
        at += step_ms * 1_000_000
        samples = with_sample(samples, Sample(at, 1))

    assert samples[-1:] == (Sample(at, 1),)
    assert len(samples) <= 32


# --- producers --------------------------------------------------------------------------------


def received(
    *numbers: int, boot: str = "b1", draft: Draft | None = None
) -> tuple[list[bool], Draft]:
    draft = draft or Draft(ClusterState())
    return [is_new(draft, Origin("op", boot, number)) for number in numbers], draft


def life(draft: Draft) -> Life:
    state = draft.producers.get("op")
    assert state is not None
    return state.lives[-1]


def test_numbers_in_order_are_new_once() -> None:
    new, draft = received(1, 2, 3, 2, 3, 1)

    assert (new, life(draft)) == ([True, True, True, False, False, False], Life("b1", 3))


def test_a_missing_number_is_recorded() -> None:
    _, draft = received(1, 4)

    assert life(draft) == Life("b1", 4, missing=(2, 3))


def test_a_late_number_is_accepted_once() -> None:
    new, draft = received(1, 4, 2, 2, 4)

    assert (new, life(draft)) == (
        [True, True, True, False, False],
        Life("b1", 4, missing=(3,)),
    )


def test_missing_numbers_above_the_limit_count_as_lost() -> None:
    _, draft = received(1, MISSING_LIMIT + 12)

    assert (len(life(draft).missing), life(draft).lost) == (MISSING_LIMIT, 10)
    assert life(draft).missing[-1] == MISSING_LIMIT + 11


def test_a_restarted_producer_starts_at_one_and_its_previous_life_is_kept() -> None:
    _, draft = received(1, 2)
    new, _ = received(1, boot="b2", draft=draft)
    late, _ = received(2, 3, draft=draft)

    assert (new, late) == ([True], [False, True])


def test_a_continuing_life_does_not_change_the_other_lives() -> None:
    _, draft = received(1, 3)
    received(1, 4, 5, boot="b2", draft=draft)

    lives = Life("b1", 3, missing=(2,)), Life("b2", 5, missing=(2, 3))
    assert draft.producers.get("op") == ProducerState(lives)


def test_the_number_of_kept_lives_is_bounded() -> None:
    draft = Draft(ClusterState())
    for boot in range(KEPT_LIVES + 3):
        received(1, boot=f"b{boot}", draft=draft)

    state = draft.producers.get("op")
    assert state is not None
    assert [life.boot for life in state.lives] == ["b3", "b4", "b5", "b6"]


def test_messages_of_a_retired_life_are_rejected() -> None:
    draft = Draft(ClusterState())
    for boot in range(KEPT_LIVES + 2):
        received(1, 2, boot=f"b{boot}", draft=draft)

    for retired, number in (("b0", 1), ("b1", 9)):
        with pytest.raises(Undecodable, match="restarted at least 4 times since then"):
            received(number, boot=retired, draft=draft)


def test_the_number_of_retired_lives_is_bounded() -> None:
    draft = Draft(ClusterState())
    for boot in range(RETIRED_LIVES + KEPT_LIVES + 3):
        received(1, boot=f"b{boot}", draft=draft)

    state = draft.producers.get("op")
    assert state is not None
    assert (len(state.retired), state.retired[0]) == (RETIRED_LIVES, "b3")


def test_a_continuing_life_keeps_the_retired_lives() -> None:
    draft = Draft(ClusterState())
    sent = [record for boot in range(KEPT_LIVES + 1) for record in two_readings(f"b{boot}")]
    fold(draft, sent, 0)

    state = draft.producers.get("tel:tester")
    assert state is not None
    assert state.retired == ("b0",)


def two_readings(boot: str) -> list[Record]:
    events_of = producer(boot=boot)
    messages = [events_of.stamp(power("n", watts)) for watts in (1, 2)]
    return [Record(Stream.TEL, 1, noon(), each.data, each.subject) for each in messages]


def test_the_number_of_producers_of_a_family_is_bounded() -> None:
    draft = Draft(ClusterState())
    for number in range(NAMES_LIMIT):
        is_new(draft, Origin(f"obs:p{number}", "b", 1))
    received(1, draft=draft)  # of another family

    with pytest.raises(
        Undecodable, match=r"4000 producers .* names that stay the same over restarts"
    ):
        is_new(draft, Origin("obs:one-more", "b", 1))

    assert is_new(draft, Origin("obs:p7", "another life", 1))
    assert draft.producers.get("obs:one-more") is None


def test_the_row_of_an_agent_is_deleted_with_its_node() -> None:
    events_of = producer(agent_name("n.1"))
    first, later = (events_of.stamp(power("n.1", watts)) for watts in (100, 200))
    draft = Draft(ClusterState())
    reading = Record(Stream.TEL, 1, noon(), first.data, first.subject)
    fold(draft, [reading, *records(NodeGone(node="n.1"))], 0)

    assert draft.producers.get("agent:agent-n=2E1") is None
    assert cluster_of(draft).producers == {"agent": 0, "obs": 1}

    # The agent returns and continues its numbers: none is missing, and an earlier one is a repeat.
    again = reading._replace(data=later.data)
    folded = fold(draft, [again, reading], 2)
    assert folded.duplicates == 1
    assert draft.producers.get("agent:agent-n=2E1") == ProducerState((Life("b1", 2),))


@given(order=st.permutations(range(1, 12)), repeats=st.lists(st.integers(1, 11), max_size=8))
@settings(deadline=None, max_examples=60)
def test_in_any_order_each_number_is_new_exactly_once(order: list[int], repeats: list[int]) -> None:
    new, draft = received(*order, *repeats)

    assert new == [True] * len(order) + [False] * len(repeats)
    assert life(draft) == Life("b1", 11)


def test_a_finished_performance_pod_is_no_longer_counted() -> None:
    facts = (node_seen("n"), bound("a", "n", performance=True), bound("b", "n"))
    finished = after(*facts, PodFinished(uid="a")).nodes["n"]

    assert (finished.pods, finished.performance_pods) == (1, 0)
    assert after(*facts, PodFinished(uid="b")).nodes["n"].performance_pods == 1
