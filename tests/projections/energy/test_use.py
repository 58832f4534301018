"""The use of workloads: buckets, sums whose order does not count, and days in the table."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import records
from bus_kit.clock import NOON
from bus_kit.pods import ask
from joulie_bus.errors import LedgerDamaged
from joulie_bus.events import AnyEvent, PodBound, PodFinished, PodGone, PodsUsed, PodUse
from joulie_bus.events.bounds import MOST_CPU_MILLI
from joulie_projections.energy import use
from joulie_projections.energy.intervals import DAY_MS
from joulie_projections.energy.right_size import lowered, recommended
from joulie_projections.energy.saved import LedgerState, digest_of
from joulie_projections.energy.saved import unpacked as unpacked_state
from joulie_projections.energy.use import (
    Histogram,
    Uses,
    WorkloadUse,
    bucket_of,
    encoded,
    highest_in,
)
from joulie_projections.pods.workload_name import workload_of
from joulie_projections.store.energy_table import EnergyTable

NOON_MS = NOON // 1_000_000
PODS = ("web-7d4b9c6f5d-x2v4k", "web-7d4b9c6f5d-zz9qp", "db-0")


def bound_as(name: str, node: str = "n1") -> PodBound:
    return PodBound(pod=replace(ask(name), name=name), node=node)


def used(*lines: PodUse, node: str = "n1") -> PodsUsed:
    return PodsUsed(node=node, source="cgroup-v2", pods=lines)


def line(pod: str, cpu_milli: int, mib: int | None = 100, seconds: int = 60) -> PodUse:
    return PodUse(pod.encode(), seconds, cpu_milli, mib, mib)


def state_of(*facts: AnyEvent, step_s: float = 60) -> LedgerState:
    state = LedgerState()
    state.fold(records(*facts, step_s=step_s), ())
    return state


@given(st.integers(0, MOST_CPU_MILLI), st.integers(0, MOST_CPU_MILLI))
def test_a_bucket_is_a_sixteenth_wide_at_most_and_keeps_the_order(one: int, other: int) -> None:
    bucket = bucket_of(one)
    assert one <= highest_in(bucket) <= one * 17 // 16 + 1
    assert bucket_of(highest_in(bucket)) == bucket != bucket_of(highest_in(bucket) + 1)
    assert (one <= other) <= (bucket <= bucket_of(other))


def test_percentiles_of_known_data_are_the_ends_of_their_buckets() -> None:
    known = Histogram()
    for value in range(1, 101):
        known.add(value, 60)

    assert [known.percentile(each) for each in (1, 50, 95, 100)] == [1, 51, 95, 103]
    assert known.share_above(95) == pytest.approx(0.05, abs=0.011)
    assert (Histogram().percentile(95), Histogram().share_above(0)) == (0, 0.0)


LINES = st.builds(
    PodUse,
    st.sampled_from([name.encode() for name in PODS]),
    st.integers(1, 3600),
    st.integers(0, 10**6),
    st.none() | st.integers(0, 10**6),
    st.none() | st.integers(0, 10**6),
    *[st.none() | st.integers(0, 1000)] * 3,
)
AT = st.integers(0, 3600)


def folded(lines: Sequence[tuple[int, PodUse]]) -> bytes:
    """In hours of one day."""
    uses = Uses()
    pods = state_of(*map(bound_as, PODS)).ledger.pods
    for at_s, each in lines:
        uses.fold(used(each), NOON_MS + at_s * 1000, pods)
    return encoded(uses.running())


@given(st.lists(st.tuples(AT, LINES)), st.randoms())
def test_the_order_of_the_facts_of_a_day_does_not_count(
    lines: list[tuple[int, PodUse]], chance: object
) -> None:
    shuffled = list(lines)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert folded(shuffled) == folded(lines)


@given(st.lists(st.tuples(AT, LINES)), st.integers(0, 20))
def test_parts_that_were_folded_apart_add_up_to_the_whole(
    lines: list[tuple[int, PodUse]], cut: int
) -> None:
    parts = [use.decoded(folded(part)) for part in (lines[:cut], lines[cut:])]
    assert encoded(use.summed(parts)) == folded(lines)


@given(st.lists(LINES, max_size=20), st.integers(1, 25))
def test_a_ledger_that_was_cut_and_continued_has_the_same_bytes(
    lines: list[PodUse], cut: int
) -> None:
    facts: list[AnyEvent] = [*map(bound_as, PODS), *map(used, lines)]
    whole, begun = LedgerState(), LedgerState()
    stored = records(*facts, step_s=3600)
    whole.fold(stored, ())
    begun.fold(stored[:cut], ())
    closed = begun.take_closed_uses()
    body = begun.packed()
    continued = unpacked_state(body, digest_of(body))
    continued.fold(stored[cut:], ())

    assert continued.packed() == whole.packed()
    both = [*closed, *continued.take_closed_uses()]
    assert [(day.start_ms, encoded(day.workloads)) for day in both] == [
        (day.start_ms, encoded(day.workloads)) for day in whole.take_closed_uses()
    ]


def test_a_message_that_was_sent_twice_counts_once() -> None:
    state = LedgerState()
    stored = records(bound_as("db-0"), used(line("db-0", 500)))
    state.fold([*stored, stored[-1]], ())

    assert [each.seconds for each in state.ledger.uses.running()] == [60]


def test_pods_of_a_workload_are_counted_together_and_those_of_other_nodes_not() -> None:
    facts = [bound_as(PODS[0]), bound_as(PODS[1]), bound_as("db-0", "n2")]
    hostile = used(line("db-0", 999), line("unknown", 999), PodUse(b"\xff\xfe", 60, 9))
    state = state_of(*facts, used(line(PODS[0], 100), line(PODS[1], 300)), hostile)

    [web] = state.ledger.uses.running()
    assert (web.namespace, web.name, web.seconds) == ("team", "web", 120)
    assert (web.cpu_milli_s, web.cpu_peak_milli, web.memory_peak_mib) == (24_000, 300, 100)
    assert web.cpu_waits.share is None  # nothing counted them


def test_a_pod_that_has_just_ended_still_counts() -> None:
    facts: list[AnyEvent] = [bound_as("db-0"), PodFinished(uid="db-0"), PodGone(uid="db-0")]
    state = state_of(*facts, used(line("db-0", 100)))
    assert len(state.ledger.uses.running()) == 1


def test_days_are_kept_for_two_weeks_and_the_running_one_is_read_too() -> None:
    with EnergyTable.in_memory() as table:
        state = LedgerState()
        for day in range(20):
            before = state.position
            stored = records(bound_as("db-0"), used(line("db-0", day)), boot=f"b{day}")
            moved = [each._replace(at=each.at + day * DAY_MS * 1_000_000) for each in stored]
            state.fold(moved, ())
            table.save(before, state)

        [found] = table.uses(NOON_MS + (19 - 14) * DAY_MS).workloads
        [whole] = table.uses(0).workloads

    assert (found.seconds, found.cpu_peak_milli) == (15 * 60, 19)
    assert whole.seconds == 16 * 60  # the newest closed day is the 19th, and 14 before it are kept
    assert found.first_ms // DAY_MS == NOON_MS // DAY_MS + 5


def test_bytes_that_are_no_use_are_damage() -> None:
    with pytest.raises(LedgerDamaged):
        use.unpacked(b"x")
    with pytest.raises(LedgerDamaged):
        use.decoded(b"\x93")


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("web-7d4b9c6f5d-x2v4k", "web"),
        ("web-frontend-7d4b9c6f5d-x2v4k", "web-frontend"),
        ("node-exporter-x2v4k", "node-exporter"),
        ("db-11", "db"),
        ("backup-28912345-x2v4k", "backup"),
        ("train-3-x2v4k", "train"),
        ("my-nginx", "my-nginx"),
        ("alone", "alone"),
        ("-0", "-0"),
    ],
)
def test_the_name_of_a_workload_has_no_generated_suffix(pod: str, workload: str) -> None:
    assert workload_of(pod) == workload


def of_minutes(*cpu_milli: int, mib: int | None = 100, hours: int = 48) -> WorkloadUse:
    found = WorkloadUse("team", "web")
    for place, value in enumerate(cpu_milli):
        at_ms = NOON_MS + place * hours * 3_600_000 // max(1, len(cpu_milli) - 1)
        found.add(line("x", value, mib), at_ms)
    return found


def test_the_recommendation_is_the_larger_of_p95_and_half_more_than_the_mean() -> None:
    steady = recommended(of_minutes(*[1000] * 100), 24)
    bursts = recommended(of_minutes(*[100] * 90, *[3000] * 10), 24)

    assert (steady.cpu_milli, steady.memory_mib) == (1500, 120)
    assert bursts.cpu_milli == 3000  # not the end of its bucket: the peak is known


def test_memory_without_a_reading_has_no_recommendation() -> None:
    assert recommended(of_minutes(*[1000] * 100, mib=None), 24).memory_mib is None


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (of_minutes(*[5] * 59), "59 of the 60 minutes"),
        (of_minutes(*[5] * 100, hours=23), "23.0 of the 24 hours"),
    ],
)
def test_a_workload_with_too_little_history_has_none(known: WorkloadUse, why: str) -> None:
    found = recommended(known, 24)
    assert (found.cpu_milli, found.memory_mib) == (None, None)
    assert why in found.why_not


def test_a_request_is_never_raised() -> None:
    assert (lowered(500, 1500), lowered(500, 100), lowered(0, 100), lowered(500, None)) == (
        500,
        100,
        0,
        500,
    )
