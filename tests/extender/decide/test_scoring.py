import itertools
import random
from dataclasses import replace as replaced

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import NOON, SECOND, ask, hardware
from joulie_bus.events import PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import rows_by_name
from joulie_extender.decide.scoring import Scores, best, score, terms_digest, terms_of
from joulie_extender.terms.freshness import ScoreBasis
from joulie_extender.terms.term import ClusterTerms
from joulie_projections.pods.load import Load, load_of
from joulie_projections.state.state import Arrival, NodeState, Sample
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.facility import Hall, Halls
from joulie_projections.twin.power import Coefficients
from reference_scoring import cluster_states, loads, pods, states, views

FREE = Coefficients(0.0, 0.0, 0.0, False)  # pods draw nothing
EXACT = Coefficients(1.0, 1.0, 1.0, False)  # pods draw all that they ask for
STANDARD, PERFORMANCE = ask(), ask(performance=True)
MINUTE = 60 * SECOND


def readings(*watts: float, now: int = NOON) -> tuple[Sample, ...]:
    """One a minute, the last one now."""
    first = now - (len(watts) - 1) * MINUTE
    return tuple(Sample(first + at * MINUTE, round(w * 1000)) for at, w in enumerate(watts))


def node(profile: str = "", *watts: float, rated: int = 1000, gpus: int = 0) -> NodeState:
    """One socket of so many watts, not capped; `watts` are its readings."""
    return NodeState(
        ordinal=0,
        at=NOON,
        hardware=hardware("n", watts=rated, gpus=gpus),
        profile=profile,
        samples=readings(*watts),
    )


def twin_columns_of(*nodes: NodeState, cooling: float | None = None) -> TwinColumns:
    """Named n0, n1 and so on; with `cooling`, all of them under that stress."""
    named = {f"n{at}": replace(state, ordinal=at) for at, state in enumerate(nodes)}
    twin_columns = TwinColumns.of(named, 0)
    if cooling is None:
        return twin_columns
    stress = np.full(len(nodes) + 1, cooling)
    return TwinColumns(twin_columns.rows, {**twin_columns.columns, "cooling": stress}, 0)


def scored(
    twin_columns: TwinColumns,
    pod: PodAsk = STANDARD,
    weights: Weights = Weights(),  # noqa: B008
    *names: str,
    now: int = NOON,
    age_ms: int = 0,
) -> Scores:
    rows = rows_by_name(twin_columns, names or list(twin_columns.rows))
    return score(pod, twin_columns, rows, now, age_ms, weights)


def cluster_of(scores: Scores) -> ClusterTerms:
    assert scores.cluster is not None
    return scores.cluster


def answers(
    twin_columns: TwinColumns,
    pod: PodAsk = STANDARD,
    weights: Weights = Weights(),  # noqa: B008
    now: int = NOON,
    age_ms: int = 0,
) -> list[int]:
    answer: list[int] = scored(twin_columns, pod, weights, now=now, age_ms=age_ms).answer.tolist()
    return answer


# --- the four checks of the formula -----------------------------------------------------------


def test_half_of_the_cap_and_50_w_more_on_a_warm_node_is_41() -> None:
    twin_columns = twin_columns_of(node("performance", 300, rated=600), cooling=20)
    pod, weights = ask(performance=True, cores=8), Weights(coefficients=EXACT)

    scores = scored(twin_columns, pod, weights)

    assert (scores["marginal_w"].tolist(), scores.answer.tolist()) == ([50], [41])
    assert scores.score[0] == pytest.approx(41.1667, abs=1e-4)


def test_an_empty_cool_eco_node_is_95_for_a_standard_pod() -> None:
    twin_columns = twin_columns_of(node("eco", 0), cooling=0)

    assert answers(twin_columns, STANDARD, Weights(coefficients=FREE)) == [95]


