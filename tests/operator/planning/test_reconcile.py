import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import (
    ANY_FACTS,
    NOON,
    SECOND,
    any_fact,
    ask,
    bound,
    draining,
    hardware,
    node_seen,
    noon,
    pending,
    producer,
    records,
)
from joulie_bus.errors import PolicyFailed
from joulie_bus.events import (
    AnyEvent,
    CapsSet,
    DrainingBegun,
    NodePlan,
    PlanMade,
    PodAsk,
    PodBound,
    PodGone,
    PodPending,
    Profile,
    ProfileAssigned,
    TransitionCompleted,
    codec,
)
from joulie_operator.facts.facts_from_objects import PodKind
from joulie_operator.planning.density import density
from joulie_operator.planning.eligible import candidates, demand_of, is_eligible
from joulie_operator.planning.guard import DWELLS, LIMITED, UNKNOWN, WAITS
from joulie_operator.planning.policies import BUILT_IN, Candidate, Demand, Policy, Share
from joulie_operator.planning.reconcile import (
    CODE_VERSION,
    LoadedPolicy,
    Plan,
    PlanBasis,
    plan,
    recompute,
)
from joulie_operator.planning.rules import Rules
from joulie_projections.fold.sequence import fold
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.state.state import ClusterState, NodeState, PodState
from joulie_projections.state.state_changes import Draft

GPUS = hardware("n", gpus=8)
MANAGED = {"joulie.io/managed": "true"}
SETTLED_S = 60.0
USUAL = Rules(equal_nodes="by-name")  # easier to read in examples
NAMED = "the policy names it"


def node(**fields: Any) -> NodeState:
    """A ready, managed node with GPUs, unchanged for a minute."""
    usual = NodeState(
        ordinal=0,
        at=NOON,
        present=True,
        ready=True,
        schedulable=True,
        labels=MANAGED,
        hardware=GPUS,
        class_at=noon(-SETTLED_S),
    )
    return replace(usual, **fields)


def eco(**fields: Any) -> NodeState:
    return replace(node(profile="eco", cpu_cap_pct=60, gpu_cap_pct=60), **fields)


def performance(**fields: Any) -> NodeState:
    return replace(node(profile="performance", cpu_cap_pct=100, gpu_cap_pct=100), **fields)


def cluster_state_of(*pods: PodState, **nodes: NodeState) -> ClusterState:
    cluster_state = ClusterState()
    cluster_state.nodes.update(nodes)
    cluster_state.pods.update({pod.pod.uid: pod for pod in pods})
    return cluster_state


def wanting(profile: Profile, names: Sequence[str] = ("n",)) -> LoadedPolicy:
    count = len(names) if profile == "performance" else 0
    return LoadedPolicy(lambda _: Share(count, pinned=dict.fromkeys(names, profile)))


def planned(state: NodeState, profile: Profile, rules: Rules = USUAL, **basis: Any) -> Plan:
    return plan(
        cluster_state_of(n=state), wanting(profile), rules, PlanBasis(7, NOON)._replace(**basis)
    )


def becomes(profile: Profile, because: str) -> ProfileAssigned:
    return ProfileAssigned(plan="p7", node="n", profile=profile, because=f"{because}; {NAMED}")


def completed(because: str) -> TransitionCompleted:
    return TransitionCompleted(plan="p7", node="n", profile="eco", because=f"{because}; {NAMED}")


def drains(pods: int) -> DrainingBegun:
    because = f"eco is wanted and performance pods run here; {NAMED}"
    return DrainingBegun(plan="p7", node="n", performance_pods=pods, because=because)


def capped(cpu: int, gpu: int | None = None) -> CapsSet:
    return CapsSet(plan="p7", node="n", cpu_cap_pct=cpu, gpu_cap_pct=gpu)


EMPTY = "eco is wanted and no performance pod runs here"
WANTED, AGAIN = "performance is wanted", "performance is wanted again"
GONE, LATE = "the last performance pod is gone", "the deadline for draining has passed"
NEW = node(class_at=0)


