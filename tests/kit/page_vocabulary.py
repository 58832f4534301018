"""What the page takes from the code: classes, verbs, terms and bounds, as a module of the page.

    .venv/bin/python tests/kit/page_vocabulary.py

writes `joulie_console/page/vocabulary.js`. A test compares the file with the code.
"""

import json
from pathlib import Path
from typing import get_args

import joulie_console
from joulie_answers.views.cluster_view import POWER_STATES, UNKNOWN, class_name
from joulie_console.views import health
from joulie_extender.catalogue.terms import head_of, point_names
from joulie_extender.decide.entry_verbs import EntryVerb
from joulie_operator.planning.sleep import SLEEPING_POLICY
from joulie_projections.energy.report import NO_PLAN, NOT_ON_CARDS, NOT_SHARED, By
from joulie_projections.twin.twin import NodeClass

FILE = Path(joulie_console.__file__).parent / "page/vocabulary.js"
WIDTH = 100
HEAD = """// @ts-check
// Written by tests/kit/page_vocabulary.py: `make page`.
"""


def vocabulary() -> dict[str, object]:
    return {
        "CLASSES": [class_name(value) for value in sorted(NodeClass)],
        "POWER_STATES": POWER_STATES,
        "UNKNOWN": UNKNOWN,
        "VERBS": list(get_args(EntryVerb)),
        "TERMS": point_names(),
        "TERM_HEADS": [head_of(name) for name in point_names()],
        "SLEEPING_POLICY": SLEEPING_POLICY,
        "SILENT_MS": health.SILENT_MS,
        "GONE_MS": health.GONE_MS,
        "ENERGY_BY": list(get_args(By)),
        "NOT_SHARED": NOT_SHARED,
        "NO_PLAN": NO_PLAN,
        "NOT_ON_CARDS": NOT_ON_CARDS,
    }


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
