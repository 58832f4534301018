"""The hardware and the cards of a node as a fact."""

from pathlib import Path

import pytest
from msgspec.structs import replace

import host_trees
from joulie_agent.inventory import Inventory, inventory_of, show_limited, uids_of_pods
from joulie_agent.report import CapRange, Card, Cpu, Hardware, NodeReport
from joulie_agent.sources.host import Host
from joulie_bus.runtime import metrics
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.hardware.catalog import EMPTY

CARD = Card(uuid="GPU-1", index=0, source="nvml", model="NVIDIA H100 80GB HBM3", memory_mb=81_559)
CAP = CapRange(source="nvml", component="GPU-1", watts=700, min_watts=200, max_watts=700)
REPORT = NodeReport(
    node="n1",
    hardware=Hardware(cpu=Cpu(model="Intel(R) Xeon(R) Platinum 8480+", sockets=2, threads=224)),
    cards=(CARD,),
    caps=(CAP,),
)


def test_the_catalog_completes_what_the_node_does_not_know() -> None:
    hardware = inventory_of(REPORT, {}, {}, shipped_catalog()).hardware
    assert hardware.source == "agent"
    assert (hardware.gpu_model, hardware.gpu_count) == ("NVIDIA H100 SXM5", 1)
    assert (hardware.gpu_max_mw, hardware.gpu_min_mw) == (700_000, 200_000)
    assert hardware.cpu_max_mw_per_socket == 350_000


def test_a_card_of_one_pod_has_its_uid_as_owner() -> None:
    found = inventory_of(REPORT, {"GPU-1": ["team-a/train-0"]}, {"team-a/train-0": "u1"}, EMPTY)
    assert (found.cards[0].owner, found.cards[0].holder) == ("u1", "")


def test_a_pod_without_a_known_uid_is_named() -> None:
    found = inventory_of(REPORT, {"GPU-1": ["team-a/train-0"]}, {}, EMPTY)
    assert (found.cards[0].owner, found.cards[0].holder) == ("", "team-a/train-0")


def test_a_card_of_several_pods_is_in_use_by_several() -> None:
    found = inventory_of(REPORT, {"GPU-1": ["a/x", "a/y"]}, {"a/x": "u1"}, EMPTY)
    assert (found.cards[0].owner, found.cards[0].holder) == ("", "?")


def test_uids_come_from_the_folders_of_logs(tmp_path: Path) -> None:
    for name in ("team-a_train-0_0b5c", "kube-system_etcd-n1_77aa", "something else"):
        (tmp_path / "var/log/pods" / name).mkdir(parents=True)
    assert uids_of_pods(Host(tmp_path)) == {
        "team-a/train-0": "0b5c",
        "kube-system/etcd-n1": "77aa",
    }


@pytest.mark.anyio
async def test_cards_of_a_tree_are_listed_without_a_kubelet(tmp_path: Path) -> None:
    host_trees.instinct(host_trees.xeon(tmp_path))
    found = await Inventory("n1", Host(tmp_path), shipped_catalog()).read(None)
    assert [card.model for card in found.cards] == ["AMD Instinct MI300X"] * 2
    assert (found.hardware.gpu_vendor, found.hardware.gpu_count) == ("amd", 2)
    assert found.hardware.cpu_max_mw_per_socket == 350_000


def test_a_card_has_the_whole_seconds_for_which_it_was_slowed_down() -> None:
    slowed = replace(REPORT, cards=(replace(CARD, power_limited_s=12.9, heat_limited_s=0.0),))
    (card,) = inventory_of(slowed, {}, {}, EMPTY).cards
    (unknown,) = inventory_of(REPORT, {}, {}, EMPTY).cards
    assert (card.power_limited_s, card.heat_limited_s) == (12, 0)
    assert (unknown.power_limited_s, unknown.heat_limited_s) == (None, None)


def test_a_metric_has_how_long_cards_were_slowed_down_and_forgets_cards_that_are_gone() -> None:
    def shown() -> dict[str, float]:
        (family,) = metrics.AGENT_LIMITED.collect()
        return {
            each.labels["card"] + " " + each.labels["by"]: each.value for each in family.samples
        }

    show_limited([replace(CARD, power_limited_s=12.5), replace(CARD, uuid="GPU-2")])
    assert shown() == {"GPU-1 power": 12.5}
    show_limited([])
    assert shown() == {}