@pytest.mark.parametrize(
    ("state", "profile", "expected"),
    [
        (NEW, "performance", [capped(100, 100), becomes("performance", WANTED)]),
        (NEW, "eco", [becomes("eco", EMPTY)]),
        (replace(NEW, performance_pods=1), "eco", [drains(1)]),
        (performance(), "performance", []),
        (performance(), "eco", [becomes("eco", EMPTY)]),
        (performance(pods=9), "eco", [becomes("eco", EMPTY)]),
        (performance(performance_pods=2), "eco", [drains(2)]),
        (performance(performance_pods=2), "performance", []),
        (performance(draining=True, performance_pods=1), "eco", []),
        (performance(draining=True), "eco", [completed(GONE)]),
        (
            performance(draining=True, performance_pods=1),
            "performance",
            [becomes("performance", AGAIN)],
        ),
        (eco(cpu_cap_pct=100, gpu_cap_pct=100), "eco", [capped(60, 60)]),
        (eco(cpu_cap_pct=100, performance_pods=1), "eco", []),
        (eco(cpu_cap_pct=100, class_at=noon(-4)), "eco", []),
        (eco(), "eco", []),
        (eco(), "performance", [capped(100, 100), becomes("performance", WANTED)]),
        (eco(cpu_cap_pct=70), "eco", [capped(60, 60)]),
        (eco(hardware=hardware("n"), gpu_cap_pct=None), "eco", []),
    ],
    ids=[
        "new to performance: caps first",
        "new to eco: class first",
        "new with performance pods drains",
        "performance stays",
        "performance to eco: class first",
        "standard pods do not matter",
        "performance pods make it drain",
        "performance pods on a performance node",
        "draining waits, caps unchanged",
        "drained: class first",
        "draining is cancelled",
        "settled eco gets its caps",
        "eco with a performance pod gets no caps",
        "eco that has not settled waits",
        "eco stays",
        "eco to performance: caps first",
        "caps that differ are set again",
        "without GPUs no GPU cap",
    ],
)
def test_the_events_of_a_node(state: NodeState, profile: Profile, expected: list[NodePlan]) -> None:
    assert planned(state, profile).events == expected


def test_a_deadline_sets_class_and_caps_at_once() -> None:
    draining = performance(draining=True, performance_pods=2)

    assert planned(draining, "eco", Rules(drain_deadline_s=60)).events == [
        completed(LATE),
        capped(60, 60),
    ]


@pytest.mark.parametrize(
    ("state", "rules", "why"),
    [
        (performance(draining=True, performance_pods=2), Rules(), WAITS),
        (performance(), Rules(dwell_s=61), DWELLS),
        (performance(), Rules(max_changes=1), ""),
    ],
)
def test_held_nodes_are_reported_with_the_reason(state: NodeState, rules: Rules, why: str) -> None:
    found = planned(state, "eco", rules)

    assert found.held == ({"n": why} if why else {})
    assert (f"1 held: {why}" in found.made.because) is bool(why)


# --- performance pods on a node that becomes eco ----------------------------------------------


def lived(*facts: AnyEvent) -> ClusterState:
    """The cluster state after these facts, one per second."""
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    fold(draft, records(*facts), 0)
    draft.commit()
    return cluster_state


def happens(cluster_state: ClusterState, *facts: AnyEvent, at_s: float = 500) -> None:
    """Folds facts at one time; by default half a minute before the next plan."""
    draft = Draft(cluster_state)
    fold(
        draft,
        records(*facts, name=f"later-{len(cluster_state.producers)}", start_s=at_s, step_s=0),
        0,
    )
    draft.commit()


def carried_on(cluster_state: ClusterState, **basis: Any) -> list[str]:
    """Makes one plan towards eco and folds it."""
    found = plan(cluster_state, wanting("eco"), USUAL, PlanBasis(7, noon(530))._replace(**basis))
    happens(cluster_state, *found.events)
    return [event.TYPE for event in found.events]


def on_node(phase: str, **metadata: str) -> AnyEvent:
    """A fact about a performance pod on the node, as the watcher publishes it."""
    named = {"uid": "a", "annotations": {"joulie.io/workload-class": "performance"}, **metadata}
    seen = {"metadata": named, "spec": {"nodeName": "n"}, "status": {"phase": phase}}
    return PodKind().fact(msgspec.convert(seen, Pod))


@pytest.mark.parametrize(
    "fact",
    [
        on_node("Pending"),
        on_node("Running"),
        on_node("Running", deletionTimestamp="2026-11-21T10:00:00Z"),
        on_node("Unknown"),
    ],
    ids=["pending", "running", "terminating", "unknown"],
)
def test_caps_stay_until_the_last_performance_pod_is_gone(fact: AnyEvent) -> None:
    cluster_state = lived(node_seen("n"), hardware("n"), fact)
    waiting = [carried_on(cluster_state) for _ in range(3)]
    caps = cluster_state.nodes["n"].cpu_cap_pct
    happens(cluster_state, PodGone(uid="a"))
    ending = [carried_on(cluster_state) for _ in range(3)]

    assert waiting == [["plan.draining-begun"], [], []]
    assert caps is None
    assert ending == [["plan.transition-completed"], ["plan.caps-set"], []]


