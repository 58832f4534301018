"""The decision log of the extender: answers, fallbacks, binds and outcomes."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import msgspec.structs

from joulie_bus.events.base import PROJECTOR, Finite, LoggedEvent
from joulie_bus.events.bounds import (
    CardCount,
    Count,
    EventId,
    Name,
    Nanoseconds,
    Ordinal,
    PublicKey,
    Score,
    Sha256,
    Signature,
    Text,
    Uid,
    Word,
)
from joulie_bus.events.pods import PodAsk

Verb = Literal["filter", "prioritize", "preempt"]
FallbackReason = Literal["not-ready", "overdue", "failed", "unrecorded"]
FallbackAnswer = Literal["open", "closed"]
BindOutcome = Literal["bound", "lost-race", "failed"]
Duty = Literal["energy", "gpu", "all"]  # the rules that a request asks about


class Basis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an answer depends on: enough to recompute it at any later time."""

    view: Count  # position of the view that was read
    view_age_ms: Count  # since the last message of the projector
    now: Nanoseconds  # the only clock the answer used
    settings: Word  # id of the settings in force; their values are an entry of the same log
    # Since the moment until which the view included everything that the broker had stored. None in
    # entries of older versions, which did not measure it.
    behind_ms: Count | None = None
    # Of the database that the view read: a failover to a standby that lagged begins another one.
    incarnation: Word = ""

    @property
    def oldest_ms(self) -> int:
        """The age that rules about stale data used."""
        return max(self.view_age_ms, self.behind_ms or 0)


class Candidates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The nodes of one request, in its order; a known node takes 4 bytes."""

    ordinals: bytes  # int32, little endian; -1 stands for the next of `strangers`
    strangers: list[Name] = []

    @property
    def count(self) -> int:
        return len(self.ordinals) // 4


class InFlight(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What pods that were answered for take of a node: a load, until the view has them bound, and
    devices, until it has these allocated.
    """

    ordinal: Ordinal
    cpu_milli: Count = 0
    warm_cpu_micro: Count = 0
    gpu_standard_milli: Count = 0
    gpu_performance_milli: Count = 0
    devices: CardCount = 0


MOST_IN_FLIGHT = 256  # pods, and so nodes
NodesInFlight = Annotated[tuple[InFlight, ...], msgspec.Meta(max_length=MOST_IN_FLIGHT)]