@pytest.mark.parametrize("highest", [10, 100])
def test_a_score_that_is_a_whole_number_is_answered_as_that_number(highest: int) -> None:
    """Of all whole headrooms and stresses; seven tenths of a float are not exact."""
    nodes = [node("performance", watts, rated=100) for watts in range(101)]
    weights = Weights(coefficients=FREE, score_range=float(highest))
    wrong = {
        (watts, cooling): answer
        for cooling in range(101)
        for watts, answer in enumerate(
            answers(twin_columns_of(*nodes, cooling=cooling), PERFORMANCE, weights)
        )
        if answer != (70 * (100 - watts) + 15 * (100 - cooling)) * highest // 10_000
    }

    assert wrong == {}


def test_a_score_just_below_a_whole_number_is_not_rounded_up() -> None:
    twin_columns = twin_columns_of(node("performance", 30, rated=100), cooling=0)

    assert answers(twin_columns, PERFORMANCE, Weights(coefficients=FREE)) == [64]
    almost = Weights(coefficients=FREE, cooling=0.15 - 1e-9)
    assert answers(twin_columns, PERFORMANCE, almost) == [63]


def test_what_the_headroom_of_a_node_without_a_reading_rests_on() -> None:
    """The figures of docs/scoring.md: an estimate counts the pods that are bound already."""
    busy = replace(node("performance"), load=Load(cpu_milli=67_200))
    bare = NodeState(ordinal=0, at=NOON, profile="performance")
    found = scored(
        twin_columns_of(busy, node("performance"), bare, cooling=0), PERFORMANCE, TO_THE_LETTER
    )

    assert found.basis.tolist() == [
        ScoreBasis.PREDICTED,
        ScoreBasis.PREDICTED,
        ScoreBasis.UNDISCOVERED,
    ]
    of_pod = 100 / 96  # one core
    assert found["headroom"].tolist() == pytest.approx([10 - of_pod, 80 - of_pod, 0])
    assert found.answer.tolist() == [21, 70, 50]


TO_THE_LETTER = Weights(coefficients=EXACT)


@pytest.mark.parametrize(
    ("trend", "elsewhere", "expected"),
    [(120, 0, 27), (40, 560, 27), (40, 460, 40), (40, -640, 27), (-120, 0, 67)],
    ids=["steep", "burst", "just no burst", "burst downwards", "falling"],
)
def test_a_trend_counts_more_during_a_burst(trend: int, elsewhere: int, expected: int) -> None:
    twin_columns = twin_columns_of(
        node("performance", 500 - trend, 500), node("eco", 700 - elsewhere, 700)
    )
    weights = Weights(pressure=0.0, coefficients=FREE)

    scores = scored(twin_columns, STANDARD, weights, "n0")

    assert (scores.answer.tolist(), cluster_of(scores).trend_w_per_min) == (
        [expected],
        trend + elsewhere,
    )


def test_stale_readings_make_no_burst() -> None:
    silent = replace(node("eco", 0, 900), samples=readings(0, 900, now=NOON - 301 * SECOND))

    assert cluster_of(scored(twin_columns_of(silent, node("eco", 0, 100)))).trend_w_per_min == 100


def test_no_order_of_the_nodes_tips_the_threshold_of_a_burst() -> None:
    trends = [node("eco", 0, watts) for watts in (0.1, 0.2, 0.3, 0.7, 1e3, 1.1)]
    sums = {
        cluster_of(scored(twin_columns_of(*order))).trend_w_per_min
        for order in itertools.permutations(trends)
    }

    assert len(sums) == 1


# --- what is not known ------------------------------------------------------------------------

LATER = NOON + 301 * SECOND


@pytest.mark.parametrize(
    ("state", "now", "age_ms"),
    [
        (node("eco", 0), LATER, 0),
        (node("eco", 0), NOON, 300_001),
        (replace(node("eco", 0), hardware=None), NOON, 0),
        (replace(node("eco", 0), at=0), NOON, 0),
    ],
    ids=["stale twin", "old view", "no hardware", "never updated"],
)
def test_a_node_that_cannot_be_judged_is_neutral(state: NodeState, now: int, age_ms: int) -> None:
    assert answers(twin_columns_of(state), now=now, age_ms=age_ms) == [50]