def test_caps_stay_while_the_pods_of_the_node_are_unknown() -> None:
    cluster_state = lived(node_seen("n"), hardware("n"))
    steps = [carried_on(cluster_state, pods_known=known) for known in (False, True, False, True)]

    assert steps == [[], ["plan.profile-assigned"], [], ["plan.caps-set"]]


def test_a_node_with_unknown_pods_keeps_its_class_and_caps() -> None:
    lost = performance(ready=False)

    found = planned(lost, "eco")
    assert (found.events, found.made.nodes) == ([], 0)


def test_unknown_pods_do_not_block_transitions_to_performance() -> None:
    assert planned(eco(), "performance", pods_known=False).events[-1] == becomes(
        "performance", WANTED
    )
    assert planned(performance(), "eco", pods_known=False).held == {"n": UNKNOWN}


# --- the limit of changes ---------------------------------------------------------------------

CROWD = {f"n{at}": performance() for at in range(4)} | {f"e{at}": eco() for at in range(4)}


def swap(*, limit: int, crowd: dict[str, NodeState] = CROWD) -> Plan:
    """A plan that swaps performance and eco nodes."""
    pinned: dict[str, Profile] = {
        name: "performance" if name.startswith("e") else "eco" for name in crowd
    }
    policy = LoadedPolicy(lambda _: Share(4, pinned=pinned))
    return plan(
        cluster_state_of(**crowd), policy, USUAL._replace(max_changes=limit), PlanBasis(7, NOON)
    )


@pytest.mark.parametrize(
    ("limit", "changed"),
    [
        (0, ["e0", "e1", "e2", "e3", "n0", "n1", "n2", "n3"]),
        (6, ["e0", "e1", "e2", "e3", "n0", "n1"]),
        (1, ["e0"]),
    ],
)
def test_the_number_of_changes_is_limited_and_performance_goes_first(
    limit: int, changed: list[str]
) -> None:
    found = swap(limit=limit)

    assert [group[0].node for group in found.changes] == changed
    assert [name for name, why in found.held.items() if why == LIMITED] == sorted(
        set(CROWD) - set(changed)
    )


def test_changes_within_the_interval_count() -> None:
    recent = CROWD | {"x0": performance(class_at=noon(-59)), "x1": performance(caps_at=noon(-1))}
    found = swap(limit=3, crowd=recent)

    assert [group[0].node for group in found.changes] == ["e0", "x0", "x1"]


def test_changes_before_the_interval_do_not_count() -> None:
    found = swap(limit=1, crowd=CROWD | {"x": eco(class_at=noon(-60), labels={})})

    assert [group[0].node for group in found.changes] == ["e0"]


def test_the_limit_does_not_apply_to_the_end_of_draining() -> None:
    drained = performance(draining=True)

    assert planned(drained, "eco", Rules(max_changes=1)).events == [completed(GONE)]
    found = swap(limit=1, crowd=CROWD | {"n9": drained})
    assert [group[0].node for group in found.changes] == ["e0", "n9"]


# --- eligible nodes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (node(), True),
        (node(present=False), False),
        (node(ready=False), False),
        (node(schedulable=False), False),
        (node(labels={}), False),
        (node(labels={"joulie.io/managed": "false"}), False),
        (node(labels={**MANAGED, "joulie.io/reserved": "true"}), False),
        (node(labels={**MANAGED, "joulie.io/reserved": "false"}), True),
    ],
    ids=["fine", "gone", "not ready", "cordoned", "no label", "not managed", "reserved", "free"],
)
def test_only_managed_and_usable_nodes_are_planned(state: NodeState, expected: bool) -> None:
    assert is_eligible(state, MANAGED) is expected


def test_an_empty_selector_selects_every_node() -> None:
    assert is_eligible(node(labels={}), {})


