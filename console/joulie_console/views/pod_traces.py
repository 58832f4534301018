"""Entries of the decision log as spans: one trace for each pod.

The ids follow from the uid of the pod and the id of the entry, so that the same entry is the same
span in every console. The span of the pod is sent with its outcome, after the spans of its
decisions, whose parent it is.
"""

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    BindDecided,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    codec,
)
from joulie_bus.events.codec import Envelope
from joulie_bus.streams.records import Record
from joulie_extender.decide.explained import Explained, behind_ms, explained

Attribute = str | int | float | bool | list[str]
MOST_PODS = 20_000  # that wait for their outcome; the oldest is forgotten for a newer one
POD_SPAN = "schedule pod"
Decision = FilterDecided | PrioritizeDecided | PreemptDecided | BindDecided | FallbackAnswered


class Span(NamedTuple):
    """Times are in nanoseconds. `parent` is None for the span of the pod."""

    trace: int
    id: int
    parent: int | None
    name: str
    start: int
    end: int
    attributes: Mapping[str, Attribute]
    error: str = ""


class PodTraces:
    """Remembers when the first decision about each pod began, until the pod has its outcome."""

    def __init__(self, most_pods: int = MOST_PODS) -> None:
        self._most_pods = most_pods
        self._begun = OrderedDict[str, int]()

    def spans_of(self, record: Record) -> list[Span]:
        """Empty for entries that are not about a pod, and for messages that are no entry."""
        what = f"message {record.sequence} of {record.stream}"
        try:
            envelope = codec.open_envelope(record.data, what)
            event = codec.read(envelope, what)
        except Undecodable:
            return []  # the log has an entry for it
        if isinstance(event, OutcomeSeen):
            return [self._pod_span(event, record.at)]
        if not isinstance(event, Decision):
            return []
        span = _decision_span(event, envelope, record.at)
        self._remember(event.key, span.start)
        return [span]

    def _remember(self, uid: str, start: int) -> None:
        self._begun.setdefault(uid, start)
        if len(self._begun) > self._most_pods:
            self._begun.popitem(last=False)

    def _pod_span(self, event: OutcomeSeen, at: int) -> Span:
        found = explained(event)
        start = self._begun.pop(event.pod_uid, None)
        attributes = {
            **_pod_attributes(event.pod_uid, event.namespace, event.name),
            "k8s.node.name": event.node,
            "joulie.explanation": found.line,
            "joulie.complete": start is not None,
            **_present({"joulie.rank": event.rank, "joulie.score": event.score}),
            **_present({"joulie.regret": event.regret}),
        }
        trace, own = _trace_id(event.pod_uid), _pod_span_id(event.pod_uid)
        began = at if start is None else min(start, at)
        return Span(trace, own, None, POD_SPAN, began, at, attributes)


def _decision_span(event: Decision, envelope: Envelope, stored_at: int) -> Span:
    """From the answer's own clock until its entry was written. A machine whose clock is wrong
    writes times outside of that; the span has no length then."""
    found = explained(event)
    start = found.basis.now if found.basis else stored_at
    end = envelope.ts if start <= envelope.ts <= stored_at else start
    uid = event.key
    return Span(
        trace=_trace_id(uid),
        id=_id("entry", envelope.id, 8),
        parent=_pod_span_id(uid),
        name=found.verb,
        start=start,
        end=end,
        attributes=_attributes(event, found, envelope.id),
        error=found.error,
    )


def _attributes(event: Decision, found: Explained, entry_id: str) -> dict[str, Attribute]:
    named = event if isinstance(event, BindDecided | FallbackAnswered) else event.pod
    attributes: dict[str, Attribute] = {
        **_pod_attributes(event.key, named.namespace, named.name),
        "joulie.entry": entry_id,
        "joulie.replica": entry_id.partition(":")[0],
        "joulie.explanation": found.line,
        **_present({"k8s.node.name": found.node or None}),
    }
    if found.asked:
        attributes |= {"joulie.candidates": found.asked, "joulie.refused": found.refused}
    if found.basis:
        attributes |= {"joulie.view": found.basis.view}
        attributes |= _present({"joulie.view.behind_ms": behind_ms(found.basis)})
    if found.top:
        attributes["joulie.score"] = found.top[0].score
    if found.cards:
        attributes["joulie.cards"] = list(found.cards)
    return attributes


def _pod_attributes(uid: str, namespace: str, name: str) -> dict[str, Attribute]:
    return {"k8s.pod.uid": uid, "k8s.namespace.name": namespace, "k8s.pod.name": name}


def _present(found: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {name: value for name, value in found.items() if value is not None}


def _trace_id(uid: str) -> int:
    return _id("pod", uid, 16)


def _pod_span_id(uid: str) -> int:
    return _id("schedule", uid, 8)


def _id(kind: str, of: str, size: int) -> int:
    """Never 0, which stands for no id."""
    return int.from_bytes(sha256(f"joulie {kind} {of}".encode()).digest()[:size]) | 1