def test_a_node_that_was_never_updated_is_neutral_however_old_a_twin_may_be() -> None:
    weights = Weights(staleness_s=2 * NOON / SECOND)

    never, once = answers(
        twin_columns_of(replace(node("eco", 0), at=0), replace(node("eco", 0), at=1)),
        weights=weights,
    )

    assert never == 50 < once


def test_a_stale_node_has_no_headroom_beside_a_fresh_one() -> None:
    stale = replace(node("eco", 100), at=NOON - 301 * SECOND)

    assert scored(twin_columns_of(stale, node("eco", 0)))["headroom"][0] == 0.0


def test_an_unknown_node_is_neutral() -> None:
    twin_columns = twin_columns_of(node("eco", 0))

    assert scored(twin_columns, STANDARD, Weights(), "n0", "ghost").answer.tolist()[1] == 50


def test_the_operators_tick_keeps_a_quiet_twin_fresh() -> None:
    quiet = twin_columns_of(node("eco", 0))
    ticked = TwinColumns(quiet.rows, quiet.columns, LATER)

    assert answers(quiet, now=LATER) == [50]
    assert scored(ticked, now=LATER).basis.tolist() == [ScoreBasis.PREDICTED]


def test_without_a_fresh_reading_the_prediction_of_the_caps_takes_over() -> None:
    twin_columns = twin_columns_of(replace(node("eco", 900), at=LATER))
    pod, weights = ask(cores=48), Weights(coefficients=EXACT, eco_bonus=0)

    scores = scored(twin_columns, pod, weights, now=LATER)

    # 1000 W are a cooling stress of 20: 80 are predicted, half of the rated power is asked for.
    assert scores["headroom"].tolist() == [80 - 50]
    assert scores.basis.tolist() == [ScoreBasis.PREDICTED]


def test_an_unmeasured_node_counts_its_pods_as_the_model_has_them() -> None:
    load = load_of(ask(cores=48))
    weights = Weights(coefficients=EXACT, eco_bonus=0)
    full = replace(node("eco"), load=load, arrivals=(Arrival("p", NOON, load),))

    scores = scored(twin_columns_of(full), ask(cores=24), weights)

    assert (scores["assumed_w"].tolist(), scores["headroom"].tolist()) == ([500], [80 - 75])


def test_a_reading_shows_all_pods_but_those_that_came_too_late_for_it() -> None:
    early, late = load_of(ask(cores=48)), load_of(ask(cores=24))
    state = replace(node("eco", 500), load=early + late, arrivals=(Arrival("p", NOON, late),))

    scores = scored(twin_columns_of(state), STANDARD, Weights(coefficients=EXACT))

    assert (scores["assumed_w"].tolist(), scores.basis.tolist()) == ([250], [ScoreBasis.MEASURED])


def test_a_stale_trend_no_longer_counts() -> None:
    falling = replace(node("eco", 900, 300), at=LATER)

    assert scored(twin_columns_of(falling), now=LATER)["trend"].tolist() == [0]


def test_where_all_that_is_known_is_bad_the_unknown_is_no_better() -> None:
    twin_columns = twin_columns_of(
        node("performance", 1000), replace(node("eco"), hardware=None, samples=())
    )

    over, unknown = scored(twin_columns).score.tolist()
    assert over == unknown < 50


@pytest.mark.parametrize(
    ("model", "power", "stress"),
    [
        ("linear", "cap", 20),
        ("linear", "measured", 10),
        ("tdp-ratio", "cap", 100),
        ("tdp-ratio", "measured", 50),
    ],
)
def test_the_cooling_model_and_its_power_are_settings(
    model: str, power: str, stress: float
) -> None:
    weights = Weights(cooling_model=model, cooling_power=power)

    assert scored(twin_columns_of(node("eco", 500)), STANDARD, weights)["cooling"].tolist() == [
        stress
    ]