def test_an_eligible_node_has_a_family_and_a_density() -> None:
    nodes = {
        "cpu": node(hardware=hardware("cpu", cores=192)),
        "gpu": node(hardware=hardware("gpu", cores=96, gpus=8)),
        "guessed": node(hardware=None, cpu_milli=96_000),
        "cordoned": node(schedulable=False),
    }

    assert candidates(nodes, USUAL) == [
        Candidate("gpu", "NVIDIA H100 SXM5", density(nodes["gpu"])),
        Candidate("cpu", "AMD EPYC 9654", 1 / 3),
        Candidate("guessed", "cpu", 1 / 6),
    ]


def performing_of(names: list[str], equal_nodes: str) -> list[bool]:
    """Which of these equal nodes are performance nodes, at a share of one half."""
    made = plan(
        cluster_state_of(**{name: node() for name in names}),
        LoadedPolicy(BUILT_IN["static_partition"]),
        USUAL._replace(equal_nodes=equal_nodes),
        PlanBasis(7, NOON),
    )
    chosen = {event.node: event for event in made.events if isinstance(event, ProfileAssigned)}
    return [chosen[name].profile == "performance" for name in names]


def test_equal_nodes_are_chosen_by_name_or_spread() -> None:
    names = [f"node-{number:04}" for number in range(1000)]
    spread = performing_of(names, "spread")

    assert performing_of(names, USUAL.equal_nodes) == [True] * 500 + [False] * 500
    assert sum(spread) == 500
    # kube-scheduler samples a contiguous part of its node list.
    assert all(30 <= sum(spread[at : at + 100]) <= 70 for at in range(900))


def test_spreading_does_not_override_density() -> None:
    names = [f"n{number}" for number in range(20)]
    dense = {name: node(hardware=hardware(name, cores=64)) for name in names[:10]}
    sparse = {name: node(hardware=hardware(name, cores=8)) for name in names[10:]}

    ordered = candidates(dense | sparse, USUAL._replace(equal_nodes="spread"))

    assert {each.name for each in ordered[:10]} == set(dense)


def test_demand_counts_pending_and_bound_pods() -> None:
    saving = PodAsk(uid="s", namespace="t", name="s", placement="eco-only")
    cluster_state = lived(
        node_seen("n"),
        pending("a", performance=True),
        pending("b"),
        bound("c", "n", performance=True),
        bound("d", "n"),
    )
    cluster_state.pods["s"] = PodState(pod=saving)
    cluster_state.pods["t"] = PodState(pod=ask("t", performance=True), finished=True)

    assert demand_of(cluster_state) == Demand(1, 1, 1)


@pytest.mark.parametrize("exempt", ["daemonset", "mirror", "critical"])
def test_an_exempt_pod_neither_delays_draining_nor_counts_as_demand(exempt: str) -> None:
    pod = replace(ask("d", performance=True), exempt=exempt)
    waiting = replace(ask("w", performance=True), exempt=exempt)
    cluster_state = lived(
        node_seen("n"), PodBound(pod=pod, node="n"), draining("n"), PodPending(pod=waiting)
    )
    after = plan(cluster_state, wanting("eco"), USUAL, PlanBasis(7, NOON + 60 * SECOND))

    assert demand_of(cluster_state) == Demand()
    assert cluster_state.nodes["n"].pods == 1
    assert completed("the last performance pod is gone") in after.events


# --- reasons, and recomputation ---------------------------------------------------------------


def test_a_plan_contains_all_of_its_inputs() -> None:
    cluster_state = cluster_state_of(a=performance(), b=eco(), c=performance(performance_pods=1))
    found = plan(
        cluster_state,
        LoadedPolicy(BUILT_IN["static_partition"]),
        USUAL._replace(static_hp_frac=0.3),
        PlanBasis(41, NOON),
    )

    assert replace(found.made, settings={}) == PlanMade(
        plan="p41",
        policy="static_partition",
        view=41,
        nodes=3,
        performance=1,
        changes=1,
        inputs={
            "STATIC_HP_FRAC": 0.3,
            "nodes": 3,
            "families": 1,
            "asked_for": 1,
            "performance_pods_pending": 0,
            "performance_pods_bound": 1,
            "eco_only_pods_pending": 0,
            "become_draining": 1,
            "nodes_changed": 1,
            "nodes_held": 0,
        },
        because="static_partition: 1 of 3 nodes supply performance",
        now=NOON,
        code=CODE_VERSION,
    )


