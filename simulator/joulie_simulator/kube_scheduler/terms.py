"""What a pod asks for, compiled once: equal pods have equal parts, which are keys of results."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from joulie_projections.pods.classify import is_valid_term
from joulie_projections.pods.kubernetes_pod import Requirement, Term
from joulie_simulator.kube_scheduler.objects import (
    Affinity,
    Pod,
    PodTerm,
    PodTerms,
    PreferredTerm,
    SpreadConstraint,
    Toleration,
)
from joulie_simulator.kube_scheduler.requests import Requests, host_ports, requests_of
from joulie_simulator.kube_scheduler.selectors import NOTHING, Requires, Selector, selector_of

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NodeTerm = tuple[Requires, ...]  # all of them
LabelPairs = tuple[tuple[str, str], ...]
NO_TERMS = PodTerms()


class Among(NamedTuple):
    """Pods of these namespaces (None: of all) with these labels."""

    namespaces: frozenset[str] | None
    selector: Selector

    def has(self, namespace: str, labels: Mapping[str, str]) -> bool:
        is_there = self.namespaces is None or namespace in self.namespaces
        return is_there and self.selector.matches(labels)


class Near(NamedTuple):
    """A term of (anti-)affinity: pods on nodes with the same value of a label."""

    among: Among
    key: str
    weight: int = 0  # of a preference; negative: away from them


class Spread(NamedTuple):
    key: str
    selector: Selector
    max_skew: int
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class Kind(NamedTuple):
    """What others see of a pod."""

    namespace: str
    labels: LabelPairs
    is_ending: bool = False


class Asked(NamedTuple):
    """A pod as the plugins read it."""

    uid: str
    kind: Kind
    labels: Mapping[str, str]
    requests: Requests
    node_name: str
    tolerations: tuple[Toleration, ...]
    selector: NodeTerm  # of labels, from nodeSelector
    required: tuple[NodeTerm, ...] | None  # one of them; None: any node
    preferred: tuple[tuple[int, NodeTerm], ...] | None
    ports: tuple[tuple[str, str, int], ...]
    hard: tuple[Spread, ...]
    soft: tuple[Spread, ...]
    has_own_spread: bool
    near: tuple[Near, ...]  # all of them
    apart: tuple[Near, ...]  # none of them
    prefers: tuple[Near, ...]

    @property
    def namespace(self) -> str:
        return self.kind.namespace


Namespaces = Mapping[str, Mapping[str, str]]  # labels by name


def asked(pod: Pod, namespaces: Namespaces, default: Selector = NOTHING) -> Asked:
    """`default` selects the pods of the same controller and services, for the spread that holds for
    pods without one of their own."""
    metadata, spec = pod.metadata, pod.spec
    labels, namespace = metadata.labels or {}, metadata.namespace or "default"
    kind = Kind(namespace, tuple(sorted(labels.items())), metadata.deletion_timestamp is not None)
    required, preferred = _node_affinity(spec.affinity)
    hard, soft = _spreads(spec.topology_spread_constraints or (), labels, default)
    near, apart, prefers = _pod_affinity(spec.affinity, _Terms(namespace, namespaces))
    return Asked(
        uid=metadata.uid or "",
        kind=kind,
        labels=labels,
        requests=requests_of(pod),
        node_name=spec.node_name or "",
        tolerations=tuple(spec.tolerations or ()),
        selector=tuple(_equal(*each) for each in sorted((spec.node_selector or {}).items())),
        required=required,
        preferred=preferred,
        ports=tuple(host_ports(pod)),
        hard=hard,
        soft=soft,
        has_own_spread=bool(spec.topology_spread_constraints),
        near=near,
        apart=apart,
        prefers=prefers,
    )


# --- nodes ------------------------------------------------------------------------------------


Preferred = tuple[tuple[int, NodeTerm], ...]


def _node_affinity(
    affinity: Affinity | None,
) -> tuple[tuple[NodeTerm, ...] | None, Preferred | None]:
    of_nodes = affinity.node_affinity if affinity else None
    if of_nodes is None:
        return None, None
    required = of_nodes.required_during_scheduling_ignored_during_execution
    preferred = of_nodes.preferred_during_scheduling_ignored_during_execution
    return (
        None if required is None else _node_terms(required.node_selector_terms or ()),
        None if preferred is None else tuple(_weighted(preferred)),
    )


def _weighted(preferred: Sequence[PreferredTerm]) -> Iterator[tuple[int, NodeTerm]]:
    for each in preferred:
        for term in _node_terms([each.preference]):
            yield each.weight, term


def _equal(key: str, value: str) -> Requires:
    return Requires(key, "In", (value,))


def _node_terms(terms: Sequence[Term]) -> tuple[NodeTerm, ...]:
    """Empty and invalid terms match no node."""
    return tuple(_node_term(each) for each in terms if is_valid_term(each))


def _node_term(term: Term) -> NodeTerm:
    return tuple(map(_requires, [*(term.match_expressions or ()), *(term.match_fields or ())]))


def _requires(given: Requirement) -> Requires:
    return Requires(given.key, given.operator, tuple(given.values or ()))


# --- spread -----------------------------------------------------------------------------------


def _is_hard(constraint: SpreadConstraint) -> bool:
    return constraint.when_unsatisfiable == "DoNotSchedule"


def _spreads(
    given: Sequence[SpreadConstraint], labels: Mapping[str, str], default: Selector
) -> tuple[tuple[Spread, ...], tuple[Spread, ...]]:
    """The hard and the soft ones."""
    if not given:
        return (), _by_default(default)
    hard = tuple(_spread(each, labels) for each in given if _is_hard(each))
    return hard, tuple(_spread(each, labels) for each in given if not _is_hard(each))


def _spread(given: SpreadConstraint, labels: Mapping[str, str]) -> Spread:
    of_pod = [(key, labels[key]) for key in given.match_label_keys or () if key in labels]
    return Spread(
        given.topology_key,
        selector_of(given.label_selector).and_equal(of_pod),
        given.max_skew,
        given.min_domains or 1,
        given.node_affinity_policy != "Ignore",
        given.node_taints_policy == "Honor",
    )


def _by_default(selector: Selector) -> tuple[Spread, ...]:
    if selector.is_nothing or selector.is_everything:
        return ()
    return (Spread(HOSTNAME, selector, 3), Spread(ZONE, selector, 5))


# --- other pods -------------------------------------------------------------------------------


def _pod_affinity(
    affinity: Affinity | None, terms: "_Terms"
) -> tuple[tuple[Near, ...], tuple[Near, ...], tuple[Near, ...]]:
    """What the pod requires to be near, and apart from, and what it prefers."""
    together = (affinity and affinity.pod_affinity) or NO_TERMS
    away = (affinity and affinity.pod_anti_affinity) or NO_TERMS
    return (
        terms.of(together.required_during_scheduling_ignored_during_execution),
        terms.of(away.required_during_scheduling_ignored_during_execution),
        (*terms.preferred(together, 1), *terms.preferred(away, -1)),
    )


class _Terms:
    def __init__(self, namespace: str, known: Namespaces) -> None:
        self._own, self._known = namespace, known

    def of(self, terms: Sequence[PodTerm] | None) -> tuple[Near, ...]:
        return tuple(self._near(each) for each in terms or ())

    def preferred(self, terms: PodTerms, sign: int) -> tuple[Near, ...]:
        return tuple(
            self._near(each.pod_affinity_term, sign * each.weight)
            for each in terms.preferred_during_scheduling_ignored_during_execution or ()
        )

    def _near(self, term: PodTerm, weight: int = 0) -> Near:
        among = Among(self._namespaces(term), selector_of(term.label_selector))
        return Near(among, term.topology_key, weight)

    def _namespaces(self, term: PodTerm) -> frozenset[str] | None:
        if not term.namespaces and term.namespace_selector is None:
            return frozenset((self._own,))
        selector = selector_of(term.namespace_selector)
        if selector.is_everything:
            return None
        chosen = (name for name, labels in self._known.items() if selector.matches(labels))
        return frozenset((*(term.namespaces or ()), *chosen))
