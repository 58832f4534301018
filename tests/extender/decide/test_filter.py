import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from bus_kit import NOON, SECOND, ask
from joulie_bus.events import Placement, PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext as Look
from joulie_extender.decide.decide import DecisionOptions, decide_filter, filter_decision, passed
from joulie_extender.protocol.candidates import Names, candidates_of, rows_by_name
from joulie_extender.protocol.kube_scheduler import ExtenderArgs, names_reply
from joulie_extender.rules.closed import WANTS_POWER
from joulie_extender.rules.draining import WANTS_ECO
from joulie_extender.rules.eco import WANTS_FRESH, WANTS_PERFORMANCE
from joulie_extender.verbs.handlers import NOT_NOW
from joulie_projections.state.state import NodeState
from joulie_projections.twin.columns import TwinColumns

LABEL = {"joulie.io/power-profile": "eco"}
CLASSES = {
    "performance": NodeState(ordinal=0, at=NOON, profile="performance"),
    "eco": NodeState(ordinal=1, at=NOON, profile="eco"),
    "draining": NodeState(ordinal=2, at=NOON, profile="performance", draining=True),
    "unknown": NodeState(ordinal=3, at=NOON),
}
LABELLED = {
    f"{name}+label": replace(state, ordinal=state.ordinal + 4, labels=LABEL)
    for name, state in CLASSES.items()
}
BOARD = TwinColumns.of({**CLASSES, **LABELLED}, 0)
NAMES = [*BOARD.rows, "stranger"]
PERFORMANCE, STANDARD = ask(performance=True), ask()


def placed(pod: PodAsk, placement: Placement) -> PodAsk:
    return replace(pod, placement=placement)


def refused(
    pod: PodAsk,
    twin_columns: TwinColumns = BOARD,
    now: int = NOON,
    age_ms: int = 0,
    stale: str = "label",
) -> set[str]:
    weights = Weights(filter_stale=stale)
    names = [*twin_columns.rows, "stranger"]
    decision = decide_filter(pod, names, Look(twin_columns, 7, age_ms, now), weights)
    return {name for name, fits in zip(names, passed(decision), strict=True) if not fits}


SAVING = {"eco", "eco+label", "draining", "draining+label"}
BY_LABEL = {"performance+label", "eco+label", "draining+label", "unknown+label"}
LATER = NOON + 301 * SECOND


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (PERFORMANCE, SAVING | {"unknown+label"}),
        (placed(PERFORMANCE, "performance-only"), SAVING | {"unknown+label"}),
        (STANDARD, set[str]()),
        (placed(STANDARD, "eco-only"), {"draining", "draining+label"}),
        (replace(PERFORMANCE, exempt="daemonset"), set[str]()),
        (replace(placed(STANDARD, "eco-only"), exempt="critical"), set[str]()),
    ],
    ids=["performance", "only", "standard", "eco-only", "daemonset", "critical eco-only"],
)
def test_a_fresh_class_decides(pod: PodAsk, expected: set[str]) -> None:
    assert refused(pod) == expected


@pytest.mark.parametrize(("now", "age_ms"), [(LATER, 0), (NOON, 300_001)], ids=["twin", "view"])
@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (PERFORMANCE, BY_LABEL),
        (STANDARD, set[str]()),
        (placed(STANDARD, "eco-only"), set[str]()),
        (replace(PERFORMANCE, exempt="mirror"), set[str]()),
    ],
    ids=["performance", "standard", "eco-only", "mirror"],
)
def test_the_label_decides_once_the_class_is_stale(
    pod: PodAsk, expected: set[str], now: int, age_ms: int
) -> None:
    assert refused(pod, now=now, age_ms=age_ms) == expected


KNOWN = {*CLASSES, *LABELLED}


@pytest.mark.parametrize(
    ("stale", "pod", "expected"),
    [
        ("twin", PERFORMANCE, SAVING | {"unknown+label"}),
        ("twin", placed(STANDARD, "eco-only"), {"draining", "draining+label"}),
        ("closed", PERFORMANCE, KNOWN),
        ("closed", placed(STANDARD, "eco-only"), KNOWN),
        ("closed", STANDARD, set[str]()),
        ("closed", replace(PERFORMANCE, exempt="daemonset"), set[str]()),
    ],
)
def test_the_settings_say_what_a_stale_twin_is_good_for(
    stale: str, pod: PodAsk, expected: set[str]
) -> None:
    assert refused(pod, now=LATER, stale=stale) == expected


