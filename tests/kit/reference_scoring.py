"""A reference implementation of filter and scoring: node by node, term by term, as documented.

It has no columns and no cached sums. The extender's results must equal it to the last bit, so each
sum is made in the order of the formula. Random cluster states for comparisons are here, too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import NOON, SECOND, ask, hardware
from gpu_kit import CARDS, reference_fit
from joulie_bus.events import PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.fit import GpuWeights, asks
from joulie_extender.rules.eco import ECO, ECO_LABEL
from joulie_extender.rules.node_class import DRAINING, STALE
from joulie_extender.rules.rule import PASSED
from joulie_extender.terms.freshness import ScoreBasis
from joulie_extender.terms.preferences import Preference, Preferences, Team
from joulie_projections.pods.load import DEFAULT_CPU_MILLI, Load
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import Arrival, NodeState, Sample
from joulie_projections.twin.capacity_reserve import NO_RESERVE
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.facility import Hall, Halls
from joulie_projections.twin.power import Coefficients
from joulie_projections.twin.twin import NodeClass, Source, Twin, twin_of

LABEL, ZONE = "joulie.io/power-profile", "joulie.io/cooling-zone"


class Known(NamedTuple):
    """A node that the world has."""

    name: str
    state: NodeState
    twin: Twin
    hall: Hall


class Question(NamedTuple):
    pod: PodAsk
    nodes: list[Known]
    cards: Mapping[str, CardState]
    age_ms: int
    weights: Weights
    now: int = NOON


def question(
    states: Sequence[NodeState],
    pod: PodAsk,
    age_ms: int,
    weights: Weights,
    halls: Halls,
    cards: Mapping[str, CardState],
) -> tuple[Question, TwinColumns]:
    """Nodes named n0, n1 and so on; the same cluster state as twin columns."""
    named = {f"n{at}": replace(state, ordinal=at) for at, state in enumerate(states)}
    twins = {name: twin_of(state, halls) for name, state in named.items()}
    nodes = [Known(n, named[n], twins[n], halls.halls[twins[n].hall]) for n in named]
    twin_columns = TwinColumns.of(named, 0, halls)
    return (
        Question(pod, nodes, cards, age_ms, weights),
        twin_columns.with_cards(Cards.of(cards, twin_columns.rows)),
    )


# --- what is known ----------------------------------------------------------------------------


def is_fresh(asked: Question, twin: Twin) -> bool:
    limit = asked.weights.staleness_s
    return asked.age_ms <= limit * 1000 and twin.at > 0 and asked.now - twin.at <= limit * 1e9


def is_read(asked: Question, twin: Twin) -> bool:
    limit = asked.weights.staleness_s
    recent = twin.sampled_at > 0 and asked.now - twin.sampled_at <= limit * 1e9
    return is_fresh(asked, twin) and recent


def basis_of(asked: Question, twin: Twin) -> ScoreBasis:
    if not is_fresh(asked, twin):
        return ScoreBasis.NEUTRAL
    if twin.hardware == Source.NONE:
        return ScoreBasis.UNDISCOVERED
    return (
        ScoreBasis.MEASURED if is_read(asked, twin) and twin.capped_w > 0 else ScoreBasis.PREDICTED
    )


# --- watts ------------------------------------------------------------------------------------


def marginal_of(asked: Question, node: Known) -> float:
    twin, pod, rates = node.twin, asked.pod, asked.weights.coefficients
    if twin.hardware == Source.NONE:
        return 0.0
    is_performance = pod.workload == "performance"
    cores = (pod.cpu_milli or DEFAULT_CPU_MILLI[pod.workload]) / 1000
    memory = min(1.3, 1 + 0.01 * (pod.memory_bytes / 2**30)) if rates.memory_factor else 1.0
    cpu = rates.cpu * min(1.0, cores / (twin.cores or 1.0)) * twin.cpu_max_w * memory
    rate = rates.gpu_performance if is_performance else rates.gpu_standard
    watts = cpu + rate * min(pod.gpu_milli / 1000, twin.gpus) * twin.gpu_max_w
    dear = asked.weights.facility and node.hall.is_polled and node.hall.pue > 1
    return watts * node.hall.pue if dear else watts


def assumed_of(asked: Question, twin: Twin) -> float:
    rates, all_pods = asked.weights.coefficients, basis_of(asked, twin) != ScoreBasis.MEASURED
    cpu = twin.pods_cpu_w if all_pods else twin.new_cpu_w
    if rates.memory_factor:
        cpu = twin.pods_warm_cpu_w if all_pods else twin.new_warm_cpu_w
    standard = twin.pods_gpu_standard_w if all_pods else twin.new_gpu_standard_w
    performance = twin.pods_gpu_performance_w if all_pods else twin.new_gpu_performance_w
    return rates.cpu * cpu + rates.gpu_standard * standard + rates.gpu_performance * performance


# --- terms ------------------------------------------------------------------------------------


def cooling_of(asked: Question, node: Known) -> float:
    weights, twin = asked.weights, node.twin
    measured = weights.cooling_power == "measured" and is_read(asked, twin)
    power = twin.measured_w if measured else twin.capped_w
    warmer = node.hall.ambient_c - 20.0
    if weights.cooling_model == "linear":
        return clamped(power / 4000 * 80 + max(0.0, warmer) * 0.5)
    return clamped(power / (twin.tdp_w or 1.0) / max(0.5, 1 - warmer * 0.02) * 100)


def headroom_of(asked: Question, node: Known, marginal: float) -> float:
    twin = node.twin
    basis, more = basis_of(asked, twin), assumed_of(asked, twin) + marginal
    if basis <= ScoreBasis.NEUTRAL:
        return 0.0
    projected = (twin.measured_w if basis == ScoreBasis.MEASURED else 0.0) + more
    of_cap = (twin.capped_w - projected) / (twin.capped_w or 1.0) * 100
    if basis == ScoreBasis.MEASURED:
        return min(of_cap, 100.0)
    caps = twin.cpu_cap_pct + twin.gpu_cap_pct
    predicted = caps / 200 * (1 - cooling_of(asked, node) / 100) * 100
    predicted = predicted - more / (twin.tdp_w or 1.0) * 100
    return min(predicted, of_cap, 100.0) if twin.capped_w else min(predicted, 100.0)


def pressure_of(asked: Question) -> float:
    used = [
        100 - headroom_of(asked, node, 0.0)
        for node in asked.nodes
        if node.twin.node_class == NodeClass.PERFORMANCE
        and basis_of(asked, node.twin) > ScoreBasis.NEUTRAL
    ]
    return clamped(math.fsum(used) / len(used)) if used else 0.0


def trend_of(asked: Question, twin: Twin) -> float:
    """A falling node is better."""
    if not is_read(asked, twin):
        return 0.0
    weights = asked.weights
    whole = math.fsum(n.twin.trend_w_per_min for n in asked.nodes if is_read(asked, n.twin))
    is_burst = abs(whole) > weights.burst_w_per_min
    scale = weights.trend_burst_scale if is_burst else weights.trend_scale
    limit = weights.trend_limit
    return -min(limit, max(-limit, twin.trend_w_per_min / scale))


def packing_of(asked: Question, node: Known) -> float:
    weight = asked.weights.gpu.binpack
    if not asks(asked.pod) or asked.pod.gpu.unreadable or not weight:
        return 0.0
    return weight * (reference_fit(asked.pod, node.name, asked.cards).of_ten * 10.0)


def wishes_of(asked: Question, node: Known) -> float:
    pod, preferences = asked.pod, asked.weights.preferences
    points = 0.0
    prefers = list(preferences.all_pods)
    for team in preferences.teams:
        if team.name == pod.team or (not pod.team and pod.namespace in team.namespaces):
            prefers += team.prefers
    for each in prefers:
        points += each.points if node.state.labels.get(each.label) == each.value else 0.0
    return points


# --- the score --------------------------------------------------------------------------------


def score_of(asked: Question, node: Known) -> float:
    """A node without data never scores best."""
    if basis_of(asked, node.twin) > ScoreBasis.NEUTRAL:
        return known_score_of(asked, node) - cards_kept_of(asked, node)
    best = max(
        (known_score_of(asked, each) - cards_kept_of(asked, each) for each in known_of(asked)),
        default=100.0,
    )
    return min(asked.weights.neutral, best)


def known_of(asked: Question) -> list[Known]:
    return [n for n in asked.nodes if basis_of(asked, n.twin) > ScoreBasis.NEUTRAL]


def cards_kept_of(asked: Question, node: Known) -> float:
    """Leaves a node with free cards 20 points below the best other node, for pods without cards."""
    pod = asked.pod
    asks_cards = bool(pod.gpu_milli or pod.gpu_cards or asks(pod))
    if asked.weights.cpu_pods_on_gpu_nodes == "allow" or asks_cards or node not in known_of(asked):
        return 0.0
    others = [known_score_of(asked, n) for n in known_of(asked) if not has_free_cards(n.twin)]
    if not others or not has_free_cards(node.twin):
        return 0.0
    return known_score_of(asked, node) * (1 - max(0.0, max(others) - 20) / 100)


def has_free_cards(twin: Twin) -> bool:
    if not twin.gpu_max_w:
        return twin.gpus > 0
    used = twin.pods_gpu_standard_w + twin.pods_gpu_performance_w
    return twin.gpus - used / twin.gpu_max_w > 1e-6


def known_score_of(asked: Question, node: Known) -> float:
    weights, found = asked.weights, node.twin.node_class
    is_standard = asked.pod.workload == "standard"
    total = weights.headroom * headroom_of(asked, node, marginal_of(asked, node))
    total += weights.cooling * (100 - cooling_of(asked, node))
    total += trend_of(asked, node.twin)
    if is_standard and found == NodeClass.ECO:
        total += weights.eco_bonus
    if is_standard and found == NodeClass.PERFORMANCE:
        total -= weights.pressure * pressure_of(asked)
    if is_standard and found == NodeClass.DRAINING:
        total -= weights.draining_penalty
    total += packing_of(asked, node)
    total += wishes_of(asked, node)
    return clamped(total)


def answer_of(score: float, highest: float) -> int:
    """Truncated; a billionth below an integer is that integer."""
    return int(score * (highest / 100) + 1e-9)


def clamped(value: float) -> float:
    return min(100.0, max(0.0, value))


# --- the filter -------------------------------------------------------------------------------


def verdict_of(asked: Question, node: Known | None, *, says_eco: bool) -> int:
    """`says_eco` is the label, of the request's node or as it is known."""
    pod, stale = asked.pod, asked.weights.filter_stale
    if pod.exempt:
        return PASSED
    fresh = node is not None and is_fresh(asked, node.twin)
    found = node.twin.node_class if node is not None else NodeClass.UNKNOWN
    too_old = stale == "closed" and node is not None and not fresh
    if not fresh and stale != "twin":
        found = NodeClass.UNKNOWN
    if pod.workload == "performance":
        return _of_performance(found, says_eco=says_eco, too_old=too_old)
    if pod.placement != "eco-only":
        return PASSED
    if found == NodeClass.DRAINING:
        return DRAINING
    return STALE if too_old else PASSED


