"""Pods that wait because of a sample, and their nominations: bounded, fair and without a loop."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import ask, noon
from joulie_bus.events import PodAsk
from joulie_operator.planning.refused_on_sample import (
    MOST_READ,
    NOMINATED,
    SMALLEST_SAMPLE,
    TRIED,
    FreeNodes,
    Nomination,
    Nominator,
    PodRefusedOnSample,
    pods_refused_on_sample,
    refusable_pods,
)
from joulie_projections.pods.load import Load
from joulie_projections.pods.refusal import Refusal
from joulie_projections.state.state import NodeState, PodState

AWAKE = NodeState(
    ordinal=1, at=0, present=True, ready=True, schedulable=True, cpu_milli=8000, profile="eco"
)
FAST = replace(AWAKE, profile="performance")


def waiting(uid: str, namespace: str = "team", cores: float = 1, gpus: float = 0) -> PodState:
    asked = ask(uid, performance=True, cores=cores, gpus=gpus)
    return PodState(pod=replace(asked, namespace=namespace))


def refusal(uid: str, *, since: int = 0, candidates: int = SMALLEST_SAMPLE) -> Refusal:
    return Refusal(uid, pos=1, since=noon(since), candidates=candidates)


def refused_on_sample(node: NodeState, pod: PodState, candidates: int = SMALLEST_SAMPLE) -> bool:
    refusals = [refusal(pod.pod.uid, candidates=candidates)]
    return bool(pods_refused_on_sample({"n": node}, {pod.pod.uid: pod}, refusals))


def test_a_pod_that_is_refused_on_a_sample_rests_while_a_fit_node_exists() -> None:
    assert refused_on_sample(FAST, waiting("a"))


@pytest.mark.parametrize(
    "node",
    [
        AWAKE,
        replace(FAST, draining=True),
        replace(FAST, ready=False),
        replace(FAST, schedulable=False),
        replace(FAST, present=False),
        replace(FAST, power_state="asleep"),
        replace(FAST, load=Load(cpu_milli=7500)),
        replace(AWAKE, profile="", labels={"joulie.io/power-profile": "eco"}),
    ],
    ids=["eco", "draining", "unready", "cordoned", "gone", "asleep", "full", "labelled eco"],
)
def test_a_pod_without_a_fit_node_does_not_count(node: NodeState) -> None:
    assert not refused_on_sample(node, waiting("a"))


def test_a_request_below_the_smallest_sample_held_all_nodes() -> None:
    assert not refused_on_sample(FAST, waiting("a"), SMALLEST_SAMPLE - 1)


def test_a_pod_that_is_bound_or_finished_does_not_rest() -> None:
    assert not refused_on_sample(FAST, replace(waiting("a"), node="n"))
    assert not refused_on_sample(FAST, replace(waiting("a"), finished=True))


def test_a_gpu_pod_needs_free_gpus() -> None:
    assert not refused_on_sample(FAST, waiting("a", gpus=1))
    assert refused_on_sample(replace(FAST, gpus=2), waiting("a", gpus=1))
    full = replace(FAST, gpus=2, load=Load(gpu_standard_milli=1500))
    assert not refused_on_sample(full, waiting("a", gpus=1))


def test_only_pending_pods_that_the_extender_can_refuse_are_read() -> None:
    eco_only = replace(ask("e"), placement="eco-only")
    exempt = replace(ask("x", performance=True), exempt="critical")
    pods = {
        "a": waiting("a"),
        "b": replace(waiting("b"), node="n"),
        "c": replace(waiting("c"), finished=True),
        "d": PodState(pod=ask("d")),
        "e": PodState(pod=eco_only),
        "x": PodState(pod=exempt),
    }
    assert refusable_pods(pods) == ["a", "e"]


def test_an_eco_only_pod_may_use_every_node_that_is_not_draining() -> None:
    pod = PodState(pod=replace(ask("e"), placement="eco-only"))
    assert refused_on_sample(AWAKE, pod)
    assert not refused_on_sample(replace(AWAKE, draining=True), pod)


# --- turns and bounds -------------------------------------------------------------------------


def test_the_longest_waiting_pods_come_first_and_namespaces_take_turns() -> None:
    """A tenant with thousands of older pods delays another tenant by one pod."""
    hostile = [f"h{number:04}" for number in range(3000)]
    pods = {uid: waiting(uid, "hostile") for uid in hostile}
    pods |= {uid: waiting(uid, "team") for uid in ("a", "b")}
    since = {uid: number for number, uid in enumerate([*hostile, "b", "a"])}
    refusals = [refusal(uid, since=at) for uid, at in since.items()]
    refused = pods_refused_on_sample({"n": FAST}, pods, refusals)

    assert len(refused) == 3002
    assert [each.pod.uid for each in refused[:5]] == ["h0000", "b", "h0001", "a", "h0002"]


def nominated(
    nominator: Nominator,
    nodes: dict[str, NodeState],
    pods: dict[str, PodState],
    now_s: float = 0,
    at_most: int = 50,
) -> list[Nomination]:
    refused = [PodRefusedOnSample(each.pod, 0) for each in pods.values()]
    return nominator.nominations(nodes, pods, refused, now_s, at_most)


def test_hostile_numbers_of_pods_cause_a_bounded_number_of_nominations() -> None:
    pods = {f"h{number}": waiting(f"h{number}", cores=0.001) for number in range(10_000)}
    assert len(nominated(Nominator(), {"n": FAST}, pods, at_most=50)) == 50


def test_pods_are_not_nominated_for_more_than_a_node_has() -> None:
    pods = {f"p{number}": waiting(f"p{number}") for number in range(40)}
    made = nominated(Nominator(), {"n": FAST, "m": FAST}, pods)
    assert Counter(each.node for each in made) == {"n": 8, "m": 8}


def test_pods_on_their_way_keep_their_place() -> None:
    nominator, pods = Nominator(), {uid: waiting(uid, cores=5) for uid in ("a", "b")}
    assert [each.pod.uid for each in nominated(nominator, {"n": FAST}, pods)] == ["a"]
    assert nominated(nominator, {"n": FAST}, pods, now_s=1) == []


def test_a_nomination_that_did_not_help_is_followed_by_another_node_ever_later() -> None:
    nominator, pods = Nominator(), {"a": waiting("a")}
    nodes = {f"n{number}": FAST for number in range(TRIED + 4)}
    found = list[tuple[int, str]]()
    for second in range(300):
        found += [(second, each.node) for each in nominated(nominator, nodes, pods, second)]
    times, names = zip(*found, strict=True)

    assert list(times) == [0, 2, 6, 14, 30, 62, 122, 182, 242]
    assert len(set(names[:TRIED])) == TRIED


def test_attempts_are_forgotten_once_the_pod_is_bound_or_gone() -> None:
    nominator, pods = Nominator(), {"a": waiting("a"), "b": waiting("b")}
    nominated(nominator, {"n": FAST}, pods)
    pods = {"a": replace(pods["a"], node="n")}
    nominator.nominations({"n": FAST}, pods, [], 1, 50)
    assert nominator.attempts == {}


def test_a_node_that_is_gone_takes_nothing_with_it() -> None:
    nominator, pods = Nominator(), {"a": waiting("a"), "b": waiting("b")}
    nominated(nominator, {"n": FAST}, {"a": pods["a"]})
    made = nominated(nominator, {"m": FAST}, pods, now_s=NOMINATED.after(1) / 2)
    assert [(each.pod.uid, each.node) for each in made] == [("b", "m")]


NODES = st.lists(
    st.builds(
        lambda cpu, used, gpus, profile: replace(
            AWAKE, cpu_milli=cpu, load=Load(cpu_milli=used), gpus=gpus, profile=profile
        ),
        st.integers(0, 4000),
        st.integers(0, 2000),
        st.integers(0, 2),
        st.sampled_from(["performance", "eco", ""]),
    ),
    max_size=8,
)
ASKS = st.lists(
    st.tuples(st.integers(1, 2000), st.sampled_from([0, 500, 1000]), st.sampled_from("xyz")),
    max_size=12,
)


@given(NODES, ASKS, st.integers(0, 5))
@settings(max_examples=200)
def test_nominations_fit_are_bounded_and_repeat_no_pod_within_its_backoff(
    states: list[NodeState], asks: list[tuple[int, int, str]], at_most: int
) -> None:
    nodes = {f"n{number}": state for number, state in enumerate(states)}
    pods = {
        f"p{number}": waiting(f"p{number}", namespace, cpu / 1000, gpu / 1000)
        for number, (cpu, gpu, namespace) in enumerate(asks)
    }
    nominator = Nominator()
    passes = [nominated(nominator, nodes, pods, second, at_most) for second in (0.0, 1.0)]
    made = [each for each_pass in passes for each in each_pass]

    assert all(len(each) <= at_most for each in passes)
    assert len({each.pod.uid for each in made}) == len(made)
    for name, node in nodes.items():
        mine = [each.pod for each in made if each.node == name]
        assert not mine or node.profile != "eco"
        assert not mine or total_cpu(mine) <= node.cpu_milli - node.load.cpu_milli
        assert sum(pod.gpu_milli for pod in mine) <= node.gpus * 1000


def total_cpu(pods: list[PodAsk]) -> int:
    return sum(pod.cpu_milli for pod in pods)


@given(NODES, st.lists(st.integers(1, 2000), min_size=1, max_size=12))
def test_free_nodes_are_taken_from_the_emptiest(states: list[NodeState], asks: list[int]) -> None:
    nodes = {f"n{number}": replace(state, profile="") for number, state in enumerate(states)}
    left = {name: node.cpu_milli - node.load.cpu_milli for name, node in nodes.items()}
    free = FreeNodes(nodes)
    for cpu in asks:
        taken = free.take(waiting("p", cores=cpu / 1000).pod)
        most = max(left.values(), default=-1)
        assert (taken is None) == (most < cpu)
        if taken is not None:
            assert left[taken] == most
            left[taken] -= cpu


def test_few_nodes_are_examined_for_a_pod_that_fits_nowhere() -> None:
    """CPU is free on no node with a free GPU: the search ends, and the order stays."""
    full = replace(FAST, gpus=8, load=Load(cpu_milli=8000))
    nodes = {f"n{number}": full for number in range(MOST_READ + 1)}
    free = FreeNodes(nodes | {"z": replace(FAST, gpus=1)})
    assert not free.has_fit(waiting("a", gpus=1).pod)
    assert free.has_fit(waiting("b").pod)


def test_turns_are_in_order_of_waiting_within_a_namespace() -> None:
    pods = {f"p{number}": waiting(f"p{number}", "xy"[number % 2]) for number in range(20)}
    refusals = [refusal(uid, since=-number) for number, uid in enumerate(pods)]
    refused = pods_refused_on_sample({"n": FAST}, pods, refusals)
    for name in "xy":
        mine = [each.since for each in refused if each.pod.namespace == name]
        assert all(a <= b for a, b in pairwise(mine))


@pytest.mark.parametrize(("milli", "fits"), [(1000, True), (1001, False)])
def test_cards_of_pods_of_either_class_are_not_free(milli: int, fits: bool) -> None:
    load = Load(0, 0, 2000, milli)
    node = replace(FAST, gpus=4, load=load)

    assert refused_on_sample(node, waiting("p", gpus=1)) is fits
