"""The responses: one class per document.

Times are milliseconds since 1970 by the broker's clock. Every response carries its position and
the age of that position; `position` counts facts, `entry` counts the decision log.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict
from zlib import crc32

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from joulie_answers.schema.requests import Class, NodeClassName, PodPhase
from joulie_extender.decide.entry_verbs import EntryVerb
from joulie_projections.energy.report import By

Percent = Annotated[float, Meta(description="percent")]
Level = Literal["warning", "serious"]
Part = Literal[
    "projector", "console", "broker", "database", "operator", "telemetry", "extender", "cards",
    "ledger", "log",
]  # fmt: skip
Basis = Literal["measured", "predicted", "unknown"]
PendingCause = Literal[
    "refused", "refused on sample", "no room", "not bound", "not placed", "not asked"
]

BEHIND_STEP_MS = 10_000  # an answer is another one when the ledger is so much further behind


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a response."""


class Stamp(TypedDict):
    """What every answer carries: its position, and how old that is."""

    position: int
    at_ms: int
    age_ms: int | None
    behind_ms: int | None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    position: Annotated[int, Meta(ge=0)]
    at_ms: int  # when that position was the newest; 0 before the first commit
    # Since the last message of the projector; null if none has arrived.
    age_ms: Annotated[int, Meta(ge=0)] | None
    # Since the moment until which the position includes everything that the broker had stored; null
    # if that is not known.
    behind_ms: Annotated[int, Meta(ge=0)] | None

    @property
    def revision(self) -> str:
        """What the answer depends on besides the positions of both logs; part of its ETag."""
        return ""


class Problem(Item, frozen=True, kw_only=True):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str


class Warning(Item, frozen=True, kw_only=True):
    part: Part
    level: Level
    text: str


class Health(Item, frozen=True, kw_only=True):
    """What is wrong, the worst first, since when, and what that means for the figures."""

    level: Literal["well", "unknown"] | Level
    text: str
    others: list[str]  # what else is wrong


class Classes(Item, frozen=True, kw_only=True):
    performance: int
    eco: int
    draining: int
    unknown: int


class PlanBrief(Item, frozen=True, kw_only=True):
    plan: str
    policy: str
    view: int
    nodes: int
    performance: int
    changes: int
    because: str
    preset: str  # where the defaults of its settings came from
    text: str = ""  # one sentence


class Cluster(Answer, frozen=True, kw_only=True):
    cluster: str
    nodes: int
    classes: Classes
    asleep: int
    waking: int
    not_ready: int  # of those that no plan lets sleep
    cordoned: int  # of the rest
    unmeasured: int  # nodes without a fresh power reading
    measured_w: float | None  # of the nodes that have one; null if none has
    capped_w: float | None  # of the nodes that no plan lets sleep; null if no hardware is known
    tdp_w: float | None
    trend_w_per_min: float | None  # of the measured nodes, over five minutes
    gpus: int  # that pods can request: cards, and units of shared cards
    gpu_units: int  # of these: units of cards that pods share by time, or slices
    gpus_asked: float  # of these: requested by running pods
    cards: int
    cards_unhealthy: int
    pods_running: int
    pods_pending: int
    entries: int  # of the decision log
    spooled: int | None  # that wait in spools of extenders; None: not known, or not now
    planned_at_ms: int
    plan: PlanBrief | None
    it_w: float | None
    cooling_w: float | None
    ambient_c: float | None
    lag: int | None  # facts stored and not yet committed
    epoch: int | None
    warnings: list[Warning]
    health: Health | None = None  # null of the past

    @property
    def revision(self) -> str:
        """What is wrong begins and ends while no fact arrives."""
        return "" if self.health is None else f"-{crc32(self.health.text.encode()):08x}"


class PowerPoint(Item, frozen=True, kw_only=True, array_like=True):
    at_ms: int
    position: int
    measured_w: float | None
    capped_w: float | None


class PowerSeries(Answer, frozen=True, kw_only=True):
    points: list[PowerPoint]


