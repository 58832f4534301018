"""The policy `consolidate_and_sleep`: empty nodes fall asleep, pods that wait wake nodes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import NOON, SECOND, ask, hardware
from joulie_bus.events import (
    DrainingBegun,
    EvictionOrdered,
    NodePlan,
    ProfileAssigned,
    SleepOrdered,
    WakeOrdered,
)
from joulie_operator.planning import sleep
from joulie_operator.planning.policy_numbers import wrong_numbers
from joulie_operator.planning.reconcile import Plan, PlanBasis, plan, recompute
from joulie_operator.planning.rules import Rules
from joulie_operator.plugins import load_policy
from joulie_projections.pods.load import Load
from joulie_projections.state.state import (
    ClusterState,
    NodeState,
    PodState,
)

# All nodes are eco, so that no plan of a test changes a class.
RULES = Rules(
    policy="consolidate_and_sleep",
    queue_hp_base_frac=0.0,
    queue_hp_min=0,
    policy_numbers="reserve=0,max_share=1,max_step=1",
)

LONG_AGO = NOON - 3600 * SECOND


def node(**fields: Any) -> NodeState:
    """An awake eco node with 96 cores that has been empty for an hour."""
    usual = NodeState(
        ordinal=0,
        at=NOON,
        present=True,
        ready=True,
        schedulable=True,
        labels={"joulie.io/managed": "true"},
        hardware=hardware("n"),
        cpu_milli=96_000,
        profile="eco",
        cpu_cap_pct=60,
        class_at=LONG_AGO,
        emptied_at=LONG_AGO,
    )
    return replace(usual, **fields)


def asleep(**fields: Any) -> NodeState:
    return node(**{"power_state": "asleep", "ready": False, "power_at": LONG_AGO, **fields})


def with_cards(state: NodeState) -> NodeState:
    return replace(state, gpus=8, hardware=hardware("g", gpus=8))


def planned(
    nodes: dict[str, NodeState],
    *waiting: PodState,
    rules: Rules = RULES,
    pods_known: bool = True,
) -> Plan:
    state = ClusterState()
    state.nodes.update(nodes)
    state.pods.update({pod.pod.uid: pod for pod in waiting})
    made = plan(state, load_policy(rules.policy), rules, PlanBasis(7, NOON, pods_known))
    assert recompute(made.made, state, load_policy(rules.policy)) == made
    return made


def pod(uid: str = "p", *, cores: float = 1, gpus: float = 0) -> PodState:
    return PodState(pod=ask(uid, cores=cores, gpus=gpus))


def sleepers(made: Plan) -> list[str]:
    return [event.node for event in made.events if isinstance(event, SleepOrdered)]


def woken(made: Plan) -> dict[str, str]:
    return {event.node: event.because for event in made.events if isinstance(event, WakeOrdered)}


def test_empty_nodes_fall_asleep_and_one_of_a_family_stays_awake() -> None:
    made = planned({name: node() for name in "abc"})

    assert sleepers(made) == ["a", "b"]
    assert "2 fall asleep" in made.made.because


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param({"pods": 1}, id="a pod runs"),
        pytest.param({"emptied_at": NOON - 60 * SECOND}, id="empty for a minute"),
        pytest.param({"power_at": NOON - 60 * SECOND}, id="awake for a minute"),
        pytest.param({"emptied_at": 0, "class_at": NOON - SECOND}, id="new"),
        pytest.param({"profile": "", "class_at": 0}, id="not planned yet"),
        pytest.param({"draining": True}, id="draining"),
        pytest.param({"ready": False}, id="not ready"),
        pytest.param({"schedulable": False}, id="cordoned"),
        pytest.param({"labels": {}}, id="not managed"),
        pytest.param(
            {"labels": {"joulie.io/managed": "true", "joulie.io/reserved": "true"}}, id="reserved"
        ),
    ],
)
def test_a_node_stays_awake(busy: dict[str, Any]) -> None:
    assert "z" not in sleepers(planned({"a": node(pods=1), "b": node(pods=1), "z": node(**busy)}))


def test_pods_of_daemon_sets_keep_no_node_awake() -> None:
    nodes = {"a": node(pods=1), "b": node(pods=1), "z": node(pods=2, daemon_pods=2)}

    assert sleepers(planned(nodes)) == ["z"]


IDLE_W = 96_000  # a watt for each core


def test_the_node_that_draws_most_for_each_core_when_idle_falls_asleep_first() -> None:
    nodes = {
        "a": node(idle_mw=2 * IDLE_W),
        "b": node(idle_mw=4 * IDLE_W),
        "c": node(idle_mw=3 * IDLE_W),
    }
    made = planned(nodes, rules=numbered("reserve=0.5,max_share=1,max_step=1"))

    assert sleepers(made) == ["b"]
    [because] = [event.because for event in made.events if isinstance(event, SleepOrdered)]
    assert because == (f"{sleep.IDLE}: it draws 4.0 W per core when idle, and a draws 2.0 W")


def test_of_nodes_with_cards_the_power_of_each_card_decides() -> None:
    nodes = {
        name: replace(with_cards(node(idle_mw=watts * 1000, gpu_cap_pct=60)), gpus=gpus)
        for name, watts, gpus in (("a", 800, 8), ("b", 1600, 8), ("c", 900, 4))
    }

    made = planned(nodes, rules=numbered("reserve=0,max_share=1,max_step=0.4"))

    assert sleepers(made) == ["c"]  # 225 W for each card, b 200, a 100


def test_readings_count_more_than_rated_power() -> None:
    """c is rated at less than its readings say, and d at more."""
    nodes = {name: node() for name in "ab"}
    nodes |= {"c": node(idle_mw=4 * IDLE_W), "d": node(idle_mw=IDLE_W // 2)}

    made = planned(nodes, rules=numbered("reserve=0.25,max_share=1,max_step=1"))

    assert set(sleepers(made)) == {"c", "a", "b"}
    assert "it is rated at 3.8 W per core when idle, and d draws 0.5 W" in "".join(
        event.because for event in made.events if isinstance(event, SleepOrdered)
    )


def test_of_nodes_that_draw_the_same_the_longest_empty_falls_asleep_first() -> None:
    nodes = {
        "a": node(idle_mw=round(2.20 * IDLE_W), emptied_at=LONG_AGO + 2 * SECOND),
        "b": node(idle_mw=round(2.18 * IDLE_W), emptied_at=LONG_AGO + SECOND),
        "c": node(idle_mw=round(2.21 * IDLE_W), emptied_at=LONG_AGO + 3 * SECOND),
    }
    made = planned(nodes, rules=numbered("reserve=0.5,max_share=1,max_step=1"))

    assert sleepers(made) == ["b"]
    assert made.made.because
    assert {event.because for event in made.events if isinstance(event, SleepOrdered)} == {
        sleep.IDLE
    }


def test_a_node_that_was_in_use_a_moment_ago_keeps_no_other_one_awake() -> None:
    nodes = {
        "a": node(idle_mw=4 * IDLE_W, emptied_at=NOON - 60 * SECOND),
        "b": node(idle_mw=3 * IDLE_W),
        "c": node(idle_mw=2 * IDLE_W, pods=1),
    }
    made = planned(nodes, rules=numbered("reserve=0.3,max_share=1,max_step=1"))

    assert sleepers(made) == ["b"]


def test_the_node_that_draws_least_when_idle_wakes_up_first() -> None:
    nodes = {"a": FULL, "x": asleep(idle_mw=3 * IDLE_W), "y": asleep(idle_mw=2 * IDLE_W)}

    assert woken(planned(nodes, pod(cores=48))) == {"y": sleep.DEMAND}


def test_a_node_that_has_slept_for_a_month_is_woken_alone_and_checked() -> None:
    month = 30 * 86_400 * SECOND
    nodes = {"a": node(pods=1), "b": node(), "x": asleep(power_at=NOON - month - 2 * SECOND)}
    nodes["y"] = asleep(power_at=NOON - month - SECOND)

    assert woken(planned(nodes)) == {"x": sleep.CHECKED}
    nodes["x"] = node(power_state="waking", ready=False, power_at=NOON - SECOND)
    assert woken(planned(nodes)) == {}


def test_a_node_that_changes_its_class_does_not_fall_asleep_in_the_same_plan() -> None:
    nodes = {name: node(profile="performance") for name in "abc"}

    assert sleepers(planned(nodes)) == []


def test_no_node_falls_asleep_while_its_pods_are_unknown() -> None:
    nodes = {name: node() for name in "abc"}

    assert sleepers(planned(nodes, pods_known=False)) == []


def test_the_reserve_stays_awake() -> None:
    nodes = {f"n{i}": node(pods=int(i < 2)) for i in range(10)}

    made = planned(nodes, rules=RULES._replace(policy_numbers="reserve=0.25,max_step=1"))

    assert len(sleepers(made)) == 10 - 2 - 3


def test_no_more_than_the_largest_share_sleeps() -> None:
    nodes = {f"n{i}": node() for i in range(9)} | {"z": asleep()}

    assert (
        len(
            sleepers(
                planned(
                    nodes, rules=RULES._replace(policy_numbers="reserve=0,max_share=0.5,max_step=1")
                )
            )
        )
        == 4
    )


def test_the_node_that_is_empty_for_the_longest_time_sleeps_first() -> None:
    nodes = {
        "a": node(emptied_at=NOON - 1200 * SECOND),
        "b": node(emptied_at=NOON - 1800 * SECOND),
        "c": node(emptied_at=NOON - 1500 * SECOND),
    }

    assert sleepers(planned(nodes)) == ["b", "c"]


def test_a_pod_that_fits_on_no_node_wakes_one() -> None:
    nodes = {"a": node(pods=1, load=replace(node().load, cpu_milli=90_000)), "z": asleep()}

    made = planned(nodes, pod(cores=48))

    assert woken(made) == {"z": sleep.DEMAND}
    assert "1 wake up" in made.made.because


def test_a_pod_that_fits_on_an_awake_node_wakes_none() -> None:
    assert woken(planned({"a": node(pods=1), "z": asleep()}, pod(cores=48))) == {}


def test_a_pod_larger_than_any_node_wakes_none() -> None:
    assert woken(planned({"a": node(pods=1), "z": asleep()}, pod(cores=500))) == {}


def test_pods_wake_as_many_nodes_as_they_fill() -> None:
    nodes = {"a": node(pods=1, load=replace(node().load, cpu_milli=96_000))}
    nodes |= {f"z{i}": asleep(power_at=LONG_AGO - i) for i in range(5)}

    made = planned(nodes, *(pod(f"p{i}", cores=48) for i in range(5)))

    assert woken(made) == dict.fromkeys(("z0", "z1", "z2"), sleep.DEMAND)


def test_a_waking_node_counts_for_the_pods_that_wait() -> None:
    full = node(pods=1, load=replace(node().load, cpu_milli=96_000))
    waking = asleep(power_state="waking", power_at=NOON - 60 * SECOND)

    assert woken(planned({"a": full, "y": waking, "z": asleep()}, pod(cores=48))) == {}


def test_a_node_that_does_not_wake_up_is_named_and_replaced() -> None:
    full = node(pods=1, load=replace(node().load, cpu_milli=96_000))
    lost = asleep(power_state="waking", power_at=NOON - 1000 * SECOND)

    made = planned({"a": full, "y": lost, "z": asleep()}, pod(cores=48))

    assert woken(made) == {"z": sleep.DEMAND}
    assert made.held == {"y": sleep.LOST}
    assert f"1 held: {sleep.LOST}" in made.made.because


def test_a_pod_with_cards_wakes_a_node_with_cards() -> None:
    nodes = {"a": node(), "g": with_cards(asleep()), "z": asleep()}

    assert woken(planned(nodes, pod(gpus=4))) == {"g": sleep.DEMAND}


def test_a_node_with_cards_wakes_for_cores_when_no_other_node_sleeps() -> None:
    full = node(pods=1, load=replace(node().load, cpu_milli=96_000))
    sleeping = with_cards(asleep())

    assert woken(planned({"a": full, "g": sleeping}, pod(cores=48))) == {"g": sleep.DEMAND}


def test_the_reserve_is_woken_before_pods_wait() -> None:
    nodes = {"a": node(pods=1), "b": node(pods=1), "z": asleep()}

    made = planned(nodes, rules=RULES._replace(policy_numbers="reserve=0.1"))

    assert woken(made) == {"z": sleep.RESERVE}


def test_a_sleeping_node_on_which_a_pod_landed_wakes_up() -> None:
    assert woken(planned({"a": node(), "z": asleep(pods=1)})) == {"z": sleep.IN_USE}


def test_a_sleeping_node_keeps_its_class_and_its_caps() -> None:
    made = planned({"a": node(pods=1), "z": asleep(profile="performance")})

    assert [event.node for event in made.events] == ["a"] * len(made.events)


def test_other_policies_put_no_node_to_sleep() -> None:
    nodes = {name: node() for name in "abc"}

    made = planned(nodes, rules=RULES._replace(policy="queue_aware_v1"))

    assert sleepers(made) == []
    assert not [name for name in made.made.inputs if name.startswith("nodes_to")]


def test_the_time_before_sleep_is_a_number_of_the_policy() -> None:
    nodes = {"a": node(pods=1), "z": node(emptied_at=NOON - 60 * SECOND)}
    rules = RULES._replace(policy_numbers="reserve=0,sleep_after_s=50")

    assert sleepers(planned(nodes, rules=rules)) == ["z"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"spare": 1.0},
            "there is no spare; there are power_target_w, power_floor_pct, caps_where_measured, "
            "caps_trial, sleep_after_s, reserve, max_share, wake_timeout_s, max_step, empty_below, "
            "evict_per_min, evict_after_s",
        ),
        ({"reserve": 3.0}, "reserve=3 is not a share from 0 to 1"),
        ({"max_share": -0.1}, "max_share=-0.1 is not a share from 0 to 1"),
        ({"sleep_after_s": -1.0}, "sleep_after_s=-1 is not a time in seconds, at least 0"),
    ],
)
def test_a_wrong_number_is_named(given: dict[str, float], error: str) -> None:
    assert wrong_numbers(given, others=False) == [error]


def numbered(numbers: str) -> Rules:
    return RULES._replace(policy_numbers=numbers)


def in_zone(zone: str, **fields: Any) -> NodeState:
    labels = {"joulie.io/managed": "true", "topology.kubernetes.io/zone": zone}
    return node(**{"labels": labels, **fields})


def test_one_node_of_each_zone_stays_awake() -> None:
    nodes = {"a": in_zone("east"), "b": in_zone("east"), "c": in_zone("west"), "d": in_zone("west")}

    assert sleepers(planned(nodes)) == ["a", "c"]


def test_a_zone_without_an_awake_node_gets_one() -> None:
    dozing = in_zone("west", power_state="asleep", ready=False, power_at=LONG_AGO)

    made = planned({"a": in_zone("east", pods=1), "y": dozing, "z": dozing})

    assert woken(made) == {"y": sleep.COVERS}


def test_only_a_share_of_the_nodes_falls_asleep_within_an_interval() -> None:
    nodes = {f"n{i}": node() for i in range(19)} | {"z": asleep(power_at=NOON - 10 * SECOND)}
    numbers = numbered("reserve=0,max_share=1,max_step=0.2")

    assert len(sleepers(planned(nodes, rules=numbers))) == 3
    assert len(sleepers(planned(nodes, rules=numbers._replace(interval_s=5)))) == 4


def test_a_node_stays_awake_for_the_minimum_time() -> None:
    nodes = {"a": node(pods=1), "z": node(power_at=NOON - 60 * SECOND)}
    numbers = "reserve=0,max_share=1,sleep_after_s="

    assert sleepers(planned(nodes, rules=numbered(numbers + "100"))) == []
    assert sleepers(planned(nodes, rules=numbered(numbers + "30"))) == ["z"]


def test_the_reserve_wakes_no_node_that_fell_asleep_a_moment_ago_and_pods_do() -> None:
    nodes = {"a": node(pods=1), "b": node(pods=1), "z": asleep(power_at=NOON - 10 * SECOND)}
    full = {name: replace(node(pods=1), cpu_milli=1000) for name in "ab"}

    assert woken(planned(nodes, rules=numbered("reserve=0.1,sleep_after_s=60"))) == {}
    assert woken(planned({**nodes, **full}, pod(cores=48))) == {"z": sleep.DEMAND}


STATES = st.builds(
    lambda cards, state, pods, daemons, ready, age_s: node(
        gpus=cards,
        power_state=state,
        pods=pods + daemons,
        daemon_pods=daemons,
        ready=ready,
        emptied_at=NOON - age_s * SECOND,
        power_at=(NOON - age_s * SECOND) if state else 0,
    ),
    st.sampled_from((0, 8)),
    st.sampled_from(("", "", "asleep", "waking")),
    st.integers(0, 1),
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 2000),
)


@given(st.lists(STATES, max_size=12), st.lists(st.integers(1, 96), max_size=5))
def test_no_node_with_pods_falls_asleep_and_only_sleeping_nodes_wake(
    states: list[NodeState], cores: list[int]
) -> None:
    nodes = {f"n{i}": state for i, state in enumerate(states)}
    made = planned(nodes, *(pod(f"p{i}", cores=c) for i, c in enumerate(cores)))

    assert all(nodes[name].pods == nodes[name].daemon_pods for name in sleepers(made))
    assert all(nodes[name].ready and not nodes[name].power_state for name in sleepers(made))
    assert all(nodes[name].power_state == "asleep" for name in woken(made))
    assert len(_changed(made.events)) == len(set(_changed(made.events)))


def _changed(events: list[NodePlan]) -> list[str]:
    return [event.node for event in events if isinstance(event, SleepOrdered | WakeOrdered)]


def using(cores: int, **fields: Any) -> NodeState:
    return node(**{"pods": 1, "load": replace(node().load, cpu_milli=cores * 1000), **fields})


EMPTYING = numbered("reserve=0,max_share=1,max_step=1,empty_below=0.1")


def test_the_least_used_node_gets_no_more_pods_where_others_have_room() -> None:
    nodes = {"a": using(40), "b": using(4), "c": using(6)}

    assert sleepers(planned(nodes)) == []
    assert sleepers(planned(nodes, rules=EMPTYING)) == ["b"]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param({"a": using(95), "b": using(94)}, id="no room"),
        pytest.param({"a": using(40, hardware=hardware("g", gpus=1))}, id="last of its family"),
    ],
)
def test_a_nearly_empty_node_stays(others: dict[str, NodeState]) -> None:
    assert sleepers(planned({**others, "z": using(4)}, rules=EMPTYING)) == []


def test_a_node_with_performance_pods_is_not_emptied() -> None:
    nodes = {"a": using(40), "b": using(4, performance_pods=1, profile="performance")}

    assert "b" not in sleepers(planned(nodes, rules=EMPTYING))


def bound_to(name: str, at: int) -> PodState:
    return PodState(pod=ask("p"), node=name, bound_at=at)


@pytest.mark.parametrize(
    ("ordered_s", "bound_s", "expected"),
    [
        pytest.param(60, 600, {}, id="its pods were there before"),
        pytest.param(60, 30, {"z": sleep.IN_USE}, id="a pod arrived since"),
        pytest.param(4000, 5000, {"z": sleep.OVERDUE}, id="its pods do not end"),
    ],
)
def test_a_node_that_empties_is_given_back_for_a_new_pod_or_after_a_time(
    ordered_s: int, bound_s: int, expected: dict[str, str]
) -> None:
    emptying = using(4, power_state="asleep", power_at=NOON - ordered_s * SECOND)
    pods = bound_to("z", NOON - bound_s * SECOND)

    made = planned({"a": using(40), "z": emptying}, pods, rules=EMPTYING)

    assert woken(made) == expected


# --- evictions --------------------------------------------------------------------------------

EVICTS = RULES._replace(
    policy_numbers="reserve=0,max_share=1,max_step=1,empty_below=0.2,evict_per_min=6"
)
HALF_FULL = Load(cpu_milli=48_000)


def emptied(**fields: Any) -> NodeState:
    """A node with one pod that was ordered to sleep ten minutes ago."""
    used = {"pods": 1, "load": Load(cpu_milli=1000), "schedulable": False, "ready": True}
    return asleep(**{**used, "power_at": NOON - 600 * SECOND, **fields})


def on(node_name: str, uid: str = "p", **fields: Any) -> PodState:
    running = PodState(pod=ask(uid, cores=1), node=node_name, bound_at=LONG_AGO)
    return replace(running, **fields)


def evicted(made: Plan) -> dict[str, str]:
    return {e.node: e.because for e in made.events if isinstance(e, EvictionOrdered)}


def others(**fields: Any) -> dict[str, NodeState]:
    return {name: node(pods=1, load=HALF_FULL, **fields) for name in "bc"}


def test_pods_that_do_not_end_are_evicted_if_they_fit_elsewhere() -> None:
    made = planned({"a": emptied(), **others()}, on("a"), rules=EVICTS)

    assert evicted(made) == {"a": "its pods have not ended by themselves and fit on other nodes"}
    assert "the pods of 1 are evicted" in made.made.because
    assert made.made.inputs["nodes_to_evict"] == 1


@pytest.mark.parametrize(
    ("nodes", "pods", "numbers"),
    [
        pytest.param({"a": emptied()}, [on("a")], "empty_below=0.2", id="off by default"),
        pytest.param(
            {"a": emptied(power_at=NOON - 299 * SECOND)}, [on("a")], "", id="they may still end"
        ),
        pytest.param({"a": emptied(performance_pods=1)}, [on("a")], "", id="class performance"),
        pytest.param(
            {"a": emptied()},
            [on("a", pod=replace(ask("p", cores=1), exempt="critical"))],
            "",
            id="critical",
        ),
        pytest.param({"a": emptied(pods=2)}, [on("a")], "", id="a pod that is not known"),
        pytest.param({"a": emptied(evict_at=NOON)}, [on("a")], "", id="ordered already"),
        pytest.param(
            {"a": emptied(), "z": emptied(evict_at=NOON)},
            [on("a"), on("z", "q")],
            "",
            id="another node is emptied",
        ),
        pytest.param(
            {"a": emptied(), **others(closed_at=NOON)}, [on("a")], "", id="the others are closed"
        ),
        pytest.param(
            {"a": emptied()}, [on("a", pod=ask("p", cores=90))], "", id="no room elsewhere"
        ),
        pytest.param({"a": emptied(power_at=LONG_AGO - SECOND)}, [on("a")], "", id="given back"),
        pytest.param(
            {"a": emptied(pods=1, daemon_pods=1)}, [on("a")], "", id="only pods of DaemonSets"
        ),
    ],
)
def test_no_pod_is_evicted(nodes: dict[str, NodeState], pods: list[PodState], numbers: str) -> None:
    rules = EVICTS._replace(policy_numbers=numbers) if numbers else EVICTS

    assert evicted(planned({**others(), **nodes}, *pods, rules=rules)) == {}


def test_no_pod_is_evicted_while_the_pods_of_nodes_are_unknown() -> None:
    nodes = {"a": emptied(), **others()}

    assert evicted(planned(nodes, on("a"), rules=EVICTS, pods_known=False)) == {}


@pytest.mark.parametrize(
    ("numbers", "error"),
    [
        (
            {"evict_per_min": -1.0, "empty_below": 0.1},
            "evict_per_min=-1 is not a number of pods in a minute, at least 0",
        ),
        (
            {"evict_per_min": 6.0},
            "evict_per_min evicts only from nearly empty nodes: it needs empty_below above 0",
        ),
    ],
)
def test_wrong_numbers_of_evictions_are_named(numbers: dict[str, float], error: str) -> None:
    assert wrong_numbers(numbers, others=False) == [error]


def test_pods_that_wait_for_closed_nodes_wake_no_other_node() -> None:
    nodes = {"a": asleep(), "b": node(pods=1, closed_at=NOON), "c": node(pods=1)}
    full = Load(cpu_milli=96_000)

    assert woken(planned({**nodes, "c": node(pods=1, load=full)}, pod())) == {}
    assert "a" in woken(planned({**nodes, "b": asleep(), "c": node(pods=1, load=full)}, pod()))


# --- supply by class ---------------------------------------------------------------------------


FULL = node(
    profile="performance", pods=1, performance_pods=1, load=replace(node().load, cpu_milli=96_000)
)


def performance_pods(count: int, cores: float = 48) -> list[PodState]:
    asked = [pod(f"p{i}", cores=cores) for i in range(count)]
    return [replace(each, pod=replace(each.pod, workload="performance")) for each in asked]


def became_performance(made: Plan) -> list[str]:
    return [
        event.node
        for event in made.events
        if isinstance(event, ProfileAssigned) and event.profile == "performance"
    ]


def test_empty_eco_nodes_become_performance_nodes_for_pods_that_they_refuse() -> None:
    nodes = {"a": FULL, "e0": node(), "e1": node(), "e2": node(), "z": asleep()}

    made = planned(nodes, *performance_pods(3))

    assert sorted(became_performance(made)) == ["e0", "e1"]
    assert woken(made) == {}
    assert made.made.inputs["nodes_for_performance_pods"] == 2


def test_nodes_wake_for_performance_pods_beyond_the_empty_eco_nodes() -> None:
    nodes = {"a": FULL, "e": node(), "eco": asleep(power_at=LONG_AGO + 1)}
    nodes |= {"fast": asleep(profile="performance")}

    made = planned(nodes, *performance_pods(3))

    assert became_performance(made) == ["e"]
    assert woken(made) == {"fast": sleep.DEMAND}


def test_an_empty_node_is_no_supply_for_a_pod_that_does_not_fit_there() -> None:
    small = node(cpu_milli=8_000, hardware=hardware("s", cores=8))
    nodes = {"a": small, "b": node(pods=1, load=replace(node().load, cpu_milli=96_000))}

    assert woken(planned(nodes | {"z": asleep()}, pod(cores=48))) == {"z": sleep.DEMAND}


def test_a_node_stays_a_performance_node_until_its_pods_have_come() -> None:
    nodes = {"a": FULL, "e0": node(profile="performance"), "e1": node()}

    made = planned(nodes, *performance_pods(2))

    assert [event.node for event in made.events if isinstance(event, ProfileAssigned)] == []


def test_an_eco_node_without_room_for_the_pods_does_not_become_a_performance_node() -> None:
    small = node(cpu_milli=8_000, hardware=hardware("s", cores=8))

    made = planned({"a": FULL, "s": small, "z": asleep()}, *performance_pods(1))

    assert became_performance(made) == []
    assert woken(made) == {"z": sleep.DEMAND}


def test_a_performance_pod_that_no_node_can_run_changes_nothing() -> None:
    made = planned({"a": FULL, "e": node(), "z": asleep()}, *performance_pods(1, cores=500))

    assert (became_performance(made), woken(made)) == ([], {})


def test_a_node_with_performance_pods_stays_a_performance_node() -> None:
    made = planned({"a": FULL, "b": node(pods=1)})

    assert [event for event in made.events if isinstance(event, DrainingBegun)] == []


def test_a_node_of_each_family_stays_a_performance_node_if_it_always_has_to() -> None:
    nodes = {"a": FULL, "g": with_cards(node(profile="performance"))}

    made = planned(nodes, rules=RULES._replace(family_floor="always"))

    assert made.made.performance == 2


def test_pods_are_evicted_only_by_this_policy_with_a_rate() -> None:
    rate = Rules(policy="consolidate_and_sleep", policy_numbers="empty_below=0.1,evict_per_min=0.5")

    assert sleep.evictions_allowed(rate)
    assert not sleep.evictions_allowed(rate._replace(policy="queue_aware_v1"))
    assert not sleep.evictions_allowed(rate._replace(policy_numbers="evict_per_min=0"))


FULL_OF_CARDS = replace(
    with_cards(FULL), load=replace(FULL.load, gpu_standard_milli=8_000), profile="performance"
)
BOOTING = node(power_state="waking", ready=False, power_at=NOON - 60 * SECOND)


def test_a_starting_node_with_cards_is_no_supply_if_pods_without_cards_fill_it_before() -> None:
    later = replace(BOOTING, power_at=NOON - SECOND)
    nodes = {"a": FULL, "g": FULL_OF_CARDS, "h0": with_cards(BOOTING), "b": later}
    nodes["h1"] = with_cards(asleep())

    assert set(woken(planned(nodes, pod("c", cores=90), pod("g", gpus=8)))) == {"h1"}


def test_a_node_whose_cards_pods_share_is_woken_for_as_many_pods_as_it_has_units() -> None:
    shared = replace(with_cards(asleep()), gpus=1, gpu_units=4)
    nodes = {"a": FULL, "g": FULL_OF_CARDS, "h0": shared, "h1": shared}
    waiting = [pod(f"g{number}", gpus=1) for number in range(2)]
    nodes["g"] = replace(FULL_OF_CARDS, gpus=1, load=replace(FULL.load, gpu_standard_milli=1000))

    assert set(woken(planned(nodes, *waiting))) == {"h0"}


def test_a_starting_node_with_cards_is_enough_for_its_pod_if_no_other_pod_waits() -> None:
    nodes = {"a": FULL, "g": FULL_OF_CARDS, "h0": with_cards(BOOTING), "h1": with_cards(asleep())}

    assert woken(planned(nodes, pod("g", gpus=8))) == {}


def test_the_others_need_twice_the_room_that_the_pods_of_a_node_take() -> None:
    enough = {"a": using(92), "b": using(92), "c": using(4)}
    too_little = enough | {"a": using(93)}

    assert sleepers(planned(enough, rules=EMPTYING)) == ["c"]
    assert sleepers(planned(too_little, rules=EMPTYING)) == []
