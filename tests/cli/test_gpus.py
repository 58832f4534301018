"""The output of `joulie gpus`."""

from msgspec.structs import replace

from gpu_kit import A100, MB, a_card, a_claim, node
from joulie_cli.questions.gpus import CardFilter, as_text, report
from joulie_projections.pods.load import Load
from joulie_projections.state.gpu_arrivals import PRIOR_DEMAND
from joulie_projections.state.state import GPU_DEMAND, ClusterRow, ClusterState

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


def shown(card_filter: CardFilter) -> list[str]:
    return [card["uuid"] for card in report(cluster_state(), card_filter)["cards"]]


def test_cards_are_chosen_by_node_model_pod_and_room() -> None:
    assert shown(CardFilter()) == ["a", "b", "d", "c"]
    assert shown(CardFilter(node="n1")) == ["c"]
    assert shown(CardFilter(model="A100")) == ["a", "b", "d"]
    assert shown(CardFilter(is_free=True)) == ["b", "c"]
    assert (
        shown(CardFilter(pod="team/q"))
        == shown(CardFilter(pod="u2"))
        == shown(CardFilter(pod="q"))
        == ["b"]
    )
    assert shown(CardFilter(pod="u9")) == ["d"]


def test_fragmentation_is_the_free_share_of_cards_in_use() -> None:
    total = report(cluster_state(), CardFilter())["total"]

    assert (total["whole"], total["holes"], total["unhealthy"]) == (1, 1, 1)
    assert (total["free_mb"], total["largest_free_mb"]) == (46_000, 30_000)
    assert total["fragmentation_pct"] == 65.2


def test_a_table_names_the_pods_of_a_card_and_its_faults() -> None:
    lines = as_text(report(cluster_state(), CardFilter())).splitlines()

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

    lines = as_text(report(found, CardFilter())).splitlines()

    assert uuid in lines[1].split()
    assert lines[0].index("model") == lines[1].index(A100)


def test_without_cards_there_is_one_line() -> None:
    assert as_text(report(ClusterState(), CardFilter())).startswith("0 card(s) on 0 node(s)")


def test_a_card_that_is_held_without_work_has_a_line_of_its_own() -> None:
    found = report(cluster_state(), CardFilter())
    held = {"node": "n0", "card": "a", "pods": ("team/p",), "since_ms": 0, "power_w": 125.2}

    lines = as_text({**found, "idle_holders": [held]}).splitlines()

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
    told = report(found, CardFilter())

    assert told["free_gpus"]["T4"] == {"free": 1.0, "unusable": 1.0}
    assert told["free_gpus"]["H100"] == {"free": 1.1, "unusable": 0.1}
    line = "H100: 1.10 GPUs free, 0.10 of them of no use to any pod like those that asked for GPUs"
    assert f"{line} before" in as_text(told).splitlines()
    assert "free_gpus" not in report(found, CardFilter(node="n0"))
