"""The requests: one class per path, with the query parameters as its fields.

The same classes parse the URL and define the OpenAPI document.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from joulie_extender.decide.entry_verbs import EntryVerb
from joulie_projections.energy.report import By

TOKEN_HEADER = "Joulie-Token"  # the API server's proxy removes `Authorization`
MAX_INTEGER = 2**53 - 1  # the largest integer that every JSON parser represents exactly

MOST_BYTES = 1 << 20  # of a manifest
Instant = Annotated[datetime, Meta(tz=True)]
Limit = Annotated[int, Meta(ge=1, le=1000, description="Items on one page")]
Text = Annotated[str, Meta(max_length=500, pattern=r"^[^\x00]*$")]
Offset = Annotated[
    int, Meta(ge=0, le=10**9, description="How many to skip: `next` of the previous page")
]
Before = Annotated[
    int, Meta(ge=1, le=MAX_INTEGER, description="Only older ones: `next` of the previous page")
]
At = Annotated[
    int, Meta(ge=0, le=MAX_INTEGER, description="The state at this position of the facts")
]
Time = Annotated[datetime, Meta(tz=True, description="The state at this time (RFC 3339)")]
Class = Literal["performance", "standard"]
NodeClassName = Literal["performance", "eco", "draining", "unknown"]
NodeOrder = Literal["name", "headroom", "cooling", "measured", "trend", "pods", "gpus"]
PodPhase = Literal["pending", "running", "finished"]


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of one path. An unknown parameter is an error."""


class NoParameters(Query, frozen=True, kw_only=True):
    pass


class SnapshotQuery(Query, frozen=True, kw_only=True):
    at: At | None = None
    time: Time | None = None


class Node(SnapshotQuery, frozen=True, kw_only=True):
    transitions: Annotated[
        int, Meta(ge=0, le=1000, description="The newest of them; none, and no plan is read")
    ] = 100


class Nodes(SnapshotQuery, frozen=True, kw_only=True):
    q: Text = ""  # a part of the name
    node_class: NodeClassName | None = field(default=None, name="class")
    rack: Text = ""
    sort: NodeOrder = "name"
    order: Literal["asc", "desc"] = "asc"
    limit: Limit = 100
    offset: Offset = 0


class Pods(SnapshotQuery, frozen=True, kw_only=True):
    q: Text = ""  # a part of namespace/name, or a whole uid
    node: Text = ""
    workload: Class | None = field(default=None, name="class")
    phase: PodPhase | None = None
    limit: Limit = 100
    offset: Offset = 0


class Pod(SnapshotQuery, frozen=True, kw_only=True):
    candidate: Text = ""  # also the terms of this node; recomputed if they are not recorded


class Gpus(SnapshotQuery, frozen=True, kw_only=True):
    node: Text = ""
    model: Text = ""  # as in a pod's annotation
    pod: Text = ""  # a uid, a name, or namespace/name
    free: bool = False  # only healthy cards with free memory
    limit: Limit = 100
    offset: Offset = 0


class Decisions(Query, frozen=True, kw_only=True):
    pod: Text = ""  # namespace/name, a name alone, or a uid
    uid: Text = ""
    namespace: Text = ""
    candidate: Text = ""  # a node that was considered, whatever became of it
    node: Text = ""  # the winner, a refused node, or the node that was bound
    verb: EntryVerb | None = None
    workload: Class | None = field(default=None, name="class")
    since: Instant | None = None
    until: Instant | None = None
    before: Before | None = None
    limit: Limit = 100


class Decision(Query, frozen=True, kw_only=True):
    terms: Annotated[
        Literal["recorded", "all"],
        Meta(description="all: recomputed for every candidate, from the facts of that position"),
    ] = "recorded"


class Plans(Query, frozen=True, kw_only=True):
    node: Text = ""
    changed: bool = False  # without plans that changed nothing
    before: Before | None = None
    limit: Limit = 100


class NextPlan(Query, frozen=True, kw_only=True):
    after_s: Annotated[
        float, Meta(ge=0, le=366 * 86_400, description="As if nothing else happened until then")
    ] = 0.0


class Defragment(Query, frozen=True, kw_only=True):
    moves: Annotated[int, Meta(ge=1, le=100, description="At most so many pods")] = 20


class Place(Query, frozen=True, kw_only=True):
    manifest: Annotated[
        str, Meta(min_length=1, description="Objects of Kubernetes: YAML or JSON, 1 MiB at most")
    ]
    namespace: Annotated[
        str, Meta(max_length=63, description="Of objects that name none; default without it")
    ] = ""


class Heads(Query, frozen=True, kw_only=True):
    before: Before | None = None
    limit: Limit = 100


class Pending(Query, frozen=True, kw_only=True):
    limit: Limit = 100
    offset: Offset = 0


class Energy(Query, frozen=True, kw_only=True):
    by: By = "namespace"
    hours: Annotated[
        int, Meta(ge=1, le=8784, description="Length of the period, without `since`")
    ] = 24
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 30
    offset: Offset = 0


class WorkloadRequests(Query, frozen=True, kw_only=True):
    namespace: Text = ""
    least_hours: Annotated[
        float,
        Meta(ge=0, le=14 * 24, description="No recommendation for what is known for less time"),
    ] = 24.0
    limit: Limit = 100
    offset: Offset = 0


class Report(Query, frozen=True, kw_only=True):
    since: Annotated[datetime, Meta(tz=True, description="Without: all")] | None = None
    until: Annotated[datetime, Meta(tz=True, description="Without: now")] | None = None


class Power(Query, frozen=True, kw_only=True):
    since: Annotated[int, Meta(ge=0, le=MAX_INTEGER, description="Epoch, in milliseconds")] = 0


class Stream(Query, frozen=True, kw_only=True):
    topics: Annotated[
        str,
        Meta(
            pattern="^(decisions|plans|transitions|cluster|map)"
            "(,(decisions|plans|transitions|cluster|map))*$",
            description="Separated by commas",
        ),
    ] = "decisions,plans,transitions,cluster"
    after: Annotated[
        str,
        Meta(
            pattern=r"^[0-9]{1,15}\.[0-9]{1,15}$",
            description="Resume after this stream id; the header Last-Event-ID takes precedence",
        ),
    ] = ""
    pod: Text = ""  # namespace/name; filters decisions only, like `verb` and `class`
    node: Text = ""
    verb: EntryVerb | None = None
    workload: Class | None = field(default=None, name="class")