class FilterDecided(LoggedEvent, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "decision.filter"
    pod: PodAsk
    basis: Basis
    candidates: Candidates
    verdicts: bytes  # one byte each: 0 passed, else the code of the reason
    reason: Text = ""  # the text in the reply
    eco_labels: bytes = b""  # one byte per node in the request: has it the eco label? "" for names
    duty: Duty = "energy"
    # As in an entry about scores, which this one replaces where one node is left: kube-scheduler
    # then requests no scores. None in all others.
    in_flight: NodesInFlight | None = None

    @property
    def key(self) -> str:
        return self.pod.uid


class LaterTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terms that the first entries did not have."""

    activation_w: Finite = 0.0  # idle watts of a node that could otherwise sleep
    fragmentation_w: Finite = 0.0  # for free cores without free cards, and the reverse
    reserve_w: Finite = 0.0  # for free cards that a pod without cards would block
    more: dict[Word, Finite] = {}  # all others, by their names


NO_LATER_TERMS = LaterTerms()


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The terms of one node's score, exact to the last bit."""

    node: Name
    score: Finite
    headroom: Finite
    cooling: Finite
    trend: Finite
    bonus: Finite
    pressure: Finite
    draining: Finite
    marginal_w: Finite
    assumed_w: Finite = 0.0  # of pods that the reading does not include yet
    packing: Finite = 0.0  # how well the pod's cards fill the node, weighted
    wishes: Finite = 0.0  # preferences of labels and teams
    cards_kept: Finite = 0.0  # points taken from a node with free cards, for other pods
    # In a map of its own: a map of more than 15 fields takes two bytes more in every entry.
    later: LaterTerms = msgspec.field(default=NO_LATER_TERMS, name="energy")
    source: Word  # of the headroom: a value of the extender's Basis, in lower case


_OWN = frozenset(Terms.__struct_fields__)
_LATER = frozenset(LaterTerms.__struct_fields__) - {"more"}


def named_terms(
    node: str, source: str, first: Mapping[str, Any], others: Mapping[str, float]
) -> Terms:
    """The terms of a node by their names; `first` are fields that every entry has."""
    if not others:
        return Terms(node=node, source=source, **first)
    own = {name: value for name, value in others.items() if name in _OWN}
    later = {name: value for name, value in others.items() if name in _LATER}
    more = {name: others[name] for name in others if name not in _OWN and name not in _LATER}
    nested = LaterTerms(**later, more=more) if later or more else NO_LATER_TERMS
    return Terms(node=node, source=source, later=nested, **first, **own)


def named_values(terms: Terms) -> dict[str, float]:
    """The inverse: each term by its name, and the score."""
    values = msgspec.structs.asdict(terms)
    later = msgspec.structs.asdict(values.pop("later"))
    del values["node"], values["source"]
    return {**values, **later.pop("more"), **later}


class PrioritizeDecided(LoggedEvent, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "decision.prioritize"
    pod: PodAsk
    basis: Basis
    candidates: Candidates
    scores: bytes  # int16, little endian, in the order of the candidates
    terms_digest: bytes  # sha256 over one word per candidate, mixed from all its float terms
    # Of the whole cluster. None: no term of the formula reads them.
    cluster_trend_w_per_min: Finite | None
    perf_pressure: Finite | None
    top: list[Terms]
    duty: Duty = "energy"
    # By ordinal; only for a pod that asks for devices. One of equally good nodes is then the best.
    # None: it was not considered, as in entries of older versions.
    in_flight: NodesInFlight | None = None

    @property
    def key(self) -> str:
        return self.pod.uid


class PreemptDecided(LoggedEvent, frozen=True, kw_only=True):
    """Which of the nodes that kube-scheduler proposes for preemption are kept."""

    TYPE: ClassVar[str] = "decision.preempt"
    pod: PodAsk
    basis: Basis
    candidates: Candidates
    verdicts: bytes  # one byte each: 0 kept, else the code of the reason
    duty: Duty = "energy"
    victims: list[Uid] = []  # uids of the victims whose cards count as free

    @property
    def key(self) -> str:
        return self.pod.uid


class FallbackAnswered(LoggedEvent, frozen=True, kw_only=True):
    """An answer without a decision: all nodes pass, or none. There is nothing to recompute."""

    TYPE: ClassVar[str] = "decision.fallback"
    pod_uid: Uid
    namespace: Name
    name: Name
    verb: Verb
    why: FallbackReason
    answer: FallbackAnswer
    candidates: Count
    basis: Basis

    @property
    def key(self) -> str:
        return self.pod_uid


class DecisionsDropped(LoggedEvent, frozen=True, kw_only=True):
    """Answers that were sent and could not be stored. Their numbers are the gap before this one."""

    TYPE: ClassVar[str] = "decision.dropped"
    count: Count
    why: Text
    promised: Count = 0  # of them: they were stored, and are lost since

    @property
    def key(self) -> str:
        return "_dropped"


class PromiseKey(LoggedEvent, frozen=True, kw_only=True):
    """The first message of each life of a replica: the key that signs its promises."""

    TYPE: ClassVar[str] = "decision.promise-key"
    public: PublicKey
    # What an earlier life published and did not sign any more, as far as the disk knows it: the
    # last message, and the SHA-256 over the hashes of all.
    last: EventId = ""
    covers: Sha256 = b""

    @property
    def key(self) -> str:
        return "_promise-key"


class Promise(LoggedEvent, frozen=True, kw_only=True):
    """A signed end of what a life of a replica has published.

    `joulie_projections.chain.promise` has the signed text.
    """

    TYPE: ClassVar[str] = "decision.promise"
    last: EventId  # the last message, whose hash is `prev` of the envelope
    covers: Sha256  # the SHA-256 over the hashes of the messages since the last promise
    at: Nanoseconds
    signature: Signature

    @property
    def key(self) -> str:
        return "_promise"


class BindDecided(LoggedEvent, frozen=True, kw_only=True):
    """The node and cards that a pod was bound to, or why the binding failed."""

    TYPE: ClassVar[str] = "decision.bind"
    pod_uid: Uid
    namespace: Name
    name: Name
    node: Name
    basis: Basis
    outcome: BindOutcome
    cards: list[Name] = []
    error: Text = ""  # the error in the reply
    because: Text = ""  # why these cards

    @property
    def key(self) -> str:
        return self.pod_uid


class OutcomeSeen(LoggedEvent, frozen=True, kw_only=True):
    """The outcome of an answer: the node that the pod was bound to, and the rank of that node."""

    TYPE: ClassVar[str] = "decision.outcome"
    TOKEN: ClassVar[str] = PROJECTOR
    pod_uid: Uid
    namespace: Name
    name: Name
    node: Name
    decision: EventId = ""  # id of the prioritize event; "" if there was none
    rank: Count | None = None  # 1 is the best; absent if the node was not a candidate
    score: Score | None = None
    regret: Count | None = None  # the best score of that answer minus this one
    without_view: bool = False  # that answer was given before the extender had a view

    @property
    def key(self) -> str:
        return self.pod_uid


class StateSetBack(LoggedEvent, frozen=True, kw_only=True):
    """The database lost its newest commits, in a failover or by an older copy.

    Facts after `position` are folded again, and may get other positions. What was decided on the
    lost ones, in the incarnation `before`, cannot be recomputed. An empty database does not know
    what it replaces: `before` is empty, and everything that was decided until then is meant.
    """

    TYPE: ClassVar[str] = "decision.set-back"
    TOKEN: ClassVar[str] = PROJECTOR
    incarnation: Word  # that begins
    before: Word
    position: Count  # the last one that both share

    @property
    def key(self) -> str:
        return "_set-back"