class Map(Answer, frozen=True, kw_only=True):
    """Columns: the n-th value of each belongs to the n-th node. -1 means unknown."""

    id: list[int]
    name: list[str]
    rack: list[str]
    node_class: list[int] = field(name="class")  # 0 unknown, 1 performance, 2 eco, 3 draining
    headroom: list[int]  # free percentage of the cap
    cooling: list[int]
    watts: list[int]
    gpu: list[int]  # percentage of the GPUs that running pods request
    power: list[int]  # 0 awake, 1 asleep, 2 waking, 3 not ready, 4 cordoned
    used: list[int]  # percentage of the cores, or of the GPUs, whichever more of is requested


class NodeBrief(Item, frozen=True, kw_only=True):
    name: str
    id: int
    node_class: NodeClassName = field(name="class")
    power_state: Literal["awake", "asleep", "waking"]  # by the plan
    state: Literal["awake", "asleep", "waking", "not ready", "cordoned"]
    ready: bool
    schedulable: bool
    rack: str
    cooling_zone: str
    cpu_model: str
    gpu_model: str
    cores: float | None  # null, as all that depends on the hardware, while nothing is known of it
    gpus: int | None  # that pods can request
    gpu_unit: float  # of a card, that one of these is; 1: a card
    gpus_asked: float
    pods: int
    performance_pods: int
    measured_w: float | None
    sampled_at_ms: int
    capped_w: float | None
    tdp_w: float | None
    cpu_cap_pct: int | None
    gpu_cap_pct: int | None
    headroom: Percent | None
    headroom_basis: Basis
    cooling: Percent | None
    trend_w_per_min: float | None  # over five minutes; null without readings that span some seconds
    updated_at_ms: int


class NodeList(Answer, frozen=True, kw_only=True):
    items: list[NodeBrief]
    total: int
    next: int | None


class Sampled(Item, frozen=True, kw_only=True, array_like=True):
    at_ms: int
    watts: float


class StateMachine(Item, frozen=True, kw_only=True):
    states: list[str]
    now: str
    following: list[str]
    waits_for: str  # the condition that a transition waits for; empty if none


class PodBrief(Item, frozen=True, kw_only=True):
    uid: str
    namespace: str
    name: str
    workload: Class = field(name="class")
    placement: str
    rule: str
    exempt: str
    cores: float
    memory_gib: float
    gpus: float
    phase: PodPhase
    node: str
    bound_at_ms: int


class Claimed(Item, frozen=True, kw_only=True):
    pod_uid: str
    namespace: str
    name: str
    mb: int
    confirmed: bool
    expires_at_ms: int


class Allocated(Item, frozen=True, kw_only=True):
    """A ResourceClaim that has a card."""

    claim: str  # namespace/name
    pods: list[str]  # namespace/name
    share: float  # of the card


class Gpu(Item, frozen=True, kw_only=True):
    uuid: str
    node: str  # empty if none has the card
    node_present: bool  # whether that node exists
    model: str
    total_mb: int
    used_mb: int  # by pods, with claims that are not seen yet
    free_mb: int  # for further pods
    allocated_mb: int
    claimed_mb: int
    healthy: bool
    idle: bool  # no pod holds it
    nvlink_group: str
    owner: str
    pool: str  # of a device of DRA
    taint: str
    allocated: list[Allocated]
    # How long its power limit or heat slowed it down since its driver was loaded; null: not known.
    power_limited_s: int | None
    heat_limited_s: int | None
    claims: list[Claimed]
    updated_at_ms: int


class Transition(Item, frozen=True, kw_only=True):
    """One line of a plan, about one node."""

    position: int
    at_ms: int
    plan: str
    node: str
    kind: str
    to: str
    because: str
    text: str = ""  # one sentence


class NodeCaps(Item, frozen=True, kw_only=True):
    """The caps that plans gave a node, and what its writer reported of the limits of the node."""

    cpu_pct: int | None
    gpu_pct: int | None
    standard_gpu_pct: int | None  # of cards that pods of class standard alone hold
    capped_cards: int  # that have a cap of their own
    clock_mhz: int | None  # to which the clocks of the cards are locked
    settable: list[str]  # the kinds of limits that the writer can set
    because: str  # why it cannot set the others
    reported_ms: int  # 0: no writer has reported
    silent: bool  # its report is too old to count
    refused: str  # why the last caps are not as ordered


