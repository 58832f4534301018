"""What `joulie gpus` shows."""

from msgspec.structs import replace

from gpu_kit import A100, a_card, a_claim, node
from joulie_cli.commands.gpus import Wish, as_text, report
from joulie_projections.state.state import ClusterState

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


def shown(wish: Wish) -> list[str]:
    return [card["uuid"] for card in report(cluster_state(), wish)["cards"]]


def test_cards_are_chosen_by_node_model_pod_and_room() -> None:
    assert shown(Wish()) == ["a", "b", "d", "c"]
    assert shown(Wish(node="n1")) == ["c"]
    assert shown(Wish(model="A100")) == ["a", "b", "d"]
    assert shown(Wish(is_free=True)) == ["b", "c"]
    assert shown(Wish(pod="team/q")) == shown(Wish(pod="u2")) == shown(Wish(pod="q")) == ["b"]
    assert shown(Wish(pod="u9")) == ["d"]


def test_fragmentation_is_what_is_left_over_beside_somebody() -> None:
    total = report(cluster_state(), Wish())["total"]

    assert (total["whole"], total["holes"], total["unhealthy"]) == (1, 1, 1)
    assert (total["free_mb"], total["largest_free_mb"]) == (46_000, 30_000)
    assert total["fragmentation_pct"] == 65.2


def test_a_table_says_whose_a_card_is_and_what_is_wrong_with_it() -> None:
    lines = as_text(report(cluster_state(), Wish())).splitlines()

    assert lines[1].split() == [
        *("n0", "a", A100, "40960", "40960", "0", "team/p", "(40960", "MB)"),
    ]
    assert lines[2].endswith("team/q (10960 MB, being bound)")
    assert lines[3].endswith("u9, without a claim; unhealthy")
    assert lines[4].startswith("n1 (gone)")


def test_without_cards_there_is_one_line() -> None:
    assert as_text(report(ClusterState(), Wish())).startswith("0 card(s) on 0 node(s)")
