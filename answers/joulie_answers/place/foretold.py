"""The answer: what becomes of each pod of a manifest, one after the other."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from joulie_answers.place.fits import nearest
from joulie_answers.place.known import ALWAYS_UNKNOWN, WAKING, KnownPod, pod_of
from joulie_answers.place.manifest import Manifest, Pods
from joulie_answers.place.placing import FEW, MINOR, Look, Moment, Placement, Placing, copy_of
from joulie_answers.schema.responses import (
    Candidate,
    NearestRequest,
    PlacedOn,
    PlacedPods,
    Room,
    Waked,
)
from joulie_answers.views.cluster_view import phase_of, pod_brief
from joulie_answers.views.decision_text import best_text, candidate_of, refused_of
from joulie_audit.recompute.added_watts import added_watts
from joulie_bus.errors import NotAnswered
from joulie_bus.events import PodAsk, PodPending, Terms, WakeOrdered
from joulie_extender.catalogue.declaration import settings_id
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import answered_scores, scores_again
from joulie_extender.decide.scoring import terms_of
from joulie_extender.protocol.candidates import candidates_of, rows_by_name
from joulie_operator.planning.reconcile import LoadedPolicy, PlanBasis, plan
from joulie_operator.planning.rules import rules_of
from joulie_projections.fold.registry import evolve
from joulie_projections.hardware.gpu_resources import gpu_resources
from joulie_projections.pods.classify import with_namespace_class
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.devices import with_asked
from joulie_projections.state.state import ClusterState, PodState
from joulie_projections.state.state_changes import Draft

TOO_LONG = (
    "The manifest was not computed in time. Nothing was written. Give fewer pods: equal pods are "
    "answered alike."
)
PART_OF_GROUP = (
    "these pods are a group, and not all of them fit: a scheduler that places a group as a whole "
    "places none"
)
IsOver = Callable[[], bool]


class Question(NamedTuple):
    manifest: Manifest
    policy: LoadedPolicy | None  # of the newest plan; None: there is none, or it is not known here
    is_declared: bool  # whether the settings are in the log


class _Group(NamedTuple):
    """Equal pods, and what became of them."""

    pods: Pods
    ask: PodAsk  # of the first one
    known: KnownPod
    placements: list[Placement]
    first: Look
    last: Look | None  # of the first pod that is not placed

    @property
    def left(self) -> int:
        return self.pods.pods - len(self.placements)

    def one(self, number: int) -> PodAsk:
        """`first` is number 0."""
        return _numbered(self.ask, self.pods, number)


def foretold(moment: Moment, question: Question, is_over: IsOver) -> dict[str, Any]:
    """The fields of the response. Raises NotAnswered when the time `is_over`."""
    placing = Placing(moment)
    before, groups = placing.free(), list[_Group]()
    for pods in question.manifest.pods:
        groups.append(_placed(placing, pods, is_over))
    answers = [_answer(placing, group, is_over) for group in groups]
    watts = [each.added_w for each in answers if each.added_w is not None]
    added = sum(watts) if watts else None
    return {
        "pods": question.manifest.size,
        "placed": sum(len(group.placements) for group in groups),
        "groups": answers,
        "ignored": question.manifest.ignored,
        "settings": settings_id(moment.weights) if question.is_declared else "",
        "minor": MINOR,
        "waiting": sum(phase_of(pod) == "pending" for pod in moment.state.pods.values()),
        "waked": _waked(placing, groups, question.policy, is_over),
        "free_before": _room(before),
        "free_after": _room(placing.free()),
        "added_w": added,
        "kwh_per_hour": None if added is None else added / 1000,
        "unknown": [*ALWAYS_UNKNOWN, *placing.nodes.unknown],
    }


def _require_time(is_over: IsOver) -> None:
    if is_over():
        raise NotAnswered(503, TOO_LONG)


def _room(milli: tuple[int, int]) -> Room:
    return Room(cores=milli[0] / 1000, gpus=milli[1] / 1000)


# --- one after the other ----------------------------------------------------------------------


def _placed(placing: Placing, pods: Pods, is_over: IsOver) -> _Group:
    """Equal pods after one that is refused are refused, too: nothing has changed."""
    state, weights = placing.state, placing.moment.weights
    resources = gpu_resources(weights.gpu.resources)
    ask = asked_by(pods, state, resources)
    known = pod_of(pods, ask, resources)
    placements, first = list[Placement](), None
    for number in range(pods.pods):
        _require_time(is_over)
        one = _numbered(ask, pods, number)
        look = placing.look(known, one)
        first = first or look
        if not look.nodes:
            return _Group(pods, ask, known, placements, first, look)
        placements.append(placing.place(known, one, look))
    assert first is not None, "a group has pods"
    return _Group(pods, ask, known, placements, first, None)


def asked_by(pods: Pods, state: ClusterState, resources: Sequence[str]) -> PodAsk:
    """As the extender reads the pod of a request."""
    ask = ask_of(pods.pod, gpu_resources=tuple(resources))
    ask = with_namespace_class(ask, state.namespaces.get(ask.namespace))
    return with_asked(ask, state.gpus_asked) if ask.devices.claims else ask


def _numbered(ask: PodAsk, pods: Pods, number: int) -> PodAsk:
    """With names that no pod of the log has."""
    role = f"-{pods.role.lower()}" if pods.role else ""
    return replace(
        ask, uid=f"place {pods.what}{role}-{number}", name=f"{ask.name.rstrip('-')}{role}-{number}"
    )


# --- one group --------------------------------------------------------------------------------


def _answer(placing: Placing, group: _Group, is_over: IsOver) -> PlacedPods:
    weights, last = placing.moment.weights, group.last
    watts = [_watts(each, weights) for each in group.placements]
    rated = [each for each in watts if each is not None]
    tied = group.first.best
    if last is not None:
        _require_time(is_over)
    return PlacedPods(
        what=group.pods.what,
        role=group.pods.role,
        pods=group.pods.pods,
        placed=len(group.placements),
        pod=pod_brief(PodState(pod=replace(group.ask, uid=""))),
        nodes=_nodes(group.placements),
        tied=tied if len(tied) > 1 else [],
        best=best_text(group.first.scored.top, weights) if group.first.scored else "",
        scores=_scores(group.placements[0], weights) if group.placements else [],
        candidates=len(last.candidates) if last else 0,
        refused=[
            refused_of(why, len(names), names[:FEW])
            for why, names in (last.refused if last else {}).items()
        ],
        nearest=_nearest(placing, group),
        added_w=sum(rated) if rated else None,
        unrated=len(watts) - len(rated),
        unknown=group.known.unknown,
        notes=[*group.pods.notes, *_of_group(group)],
    )


def _of_group(group: _Group) -> Iterator[str]:
    if group.ask.group and group.placements and group.left:
        yield PART_OF_GROUP


def _nodes(placements: Sequence[Placement]) -> list[PlacedOn]:
    cards = defaultdict[str, list[tuple[str, ...]]](list)  # of each pod
    for each in placements:
        cards[each.node].append(each.cards)
    return [
        PlacedOn(node=node, pods=len(of_pods), cards=[*chain.from_iterable(of_pods)])
        for node, of_pods in cards.items()
    ]


def _nearest(placing: Placing, group: _Group) -> list[NearestRequest]:
    """Of the first pod that is not placed, beside those that are."""
    if group.last is None:
        return []
    one = group.one(len(group.placements))
    return [NearestRequest(**each._asdict()) for each in nearest(placing, group.known, one)]


def _watts(placement: Placement, weights: Weights) -> float | None:
    """No watts of a node depend on the other candidates."""
    names, columns = [placement.node], placement.columns
    alone = candidates_of(names, rows_by_name(columns, names))
    scored = replace(placement.scored, candidates=alone)
    [found] = added_watts(scored, columns, weights, names)
    return found


def _scores(placement: Placement, weights: Weights) -> list[Candidate]:
    scored, names = placement.scored, placement.names
    answers, lines = answered_scores(scored).tolist(), list[Terms](scored.top)
    if placement.node not in {terms.node for terms in lines}:
        all_scores = scores_again(scored, placement.columns, weights)
        lines.append(terms_of(all_scores, names, names.index(placement.node)))
    return [
        candidate_of(terms.node, answers[names.index(terms.node)], terms, lines[0], weights)
        for terms in lines
    ]


# --- nodes that sleep -------------------------------------------------------------------------


def _waked(
    placing: Placing, groups: Sequence[_Group], policy: LoadedPolicy | None, is_over: IsOver
) -> Waked | None:
    if policy is None or not any(group.left for group in groups):
        return None
    moment = placing.moment._replace(state=placing.state, columns=placing.columns)
    pending = [group.one(number) for group in groups for number in _left(group)]
    waking = [name for name, node in moment.state.nodes.items() if node.power_state == WAKING]
    nodes = dict.fromkeys([*waking, *_woken(moment, policy, pending)])
    if not nodes:
        return Waked(nodes=[], pods=0)
    awake = Placing(moment, tuple(nodes))
    found = [name for group in groups for name in _more(awake, group, is_over)]
    return Waked(nodes=[name for name in nodes if name in found], pods=len(found))


def _left(group: _Group) -> Iterator[int]:
    yield from range(len(group.placements), group.pods.pods)


def _woken(moment: Moment, policy: LoadedPolicy, pending: Sequence[PodAsk]) -> list[str]:
    """By the next plan, with these pods waiting."""
    draft, made = Draft(copy := copy_of(moment.state)), moment.state.plan
    assert made is not None, "its policy was loaded"
    for ask in pending:
        evolve(draft, PodPending(pod=ask), moment.at)
    draft.commit()
    basis = PlanBasis(moment.position, moment.at, made.pods_known)
    found = plan(copy, policy, rules_of(made.settings), basis)
    return [event.node for event in found.events if isinstance(event, WakeOrdered)]


def _more(placing: Placing, group: _Group, is_over: IsOver) -> Iterator[str]:
    """The nodes of the pods that fit in addition."""
    for number in _left(group):
        _require_time(is_over)
        one = group.one(number)
        look = placing.look(group.known, one)
        if not look.nodes:
            return
        yield placing.place(group.known, one, look).node