class NodeDetail(Answer, frozen=True, kw_only=True):
    node: NodeBrief
    ambient_c: float | None
    hardware: str  # where its figures come from
    caps: NodeCaps
    labels: dict[str, str]
    samples: list[Sampled]
    machine: StateMachine
    awake_because: str  # what keeps it awake; empty if it is not, or before the first plan
    transitions: list[Transition]  # newest first
    earlier: int | None  # older ones: /v1/plans?node=NAME&before=EARLIER
    plans_gone: int  # plan events that have left the stream
    pods: list[PodBrief]
    cards: list[Gpu]


class PodList(Answer, frozen=True, kw_only=True):
    items: list[PodBrief]
    total: int
    next: int | None


class PendingPod(Item, frozen=True, kw_only=True):
    pod: PodBrief
    cause: PendingCause
    reason: str
    advice: str
    entry: int | None  # of the decision log: the newest answer about the pod
    since_ms: int  # when the extender was first asked about the pod; 0: never


class PendingList(Answer, frozen=True, kw_only=True):
    """Pending pods with the reason, the longest waiting first."""

    items: list[PendingPod]
    total: int
    next: int | None
    causes: dict[PendingCause, int]
    unread: int  # pods beyond those that one query examines


class IdleHolder(Item, frozen=True, kw_only=True):
    """A card that its pods hold without using it."""

    node: str
    uuid: str
    pods: list[str]  # namespace/name
    since_ms: int
    power_w: float


class CardSums(Item, frozen=True, kw_only=True):
    cards: int
    nodes: int
    whole: int  # cards that no pod holds, with free memory
    holes: int  # cards in use, with free memory
    unhealthy: int
    unread: int  # of which it is not known how long they were slowed down
    total_mb: int
    used_mb: int
    free_mb: int
    largest_free_mb: int  # on one card
    fragmentation_pct: Percent  # the part of the free memory that is on cards in use


class FreeGpus(Item, frozen=True, kw_only=True):
    free: float
    unusable: float  # of these: of no use to any pod like those that asked for GPUs before


class GpuList(Answer, frozen=True, kw_only=True):
    items: list[Gpu]
    total: int
    next: int | None
    sums: CardSums  # of all cards that the query selects
    free_gpus: dict[str, FreeGpus] | None  # by model; null if the query selects some cards only
    idle: list[IdleHolder] | None  # by the ledger; None: of another time, or it cannot be read

    @property
    def revision(self) -> str:
        idle = self.idle or []
        return f"-{len(idle)}-{max((each.since_ms for each in idle), default=0)}"


class EnergyShare(Item, frozen=True, kw_only=True):
    name: str
    kwh: float
    pods_kwh: float
    idle_kwh: float
    cost: float | None  # of the part that has a price; None: nothing has
    unpriced_kwh: float
    kgco2e: float | None
    unweighed_kwh: float
    modelled_kwh: float | None  # of a card: the part without readings of the card; else None


class GridRate(Item, frozen=True, kw_only=True):
    """What energy costs, or its carbon, in a period."""

    kind: str
    zone: str
    from_ms: int
    to_ms: int | None  # null: still in force
    per_kwh: float
    unit: str
    source: str
    estimated: bool


class EnergyPoint(Item, frozen=True, kw_only=True, array_like=True):
    start_ms: int
    end_ms: int
    pods_kwh: float
    idle_kwh: float
    modelled_kwh: float
    unknown_kwh: float


class SavedRange(Item, frozen=True, kw_only=True):
    """Over all variants of a simulation."""

    low: float
    mid: float
    high: float


class Savings(Item, frozen=True, kw_only=True):
    """What a report computed: the energy of the same pods under the baseline less that under the
    policy, in the same physics. Without `kwh`, `why` says what was missing."""

    computed_ms: int
    from_ms: int
    to_ms: int
    baseline: str
    policy: str
    pods: int
    nodes: int
    kwh: SavedRange | None
    share: SavedRange | None  # of the baseline's energy
    share_per_work: SavedRange | None
    cost: SavedRange | None
    kgco2e: SavedRange | None
    why: str


