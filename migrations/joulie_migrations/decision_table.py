"""The table of decisions in SQLite: bodies, their hash chain, and columns generated from them.

A body begins with a header. Its first numbers give the end of each field, so that SQL expressions
can extract a column; a malformed header, or none, gives values without an error. Later steps change
the table by their own statements; this stays as released.
"""

MARK = "@"  # the first character of a header; no message begins with it
WIDTH, FIELDS = 4, 5  # digits of a number, and their count; the header ends with the sixth field
FIRST = 1 + FIELDS * WIDTH  # characters before the first field


def _end(header: str, field: int) -> str:
    return f"CAST(substr({header}, {2 + (field - 1) * WIDTH}, {WIDTH}) AS INTEGER)"


def _text(header: str, field: int) -> str:
    start = f"{FIRST}" if field == 1 else _end(header, field - 1)
    return f"CAST(substr({header}, {start} + 1, {_end(header, field)} - {start} - 1) AS TEXT)"


def _number(header: str, field: int) -> str:
    """The leading digits of the field."""
    return f"CAST(substr({header}, {_end(header, field - 1)} + 1, 20) AS INTEGER)"


def _column(name: str, kind: str, field: int, otherwise: str) -> str:
    cut = _text if kind == "TEXT" else _number
    made = (
        f"CASE WHEN substr(body, 1, 1) = x'{MARK.encode().hex()}' THEN {cut('body', field)} "
        f"ELSE {otherwise} END"
    )
    return f"{name} {kind} NOT NULL GENERATED ALWAYS AS ({made}) VIRTUAL"


_COLUMNS = (
    "pos INTEGER NOT NULL PRIMARY KEY",
    "body BLOB NOT NULL",
    "prev BLOB NOT NULL",
    "hash BLOB NOT NULL",
    _column("event_id", "TEXT", 1, "'?' || pos"),
    _column("kind", "TEXT", 2, "''"),
    _column("pod_uid", "TEXT", 3, "''"),
    _column("pod", "TEXT", 4, "''"),
    _column("view_position", "BIGINT", 5, "0"),
    _column("decided_at", "BIGINT", 6, "0"),
    "UNIQUE (event_id)",
)
TABLE = f"CREATE TABLE decision ({', '.join(_COLUMNS)})"
INDEXES = {
    "decision_by_pod_uid": "decision (pod_uid)",
    "decision_by_pod": "decision (pod)",
    "decision_by_view": "decision (view_position)",
    "decision_by_time": "decision (decided_at, pos)",
}
