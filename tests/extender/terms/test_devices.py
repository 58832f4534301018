"""With the score by headroom, pods with claims of devices fill nodes instead of spreading."""

from collections.abc import Mapping

from msgspec.structs import replace

from bus_kit import NOON, ask, hardware
from joulie_bus.events import DeviceAsk, PodAsk, named_values
from joulie_extender.catalogue.declaration import declaration, weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import again, answered_scores, decide_prioritize
from joulie_extender.gpu.fit import GpuWeights
from joulie_projections.pods.load import Load
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.columns import TwinColumns

CARDS, IDLE_W, CARD_W = 8, 700, 450
WEIGHTS = Weights()


def claiming(devices: int = 1) -> PodAsk:
    milli = 1000 * devices
    asked = DeviceAsk(claims=("template/some",), milli=milli)
    return replace(ask("p"), gpu_milli=milli, gpu_cards=devices, devices=asked)


def nodes_with(used: Mapping[str, int], cards: Mapping[str, int] = {}) -> dict[str, NodeState]:
    """Nodes with so many devices in use, which draw power."""
    return {
        name: NodeState(
            ordinal=at,
            at=NOON,
            hardware=hardware(name, cores=96, watts=700, gpus=cards.get(name, CARDS)),
            samples=(Sample(NOON, (IDLE_W + CARD_W * count) * 1000),),
            load=Load(1000 * count, 1_000_000 * count, 1000 * count, 0),
        )
        for at, (name, count) in enumerate(used.items())
    }


def best_of(
    nodes: Mapping[str, NodeState], pod: PodAsk, weights: Weights = WEIGHTS
) -> tuple[str, bool]:
    """The best node, and whether the term applies; the decision is the same again."""
    context = DecisionContext(TwinColumns.of(nodes, 0), 1, 0, NOON)
    decided = decide_prioritize(pod, list(nodes), context, weights)
    declared = weights_of(declaration(weights))
    assert declared is not None
    assert again(decided, context.twin_columns, declared) == decided
    applies = any("devices" in named_values(each) for each in decided.top)
    return list(nodes)[int(answered_scores(decided).argmax())], applies


def test_a_pod_with_claims_goes_where_it_leaves_the_fewest_devices() -> None:
    nodes = nodes_with({"empty": 0, "begun": 1, "nearly full": 7, "half": 4})

    assert best_of(nodes, claiming()) == ("nearly full", True)
    assert best_of({name: nodes[name] for name in ("empty", "begun")}, claiming()) == (
        "begun",
        True,
    )


def test_a_pod_without_claims_goes_where_the_headroom_is() -> None:
    """The published formula. kube-scheduler itself can pack the resource of a device plugin."""
    nodes = nodes_with({"empty": 0, "begun": 1})

    assert best_of(nodes, replace(claiming(), devices=DeviceAsk())) == ("empty", False)


def test_without_points_the_headroom_alone_decides() -> None:
    nodes = nodes_with({"empty": 0, "begun": 1})

    assert best_of(nodes, claiming(), Weights(devices_points=0.0)) == ("empty", False)


def test_the_term_gives_way_to_packing_by_fragmentation() -> None:
    packs = Weights(gpu=GpuWeights(packing="fragmentation"))

    assert best_of(nodes_with({"empty": 0, "begun": 1}), claiming(), packs)[1] is False


def test_a_node_without_known_devices_is_never_the_best() -> None:
    nodes = nodes_with({"unknown": 0, "empty": 0}, cards={"unknown": 0})

    assert best_of(nodes, claiming())[0] == "empty"