class SavedPeriod(Item, frozen=True, kw_only=True):
    """Metered energy, and what was saved by the share per work of the report of each day. A
    negative value is energy that the baseline would not have used. Without `saved_kwh`, `why` says
    what was missing."""

    from_ms: int
    to_ms: int  # up to when the energy is complete
    meter_kwh: float | None  # null, as the others, if the ledger holds no energy of the period
    unpriced_kwh: float | None
    unweighed_kwh: float | None
    uncompared_kwh: float | None  # of days without a report
    saved_kwh: SavedRange | None
    saved_cost: SavedRange | None  # of the part that has a price
    saved_kgco2e: SavedRange | None
    why: str


class Energy(Answer, frozen=True, kw_only=True):
    """The energy of a period from the ledger, which folds the facts some seconds later."""

    by: By
    folded_to: int  # the position that the ledger has reached
    complete_to_ms: int  # the time of the newest reading that it holds; to_ms is not later
    ledger_behind_ms: int  # how long ago the oldest fact that it lacks was committed; 0: none
    from_ms: int
    to_ms: int
    meter_kwh: (
        float | None
    )  # pods_kwh + idle_kwh; null, as the others, without energy of the period
    pods_kwh: float | None  # above idle
    idle_kwh: float | None
    modelled_kwh: float | None  # the part of meter_kwh without a reading
    unknown_kwh: float | None  # estimated over gaps; in no other figure
    unknown_node_hours: float | None
    currency: str
    cost: float | None
    unpriced_kwh: float | None
    kgco2e: float | None
    unweighed_kwh: float | None
    items: list[EnergyShare]  # the largest first
    total: int
    next: int | None
    grid: list[GridRate]  # that were in force
    series: list[EnergyPoint]  # oldest first
    saved_in_period: SavedPeriod | None  # None: the ledger holds no energy of this period
    saved: Savings | None  # the newest report; None: none was written yet

    @property
    def revision(self) -> str:
        computed_ms = self.saved.computed_ms if self.saved else 0
        return f"-{self.folded_to}-{computed_ms}-{self.ledger_behind_ms // BEHIND_STEP_MS}"


class Saved(Answer, frozen=True, kw_only=True):
    """What was saved on this day and in this month; both begin at midnight UTC."""

    folded_to: int
    complete_to_ms: int
    ledger_behind_ms: int
    currency: str
    today: SavedPeriod
    month: SavedPeriod
    report: Savings | None  # of this day, else the newest one

    @property
    def revision(self) -> str:
        computed_ms = self.report.computed_ms if self.report else 0
        behind = self.ledger_behind_ms // BEHIND_STEP_MS
        return f"-{self.today.from_ms}-{self.folded_to}-{computed_ms}-{behind}"


class RequestedResource(Item, frozen=True, kw_only=True):
    """Cores, or GiB, of one pod; `free` is of all. Null: not known."""

    request: float  # the largest of the pods
    mean: float | None  # of cores only
    p50: float | None
    p95: float | None
    peak: float | None
    recommended: float | None
    free: float | None  # with the recommended request; null without one
    above: float | None  # the share of the time in which a pod used more than is recommended


class WorkloadRequest(Item, frozen=True, kw_only=True):
    """The running pods of a namespace whose names differ in their generated suffix only, and what
    such pods used in the last 14 days."""

    namespace: str
    name: str
    pods: int
    pod_hours: float  # for which their use is known
    history_hours: float  # from the first to the last of them
    cores: RequestedResource
    gib: RequestedResource
    # The share of the time in which some processes waited; null: not counted (cgroup v1).
    cpu_wait: float | None
    memory_wait: float | None
    io_wait: float | None
    # By the pods on nodes without cards; null if there are none, or no recommendation.
    free_nodes: float | None
    free_w: float | None
    why: str  # why there is no recommendation


class WorkloadRequestList(Answer, frozen=True, kw_only=True):
    """Requests beside use. Nothing is changed."""

    folded_to: int
    ledger_behind_ms: int
    items: list[WorkloadRequest]  # those first of which most could be freed
    total: int
    next: int | None
    free_cores: float
    free_gib: float
    free_nodes: float | None  # nodes without cards, by the resource that is scarce; null: unknown
    free_w: float | None  # their idle power
    nodes: int  # without cards
    idle_w: float | None  # the mean of those nodes whose idle power is read or rated
    idle_known_nodes: int

    @property
    def revision(self) -> str:
        return f"-{self.folded_to}-{self.ledger_behind_ms // BEHIND_STEP_MS}"


