"""Worlds in which a real kube-scheduler placed pods, beside the model of kube-scheduler.

The format is described in tests/data/kube-scheduler.
"""

import gzip
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.objects import Node, Pod
from joulie_simulator.kube_scheduler.schedule import Profile, filtered, scores
from joulie_simulator.kube_scheduler.selectors import EVERYTHING
from joulie_simulator.kube_scheduler.terms import Asked, Namespaces, asked

RECORDED = Path(__file__).parents[2] / "data/kube-scheduler"
# Not modelled; they score 0 where no image is known, and pods have neither volumes nor claims.
UNKNOWN = ("DynamicResources", "ImageLocality", "VolumeBinding")
Tree = dict[str, Any]
Scores = Mapping[str, Mapping[str, int]]


class AskedPod(msgspec.Struct):
    pod: Tree
    feasible: list[str]
    scores: dict[str, dict[str, int]]
    node: str
    why: str = ""
    default: dict[str, str] = {}


class World(msgspec.Struct):
    world: int
    nodes: list[Tree]
    pods: list[Tree]
    asked: list[AskedPod]
    namespaces: dict[str, dict[str, str]] = {}


class Answer(NamedTuple):
    """What both said of one pod."""

    pod: str
    feasible: tuple[Sequence[str], Sequence[str]]  # of the model, and the real ones
    scores: tuple[Scores, Scores]
    best: Sequence[str]  # nodes with the highest sum of the model
    chosen: str
    rejecting: Sequence[str]  # plugins of the model that rejected a node


def recorded(file: Path) -> Iterator[World]:
    with gzip.open(file) as lines:
        yield from (msgspec.json.decode(line, type=World) for line in lines)


def answers(world: World, profile: Profile) -> Iterator[Answer]:
    """The model follows the real placements, so that one difference does not lead to others."""
    cluster = Cluster(msgspec.convert(world.nodes, list[Node]))
    for tree in world.pods:
        pod = _asked(tree, world.namespaces)
        cluster.bind(pod, cluster.nodes.rows[tree["spec"]["nodeName"]])
    for each in world.asked:
        pod = _asked(each.pod, world.namespaces, each.default)
        yield _answer(cluster, pod, each, profile)
        if each.node:
            cluster.bind(pod, cluster.nodes.rows[each.node])


def _asked(tree: Tree, namespaces: Namespaces, default: Mapping[str, str] | None = None) -> Asked:
    pod = msgspec.convert(tree, Pod)
    selector = EVERYTHING.and_equal(sorted((default or {}).items()))
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return asked(pod, namespaces, selector)._replace(uid=name)


def _answer(cluster: Cluster, pod: Asked, real: AskedPod, profile: Profile) -> Answer:
    passed = filtered(cluster, pod)
    rows = np.flatnonzero(passed.nodes)
    names = [cluster.nodes.names[row] for row in rows]
    found = scores(cluster, pod, rows, profile) if real.scores and len(rows) else {}
    total = sum(found.values(), np.zeros(len(rows), np.int64))
    best = [name for name, points in zip(names, total, strict=True) if points == total.max()]
    return Answer(
        pod.uid,
        (sorted(names), sorted(real.feasible)),
        (
            {
                plugin: dict(zip(names, points.tolist(), strict=True))
                for plugin, points in found.items()
            },
            {
                plugin: of
                for plugin, of in real.scores.items()
                if plugin not in UNKNOWN or any(of.values())
            },
        ),
        best,
        real.node,
        list(passed.rejected),
    )


def decided(found: Sequence[Answer]) -> Counter[str]:
    """For how many pods each plugin rejected a node, or gave nodes different scores."""
    counts = Counter(f"{plugin} rejects" for each in found for plugin in each.rejecting)
    counts.update(
        f"{plugin} scores"
        for each in found
        for plugin, of in each.scores[1].items()
        if len(set(of.values())) > 1
    )
    return counts
