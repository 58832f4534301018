"""Random histories of facts about energy, and their folds."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hypothesis import strategies as st

from bus_kit import ask, hardware, node_seen, power, records
from bus_kit.clock import NOON
from bus_kit.grid import intensity, price
from bus_kit.pods import bound
from joulie_bus.events import (
    Fact,
    GpuGone,
    GpuSeen,
    NodeGone,
    NodeSeen,
    PodBound,
    PodFinished,
    PodGone,
    PodsUsed,
    PodUse,
    SleepOrdered,
    TelemetrySampled,
    WakeOrdered,
    packed_uid,
)
from joulie_bus.streams.records import Record
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.ledger import ZONE_LABEL, Ledger
from joulie_projections.energy.saved import LedgerState, digest_of, unpacked

J = 1_000_000  # microjoules
Timed = tuple[float, Fact]  # seconds after noon


def folded(*facts: Timed) -> list[Interval]:
    ledger = Ledger()
    ledger.fold((fact, NOON + round(at * 1e9)) for at, fact in facts)
    ledger.end()
    return ledger.closed


NODES, UIDS = st.sampled_from(["n1", "n2", "n3"]), st.sampled_from(["a", "b", "c", "d"])
ZONES = st.sampled_from(["*", "a", "b"])
CORES = st.integers(0, 40)  # of a pod that is resized if it runs there already


def placed(node: str, zone: str) -> NodeSeen:
    return NodeSeen(node=node, uid=node, labels={ZONE_LABEL: zone}, cpu_milli=96_000)


def usable(node: str, *, ready: bool) -> NodeSeen:
    return NodeSeen(node=node, uid=node, ready=ready, cpu_milli=96_000)


FACTS = st.one_of(
    st.builds(
        TelemetrySampled,
        node=NODES,
        power_mw=st.integers(0, 3_000_000) | st.just(10**12),
        source=st.sampled_from(["kepler", "utilization"]),
    ),
    st.builds(power, NODES, st.integers(0, 1500)),
    st.builds(power, NODES, st.integers(0, 1500)),
    st.builds(
        lambda uid, node, fast: bound(uid, node, performance=fast), UIDS, NODES, st.booleans()
    ),
    st.builds(lambda uid, node, cores: bound(uid, node, cores=cores), UIDS, NODES, CORES),
    st.builds(
        lambda node, uid, milli: PodsUsed(
            node=node, source="cgroup-v2", pods=(PodUse(packed_uid(uid), 60, milli, milli),)
        ),
        NODES,
        UIDS,
        st.integers(0, 10**6),
    ),
    st.builds(PodFinished, uid=UIDS),
    st.builds(PodGone, uid=UIDS),
    st.builds(node_seen, NODES),
    st.builds(hardware, NODES),
    st.builds(NodeGone, node=NODES),
    st.builds(SleepOrdered, plan=st.sampled_from(["p", "q"]), node=NODES),
    st.builds(WakeOrdered, plan=st.sampled_from(["p", "q"]), node=NODES),
    st.builds(lambda node, ready: usable(node, ready=ready), NODES, st.booleans()),
    st.builds(lambda cents: price(cents / 100), st.integers(-10, 40)),
    st.builds(lambda grams, zone: intensity(grams, zone=zone), st.integers(0, 900), ZONES),
    st.builds(lambda node, zone: placed(node, zone), NODES, ZONES),
)
UUIDS = st.sampled_from(["a", "b", "c"])


def reading(node: str, watts: int, cards: Mapping[str, int]) -> TelemetrySampled:
    return TelemetrySampled(node=node, power_mw=watts, card_mw=dict(cards))


def counted(node: str, watts: int, began: int, joules: int, late_s: int) -> TelemetrySampled:
    return TelemetrySampled(
        node=node,
        power_mw=watts * 1000,
        mean_mw=watts * 900 if joules % 2 else None,
        counted_from=began,
        energy_uj=joules * J,
        card_mw={"a": watts * 100, "b": 7},
        card_uj=(joules * J // 2, 5) if joules % 3 else (),
        late_ms=late_s * 1000,
    )


CARD_FACTS = st.one_of(
    FACTS,
    st.builds(
        counted,
        NODES,
        st.integers(0, 3000),
        st.sampled_from([0, 1, 1, 2]),
        st.integers(0, 40).map(lambda tens: tens * 500) | st.integers(0, 10**12),
        st.sampled_from([0, 0, 0, 5, 400]),
    ),
    st.builds(
        reading,
        NODES,
        st.integers(0, 3_000_000),
        st.dictionaries(UUIDS, st.integers(0, 1_000_000) | st.just(10**12)),
    ),
    st.builds(power, NODES, st.integers(0, 1500)),
    st.builds(
        lambda uuid, node, uid: GpuSeen(uuid=uuid, node=node, model="m", total_mb=1, owner=uid),
        UUIDS,
        NODES,
        st.sampled_from(["", "a", "b", "c"]),
    ),
    st.builds(GpuGone, uuid=UUIDS),
    st.builds(
        lambda uid, node: PodBound(pod=ask(uid, gpus=1), node=node),
        st.sampled_from(["a", "b", "c"]),
        NODES,
    ),
    st.builds(lambda node: hardware(node, gpus=2), NODES),
)
# Mostly readings in time; sometimes a gap, a long outage, or a clock that runs back.
STEPS_S = st.sampled_from([0, 0, 1, 5, 5, 5, 10, 10, 29.9995, 61, 400, 5000, -3])


@st.composite
def histories_of(
    draw: st.DrawFn, facts_of: st.SearchStrategy[Fact], steps_s: st.SearchStrategy[float]
) -> list[Record]:
    """Records in the order of the log, with repeats of some of them.

    From some event on their producers have restarted, and number from 1 again; what they sent
    before may come later. Meters count joules and wrap around; what the log holds is their power.
    """
    events = draw(st.lists(st.tuples(facts_of, steps_s), min_size=2, max_size=60))
    restart, at = draw(st.integers(0, len(events))), NOON
    facts = [fact for fact, _ in events]
    stamped = [*records(*facts[:restart]), *records(*facts[restart:], boot="b2")]
    for late in draw(st.lists(st.integers(0, len(stamped) - 1), max_size=3)):
        stamped.insert(draw(st.integers(late, len(stamped) - 1)), stamped.pop(late))
    found: list[Record] = []
    for record, (_, step_s) in zip(stamped, events, strict=True):
        at += round(step_s * 1e9)
        found.append(record._replace(at=at))
        if draw(st.integers(0, 9)) == 0:
            found.append(draw(st.sampled_from(found))._replace(at=at))
    return found


def ledger_of(history: Sequence[Record], cuts: Sequence[int] = ()) -> tuple[list[Interval], bytes]:
    """The intervals and the state; at each cut the process ends and another one continues."""
    state, closed = LedgerState(), list[Interval]()
    for first, last in pairwise([0, *sorted(cuts), len(history)]):
        state.fold(history[first:last], ())
        closed += state.take_closed()
        body = state.packed()
        state = unpacked(body, digest_of(body))
    return closed, state.packed()
