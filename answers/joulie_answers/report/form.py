"""What a report is made of, for those that show one and compute none: little is imported here."""

from typing import Any, NamedTuple

import msgspec

from joulie_projections.energy.report import By

DIVISIONS: tuple[By, ...] = ("namespace", "workload", "node", "plan")
JSON_SUFFIX = ".json"
Document = dict[str, Any]


class Period(NamedTuple):
    """As asked for; the intervals of the ledger widen it."""

    from_ms: int
    to_ms: int


def as_json_text(document: Document) -> str:
    return msgspec.json.encode(document, order="deterministic").decode()
