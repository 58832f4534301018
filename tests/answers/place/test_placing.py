"""Where pods are foretold to go, beside what the extender answers when they really ask."""

import copy
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

import random_clusters
from bus_kit import NOON
from extender_kit import PATIENT, request
from joulie_answers.place.fits import CARD_MILLI, MIB, nearest
from joulie_answers.place.foretold import Question, asked_by, foretold
from joulie_answers.place.known import KnownPod, pod_of, with_amounts
from joulie_answers.place.manifest import Pods, read
from joulie_answers.place.placing import PROFILE, Moment, Placing
from joulie_bus.events import PodAsk, PodBound
from joulie_bus.http.exchange import Reply
from joulie_extender.answering.extender import Extender
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.http.routes import routed
from joulie_projections.fold.registry import evolve
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.pods.demand import ask_of
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import ViewSnapshot
from joulie_simulator.kube_scheduler.schedule import totals
from random_clusters import Dice

CASES = 250
PER_POINT = 10  # of an extender with weight 1
SETTINGS = (
    Weights(),
    Weights(scoring="energy"),
    Weights(scoring="energy", gpu=GpuWeights(binpack=1.0, packing="fragmentation")),
)


class Case(NamedTuple):
    moment: Moment
    pods: Pods
    manifest: dict[str, Any]


def case(number: int) -> Case:
    """A cluster at random without devices of DRA, of which one answer depends on the uid."""
    dice = Dice(number + 77)
    state = random_clusters.cluster(number).state
    state.gpus = {
        uuid: replace(card, device=None, model="NVIDIA H100 SXM5", total_mb=81_559)
        for uuid, card in state.gpus.items()
    }
    weights = SETTINGS[number % len(SETTINGS)]
    manifest = a_pod(dice)
    [pods] = read(json.dumps(manifest)).pods
    columns = TwinColumns.of_state(state)
    return Case(Moment(state, columns, 7, NOON, weights), pods, manifest)


