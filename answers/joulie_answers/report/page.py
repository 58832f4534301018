"""The report as one HTML file without scripts, which holds its JSON."""

import html
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from joulie_answers.report.charts import Bar, bars, power_chart
from joulie_answers.report.document import DIVISIONS, FIRST_FORMAT, Document

LATE_MS = 60_000  # a ledger that ends so long before the period does not hold it
FIRST_CAPTION = "Saved, over all variants"
CAPTION = "Less than the baseline, over all variants; negative where more was used"
POWER_NOTE = (
    "<p>(free) is the idle energy of what no pod occupies. The first interval begins with the log, "
    "and the last one ends with the ledger.</p>"
)
SHOWN = 100  # lines of a division; the JSON has all
OPEN, CLOSE = '<script type="application/json" id="report">', "</script>"
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.2rem .8rem;text-align:right;"
    "border-bottom:1px solid #ccc}th:first-child,td:first-child{text-align:left}"
)
CHARTS = (
    "svg{width:100%;font:12px system-ui,sans-serif}.key{margin-right:1rem}"
    ".key i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}"
    ".lead{font-size:20px;font-weight:600;margin:.4rem 0}"
)
_EMBEDDED = re.compile(f"{re.escape(OPEN)}(.*?){re.escape(CLOSE)}", re.DOTALL)


def page_of(document: Document) -> str:
    whole = document["energy"]["namespace"]
    is_first = document["format"] == FIRST_FORMAT
    style = STYLE if is_first else STYLE + CHARTS
    start, end = _time(whole["from"]), _time(whole["to"]) if is_first else _end(whole["to"])
    title = f"Energy of {document['cluster']}, {start} to {end}"
    body = "\n".join(
        [
            f"<h1>{html.escape(title)}</h1>",
            *([] if is_first else [_complete(document), _first_page(document)]),
            _totals(whole),
            _saved(document["counterfactual"], whole, FIRST_CAPTION if is_first else CAPTION),
            _placements(document["placements"]),
            *(_division(by, document["energy"][by]) for by in DIVISIONS),
            _grid(whole["grid"]),
            _origin(document),
        ]
    )
    data = msgspec.json.encode(document, order="deterministic").decode().replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head><body>\n"
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


def _first_page(document: Document) -> str:
    """The answer in words, then charts; the tables follow."""
    whole, found = document["energy"]["namespace"], document["counterfactual"]
    power = intervals_since(found["from"], document.get("power", []))
    lengths = {each["to"] - each["from"] for each in document.get("power", [])}
    grain = "hour or day" if len(lengths) > 1 else "interval"
    words = (
        _in_words(whole, found["saved"], document["saved"])
        if found["as_it_ran"]
        else _of_shadow(whole, found)
    )
    parts = [f'<p class="lead">{html.escape(words)}</p>']
    if power:
        parts.append(f"<h2>Average power of each {grain}, by namespace</h2>")
        ends = _end(power[0]["from"]), _end(power[-1]["to"])
        parts.append(power_chart(power, f"Average power of each {grain}, by namespace", ends))
        parts.append(POWER_NOTE)
    if found["saved"]:
        title = "Energy: simulated beside metered"
        parts += [f"<h2>{title}</h2>", bars(_compared(found, whole), title)]
    return "\n".join([*parts, "<h2>Tables</h2>"])


def intervals_since(began_ms: int, power: Sequence[Document]) -> list[Document]:
    """The intervals as far as the log has them: an interval is a whole hour, and a log begins
    within one."""
    return [each | {"from": max(each["from"], began_ms)} for each in power if each["to"] > began_ms]


