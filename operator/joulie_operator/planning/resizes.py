"""What becomes of the requests of pods by consent: an order, or the reason why there is none.

A pod that never consented is never touched. A request is lowered to what the pods of its workload
use, at most once a day, and never raised above its original; it rises at once where the use grows
or processes wait for processors. Where the consent ends, the original comes back.
"""

from typing import Literal, NamedTuple

from joulie_bus.events import Change, Requests, ResizeOrdered, ResizeRefused, UseBasis
from joulie_operator.planning.request_sizes import (
    LEAST_CHANGE_PCT,
    LEAST_HOURS,
    MOST_WAIT_PERMILLE,
    grows,
    in_words,
    is_much_less,
    requests_after,
)
from joulie_projections.energy.right_size import NO_USE, advised

Mode = Literal["off", "recommend", "in-place"]
MODES: tuple[Mode, ...] = ("off", "recommend", "in-place")
LOWERED_AGAIN_NS = 24 * 3600 * 10**9


class WhyNot(NamedTuple):
    reason: str  # one word for each kind of reason
    because: str


class ResizablePod(NamedTuple):
    """A pod that consents, or that has other requests than its own, as the API server has it."""

    uid: str
    namespace: str
    name: str
    node: str
    consent: str  # of the pod, else of its namespace; empty for none
    present: Requests
    original: Requests | None = None  # None: it has its own
    ordered_at: int = 0  # when an order changed them last
    forbids: WhyNot | None = None  # what about the pod forbids a change
    pending: str = ""  # why the kubelet does not carry out the last order: Deferred or Infeasible

    @property
    def own(self) -> Requests:
        return self.present if self.original is None else self.original


class KnownUse(NamedTuple):
    """What the ledger has of the workload of a pod."""

    use: UseBasis | None = None
    is_wait_metered: bool = False
    wait_permille: int | None = None  # for processors, since the last look; None: not yet known


class GivenBack(NamedTuple):
    """The pod has its own requests again, and needs no mark any more."""

    pod: ResizablePod


Resizing = ResizeOrdered | ResizeRefused | GivenBack | None
RECOMMENDED = "recommend"
UNREADABLE = "unreadable"  # the reason for a pod whose own requests cannot be read
NOT_LISTED = WhyNot(
    "autoscalers",
    "the operator may not list autoscalers, which may use its requests: give it the rights of "
    "rbac-requests.yaml (in the chart operator.requests=true)",
)
NO_CONSENT = WhyNot("no-consent", "neither the pod nor its namespace consents")


def decision(pod: ResizablePod, known: KnownUse, mode: Mode, now: int) -> Resizing:
    """None: there is nothing to do or to say."""
    standing = _standing(pod, mode)
    if pod.forbids is not None and pod.forbids.reason == UNREADABLE:
        return _refused(pod, pod.forbids)
    if pod.original is not None:
        return _given_back(pod, standing) if standing else _resized_again(pod, known, now)
    if not pod.consent or mode == "off":
        return None
    if standing is not None and standing.reason != RECOMMENDED:
        return _refused(pod, standing)
    found = _sized(pod, known, now)
    if isinstance(found, ResizeOrdered) and standing is not None:
        return _refused(pod, standing._replace(because=f"{standing.because}: {found.because}"))
    return found


# --- what forbids a change --------------------------------------------------------------------


def _standing(pod: ResizablePod, mode: Mode) -> WhyNot | None:
    """What forbids other requests than its own, whatever the pod uses."""
    match pod.consent:
        case "":
            return NO_CONSENT
        case "recommend":
            return _recommending(pod, "its consent is to recommend")
        case "in-place" if mode != "in-place":
            return _recommending(pod, f"the setting is REQUESTS={mode}")
        case "in-place":
            return pod.forbids
        case other:
            why = f"joulie.io/right-size is {other!r}, which is not recommend, in-place or off"
            return WhyNot("label", why)


def _recommending(pod: ResizablePod, why: str) -> WhyNot:
    """Nothing is changed, so the right to list autoscalers is not required."""
    if pod.forbids == NOT_LISTED:
        return WhyNot(RECOMMENDED, f"{why}, autoscalers were not looked at")
    return pod.forbids or WhyNot(RECOMMENDED, why)


def _refused(pod: ResizablePod, why: WhyNot) -> ResizeRefused:
    return ResizeRefused(
        node=pod.node,
        uid=pod.uid,
        pod=f"{pod.namespace}/{pod.name}",
        reason=why.reason,
        because=why.because,
    )


def _given_back(pod: ResizablePod, why: WhyNot) -> Resizing:
    if pod.present != pod.own:
        return _ordered(pod, "give-back", KnownUse(), why.because)
    if pod.pending:
        what = f"the kubelet has not given its own requests back yet: {pod.pending}"
        return _refused(pod, WhyNot(pod.pending.lower(), what))
    return GivenBack(pod)


# --- by use -----------------------------------------------------------------------------------


def _resized_again(pod: ResizablePod, known: KnownUse, now: int) -> Resizing:
    if pod.pending:
        return _refused(pod, WhyNot(pod.pending.lower(), f"the kubelet answers {pod.pending}"))
    found = _sized(pod, known, now)
    return found if isinstance(found, ResizeOrdered) else None  # it keeps what it has


def _sized(pod: ResizablePod, known: KnownUse, now: int) -> Resizing:
    if why := _unknown(known):
        return _refused(pod, why)
    if known.use is None or known.wait_permille is None:
        return None  # known at the next look
    if known.wait_permille > MOST_WAIT_PERMILLE:
        return _under_pressure(pod, known, known.wait_permille)
    after = requests_after("lower", pod.own, pod.present, known.use, known.wait_permille)
    if grows(pod.present, after):
        return _ordered(pod, "raise", known, "it uses more than before")
    if not is_much_less(pod.present, after):
        what = f"less than {LEAST_CHANGE_PCT} % would be free"
        return _refused(pod, WhyNot("little", what))
    if now - pod.ordered_at < LOWERED_AGAIN_NS:
        return None
    return _ordered(pod, "lower", known, "it uses less than it requests")


def _under_pressure(pod: ResizablePod, known: KnownUse, wait: int) -> Resizing:
    share = f"processes waited for processors in {wait / 10:g} % of the time"
    if pod.original is None:
        return _refused(pod, WhyNot("pressure", share))
    order = _ordered(pod, "raise", known, share)
    return order if order.after != pod.present else None


def _unknown(known: KnownUse) -> WhyNot | None:
    if known.use is None:
        return WhyNot("no-use", NO_USE.why_not)
    if why := advised(known.use, LEAST_HOURS).why_not:
        return WhyNot("little-known", why)
    if not known.is_wait_metered:
        return WhyNot("no-pressure", "waits for processors are not metered, as with cgroup v1")
    return None


def _ordered(pod: ResizablePod, change: Change, known: KnownUse, why: str) -> ResizeOrdered:
    after = requests_after(change, pod.own, pod.present, known.use, known.wait_permille)
    return ResizeOrdered(
        node=pod.node,
        uid=pod.uid,
        pod=f"{pod.namespace}/{pod.name}",
        change=change,
        original=pod.own,
        before=pod.present,
        after=after,
        use=known.use,
        cpu_wait=known.wait_permille,
        because=f"{why}: {in_words(pod.present, after)}",
    )
