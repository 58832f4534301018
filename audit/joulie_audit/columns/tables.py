"""The typed tables of an archive, with the type and the meaning of each column.

In: nothing. Out: what writers write, `verify` compares, and docs/reference.md lists.
A value that is not known is null, never a number.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from joulie_audit.columns.arrays import Values

MOST_ROWS = 2_000_000  # of a table in a part: what a reader accepts
MOST_LISTED = (
    100_000_000  # values in the lists of a table of a part: 10,000 decisions of 5,000 nodes
)
Columns = Mapping[str, Sequence[Any]]  # int, float, str, bool, bytes or None; all of one length
TypedColumns = Mapping[str, Values]  # some of them as arrays


class Kind(StrEnum):
    INTEGER = "integer"  # of 64 bits
    NUMBER = "number"
    TEXT = "text"
    FLAG = "boolean"
    TIME = "time"  # in milliseconds, UTC
    # Little endian, one after the other, where a column is no file.
    INT32S = "list of int32"
    INT16S = "list of int16"
    BYTES = "list of uint8"

    @property
    def width(self) -> int:
        """Of one value in a list, in bytes; 0 for other kinds."""
        return {Kind.INT32S: 4, Kind.INT16S: 2, Kind.BYTES: 1}.get(self, 0)


class Column(NamedTuple):
    name: str
    kind: Kind
    meaning: str


class Table(NamedTuple):
    name: str
    of: str  # what one row is
    columns: tuple[Column, ...]

    @property
    def kinds(self) -> dict[str, Kind]:
        return {column.name: column.kind for column in self.columns}

    def filled(self, rows: Iterable[Sequence[Any]]) -> Columns:
        """The columns of these rows, whose values have the order of the columns."""
        names = [column.name for column in self.columns]
        values = list(zip(*rows, strict=True)) or [()] * len(names)
        return dict(zip(names, map(list, values), strict=True))


_POSITION = Column("position", Kind.INTEGER, "the position of the message in the log")
_AT = Column("stored_at", Kind.TIME, "when the broker stored it")
_NODE = Column("node", Kind.TEXT, "the node")

READINGS = Table(
    "readings",
    "a reading of the power of a node",
    (
        *(_POSITION, _AT, _NODE),
        Column("source", Kind.TEXT, "`kepler` if it was measured, else how it was computed"),
        Column("provider", Kind.TEXT, "the program that measured it"),
        Column("power_mw", Kind.INTEGER, "milliwatts at its end"),
        Column("min_mw", Kind.INTEGER, "the least since the reading before"),
        Column("mean_mw", Kind.INTEGER, "the mean since the reading before"),
        Column("max_mw", Kind.INTEGER, "the most since the reading before"),
        Column("counted_from", Kind.INTEGER, "when its counter began, in nanoseconds"),
        Column("energy_uj", Kind.INTEGER, "that counter, in microjoules"),
        Column("late_ms", Kind.INTEGER, "how long it was kept before it was published"),
        Column("life", Kind.TEXT, "the producer and its start: `PRODUCER:BOOT`"),
        Column("number", Kind.INTEGER, "the number of the message in that life"),
        Column("plain", Kind.FLAG, "whether the ledger folds it from these columns"),
    ),
)
CARD_READINGS = Table(
    "card_readings",
    "the power of a card in a reading",
    (
        *(_POSITION, _AT, _NODE),
        Column("card", Kind.TEXT, "its UUID"),
        Column("power_mw", Kind.INTEGER, "milliwatts, a part of those of the node"),
        Column("energy_uj", Kind.INTEGER, "its counter, in microjoules"),
    ),
)
POD_READINGS = Table(
    "pod_readings",
    "the energy of a pod in a reading",
    (
        *(_POSITION, _AT, _NODE),
        Column("pod_uid", Kind.TEXT, "the UID of the pod"),
        Column("energy_uj", Kind.INTEGER, "its counter above idle, in microjoules"),
    ),
)
PODS = Table(
    "pods",
    "an event of a pod",
    (
        *(_POSITION, _AT),
        Column("event", Kind.TEXT, "`pending`, `bound`, `finished` or `gone`"),
        Column("pod_uid", Kind.TEXT, "the UID of the pod"),
        Column("namespace", Kind.TEXT, "its namespace, of `pending` and `bound`"),
        Column("pod", Kind.TEXT, "its name, of `pending` and `bound`"),
        Column("node", Kind.TEXT, "the node, of `bound`"),
        Column("class", Kind.TEXT, "`standard` or `performance`"),
        Column("cpu_milli", Kind.INTEGER, "the cores that it requests, in thousandths"),
        Column("memory_bytes", Kind.INTEGER, "the memory that it requests"),
        Column("gpu_milli", Kind.INTEGER, "the GPUs that it requests, in thousandths"),
        Column("team", Kind.TEXT, "the team in its label"),
        Column("pod_group", Kind.TEXT, "the group that it belongs to"),
    ),
)
PLANS = Table(
    "plans",
    "a step of a plan of the operator",
    (
        *(_POSITION, _AT),
        Column("event", Kind.TEXT, "the kind of step, such as `made` or `sleep-ordered`"),
        Column("plan", Kind.TEXT, "the id of the plan"),
        Column("node", Kind.TEXT, "the node; null for `made`, which begins a plan"),
        Column("because", Kind.TEXT, "the reason"),
        Column("policy", Kind.TEXT, "the policy, of `made`"),
        Column("changes", Kind.INTEGER, "how many changes the plan has, of `made`"),
        Column("dry_run", Kind.FLAG, "whether nothing was changed, of `made`"),
        Column("profile", Kind.TEXT, "the profile that the node is given"),
        Column("cpu_cap_pct", Kind.INTEGER, "the cap of its processors"),
        Column("gpu_cap_pct", Kind.INTEGER, "the cap of its cards"),
    ),
)
DECISIONS = Table(
    "decisions",
    "an entry of the decision log about a pod",
    (
        Column("entry", Kind.INTEGER, "its number"),
        Column("decided_at", Kind.TIME, "when it was decided"),
        Column(
            "kind", Kind.TEXT, "`filter`, `prioritize`, `preempt`, `fallback`, `bind`, `outcome`"
        ),
        Column("event_id", Kind.TEXT, "the id of its message, which names the replica"),
        Column("pod_uid", Kind.TEXT, "the UID of the pod"),
        Column("namespace", Kind.TEXT, "its namespace"),
        Column("pod", Kind.TEXT, "its name"),
        Column("class", Kind.TEXT, "`standard` or `performance`, of answers"),
        Column("view", Kind.INTEGER, "the position of the view that was read"),
        Column("behind_ms", Kind.INTEGER, "how far that view was behind the streams"),
        Column("settings", Kind.TEXT, "the id of the settings in force"),
        Column("candidates", Kind.INTEGER, "how many nodes were in the request"),
        Column("passed", Kind.INTEGER, "how many of them passed or, of `preempt`, were kept"),
        Column("result", Kind.TEXT, "of `bind` the outcome, of `fallback` the answer"),
        Column("reason", Kind.TEXT, "the text in the reply, or why there was a fallback"),
        Column("node", Kind.TEXT, "the best node, of `prioritize`; else the node of the pod"),
        Column("score", Kind.INTEGER, "the score of that node"),
        Column("rank", Kind.INTEGER, "its rank in the answer, of `outcome`; 1 is the best"),
        Column("regret", Kind.INTEGER, "the best score minus this one, of `outcome`"),
        Column("answer", Kind.TEXT, "the `event_id` of the answer, of `outcome`"),
        Column("candidate_rows", Kind.INT32S, "the candidates by their rows; -1 without a row"),
        Column("scores", Kind.INT16S, "their scores, of `prioritize`"),
        Column("verdicts", Kind.BYTES, "0 if they passed or were kept, else why not"),
    ),
)
TERMS = Table(
    "terms",
    "a term that is not 0, of the score of one of the best nodes",
    (
        Column("entry", Kind.INTEGER, "the entry in `decisions`"),
        Column("place", Kind.INTEGER, "1 for the best node of the answer"),
        _NODE,
        Column("term", Kind.TEXT, "the name of the term; `score` is the sum"),
        Column("value", Kind.NUMBER, "its value, in the unit of the term"),
    ),
)
OF_FACTS = (READINGS, CARD_READINGS, POD_READINGS, PODS, PLANS)
OF_LOG = (DECISIONS, TERMS)
KINDS = {table.name: table.kinds for table in (*OF_FACTS, *OF_LOG)}
