"""Clusters at random, by a number: states and settings near the limits that plans compare with.

The plans of `CASES` of them are recorded, so that a change of any plan shows. `python
tests/kit/random_clusters.py` records them anew, when plans change on purpose: with a new version
of their rules, so that the plans of older logs are recomputed as they were.
"""

import hashlib
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from bus_kit import NOON, SECOND, ask, hardware
from joulie_bus.events import (
    CapsMeasured,
    DeviceClaim,
    DeviceSeen,
    HardwareDiscovered,
    WorkloadClass,
)
from joulie_operator.planning.reconcile import LoadedPolicy, Plan, PlanBasis, plan
from joulie_operator.planning.rules import Rules
from joulie_operator.plugins import load_policy
from joulie_projections.pods.load import Load
from joulie_projections.state.cards import CardState, Claim
from joulie_projections.state.state import (
    CLUSTER,
    NOT_SETTABLE,
    CapEffect,
    ClusterRow,
    ClusterState,
    NodeState,
    PodState,
    Sample,
    SettableCaps,
    Target,
)

RECORDED = Path(__file__).parents[1] / "operator" / "planning" / "recorded_plans.txt"
CASES = 1500
NUMBERS = {
    "sleep_after_s": (0, 60, 600),
    "reserve": (0, 0.1, 0.5),
    "max_share": (0.5, 0.8, 1),
    "wake_timeout_s": (60, 900),
    "max_step": (0.2, 0.5, 1),
    "empty_below": (0, 0.1, 0.5, 1),
    "evict_per_min": (0, 1),
    "evict_after_s": (60, 300),
    "caps_where_measured": (0, 1),
    "caps_trial": (0, 0.3),
}
FLOORS = (30, 30, 45, 100)  # of caps for power targets
AGES_S = (0, 1, 3, 5, 29, 30, 31, 59, 60, 61, 300, 600, 900, 3600, 90 * 86_400)
T = TypeVar("T")


class Cluster(NamedTuple):
    state: ClusterState
    rules: Rules
    basis: PlanBasis

    @property
    def policy(self) -> LoadedPolicy:
        return load_policy(self.rules.policy)

    def plan(self) -> Plan:
        return plan(self.state, self.policy, self.rules, self.basis)


class Dice(random.Random):
    """`is_calm`: nothing changed lately and few pods wait, so that nodes may sleep."""

    is_calm = False

    def one(self, of: Sequence[T]) -> T:
        return of[int(self.random() * len(of))]

    def is_so(self, chance: float = 0.5) -> bool:
        return self.random() < chance

    def rarely(self, chance: float) -> bool:
        return self.is_so(chance / 8 if self.is_calm else chance)

    def ago(self) -> int:
        """A time at one of the limits that rules compare with, or next to it."""
        age_s = (
            self.one((600, 3600, 7200)) if self.is_calm and self.is_so(0.8) else self.one(AGES_S)
        )
        return NOON - age_s * SECOND + self.one((-1, 0, 0, 1))


def cluster(number: int) -> Cluster:
    dice, state = Dice(number), ClusterState()
    dice.is_calm = number % 3 > 0
    for at in range(2 + int(dice.random() * 11)):
        state.nodes[f"n{at}"] = _node(dice, at)
    for at in range(int(dice.random() * (3 if dice.is_calm else 8))):
        state.pods[f"p{at}"] = _pod(dice, f"p{at}", [*state.nodes])
    for name, node in state.nodes.items():
        if dice.is_so(0.8):
            state.pods |= _running(dice, name, node)
    state.cluster[CLUSTER] = ClusterRow(targets=_targets(dice, state), cap_effects=_effects(dice))
    others = Dice(number + CASES)
    _agree(others, state)
    rules = _with_floor(others, _rules(dice))
    _hold_cards(Dice(number + 2 * CASES), state, rules)
    return Cluster(state, rules, PlanBasis(7, NOON, not dice.rarely(0.15)))


def watts_of_cards(cards: int) -> int:
    return (360 + 700 * cards) * 1000


