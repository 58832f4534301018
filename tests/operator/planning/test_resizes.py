"""Requests by consent: which pods are changed, by how much, how often, and what comes back."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit.clock import NOON
from joulie_bus.events import ContainerRequest, Requests, ResizeOrdered, ResizeRefused, UseBasis
from joulie_operator.planning.request_sizes import recomputed
from joulie_operator.planning.resizes import (
    LOWERED_AGAIN_NS,
    MODES,
    NOT_LISTED,
    GivenBack,
    KnownUse,
    Mode,
    ResizablePod,
    WhyNot,
    decision,
)

GIB = 1 << 30
DAYS_S = 14 * 86_400
OWN = (ContainerRequest("web", 3000, 6 * GIB), ContainerRequest("proxy", 1000, 2 * GIB))
USE = UseBasis(
    seconds=DAYS_S,
    history_s=DAYS_S,
    cpu_milli_s=800 * DAYS_S,
    p95_milli=1000,
    memory_peak_mib=4096,
)
KNOWN = KnownUse(USE, is_wait_metered=True, wait_permille=2)
POD = ResizablePod("u1", "team", "web-1", "n1", "in-place", OWN)
HPA = WhyNot("hpa", "the HorizontalPodAutoscaler web scales by the use of its requests")


def decided(pod: ResizablePod, known: KnownUse = KNOWN, mode: Mode = "in-place") -> object:
    return decision(pod, known, mode, NOON)


def ordered(pod: ResizablePod, known: KnownUse = KNOWN, mode: Mode = "in-place") -> ResizeOrdered:
    found = decided(pod, known, mode)
    assert isinstance(found, ResizeOrdered), found
    return found


def reason(pod: ResizablePod, known: KnownUse = KNOWN, mode: Mode = "in-place") -> str:
    found = decided(pod, known, mode)
    assert isinstance(found, ResizeRefused), found
    return found.reason


def totals(requests: Requests) -> tuple[int, int]:
    cpu = sum(each.cpu_milli or 0 for each in requests)
    return cpu, sum(each.memory_bytes or 0 for each in requests)


def after(order: ResizeOrdered, at: int = NOON) -> ResizablePod:
    return POD._replace(present=order.after, original=order.original, ordered_at=at)


# --- laws -------------------------------------------------------------------------------------

AMOUNT = st.none() | st.integers(0, 10**6) | st.integers(1000, 10**5)
CONTAINERS = st.lists(st.tuples(AMOUNT, AMOUNT), min_size=1, max_size=4)
USES = st.builds(
    UseBasis,
    seconds=st.integers(0, 10**7),
    history_s=st.integers(0, 2 * DAYS_S),
    cpu_milli_s=st.integers(0, 10**12),
    p95_milli=st.integers(0, 10**6),
    memory_peak_mib=st.none() | st.integers(0, 10**6),
)
KNOWNS = st.builds(
    KnownUse, st.none() | USES, st.booleans(), st.none() | st.integers(0, 1000)
) | st.builds(KnownUse, st.just(USE), st.just(True), st.integers(0, 100))
WHY_NOTS = st.none() | st.just(HPA)
CONSENTS = st.just("in-place") | st.sampled_from(["", "recommend", "yes"])


def requests_of(amounts: Sequence[tuple[int | None, int | None]]) -> Requests:
    return tuple(
        ContainerRequest(f"c{number}", cpu, None if mib is None else mib << 20)
        for number, (cpu, mib) in enumerate(amounts)
    )


@st.composite
def pods(draw: st.DrawFn) -> ResizablePod:
    """A pod, or one with lower requests than its own."""
    own, original = requests_of(draw(CONTAINERS)), None
    present = own
    if draw(st.booleans()):
        parts, original = draw(st.integers(0, 100)), own
        present = tuple(
            ContainerRequest(each.name, part(each.cpu_milli, parts), part(each.memory_bytes, parts))
            for each in own
        )
    pending = draw(st.just("") | st.sampled_from(["Deferred", "Infeasible"]))
    at = draw(st.sampled_from([0, NOON]))
    return ResizablePod(
        *("u", "team", "p", "n1", draw(CONSENTS), present, original, at),
        forbids=draw(WHY_NOTS),
        pending=pending,
    )


def part(amount: int | None, percent: int) -> int | None:
    return None if amount is None else amount * percent // 100


@given(pods(), KNOWNS, st.sampled_from(MODES))
def test_a_pod_that_never_consented_is_never_touched(
    pod: ResizablePod, known: KnownUse, mode: Mode
) -> None:
    bare = pod._replace(consent="", original=None)
    assert decision(bare, known, mode, NOON) is None

    if pod.original is None and (pod.consent != "in-place" or mode != "in-place" or pod.forbids):
        assert not isinstance(decision(pod, known, mode, NOON), ResizeOrdered)


@given(pods(), KNOWNS)
def test_an_order_is_never_above_the_own_request_nor_below_what_is_used(
    pod: ResizablePod, known: KnownUse
) -> None:
    order = decision(pod, known, "in-place", NOON)
    if not isinstance(order, ResizeOrdered):
        return
    own = totals(pod.own)
    for each, full in zip(order.after, pod.own, strict=True):
        assert (each.cpu_milli or 0) <= (full.cpu_milli or 0)
        assert (each.memory_bytes or 0) <= (full.memory_bytes or 0)
        assert (each.cpu_milli is None, each.memory_bytes is None) == (
            full.cpu_milli is None,
            full.memory_bytes is None,
        )
    if order.change == "lower":
        assert known.use
        mean = known.use.cpu_milli_s * 3 // (known.use.seconds * 2)
        cpu, memory = totals(order.after)
        assert cpu >= min(own[0], max(known.use.p95_milli, mean))
        peak = known.use.memory_peak_mib
        assert memory >= (own[1] if peak is None else min(own[1], (peak << 20) * 6 // 5))


@given(pods(), KNOWNS, st.sampled_from(MODES))
def test_an_order_is_computed_again_from_its_event_alone(
    pod: ResizablePod, known: KnownUse, mode: Mode
) -> None:
    order = decision(pod, known, mode, NOON)
    if isinstance(order, ResizeOrdered):
        assert recomputed(order) == order.after


@given(pods(), KNOWNS, st.sampled_from(MODES))
def test_where_the_consent_ends_the_own_requests_come_back_whole(
    pod: ResizablePod, known: KnownUse, mode: Mode
) -> None:
    if pod.original is None:
        return
    found = decision(pod._replace(consent=""), known, mode, NOON)

    if pod.present != pod.original:
        assert isinstance(found, ResizeOrdered)
        assert (found.change, found.after) == ("give-back", pod.original)
    elif pod.pending:
        assert isinstance(found, ResizeRefused)
    else:
        assert isinstance(found, GivenBack)


# --- examples ---------------------------------------------------------------------------------


def test_cores_follow_the_percentile_or_the_mean_and_memory_the_peak_by_parts() -> None:
    order = ordered(POD)

    assert totals(order.after) == (1200, 4915 * (1 << 20) + (1 << 20))  # 800 x 1.5, 4 GiB x 1.2
    assert [each.cpu_milli for each in order.after] == [900, 300]
    assert "4 -> 1.2 cores, 8 -> 4.801 GiB" in order.because


def test_requests_fall_once_a_day_and_rise_at_once() -> None:
    small = after(ordered(POD))
    less = KNOWN._replace(use=replace(USE, cpu_milli_s=0, p95_milli=100))
    more = KNOWN._replace(use=replace(USE, p95_milli=2000))

    assert decided(small) is None
    assert decided(small, less) is None  # it was lowered today
    assert ordered(small._replace(ordered_at=NOON - LOWERED_AGAIN_NS), less).change == "lower"
    raised = ordered(small, more)
    assert (raised.change, totals(raised.after)[0]) == ("raise", 2000)


def test_where_processes_wait_the_own_cores_come_back_and_the_memory_stays() -> None:
    small = after(ordered(POD))
    waiting = KNOWN._replace(wait_permille=51)
    order = ordered(small, waiting)

    assert (order.change, totals(order.after)) == ("raise", (4000, totals(small.present)[1]))
    assert "5.1 % of the time" in order.because
    assert decided(after(order)._replace(present=order.after, original=OWN), waiting) is None
    assert reason(POD, waiting) == "pressure"  # nothing is taken from a pod that waits


def test_a_recommendation_says_what_would_be_ordered_and_changes_nothing() -> None:
    for found in (decided(POD, mode="recommend"), decided(POD._replace(consent="recommend"))):
        assert isinstance(found, ResizeRefused)
        assert found.reason == "recommend"
        assert "4 -> 1.2 cores" in found.because
    assert decided(POD, mode="off") is None

    unlisted = decided(POD._replace(forbids=NOT_LISTED), mode="recommend")
    assert isinstance(unlisted, ResizeRefused)
    assert "autoscalers were not looked at: " in unlisted.because
    assert reason(POD._replace(forbids=NOT_LISTED)) == "autoscalers"


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (KnownUse(), "no-use"),
        (KNOWN._replace(use=replace(USE, history_s=9 * 86_400)), "little-known"),
        (KNOWN._replace(is_wait_metered=False), "no-pressure"),
        (KNOWN._replace(use=replace(USE, p95_milli=3900, memory_peak_mib=None)), "little"),
    ],
)
def test_a_pod_whose_use_allows_no_order_is_refused_with_the_reason(
    known: KnownUse, why: str
) -> None:
    assert reason(POD, known) == why
    assert decided(after(ordered(POD)), known._replace(use=None)) is None  # it keeps what it has


def test_the_first_look_does_not_know_who_waits_and_orders_nothing() -> None:
    assert decided(POD, KNOWN._replace(wait_permille=None)) is None


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (POD._replace(forbids=HPA), "hpa"),
        (POD._replace(consent="yes"), "label"),
    ],
)
def test_what_forbids_an_order_gives_back_what_was_ordered_before(
    pod: ResizablePod, why: str
) -> None:
    assert reason(pod) == why
    order = ordered(after(ordered(POD))._replace(forbids=pod.forbids, consent=pod.consent))

    assert (order.change, order.after) == ("give-back", OWN)


def test_a_kubelet_that_defers_is_named_and_gets_no_further_order() -> None:
    small = after(ordered(POD))
    more = KNOWN._replace(use=replace(USE, p95_milli=2000))

    assert reason(small._replace(pending="Deferred"), more) == "deferred"
    back = small._replace(present=OWN, consent="", pending="Deferred")
    assert reason(back) == "deferred"
    assert isinstance(decided(back._replace(pending="")), GivenBack)


def test_own_requests_that_cannot_be_read_are_named_and_nothing_is_written() -> None:
    unreadable = WhyNot("unreadable", "its annotation cannot be read")

    for consent in ("", "in-place"):
        assert reason(POD._replace(consent=consent, forbids=unreadable)) == "unreadable"