class Report(Answer, frozen=True, kw_only=True):
    """`report` is the document of `joulie report -o json`. Only the key of the log signs it, and
    only where the console may read the key."""

    signed: bool
    report: dict[str, Any]

    @property
    def revision(self) -> str:
        return f"-{self.report['position']}-{self.report['asked']['to']}"


class Loss(Item, frozen=True, kw_only=True):
    """The term that cost a candidate the most points compared with the winner."""

    term: str  # empty: level, or not known
    points: float  # of this term
    behind: float  # the difference of the scores
    text: str  # in words


class DecisionBrief(Item, frozen=True, kw_only=True):
    entry: int
    id: str
    verb: EntryVerb
    pod_uid: str
    namespace: str
    name: str
    workload: Class | None = field(name="class")
    at_ms: int
    view: int  # the position of the view that the decision used
    view_age_ms: int | None  # null if the extender had no view
    behind_ms: int | None  # of the view; null too in entries of older versions
    view_text: str  # the view in words; empty for entries that use none
    candidates: int
    refused: int
    reason: str  # of the refusals, as sent to kube-scheduler
    refused_by: dict[str, int]  # the number of nodes by reason
    winner: str
    score: float | None
    runner_up: str
    runner_up_score: float | None
    loss: Loss | None
    text: str  # the answer in words
    sentence: str = ""  # the same as a sentence about the pod


class DecisionList(Answer, frozen=True, kw_only=True):
    items: list[DecisionBrief]
    next: int | None
    entries: int


class TermSet(Item, frozen=True, kw_only=True):
    """Terms as recorded or recomputed; `points` is what each term adds to the score.

    `values` has the terms that the score rests on, those of a new version included; a node without
    data has none. `points` is null where the settings of the decision, or the source, are unknown.
    """

    score: float
    source: str
    values: dict[str, float]
    points: dict[str, float] | None


class Candidate(Item, frozen=True, kw_only=True):
    node: str
    verdict: str  # of a filter: passed, or the reason of the refusal
    answer: int | None  # the score as sent to kube-scheduler
    terms: TermSet | None
    loss: Loss | None


class DecisionDetail(Answer, frozen=True, kw_only=True):
    decision: DecisionBrief
    settings: str
    settings_unknown: str  # why no points can be computed; empty: they can, or there are no scores
    values: dict[str, float | str | bool]
    code: str
    pod: PodBrief | None
    cluster_trend_w_per_min: float | None
    perf_pressure: float | None
    candidates: list[Candidate]  # best first
    cards: list[str]
    error: str
    hash: str
    prev: str
    same_digest: bool | None = None  # recorded and recomputed terms are equal; None: not recomputed


class Refused(Item, frozen=True, kw_only=True):
    reason: str
    nodes: int
    examples: list[str]


class Devices(Item, frozen=True, kw_only=True):
    """The devices that kube-scheduler would give to a pod, by the state of its decision."""

    node: str
    count: int
    names: list[str]  # empty: which ones is not known
    text: str


class Attempt(Item, frozen=True, kw_only=True):
    """The newest scheduling attempt of a pod."""

    number: int  # of the attempts in the newest entries about the pod
    at_ms: int
    entries: list[int]
    pod: PodBrief
    view: int
    view_age_ms: int | None
    behind_ms: int | None
    view_text: str
    settings: str
    preset: str | None  # of these settings; null: they are unknown
    settings_unknown: str  # why no points can be computed; empty: the settings are known
    candidates: int
    filtered: str  # what the filter decided, in words; empty if it was not asked
    refused: list[Refused]
    reason: str  # of the refusals, as sent to kube-scheduler
    cluster_trend_w_per_min: float | None
    perf_pressure: float | None
    best: str  # the best node and the second one, in words; empty without scores
    tied: int | None  # candidates whose answer is the highest one; null without scores
    # Those with terms, best first; then the one that was asked for, and the one where the pod is.
    scores: list[Candidate]
    # The devices of DRA that it takes where it is bound, else on the best node; null: none.
    devices: Devices | None = None
    in_flight: str = ""  # what scores counted of pods that were answered for just before, in words


