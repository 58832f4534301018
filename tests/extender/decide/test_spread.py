"""Pods that come faster than readings do not herd: what is not measured yet is assumed."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from bus_kit import (
    SECOND,
    ask,
    caps,
    eco,
    hardware,
    noon,
    power,
    producer,
    records,
)
from joulie_bus.events import CapsSet, Fact, PodAsk, PodBound
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import rows_by_name
from joulie_extender.decide.scoring import Scores, score
from joulie_projections.fold.node_facts import SETTLING_NS
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

IDLE_W = 100.0


class Cluster:
    """Folds events, scores on the current columns, and places pods as kube-scheduler does: on a
    random node among those with the highest score.
    """

    def __init__(self, *story: Fact, seed: int = 1, weights: Weights | None = None) -> None:
        self.weights = weights or Weights()
        self.cluster_state = ClusterState()
        self.twin_columns = TwinColumns.empty()
        self.placed: Counter[str] = Counter()
        self._draw = np.random.default_rng(seed)
        self._binds = producer("watcher")
        self._count = 0
        self._fold(records(*story, start_s=-60, step_s=1e-6))

    def _fold(self, told: Sequence[Record]) -> None:
        draft = Draft(self.cluster_state)
        fold(draft, told, 0)
        changed = dict(draft.nodes.changes)
        draft.commit()
        self.twin_columns = self.twin_columns.following(self.cluster_state, changed)

    def scores(self, pod: PodAsk, names: Sequence[str], at_s: float) -> Scores:
        rows = rows_by_name(self.twin_columns, names)
        return score(pod, self.twin_columns, rows, noon(at_s), 0, self.weights)

    def place(self, pod: PodAsk, names: Sequence[str], at_s: float) -> str:
        answer = self.scores(pod, names, at_s).answer
        name = names[int(self._draw.choice(np.flatnonzero(answer == answer.max())))]
        self._count += 1
        self.placed[name] += 1
        bind = self._binds.stamp(PodBound(pod=pod, node=name))
        self._fold([Record(Stream.OBS, self._count, noon(at_s), bind.data)])
        return name

    def sample(self, names: Sequence[str], number: int) -> list[str]:
        chosen: list[int] = self._draw.choice(len(names), number, replace=False).tolist()
        return [names[at] for at in chosen]

    def measure(self, watts: dict[str, float], at_s: float) -> None:
        told = [power(name, drawn) for name, drawn in watts.items()]
        self._fold(records(*told, name=f"watcher-{at_s}", start_s=at_s, step_s=0))


def nodes(count: int, *, cap: int = 100) -> tuple[list[str], list[Fact]]:
    """Equal ones of 96 cores and 720 W, idle."""
    names = [f"n{number}" for number in range(count)]
    story: list[Fact] = []
    for name in names:
        story += [hardware(name), eco(name), power(name, IDLE_W)]
        story += [caps(name, cap)] if cap < 100 else []
    return names, story


@pytest.mark.slow
def test_a_thousand_pods_between_two_readings_spread_as_if_each_had_been_measured() -> None:
    names, story = nodes(100)
    assumed, measured = Cluster(*story), Cluster(*story)
    marginal = float(assumed.scores(ask(cores=4), names[:1], 0)["marginal_w"][0])

    for number in range(1000):
        pod, at_s = ask(f"p{number}", cores=4), number * 0.03
        assumed.place(pod, names, at_s)
        name = measured.place(pod, names, at_s)
        # A meter that shows every pod at once, as if it had been there for long.
        measured.measure({name: IDLE_W + marginal * measured.placed[name]}, at_s + 20)

    assert assumed.placed == measured.placed
    assert set(assumed.placed.values()) == {10}


def test_no_node_goes_above_its_cap_while_another_has_room() -> None:
    names, story = nodes(20, cap=60)
    cluster = Cluster(*story)
    marginal = float(cluster.scores(ask(cores=12), names[:1], 0)["marginal_w"][0])
    room = int((720 * 0.6 - IDLE_W) // marginal)

    for number in range(20 * room):
        cluster.place(ask(f"p{number}", cores=12), names, 0)

    assert dict(cluster.placed) == dict.fromkeys(names, room)


@pytest.mark.long
@pytest.mark.parametrize("samples", [False, True], ids=["before any sample", "between samples"])
def test_random_samples_of_a_large_cluster_give_no_node_more_than_its_share(samples: bool) -> None:
    names, story = nodes(5000)
    cluster = Cluster(*[f for f in story if samples or f.TYPE != "telemetry.sampled"])
    for number in range(1500):
        cluster.place(ask(f"p{number}", cores=8), cluster.sample(names, 500), number * 0.005)

    # 1,500 pods on 5,000 equal nodes: among 500 of them there is always an empty one.
    assert max(cluster.placed.values()) == 1


def test_a_pod_is_assumed_until_a_reading_after_it_has_settled() -> None:
    names, story = nodes(1)
    cluster = Cluster(*story)
    cluster.place(ask("p", cores=48), names, 0)
    settled_s = SETTLING_NS / SECOND

    seen = []
    for at_s in (1, settled_s - 0.001, settled_s):
        cluster.measure({"n0": 450}, at_s)
        seen.append(round(float(cluster.scores(ask("q"), names, at_s)["assumed_w"][0])))

    assert seen == [252, 252, 0]


def test_the_pods_of_a_burst_share_what_is_left_in_the_order_they_came() -> None:
    names, story = nodes(4)
    cluster = Cluster(*story, CapsSet(plan="p", node="n0", cpu_cap_pct=40))

    for number in range(40):
        cluster.place(ask(f"p{number}", cores=4), names, number * 0.01)

    assert cluster.placed["n0"] < min(cluster.placed[name] for name in names[1:])


CARD_NODES = 30


def placed_on_card_nodes(weights: Weights, count: int) -> float:
    """The share of CPU pods on the nodes with cards, among samples of all nodes."""
    names, with_cards = [f"n{at}" for at in range(70)], [f"g{at}" for at in range(CARD_NODES)]
    story: list[Fact] = []
    for name in names:
        story += [hardware(name), eco(name), power(name, 350)]
    for name in with_cards:
        story += [hardware(name, gpus=8), eco(name), power(name, 700)]
    cluster = Cluster(*story, weights=weights)
    for number in range(count):
        cluster.place(ask(f"p{number}", cores=4), cluster.sample([*names, *with_cards], 50), 0)
    return sum(cluster.placed[name] for name in with_cards) / count


@pytest.mark.parametrize("scoring", ["headroom", "energy"])
def test_at_most_one_cpu_pod_in_twenty_goes_to_a_node_with_cards(scoring: str) -> None:
    assert placed_on_card_nodes(Weights(scoring=scoring), 300) <= 0.05


def test_by_the_formula_alone_most_cpu_pods_go_to_nodes_with_cards() -> None:
    assert placed_on_card_nodes(Weights(cpu_pods_on_gpu_nodes="allow"), 300) > 0.5