def _node(dice: Dice, ordinal: int) -> NodeState:
    cards = dice.one((1, 4, 8)) if dice.is_so(0.3) else 0
    cores = dice.one((4, 16, 96))
    pods = dice.one((0, 0, 0, 1, 2, 5))
    used = int(dice.one((0.05, 0.1, 0.5, 1.0)) * cores * 1000) if pods else 0
    daemons = dice.one((0, 0, 1, pods)) if pods else 0
    watts = dice.one((0.0, 0.3, 0.5, 0.585, 0.6, 0.8, 1.0)) * (360 + 700 * cards)
    power_state = dice.one(("", "asleep", "asleep", "waking")) if dice.is_so(0.4) else ""
    read_at = NOON - dice.one((1, 4, 40, 299, 301)) * SECOND
    return NodeState(
        idle_mw=round(dice.one((0, 0, 0.28, 0.5, 0.52)) * watts_of_cards(cards)),
        ordinal=ordinal,
        at=NOON,
        present=not dice.rarely(0.05),
        labels=_labels(dice),
        ready=not dice.rarely(0.1) and power_state != "asleep",
        schedulable=not dice.rarely(0.1) and power_state != "asleep",
        cpu_milli=cores * 1000,
        gpus=cards,
        hardware=_hardware(dice, f"n{ordinal}", cores, cards),
        profile=dice.one(("performance", "eco", "")) if dice.rarely(0.8) else "eco",
        draining=dice.rarely(0.15),
        power_state=power_state,
        cpu_cap_pct=dice.one((None, 60, 60, 60, 45, 100)),
        gpu_cap_pct=dice.one((None, 60, 60, 100)),
        cpu_cap_mw_per_socket=dice.one((None, None, 120_000)),
        class_at=dice.one((0, dice.ago(), dice.ago())),
        caps_at=dice.one((0, dice.ago(), dice.ago())),
        samples=(Sample(read_at, int(watts * 1000)),) if dice.is_so(0.8) else (),
        pods=pods,
        performance_pods=int(pods > 0 and dice.rarely(0.3)),
        daemon_pods=daemons,
        load=Load(used, used * 1000, dice.one((0, 100)) * cards if pods else 0, 0),
        emptied_at=dice.one((0, dice.ago(), dice.ago())),
        power_at=dice.one((0, dice.ago(), dice.ago())),
        evict_at=NOON * dice.rarely(0.2),
        closed_at=NOON * dice.rarely(0.25),
    )


def _agree(dice: Dice, state: ClusterState) -> None:
    """In half of the clusters nodes opted in to caps, and have writers or not."""
    if dice.is_so():
        return
    for name, node in state.nodes.items():
        kinds = dice.one((("cpu",), ("gpu",), ("cpu", "gpu"), ("cpu", "gpu"), ()))
        at = NOON - dice.one((1, 60, 179, 180, 181)) * SECOND
        state.nodes[name] = msgspec.structs.replace(
            node,
            labels=node.labels
            | ({"joulie.io/caps": "enforce"} if dice.is_so(0.8) else {})
            | ({"joulie.io/rack": dice.one(("r1", "r2"))} if dice.is_so() else {}),
            settable=SettableCaps(at, kinds) if dice.is_so(0.8) else NOT_SETTABLE,
        )


def _hold_cards(dice: Dice, state: ClusterState, rules: Rules) -> None:
    """Cards are free, or held by pods of one class, of both or of none that is known; most writers
    can set each of them by itself."""
    for name, node in state.nodes.items():
        pods = [uid for uid, pod in state.pods.items() if pod.node == name]
        for at in range(node.gpus):
            state.gpus[f"{name}-g{at}"] = _held(dice, name, pods)
        kinds = node.settable.kinds
        if "gpu" in kinds and dice.is_so(0.7):
            settable = SettableCaps(node.settable.at, (*kinds, "cards"))
            state.nodes[name] = node = msgspec.structs.replace(node, settable=settable)
        if dice.is_so(0.3):
            capped = msgspec.structs.replace(node, standard_gpu_cap_pct=dice.one((40, 60, 99)))
            state.nodes[name] = capped


def _held(dice: Dice, node: str, pods: Sequence[str]) -> CardState:
    known = [*pods, "nobody"] if dice.is_so(0.2) or not pods else pods
    owner, other = dice.one(known), dice.one(known)
    claim = Claim(namespace="default", name=other, node=node, mb=1, expires_at=NOON)
    return CardState(
        at=NOON,
        node=node,
        healthy=True,
        owner=owner if dice.is_so(0.4) else "",
        holder="?" if dice.is_so(0.1) else "",
        claims={other: claim} if dice.is_so(0.4) else {},
        device=_allocated(dice, node, other) if dice.is_so(0.2) else None,
    )


def _allocated(dice: Dice, node: str, pod: str) -> DeviceSeen:
    claim = DeviceClaim(
        uid="c", namespace="n", name="c", pods=(pod,) if dice.is_so(0.8) else (), milli=1000
    )
    return DeviceSeen(card="c", node=node, claims=(claim,) if dice.is_so() else ())


def _labels(dice: Dice) -> dict[str, str]:
    labels = {
        "joulie.io/managed": "false" if dice.rarely(0.1) else "true",
        "joulie.io/reserved": "true" if dice.rarely(0.1) else "false",
        "topology.kubernetes.io/zone": dice.one(("", "a", "b")) if dice.rarely(0.9) else "a",
        "joulie.io/feed": dice.one(("", "f", "g")),
        "joulie.io/power-profile": dice.one(("", "", "eco")),
    }
    return {name: value for name, value in labels.items() if value}


def _hardware(dice: Dice, name: str, cores: int, cards: int) -> HardwareDiscovered | None:
    found = hardware(name, cores=cores, watts=dice.one((0, 360)), gpus=cards)
    found = msgspec.structs.replace(
        found,
        cpu_model="Intel Xeon 8480+" if dice.rarely(0.3) else "AMD EPYC 9654",
        cpu_min_mw_per_socket=dice.one((0, 150_000)),
        gpu_min_mw=dice.one((0, 500_000)) if cards else 0,
    )
    return None if dice.rarely(0.15) else found