def _of_performance(found: NodeClass, *, says_eco: bool, too_old: bool) -> int:
    match found:
        case NodeClass.ECO:
            return ECO
        case NodeClass.DRAINING:
            return DRAINING
        case NodeClass.UNKNOWN if says_eco:
            return ECO_LABEL
        case _:
            return STALE if too_old else PASSED


# --- random worlds ----------------------------------------------------------------------------

seconds_ago = st.integers(0, 400).map(lambda age: NOON - age * SECOND)
histories = st.lists(st.builds(Sample, seconds_ago, st.integers(0, 9_000_000)), max_size=6).map(
    lambda samples: tuple(sorted(samples, key=lambda sample: sample.at))
)
percent = st.none() | st.integers(0, 100)
amounts = st.integers(0, 8_000)
loads = st.builds(Load, amounts, amounts.map(lambda milli: milli * 1000), amounts, amounts)
labels = st.fixed_dictionaries(
    {},
    optional={
        LABEL: st.sampled_from(["eco", "performance"]),
        ZONE: st.sampled_from(["hall-a", "hall-b"]),
        "spot": st.sampled_from(["yes", "no"]),
    },
)
states = st.builds(
    NodeState,
    ordinal=st.just(0),
    at=st.just(0) | seconds_ago,
    labels=labels,
    cpu_milli=st.sampled_from([0, 64_000]),
    gpus=st.integers(0, 8),
    hardware=st.none()
    | st.builds(
        hardware,
        st.just("n"),
        cores=st.integers(0, 192),
        watts=st.integers(0, 800),
        gpus=st.integers(0, 8),
    ),
    profile=st.sampled_from(["", "performance", "eco"]),
    draining=st.booleans(),
    cpu_cap_pct=percent,
    gpu_cap_pct=percent,
    samples=histories,
    load=loads,
    arrivals=st.lists(st.builds(Arrival, st.just("p"), seconds_ago, loads), max_size=3).map(tuple),
)
cluster_states = st.lists(states, min_size=1, max_size=6)
pods = st.builds(
    ask,
    performance=st.booleans(),
    cores=st.floats(0, 200),
    gpus=st.sampled_from([0, 0.5, 1, 4, 16]),
) | st.builds(lambda gib: replace(ask(), memory_bytes=gib * 2**30), st.integers(0, 64))
views = st.sampled_from([0, 250, 299_999, 300_000, 300_001])
rooms = st.builds(Hall, st.floats(-5, 60), st.floats(0.5, 3), st.booleans())
buildings = st.lists(rooms, min_size=3, max_size=3).map(
    lambda halls: Halls(("hall-a", "hall-b"), tuple(halls))
)
_prefer = st.builds(
    Preference, st.just("spot"), st.sampled_from(["yes", "no"]), st.floats(-100, 100)
)
_prefers = st.lists(_prefer, max_size=3).map(tuple)
_teams = st.builds(Team, st.sampled_from(["red", "blue"]), st.just(("team",)), _prefers)
preferences = st.builds(Preferences, _prefers, st.lists(_teams, max_size=2).map(tuple))
_points = st.floats(0, 100)
any_weights = st.builds(
    Weights,
    headroom=st.floats(0, 1),
    cooling=st.floats(0, 1),
    trend_limit=_points,
    trend_scale=st.floats(0.5, 20),
    trend_burst_scale=st.floats(0.5, 20),
    burst_w_per_min=st.floats(0, 2000),
    eco_bonus=_points,
    pressure=st.floats(0, 1),
    draining_penalty=_points,
    neutral=_points,
    staleness_s=st.just(300.0),
    gpu=st.just(GpuWeights()),
    score_range=st.sampled_from([10.0, 100.0]),
    cooling_model=st.sampled_from(["linear", "tdp-ratio"]),
    cooling_power=st.sampled_from(["cap", "measured"]),
    facility=st.booleans(),
    reserve=st.just(NO_RESERVE),
    filter_stale=st.sampled_from(["label", "closed", "twin"]),
    cpu_pods_on_gpu_nodes=st.sampled_from(["avoid", "allow"]),
    scoring=st.just("headroom"),
    coefficients=st.builds(
        Coefficients, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.booleans()
    ),
    preferences=preferences,
)
cards = CARDS
