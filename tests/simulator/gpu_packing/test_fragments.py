import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_bus.errors import BadTrace
from joulie_simulator.cluster.cluster import SimCluster
from joulie_simulator.gpu_packing.fragments import (
    Article,
    Ask,
    BestFit,
    Farm,
    Filling,
    KubeDefault,
    Outcome,
    Policy,
    fill,
    kube_scores,
)
from joulie_simulator.gpu_packing.policies import POLICIES, JouliePolicy
from joulie_simulator.hardware.shapes import Machine
from joulie_simulator.trace_file import machines_of
from joulie_simulator.workload.workload import CARD_MB, Size, Table, Workload

EIGHT = Machine(96_000, 786_432, 8)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0,96000,786432,8,G2\n"


class Always:
    """Pods of these sizes in a cycle."""

    def __init__(self, *sizes: Size) -> None:
        self._sizes = sizes
        self._count = 0

    def draw(self, chance: random.Random) -> Size:
        self._count += 1
        return self._sizes[(self._count - 1) % len(self._sizes)]


def size(gpus: int = 0, mb: int = 0, cores: float = 1) -> Size:
    return Size("k", False, cores, 1024, gpus, mb, 1.0, 0.5)


def ask(gpus: int = 0, mb: int = CARD_MB) -> Ask:
    return Ask(1000, 1024, gpus, mb)


def farm_with(taken: Sequence[Sequence[int]]) -> Farm:
    """One row per machine of eight cards: the allocated memory of its first cards."""
    farm = Farm([EIGHT] * len(taken))
    for row, cards in enumerate(taken):
        for card, mb in enumerate(cards):
            farm.take(ask(1, mb), row, [card])
    return farm


@pytest.mark.parametrize(
    ("taken", "wanted", "fits"),
    [
        ([[]], ask(8), [True]),
        ([[1]], ask(8), [False]),
        ([[1]], ask(7), [True]),
        ([[CARD_MB // 2] * 8], ask(1, CARD_MB // 2), [True]),
        ([[CARD_MB // 2] * 8], ask(1, CARD_MB // 2 + 1), [False]),
        ([[CARD_MB] * 8], ask(0), [True]),
    ],
    ids=["whole", "one touched", "the rest", "halves", "a little more", "no cards"],
)
def test_a_pod_requires_free_memory_on_each_requested_card(
    taken: list[list[int]], wanted: Ask, fits: list[bool]
) -> None:
    assert farm_with(taken).fits(wanted).tolist() == fits


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000))
def test_kube_schedulers_scores_equal_those_of_the_simulated_cluster(seed: int) -> None:
    job = Workload(seed, "a").next()._replace(gpus=0)
    cluster = SimCluster(20)
    shapes = [node.shape for node in cluster.nodes.values()]
    farm = Farm([Machine(s.cores * 1000, s.memory_gib * 1024, s.gpus) for s in shapes])
    asked = Ask(job.milli, job.memory_mib, 0, 0)

    assert kube_scores(farm, asked, np.arange(len(shapes))).tolist() == [
        *cluster.plugin_scores(list(cluster.nodes), job).values()
    ]


def test_the_article_scores_the_allocated_share_and_truncates() -> None:
    half = [CARD_MB] * 4
    farm = farm_with([[], half, [CARD_MB] * 8, [CARD_MB] * 7])

    assert Article().points(farm, ask(1)).tolist() == [0, 5, 10, 8]
    assert KubeDefault().points(farm, ask(1)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("policy", "cards"), [(Article(), [0, 1]), (BestFit(), [2, 1])])
def test_whole_cards_stay_whole_under_best_fit(policy: Article, cards: list[int]) -> None:
    farm = farm_with([[0, 1000, 2000]])

    assert policy.cards(farm, ask(2, 4000), 0) == cards


def test_a_free_gpu_is_stranded_if_no_pending_pod_fits_on_its_node() -> None:
    wanting_seven = Always(size(gpus=7))

    outcome = fill(Farm([EIGHT] * 2), wanting_seven, KubeDefault(), Filling(load=1.3))

    assert (outcome.used, outcome.free, outcome.stranded, outcome.waiting) == (14, 2, 2, 1)


def test_a_free_gpu_is_not_stranded_without_a_pending_pod() -> None:
    outcome = fill(Farm([EIGHT]), Always(size(gpus=4), size(gpus=8)), KubeDefault(), Filling())

    assert (outcome.used, outcome.waiting, outcome.waiting_whole) == (4, 1, 1)
    assert outcome.stranded == outcome.free == 4


@pytest.mark.parametrize("beginning", POLICIES.values(), ids=list(POLICIES))
def test_no_card_is_allocated_twice_or_lost(beginning: Callable[[Farm], Policy]) -> None:
    farm = Farm([EIGHT] * 12)

    outcome = fill(farm, Table(), beginning(farm), Filling(seed=3, load=1.5))

    assert farm.free_mb.min() >= 0
    assert min(farm.free_milli.min(), farm.free_memory.min()) >= 0
    assert outcome.used + outcome.free == outcome.gpus == 96
    assert 0 <= outcome.stranded <= outcome.free


def test_joulies_policy_equals_best_fit_without_linked_cards() -> None:
    """Its score is the article's; in addition it considers only `NVLink` and models."""

    def filled(beginning: Callable[[Farm], Policy]) -> Outcome:
        farm = Farm([EIGHT] * 8)
        return fill(farm, Table(), beginning(farm), Filling(seed=2, load=1.1, weight=10))

    assert filled(POLICIES["Joulie's /gpu"]) == filled(POLICIES["the same, best fitting cards"])


def test_joulies_policy_keeps_linked_cards_together() -> None:
    linked = EIGHT._replace(is_linked=True)
    farm = Farm([linked, linked])
    joulie = JouliePolicy(farm, "share")
    farm.take(ask(1), 0, joulie.cards(farm, ask(1), 0))

    assert joulie.points(farm, ask(2)).tolist() == [1, 0]
    assert joulie.cards(farm, ask(1, 4000), 0) != [0]


@pytest.mark.parametrize(
    ("packing", "points"), [("share", [5, 0, 0]), ("fit", [4, 6, 9])], ids=["share", "fit"]
)
def test_packing_by_fit_fills_partly_used_cards_first(packing: str, points: list[int]) -> None:
    farm = Farm([EIGHT] * 3)
    joulie = JouliePolicy(farm, packing)
    for row, taken in ((0, ask(4)), (2, ask(1, CARD_MB // 2))):
        farm.take(taken, row, joulie.cards(farm, taken, row))

    assert joulie.points(farm, ask(1, CARD_MB // 2)).tolist() == points


def test_the_same_seed_gives_the_same_outcome() -> None:
    def filled(seed: int) -> object:
        return fill(Farm([EIGHT] * 12), Table(), Article(), Filling(seed))

    assert filled(1) == filled(1) != filled(2)


def test_the_nodes_of_the_trace_are_read(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text(NODES)

    assert machines_of(file) == [EIGHT._replace(model="G2")]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda text: text.replace("gpu,", "cards,"), "line 2 cannot be used: there is no column"),
        (lambda text: text.replace("96000", "many"), "line 2 cannot be used: invalid literal"),
        (lambda text: text.replace("96000", "0"), "a node without cores or memory"),
        (lambda text: text.partition("\n")[0], "there is nothing in it"),
    ],
    ids=["column", "number", "nothing to run on", "empty"],
)
def test_an_invalid_node_list_is_reported_with_its_line(
    broken: Callable[[str], str], why: str, tmp_path: Path
) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text(broken(NODES))

    with pytest.raises(BadTrace, match=why):
        machines_of(file)
