"""What was refused once is refused again without a thought, for as long as it would be anyway."""

import gc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import plain
from course import NODES, Course, Step, firsts, steps
from gpu_kit import a_card, a_claim, twin_columns_of, wanting
from joulie_bus.events import PodAsk
from joulie_bus.testing import NOON, SECOND, ask
from joulie_extender.candidates import Names
from joulie_extender.contract import Asked, Reader
from joulie_extender.moment import Moment
from joulie_extender.rejections import REJECTIONS, Ground, Rejection, Rejections
from joulie_extender.standing import Weights
from joulie_extender.verbs import Answer, Filter
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns

NAMES = Names.of(["n0", "n1"])
FAST = ask("p", performance=True)
SAVING = replace(ask("e"), placement="eco-only")
ECO, PERFORMANCE = (NodeState(ordinal=at, at=NOON, profile=p) for at, p in enumerate(["eco", ""]))


def twin_columns_with(*nodes: NodeState) -> TwinColumns:
    return TwinColumns.of({f"n{node.ordinal}": node for node in nodes}, 0)


BOARD = twin_columns_with(ECO, PERFORMANCE)


class Asking:
    """A filter that remembers, of a cluster that moves on."""

    def __init__(self, twin_columns: TwinColumns = BOARD, weights: Weights = Weights()) -> None:  # noqa: B008
        self._filter = Filter(Reader(), "all")
        self._weights = weights
        self.moment = Moment(twin_columns, 1, 0, NOON)

    def at(
        self, twin_columns: TwinColumns | None = None, *, now: int = NOON, age_ms: int = 0
    ) -> "Asking":
        self.moment = Moment(twin_columns or self.moment.twin_columns, 1, age_ms, now)
        return self

    def answer(self, pod: PodAsk = FAST, names: Names = NAMES) -> Answer:
        asked = Asked(pod, names)
        answer = self._filter.answer(asked, self.moment, self._weights)
        self._filter.remember(asked, self.moment, self._weights, answer)
        return answer

    def is_remembered(self, pod: PodAsk = FAST, names: Names = NAMES) -> bool:
        return self.answer(pod, names).is_remembered


# --- the law ----------------------------------------------------------------------------------

PODS = [
    FAST,
    ask("q", performance=True),
    SAVING,
    replace(FAST, uid="d", exempt="daemonset"),
    ask("s"),
]
LISTS = [Names.of([f"n{at}" for at in range(0, NODES, step)] + ["ghost"]) for step in (1, 5)]


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(
    firsts,
    st.lists(st.tuples(steps, st.sampled_from(PODS), st.sampled_from(LISTS)), max_size=8),
    plain.any_weights,
)
def test_whoever_remembers_answers_as_one_who_has_never_been_asked(
    first: list[NodeState], course: list[tuple[Step, PodAsk, Names]], weights: Weights
) -> None:
    at, asking = Course.of(first), Asking(weights=weights)
    for step, pod, names in course:
        at = at.after(step)
        asking.at(at.twin_columns, now=at.now, age_ms=step.age_ms)
        found = asking.answer(pod, names)
        afresh = Asking(weights=weights).at(at.twin_columns, now=at.now, age_ms=step.age_ms)
        expected = afresh.answer(pod, Names.of(list(names)))

        assert (found.decision, found.reply) == (expected.decision, expected.reply)
        assert list(found.let_through or ()) == list(expected.let_through or ())


# --- what it rests on -------------------------------------------------------------------------


def test_a_reading_leaves_a_rejection_as_it_was() -> None:
    asking, now = Asking(), NOON + SECOND
    first = asking.answer()
    read = BOARD.with_readings([replace(ECO, at=now, samples=(Sample(now, 300_000),))])

    again = asking.at(read, now=now).answer()
    assert (again.is_remembered, again.reply) == (True, first.reply)
    assert again.decision.basis.now == now


def test_what_is_told_of_a_candidate_that_was_out_of_date_counts() -> None:
    old = replace(PERFORMANCE, at=NOON - 301 * SECOND, profile="eco")
    twin_columns = twin_columns_with(ECO, old)
    asking = Asking(twin_columns)
    asking.answer()

    assert asking.is_remembered()
    heard = twin_columns.with_readings([replace(old, at=NOON)])
    assert not asking.at(heard).is_remembered()


@pytest.mark.parametrize(
    "board",
    [
        BOARD.updated([("n0", replace(ECO, profile="performance"))], 0),
        BOARD.updated([("n1", replace(PERFORMANCE, labels={plain.LABEL: "eco"}))], 0),
        BOARD.updated([("n2", replace(PERFORMANCE, ordinal=2))], 0),
    ],
    ids=["another profile", "another label", "another node"],
)
def test_what_it_rests_on_has_changed(twin_columns: TwinColumns) -> None:
    asking = Asking()
    asking.answer()

    assert not asking.at(twin_columns).is_remembered()