@pytest.mark.parametrize("stale", ["label", "closed", "twin"])
def test_the_settings_about_stale_twins_change_nothing_for_fresh_ones(stale: str) -> None:
    assert refused(PERFORMANCE, stale=stale) == SAVING | {"unknown+label"}


PAGE = Path(__file__).parents[3] / "docs" / "contributing" / "contract.md"
LINES = re.findall(
    r"^\| (none|fresh, \w+|stale, \w+) \| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$",
    PAGE.read_text(),
    re.MULTILINE,
)


def spelled(word: str, *every: str) -> tuple[str, ...]:
    return every if word == "any" else (word,)


def cases() -> Iterator[tuple[str, str, str, str, str, str]]:
    for twin, label, stale, performance, eco_only in LINES:
        age, _, found = twin.partition(", ")
        for each in product(
            spelled(found, "performance", "eco", "draining", "unknown"),
            spelled(label, "yes", "no"),
            spelled(stale, "label", "closed", "twin"),
        ):
            yield (age, *each, performance, eco_only)


def test_the_table_of_the_page_has_every_case_once() -> None:
    found = [case[:4] for case in cases()]

    assert len(found) == len(set(found)) == 2 * 4 * 2 * 3 + 2 * 3


@pytest.mark.parametrize("case", list(cases()), ids="-".join)
def test_the_filter_decides_as_the_table_of_the_page(
    case: tuple[str, str, str, str, str, str],
) -> None:
    age, found, label, stale, performance, eco_only = case
    state = CLASSES.get(found, CLASSES["unknown"])
    labelled = replace(state, ordinal=0, labels=LABEL if label == "yes" else {})
    twin_columns = TwinColumns.of({} if age == "none" else {"n": labelled}, 0)
    context = Look(twin_columns, 7, 0, LATER if age == "stale" else NOON)
    rows, weights = rows_by_name(twin_columns, ["n"]), Weights(filter_stale=stale)
    sent = DecisionOptions(eco_labels=bytes([label == "yes"]))
    kinds = {
        PERFORMANCE: performance,
        placed(PERFORMANCE, "performance-only"): performance,
        placed(STANDARD, "eco-only"): eco_only,
        STANDARD: "passes",
        replace(PERFORMANCE, exempt="daemonset"): "passes",
        replace(placed(STANDARD, "eco-only"), exempt="critical"): "passes",
    }
    for pod, expected in kinds.items():
        made = filter_decision(pod, candidates_of(["n"], rows), rows, context, weights, sent)
        assert ("passes" if passed(made) == [True] else "refused") == expected, pod


def with_labels(names: list[str], eco: bytes, twin_columns: TwinColumns = BOARD) -> list[bool]:
    context, rows = Look(twin_columns, 7, 0, NOON), rows_by_name(twin_columns, names)
    candidates = candidates_of(names, rows)
    decision = filter_decision(
        PERFORMANCE, candidates, rows, context, Weights(), DecisionOptions(eco_labels=eco)
    )
    assert decision.eco_labels == eco
    return passed(decision)


def test_the_label_of_a_node_that_was_sent_decides_where_there_is_no_class() -> None:
    names = ["stranger", "unknown", "unknown+label", "performance", "other"]

    assert with_labels(names, b"\x01\x01\x00\x01\x00") == [False, False, True, True, True]


def test_labels_that_decide_nothing_are_not_kept() -> None:
    rows = rows_by_name(BOARD, ["eco"])
    context, candidates = Look(BOARD, 7, 0, NOON), candidates_of(["eco"], rows)

    sent = DecisionOptions(eco_labels=b"\x01")
    decision = filter_decision(STANDARD, candidates, rows, context, Weights(), sent)

    assert decision.eco_labels == b""


