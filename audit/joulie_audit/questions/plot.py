"""Draws an SVG of the score changes and the marginal watts of the best nodes."""

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from joulie_audit.recompute.score_changes import Comparison, Group

WIDTH, HEIGHT = 720, 420
MARGIN, GAP = 50, 30
BINS = 41  # odd, so that zero has its own bar
BEFORE, AFTER, TEXT = "#8c96a3", "#2a7de1", "#3c4650"


def svg(found: Comparison, title: str) -> str:
    half = (HEIGHT - 2 * MARGIN - GAP) // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="{TEXT}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(MARGIN, 24, title, "15"),
        *_histogram(found.score_deltas, MARGIN, half),
        *_watts(found.by_class, MARGIN + half + GAP, half),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _histogram(deltas: Sequence[float], top: int, height: int) -> list[str]:
    furthest = max((abs(delta) for delta in deltas), default=0.0) or 1.0
    counts = [0] * BINS
    for delta in deltas:
        counts[round((delta / furthest + 1) / 2 * (BINS - 1))] += 1
    highest = max(counts) or 1
    step = (WIDTH - 2 * MARGIN) / BINS
    room = height - 30
    drawn = [_text(MARGIN, top + 4, "change of the best score, number of decisions")]
    for at, count in enumerate(counts):
        tall = room * count / highest
        drawn.append(_bar(MARGIN + at * step, top + 12 + room - tall, step - 1, tall, AFTER))
    below = top + height
    ends = ((MARGIN, f"{-furthest:.1f}"), (WIDTH // 2, "0"), (WIDTH - MARGIN, f"+{furthest:.1f}"))
    drawn += [_text(int(x), below, label, anchor="middle") for x, label in ends]
    return drawn


def _watts(groups: Mapping[str, Group], top: int, height: int) -> list[str]:
    drawn = [_text(MARGIN, top + 4, "marginal watts of the best nodes by class: then (grey), now")]
    most = max((max(g.watts_before, g.watts_after) for g in groups.values()), default=0.0) or 1.0
    row = (height - 16) / max(1, len(groups))
    for at, (name, group) in enumerate(groups.items()):
        y = top + 16 + at * row
        drawn.append(_text(MARGIN, int(y + row / 2), name))
        for shift, watts, colour in (
            (0, group.watts_before, BEFORE),
            (1, group.watts_after, AFTER),
        ):
            wide = (WIDTH - 2 * MARGIN - 190) * watts / most
            bar_y = y + shift * row * 0.4
            drawn.append(_bar(MARGIN + 100, bar_y, wide, row * 0.35, colour))
            drawn.append(_text(int(MARGIN + 106 + wide), int(bar_y + row * 0.3), f"{watts:.0f} W"))
    return drawn


def _bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
    )


def _text(x: int, y: int, words: str, size: str = "12", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'
