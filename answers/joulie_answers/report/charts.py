"""The charts of a report, as SVG without scripts. The same figures give the same bytes."""

import html
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from joulie_projections.energy.report import NOT_SHARED

MS_PER_HOUR = 3_600_000
WIDTH, HEIGHT, LEFT, BOTTOM = 720, 180, 60, 20
BAR = 22
MOST_NAMES = 5
REST = "(others)"
# Okabe and Ito's palette; names that come last are grey.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#777777", "#cccccc")


class Bar(NamedTuple):
    """A value with the interval over all variants; equal ends: a measured value."""

    name: str
    low: float
    mid: float
    high: float
    colour: str


def power_chart(
    series: Sequence[Mapping[str, Any]], title: str, ends: tuple[str, str] = ("", "")
) -> str:
    """Average watts of each interval, stacked by namespace. Largest namespaces first. `ends` are
    the times at which the chart begins and ends."""
    names = shown_names(series)
    top = max((_kw(each, each["kwh"]) for each in series), default=0) or 1
    first, last = series[0]["from"], series[-1]["to"]
    parts = [_axis(top, "kW"), _times(*ends)]
    for each in series:
        x = LEFT + (each["from"] - first) / (last - first) * (WIDTH - LEFT)
        width = (each["to"] - each["from"]) / (last - first) * (WIDTH - LEFT)
        amounts = [_kw(each, _amount(each, name, names)) for name in names]
        for name, amount, below in zip(names, amounts, [0, *accumulate(amounts)], strict=False):
            tall, y = amount / top * HEIGHT, (below + amount) / top * HEIGHT
            parts.append(
                f'<rect x="{x:.1f}" y="{HEIGHT - y:.1f}" width="{max(1, width - 1):.1f}" '
                f'height="{tall:.1f}" fill="{_colour(names, name)}">'
                f"<title>{html.escape(name)}: {amount:.3f} kW</title></rect>"
            )
    return _figure(title, parts, HEIGHT + BOTTOM) + _keys(names)


def shown_names(series: Sequence[Mapping[str, Any]]) -> list[str]:
    sums: dict[str, float] = {}
    for each in series:
        for name, kwh in each["namespaces"].items():
            sums[name] = sums.get(name, 0.0) + kwh
    free = [NOT_SHARED] if NOT_SHARED in sums else []
    named = sorted((name for name in sums if name != NOT_SHARED), key=lambda n: (-sums[n], n))
    rest = [REST] if len(named) > MOST_NAMES else []
    return [*named[:MOST_NAMES], *rest, *free]


def bars(found: Sequence[Bar], title: str) -> str:
    """Horizontal bars with a whisker from low to high."""
    top = max((bar.high for bar in found), default=0) or 1
    left, right = 190, 120  # room for names and values
    scale = (WIDTH - left - right) / top
    parts = []
    for place, bar in enumerate(found):
        y = place * BAR + 4
        low, mid, high = (left + max(0.0, each) * scale for each in (bar.low, bar.mid, bar.high))
        middle = y + BAR / 2 - 3
        parts += [
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{html.escape(bar.name)}</text>',
            f'<rect x="{left}" y="{y}" width="{max(1, mid - left):.1f}" height="{BAR - 6}" '
            f'fill="{bar.colour}"/>',
            f'<text x="{high + 6:.1f}" y="{y + 12}">{bar.mid:.3f} kWh</text>',
        ]
        if bar.high > bar.low:
            parts.append(
                f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} '
                f'{middle - 4}v8" stroke="#222" fill="none"/>'
            )
    return _figure(title, parts, len(found) * BAR + 8)


def _kw(each: Mapping[str, Any], kwh: float) -> float:
    length_ms: int = each["to"] - each["from"]
    return kwh / max(1, length_ms) * MS_PER_HOUR


def _amount(each: Mapping[str, Any], name: str, names: Sequence[str]) -> float:
    amounts: Mapping[str, float] = each["namespaces"]
    if name == REST:
        return sum(kwh for other, kwh in amounts.items() if other not in names)
    return max(0.0, amounts.get(name, 0.0))


def _colour(names: Sequence[str], name: str) -> str:
    if name == NOT_SHARED:
        return COLOURS[-1]
    return COLOURS[-2] if name == REST else COLOURS[names.index(name)]


def _axis(top: float, unit: str) -> str:
    lines = []
    for share in (0, 0.5, 1):
        y = HEIGHT - share * HEIGHT
        lines.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH}" stroke="#ddd"/><text x="{LEFT - 6}" '
            f'y="{max(10, y + 4):.1f}" text-anchor="end">{top * share:.3g} {unit}</text>'
        )
    return "".join(lines)


def _times(first: str, last: str) -> str:
    """Below the chart."""
    return "".join(
        f'<text x="{x}" y="{HEIGHT + 15}" text-anchor="{anchor}">{html.escape(time)}</text>'
        for x, anchor, time in ((LEFT, "start", first), (WIDTH, "end", last))
    )


def _keys(names: Sequence[str]) -> str:
    return (
        "<p>"
        + " ".join(
            f'<span class="key"><i style="background:{_colour(names, name)}"></i>'
            f"{html.escape(name)}</span>"
            for name in names
        )
        + "</p>"
    )


def _figure(title: str, parts: Sequence[str], height: int) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}">'
        f"<title>{html.escape(title)}</title>{''.join(parts)}</svg>"
    )