class Outcome(Item, frozen=True, kw_only=True):
    node: str
    rank: int | None  # of that node among the scores; 1 is the best
    score: int | None
    source: str  # the log or the binding


class Group(Item, frozen=True, kw_only=True):
    """The pods that are placed together with a pod, by the newest state."""

    name: str
    bound: int
    nodes: dict[str, int]  # members on each
    missing: list[str]  # known members that wait
    text: str


class TermTable(Item, frozen=True, kw_only=True):
    """The terms of scores: what they follow from in the unit of the formula, then the points. `|`
    stands between both."""

    head: list[str]
    rows: list[list[str]]
    notes: list[str]


class PodMoment(Item, frozen=True, kw_only=True):
    """One event in the life of a pod."""

    at_ms: int | None  # null: the log does not have the time
    kind: str  # attempt, another verb of the decision log, or what the state holds besides
    text: str
    entries: list[int]  # of the decision log
    table: TermTable | None  # of an attempt with scores


class PodDetail(Answer, frozen=True, kw_only=True):
    pod: PodBrief | None  # None if the pod was deleted; its decisions stay
    decisions: list[DecisionBrief]
    explanation: list[str]
    attempt: Attempt | None  # None if it was never filtered or scored
    outcome: Outcome | None
    group: Group | None
    timeline: list[PodMoment] = []  # oldest first, from the first of `decisions`


class PlanEntry(Item, frozen=True, kw_only=True):
    position: int
    at_ms: int
    plan: PlanBrief | UnsetType = UNSET
    transition: Transition | UnsetType = UNSET


class PlanList(Answer, frozen=True, kw_only=True):
    items: list[PlanEntry]
    next: int | None
    plans_gone: int  # events that have left the stream


class PowerShare(Item, frozen=True, kw_only=True):
    """The part of a power target that a rack may draw."""

    feed: str  # what the target is of, in words; empty: of the cluster
    rack: str
    nodes: int
    capped: int  # of these nodes
    drawn_w: float
    share_w: float


class PlanDetail(Answer, frozen=True, kw_only=True):
    plan: PlanBrief
    made_position: int  # of the fact
    made_at_ms: int
    inputs: dict[str, float]  # without the shares
    shares: list[PowerShare]
    settings: dict[str, float | str | bool]
    transitions: list[Transition]  # in the order of the plan


class NextPlan(Answer, frozen=True, kw_only=True):
    """What the operator would plan, from the facts up to `position` and the settings of its newest
    plan, and the nodes in the order in which later plans turn to them."""

    plan: PlanBrief
    settings_of: str  # the newest plan
    after_s: float
    now_ms: int  # the time that it is computed for
    inputs: dict[str, float]
    shares: list[PowerShare]
    settings: dict[str, float | str | bool]
    transitions: list[Transition]
    held: dict[str, str]  # nodes that are not changed yet, and why
    draining: dict[str, int]  # nodes, with the performance pods that delay their eco class
    least_dense_first: list[str]  # as they become eco when fewer are needed
    empty_in_order: dict[str, int]  # seconds; as they sleep, if nodes sleep


class FreeUse(Item, frozen=True, kw_only=True):
    """In GPUs; cards, groups and nodes that are wholly free and of use to some pod."""

    free: float
    unusable: float  # of these: of no use to any pod like those that asked for GPUs before
    expected_loss: float  # of these: what such a pod could not use, on average
    cards: int
    groups: int  # of linked cards
    nodes: int


class MoveCost(Item, frozen=True, kw_only=True):
    """Of pods that begin again."""

    pods: int
    cores: float
    gpus: float


class PodMove(Item, frozen=True, kw_only=True):
    uid: str
    pod: str  # namespace/name
    node: str
    would_fit: str  # another node
    cores: float
    gpus: float
    gains: float  # GPUs that are of use and were not
    because: str


class StayingPods(Item, frozen=True, kw_only=True):
    because: str
    pods: int
    examples: list[str]


class DefragmentPlan(Answer, frozen=True, kw_only=True):
    """Which pods to move so that free GPUs are of use. It is a recommendation: nothing is moved."""

    pods: int  # bound
    before: FreeUse
    after: FreeUse
    gains: float
    cost: MoveCost
    moves: list[PodMove]
    stays: list[StayingPods]
    notes: list[str]