def test_a_twin_is_trusted_until_it_is_too_old_to_the_nanosecond() -> None:
    last = NOON + 300 * SECOND

    assert "eco" in refused(PERFORMANCE, now=last)
    assert "eco" not in refused(PERFORMANCE, now=last + 1)


def test_no_pod_is_refused_while_nothing_is_known() -> None:
    assert refused(PERFORMANCE, TwinColumns.empty()) == set()


def answered(pod: PodAsk, names: list[str]) -> bytes:
    decision = decide_filter(pod, names, Look(BOARD, 7, 0, NOON), Weights())
    return names_reply(ExtenderArgs(pod, Names.of(names)), passed(decision), decision.reason)


def test_a_pod_that_is_refused_again_gets_the_same_bytes() -> None:
    names = ["eco", "draining", "unknown+label"]

    assert answered(PERFORMANCE, names) == answered(PERFORMANCE, names)
    assert answered(PERFORMANCE, names).count(WANTS_PERFORMANCE.encode()) == 3


@pytest.mark.parametrize("sample", [["eco"], ["draining", "eco"], ["unknown+label"]])
def test_the_reason_does_not_depend_on_the_sample(sample: list[str]) -> None:
    context = Look(BOARD, 7, 0, NOON)
    asks = [PERFORMANCE, replace(PERFORMANCE, uid="other", cpu_milli=64_000)]

    reasons = {decide_filter(pod, sample, context, Weights()).reason for pod in asks}

    assert reasons == {WANTS_PERFORMANCE}


def test_a_reply_without_refusals_needs_no_reason() -> None:
    context = Look(BOARD, 7, 0, NOON)

    assert decide_filter(PERFORMANCE, ["performance"], context, Weights()).reason == ""


@pytest.mark.parametrize("text", [WANTS_PERFORMANCE, WANTS_ECO, WANTS_FRESH, NOT_NOW])
def test_a_reason_holds_no_number_and_nothing_that_formats(text: str) -> None:
    assert re.fullmatch(r"[a-z ]+", text)


CLOSED_BOARD = TwinColumns.of(
    {**CLASSES, "closed": NodeState(ordinal=4, at=NOON, profile="eco", closed_at=NOON)}, 0
)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (STANDARD, {"closed"}),
        (placed(STANDARD, "eco-only"), {"closed", "draining"}),
        (PERFORMANCE, {"closed", "eco", "draining"}),  # because it is eco
        (replace(STANDARD, exempt="daemonset"), set[str]()),
    ],
    ids=["standard", "eco-only", "performance", "daemonset"],
)
def test_a_closed_node_refuses_class_standard(pod: PodAsk, expected: set[str]) -> None:
    assert refused(pod, CLOSED_BOARD) == expected


def test_a_closed_performance_node_takes_performance_pods() -> None:
    nodes = {"p": NodeState(ordinal=0, at=NOON, profile="performance", closed_at=NOON)}
    columns = TwinColumns.of(nodes, 0)

    assert "p" not in refused(PERFORMANCE, columns)
    assert "p" in refused(STANDARD, columns)


def test_a_stale_twin_closes_no_node() -> None:
    assert refused(STANDARD, CLOSED_BOARD, now=LATER) == set()
    assert refused(STANDARD, CLOSED_BOARD, now=LATER, stale="twin") == {"closed"}


def test_a_refusal_by_a_closed_node_names_the_target() -> None:
    for pod, reason in (
        (STANDARD, WANTS_POWER),
        (placed(STANDARD, "eco-only"), f"{WANTS_ECO}, or {WANTS_POWER}"),
    ):
        look = Look(CLOSED_BOARD, 7, 0, NOON)
        assert decide_filter(pod, ["closed"], look, Weights()).reason == reason


def test_a_rule_that_reads_no_labels_leaves_those_of_the_request_out_of_the_entry() -> None:
    rows = rows_by_name(CLOSED_BOARD, ["closed"])
    look, candidates = Look(CLOSED_BOARD, 7, 0, NOON), candidates_of(["closed"], rows)

    sent = DecisionOptions(eco_labels=b"\x01")
    decision = filter_decision(STANDARD, candidates, rows, look, Weights(), sent)

    assert (passed(decision), decision.eco_labels) == ([False], b"")
