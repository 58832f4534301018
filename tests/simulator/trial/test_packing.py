"""A cluster at one moment, packed again: which nodes could sleep, and what holds the others."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from joulie_bus.errors import NotTried
from joulie_projections.catalog_file import shipped_catalog
from joulie_simulator.trial.moment import Listed, Moment, moment_of
from joulie_simulator.trial.packing import NEEDED, NO_OTHER_PLACE, PLANNED, Trial, tried
from kube_moments import HOST, Tree, daemon, node, pod

CATALOG = shipped_catalog()
SIX = [node(f"n{number}") for number in range(6)]
CLAIM = [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]


def listed(nodes: Sequence[Tree], pods: Sequence[Tree], stays: Mapping[str, str]) -> Listed:
    encode = msgspec.json.encode
    return Listed(list(map(encode, nodes)), list(map(encode, pods)), {}, stays, True, 37)


def moment(
    nodes: Sequence[Tree], pods: Sequence[Tree], stays: Mapping[str, str] | None = None
) -> Moment:
    return moment_of(listed(nodes, pods, stays or {}), CATALOG)


def trial(
    nodes: Sequence[Tree], pods: Sequence[Tree], stays: Mapping[str, str] | None = None
) -> Trial:
    return tried(moment(nodes, pods, stays), CATALOG)


def held(found: Trial) -> dict[str, tuple[int, int]]:
    return {each.why: (each.nodes, each.pods) for each in found.pinned.awake}


def one_on_each(**spec: Any) -> list[Tree]:
    return [pod(f"p{number}", f"n{number}", **spec) for number in range(6)]


def test_pods_of_half_empty_nodes_are_packed_and_the_plan_keeps_a_reserve() -> None:
    found = trial(SIX, one_on_each())

    assert found.candidates == 6
    assert len(found.pinned.nodes) == 4  # of six: one has all pods, and one is the reserve
    assert held(found) == {NEEDED: (1, 6), PLANNED: (1, 0)}
    assert found.pinned.placed_again == 6
    assert found.free == found.pinned


def test_pods_of_daemon_sets_hold_no_node_awake() -> None:
    daemons = [daemon(f"d{number}", f"n{number}") for number in range(6)]

    found, without = trial(SIX, [*one_on_each(), *daemons]), trial(SIX, one_on_each())

    assert len(found.pinned.nodes) == len(without.pinned.nodes) == 4
    assert found.with_nodes == 6
    assert found.stay == {}


def test_a_pod_that_may_not_be_moved_holds_its_node_and_is_counted_by_the_reason() -> None:
    found = trial(
        SIX, one_on_each(), {"p1": "no controller", "p4": "no controller", "p5": "budget"}
    )

    assert not {"n1", "n4", "n5"} & set(found.pinned.nodes)
    assert found.stay == {"no controller": 2, "budget": 1}
    assert held(found)["no controller"] == (2, 2)
    assert held(found)["budget"] == (1, 1)


def test_pods_with_something_unknown_stay_in_one_run_and_move_in_the_other() -> None:
    found = trial(SIX, one_on_each(volumes=CLAIM))

    assert found.unknown_pods == 6
    assert list(found.unknown.values()) == [6]
    assert found.pinned.nodes == []
    assert len(found.free.nodes) == 4
    assert [each.why.startswith("not modelled: a volume") for each in found.pinned.awake] == [True]


def test_pods_that_exclude_each_other_keep_as_many_nodes_awake() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOST}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    assert trial(SIX, one_on_each(affinity=apart)).pinned.nodes == []


def test_pods_that_are_large_fill_nodes_and_none_is_lost() -> None:
    found = trial(SIX, one_on_each(cores=40))

    assert found.pinned.nodes == []
    assert found.pinned.without_place == 0
    assert held(found) == {NEEDED: (6, 6)}


def test_a_pod_that_finds_no_other_place_stays_where_it_is() -> None:
    """Its node does not match what it asks for any more."""
    lost = pod("lost", "n3", nodeSelector={"disk": "ssd"})

    found = trial(SIX, [*one_on_each(), lost])

    assert "n3" not in found.pinned.nodes
    assert held(found)[NO_OTHER_PLACE] == (1, 1)
    assert found.pinned.without_place == 0


def test_a_pod_that_waits_is_placed_last_or_counted() -> None:
    found = trial(SIX, [*one_on_each(), pod("new", ""), pod("huge", "", cores=500)])

    assert found.waiting == 2
    assert found.pinned.without_place == 1
    assert found.pinned.placed_again == 7


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, "control plane"),
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"status": {"conditions": []}}, "not ready"),
        ({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}, "do-not-disrupt"),
        ({"metadata": {"labels": {"joulie.io/reserved": "true"}}}, "reserved"),
    ],
)
def test_nodes_that_may_not_sleep_are_left_out_with_the_reason(
    change: dict[str, Tree], why: str
) -> None:
    special = node("n9")
    for part, values in change.items():
        special[part] |= values

    found = trial([*SIX, special], one_on_each())

    assert found.candidates == 6
    [left_out] = found.left_out
    assert why in left_out
    assert "n9" not in found.pinned.nodes


def test_watts_are_an_interval_and_narrow_where_the_processors_are_known() -> None:
    known = {"joulie.io/hw.cpu-model": "AMD EPYC 9654", "joulie.io/hw.cpu-sockets": "1"}
    rated = trial([node(f"n{number}", labels=known) for number in range(6)], one_on_each())
    guessed = trial(SIX, one_on_each())

    assert rated.rated_candidates == 6
    assert guessed.rated_candidates == 0
    for found in (rated, guessed):
        assert found.pinned.watts_low is not None
        assert found.pinned.watts_high is not None
        assert 0 < found.pinned.watts_low < found.pinned.watts_high
    assert rated.pinned.watts_high == pytest.approx(0.5 * 360 * len(rated.pinned.nodes))


def test_a_node_of_which_nothing_is_known_has_no_watts_and_is_counted() -> None:
    bare = [node(f"n{number}") for number in range(6)]
    for each in bare:
        del each["status"]["allocatable"]["cpu"]

    found = trial(bare, [])

    assert found.pinned.nodes
    assert found.pinned.watts_low is None
    assert found.pinned.unrated_nodes == len(found.pinned.nodes)


def test_the_same_lists_give_the_same_answer() -> None:
    assert trial(SIX, one_on_each(cores=7)) == trial(SIX, one_on_each(cores=7))


def test_pods_that_have_ended_and_pods_of_unlisted_nodes_do_not_count() -> None:
    ended = pod("done", "n1")
    ended["status"]["phase"] = "Succeeded"

    assert [each.name for each in moment(SIX, [ended, pod("gone", "n77")]).pods] == []


def test_what_cannot_be_read_is_one_error() -> None:
    with pytest.raises(NotTried, match="a node of the list cannot be read"):
        trial([{"metadata": {"name": 5}}], [])