def _pod(dice: Dice, uid: str, nodes: Sequence[str]) -> PodState:
    gpus = dice.one((0, 0, 0, 0.5, 1, 8))
    asked = ask(uid, performance=dice.rarely(0.6), cores=dice.one((1, 4, 16, 96, 200)), gpus=gpus)
    asked = msgspec.structs.replace(
        asked,
        placement=dice.one(("general", "general", "general", "eco-only")),
        exempt=dice.one(("", "", "", "critical")),
    )
    node = dice.one(("", "", dice.one(nodes), dice.one(nodes)))
    return PodState(
        pod=asked, node=node, bound_at=dice.ago() if node else 0, finished=dice.is_so(0.1)
    )


def _running(dice: Dice, node: str, of: NodeState) -> dict[str, PodState]:
    """The pods that the node counts, without those of daemon sets."""
    return {
        f"{node}-{at}": PodState(
            pod=ask(f"{node}-{at}", performance=at < of.performance_pods, cores=1),
            node=node,
            bound_at=dice.ago(),
        )
        for at in range(of.pods - of.daemon_pods)
    }


def _targets(dice: Dice, state: ClusterState) -> dict[str, Target]:
    """Near what the readings add up to, so that caps suffice, nearly suffice or do not."""
    read = sum(node.samples[-1].power_mw for node in state.nodes.values() if node.samples)
    shares = (0.3, 0.6, 0.8, 0.9, 0.97, 1.0, 1.03, 1.2)
    return {
        f"t{at}": Target(
            power_mw=int(read * dice.one(shares)) + 1000,
            starts_at=NOON - dice.one((0, 0, 60, -1)),
            ends_at=NOON + dice.one((0, 1, 60, 60)),
            feed=dice.one(("", "", "f", "g")),
            because=dice.one(("", "a call")),
        )
        for at in range(dice.one((1, 2)) if dice.rarely(0.9) or dice.is_so(0.2) else 0)
    }


def _effects(dice: Dice) -> dict[str, CapEffect]:
    workload: WorkloadClass = dice.one(("standard", "standard", "performance"))
    measured = CapsMeasured(
        workload=workload,
        mid_permille=-40,
        low_permille=-80,
        high_permille=dice.one((-1, 0, 1)),
        capped_pods=40,
        other_pods=50,
    )
    return {workload: CapEffect(dice.ago(), measured)} if dice.is_so(0.7) else {}


def _rules(dice: Dice) -> Rules:
    numbers = {name: dice.one(values) for name, values in NUMBERS.items() if dice.is_so(0.6)}
    if dice.is_calm and dice.is_so():
        numbers |= {"empty_below": 1, "evict_per_min": 1, "reserve": 0}
    if dice.is_so(0.2):
        numbers["power_target_w"] = dice.one((1000, 2000))
        numbers["power_target_w.f"] = dice.one((300, 900))
    return Rules(
        policy=dice.one(
            ("consolidate_and_sleep",) * 8 + ("static_partition", "queue_aware_v1", "rule_swap_v1")
        ),
        policy_numbers=",".join(f"{name}={value}" for name, value in numbers.items()),
        family_floor="always" if dice.rarely(0.5) else "within",
        equal_nodes=dice.one(("spread", "by-name")),
        interval_s=dice.one((30.0, 60.0)),
        static_hp_frac=dice.one((0.25, 0.5)),
        queue_hp_base_frac=dice.one((0.0, 0.3, 0.6)) if dice.rarely(0.9) else 0.0,
        queue_hp_min=int(dice.rarely(0.5)),
        queue_hp_max=dice.one((2, 1_000_000)),
        queue_perf_per_hp_node=dice.one((1, 2, 10)),
        dwell_s=dice.one((0.0, 0.0, 60.0)),
        drain_deadline_s=dice.one((0.0, 60.0)),
        caps_settle_s=dice.one((0.0, 5.0)),
        max_changes=dice.one((0, 0, 1, 3)),
        cpu_performance_pct=dice.one((100, None, 90)),
        cpu_absolute=dice.is_so(0.3),
        cpu_performance_w=dice.one((300.0, 5000.0)),
        gpu_absolute=dice.is_so(0.3),
        gpu_models=dice.one(("{}", '{"NVIDIA H100 SXM5":{"minCapWatts":200,"maxCapWatts":650}}')),
        eco_without_caps=dice.is_so(0.9),
    )


def _with_floor(dice: Dice, rules: Rules) -> Rules:
    floor = f"power_floor_pct={dice.one(FLOORS)}"
    given = ",".join(part for part in (rules.policy_numbers, floor) if part)
    return rules._replace(policy_numbers=given) if dice.is_so(0.4) else rules


def digest(made: Plan) -> str:
    body = msgspec.json.encode((made.made, made.changes, sorted(made.held.items())))
    return hashlib.sha256(re.sub(rb'"code":"[^"]*"', b"", body)).hexdigest()[:12]


if __name__ == "__main__":
    digests = [digest(cluster(number).plan()) for number in range(CASES)]
    RECORDED.write_text("".join(f"{each}\n" for each in digests))
