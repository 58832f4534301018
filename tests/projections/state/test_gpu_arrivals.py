"""The counts of what pods ask of GPUs: bounded integers that the same pods always give."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import ask, records
from joulie_bus.events import Fact, GpuAsk, PodAsk, PodBound, PodGone, PodPending
from joulie_projections.fold.sequence import fold
from joulie_projections.state.gpu_arrivals import (
    MOST_SHAPES,
    MOST_SIZES,
    PRIOR,
    PRIOR_DEMAND,
    GpuArrivals,
    GpuShape,
    renewed,
    shape_of,
    with_pod,
)
from joulie_projections.state.rows import (
    VIEWED,
    Row,
    changed_rows,
    cluster_state_of,
    decode,
    empty_digests,
    encode,
    tables_of,
)
from joulie_projections.state.state import GPU_ARRIVALS, GPU_DEMAND, ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.rows_held import HeldRows

WHOLE = GpuShape(8000, 1, 1000)
RENEWALS = [64, 128, 256, 512, 1024, 1536]
PRICES = [256, 1024, 4096, 8192]


def asking(uid: str, *, cards: int = 1, cores: float = 8, **gpu: object) -> PodAsk:
    asked = GpuAsk(**gpu)  # type: ignore[arg-type]
    milli = cards * 1000 or asked.share_milli
    return replace(ask(uid, cores=cores), gpu_milli=milli, gpu_cards=cards, gpu=asked)


def counted(*shapes: GpuShape, into: GpuArrivals = PRIOR) -> GpuArrivals:
    for shape in shapes:
        into = with_pod(into, shape, "")
    return into


def folded(facts: list[Fact], *cuts: int) -> ClusterState:
    """The facts in one draft, or in one for each part."""
    cluster_state, log = ClusterState(), records(*facts)
    for begin, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        draft = Draft(cluster_state)
        fold(draft, log[begin:end], begin)
        draft.commit()
    return cluster_state


def gpu_rows(cluster_state: ClusterState) -> dict[str, bytes]:
    return {
        key: encode(row)
        for key, row in cluster_state.cluster.items()
        if key in (GPU_ARRIVALS, GPU_DEMAND)
    }


def pods_counted(cluster_state: ClusterState) -> int:
    row = cluster_state.cluster.get(GPU_ARRIVALS)
    return row.gpu_arrivals.pods if row and row.gpu_arrivals else 0


# --- one pod ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "shape"),
    [
        (asking("whole", cards=2), GpuShape(8000, 2, 1000)),
        (asking("share", cards=0, share_milli=250), GpuShape(8000, 1, 250)),
        (asking("memory", cards=0, vram_mb=9000), GpuShape(8000, 1, 0, 9000)),
        (asking("large", cards=1, vram_mb=9000), GpuShape(8000, 1, 1000)),
        (asking("cores", cores=500), GpuShape(128_000, 1, 1000)),
        (replace(ask("slice"), gpu_milli=250), GpuShape(1000, 1, 250)),
        (asking("model", cards=0, model="A100"), GpuShape(8000, 1, 1000)),
        (ask("none"), None),
        (asking("wrong", cards=0, unreadable="joulie.io/gpu-share"), None),
    ],
    ids=lambda each: each.uid if isinstance(each, PodAsk) else "",
)
def test_the_shape_of_a_pod_is_what_it_takes_of_its_cards(
    pod: PodAsk, shape: GpuShape | None
) -> None:
    assert shape_of(pod) == shape
    assert shape is None or GpuShape.of_key(shape.key) == shape


# --- counting -----------------------------------------------------------------------------------


def test_a_pod_is_counted_once_however_often_it_is_seen() -> None:
    pod = asking("a")
    waits, runs = PodPending(pod=pod), PodBound(pod=pod, node="n1")

    assert pods_counted(folded([waits, waits, runs, waits, runs])) == 1
    assert pods_counted(folded([runs, waits])) == 1
    assert pods_counted(folded([waits, PodGone(uid="a")])) == 1


def test_pods_without_gpus_and_pods_of_daemon_sets_are_not_counted() -> None:
    daemon = replace(asking("d"), exempt="daemonset")
    cluster_state = folded([PodPending(pod=ask("a")), PodBound(pod=daemon, node="n1")])

    assert gpu_rows(cluster_state) == {}
    assert cluster_state.gpu_demand is PRIOR_DEMAND


@given(st.randoms(use_true_random=False))
def test_counts_do_not_depend_on_the_order_of_arrival(draw: random.Random) -> None:
    shapes = [GpuShape(1000 * at, 1, 1000) for at in range(20)]
    shuffled = draw.sample(shapes, len(shapes))

    assert encode(counted(*shuffled)) == encode(counted(*shapes))  # type: ignore[arg-type]


def test_counts_stay_bounded_and_keep_the_shapes_of_many_gpus() -> None:
    large, arrivals = GpuShape(64_000, 8, 1000), PRIOR
    arrivals = counted(large)
    for milli in range(1000):
        arrivals = with_pod(arrivals, GpuShape(milli, 1, milli % 1000, milli), f"M{milli}")

    assert len(arrivals.shapes) == MOST_SHAPES
    assert len(arrivals.models) == MOST_SHAPES
    assert len(arrivals.sizes) == MOST_SIZES
    assert large.key in arrivals.shapes
    assert arrivals.milli > 1024 * 499_000  # of all pods


def test_what_scores_use_is_renewed_at_fixed_numbers_of_pods() -> None:
    arrivals, demand, at, priced = PRIOR, PRIOR_DEMAND, [], []
    for pods in range(1, 8193):
        arrivals = counted(WHOLE, into=arrivals)
        if found := renewed(arrivals, demand):
            at.append(pods)
            priced += [pods] if found[1].priced is not demand.priced else []
            arrivals, demand = found

    assert at[: len(RENEWALS)] == RENEWALS
    assert {later - sooner for sooner, later in pairwise(at[3:])} == {512}
    assert priced == PRICES


def test_old_pods_count_less_and_shapes_that_no_pod_asks_for_any_more_fade() -> None:
    old, arrivals, demand = GpuShape(1000, 1, 300), PRIOR, PRIOR_DEMAND
    for pods in range(512 * 200):
        arrivals = counted(old if pods < 512 else WHOLE, into=arrivals)
        arrivals, demand = renewed(arrivals, demand) or (arrivals, demand)

    assert set(demand.arrivals.shapes) == {WHOLE.key}
    assert demand.arrivals.shapes[WHOLE.key] < 2**31


# --- laws ---------------------------------------------------------------------------------------

MIXED = [
    PodPending(
        pod=asking(
            f"u{at}", cards=at % 3, cores=at % 7, share_milli=0 if at % 3 else 100 + 50 * (at % 5)
        )
    )
    for at in range(300)
]


@given(st.lists(st.integers(0, len(MIXED)), max_size=3).map(sorted))
def test_a_log_that_is_cut_anywhere_gives_the_same_counts(cuts: list[int]) -> None:
    assert gpu_rows(folded(list(MIXED), *cuts)) == WHOLE_LOG


def test_the_same_log_gives_the_same_counts() -> None:
    assert gpu_rows(folded(list(MIXED))) == WHOLE_LOG
    assert pods_counted(folded(list(MIXED))) == 300


def test_a_state_that_is_restored_from_its_rows_continues_with_the_same_counts() -> None:
    first = folded(list(MIXED[:200]))
    rows = (
        Row(table, key, encode(state))
        for table, held in tables_of(first).items()
        for key, state in held.items()
    )
    restored, log = cluster_state_of(rows), records(*MIXED)
    draft = Draft(restored)
    fold(draft, log[200:], 200)
    draft.commit()

    assert gpu_rows(restored) == WHOLE_LOG
    for key, body in WHOLE_LOG.items():
        assert encode(decode("cluster", body)) == body, key


def test_a_view_of_the_rows_scores_by_the_demand_of_the_fold_at_every_position() -> None:
    state, held, log = ClusterState(), HeldRows(), records(*MIXED[:130])
    digests, renewals = empty_digests(), 0
    for position, record in enumerate(log, 1):
        draft = Draft(state)
        fold(draft, [record], position - 1)
        rows, digests = changed_rows(draft.changed(), digests)
        draft.commit()
        before = held.twin_columns().gpu_demand
        held.put([row for row in rows if row.table in VIEWED], position)
        now = held.twin_columns().gpu_demand
        renewals += now != before

        assert now == TwinColumns.of_state(state).gpu_demand
        assert (now is before) == (now == before)  # tables are computed again only when it changes

    assert renewals == 2


WHOLE_LOG = gpu_rows(folded(list(MIXED)))
