"""The table of event types in docs/operations.md is that of the code."""

import json
import re
from pathlib import Path

from joulie_console.views.conditions import KINDS, Condition, S
from joulie_console.views.occurrences import TYPES, Occurrences, type_of

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


def test_every_type_of_event_is_in_the_table_and_none_besides() -> None:
    listed = re.findall(r"^\| `(io\.joulie\.[\w.-]+)` \|", PAGE, re.MULTILINE)

    assert listed == [f"{TYPES}{kind}" for kind in KINDS]


def test_the_event_of_the_page_has_the_fields_of_the_code() -> None:
    [shown] = re.findall(r"```json\n(\{\"specversion.*)\n```", PAGE)
    tracked = Occurrences("local")
    condition = Condition("node.not-woken", "n17", "serious", "text", "1795651200")
    events = [event for second in (0, 60) for event in tracked.update([condition], second * S)]

    assert json.loads(shown).keys() == events[0].tree.keys()
    assert json.loads(shown)["id"] == events[0].id
    assert json.loads(shown)["type"] == type_of("node.not-woken", "begun")
