"""Pods at random, foretold and then really asked about: by the handlers of the extender."""

import json
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

import random_clusters
from bus_kit import NOON
from extender_kit import PATIENT, request
from joulie_answers.place.foretold import asked_by
from joulie_answers.place.known import KnownPod, pod_of
from joulie_answers.place.manifest import Pods, read
from joulie_answers.place.placing import PROFILE, Look, Moment, Placing
from joulie_bus.events import PodAsk
from joulie_bus.http.exchange import Reply
from joulie_extender.answering.extender import Extender
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.http.routes import routed
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.pods.demand import ask_of
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import ViewSnapshot
from joulie_simulator.kube_scheduler.schedule import totals
from random_clusters import Dice

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
    return [
        name for name, node in sorted(state.nodes.items()) if fits(node, room(state, name), ask)
    ]


def room(state: ClusterState, node: str) -> tuple[int, int]:
    there = [pod for pod in state.pods.values() if pod.node == node and not pod.finished]
    return sum(p.pod.cpu_milli for p in there), sum(p.pod.gpu_milli for p in there)


def fits(node: NodeState, used: tuple[int, int], ask: PodAsk) -> bool:
    is_open = node.present and node.ready and node.schedulable and not node.power_state
    gpus = ask.gpu_cards * 1000
    has_gpus = not gpus or used[1] + gpus <= node.gpu_milli
    return is_open and used[0] + ask.cpu_milli <= node.cpu_milli and has_gpus


def require_right(of: Case) -> Look:
    """The look at the pod, which the answers of the extender must confirm."""
    pod, ask = known(of, of.moment.state)
    placing = Placing(of.moment)
    look = placing.look(pod, ask)
    names = with_room(of)
    assert look.candidates == names
    passed = asked_really(of, names, "filter")["NodeNames"] if names else []
    assert look.nodes == passed
    if not passed:
        assert look.best == []
        return look
    answers = {each["Host"]: each["Score"] for each in asked_really(of, passed, "prioritize")}
    cluster = placing.nodes.cluster
    rows = np.array([cluster.nodes.rows[name] for name in passed], np.int64)
    own = totals(cluster, pod.asked, rows, PROFILE).tolist()
    total = {
        name: PER_POINT * answers[name] + points for name, points in zip(passed, own, strict=True)
    }
    highest = max(total.values())
    assert look.best == [name for name in passed if total[name] == highest]
    return look
