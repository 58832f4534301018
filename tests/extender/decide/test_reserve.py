"""What capacity_reserve refuses, in decisions as the log keeps them."""

import pytest
from msgspec.structs import replace

from bus_kit import NOON, ask, hardware
from joulie_bus.events import GpuAsk, PodAsk
from joulie_bus.runtime.settings import Source
from joulie_extender.catalogue.declaration import declaration, weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import again, decide_filter
from joulie_extender.rules.eco import ECO, WANTS_PERFORMANCE
from joulie_extender.rules.node_class import DRAINING
from joulie_extender.rules.reserve import (
    CORES_PER_CARD,
    RESERVED,
    WANTS_FEWER_CORES,
    WANTS_RESERVE,
)
from joulie_extender.rules.rule import PASSED
from joulie_extender.settings import ScoringSettings
from joulie_projections.pods.load import Load
from joulie_projections.pods.refusal import refused_nodes
from joulie_projections.state.state import NodeState
from joulie_projections.twin.capacity_reserve import CapacityReserve
from joulie_projections.twin.columns import TwinColumns

KEEPS = Weights(reserve=CapacityReserve(cards=0.25, cores_beside_card=8, cores=0.1))
TRAINING = ask("training", performance=True, cores=4, gpus=2)
SERVING = ask("serving", cores=4, gpus=2)


def node(cores: float = 0.0, cards: float = 0.0, gpus: int = 0, profile: str = "") -> NodeState:
    """A node of 96 cores with this many requested cores and cards."""
    load = Load(round(cores * 1000), 0, round(cards * 1000), 0)
    known = hardware("n", cores=96, watts=700, gpus=gpus)
    return NodeState(ordinal=0, at=NOON, load=load, hardware=known, profile=profile, present=True)


def verdicts(pod: PodAsk, *nodes: NodeState, weights: Weights = KEEPS) -> list[int]:
    named = {f"n{at}": replace(each, ordinal=at) for at, each in enumerate(nodes)}
    columns = TwinColumns.of(named, 0)
    made = decide_filter(pod, list(named), DecisionContext(columns, 7, 0, NOON), weights)
    assert again(made, columns, weights) == made
    return list(made.verdicts)


def free(pod: PodAsk, *nodes: NodeState) -> list[bool]:
    return [verdict == PASSED for verdict in verdicts(pod, *nodes)]


def test_class_performance_leaves_a_share_of_all_cards_free() -> None:
    """A quarter of 16 cards is 4: with 6 free, a pod may take 2; with 5 free it may not."""
    assert free(TRAINING, node(cards=2, gpus=8), node(cards=8, gpus=8)) == [True, True]
    assert free(TRAINING, node(cards=3, gpus=8), node(cards=8, gpus=8)) == [False, False]


def test_class_standard_may_take_the_cards_that_are_kept() -> None:
    assert free(SERVING, node(cards=6, gpus=8)) == [True]


def test_a_pod_without_cards_leaves_cores_beside_each_free_card_of_a_node() -> None:
    """Each of 4 free cards keeps 8 cores, so 32 of 40 free cores are kept."""
    beside = node(cores=56, cards=4, gpus=8)

    assert free(ask(cores=8), beside, node(cores=56, gpus=0)) == [True, True]
    assert free(ask(cores=9), beside, node(cores=56, gpus=0)) == [False, True]
    assert free(ask(cores=40), node(cores=56, cards=8, gpus=8), node()) == [True, True]


def test_a_pod_of_many_cores_leaves_a_share_of_the_nodes_without_cards() -> None:
    """A tenth of 192 cores is kept: 20 of them may not fall to 10, except for small pods."""
    nodes = node(cores=96), node(cores=76), node(gpus=8, cards=8)

    assert free(ask(cores=10), *nodes) == [False, False, False]
    assert free(ask(cores=8), *nodes) == [True, True, True]


def test_class_performance_asks_for_a_limited_number_of_cores_per_card() -> None:
    weights = Weights(reserve=CapacityReserve(cores_per_card=4))
    many = ask("training", performance=True, cores=9, gpus=2)

    assert verdicts(many, node(gpus=8), weights=weights) == [CORES_PER_CARD]
    assert verdicts(TRAINING, node(gpus=8), weights=weights) == [PASSED]
    assert verdicts(ask(cores=9, gpus=2), node(gpus=8), weights=weights) == [PASSED]


@pytest.mark.parametrize("exempt", ["daemonset", "critical", "mirror"])
def test_an_exempt_pod_may_take_all_that_is_kept(exempt: str) -> None:
    pod = replace(TRAINING, exempt=exempt)

    assert free(pod, node(cards=6, gpus=8)) == [True]


def test_nothing_is_kept_without_the_setting() -> None:
    assert verdicts(TRAINING, node(cards=6, gpus=8), weights=Weights()) == [PASSED]


def test_a_node_of_unknown_hardware_keeps_nothing() -> None:
    assert free(ask(cores=8), replace(node(), hardware=None), node()) == [True, True]


def test_the_reason_names_the_class_and_the_reserve() -> None:
    names, eco = ["n0"], node(cards=3, gpus=8, profile="eco")
    columns = TwinColumns.of({"n0": eco}, 0)
    made = decide_filter(TRAINING, names, DecisionContext(columns, 7, 0, NOON), KEEPS)

    assert made.reason == f"{WANTS_PERFORMANCE}, or {WANTS_RESERVE}"
    assert made.verdicts == bytes([ECO])  # the class comes first


def test_a_pod_that_waits_for_the_reserve_gets_no_nominated_node() -> None:
    made = bytes(verdicts(TRAINING, node(cards=5, gpus=8)))

    assert (list(made), refused_nodes(made)) == ([RESERVED], 0)
    assert refused_nodes(bytes([CORES_PER_CARD] * 2)) == 0
    assert refused_nodes(bytes([ECO, DRAINING])) == 2


def test_nothing_is_kept_of_what_does_not_exist() -> None:
    assert free(ask(cores=64), node(gpus=8, cards=8)) == [True]


def test_the_setting_becomes_a_weight() -> None:
    loaded = Source.of(capacity_reserve="cards=0.25,cores-beside-card=8,cores=0.1")

    assert loaded.load(ScoringSettings).weights().reserve == KEEPS.reserve


def test_the_rules_of_a_newer_version_are_no_weights_here() -> None:
    declared = declaration(KEEPS)
    newer = {**declared.values, "capacity_reserve": "cards=0.25,memory=0.1"}

    assert weights_of(declared) == KEEPS
    assert weights_of(replace(declared, values=newer)) is None


def test_a_pod_that_asks_for_memory_of_a_card_alone_asks_for_one_card() -> None:
    by_memory = replace(ask(performance=True, cores=12), gpu_milli=0, gpu=GpuAsk(vram_mb=20_000))
    bounded = Weights(reserve=CapacityReserve(cores_per_card=8))

    assert verdicts(by_memory, node(gpus=8), weights=bounded) == [CORES_PER_CARD]
    within = Weights(reserve=CapacityReserve(cores_per_card=12))
    assert verdicts(by_memory, node(gpus=8), weights=within) != [CORES_PER_CARD]


def test_a_rule_about_the_pod_alone_gives_the_only_reason() -> None:
    pod, columns = ask(performance=True, cores=12, gpus=1), TwinColumns.of({"n0": node(gpus=8)}, 0)
    bounded = Weights(reserve=CapacityReserve(cores_per_card=8))

    made = decide_filter(pod, ["n0"], DecisionContext(columns, 7, 0, NOON), bounded)

    assert made.reason == WANTS_FEWER_CORES