def a_pod(dice: Dice) -> dict[str, Any]:
    requests: dict[str, Any] = {"cpu": f"{dice.one((10, 500, 4000, 30_000))}m"}
    if dice.is_so(0.4):
        requests["nvidia.com/gpu"] = dice.one((1, 2, 8))
    annotations = {"joulie.io/workload-class": dice.one(("performance", "standard"))}
    if "nvidia.com/gpu" in requests and dice.is_so():
        annotations["joulie.io/gpu-model"] = dice.one(("H100", "A100"))
    elif dice.is_so(0.2):
        annotations["joulie.io/gpu-share"] = "0.25"
    return {
        "kind": "Pod",
        "metadata": {"name": "new", "namespace": "team", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
    }


def known(of: Case, state: ClusterState) -> tuple[KnownPod, PodAsk]:
    ask = replace(asked_by(of.pods, state, GPU_RESOURCES), uid="new")
    return pod_of(of.pods, ask, GPU_RESOURCES), ask


def asked_really(of: Case, names: list[str], verb: str) -> Any:
    """As kube-scheduler asks, over the protocol, with the real handlers."""
    moment = of.moment
    snapshot = ViewSnapshot(moment.position, moment.columns, 0, moment.state.namespaces)
    extender = Extender(
        lambda: snapshot,
        lambda _: None,
        moment.weights,
        lambda: moment.at,
        fallback_policy=PATIENT,
    )
    pod = {**of.manifest, "metadata": {**of.manifest["metadata"], "uid": "new"}}
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
    reply = routed(extender, lambda: False)(request(body)._replace(path=f"/{verb}"))
    assert isinstance(reply, Reply)
    assert reply.status == 200
    return json.loads(reply.body)


def with_room(of: Case) -> list[str]:
    """The nodes that kube-scheduler's plugins leave, counted pod by pod."""
    state, ask = of.moment.state, ask_of(of.pods.pod)
    return [name for name, node in state.nodes.items() if fits(node, room(state, name), ask)]


def room(state: ClusterState, node: str) -> tuple[int, int]:
    there = [pod for pod in state.pods.values() if pod.node == node and not pod.finished]
    return sum(p.pod.cpu_milli for p in there), sum(p.pod.gpu_milli for p in there)


def fits(node: NodeState, used: tuple[int, int], ask: PodAsk) -> bool:
    is_open = node.present and node.ready and node.schedulable and not node.power_state
    gpus = ask.gpu_cards * 1000
    has_gpus = not gpus or used[1] + gpus <= node.gpu_milli
    return is_open and used[0] + ask.cpu_milli <= node.cpu_milli and has_gpus


@pytest.mark.parametrize("number", range(CASES))
def test_the_foretold_node_is_the_one_that_the_extender_then_decides(number: int) -> None:
    of = case(number)
    pod, ask = known(of, of.moment.state)
    placing = Placing(of.moment)
    look = placing.look(pod, ask)
    names = with_room(of)

    assert look.candidates == names
    if not names:
        assert look.best == []
        return
    passed = asked_really(of, names, "filter")["NodeNames"]
    assert look.nodes == passed
    if not passed:
        return
    answers = {each["Host"]: each["Score"] for each in asked_really(of, passed, "prioritize")}
    cluster = placing.nodes.cluster
    rows = np.array([cluster.nodes.rows[name] for name in passed], np.int64)
    own = totals(cluster, pod.asked, rows, PROFILE).tolist()
    total = {
        name: PER_POINT * answers[name] + points for name, points in zip(passed, own, strict=True)
    }
    highest = max(total.values())
    assert look.best == [name for name in passed if total[name] == highest]


def test_the_cases_have_all_outcomes() -> None:
    found = [Placing(of.moment).look(*known(of, of.moment.state)) for of in map(case, range(CASES))]
    reasons = {why for look in found for why in look.refused}

    assert sum(len(look.nodes) > 1 for look in found) > CASES / 6
    assert sum(not look.nodes for look in found) > CASES / 10
    assert {"insufficient cpu", "insufficient GPUs", "asleep", "waking up", "cordoned"} <= reasons
    assert {"not ready", "no cards"} <= reasons


# --- one after the other ----------------------------------------------------------------------


def replicas(of: Case, count: int) -> str:
    template = {"metadata": of.manifest["metadata"], "spec": of.manifest["spec"]}
    metadata = {"name": "new", "namespace": "team"}
    spec = {"replicas": count, "template": template}
    return json.dumps({"kind": "ReplicaSet", "metadata": metadata, "spec": spec})


def answer(of: Case, count: int) -> Any:
    found = foretold(of.moment, Question(read(replicas(of, count)), None, True), lambda: False)
    [group] = found["groups"]
    return group


@pytest.mark.parametrize("number", range(0, CASES, 10))
def test_as_many_are_placed_as_fit_and_one_more_is_refused_by_a_rule(number: int) -> None:
    of, many = case(number), 40
    group = answer(of, many)

    assert sum(each.pods for each in group.nodes) == group.placed
    assert bool(group.refused) == (group.placed < many)
    if 0 < group.placed < many:
        assert answer(of, group.placed).placed == group.placed
        assert answer(of, group.placed + 1).placed == group.placed


@pytest.mark.parametrize("number", range(0, CASES, 10))
def test_each_replica_goes_where_the_extender_sends_it_when_the_earlier_ones_run(
    number: int,
) -> None:
    """The state between two replicas is the fold of a binding."""
    of, many = case(number), 3
    group = answer(of, many)
    expected = list[str]()
    for at in range(group.placed):
        pod, ask = known(of, of.moment.state)
        best = Placing(of.moment).look(pod, ask).best[0]
        expected.append(best)
        of = of._replace(moment=bound(of.moment, replace(ask, uid=f"r{at}"), best))

    assert {each.node: each.pods for each in group.nodes} == {
        node: expected.count(node) for node in expected
    } or any(each.cards for each in group.nodes)  # which claims change, too


def bound(moment: Moment, ask: PodAsk, node: str) -> Moment:
    draft = Draft(moment.state)
    evolve(draft, PodBound(pod=ask, node=node), moment.at)
    draft.commit()
    return moment._replace(columns=TwinColumns.of_state(moment.state))


def refused_cases() -> Iterator[Case]:
    for of in map(case, range(CASES)):
        if not Placing(of.moment).look(*known(of, of.moment.state)).nodes:
            yield of


def test_the_nearest_request_fits_and_a_larger_one_does_not() -> None:
    seen = set[str]()
    for of in refused_cases():
        pod, ask = known(of, of.moment.state)
        placing = Placing(of.moment)
        for near in nearest(placing, pod, ask):
            seen.add(near.resource)
            step = changed(ask, near.resource, near.fits)
            more = changed(ask, near.resource, near.fits + STEPS[near.resource])

            assert placing.look(with_amounts(pod, step), step).nodes
            assert not placing.look(with_amounts(pod, more), more).nodes
            assert 0 < near.fits < near.asked

    assert seen >= {"GPUs", "cores"}


STEPS = {"cores": 0.001, "MiB": 1, "GPUs": 1}


def changed(ask: PodAsk, resource: str, amount: float) -> PodAsk:
    match resource:
        case "cores":
            return replace(ask, cpu_milli=round(amount * 1000))
        case "MiB":
            return replace(ask, memory_bytes=round(amount) * MIB)
        case _:
            cards = round(amount)
            return replace(ask, gpu_cards=cards, gpu_milli=cards * CARD_MILLI)


@pytest.mark.parametrize("number", range(0, CASES, 25))
def test_the_state_and_the_columns_of_the_question_stay_as_they_were(number: int) -> None:
    of = case(number)
    state, columns = of.moment.state, of.moment.columns
    before = copy.deepcopy([vars(state)[name] for name in ("nodes", "pods", "gpus", "cluster")])
    arrays = {name: column.copy() for name, column in columns.columns.items()}
    answer(of, 10)

    assert before == [vars(state)[name] for name in ("nodes", "pods", "gpus", "cluster")]
    assert all(np.array_equal(arrays[name], column) for name, column in columns.columns.items())