def test_a_dear_room_makes_a_pods_watts_dearer_if_the_settings_say_so() -> None:
    nodes = {"n0": node("eco", 100)}
    hall = Hall(pue=1.6, is_polled=True)
    twin_columns = TwinColumns.of(nodes, 0, Halls(("hall",), (hall, hall)))
    pod, exact = ask(cores=8), Weights(coefficients=Coefficients(memory_factor=False))

    watts = [
        scored(twin_columns, pod, replaced(exact, facility=facility))["marginal_w"][0]
        for facility in (False, True)
    ]
    assert watts == pytest.approx([0.7 * 1000 / 12, 1.6 * 0.7 * 1000 / 12])


def test_a_cap_of_nothing_leaves_only_the_prediction() -> None:
    twin_columns = twin_columns_of(replace(node("eco", 100), cpu_cap_pct=0))
    scores = scored(twin_columns, STANDARD, Weights(coefficients=FREE))

    assert (scores.basis.tolist(), scores["headroom"].tolist()) == ([ScoreBasis.PREDICTED], [0])


def test_under_a_cap_of_nothing_a_pod_counts_by_the_rated_power() -> None:
    """24 of 96 cores."""
    twin_columns = twin_columns_of(replace(node("eco", 100), cpu_cap_pct=0, gpu_cap_pct=0))
    scores = scored(twin_columns, ask(cores=24), Weights(coefficients=EXACT))

    assert scores["headroom"].tolist() == [-25.0]


def test_a_cap_of_half_a_watt_is_a_cap() -> None:
    """1 of 400 cores is an eighth of a watt: the pod takes 4, and pods that are there 8."""
    half = replace(node("eco"), hardware=hardware("n", cores=400, watts=50), cpu_cap_pct=1)
    read = replace(half, samples=readings(0.125))
    loaded = replace(half, load=load_of(ask(cores=8)))

    by_reading = scored(twin_columns_of(read), ask(cores=4), Weights(coefficients=FREE))
    by_model = scored(twin_columns_of(loaded), ask(cores=4), Weights(coefficients=EXACT))

    assert (by_reading.basis[0], by_reading["headroom"][0]) == (ScoreBasis.MEASURED, 75.0)
    assert (by_model.basis[0], by_model["headroom"][0]) == (ScoreBasis.PREDICTED, -200.0)


# --- terms ------------------------------------------------------------------------------------


def test_headroom_is_measured_against_the_cap_and_not_the_rating() -> None:
    twin_columns = twin_columns_of(replace(node("eco", 300), cpu_cap_pct=60))

    assert scored(twin_columns, STANDARD, Weights(coefficients=FREE))["headroom"].tolist() == [50]


@pytest.mark.parametrize(
    ("pod", "penalty", "lost"), [(STANDARD, 20, 20), (PERFORMANCE, 20, 0), (STANDARD, 0, 0)]
)
def test_a_draining_node_costs_a_standard_pod(pod: PodAsk, penalty: float, lost: int) -> None:
    stays = node("performance", 500)
    twin_columns = twin_columns_of(stays, replace(stays, draining=True))
    weights = Weights(draining_penalty=penalty, pressure=0, coefficients=FREE)

    performance, leaving = answers(twin_columns, pod, weights)

    assert performance - leaving == lost


def test_crowded_performance_nodes_repel_standard_pods_alone() -> None:
    twin_columns = twin_columns_of(
        node("performance", 900), node("performance", 500), node("eco", 0)
    )
    weights = Weights(coefficients=FREE)

    standard, performance = (
        scored(twin_columns, STANDARD, weights),
        scored(twin_columns, PERFORMANCE, weights),
    )

    assert cluster_of(standard).pressure == cluster_of(performance).pressure == 70
    assert standard["pressure"].tolist() == [0.3 * 70, 0.3 * 70, 0]
    assert performance["pressure"].tolist() == [0, 0, 0]