def test_a_node_that_came_back_is_no_stranger() -> None:
    old = NodeState(ordinal=1, at=NOON - 301 * SECOND)
    both = twin_columns_with(ECO, old)
    one = both.updated([("n1", None)], 0)
    asking = Asking(one, Weights(filter_stale="closed"))
    asking.answer()
    back = one.updated([("n1", old)], 0)
    assert back.columns["node_class"] is one.columns["node_class"]

    assert not asking.at(back).is_remembered()


@pytest.mark.parametrize("other", [PODS[-1], replace(SAVING, exempt="daemonset")], ids=str)
def test_a_pod_of_another_kind_is_thought_about(other: PodAsk) -> None:
    asking = Asking(twin_columns_with(replace(ECO, draining=True)))
    asking.answer(SAVING)

    assert asking.is_remembered(replace(SAVING, uid="another"))
    assert not asking.is_remembered(other)


@pytest.mark.parametrize(
    ("later_s", "age_ms", "is_remembered"),
    [(0, 0, True), (299, 0, True), (301, 0, False), (0, 300_001, False)],
)
def test_it_ends_when_a_twin_or_the_view_is_too_old(
    later_s: int, age_ms: int, is_remembered: bool
) -> None:
    asking = Asking()
    asking.answer()

    asking.at(now=NOON + later_s * SECOND, age_ms=age_ms)
    assert asking.is_remembered() == is_remembered


def test_what_an_old_view_says_does_not_count_when_it_is_young_again() -> None:
    asking = Asking(twin_columns_with(replace(ECO, labels={plain.LABEL: "eco"})))
    asking.at(age_ms=300_001).answer()

    assert asking.is_remembered()
    assert not asking.at().is_remembered()


def test_a_card_that_is_claimed_changes_what_a_pod_of_cards_is_told() -> None:
    pod, names = wanting("g", vram_mb=1), Names.of(["n0", "n1"])
    free = twin_columns_of({"a": a_card("n0")})
    asking = Asking(free)
    asking.answer(pod, names)

    assert asking.is_remembered(pod, names)
    assert not asking.is_remembered(replace(pod, uid="h"), names)  # it may hold some of them
    taken = free.with_cards(Cards.of({"a": a_card("n0", claims={"x": a_claim()})}, free.rows))
    assert not asking.at(taken).is_remembered(pod, names)


# --- how much ---------------------------------------------------------------------------------


def rejection(twin_columns: TwinColumns = BOARD, names: Names = NAMES) -> Rejection:
    ground = Ground.under(FAST, names, Moment(twin_columns, 1, 0, NOON), Weights())
    return Rejection(ground, b"\x01" * len(names), "because", b"{}", names)


def found(kept: Rejections, twin_columns: TwinColumns, names: Names = NAMES) -> Rejection | None:
    return kept.find(FAST, names, Moment(twin_columns, 7, 0, NOON), Weights())


def test_nothing_is_kept_of_a_twin_columns_that_is_no_more() -> None:
    kept, old, new = Rejections(), twin_columns_with(ECO), twin_columns_with(ECO, PERFORMANCE)
    kept.keep(FAST, NAMES, rejection(old))
    seen = weakref.ref(old.columns["node_class"])
    kept.keep(ask("q"), NAMES, rejection(new))
    del old
    gc.collect()

    assert seen() is None
    assert len(kept) == 1


def test_so_many_are_remembered_and_the_oldest_goes_first() -> None:
    kept, lists = Rejections(), [Names.of(["n0"]) for _ in range(REJECTIONS + 1)]
    for names in lists:
        kept.keep(FAST, names, rejection(names=names))

    assert len(kept) == REJECTIONS
    assert found(kept, BOARD, lists[0]) is None
    assert found(kept, BOARD, lists[1]) is not None


def test_long_lists_leave_room_for_fewer() -> None:
    kept = Rejections(limit=20_000)
    lists = [Names.of([f"n{number}" for number in range(20)]) for _ in range(4)]  # 6,400 bytes
    for names in [lists[0], *lists]:
        kept.keep(FAST, names, rejection(names=names))

    assert len(kept) == 3


def test_what_is_larger_than_all_room_is_not_remembered() -> None:
    kept = Rejections(limit=100)
    kept.keep(FAST, NAMES, rejection())

    assert len(kept) == 0
