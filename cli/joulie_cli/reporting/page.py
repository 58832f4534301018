"""The report as one HTML file without scripts, which holds its JSON."""

import html
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from joulie_cli.reporting.document import DIVISIONS, FIRST_FORMAT, Document

LATE_MS = 60_000  # a ledger that ends so long before the period does not hold it
SHOWN = 100  # lines of a division; the JSON has all
OPEN, CLOSE = '<script type="application/json" id="report">', "</script>"
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.2rem .8rem;text-align:right;"
    "border-bottom:1px solid #ccc}th:first-child,td:first-child{text-align:left}"
)
_EMBEDDED = re.compile(f"{re.escape(OPEN)}(.*?){re.escape(CLOSE)}", re.DOTALL)


def page_of(document: Document) -> str:
    whole = document["energy"]["namespace"]
    is_first = document["format"] == FIRST_FORMAT
    start, end = _time(whole["from"]), _time(whole["to"]) if is_first else _end(whole["to"])
    title = f"Energy of {document['cluster']}, {start} to {end}"
    body = "\n".join(
        [
            f"<h1>{html.escape(title)}</h1>",
            *([] if is_first else [_complete(document)]),
            _totals(whole),
            _saved(document["counterfactual"], whole),
            _placements(document["placements"]),
            *(_division(by, document["energy"][by]) for by in DIVISIONS),
            _grid(whole["grid"]),
            _origin(document),
        ]
    )
    data = msgspec.json.encode(document, order="deterministic").decode().replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>\n"
        f"{body}\n{OPEN}{data}{CLOSE}\n</body></html>\n"
    )


def _complete(document: Document) -> str:
    """What was asked for, and how much of it the figures hold."""
    end, asked = document["complete_to"], document["asked"]["to"]
    text = (
        f"The ledger was complete up to {_end(end)}; the report was asked for up to {_end(asked)}."
    )
    if asked - end > LATE_MS:
        return f"<p><strong>Incomplete: later energy is missing.</strong> {text}</p>"
    return f"<p>{text}</p>"


def document_in(text: str) -> Document:
    """The JSON of a report in either form. Raises ValueError."""
    found = _EMBEDDED.search(text) if text.lstrip().startswith("<") else None
    try:
        document = msgspec.json.decode(found.group(1) if found else text)
    except msgspec.DecodeError as error:
        raise ValueError(f"it holds no report: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("it holds no report")
    return document


def _totals(whole: Document) -> str:
    rows = [
        ("meters", _kwh(whole["meter_kwh"])),
        ("pods, above idle", _kwh(whole["pods_kwh"])),
        ("idle", _kwh(whole["idle_kwh"])),
        ("modelled, part of the meters", _kwh(whole["modelled_kwh"])),
        ("estimated over gaps, in no other figure", _kwh(whole["unknown_kwh"])),
        ("gaps", f"{whole['unknown_node_hours']:.2f} node hours"),
        ("cost", f"{_known(whole['cost'])} {whole['currency'] or ''}"),
        ("energy without a price", _kwh(whole["unpriced_kwh"])),
        ("carbon", f"{_known(whole['kgco2e'])} kgCO2e"),
        ("energy without a carbon intensity", _kwh(whole["unweighed_kwh"])),
    ]
    return _table("Total", ("", ""), rows)


def _saved(found: Document, whole: Document) -> str:
    named = (
        f"Against <b>{html.escape(found['baseline'])}</b>: the same {found['pods']} pods on the "
        f"same {found['nodes']} nodes under kube-scheduler's default score, beside "
        f"<b>{html.escape(found['policy'])}</b>, both simulated. "
        f"Pods use {found['use_of_requests']:.0%} of what they request, as measured."
    )
    saved = found["saved"]
    if saved is None:
        return f"<h2>Saved</h2><p>{named} Not computed: {html.escape(found['why'])}.</p>"
    return (
        f"<h2>Saved</h2><p>{named} The meters measured {whole['meter_kwh']:.3f} kWh.</p>"
        + _table("Saved, over all variants", ("", "low", "mid", "high"), _saved_rows(saved))
        + _runs(found["runs"])
    )


def _saved_rows(saved: Document) -> list[Sequence[object]]:
    named = (
        ("kWh", "kwh"),
        ("share", "share"),
        ("share per work", "share_per_work"),
        (saved["currency"] or "cost", "cost"),
        ("kgCO2e", "kgco2e"),
    )
    ends = ("low", "mid", "high")
    return [
        (name, *(_known(saved[key] and saved[key][end]) for end in ends)) for name, key in named
    ]


def _runs(runs: Document) -> str:
    rows = [
        (
            policy,
            *(f"{_mid(run[key] for run in each):.3f}" for key in ("kwh", "work_kwh")),
            *(
                f"{_mid(run[key] for run in each):.0f}"
                for key in ("wait_p50_s", "wait_p99_s", "waiting")
            ),
        )
        for policy, each in sorted(runs.items())
    ]
    heads = ("policy", "kWh", "work kWh", "wait p50 s", "wait p99 s", "still waiting")
    return _table("Simulated, median of the variants", heads, rows)


def _placements(found: Document) -> str:
    text = (
        f"<p>{found['bound']} pods were bound, {found['answered']} of them with an answer; "
        f"{found['on_the_best_node']} are on the best node of that answer.</p>"
    )
    rows = [(each["pod"], each["node"], each["best"]) for each in found["elsewhere"]]
    return f"<h2>Placements</h2>{text}" + _table("Elsewhere", ("pod", "is on", "best node"), rows)


def _division(by: str, found: Document) -> str:
    rows = [
        (
            line[by],
            *(f"{line[key]:.3f}" for key in ("kwh", "pods_kwh", "idle_kwh")),
            _known(line["cost"]),
            _known(line["kgco2e"]),
        )
        for line in found["by"][:SHOWN]
    ]
    heads = (by, "kWh", "above idle", "idle", found["currency"] or "cost", "kgCO2e")
    return _table(f"By {by}", heads, rows)


def _grid(rates: Sequence[Document]) -> str:
    rows = [
        (
            f"{rate['kind']} in {rate['zone']}",
            _time(rate["from"]),
            f"{rate['per_kwh']:g} {rate['unit']}/kWh",
            f"{rate['source']}{', estimated' if rate['estimated'] else ''}",
        )
        for rate in rates[:SHOWN]
    ]
    return _table("The grid", ("rate", "from", "value", "source"), rows)


def _origin(document: Document) -> str:
    head = document["head"]
    signed = f"entry {head['pos']}, hash {head['hash']}" if head else "no head was signed yet"
    return (
        f"<h2>Origin</h2><p>Computed from the log up to position {document['position']} and entry "
        f"{document['entries']}. Head: {signed}. Verify with "
        "<code>joulie verify --report FILE</code>.</p>"
    )


def _table(title: str, heads: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"<table><caption>{html.escape(title)}</caption><tr>{_cells('th', heads)}</tr>"]
    lines += [f"<tr>{_cells('td', row)}</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _cells(tag: str, values: Iterable[object]) -> str:
    return "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in values)


def _known(value: Any) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _kwh(value: float) -> str:
    return f"{value:.3f} kWh"


def _mid(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _end(ms: int) -> str:
    """An end that may lie within a minute."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