def test_what_no_term_reads_of_the_cluster_is_not_in_the_scores() -> None:
    columns = twin_columns_of(node("performance", 900), node("eco", 0))

    assert scored(columns, STANDARD, Weights(scoring="energy")).cluster is None


def test_stale_performance_nodes_add_no_pressure() -> None:
    crowded = replace(node("performance", 1000), at=NOON - 301 * SECOND)

    assert cluster_of(scored(twin_columns_of(crowded, node("eco", 0)))).pressure == 0


def test_an_overdrawn_node_loses_more_than_its_headroom() -> None:
    scores = scored(twin_columns_of(node("", 1500)), STANDARD, Weights(coefficients=FREE))

    assert (scores["headroom"].tolist(), scores.answer.tolist()) == ([-50], [0])


def test_the_range_of_kube_scheduler_can_be_answered() -> None:
    twin_columns = twin_columns_of(node("performance", 300, rated=600), cooling=20)
    pod = ask(performance=True, cores=8)

    assert answers(twin_columns, pod, Weights(coefficients=EXACT, score_range=10.0)) == [4]


def test_every_term_of_the_best_is_recorded_under_its_node() -> None:
    twin_columns = twin_columns_of(node("eco", 900), node("eco", 100), node("eco", 500))
    scores = scored(twin_columns)

    first, *_, last = [terms_of(scores, ["n0", "n1", "n2"], at) for at in best(scores, 5)]

    assert (first.node, first.score, first.source) == ("n1", float(scores.score[1]), "measured")
    assert last.node == "n0"


def test_equally_good_nodes_keep_the_order_of_the_request() -> None:
    assert best(scored(twin_columns_of(*[node("eco", 500)] * 4)), 3) == [0, 1, 2]


def test_the_digest_of_all_terms_changes_with_the_last_bit() -> None:
    scores = scored(twin_columns_of(node("eco", 500)))
    nudged = replace(scores, terms=scores.terms.copy())
    nudged["trend"][:] = np.nextafter(scores["trend"], 1)

    assert terms_digest(nudged) != terms_digest(scores) == terms_digest(replace(scores))


quick = settings(deadline=None, max_examples=100)

# --- laws -------------------------------------------------------------------------------------


@quick
@given(cluster_states, pods, views)
def test_a_score_is_a_whole_number_from_0_to_100(
    nodes: list[NodeState], pod: PodAsk, age_ms: int
) -> None:
    for value in answers(twin_columns_of(*nodes), pod, age_ms=age_ms):
        assert type(value) is int
        assert 0 <= value <= 100


@quick
@given(states, st.integers(0, 2000), st.integers(0, 2000), pods)
def test_a_node_that_draws_more_never_scores_higher(
    state: NodeState, watts: int, more: int, pod: PodAsk
) -> None:
    drawing = [replace(state, samples=readings(w)) for w in (watts, watts + more)]

    assert answers(twin_columns_of(drawing[1]), pod) <= answers(twin_columns_of(drawing[0]), pod)


@quick
@given(cluster_states, pods, st.integers(0, 32_000), st.integers(0, 8000))
def test_a_bigger_pod_never_scores_higher(
    nodes: list[NodeState], pod: PodAsk, cpu_milli: int, gpu_milli: int
) -> None:
    small = replace(pod, cpu_milli=pod.cpu_milli or 500)
    bigger = replace(
        small, cpu_milli=small.cpu_milli + cpu_milli, gpu_milli=small.gpu_milli + gpu_milli
    )
    twin_columns, weights = twin_columns_of(*nodes), Weights(cpu_pods_on_gpu_nodes="allow")
    before, after = (scored(twin_columns, asked, weights).score for asked in (small, bigger))

    assert (after <= before).all()


@quick
@given(cluster_states, pods)
def test_what_is_unknown_gets_the_neutral_score_and_nothing_else(
    nodes: list[NodeState], pod: PodAsk
) -> None:
    blind = [replace(state, hardware=None, cpu_milli=0, gpus=0) for state in nodes]

    assert scored(twin_columns_of(*blind), pod).score.tolist() == [50] * len(nodes)


