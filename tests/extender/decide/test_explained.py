"""One explanation of an entry, in the words that every renderer shows."""

from typing import Any

import pytest
from msgspec.structs import replace

from bus_kit import one_of_each
from joulie_bus.events import (
    AnyEvent,
    DecisionEntry,
    FilterDecided,
)
from joulie_extender.catalogue.rules import RULES, few_words_of, sentence_of
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.entry_verbs import VERBS
from joulie_extender.decide.explained import (
    RefusedNodes,
    ages_text,
    behind_ms,
    duration,
    explained,
    refusals,
    view_age_ms,
    view_text,
)
from joulie_extender.gpu.expected_loss import UNUSABLE
from joulie_extender.gpu.fit import GpuVerdict
from joulie_extender.rules.eco import ECO
from joulie_extender.rules.rule import PASSED
from joulie_projections.state.completeness import NEVER_MS
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowName, RowNames

EXAMPLES = {e.TYPE: e for e in one_of_each() if isinstance(e, DecisionEntry)}
LINES = {
    "decision.settings-declared": "settings s1 of 0.1.0",
    "decision.filter": "1 of 2 nodes pass: eco",
    "decision.prioritize": "n1 scores 41.2 of 100",
    "decision.preempt": "1 of 2 nodes are worth clearing",
    "decision.fallback": "fallback (overdue): all of 2 nodes pass",
    "decision.dropped": "3 decisions dropped: No space left on device",
    "decision.promise-key": "a replica started: the key of its promises",
    "decision.promise": "signed up to extender-0:b1:7 by its replica",
    "decision.bind": "not bound to n1, lost-race: another replica was first",
    "decision.outcome": "runs on n1, ranked 2, 9 points behind the best",
    "decision.set-back": "a failover, or an older copy: nothing is lost up to position 4711",
}


def test_every_kind_of_entry_is_explained_in_a_line() -> None:
    assert {kind: explained(event).line for kind, event in EXAMPLES.items()} == LINES
    assert {explained(event).verb for event in EXAMPLES.values()} == set(VERBS.values())


def test_what_is_no_entry_is_unreadable() -> None:
    node: AnyEvent = one_of_each()[0]

    assert explained(None).verb == "unreadable"
    assert explained(node).text == f"{node.TYPE} is not an entry of the decision log"


def test_every_verdict_has_a_reason_of_its_own() -> None:
    codes = {PASSED, *(verdict for rule in RULES for verdict, _ in rule.advice)}

    for words in (few_words_of, sentence_of):
        assert len({words(code) for code in codes}) == len(codes)
        assert not any("code" in words(code) for code in codes)
        assert words(99) == "refused with code 99"


def filtered(verdicts: bytes) -> FilterDecided:
    event = EXAMPLES["decision.filter"]
    assert isinstance(event, FilterDecided)
    ordinals = b"".join(at.to_bytes(4, "little") for at in range(len(verdicts)))
    candidates = replace(event.candidates, ordinals=ordinals, strangers=[])
    return replace(event, verdicts=verdicts, candidates=candidates)


def test_refusals_for_cards_and_for_energy_are_named_together() -> None:
    event = filtered(bytes([0, ECO, GpuVerdict.NO_CARDS, ECO]))

    view = event.basis.view
    names = RowNames(1, view, [RowName(1, row, name) for row, name in enumerate("abc")])

    assert refusals(event, names) == [
        RefusedNodes("eco", ["b", "node #3 (name unknown)"]),
        RefusedNodes("no cards", ["c"]),
    ]
    found = explained(event)
    assert (found.asked, found.passed, found.refused) == (4, 1, 3)
    assert found.refused_by == {"eco": 2, "no cards": 1}


def test_an_answer_without_a_view_says_so() -> None:
    event = filtered(bytes([0, ECO]))
    basis = replace(event.basis, view=0, view_age_ms=10**12)
    blind = replace(event, basis=basis)

    assert explained(event).line == "1 of 2 nodes pass: eco"
    assert explained(blind).line == "1 of 2 nodes pass, without a view of the cluster: eco"
    assert view_text(event.basis) == "position 7, projector seen 3 ms before"
    assert view_text(basis).startswith("none: the extender had no view of the cluster")
    assert (view_age_ms(event.basis), view_age_ms(basis), view_age_ms(None)) == (3, None, None)


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [(b"", "0 of 0"), (b"\0", "1 of 1"), (b"\0\0", "all 2"), (b"\1", "0 of 1")],
)
def test_the_nodes_that_pass_are_counted(verdicts: bytes, text: str) -> None:
    assert explained(filtered(verdicts)).text == f"{text} nodes pass"


