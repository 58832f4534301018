"""What may be asked: one class per question, whose fields are the query's parameters. Pure.

They are read from the URL and shown in the OpenAPI document by the same declarations.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

LARGEST = 2**53 - 1  # that every reader of JSON holds exactly

Instant = Annotated[datetime, Meta(tz=True)]
Limit = Annotated[int, Meta(ge=1, le=1000, description="Items on one page")]
Text = Annotated[str, Meta(max_length=500, pattern=r"^[^\x00]*$")]
Offset = Annotated[
    int, Meta(ge=0, le=10**9, description="How many to leave out: `next` of the page before")
]
Before = Annotated[
    int, Meta(ge=1, le=LARGEST, description="Goes on before this one: `next` of the page before")
]
At = Annotated[int, Meta(ge=0, le=LARGEST, description="As it was at this position of the facts")]
Time = Annotated[datetime, Meta(tz=True, description="As it was known at this time (RFC 3339)")]
Class = Literal["performance", "standard"]
NodeClassName = Literal["performance", "eco", "draining", "unknown"]
Verb = Literal["filter", "prioritize", "preempt", "bind", "outcome", "settings", "unreadable"]
NodeOrder = Literal["name", "headroom", "cooling", "measured", "trend", "pods", "gpus"]
PodPhase = Literal["pending", "running", "finished"]


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters that nobody knows are mistakes, not decoration."""


class Nothing(Question, frozen=True, kw_only=True):
    pass


class Moment(Question, frozen=True, kw_only=True):
    at: At | None = None
    time: Time | None = None


class Nodes(Moment, frozen=True, kw_only=True):
    q: Text = ""  # a part of the name
    node_class: NodeClassName | None = field(default=None, name="class")
    rack: Text = ""
    sort: NodeOrder = "name"
    order: Literal["asc", "desc"] = "asc"
    limit: Limit = 100
    offset: Offset = 0


class Pods(Moment, frozen=True, kw_only=True):
    q: Text = ""  # a part of namespace/name, or a whole uid
    node: Text = ""
    workload: Class | None = field(default=None, name="class")
    phase: PodPhase | None = None
    limit: Limit = 100
    offset: Offset = 0


class Gpus(Moment, frozen=True, kw_only=True):
    node: Text = ""
    model: Text = ""
    limit: Limit = 100
    offset: Offset = 0


class Decisions(Question, frozen=True, kw_only=True):
    pod: Text = ""  # namespace/name
    uid: Text = ""
    node: Text = ""  # that won, was refused or bound
    verb: Verb | None = None
    workload: Class | None = field(default=None, name="class")
    since: Instant | None = None
    until: Instant | None = None
    before: Before | None = None
    limit: Limit = 100


class Decision(Question, frozen=True, kw_only=True):
    terms: Annotated[
        Literal["recorded", "all"],
        Meta(description="all: computed again for every candidate, from the facts of back then"),
    ] = "recorded"


class Plans(Question, frozen=True, kw_only=True):
    node: Text = ""
    before: Before | None = None
    limit: Limit = 100


class Heads(Question, frozen=True, kw_only=True):
    before: Before | None = None
    limit: Limit = 100


class Power(Question, frozen=True, kw_only=True):
    since: Annotated[int, Meta(ge=0, le=LARGEST, description="Epoch, in milliseconds")] = 0


class Stream(Question, frozen=True, kw_only=True):
    topics: Annotated[
        str,
        Meta(
            pattern="^(decisions|plans|transitions|cluster|map)"
            "(,(decisions|plans|transitions|cluster|map))*$",
            description="With commas between",
        ),
    ] = "decisions,plans,transitions,cluster"
    after: Annotated[
        str,
        Meta(
            pattern=r"^[0-9]{1,15}\.[0-9]{1,15}$",
            description="An id of the stream to go on behind; the header Last-Event-ID comes first",
        ),
    ] = ""
    pod: Text = ""  # namespace/name; of decisions alone, like `verb` and `class`
    node: Text = ""
    verb: Verb | None = None
    workload: Class | None = field(default=None, name="class")
