"""One explanation of an entry, in the words that every renderer shows."""

import pytest
from msgspec.structs import replace

from joulie_bus.events import (
    AnyEvent,
    DecisionEntry,
    FilterDecided,
)
from joulie_bus.testing import one_of_each
from joulie_extender.catalogue.rules import RULES, few_words_of, sentence_of
from joulie_extender.decide.explained import (
    VERBS,
    Refusal,
    explained,
    refusals,
    view_age_ms,
    view_text,
)
from joulie_extender.gpu.fit import GpuVerdict
from joulie_extender.rules.eco import ECO
from joulie_extender.rules.rule import PASSED
from joulie_projections.twin.row_names import RowName, RowNames

EXAMPLES = {e.TYPE: e for e in one_of_each() if isinstance(e, DecisionEntry)}
LINES = {
    "decision.settings-declared": "settings s1 of 0.1.0",
    "decision.filter": "1 of 2 nodes pass: eco",
    "decision.prioritize": "n1 scores 41.2 of 100",
    "decision.preempt": "1 of 2 nodes are worth clearing",
    "decision.fallback": "fallback (overdue): all of 2 nodes pass",
    "decision.dropped": "3 decisions dropped: No space left on device",
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
        Refusal("eco", ["b", "node #3 (name unknown)"]),
        Refusal("no cards", ["c"]),
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
