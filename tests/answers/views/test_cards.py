"""What is said of cards: which are chosen, their sums, and the text."""

from msgspec.structs import replace

from bus_kit import inventory, records
from gpu_kit import A100, MB, a_card, a_claim, node
from joulie_answers.schema.requests import Gpus
from joulie_answers.schema.responses import FreeGpus, GpuList, IdleHolder
from joulie_answers.text.gpus import gpus_text
from joulie_answers.views import cards
from joulie_projections.fold.sequence import fold
from joulie_projections.pods.load import Load
from joulie_projections.state.gpu_arrivals import PRIOR_DEMAND
from joulie_projections.state.state import GPU_DEMAND, ClusterRow, ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

T4 = "Tesla T4"


def cluster_state() -> ClusterState:
    found = ClusterState()
    found.nodes["n0"] = node(0)
    found.gpus = {
        "a": a_card(group="0", claims={"u1": a_claim(confirmed=True)}),
        "b": a_card(claims={"u2": replace(a_claim(10_960), name="q")}),
        "c": a_card("n1", model=T4, mb=16_000),
        "d": a_card(healthy=False, owner="u9"),
    }
    return found


def answer(found: ClusterState, query: Gpus | None = None, *held: IdleHolder) -> GpuList:
    query = query or Gpus()
    chosen = cards.chosen(found, query, ())
    free = cards.free_by_model(TwinColumns.of_state(found), ()) if query == Gpus() else None
    return GpuList(
        position=1,
        at_ms=0,
        age_ms=0,
        behind_ms=0,
        items=[cards.card_of(found, *each) for each in chosen],
        total=len(chosen),
        next=None,
        sums=cards.sums_of([card for _, card in chosen]),
        free_gpus=free,
        idle=list(held),
    )


def shown(query: Gpus) -> list[str]:
    return [uuid for uuid, _ in cards.chosen(cluster_state(), query, ())]


def test_cards_are_chosen_by_node_model_pod_and_room() -> None:
    assert shown(Gpus()) == ["a", "b", "d", "c"]
    assert shown(Gpus(node="n1")) == ["c"]
    assert shown(Gpus(model="A100")) == ["a", "b", "d"]
    assert shown(Gpus(free=True)) == ["b", "c"]
    assert shown(Gpus(pod="team/q")) == shown(Gpus(pod="u2")) == shown(Gpus(pod="q")) == ["b"]
    assert shown(Gpus(pod="u9")) == ["d"]


def test_fragmentation_is_the_free_share_of_cards_in_use() -> None:
    total = answer(cluster_state()).sums

    assert (total.whole, total.holes, total.unhealthy) == (1, 1, 1)
    assert (total.free_mb, total.largest_free_mb) == (46_000, 30_000)
    assert total.fragmentation_pct == 65.2


def test_a_table_names_the_pods_of_a_card_and_its_faults() -> None:
    lines = gpus_text(answer(cluster_state())).splitlines()

    assert lines[1].split() == [
        *("n0", "a", A100, "40960", "40960", "0", "team/p", "(40960", "MB)"),
    ]
    assert lines[2].endswith("team/q (10960 MB, being bound)")
    assert lines[3].endswith("u9, without a claim; unhealthy")
    assert lines[4].startswith("n1 (gone)")


def test_a_uuid_of_a_real_card_does_not_touch_the_next_column() -> None:
    uuid = "GPU-5a4e7c3d-91b2-4f0e-8d6a-2f1c0b9e8d7c"
    found = ClusterState()
    found.nodes["n0"] = node(0)
    found.gpus = {uuid: a_card()}

    lines = gpus_text(answer(found)).splitlines()

    assert uuid in lines[1].split()
    assert lines[0].index("model") == lines[1].index(A100)


def test_without_cards_there_is_one_line() -> None:
    assert gpus_text(answer(ClusterState())).startswith("No GPU card is known")


def test_a_card_that_is_held_without_work_has_a_line_of_its_own() -> None:
    held = IdleHolder(node="n0", uuid="a", pods=["team/p"], since_ms=0, power_w=125.2)

    lines = gpus_text(answer(cluster_state(), None, held)).splitlines()

    assert lines[-1] == (
        "IDLE: team/p holds a on n0 without work since 1970-01-01 00:00:00 UTC, at 125 W"
    )


def test_free_gpus_that_no_pod_could_use_have_a_line_of_their_own() -> None:
    found = ClusterState()
    cores = replace(node(0), cpu_milli=96_000)
    found.nodes = {"n0": cores, "n1": replace(cores, ordinal=1, load=Load(cpu_milli=95_000))}
    found.gpus = {
        "whole": a_card("n0", model="H100"),
        "rest": a_card("n0", model="H100", claims={"u": a_claim(MB * 9 // 10, confirmed=True)}),
        "stranded": a_card("n1", model="T4"),
    }
    found.cluster[GPU_DEMAND] = ClusterRow(gpu_demand=PRIOR_DEMAND)  # 4 cores for half a card
    free = cards.free_by_model(TwinColumns.of_state(found), ())

    assert free["T4"] == FreeGpus(free=1.0, unusable=1.0)
    assert free["H100"] == FreeGpus(free=1.1, unusable=0.1)
    line = "H100: 1.10 GPUs free, 0.10 of them of no use to any pod like those that asked for GPUs"
    assert f"{line} before" in gpus_text(answer(found)).splitlines()
    assert not cards.selects_all(Gpus(node="n0"))


def test_a_card_shows_how_long_its_power_limit_and_heat_slowed_it_down() -> None:
    found = inventory("n1", "GPU-1", "GPU-2")
    first = replace(found.cards[0], power_limited_s=7300, heat_limited_s=0)
    draft = Draft(state := ClusterState())
    fold(draft, records(replace(found, cards=(first, found.cards[1]))), 0)
    draft.commit()
    shown_cards = answer(state)
    assert [card.power_limited_s for card in shown_cards.items] == [7300, None]
    _, first_line, second_line, *_ = gpus_text(shown_cards).splitlines()
    assert "2.0 h" in first_line
    assert " 0 s" in first_line
    assert second_line.count("?") == 2