# --- what would happen to a manifest ------------------------------------------------------------


class PlacedOn(Item, frozen=True, kw_only=True):
    node: str
    pods: int
    cards: list[str]  # that the extender would choose; empty: it chooses none


class NearestRequest(Item, frozen=True, kw_only=True):
    """With so much of one resource, and all else as it is, the pod fits."""

    resource: Literal["GPUs", "cores", "MiB"]
    asked: float
    fits: float


class PlacedPods(Item, frozen=True, kw_only=True):
    """Equal pods of one template."""

    what: str  # such as Deployment team-a/web
    role: str  # of a template among several; empty: the only one
    pods: int
    placed: int
    pod: PodBrief
    nodes: list[PlacedOn]
    tied: list[str]  # where kube-scheduler chooses among several for the first pod
    best: str  # of the first pod: the best node and the second one, in words
    scores: list[Candidate]  # of the first pod: the best by the extender, then its node
    candidates: int  # nodes that kube-scheduler's plugins leave for the pod that is refused
    refused: list[Refused]  # of the first pod that is not placed; empty: all are
    nearest: list[NearestRequest]
    added_w: float | None  # by the pods that are placed; null: it is known of none
    unrated: int  # of these: pods of which it is not known
    unknown: list[str]  # what decides about these pods and is not known
    notes: list[str]


class Room(Item, frozen=True, kw_only=True):
    """What no pod requests, on nodes that take pods."""

    cores: float
    gpus: float


class Waked(Item, frozen=True, kw_only=True):
    """What becomes of the pods that are not placed, after the operator's next plan."""

    nodes: list[str]  # that wake up, by that plan or already, and then get some of these pods
    pods: int  # that fit then


class Foretold(Answer, frozen=True, kw_only=True):
    """What would happen to the pods of a manifest. Nothing is written."""

    pods: int
    placed: int
    groups: list[PlacedPods]
    ignored: list[str]  # objects that make no pods
    settings: str  # of the scores and the filter; empty: the defaults, as none are in the log
    minor: int  # the version of kube-scheduler that is modelled, 1.MINOR
    waiting: int  # pods that wait for a node already, which are not placed before
    waked: Waked | None  # null: no plan, no need, or a policy that is not known here
    free_before: Room
    free_after: Room
    added_w: float | None
    kwh_per_hour: float | None
    unknown: list[str]  # what is known of no pod

    @property
    def pending(self) -> int:
        return self.pods - self.placed

    @property
    def is_unsure(self) -> bool:
        """Whether something of the manifest decides and is not known."""
        return any(group.unknown for group in self.groups)


# --- what runs ----------------------------------------------------------------------------------


class Readings(Item, frozen=True, kw_only=True):
    nodes: int
    asleep: int
    fresh: int
    oldest_s: float | None


class Leader(Item, frozen=True, kw_only=True):
    """The projector that holds the lease of the database."""

    owner: str
    epoch: int
    lease_s: float
    behind_s: float | None  # None: it does not know


class Replica(Item, frozen=True, kw_only=True):
    """An extender, by its newest answers in the log."""

    name: str
    answers: int
    age_s: float  # of the last one


class ReplicaSpool(Item, frozen=True, kw_only=True):
    """Entries of the log that wait on the disk of an extender for the broker."""

    name: str  # of the replica; of the component, if a machine tells of its own
    waiting: int | None  # None: not known
    oldest_s: float | None  # the age of the oldest; None: not known
    heard_s: float | None = None  # since its last report; None: it was asked just now


class Elsewhere(Item, frozen=True, kw_only=True):
    """What the database knows of components, wherever they run."""

    projector: Leader
    extenders: list[Replica]


class MissingMessages(Item, frozen=True, kw_only=True):
    """Of one server's copy of a stream."""

    server: str
    stream: str
    missing: int