def test_the_event_of_a_node_contains_the_reason() -> None:
    cluster_state = cluster_state_of(a=NEW, b=NEW, c=NEW)
    found = plan(
        cluster_state,
        LoadedPolicy(BUILT_IN["static_partition"]),
        Rules(static_hp_frac=0.6),
        PlanBasis(7, NOON),
    )

    assert [e.because for e in found.events if isinstance(e, ProfileAssigned)] == [
        "performance is wanted; it is the densest of its hardware family",
        "performance is wanted; it is among the densest",
        f"{EMPTY}; denser nodes have all the slots",
    ]


@pytest.mark.parametrize(
    ("policy", "cause"),
    [
        (lambda _: 1 // 0, "ZeroDivisionError"),
        (lambda _: None, "AttributeError"),
        (lambda _: Share(float("nan")), "ValueError"),  # type: ignore[arg-type]
        (lambda _: Share(1, {"x": float("inf")}), "not a finite number"),
    ],
    ids=["raises", "answers nothing", "no number", "endless"],
)
def test_the_error_of_a_failed_policy_contains_its_name(policy: Policy, cause: str) -> None:
    with pytest.raises(PolicyFailed, match=f"policy acme gave no answer: .*{cause}"):
        plan(
            cluster_state_of(n=NEW), LoadedPolicy(policy), Rules(policy="acme"), PlanBasis(7, NOON)
        )


facts = st.lists(st.integers(0, ANY_FACTS - 1).map(any_fact), max_size=30)
choices: dict[str, st.SearchStrategy[Any]] = {
    "policy": st.sampled_from(sorted(BUILT_IN)),
    "static_hp_frac": st.floats(0, 1),
    "family_floor": st.sampled_from(["within", "always"]),
    "equal_nodes": st.sampled_from(["by-name", "spread"]),
    "dwell_s": st.sampled_from([0.0, 5.0]),
    "drain_deadline_s": st.sampled_from([0.0, 5.0]),
    "max_changes": st.integers(0, 3),
    "cpu_eco_pct": st.sampled_from([None, 60]),
    "gpu_absolute": st.booleans(),
}
rules = st.fixed_dictionaries(choices).map(lambda said: Rules(**said))
bases = st.builds(PlanBasis, st.integers(0, 99), st.integers(NOON, noon(40)), st.booleans())
lawful = settings(deadline=None, max_examples=100)


@lawful
@given(facts, rules, bases)
def test_a_plan_can_be_recomputed_from_its_event(
    happened: list[AnyEvent], said: Rules, basis: PlanBasis
) -> None:
    policy = LoadedPolicy(BUILT_IN[said.policy])
    found = plan(lived(*happened), policy, said, basis)
    sent = codec.open_envelope(producer().stamp(found.made).data, "here")
    made = codec.read(sent, "here")

    assert isinstance(made, PlanMade)
    assert recompute(made, lived(*happened), policy) == found


@lawful
@given(facts, rules, bases, st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_in_memory_changes_nothing(
    happened: list[AnyEvent], said: Rules, basis: PlanBasis, draw: random.Random
) -> None:
    cluster_state, shuffled = lived(*happened), lived(*happened)
    names = draw.sample(sorted(cluster_state.nodes), len(cluster_state.nodes))
    shuffled.nodes = {name: shuffled.nodes[name] for name in names}
    policy = LoadedPolicy(BUILT_IN[said.policy])

    assert plan(shuffled, policy, said, basis) == plan(cluster_state, policy, said, basis)


@lawful
@given(facts, rules)
def test_no_plan_lowers_the_caps_of_running_performance_pods(
    happened: list[AnyEvent], said: Rules
) -> None:
    cluster_state = lived(*happened)
    said = said._replace(drain_deadline_s=0)
    found = plan(cluster_state, LoadedPolicy(BUILT_IN[said.policy]), said, PlanBasis(7, noon(40)))
    performs = {e.node for e in found.events if isinstance(e, ProfileAssigned)}

    for event in found.events:
        state = cluster_state.nodes[event.node]
        if isinstance(event, CapsSet) and state.performance_pods:
            assert event.cpu_cap_pct == 100 or event.node in performs


@lawful
@given(facts, rules)
def test_plans_converge(happened: list[AnyEvent], said: Rules) -> None:
    cluster_state, policy = lived(*happened), LoadedPolicy(BUILT_IN["static_partition"])
    said = said._replace(max_changes=0, dwell_s=0)
    left = []
    for turn in range(4):
        found = plan(cluster_state, policy, said, PlanBasis(turn, noon(70 + 10 * turn)))
        happens(cluster_state, *found.events, at_s=60 + 10 * turn)
        left.append(len(found.events))

    assert left[-1] == 0
