"""Reachability, and whether kube-scheduler asks the extender."""

from collections.abc import Sequence
from typing import NamedTuple

from joulie_answers.doctor.judgement.findings import Finding, Unseen, fail, not_seen, ok, warn

NS = 10**9
SPOOLED_S = 60.0  # as the alert JoulieDecisionsNotShipped
UNSEEN_POD_S = 60.0  # a scheduler looks at a pod within a second, unless its queue is long
SILENT_S = 60.0  # between the last call and a placement that did not ask
REACHED_S = 5.0  # from an extender that is ready to a Service that leads to it
CONFIGURE = "Configure kube-scheduler with the output of `joulie scheduler-config`, and restart it."


class LastCall(NamedTuple):
    """The newest decision in the log."""

    at: int  # ns; 0 if there is none
    decisions: int


class Waiting(NamedTuple):
    """Pods of our schedulers that have no node."""

    names: Sequence[str]  # of those that no scheduler has looked at for a minute
    pods: int


class SchedulerPod(NamedTuple):
    name: str
    config: str  # the file of --config; empty without


class SpoolSeen(NamedTuple):
    """The spools of all extenders, by their metrics."""

    entries: float  # that the broker does not have
    oldest_s: float
    missing: float  # published, and not in the signed log, or with another content


def reached(what: str, where: str, problem: str, advice: str) -> Finding:
    """An empty problem means that it answered."""
    if problem:
        return fail(what, f"{where}: {problem}", advice)
    return ok(what, f"{where} answers")


def asked(
    last: LastCall | Unseen, newest_placement: int, now: int, ready_since: int = 0
) -> Finding:
    """`newest_placement`: when a pod of our schedulers got its node last, in ns; 0 if unknown.
    `ready_since`: from when on an extender could be asked; 0 if unknown.
    """
    check = "calls of kube-scheduler"
    if isinstance(last, Unseen):
        return not_seen(check, last, "Look at joulie_answers_total of the extender.")
    if newest_placement > last.at + SILENT_S * NS:
        after = "none" if not last.at else f"the last {_age(now - last.at)} ago"
        if newest_placement < ready_since + REACHED_S * NS:
            seen = f"{after}; the last pod was placed before the extender was ready"
            return warn(check, seen, "Create a pod, and run this command again.")
        seen = f"{after}, but a pod was placed {_age(now - newest_placement)} ago"
        return fail(check, f"{seen}: kube-scheduler does not ask the extender", CONFIGURE)
    if not last.at:
        return warn(check, "no decision yet", "Create a pod, and run this command again.")
    return ok(check, f"{last.decisions} decisions, the last {_age(now - last.at)} ago")


def answered(count: float | Unseen) -> Finding:
    """By the metrics of the running extenders, which start at zero."""
    check = "answers of the extender"
    if isinstance(count, Unseen):
        return not_seen(check, count, "Look at joulie_answers_total of the extender.")
    if not count:
        return warn(check, "none since it started", "Create a pod, or see the calls above.")
    return ok(check, f"{count:.0f} since it started")


def spooled(seen: SpoolSeen | Unseen) -> Finding:
    check = "decisions on the way to the log"
    if isinstance(seen, Unseen):
        return not_seen(check, seen, "Look at joulie_decision_spool_events of the extender.")
    shown = f"{seen.entries:.0f} in the spool"
    if seen.missing:
        lost = f"{shown}; the signed log lacks {seen.missing:.0f} published entries"
        return fail(check, lost, "Run `joulie prove --missing` where the extender runs.")
    if seen.entries and seen.oldest_s > SPOOLED_S:
        advice = "The log lines not_published and unacknowledged of the extender give the reason."
        return warn(check, f"{shown}, the oldest for {seen.oldest_s:.0f} s", advice)
    return ok(check, shown)


def waiting(seen: Waiting | Unseen) -> Finding:
    check = "pods without a node"
    if isinstance(seen, Unseen):
        return not_seen(check, seen, "Give this account the right to list pods.")
    if seen.names:
        named = ", ".join(seen.names[:3])
        return fail(
            check,
            f"no scheduler has looked at {len(seen.names)} of {seen.pods}: {named}",
            "Is the scheduler that spec.schedulerName names running? See its pods and its Lease.",
        )
    return ok(check, f"{seen.pods} wait, and a scheduler has looked at each")


def scheduler_flags(pods: Sequence[SchedulerPod] | Unseen) -> Finding:
    """Of the cluster's kube-scheduler, which calls the extender in mode patch."""
    check = "kube-scheduler"
    hidden = "With a managed control plane use scheduler.mode=own."
    if isinstance(pods, Unseen):
        return not_seen(check, pods, hidden)
    if not pods:
        return not_seen(check, Unseen("no pod of kube-scheduler in kube-system"), hidden)
    if without := [pod.name for pod in pods if not pod.config]:
        return fail(check, f"{without[0]} runs without --config, so it calls no one", CONFIGURE)
    files = ", ".join(sorted({pod.config for pod in pods}))
    return ok(check, f"reads {files} on its host; compare it with `joulie scheduler-config`")


def _age(ns: int) -> str:
    seconds = max(0, ns) / NS
    for least, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * least:
            return f"{seconds / least:.0f} {unit}"
    return f"{seconds:.0f} s"
