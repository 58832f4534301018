"""What the page takes from the code: classes, verbs, terms and bounds, as a module of the page.

    python -m joulie_console.page_vocabulary

writes `page/vocabulary.js`. A test compares the file with the code.
"""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec

from joulie_bus.events import Terms
from joulie_bus.events.base import Finite
from joulie_console.views import health
from joulie_console.views.cluster_view import POWER_STATES, UNKNOWN, class_name
from joulie_console.views.decision_text import points_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.explained import Verb
from joulie_projections.energy.report import NO_PLAN, NOT_ON_CARDS, NOT_SHARED, By
from joulie_projections.twin.twin import NodeClass

FILE = Path(__file__).parent / "page" / "vocabulary.js"
WIDTH = 100
HEAD = """// @ts-check
// Written by joulie_console.page_vocabulary: `make page`.
"""


def vocabulary() -> dict[str, object]:
    return {
        "CLASSES": [class_name(value) for value in sorted(NodeClass)],
        "POWER_STATES": POWER_STATES,
        "UNKNOWN": UNKNOWN,
        "VERBS": list(get_args(Verb)),
        "TERMS": terms(),
        "SILENT_MS": health.SILENT_MS,
        "GONE_MS": health.GONE_MS,
        "ENERGY_BY": list(get_args(By)),
        "NOT_SHARED": NOT_SHARED,
        "NO_PLAN": NO_PLAN,
        "NOT_ON_CARDS": NOT_ON_CARDS,
    }


def terms() -> list[str]:
    """Every name that points have, in the order of the sums."""
    bases = ("measured", "energy", "neutral")
    named = [points_of(every_term(source), Weights()) for source in bases]
    return list(dict.fromkeys(name for points in named for name in points))


def every_term(source: str) -> Terms:
    """Terms of which none is zero, because points leave out some that are."""
    fields = {field.name: field.type for field in msgspec.structs.fields(Terms)}
    numbers: dict[str, Any] = {name: 1.0 for name, kind in fields.items() if kind == Finite}
    return Terms(node="n", source=source, **numbers)


def text() -> str:
    return HEAD + "\n" + "".join(f"{line(*item)}\n" for item in vocabulary().items())


def line(name: str, value: object) -> str:
    """As the formatter of the page writes it."""
    short = f"export const {name} = {json.dumps(value)};"
    if len(short) <= WIDTH or not isinstance(value, list):
        return short
    items = "".join(f"  {json.dumps(each)},\n" for each in value)
    return f"export const {name} = [\n{items}];"


if __name__ == "__main__":
    FILE.write_text(text())
