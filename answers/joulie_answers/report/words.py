"""A report in words: its sentences, for the page and for a terminal, and the text of a terminal."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from joulie_answers.report.form import Document
from joulie_answers.text.tables import TextTable, TextWithTables

LATE_MS = 60_000  # a ledger that ends so long before the period does not hold it
SHOWN = 20  # lines of the division; JSON and page have more


def text_of(document: Document) -> TextWithTables:
    """One sentence, a table, and where the page is."""
    late = ["Incomplete: later energy is missing."] if is_late(document) else []
    lines = [sentence(document), *late, completeness(document), ""]
    divided, placed = _by_namespace(document), placements(document["placements"])
    return TextWithTables.of([*lines, *divided, "", placed])


def _by_namespace(document: Document) -> Iterator[str | TextTable]:
    whole = document["energy"]["namespace"]
    heads = ("namespace", "kWh", "above idle", "idle", whole["currency"] or "cost", "kgCO2e")
    shown = whole["by"][:SHOWN]
    rows = [
        (
            str(each["namespace"]),
            *(f"{each[key]:.3f}" for key in ("kwh", "pods_kwh", "idle_kwh")),
            known(each["cost"]),
            known(each["kgco2e"]),
        )
        for each in shown
    ]
    yield TextTable(heads, rows, {*heads[1:]}, indent=2)
    if len(shown) < len(whole["by"]):
        yield f"  and {len(whole['by']) - len(shown)} more"


# --- sentences ----------------------------------------------------------------------------------


def sentence(document: Document) -> str:
    """What was measured, and what was saved of it."""
    whole, found = document["energy"]["namespace"], document["counterfactual"]
    used = f"The meters measured {_worth(whole, whole)}"
    if not found["as_it_ran"]:
        return _of_shadow(used, found)
    if found["saved"] is None or document["saved"] is None:
        return f"{used}. What was saved is not known."
    saved, share = document["saved"], found["saved"]["share_per_work"]
    mid = {name: saved[name] and abs(saved[name]["mid"]) for name in ("kwh", "cost", "kgco2e")}
    less = "more used" if saved["kwh"]["mid"] < 0 else "saved"
    ends = _span(*(in_kwh(saved["kwh"][end]) for end in ("low", "high")))
    return (
        f"{used}. Against the same pods under kube-scheduler's default score, simulated, that is "
        f"{_worth({'meter_kwh': mid['kwh'], **mid}, whole)} {less} ({ends}): "
        f"{_shares(share)} per work."
    )


def _of_shadow(used: str, found: Document) -> str:
    """The metered energy is that of another scheduler: no part of it was saved."""
    if not found["saved"]:
        return f"{used}. What would have been saved is not known."
    return (
        f"{used}, without any plan of Joulie. The same pods under {found['policy']} with its plans "
        f"use {_shares(found['saved']['share_per_work'])} per work than under kube-scheduler's "
        "default score, both simulated."
    )


def _worth(figures: Document, whole: Document) -> str:
    parts = [f"{figures['meter_kwh']:.3f} kWh"]
    if figures["cost"] is not None:
        parts.append(f"{figures['cost']:.2f} {whole['currency']}")
    if figures["kgco2e"] is not None:
        parts.append(f"{figures['kgco2e']:.2f} kgCO2e")
    return ", ".join(parts)


def _shares(share: Document) -> str:
    """The median, and the interval where it reads differently."""
    low, mid, high = (_less(share[end]) for end in ("low", "mid", "high"))
    return mid if low == mid == high else f"{mid} ({_span(low, high)})"


def _less(share: float) -> str:
    return f"{-share:.1%} more" if share < 0 else f"{share:.1%} less"


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def placements(found: Document) -> str:
    ranked = found["on_the_best_node"] + found["elsewhere"]
    text = (
        f"{found['bound']} pods were bound, {found['answered']} of them with an answer. Of "
        f"{ranked} whose node was ranked, {found['on_the_best_node']} are on the best node or on "
        f"one that ties with it, and {found['elsewhere']} elsewhere."
    )
    if not found["without_a_rank"]:
        return text
    return (
        f"{text} {found['without_a_rank']} have no rank: their node was no candidate, or the log "
        "has no outcome yet."
    )


def is_late(document: Document) -> bool:
    late_ms: int = document["asked"]["to"] - document["complete_to"]
    return late_ms > LATE_MS


def completeness(document: Document) -> str:
    end, asked = end_of(document["complete_to"]), end_of(document["asked"]["to"])
    return f"The ledger was complete up to {end}; the report was asked for up to {asked}."


# --- values -------------------------------------------------------------------------------------


def known(value: Any) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def in_kwh(value: float) -> str:
    return f"{value:.3f} kWh"


def end_of(ms: int) -> str:
    """An end that may lie within a minute."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def time_of(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
