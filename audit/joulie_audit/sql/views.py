"""What a query can name: the typed tables of the log, the ledger, and views that join them."""

from collections.abc import Iterable
from typing import NamedTuple

from joulie_audit.columns.tables import OF_FACTS, OF_LOG, Column, Kind, Table

NAMES = Table(
    "names",
    "a row of candidates that was given to a node",
    (
        Column("position", Kind.INTEGER, "from this position on"),
        Column("ordinal", Kind.INTEGER, "the row, as `candidate_rows` have it"),
        Column("name", Kind.TEXT, "the node"),
    ),
)

_NODE = Column("node", Kind.TEXT, "the node")
_INTERVAL = (
    Column("grain", Kind.TEXT, "`hour` or `day`; recent days are kept by hour"),
    Column("begins_at", Kind.TIME, "when the interval begins"),
    Column("ends_at", Kind.TIME, "when it ends; the running one is not complete"),
)
_AMOUNTS = (
    Column("pods_kwh", Kind.NUMBER, "above idle, of pods"),
    Column("idle_kwh", Kind.NUMBER, "idle power; of a pod its share"),
)
_MODELLED = Column("modelled_kwh", Kind.NUMBER, "the part of both that no meter measured")
ENERGY = Table(
    "energy",
    "the energy of a node in an interval, while one plan was in force",
    (
        *_INTERVAL,
        _NODE,
        Column("plan", Kind.TEXT, "the plan that last changed the node"),
        *_AMOUNTS,
        _MODELLED,
        Column("unknown_kwh", Kind.NUMBER, "an estimate over gaps; part of no other figure"),
    ),
)
POD_ENERGY = Table(
    "pod_energy",
    "the energy of a pod in an interval",
    (
        *_INTERVAL,
        Column("pod_uid", Kind.TEXT, "the UID of the pod"),
        Column("namespace", Kind.TEXT, "its namespace"),
        Column("pod", Kind.TEXT, "its name"),
        Column("class", Kind.TEXT, "`standard` or `performance`"),
        _NODE,
        *_AMOUNTS,
    ),
)
CARD_ENERGY = Table(
    "card_energy",
    "the energy of a card in an interval, a part of that of its node",
    (
        *_INTERVAL,
        _NODE,
        Column("card", Kind.TEXT, "its UUID"),
        *_AMOUNTS,
        _MODELLED,
    ),
)
VERDICTS = Table(
    "verdict_words",
    "a reason for which a rule refuses a node",
    (
        Column("verdict", Kind.INTEGER, "its code, as `verdicts` have it"),
        Column("words", Kind.TEXT, "what it means"),
    ),
)
OF_LEDGER = (ENERGY, POD_ENERGY, CARD_ENERGY)
STORED = (*OF_FACTS, NAMES, *OF_LOG, *OF_LEDGER, VERDICTS)


class QueryView(NamedTuple):
    """A query over stored tables."""

    name: str
    of: str  # what one row is
    needs: tuple[str, ...]
    query: str


def _of_candidates(kind: str, values: str, value: str) -> str:
    """The entries of a kind, a row for each candidate with its value, and the node that had its row
    in the view that was read."""
    return f"""
        FROM (SELECT entry, decided_at, pod_uid, namespace, pod, view,
                     unnest(candidate_rows) AS ordinal, unnest({values}) AS {value}
              FROM decisions WHERE kind = '{kind}') AS candidates
        ASOF LEFT JOIN names
          ON candidates.ordinal = names.ordinal AND candidates.view >= names.position"""


VIEWS = (
    QueryView(
        "scores",
        "a candidate of an answer to prioritize, with its score",
        ("decisions", "names"),
        f"""
        SELECT entry, decided_at, pod_uid, namespace, pod, names.name AS node, score
        {_of_candidates("prioritize", "scores", "score")}""",
    ),
    QueryView(
        "refusals",
        "a node that a filter refused, with the reason",
        ("decisions", "names", "verdict_words"),
        f"""
        SELECT entry, decided_at, pod_uid, namespace, pod, names.name AS node,
               coalesce(words, 'refused with code ' || candidates.verdict) AS reason
        {_of_candidates("filter", "verdicts", "verdict")}
        LEFT JOIN verdict_words ON verdict_words.verdict = candidates.verdict
        WHERE candidates.verdict <> 0""",
    ),
    QueryView(
        "pod_lives",
        "a pod, from its creation to its end",
        ("pods",),
        """
        SELECT pod_uid, any_value(namespace) AS namespace, any_value(pod) AS pod,
               any_value(class) AS class, any_value(cpu_milli) AS cpu_milli,
               any_value(memory_bytes) AS memory_bytes, any_value(gpu_milli) AS gpu_milli,
               any_value(team) AS team,
               last(node ORDER BY position) FILTER (event = 'bound') AS node,
               min(stored_at) FILTER (event = 'pending') AS pending_at,
               min(stored_at) FILTER (event = 'bound') AS bound_at,
               min(stored_at) FILTER (event IN ('finished', 'gone')) AS ended_at,
               (epoch_ms(bound_at) - epoch_ms(pending_at)) / 1000 AS waited_s
        FROM pods GROUP BY pod_uid""",
    ),
    QueryView(
        "nodes",
        "a node with its readings",
        ("readings",),
        """
        SELECT node, count(*) AS readings, min(stored_at) AS first_at, max(stored_at) AS last_at,
               last(source ORDER BY position) AS source,
               last(power_mw ORDER BY position) / 1000 AS newest_w,
               min(power_mw) / 1000 AS least_w, avg(power_mw) / 1000 AS mean_w,
               max(power_mw) / 1000 AS most_w
        FROM readings GROUP BY node""",
    ),
)
_SQL_TYPES = {
    Kind.INTEGER: "BIGINT",
    Kind.NUMBER: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.FLAG: "BOOLEAN",
    Kind.TIME: "TIMESTAMPTZ",
    Kind.INT32S: "INTEGER[]",
    Kind.INT16S: "SMALLINT[]",
    Kind.BYTES: "UTINYINT[]",
}


def empty(table: Table) -> str:
    """A statement that makes the table without rows."""
    columns = (f'"{column.name}" {_SQL_TYPES[column.kind]}' for column in table.columns)
    return f"CREATE TABLE {table.name} ({', '.join(columns)})"


def needed(names: Iterable[str]) -> frozenset[str]:
    """The stored tables that a query needs which names these."""
    of_views = {view.name: view.needs for view in VIEWS}
    stored = {table.name for table in STORED}
    return frozenset(each for name in names for each in of_views.get(name, (name,))) & stored