def _in_words(whole: Document, simulated: Document | None, saved: Document | None) -> str:
    used = (
        f"The meters measured {_worth(whole['meter_kwh'], whole['cost'], whole['kgco2e'], whole)}"
    )
    if simulated is None or saved is None:
        return f"{used}. What was saved is not known."
    kwh, share = saved["kwh"], simulated["share_per_work"]
    low, high = (_less(share[end]) for end in ("low", "high"))
    mid = [saved[name] and abs(saved[name]["mid"]) for name in ("kwh", "cost", "kgco2e")]
    less = f"{_worth(mid[0], mid[1], mid[2], whole)} {'more used' if kwh['mid'] < 0 else 'saved'}"
    ends = f"{kwh['low']:.3f} to {kwh['high']:.3f} kWh"
    return (
        f"{used}. Against the same pods under kube-scheduler's default score, simulated, that is "
        f"{less} ({ends}): "
        f"{_less(share['mid'])} per work ({low} to {high})."
    )


def _of_shadow(whole: Document, found: Document) -> str:
    """The metered energy is that of another scheduler: no part of it was saved."""
    used = (
        f"The meters measured {_worth(whole['meter_kwh'], whole['cost'], whole['kgco2e'], whole)}"
    )
    if not found["saved"]:
        return f"{used}. What would have been saved is not known."
    share = found["saved"]["share_per_work"]
    low, high = (_less(share[end]) for end in ("low", "high"))
    return (
        f"{used}, without any plan of Joulie. The same pods under {found['policy']} with its plans "
        f"use {_less(share['mid'])} per work ({low} to {high}) than under kube-scheduler's default "
        "score, both simulated."
    )


def _worth(kwh: float, cost: float | None, kgco2e: float | None, whole: Document) -> str:
    parts = [f"{kwh:.3f} kWh"]
    if cost is not None:
        parts.append(f"{cost:.2f} {whole['currency']}")
    if kgco2e is not None:
        parts.append(f"{kgco2e:.2f} kgCO2e")
    return ", ".join(parts)


def _less(share: float) -> str:
    return f"{-share:.1%} more" if share < 0 else f"{share:.1%} less"


def _compared(found: Document, whole: Document) -> list[Bar]:
    """Nodes of unknown size and time before the first pod are metered, and not simulated."""
    simulated, as_it_ran = [], found["as_it_ran"]
    for policy, runs in sorted(found["runs"].items()):
        values = sorted(run["kwh"] for run in runs)
        colour = "#777777" if policy == found["baseline"] else "#0072b2"
        mid = values[len(values) // 2]
        how = "as it ran" if as_it_ran and policy != found["baseline"] else "simulated"
        simulated.append(Bar(f"{policy}, {how}", values[0], mid, values[-1], colour))
    metered = whole["meter_kwh"]
    return [*simulated, Bar("metered", metered, metered, metered, "#009e73")]


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


def _saved(found: Document, whole: Document, caption: str) -> str:
    how = "both simulated"
    if found.get("as_it_ran"):
        how = "where and when the log shows them, both in the same physics"
    named = (
        f"Against <b>{html.escape(found['baseline'])}</b>: the same {found['pods']} pods on the "
        f"same {found['nodes']} nodes under kube-scheduler's default score, beside "
        f"<b>{html.escape(found['policy'])}</b>, {how}. "
        f"Pods use {found['use_of_requests']:.0%} of what they request, as measured."
    )
    saved = found["saved"]
    if saved is None:
        return f"<h2>Saved</h2><p>{named} Not computed: {html.escape(found['why'])}.</p>"
    return (
        f"<h2>Saved</h2><p>{named} The meters measured {whole['meter_kwh']:.3f} kWh.</p>"
        + _list_of("Assumed, because the log does not hold it:", found.get("assumed", []))
        + _table(caption, ("", "low", "mid", "high"), _saved_rows(saved))
        + _runs(found["runs"])
    )


def _list_of(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<p>{title}</p><ul>{items}</ul>" if lines else ""


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
    unsigned = "" if "signature" in document else " This report is not signed."
    return (
        f"<h2>Origin</h2><p>Computed from the log up to position {document['position']} and entry "
        f"{document['entries']}. Head: {signed}. Verify with "
        f"<code>joulie verify --report FILE</code>.{unsigned}</p>"
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
