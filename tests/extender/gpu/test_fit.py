"""Which nodes have the GPUs that a pod requests, compared with the reference implementation."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import NOON, ask, hardware
from gpu_kit import (
    A100,
    CARDS,
    MB,
    PODS,
    a_card,
    a_claim,
    node,
    reference_fit,
    twin_columns_of,
    wanting,
)
from joulie_bus.events import Decision, GpuAsk, PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide import decide
from joulie_extender.decide.decide import (
    DecisionContext,
    DecisionOptions,
    answered_scores,
    filter_decision,
    passed,
    prioritize_decision,
    rows_of,
)
from joulie_extender.gpu.fit import (
    CACHED_REQUESTS,
    WANTS_CARDS,
    WANTS_LINKED,
    GpuVerdict,
    GpuWeights,
    breaks_group,
    gpu_request_of,
    gpu_verdicts,
    held_request_of,
    points,
    reason_of,
)
from joulie_extender.gpu.models import aliases_of, is_model
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.pods.load import Load
from joulie_projections.state.cards import CardState
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns

NODES = ["n0", "n1", "n2"]
GPU = DecisionOptions(duty="gpu")


def verdicts(
    pod: PodAsk, cards: Mapping[str, CardState], twin_columns: TwinColumns | None = None
) -> list[int]:
    twin_columns = twin_columns or twin_columns_of(cards)
    rows = rows_of(
        decide.decide_filter(
            pod, NODES, DecisionContext(twin_columns, 1, 0, NOON), Weights()
        ).candidates
    )
    return list(gpu_verdicts(pod, twin_columns, rows, ()))


def fitting(pod: PodAsk, **cards: CardState) -> bool:
    """On the first node."""
    return verdicts(pod, cards)[0] == GpuVerdict.PASSED


def scored(pod: PodAsk, **cards: CardState) -> list[int]:
    context = DecisionContext(twin_columns_of(cards), 1, 0, NOON)
    rows = decide.decide_filter(pod, NODES, context, Weights()).candidates
    found: list[int] = answered_scores(
        prioritize_decision(pod, rows, NODES, context, Weights(), "gpu")
    ).tolist()
    return found


@pytest.mark.slow
@given(cards=CARDS, pod=PODS)
@settings(deadline=None, max_examples=300)
def test_the_columns_say_what_a_plain_loop_says(cards: dict[str, CardState], pod: PodAsk) -> None:
    twin_columns = twin_columns_of(cards)
    expected = [reference_fit(pod, name, cards) for name in NODES]
    rows = rows_of(
        decide.decide_filter(
            pod, NODES, DecisionContext(twin_columns, 1, 0, NOON), Weights()
        ).candidates
    )

    if gpu_request_of(pod) is not None:
        found = [GpuVerdict(code) for code in gpu_verdicts(pod, twin_columns, rows, ())]
        assert [verdict == GpuVerdict.PASSED for verdict in found] == [e.fits for e in expected]
        assert [v == GpuVerdict.NOT_LINKED for v in found] == [e.is_only_unlinked for e in expected]
        of_ten = points(pod, twin_columns, rows, GpuWeights()).tolist()
        assert of_ten == [each.of_ten for each in expected]


@given(cards=CARDS, pod=PODS)
@settings(deadline=None, max_examples=100)
def test_where_it_shall_fit_the_fullest_card_counts_as_a_plain_loop_says(
    cards: dict[str, CardState], pod: PodAsk
) -> None:
    twin_columns = twin_columns_of(cards)
    rows = np.array([twin_columns.rows[name] for name in NODES])
    found = points(pod, twin_columns, rows, GpuWeights(packing="fit", balance=0.0))

    if gpu_request_of(pod) is not None:
        expected = [reference_fit(pod, name, cards).snug / 10 for name in NODES]
        assert found.tolist() == pytest.approx(np.clip(expected, 0, 10).tolist())


@pytest.mark.parametrize(
    ("taken_milli", "of_ten"),
    [(0, 7.5), (2000, 10.0), (4000, 7.5), (8000, 5.0), (None, 0.0)],
    ids=["all cores free", "a half", "more", "none left", "nobody knows"],
)
def test_cores_and_cards_that_run_out_together_balance(
    taken_milli: int | None, of_ten: float
) -> None:
    cards = {"a": a_card(), "b": a_card(), "c": a_card(used_mb=MB), "d": a_card()}
    pod = replace(wanting(model="A100"), cpu_milli=2000)
    state = node(0)
    if taken_milli is not None:
        state = replace(state, cpu_milli=8000, load=Load(cpu_milli=taken_milli))
    twin_columns = twin_columns_of(cards).updated([("n0", state)], 0)

    row = np.array([twin_columns.rows["n0"]])
    found = points(pod, twin_columns, row, GpuWeights(packing="fit", balance=1.0))

    assert found.tolist() == pytest.approx([of_ten])


def test_a_pod_that_asks_for_no_card_is_packed_as_one_that_asks_for_any() -> None:
    cards = {"a": a_card(used_mb=MB, claims={"q": a_claim(MB)}), "b": a_card(), "c": a_card()}
    known = replace(node(0), hardware=hardware("n0"), load=Load())
    twin_columns = twin_columns_of(cards).updated([("n0", known)], 0)
    row = np.array([twin_columns.rows["n0"]])
    weights = GpuWeights(packing="fit", balance=1.0)
    any_card = replace(wanting(), cpu_milli=ask("p").cpu_milli)

    found = [points(pod, twin_columns, row, weights).tolist() for pod in (ask("p"), any_card)]

    assert found[0] == found[1] != [0.0]


def test_a_node_without_known_cores_balances_with_no_pod() -> None:
    unknown = replace(node(0), hardware=hardware("n0", cores=0, watts=100), load=Load())
    twin_columns = twin_columns_of({"a": a_card()}).updated([("n0", unknown)], 0)
    row = np.array([twin_columns.rows["n0"]])

    found = points(wanting(model="A100"), twin_columns, row, GpuWeights(packing="fit", balance=1.0))

    assert found.tolist() == [0.0]


def test_a_node_of_one_core_is_a_known_one() -> None:
    one = replace(node(0), hardware=hardware("n0", cores=1, watts=100), load=Load())
    twin_columns = twin_columns_of({"a": a_card()}).updated([("n0", one)], 0)
    row = np.array([twin_columns.rows["n0"]])
    pod = replace(wanting(model="A100"), cpu_milli=1000)

    found = points(pod, twin_columns, row, GpuWeights(packing="fit", balance=1.0))

    assert found.tolist() == [10.0], "cores and cards run out together"


@pytest.mark.slow
@given(cards=CARDS, pod=PODS, victims=st.sets(st.sampled_from("pqrz")))
@settings(deadline=None, max_examples=200)
def test_with_victims_the_columns_equal_a_plain_loop_without_them(
    cards: dict[str, CardState], pod: PodAsk, victims: set[str]
) -> None:
    twin_columns = twin_columns_of(cards)
    rows = np.array([twin_columns.rows[name] for name in NODES])
    alone = gpu_verdicts(pod, twin_columns, rows, ())

    found = gpu_verdicts(pod, twin_columns, rows, (), tuple(victims))

    if gpu_request_of(pod) is not None:
        expected = [reference_fit(pod, name, cards, victims).fits for name in NODES]
        assert (found == GpuVerdict.PASSED).tolist() == expected
    assert gpu_verdicts(pod, twin_columns, rows, ()).tolist() == alone.tolist(), (
        "they are still there"
    )


def test_a_pod_without_an_annotation_has_no_gpu_rule() -> None:
    assert verdicts(ask(gpus=1), {}) == [GpuVerdict.PASSED] * 3
    assert verdicts(wanting(cards=4), {}) == [GpuVerdict.PASSED] * 3


def test_an_annotation_that_cannot_be_read_rejects_every_node_and_says_which() -> None:
    context = DecisionContext(twin_columns_of({"g": a_card()}), 1, 0, NOON)
    pod = PodAsk(uid="p", namespace="t", name="p", gpu=GpuAsk(unreadable="joulie.io/gpu-vram-mb"))
    asked = decide.decide_filter(pod, NODES, context, Weights()).candidates

    decision = filter_decision(pod, asked, rows_of(asked), context, Weights(), GPU)

    assert passed(decision) == [False] * 3
    assert decision.reason == (
        "an annotation of the pod about GPUs cannot be read: joulie.io/gpu-vram-mb"
    )


@pytest.mark.parametrize(
    ("asked", "model", "is_same"),
    [
        (A100, A100, True),
        ("A100", A100, True),
        ("a100 40gb", A100, True),
        (A100, "NVIDIA A100-SXM4-40GB", True),
        ("A100", "NVIDIA-A100-SXM4-80GB", True),
        (A100, "NVIDIA-A100-SXM4-80GB", False),
        ("A10", A100, False),
        ("A100", "NVIDIA-A10", False),
        ("L40", "NVIDIA-L40S", False),
        ("T4", "Tesla T4", True),
        ("H100 SXM5", "NVIDIA-H100-80GB-HBM3", True),
        ("H100 PCIe", "NVIDIA-H100-80GB-HBM3", False),
        ("nvidia", A100, False),
        ("-", A100, False),
        ("A100-PCIE-80GB", "NVIDIA A100 80GB PCIe", True),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB-SHARED", True),
        ("A100 SXM4 40GB", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", True),
        ("A100 SXM 80GB", "NVIDIA A100-SXM4-80GB", True),
        ("A100 PCIe", "NVIDIA A100-SXM4-80GB", False),
        ("MI250", "AMD Instinct MI250X / MI250", True),
        ("MI250X", "AMD_Instinct_MI250X_/_MI250", True),
        ("MI300X", "AMD_Instinct_MI300X_OAM", True),
        ("MI300A", "AMD_Instinct_MI300X_OAM", False),
        ("T4", "NVIDIA T400 4GB", False),
        ("NVIDIA-L4", "NVIDIA L40", False),
    ],
)
def test_a_name_is_what_people_write_and_never_another_card(
    asked: str, model: str, is_same: bool
) -> None:
    aliases = (
        ("NVIDIA H100 SXM5", "H100", "H100 SXM5", "H100 80GB HBM3"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100 SXM4 40GB", "A100"),
    )

    assert is_model(asked, model, aliases) is is_same


@pytest.mark.parametrize(
    ("asked", "model", "is_same"),
    [
        ("H100-PCIe-80GB", "NVIDIA H100 PCIe", True),
        ("H100 80GB HBM3", "H100 SXM5", True),
        ("H100 NVL 94GB", "NVIDIA-H100-NVL", True),
        ("H100 NVL 80GB", "NVIDIA-H100-NVL", False),
        ("Gaudi3", "HL-325L", True),
        ("Gaudi2", "HL-325L", False),
    ],
)
def test_the_catalog_knows_other_names(asked: str, model: str, is_same: bool) -> None:
    assert is_model(asked, model, aliases_of(shipped_catalog())) is is_same


def test_memory_is_wanted_of_one_card_and_not_of_all_together() -> None:
    pod = wanting(cards=0, vram_mb=30_000)

    assert not fitting(pod, a=a_card(used_mb=20_000), b=a_card(used_mb=20_000))
    assert fitting(pod, a=a_card(used_mb=10_960))
    assert not fitting(pod, a=a_card(used_mb=10_961))


def test_cards_of_a_pod_are_of_one_model() -> None:
    pod = wanting(cards=2, vram_mb=10_000)

    assert not fitting(pod, a=a_card(), b=a_card(model="NVIDIA A10"))
    assert fitting(pod, a=a_card(), b=a_card())


def test_cards_of_one_model_may_be_spelled_otherwise() -> None:
    pod, other = wanting(cards=2, vram_mb=10_000), a_card(model="NVIDIA A100-SXM4-40GB")

    assert fitting(pod, a=a_card(), b=other)
    assert not fitting(pod, a=a_card(), b=a_card(model="NVIDIA A100-SXM4-80GB"))


def test_linked_cards_are_linked_to_each_other_and_not_just_linked() -> None:
    pod = wanting(cards=2, topology="nvlink")
    apart = {"a": a_card(group="0"), "b": a_card(group="1"), "c": a_card()}

    assert verdicts(pod, apart)[0] == GpuVerdict.NOT_LINKED
    assert fitting(pod, **apart, d=a_card(group="1"))


def test_a_whole_card_is_assigned_to_one_pod_only() -> None:
    held = a_card(claims={"other": a_claim(1000)})

    assert not fitting(wanting(model="A100", vram_mb=10_000), a=held)
    assert fitting(wanting(cards=0, model="A100", vram_mb=10_000), a=held)


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(a_card(healthy=False), id="unhealthy"),
        pytest.param(a_card("elsewhere"), id="of a node that is not there"),
        pytest.param(a_card(""), id="gone, and claimed once"),
        pytest.param(a_card(owner="stranger"), id="somebody has it and claimed nothing"),
        pytest.param(a_card(used_mb=2000), id="used by nobody knows whom"),
        pytest.param(a_card(mb=0), id="of no size"),
    ],
)
def test_such_a_card_fits_no_pod(card: CardState) -> None:
    assert not fitting(wanting(model="A100"), a=card)


OTHERS = {"other": a_claim(20_000, confirmed=True)}  # of the pod team/p


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(a_card(holder="lab/train", used_mb=20_000), id="held by name"),
        pytest.param(a_card(holder="lab/train"), id="held by name, memory unknown"),
        pytest.param(a_card(holder="?"), id="held, and nothing else is known"),
        pytest.param(a_card(owner="uid-1"), id="held by uid, memory unknown"),
        pytest.param(a_card(holder="lab/train", claims=OTHERS), id="held by another than claimed"),
    ],
)
@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(wanting(model="A100"), id="whole"),
        pytest.param(wanting(model="A100", vram_mb=10_000), id="whole, of some size"),
        pytest.param(wanting(cards=0, model="A100", vram_mb=10_000), id="memory"),
        pytest.param(wanting(cards=0, model="A100", share_milli=250), id="share"),
    ],
)
def test_a_card_held_by_a_pod_without_a_claim_is_given_to_no_other_pod(
    card: CardState, pod: PodAsk
) -> None:
    assert not fitting(pod, a=card)


@pytest.mark.parametrize("holder", ["team/p", "?"])
def test_a_holder_that_has_claimed_leaves_what_it_did_not_claim(holder: str) -> None:
    card = a_card(holder=holder, used_mb=20_000, claims=OTHERS)

    assert not fitting(wanting(model="A100"), a=card)
    assert fitting(wanting(cards=0, model="A100", vram_mb=20_000), a=card)
    assert not fitting(wanting(cards=0, model="A100", vram_mb=21_000), a=card)


def test_memory_in_use_on_an_available_card_leaves_the_rest_as_the_article_counts() -> None:
    used = a_card(used_mb=20_000)

    assert not fitting(wanting(model="A100"), a=used), "all of its memory is wanted"
    assert fitting(wanting(model="A100", vram_mb=20_000), a=used)
    assert fitting(wanting(cards=0, model="A100", vram_mb=20_000), a=used)
    assert not fitting(wanting(cards=0, model="A100", vram_mb=21_000), a=used)


def test_what_a_pod_has_claimed_itself_does_not_stand_in_its_way() -> None:
    mine = a_card(claims={"me": a_claim()})

    assert fitting(wanting("me", model="A100"), a=mine)
    assert not fitting(wanting("you", model="A100"), a=mine)


def test_a_node_that_went_has_no_cards_until_it_is_back() -> None:
    cards, pod = {"a": a_card()}, wanting(model="A100")
    twin_columns = twin_columns_of(cards)
    gone = twin_columns.updated([("n0", node(0, present=False))], 0)

    assert verdicts(pod, cards, gone)[0] == GpuVerdict.NO_CARDS
    assert verdicts(pod, cards, gone.updated([("n0", node(0))], 0))[0] == GpuVerdict.PASSED


@pytest.mark.parametrize(
    ("used_mb", "score"), [(0, 0), (4095, 0), (4096, 1), (20_480, 5), (40_959, 9), (40_960, 10)]
)
def test_the_score_is_the_articles_share_of_memory_truncated(used_mb: int, score: int) -> None:
    other = a_card("n1", model="NVIDIA A10")

    assert scored(wanting(model="A100"), a=a_card(used_mb=used_mb), b=other) == [score, 0, 0]


def test_breaking_up_a_whole_group_of_linked_cards_costs_a_point() -> None:
    half = {"x": a_card(used_mb=MB), "y": a_card("n1", used_mb=MB)}
    whole = {name: a_card(group="0") for name in "ab"}
    single = {"c": a_card("n1"), "d": a_card("n1")}

    assert scored(wanting(model="A100"), **half, **whole, **single)[:2] == [2, 3]
    assert scored(wanting(cards=2, model="A100"), **half, **whole, **single)[:2] == [3, 3]


def test_packing_moves_the_score_about_energy_by_its_weight_alone() -> None:
    context = DecisionContext(twin_columns_of({"a": a_card(used_mb=20_480)}), 1, 0, NOON)
    pod = wanting(model="A100")

    heavy = Weights(gpu=GpuWeights(binpack=0.5))
    top = decide.decide_prioritize(pod, NODES, context, heavy).top[0]
    without = decide.decide_prioritize(pod, NODES, context, Weights(gpu=GpuWeights(0.0))).top[0]

    assert (top.node, top.packing, without.packing) == ("n0", 25.0, 0.0)


@given(cards=CARDS, pod=PODS)
@settings(deadline=None, max_examples=60)
def test_every_answer_about_cards_can_be_given_again(
    cards: dict[str, CardState], pod: PodAsk
) -> None:
    twin_columns, weights = twin_columns_of(cards), Weights()
    context = DecisionContext(twin_columns, 1, 0, NOON)
    asked = decide.decide_filter(pod, NODES, context, weights).candidates
    sent = DecisionOptions(duty="all", victims=("p",))
    answers: list[Decision] = [
        filter_decision(pod, asked, rows_of(asked), context, weights, DecisionOptions(duty="all")),
        decide.preempt_decision(pod, asked, rows_of(asked), context, weights, sent),
        prioritize_decision(pod, asked, NODES, context, weights, "gpu"),
    ]
    shuffled = twin_columns.with_cards(Cards.of(dict(reversed(cards.items())), twin_columns.rows))

    assert [decide.again(answer, shuffled, weights) for answer in answers] == answers


def test_the_codes_of_verdicts_stay_those_of_the_entries_that_exist() -> None:
    assert {verdict.name: verdict.value for verdict in GpuVerdict} == {
        "PASSED": 0,
        "NO_CARDS": 16,
        "NOT_LINKED": 17,
        "UNREADABLE": 18,
    }


# --- requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "number", "share_milli"),
    [
        pytest.param(wanting(cards=2, share_milli=250), 2, 250, id="a share of each of two"),
        pytest.param(wanting(cards=0, share_milli=250), 1, 250, id="a share of one"),
        pytest.param(wanting(cards=2), 2, 0, id="two whole ones"),
        pytest.param(replace(wanting(cards=0), gpu_milli=500), 1, 500, id="half of a resource"),
        pytest.param(replace(wanting(cards=0), gpu_milli=1500), 2, 750, id="one and a half"),
    ],
)
def test_a_pod_holds_shares_or_whole_cards(pod: PodAsk, number: int, share_milli: int) -> None:
    request = held_request_of(pod)

    assert request is not None
    assert (request.number, request.share_milli) == (number, share_milli)
    assert request.is_alone == (not share_milli)


def test_the_reason_for_refused_nodes_names_what_the_pod_asks_for() -> None:
    assert reason_of(wanting(cards=2, topology="nvlink")) == WANTS_LINKED
    assert reason_of(wanting(cards=1, topology="nvlink")) == WANTS_CARDS
    assert reason_of(ask(gpus=1)) == WANTS_CARDS


def test_whole_cards_with_as_much_memory_free_as_is_asked_for_fit() -> None:
    used = a_card(used_mb=MB - 20_000)

    assert fitting(wanting(model="A100", vram_mb=20_000), a=used)
    assert not fitting(wanting(model="A100", vram_mb=20_001), a=used)
    assert not fitting(wanting(vram_mb=MB + 1), a=a_card())


def test_no_more_requests_are_cached_than_the_most() -> None:
    twin_columns, rows = twin_columns_of({"a": a_card()}), np.array([1])
    asked = [wanting(cards=0, vram_mb=mb) for mb in range(1, 70)]

    kept = []
    for pod in asked:
        points(pod, twin_columns, rows, GpuWeights())
        kept.append(len(twin_columns.cards.memo))

    assert max(kept) == CACHED_REQUESTS
    assert kept[1] > kept[0]


# --- points, by hand ----------------------------------------------------------------------------


def points_on(cards: Mapping[str, CardState], pod: PodAsk, weights: GpuWeights) -> float:
    """On the first node: 8 cores, and a request of 2."""
    known = replace(node(0), hardware=hardware("n0", cores=8, watts=80), load=Load())
    twin_columns = twin_columns_of(cards).updated([("n0", known)], 0)
    (found,) = points(replace(pod, cpu_milli=2000), twin_columns, np.array([1]), weights)
    return float(found)


BALANCE, FULLEST = (GpuWeights(packing="fit", balance=part) for part in (1.0, 0.0))


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(wanting(cards=1, share_milli=500), id="half of one of two cards"),
        pytest.param(wanting(cards=0, vram_mb=MB // 2), id="half of its memory"),
        pytest.param(wanting(cards=2, share_milli=250), id="a quarter of each"),
    ],
)
def test_a_quarter_of_the_cards_balances_with_a_quarter_of_the_cores(pod: PodAsk) -> None:
    assert points_on({"a": a_card(), "b": a_card()}, pod, BALANCE) == pytest.approx(10.0)


@pytest.mark.parametrize("pod", [wanting(model="A100"), wanting(cards=0, share_milli=500)])
def test_cards_count_as_no_more_than_full(pod: PodAsk) -> None:
    """100 percent of the cards, and 25 of the cores."""
    assert points_on({"a": a_card(used_mb=MB)}, pod, BALANCE) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("pod", "of_ten"),
    [
        pytest.param(wanting(cards=0, share_milli=250), 7.5, id="a quarter beside a half"),
        pytest.param(wanting(cards=0, vram_mb=MB // 4), 7.5, id="of memory"),
        pytest.param(wanting(cards=0, share_milli=100, vram_mb=MB // 4), 7.5, id="the larger one"),
        pytest.param(wanting(cards=0, share_milli=750), 7.5, id="on the empty card"),
    ],
)
def test_a_share_scores_by_the_card_that_it_would_fill_most(pod: PodAsk, of_ten: float) -> None:
    cards = {"a": a_card(used_mb=MB // 2), "b": a_card()}

    assert points_on(cards, pod, FULLEST) == pytest.approx(of_ten)


def test_a_card_of_one_megabyte_is_a_card() -> None:
    tiny = {"a": a_card(mb=1, used_mb=1), "b": a_card("n1", mb=1)}

    assert scored(wanting(), **tiny)[:2] == [10, 0]
    assert verdicts(wanting(model="A100"), tiny)[1] == GpuVerdict.PASSED
    free = {"a": a_card(mb=1)}
    assert points_on(free, wanting(cards=0, vram_mb=1), BALANCE) == pytest.approx(2.5)


PAIR = {"a": a_card(group="0"), "b": a_card(group="0")}


@pytest.mark.parametrize(
    ("other", "of_ten"),
    [
        pytest.param(a_card(used_mb=MB), 10 / 3 - 1, id="full"),
        pytest.param(a_card(used_mb=MB // 2), 5 / 3 - 1, id="half in use"),
    ],
)
def test_a_pod_without_a_rule_loses_a_point_where_it_breaks_up_links(
    other: CardState, of_ten: float
) -> None:
    assert points_on({**PAIR, "c": other}, wanting(), GpuWeights()) == pytest.approx(of_ten)


def test_a_pod_without_a_rule_breaks_up_no_links_where_an_unlinked_card_is_free() -> None:
    cards = {**PAIR, "c": a_card(), "d": a_card(claims={"q": a_claim()})}

    assert points_on(cards, wanting(), GpuWeights()) == pytest.approx(2.5)
    assert points_on(cards, wanting(cards=2), GpuWeights()) == pytest.approx(2.5)


def test_a_group_is_broken_up_by_a_pod_that_takes_a_part_of_it() -> None:
    cards = {**PAIR, "c": a_card("n1")}
    rows = np.array([1, 2, 3])

    def broken(pod: PodAsk, there: Mapping[str, CardState]) -> list[bool]:
        found = breaks_group(pod, twin_columns_of(there), rows, ())
        answer: list[bool] = np.broadcast_to(found, 3).tolist()
        return answer

    assert broken(ask(gpus=1), cards) == [True, False, False]
    assert broken(ask(gpus=2), cards) == [False, False, False]
    assert broken(ask(), cards) == [False, False, False]
    assert broken(ask(gpus=1), {"c": a_card()}) == [False, False, False]
