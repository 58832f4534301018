"""Packs the pods of a moment again, and says what keeps each node awake."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from joulie_projections.hardware.catalog import Catalog
from joulie_simulator.kube_scheduler.schedule import profile_of
from joulie_simulator.trial.moment import Moment, MomentPod
from joulie_simulator.trial.placing import Placing
from joulie_simulator.trial.rated import Rating, is_rated, total

ROUNDS = 3  # of packing: a pod that found no place stays where it is, and the others try again
NEWEST, OLDEST = 37, 34  # minor versions of Kubernetes whose scheduler is modelled
NO_OTHER_PLACE = "it found no other place in this packing"
NEEDED = "other pods were packed there"
PLANNED = "the plan keeps it: a reserve, and one node of each hardware family and zone"


class Holder(msgspec.Struct, frozen=True):
    """A reason why nodes stay awake. A node may have several."""

    why: str
    nodes: int
    pods: int


class Run(msgspec.Struct, frozen=True):
    """One packing. `watts_low` and `watts_high` are those of the nodes that sleep, without those of
    which nothing is rated; None if that is all of them."""

    nodes: list[str]  # that could sleep
    watts_low: float | None
    watts_high: float | None
    unrated_nodes: int
    placed_again: int
    without_place: int  # pods that wait for a node before and after
    awake: list[Holder]


class Trial(msgspec.Struct, frozen=True):
    """The answer. `pinned`: pods with something unknown stay where they are; `free`: they move."""

    nodes: int
    candidates: int
    left_out: dict[str, int]  # nodes by the reason
    pods: int  # that run
    waiting: int
    stay: dict[str, int]  # pods by the reason; those of DaemonSets do not count
    with_nodes: int  # pods of DaemonSets, and static ones
    unknown: dict[str, int]  # pods that could move, by what of them is not modelled
    unknown_pods: int
    rated_candidates: int  # of which the processors are known
    per_thread_w: tuple[float, float]  # of the others
    minor: int  # of the version that is modelled
    knows_namespaces: bool
    knows_budgets: bool
    pinned: Run
    free: Run


def tried(moment: Moment, catalog: Catalog) -> Trial:
    rating = Rating.of(catalog)
    movable = [pod for pod in moment.pods if not _why_fixed(pod)]
    unknown = [pod for pod in movable if pod.node and pod.unknown]
    pinned = _Packing(moment, {pod.ask.uid for pod in unknown}).run(rating)
    free = _Packing(moment, frozenset()).run(rating) if unknown else pinned
    candidates = [node for node in moment.nodes if not node.left_out]
    bound = [pod for pod in moment.pods if pod.node]
    return Trial(
        nodes=len(moment.nodes),
        candidates=len(candidates),
        left_out=_counted(node.left_out for node in moment.nodes),
        pods=len(bound),
        waiting=len(moment.pods) - len(bound),
        stay=_counted(_why_fixed(pod) for pod in bound if not pod.goes_with_node),
        with_nodes=sum(pod.goes_with_node for pod in bound),
        unknown=_counted(why for pod in unknown for why in pod.unknown),
        unknown_pods=len(unknown),
        rated_candidates=sum(map(is_rated, candidates)),
        per_thread_w=rating.per_thread,
        minor=modelled(moment.minor),
        knows_namespaces=moment.knows_namespaces,
        knows_budgets=moment.knows_budgets,
        pinned=pinned,
        free=free,
    )


def modelled(minor: int) -> int:
    """The version whose scheduler stands for this one."""
    return min(max(minor or NEWEST, OLDEST), NEWEST)


def _why_fixed(pod: MomentPod) -> str:
    return pod.stays if pod.node else ""


def _counted(reasons: Iterator[str]) -> dict[str, int]:
    """The most frequent ones first."""
    return dict(Counter(why for why in reasons if why).most_common())


class _Packing:
    """Of the pods that may move; `pinned` are others that stay."""

    def __init__(self, moment: Moment, pinned: Collection[str]) -> None:
        self._moment = moment
        self._why = {pod.ask.uid: self._why_it_stays(pod, pinned) for pod in moment.pods}
        self._candidates = frozenset(moment.candidates)
        # Pods on other nodes stay there: the question is not about them.
        self._fixed = [pod for pod in moment.pods if pod.node and not self._moves(pod)]
        self._moving = sorted(
            (pod for pod in moment.pods if not pod.node or self._moves(pod)),
            key=lambda pod: (not pod.node, pod.order),
        )

    def _moves(self, pod: MomentPod) -> bool:
        is_free = not (pod.goes_with_node or self._why[pod.ask.uid])
        return is_free and pod.node in self._candidates

    @staticmethod
    def _why_it_stays(pod: MomentPod, pinned: Collection[str]) -> str:
        if pod.stays or pod.ask.uid not in pinned:
            return pod.stays
        return f"not modelled: {pod.unknown[0]}"

    def run(self, rating: Rating) -> Run:
        stuck = set[str]()
        packed = self._packed(stuck)
        for _ in range(ROUNDS):
            found = {pod.ask.uid for pod in packed.lost if pod.node}
            if not found:
                break
            stuck |= found
            packed = self._packed(stuck)
        return self._result(packed, stuck, rating)

    def _packed(self, stuck: Collection[str]) -> "_Packed":
        return _Packed.of(self._moment, self._fixed, self._moving, stuck)

    def _result(self, packed: "_Packed", stuck: Collection[str], rating: Rating) -> Run:
        nodes = {node.seen.node: node for node in self._moment.nodes}
        watts = [rating.saved(nodes[name]) for name in packed.sleeping]
        rated = [each for each in watts if each is not None]
        low, high = total(rated) if rated else (None, None)
        return Run(
            nodes=packed.sleeping,
            watts_low=low,
            watts_high=high,
            unrated_nodes=len(watts) - len(rated),
            placed_again=len(packed.places),
            without_place=len(packed.lost),
            awake=list(self._awake(packed, stuck)),
        )

    def _awake(self, packed: "_Packed", stuck: Collection[str]) -> Iterator[Holder]:
        """The reasons by the number of nodes that they hold."""
        pods: dict[str, Counter[str]] = defaultdict(Counter)  # by reason and node
        for pod in self._moment.pods:
            uid, node = pod.ask.uid, pod.node
            why = NO_OTHER_PLACE if uid in stuck else self._why[uid]
            if why and not pod.goes_with_node and node in self._candidates:
                pods[why][node] += 1
        held = {node for of in pods.values() for node in of}
        packed_on = Counter(packed.places.values())
        for name in self._candidates - held - set(packed.sleeping):
            pods[NEEDED if packed_on[name] else PLANNED][name] += packed_on[name]
        for why, of in sorted(pods.items(), key=lambda each: (-len(each[1]), each[0])):
            yield Holder(why, len(of), sum(of.values()))


class _Packed(NamedTuple):
    places: Mapping[str, str]  # of pods that were placed again, the node by the uid
    lost: Sequence[MomentPod]
    sleeping: list[str]

    @classmethod
    def of(
        cls,
        moment: Moment,
        fixed: Sequence[MomentPod],
        moving: Sequence[MomentPod],
        stuck: Collection[str],
    ) -> "_Packed":
        placing = Placing(moment, profile_of(modelled(moment.minor)))
        for pod in (*fixed, *(each for each in moving if each.ask.uid in stuck)):
            placing.put(pod, pod.node)
        places, lost = dict[str, str](), list[MomentPod]()
        for pod in moving:
            if pod.ask.uid in stuck:
                continue
            node = placing.place(pod)
            if node is None:
                lost.append(pod)
            else:
                places[pod.ask.uid] = node
        placing.wait(lost)
        return cls(places, lost, placing.sleeping())
