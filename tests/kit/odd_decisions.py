"""Decisions in a good envelope that no producer of ours makes: some cases, and any for laws."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from bus_kit import CLUSTER, NOON, ask, noon, one_of_each
from joulie_bus.events import (
    AnyEvent,
    DecisionEntry,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    Terms,
    named_terms,
)
from joulie_bus.events.codec import Envelope, seal
from joulie_bus.events.decisions import Basis, Candidates, InFlight
from joulie_bus.streams.records import Message
from joulie_extender.catalogue.declaration import declaration
from joulie_extender.catalogue.terms import FIRST, TERMS
from joulie_extender.catalogue.weights import Weights
from joulie_extender.terms.freshness import SOURCES

_FAR = (2**31 - 1).to_bytes(4, "little")
_BOTH = b"\0\0\0\0\xff\xff\xff\xff"  # row 0 and an unknown node
# Their numbers do not agree with their candidates.
DISAGREEING: dict[str, tuple[type[AnyEvent], dict[str, Any]]] = {
    "ordinals end within a number": (FilterDecided, {"candidates": {"ordinals": b"\0" * 5}}),
    "a verdict too few": (FilterDecided, {"verdicts": b"\0"}),
    "a verdict too many": (FilterDecided, {"verdicts": bytes(3)}),
    "no verdicts": (PreemptDecided, {"verdicts": b""}),
    "three labels for two nodes": (FilterDecided, {"eco_labels": bytes(3)}),
    "a score too few": (PrioritizeDecided, {"scores": bytes(2)}),
    "half a score": (PrioritizeDecided, {"scores": bytes(3)}),
    "scores without candidates": (PrioritizeDecided, {"candidates": {"ordinals": b""}}),
    "an unknown node without a name": (PrioritizeDecided, {"candidates": {"ordinals": _BOTH}}),
    "a name too many": (
        FilterDecided,
        {"candidates": {"ordinals": bytes(8), "strangers": ["x"]}},
    ),
    "a negative row": (
        FilterDecided,
        {"candidates": {"ordinals": bytes(4) + b"\0\0\0\x80", "strangers": ["x"]}},
    ),
}


def _scores_from(*sources: str) -> dict[str, Any]:
    """Two candidates whose terms are of these sources."""
    first = {"score": 50.0, **dict.fromkeys(FIRST, 1.0)}
    top = [
        named_terms(f"n{rank}", source, first | {"score": 90.0 - 40 * rank}, {"activation_w": 3.0})
        for rank, source in enumerate(sources)
    ]
    return {"top": msgspec.to_builtins(top)}


# They agree, and no such row, verdict or node exists, or no formula gave such scores.
WILD: dict[str, tuple[type[AnyEvent], dict[str, Any]]] = {
    "rows that do not exist": (FilterDecided, {"candidates": {"ordinals": _FAR * 2}}),
    "scores of rows that do not exist": (PrioritizeDecided, {"candidates": {"ordinals": _FAR * 2}}),
    "unknown verdicts": (PreemptDecided, {"verdicts": b"\xfe\xff"}),
    "twice the same node": (PrioritizeDecided, {"candidates": {"ordinals": bytes(8)}}),
    "no terms": (PrioritizeDecided, {"top": []}),
    "a winner by watts beside a node without data": (
        PrioritizeDecided,
        _scores_from("energy", "neutral"),
    ),
    "a winner by watts beside one by headroom": (
        PrioritizeDecided,
        _scores_from("energy", "measured"),
    ),
    "a winner without data": (PrioritizeDecided, _scores_from("undiscovered", "energy")),
    "scores of another version": (PrioritizeDecided, _scores_from("tide", "tide")),
    "a short digest": (PrioritizeDecided, {"terms_digest": b"\0"}),
    "the lowest scores": (PrioritizeDecided, {"scores": b"\0\x80\0\x80"}),
}


def odd_message(cls: type[AnyEvent], changed: dict[str, Any], number: int) -> Message:
    """The example of this type with changed fields, as a replica sends it."""
    event = next(each for each in one_of_each() if isinstance(each, cls))
    data: dict[str, Any] = msgspec.to_builtins(event, builtin_types=(bytes,)) | changed
    replica = f"extender-{number % 2}"  # of one, the log keeps less in a minute
    envelope = Envelope(
        id=f"{replica}:odd:{number}",
        type=event.TYPE,
        v=event.VERSION,
        key=event.key,
        ts=noon(),
        data=msgspec.Raw(msgspec.msgpack.encode(data)),
    )
    return Message(CLUSTER.decisions(replica), envelope.id, seal(envelope))


def odd_messages(cases: dict[str, tuple[type[AnyEvent], dict[str, Any]]]) -> list[Message]:
    return [
        odd_message(cls, changed, number) for number, (cls, changed) in enumerate(cases.values(), 1)
    ]


# --- any decision that the format allows, for laws ------------------------------------------------

UNKNOWN_SETTINGS = "settings-of-no-entry"
WEIGHTS: Mapping[str, Weights] = {
    declaration(weights).settings: weights
    for weights in (Weights(), Weights(scoring="energy", preset="savings"))
}

_NODES = [f"n{number}" for number in range(6)]
_SOURCES = st.sampled_from([*SOURCES.values(), "", "tide"])
_NUMBERS = st.one_of(st.just(0.0), st.floats(-1e12, 1e12), st.floats(0, 100))
_NAMES = sorted({*(term.name for term in TERMS if term.name not in FIRST), "tide", "tide_w"})
_PODS = st.builds(
    lambda cores, gpus, performance: ask("web", cores=cores, gpus=gpus, performance=performance),
    cores=st.sampled_from([0, 2]),
    gpus=st.sampled_from([0, 1]),
    performance=st.booleans(),
)
_BASES = st.builds(
    Basis,
    view=st.integers(0, 10),
    view_age_ms=st.sampled_from([0, 3, 2**62]),
    now=st.integers(NOON, NOON + 10**9),
    settings=st.sampled_from([*WEIGHTS, UNKNOWN_SETTINGS, ""]),
    behind_ms=st.sampled_from([None, 0, 20_000, 2**62]),
)


@st.composite
def any_terms(draw: st.DrawFn, node: str) -> Terms:
    first = {name: draw(_NUMBERS) for name in ("score", *FIRST)}
    more = draw(st.dictionaries(st.sampled_from(_NAMES), _NUMBERS, max_size=6))
    return named_terms(node, draw(_SOURCES), first, more)


@st.composite
def any_candidates(draw: st.DrawFn) -> tuple[Candidates, list[str]]:
    """Known rows, unknown ones and nodes that were named in the request alone."""
    names = draw(st.lists(st.sampled_from(_NODES), unique=True, max_size=6))
    strangers = [name for name in names if draw(st.booleans())]
    rows = [-1 if name in strangers else draw(st.integers(0, 5)) for name in names]
    ordinals = b"".join(row.to_bytes(4, "little", signed=True) for row in rows)
    return Candidates(ordinals=ordinals, strangers=strangers), names


@st.composite
def any_scored(draw: st.DrawFn) -> PrioritizeDecided:
    candidates, names = draw(any_candidates())
    scores = [draw(st.integers(-(2**15), 2**15 - 1)) for _ in names]
    top = draw(st.lists(st.sampled_from(_NODES), max_size=min(5, len(names))))
    flying = st.lists(st.builds(InFlight, st.integers(0, 5), devices=st.integers(0, 3)), max_size=2)
    return PrioritizeDecided(
        pod=draw(_PODS),
        basis=draw(_BASES),
        candidates=candidates,
        scores=np.array(scores, "<i2").tobytes(),
        terms_digest=b"",
        cluster_trend_w_per_min=draw(_NUMBERS),
        perf_pressure=draw(_NUMBERS),
        top=[draw(any_terms(node)) for node in top],
        duty=draw(st.sampled_from(["energy", "gpu", "all"])),
        in_flight=draw(st.one_of(st.none(), flying.map(tuple))),
    )


@st.composite
def any_filtered(draw: st.DrawFn) -> FilterDecided | PreemptDecided:
    candidates, names = draw(any_candidates())
    verdicts = bytes(draw(st.integers(0, 255)) for _ in names)
    pod, basis = draw(_PODS), draw(_BASES)
    if draw(st.booleans()):
        return FilterDecided(pod=pod, basis=basis, candidates=candidates, verdicts=verdicts)
    return PreemptDecided(pod=pod, basis=basis, candidates=candidates, verdicts=verdicts)


def _outcome(node: str, rank: int | None, score: int | None) -> OutcomeSeen:
    return OutcomeSeen(
        pod_uid="web", namespace="team", name="web", node=node, rank=rank, score=score
    )


any_outcome = st.builds(
    _outcome,
    st.sampled_from([*_NODES, "gone"]),
    st.one_of(st.none(), st.integers(1, 9)),
    st.one_of(st.none(), st.integers(0, 100)),
)
any_decision: st.SearchStrategy[DecisionEntry] = st.one_of(
    any_scored(), any_filtered(), any_outcome
)