@pytest.mark.slow
@quick
@given(cluster_states, pods, views)
def test_what_is_unknown_never_scores_better_than_the_best_that_is_known(
    nodes: list[NodeState], pod: PodAsk, age_ms: int
) -> None:
    scores = scored(twin_columns_of(*nodes), pod, age_ms=age_ms)
    neutral = scores.basis <= ScoreBasis.NEUTRAL
    assume(neutral.any() and not neutral.all())

    assert scores.score[neutral].max() <= scores.score[~neutral].max()


@quick
@given(states, loads, pods)
def test_a_pod_that_no_reading_shows_never_makes_its_node_better(
    state: NodeState, load: Load, pod: PodAsk
) -> None:
    fuller = replace(
        state, load=state.load + load, arrivals=(*state.arrivals, Arrival("new", NOON, load))
    )

    assert answers(twin_columns_of(fuller), pod) <= answers(twin_columns_of(state), pod)


@pytest.mark.slow
@quick
@given(states, pods)
def test_an_estimate_is_never_kinder_than_a_reading_of_the_same_watts(
    state: NodeState, pod: PodAsk
) -> None:
    dark = replace(state, samples=(), arrivals=())
    estimated = scored(twin_columns_of(dark), pod)
    lit = replace(dark, samples=readings(float(np.round(estimated["assumed_w"][0], 3))))
    read = scored(twin_columns_of(lit), pod)
    assume(estimated.basis[0] == ScoreBasis.PREDICTED and read.basis[0] == ScoreBasis.MEASURED)

    # A reading is whole milliwatts, so it may be half of one beside the estimate.
    milliwatt = 0.1 / float(twin_columns_of(dark).floats("capped_w")[1])
    assert estimated["headroom"][0] <= read["headroom"][0] + milliwatt


@quick
@given(cluster_states, pods, st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_changes_no_score(
    nodes: list[NodeState], pod: PodAsk, draw: random.Random
) -> None:
    twin_columns = twin_columns_of(*nodes)
    names = list(twin_columns.rows)
    shuffled = draw.sample(names, len(names))

    def by_name(order: list[str]) -> dict[str, float]:
        scores = scored(twin_columns, pod, Weights(), *order).score.tolist()
        return dict(zip(order, scores, strict=True))

    assert by_name(shuffled) == by_name(names)


def test_without_a_reading_a_lowered_cap_counts_with_the_power_of_all_pods() -> None:
    """48 cores of 96 at 720 W take 252 W, and the pod takes 42 W: more than the cap of 216 W."""
    capped = NodeState(
        ordinal=0,
        at=NOON,
        hardware=hardware("n", cores=96, watts=720),
        cpu_cap_pct=30,
        load=Load(48_000, 48_000_000, 0, 0),
    )
    found = scored(twin_columns_of(capped), ask(cores=8))

    assert found["headroom"][0] == pytest.approx((216 - 252 - 42) / 216 * 100)


def test_a_cap_is_exceeded_from_the_first_watt_on() -> None:
    """The cap is 350 W of 700 W."""
    energy, pod = Weights(scoring="energy"), ask(cores=4)
    other = node("eco", 200, rated=700)
    more_w = float(scored(twin_columns_of(other), pod)["marginal_w"][0])

    for left_w in (3.0, 0.5, -0.5):
        capped = replace(node("eco", 350 - more_w - left_w, rated=700), cpu_cap_pct=50)
        found = scored(twin_columns_of(capped, other), pod, energy)

        assert ("over_cap" in found.more) is (left_w < 0)


def test_a_cap_that_is_used_up_is_not_exceeded() -> None:
    """350 W of 350 W, and the pod draws nothing."""
    capped = replace(node("eco", 350, rated=700), cpu_cap_pct=50)
    weights = Weights(scoring="energy", coefficients=FREE)

    assert "over_cap" not in scored(twin_columns_of(capped, node("eco", 200)), weights=weights).more
