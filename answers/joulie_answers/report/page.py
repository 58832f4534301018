"""The report as one HTML file without scripts, which holds its JSON."""

import html
import re
from collections.abc import Iterable, Sequence

import msgspec

from joulie_answers.report import words
from joulie_answers.report.charts import Bar, bars, power_chart
from joulie_answers.report.form import DIVISIONS, Document
from joulie_answers.report.words import end_of, in_kwh, is_late, known, time_of

METERED = (
    "Saved: metered energy by the share per work, over all variants; negative where more was used"
)
SIMULATED = "Difference of the simulations, over all variants; negative where more was used"
INTERVAL = ("", "low", "mid", "high")
METERED_ROWS = (("kWh", "kwh"), ("", "cost"), ("kgCO2e", "kgco2e"))  # "": the currency
SIMULATED_ROWS = (
    ("kWh", "kwh"),
    ("share", "share"),
    ("share per work", "share_per_work"),
    *METERED_ROWS[1:],
)
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
    start, end = time_of(whole["from"]), end_of(whole["to"])
    title = f"Energy of {document['cluster']}, {start} to {end}"
    body = "\n".join(
        [
            f"<h1>{html.escape(title)}</h1>",
            _complete(document),
            _first_page(document),
            _totals(whole),
            _saved(document),
            _placements(document["placements"]),
            *(_division(by, document["energy"][by]) for by in DIVISIONS),
            _grid(whole["grid"]),
            _origin(document),
        ]
    )
    data = msgspec.json.encode(document, order="deterministic").decode().replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{STYLE}{CHARTS}</style></head><body>\n"
        f"{body}\n{OPEN}{data}{CLOSE}\n</body></html>\n"
    )


def _complete(document: Document) -> str:
    """What was asked for, and how much of it the figures hold."""
    late = "<strong>Incomplete: later energy is missing.</strong> " if is_late(document) else ""
    return f"<p>{late}{html.escape(words.completeness(document))}</p>"


def _first_page(document: Document) -> str:
    """The answer in words, then charts; the tables follow."""
    whole, found = document["energy"]["namespace"], document["counterfactual"]
    power = intervals_since(found["from"], document.get("power", []))
    lengths = {each["to"] - each["from"] for each in document.get("power", [])}
    grain = "hour or day" if len(lengths) > 1 else "interval"
    parts = [f'<p class="lead">{html.escape(words.sentence(document))}</p>']
    if power:
        parts.append(f"<h2>Average power of each {grain}, by namespace</h2>")
        ends = end_of(power[0]["from"]), end_of(power[-1]["to"])
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
        ("meters", in_kwh(whole["meter_kwh"])),
        ("pods, above idle", in_kwh(whole["pods_kwh"])),
        ("idle", in_kwh(whole["idle_kwh"])),
        ("modelled, part of the meters", in_kwh(whole["modelled_kwh"])),
        ("estimated over gaps, in no other figure", in_kwh(whole["unknown_kwh"])),
        ("gaps", f"{whole['unknown_node_hours']:.2f} node hours"),
        ("cost", f"{known(whole['cost'])} {whole['currency'] or ''}"),
        ("energy without a price", in_kwh(whole["unpriced_kwh"])),
        ("carbon", f"{known(whole['kgco2e'])} kgCO2e"),
        ("energy without a carbon intensity", in_kwh(whole["unweighed_kwh"])),
    ]
    return _table("Total", ("", ""), rows)


def _saved(document: Document) -> str:
    found, whole = document["counterfactual"], document["energy"]["namespace"]
    how = "both simulated"
    if found.get("as_it_ran"):
        how = "where and when the log shows them, both in the same physics"
    named = (
        f"Against <b>{html.escape(found['baseline'])}</b>: the same {found['pods']} pods on the "
        f"same {found['nodes']} nodes under kube-scheduler's default score, beside "
        f"<b>{html.escape(found['policy'])}</b>, {how}. "
        f"Pods use {found['use_of_requests']:.0%} of what they request, as measured."
    )
    simulated = found["saved"]
    if simulated is None:
        return f"<h2>Saved</h2><p>{named} Not computed: {html.escape(found['why'])}.</p>"
    tables = [_table(SIMULATED, INTERVAL, _rows(simulated, SIMULATED_ROWS, simulated["currency"]))]
    if saved := document["saved"]:
        rows = _rows(saved, METERED_ROWS, whole["currency"])
        share = _rows(simulated, (("share per work", "share_per_work"),), "")
        tables.insert(0, _table(METERED, INTERVAL, [*rows, *share]))
    return (
        f"<h2>Saved</h2><p>{named} The meters measured {whole['meter_kwh']:.3f} kWh.</p>"
        + _list_of("Assumed, because the log does not hold it:", found.get("assumed", []))
        + "".join(tables)
        + _runs(found["runs"])
    )


def _list_of(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<p>{title}</p><ul>{items}</ul>" if lines else ""


def _rows(
    saved: Document, named: Sequence[tuple[str, str]], currency: str | None
) -> list[Sequence[object]]:
    return [
        (
            name or currency or "cost",
            *(known(saved[key] and saved[key][end]) for end in ("low", "mid", "high")),
        )
        for name, key in named
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
    listed = found["furthest"]
    rows = [
        (each["pod"], each["node"], each["best"], each["rank"], each["behind"]) for each in listed
    ]
    caption = f"Elsewhere: {len(listed)} of {found['elsewhere']}, those furthest behind"
    heads = ("pod", "is on", "best node", "rank", "points behind")
    text = f"<h2>Placements</h2><p>{html.escape(words.placements(found))}</p>"
    return text + (_table(caption, heads, rows) if listed else "")


def _division(by: str, found: Document) -> str:
    rows = [
        (
            line[by],
            *(f"{line[key]:.3f}" for key in ("kwh", "pods_kwh", "idle_kwh")),
            known(line["cost"]),
            known(line["kgco2e"]),
        )
        for line in found["by"][:SHOWN]
    ]
    heads = (by, "kWh", "above idle", "idle", found["currency"] or "cost", "kgCO2e")
    return _table(f"By {by}", heads, rows)


def _grid(rates: Sequence[Document]) -> str:
    rows = [
        (
            f"{rate['kind']} in {rate['zone']}",
            time_of(rate["from"]),
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


def _mid(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