class RunningPart(Item, frozen=True, kw_only=True, omit_defaults=True):
    """A process of `joulie up` on the machine that is asked, with its own figures."""

    name: str
    pid: int
    alive: bool
    restarts: int
    position: int | None  # None: it has none, or does not know it yet
    up_s: float | None = None  # since the start of the process
    answers: bool = True  # a request for its metrics
    lag_events: int | None = None  # of the projector
    lag_s: float | None = None  # None: it does not know
    broker_silent_s: float | None = None
    incomplete: list[MissingMessages] = []
    lost_servers: list[str] = []  # of the broker
    not_signed: str = ""  # why the projector signs no heads; empty if it does
    paused: bool | None = None  # whether its view is; None: it has no view
    view_age_s: float | None = None  # None: it has received nothing yet
    view_behind_s: float | None = None  # None: it does not know, or is paused
    missing: int = 0  # answers that the signed log lacks, or has with another content


class StreamSize(Item, frozen=True, kw_only=True):
    bytes: int
    max_bytes: int | None
    days_left: float | None
    kept_s: float


class StorageSizes(Item, frozen=True, kw_only=True):
    """As the projector of this machine measured them, and the disk of the data directory now."""

    streams: dict[str, StreamSize] = {}
    database_bytes: int | None = None
    free_bytes: int | None = None
    full: str = ""  # why nothing can be written; empty if it can


class RefusedOnSample(Item, frozen=True, kw_only=True):
    """A pod that waits because kube-scheduler sent a sample without a fit node."""

    pod: str
    s: float


class Status(Answer, frozen=True, kw_only=True):
    """What runs, and how old the data is. `parts`, `up_s`, `endpoints`, `room` and `data` are of
    the machine where `joulie up` runs: only a command that runs there fills them."""

    running: bool
    up_s: float | None = None
    parts: list[RunningPart] = []
    elsewhere: Elsewhere | None  # None: no projector has a lease in force, or `parts` tell more
    leaderless_s: float | None = None  # since a lease ended that no projector renewed or released
    epoch: int
    committed_at: datetime | None
    commit_age_s: float | None
    preset: str | None  # of the newest plan
    decisions: int
    entries: int
    signed_to: int
    quarantined: int
    foreign_rows: int = 0  # of other programs in the tables of the log, put aside
    unsigned_s: float | None = None  # the age of the first entry without a head; None: all have one
    readings: Readings
    ledger_behind_s: float | None  # None: the ledger cannot be read
    refused_on_sample: list[RefusedOnSample]
    spools: list[ReplicaSpool] = []  # of the extenders that report theirs
    room: StorageSizes = StorageSizes()
    data: str = ""
    endpoints: dict[str, str] = {}
    stale: list[str] = []  # sentences about everything that is down or behind
    health: Health | None = None  # of a console: the sentence that its page has at the top

    @property
    def revision(self) -> str:
        return "" if self.health is None else f"-{crc32(self.health.text.encode()):08x}"


class SignedHead(Item, frozen=True, kw_only=True):
    entry: int
    hash: str
    signed_at_ms: int
    key_id: str
    note: str  # the signed checkpoint, in the form of C2SP


class HeadList(Answer, frozen=True, kw_only=True):
    items: list[SignedHead]
    next: int | None
    entries: int
    unsigned: int  # entries after the newest head


class Reach(Answer, frozen=True, kw_only=True):
    """The oldest and the newest position that queries can reach."""

    first: int
    first_at_ms: int
    last: int
    last_at_ms: int
    entries: int


# --- what the stream sends ----------------------------------------------------------------------


class Notice(Item, frozen=True, kw_only=True):
    """Why the events before this one are missing, or why the stream ends."""

    reason: str


class MapChanges(Item, frozen=True, kw_only=True):
    """What changed on the map. Ids are reused: first remove `gone`, then add `added`."""

    reload: bool = False  # changes were missed: get the whole map
    position: int = 0
    at_ms: int = 0
    gone: list[int] = []
    added: list[tuple[int, str, str]] = []  # id, name, rack
    rows: list[list[int]] = []  # id, class, headroom, cooling, watts, gpu, power, used


StreamValue = DecisionBrief | PlanEntry | Cluster | MapChanges | Notice
STREAM_VALUES: dict[str, type[StreamValue]] = {  # by the name of the event
    "decision": DecisionBrief,
    "plan": PlanEntry,
    "transition": PlanEntry,
    "cluster": Cluster,
    "map": MapChanges,
    "gap": Notice,
    "cut": Notice,
}
