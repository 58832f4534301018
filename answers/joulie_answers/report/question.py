"""The counterfactual's question, from the ledger and the pods of the log."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_answers.report.gather import Gathered
from joulie_answers.report.room import without_room
from joulie_answers.report.use import Requested, use_of
from joulie_audit.ledger.pods_in_log import Off, PodLife
from joulie_extender.catalogue.weights import Weights
from joulie_operator.planning.rules import Rules, rules_of
from joulie_operator.planning.sleep import SLEEPING_POLICY, sleep_numbers
from joulie_projections.energy.meters import NONE
from joulie_projections.energy.pods import CPU_PERMILLE, NodeEntry, PodEntry
from joulie_projections.energy.report import EnergyReport
from joulie_projections.hardware.guesses import guessed_cpu_max_w, guessed_gpu_max_w
from joulie_simulator.energy.closed_loop import LoggedPod, step_s, whole_cards
from joulie_simulator.energy.counterfactual import Happened, LoggedSleep, Question
from joulie_simulator.energy.logged_fleet import LoggedNode
from joulie_simulator.energy.product import Product

GUESSED_IDLE = 0.4  # of the rated power of the CPUs, where no idle power was seen
LEAST_KNOWN = 0.1  # share of the time with readings: fewer give no better estimate
FIXED = ("daemonset", "mirror")  # their node is not a choice
POLICIES = {"headroom": "joulie", "energy": "joulie-energy"}  # by scoring, of the preset


class Asked(NamedTuple):
    """The question, and what it leaves out or guesses."""

    from_ms: int
    to_ms: int
    question: Question
    policy: str
    never_bound: int
    fixed: int
    elsewhere: int
    unknown_nodes: int
    guessed_idle: int
    why_not: str = ""  # why the log does not answer it; empty: it does


class Measured(NamedTuple):
    """The energy of pods above idle, which lacks the time without readings."""

    pods_uj: int
    unknown_ms: int = 0  # of all nodes together

    @classmethod
    def of(cls, got: Gathered, whole: EnergyReport) -> "Measured":
        """Of the part of the period that the log holds."""
        if not got.held:
            return cls(whole.pods_uj, whole.unknown_ms)
        pods_uj = unknown_ms = 0.0
        for each in got.held:
            end_ms = max(each.start_ms + 1, min(each.end_ms, whole.to_ms))
            part = (end_ms - max(each.start_ms, got.lives.first_ms)) / (end_ms - each.start_ms)
            pods_uj += part * sum(row.pods_uj for row in each.nodes)
            unknown_ms += part * sum(row.unknown_ms for row in each.nodes)
        return cls(round(pods_uj), round(unknown_ms))

    def of_all_time_uj(self, node_ms: int) -> float:
        known = 1 - self.unknown_ms / node_ms if node_ms else 1.0
        return self.pods_uj / max(LEAST_KNOWN, known)


def asked_of(got: Gathered, from_ms: int, to_ms: int, measured: Measured) -> Asked:
    """Intervals begin before the log and end after its newest reading: both are cut off.

    With plans in the log, what happened is the policy's side. In a log of a shadow the product is
    simulated.
    """
    columns, why_not = got.state.ledger.meters.columns, _why_not(got, to_ms)
    from_ms = max(from_ms, got.lives.first_ms)
    to_ms = max(from_ms + 1, min(to_ms, max(columns["last_ms"].tolist(), default=0)))
    span = from_ms, to_ms
    entries = [entry for entry in got.state.ledger.nodes.values() if entry.present]
    known = sorted((e for e in entries if e.capacity.cpu_milli), key=lambda e: e.name)
    lows = [_idle_mw(got, entry) for entry in known]
    numbers = {entry.name: at for at, entry in enumerate(known)}
    happens = bool(got.lives.settings)
    lives = _sorted_out(got, span, numbers if happens else None)
    product = None if happens else Product.of(got.weights or Weights())
    question = Question(
        [_node(entry, low) for entry, low in zip(known, lows, strict=True)],
        [_pod(life, from_ms, to_ms) for life in lives.counted],
        (to_ms - from_ms) / 1000,
        use_of(
            Requested.of(lives.bound, span, got.state.ledger.nodes),
            measured.of_all_time_uj(len(known) * (to_ms - from_ms)),
        ),
        product.sleeps if product else got.lives.sleeps > 0,
        _logged(product.rules) if product else _sleep(got, to_ms),
        _happened(got, lives, span, numbers) if happens else None,
        product,
    )
    return Asked(
        *span,
        question,
        POLICIES.get(got.weights.scoring if got.weights else "", "joulie"),
        *(len(lives.never_bound), lives.fixed, lives.elsewhere, len(entries) - len(known)),
        sum(low is None for low in lows),
        why_not,
    )


def _why_not(got: Gathered, to_ms: int) -> str:
    if got.lives.lacks:
        return f"pods that started before a trim are not known, and {got.lives.lacks}"
    if got.weights is None and not got.lives.settings:
        return "the newest settings of the log have values that this version does not know"
    is_before = to_ms <= got.lives.first_ms
    return "the log begins after this time; an archive may hold it" if is_before else ""


class _Lives(NamedTuple):
    """Pods of the period."""

    bound: Sequence[PodLife]
    counted: Sequence[PodLife]
    never_bound: Sequence[PodLife]
    fixed: int
    elsewhere: int  # on nodes that are gone or of unknown size


def _sorted_out(got: Gathered, span: tuple[int, int], numbers: Mapping[str, int] | None) -> _Lives:
    """Without `numbers`, the node of a pod does not matter."""
    alive = [
        life
        for life in got.lives.pods.values()
        if life.asked_ms < span[1] and not (life.end_ms and life.end_ms <= span[0])
    ]
    bound = [life for life in alive if life.start_ms]
    free = [life for life in bound if life.pod.exempt not in FIXED]
    counted = [life for life in free if numbers is None or life.node in numbers]
    never = [life for life in alive if not life.start_ms]
    return _Lives(bound, counted, never, len(bound) - len(free), len(free) - len(counted))


def _happened(
    got: Gathered, lives: _Lives, span: tuple[int, int], numbers: Mapping[str, int]
) -> Happened:
    from_ms, to_ms = span
    power = got.lives.power
    off = {
        numbers[name]: sum(_overlap_s(each, span) for each in times)
        for name, times in power.off.items()
        if name in numbers
    }
    stays = [
        (_pod(life, *span), numbers[life.node], _overlap_s(Off(life.start_ms, life.end_ms), span))
        for life in lives.counted
    ]
    arrived = [life for life in lives.counted if life.asked_ms >= from_ms]
    free = _placed_by_the_scheduler(got, span, arrived, numbers)
    waits = [0 if life.pod.uid in free else life.start_ms - life.asked_ms for life in arrived]
    waits += [to_ms - life.asked_ms for life in lives.never_bound if life.asked_ms >= from_ms]
    return Happened(
        stays,
        [off.get(number, 0.0) for number in range(len(numbers))],
        [max(0, wait) / 1000 for wait in waits],
        sum(not life.end_ms for life in lives.never_bound),
        sum(from_ms <= at < to_ms for at in power.woken_ms),
        len(free),
    )


def _placed_by_the_scheduler(
    got: Gathered, span: tuple[int, int], arrived: Sequence[PodLife], numbers: Mapping[str, int]
) -> Mapping[str, PodLife]:
    """Pods that waited for a step or more for the scheduler alone: at all times a node had room
    for them, and the filter was asked once."""
    least_ms = 1000 * step_s((span[1] - span[0]) / 1000)
    waited = {
        life.pod.uid: life
        for life in arrived
        if life.start_ms - life.asked_ms >= least_ms and life.pod.uid not in got.asked_again
    }
    if not waited:
        return {}
    nodes = [got.state.ledger.nodes[name].capacity for name in numbers]
    lives = [life for life in got.lives.pods.values() if life.start_ms and life.node in numbers]
    stays = ((numbers[life.node], life) for life in lives)
    changes = got.lives.available.changes
    known = ((numbers[each.node], each) for each in changes if each.node in numbers)
    lacked = without_room(nodes, stays, known, waited)
    return {uid: life for uid, life in waited.items() if uid not in lacked}


def _overlap_s(part: Off, span: tuple[int, int]) -> float:
    end_ms = min(part.end_ms or span[1], span[1])
    return max(0, end_ms - max(part.start_ms, span[0])) / 1000


def _sleep(got: Gathered, to_ms: int) -> LoggedSleep:
    """The numbers of the newest plan of the period that put nodes to sleep by them."""
    rules = [rules_of(each.values) for each in got.lives.settings if each.since_ms < to_ms]
    asleep = [each for each in rules if each.policy == SLEEPING_POLICY]
    return _logged(asleep[-1]) if asleep else LoggedSleep()


def _logged(rules: Rules) -> LoggedSleep:
    if rules.policy != SLEEPING_POLICY:
        return LoggedSleep()
    numbers = sleep_numbers(rules)
    return LoggedSleep(numbers.reserve, numbers.max_share, numbers.sleep_after_s)


def _idle_mw(got: Gathered, entry: NodeEntry) -> int | None:
    columns = got.state.ledger.meters.columns
    low = min(int(columns[name][entry.row]) for name in ("low_mw", "low_before_mw"))
    return None if low >= NONE else low


def _node(entry: NodeEntry, idle_mw: int | None) -> LoggedNode:
    """In units, where pods request these and not cards."""
    node, curve = entry.capacity, entry.capacity.curve
    cores = node.cpu_milli / 1000
    rated_w = node.cpu_max_mw / 1000 or guessed_cpu_max_w(cores)
    idle_w = rated_w * GUESSED_IDLE if idle_mw is None else idle_mw / 1000
    if idle_mw is None and curve is not None:
        idle_w += node.gpus * curve.idle_w
    card_w = node.gpu_max_mw / 1000 or guessed_gpu_max_w("")
    w_per_core = rated_w * CPU_PERMILLE / 1000 / cores
    units = max(node.requestable, node.gpus)
    unit_w = card_w * (node.gpus / units) if units else card_w
    return LoggedNode(entry.name, cores, units, idle_w, w_per_core, unit_w, curve, node.gpus)


def _pod(life: PodLife, from_ms: int, to_ms: int) -> LoggedPod:
    """A pod that ran before the period arrives with it; one that runs on does so to its end."""
    start_ms = max(life.start_ms, from_ms)
    arrival_ms = max(life.asked_ms, from_ms) if life.start_ms >= from_ms else from_ms
    entry = PodEntry.of(life.pod, life.node, start_ms)
    return LoggedPod(
        (arrival_ms - from_ms) / 1000,
        entry.cpu_milli / 1000,
        whole_cards(life.pod.gpu_milli),
        life.pod.workload == "performance",
        max(1, (life.end_ms or to_ms) - start_ms) / 1000,
        life.pod.memory_bytes,
    )