# --- ages ---------------------------------------------------------------------------------------

BASIS = filtered(b"\0").basis


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (9_999, "9999 ms"), (10_000, "10 s"), (61_500, "62 s"),
     (NEVER_MS - 1, f"{NEVER_MS // 1000} s"), (NEVER_MS, "never")],
)  # fmt: skip
def test_an_age_is_in_seconds_from_ten_seconds_on(ms: int, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("behind", "text"),
    [
        (None, "projector seen 3 ms before"),
        (0, "0 ms behind the log, projector seen 3 ms before"),
        (20_000, "20 s behind the log, projector seen 3 ms before"),
        (NEVER_MS, "behind the log by an unknown time, projector seen 3 ms before"),
    ],
)
def test_both_ages_of_a_view_are_named_where_both_are_known(behind: int | None, text: str) -> None:
    basis = replace(BASIS, behind_ms=behind)

    assert ages_text(basis) == text
    assert behind_ms(basis) == (None if behind == NEVER_MS else behind)
    assert behind_ms(replace(basis, view=0)) is None
    assert behind_ms(None) is None


def test_a_projector_that_was_not_seen_has_no_age() -> None:
    unseen = replace(BASIS, view_age_ms=NEVER_MS, behind_ms=NEVER_MS)

    assert ages_text(unseen) == "behind the log by an unknown time, projector not seen yet"
    assert (view_age_ms(unseen), behind_ms(unseen)) == (None, None)


def test_the_older_age_decides_what_is_stale() -> None:
    columns = TwinColumns.empty()

    assert DecisionContext(columns, 1, 30, 0).oldest_ms == 30
    assert DecisionContext(columns, 1, 30, 0, behind_ms=20).oldest_ms == 30
    assert DecisionContext(columns, 1, 30, 0, behind_ms=40).oldest_ms == 40


# --- single entries -----------------------------------------------------------------------------


def example(kind: str) -> Any:
    return EXAMPLES[f"decision.{kind}"]


def test_an_explanation_has_what_its_entry_holds() -> None:
    scored = explained(example("prioritize"))
    assert (scored.node, scored.asked) == ("n1", example("prioritize").candidates.count)
    assert scored.top == example("prioritize").top
    assert (scored.trend_w_per_min, scored.pressure) == (
        example("prioritize").cluster_trend_w_per_min,
        example("prioritize").perf_pressure,
    )
    none = explained(replace(example("prioritize"), top=[]))
    assert (none.line, none.node) == ("no node to score", "")


def test_a_binding_names_its_cards_or_why_there_is_none() -> None:
    bound = explained(replace(example("bind"), outcome="bound", cards=["a", "b"], error=""))
    assert (bound.line, bound.is_bound) == ("bound to n1 with 2 card(s)", True)
    assert explained(replace(example("bind"), outcome="bound", cards=[])).line == "bound to n1"
    lost = explained(replace(example("bind"), error=""))
    assert (lost.line, lost.is_bound) == ("not bound to n1, lost-race", False)


def test_an_outcome_names_its_rank_where_it_is_known() -> None:
    best = explained(replace(example("outcome"), rank=1, regret=0))
    assert (best.line, best.rank, best.is_bound) == ("runs on n1, ranked 1", 1, True)
    assert explained(replace(example("outcome"), rank=None, regret=0)).line == "runs on n1"


def test_a_fallback_passes_all_nodes_or_none() -> None:
    closed = explained(replace(example("fallback"), answer="closed"))

    assert closed.line.startswith("fallback (overdue): none of 2 nodes pass")
    assert closed.asked == 2


def test_an_answer_that_refuses_nothing_has_no_refusals() -> None:
    names = RowNames(1, BASIS.view, [RowName(1, 0, "a")])

    assert refusals(filtered(b"\0"), names) == []
    assert refusals(filtered(b"\1"), names) == [RefusedNodes("eco", ["a"])]


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (UNUSABLE, ""),
        (0.0, "; there GPU pods that arrive later lose least"),
        (0.25, "; there GPU pods that arrive later lose 0.25 GPUs more than on another node"),
    ],
)
def test_a_score_names_what_later_pods_lose_where_it_is_known(loss: float, text: str) -> None:
    best = example("prioritize").top[0]
    later = replace(best.later, more={**best.later.more, "lost_gpus": loss})
    event = replace(example("prioritize"), top=[replace(best, later=later)])

    assert explained(event).line == f"n1 scores 41.2 of 100{text}"
