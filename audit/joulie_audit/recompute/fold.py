"""Folds the cluster state again from the facts, position by position.

Compares the result with the manifests: Merkle roots batch by batch, state digests over a stride of
batches, because most rows change in every batch. If the digest of a stride differs, the stride is
folded once more, batch by batch and message by message, to name the first batch that differs. All
batches of a stride are of one fold version.

Of a batch in columns, readings wait until they are needed (`deferred`).
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from joulie_audit.recompute.column_part import ColumnBatch
from joulie_audit.recompute.deferred import DeferredReadings
from joulie_bus.errors import ArchiveBroken
from joulie_bus.streams.records import Record
from joulie_projections.fold.comparison import DigestComparison
from joulie_projections.fold.joins import Joins
from joulie_projections.fold.manifest import Manifest, hash_of_all
from joulie_projections.fold.sequence import FoldCursor, fold
from joulie_projections.state.cards import CardState
from joulie_projections.state.rows import (
    Digests,
    Row,
    changed_rows,
    digests_of,
    empty_digests,
    encode,
    state_digest,
    tables_of,
)
from joulie_projections.state.state import ClusterState, NodeState, State
from joulie_projections.state.state_changes import Change, Draft
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.facility import halls_of

STRIDE = 10_000  # events between two comparisons of state digests
# The same of batches in columns, which keep no records: each comparison hashes every node.
COLUMN_STRIDE = 200_000
Facts = Sequence[Record] | ColumnBatch  # of a batch


class StateFlaw(NamedTuple):
    position: int
    what: str


class Hole(NamedTuple):
    """Positions whose facts were not folded, because some are lost."""

    first: int
    last: int


class FoldedState:
    """A cluster state that advances batch by batch; `settle` at the end compares the rest."""

    def __init__(
        self,
        cluster_state: ClusterState | None = None,
        cursor: FoldCursor | None = None,
        set_aside: Collection[int] = (),
    ) -> None:
        """Positions in `set_aside` are left out, even if this code could read them."""
        self._set_aside = set_aside
        self.comparison = DigestComparison()
        begun = cursor or FoldCursor(0, {}, empty_digests(), b"")
        self._joins = Joins(begun.inputs)
        self.holes: list[Hole] = []
        self.is_known = True  # whether the state at the position is known
        self._begin(cluster_state or ClusterState(), begun.position, begun.digests)

    def _begin(self, cluster_state: ClusterState, position: int, digests: Digests) -> None:
        self._state = cluster_state
        self._deferred = DeferredReadings(cluster_state, self._set_aside, self._keep_before)
        self.position = position
        self.digests = digests  # at the last comparison
        self._digests_are_stale = False  # batches were folded since without updating the digests
        self._values_before: dict[tuple[str, str], State | None] = {}
        self._stride: list[tuple[Manifest, Facts]] = []
        self._twin_columns = TwinColumns.empty()
        self._changed_nodes: dict[str, NodeState | None] = dict(cluster_state.nodes)
        self._changed_cards: dict[str, CardState | None] = dict(cluster_state.gpus)

    def resume(self, recorded: "FoldedState") -> None:
        """Continues from the state that the log recorded at this position."""
        assert recorded.position == self.position
        assert not self._stride
        self.is_known = True
        self._begin(recorded.cluster_state, recorded.position, recorded.digests)
        self.comparison.resume()

    @property
    def cluster_state(self) -> ClusterState:
        self._deferred.settle()
        return self._state

    def skip(self, facts: Facts) -> None:
        """Folds them without comparing them."""
        self._fold(facts)
        self._digests_are_stale = True

    def pass_over(self, facts: Facts, manifest: Manifest) -> None:
        """Folds one whole batch without comparing it."""
        self.skip(facts)
        self._joins.flaw(manifest)
        self.comparison.pass_over(manifest)

    def miss(self, manifest: Manifest) -> list[StateFlaw]:
        """Passes over a batch whose facts are lost. The state is not known until it is resumed."""
        flaws = self.settle()
        first = self.holes.pop().first if not self.is_known else manifest.p_from
        self.holes.append(Hole(first, manifest.p_to))
        self.is_known = False
        self.position = manifest.p_to
        if what := self._joins.flaw(manifest):
            flaws.append(StateFlaw(manifest.p_from, what))
        return flaws

    def advance(self, facts: Facts, manifest: Manifest) -> list[StateFlaw]:
        """Folds one whole batch. A returned flaw may belong to an earlier batch of the stride."""
        flaws: list[StateFlaw] = []
        if what := self._joins.flaw(manifest):
            flaws.append(StateFlaw(manifest.p_from, what))
        if self._stride and self._stride[-1][0].fold_version != manifest.fold_version:
            flaws += self.settle()
        self._renew_digests()
        self._fold(facts)
        self._stride.append((manifest, facts))
        if hash_of_all(_bodies_of(facts)) != manifest.facts_hash:
            span = f"{manifest.p_from} to {manifest.p_to}"
            flaws.append(StateFlaw(manifest.p_to, f"facts at {span} differ"))
        stride = COLUMN_STRIDE if isinstance(facts, ColumnBatch) else STRIDE
        is_long = self.position - self._stride[0][0].p_from >= stride
        if is_long or self.comparison.decides(manifest):
            flaws += self.settle()
        return flaws

    def _renew_digests(self) -> None:
        if self._digests_are_stale:
            self.digests, self._digests_are_stale = digests_of(rows_of(self.cluster_state)), False
            self._values_before.clear()

    def settle(self) -> list[StateFlaw]:
        self._renew_digests()
        if not self._stride:
            return []
        tables = tables_of(self.cluster_state)
        changes = [
            Change(table, key, before, tables[table].get(key))
            for (table, key), before in self._values_before.items()
        ]
        _, after = changed_rows(changes, self.digests, self._state.fingerprints)
        first, last = self._stride[0][0], self._stride[-1][0]
        positions = last.p_to - first.p_from + 1
        is_right = self.comparison.accepts(last, state_digest(after), positions)
        flaws = [] if is_right else [self._pinpoint()]
        self.digests = after
        self._values_before.clear()
        self._stride.clear()
        return flaws

    def twin_columns(self) -> TwinColumns:
        nodes = self._deferred.nodes
        nodes.catch_up()
        self._take_changed_nodes()
        if halls_of(self._state.facilities).names != self._twin_columns.halls.names:
            nodes.settle()  # each node may be in another hall, which is in its state
        followed = self._twin_columns.following(
            self._state, self._changed_nodes, self._changed_cards
        )
        self._twin_columns = nodes.seen_in(followed)
        self._changed_nodes, self._changed_cards = {}, {}
        return self._twin_columns

    def _fold(self, facts: Facts) -> None:
        if not isinstance(facts, ColumnBatch):
            self._fold_messages(facts)
            return
        part, begin, end = facts
        self._deferred.enter(part, begin)
        for first, behind in self._deferred.messages(begin, end):
            self.position = part.first + first - 1
            self._fold_messages(part.records(first, behind))
        self.position = part.first + end - 1

    def _fold_messages(self, records: Sequence[Record]) -> None:
        draft = Draft(self._deferred)
        fold(draft, records, self.position, self._set_aside)
        for change in draft.changed():
            self._keep_before(change.table, change.key, change.before)
        self._take_changed_nodes()
        self._changed_nodes.update(draft.nodes.changes)
        self._changed_cards.update(draft.gpus.changes)
        draft.commit()
        self.position += len(records)

    def _keep_before(self, table: str, key: str, before: State | None) -> None:
        self._values_before.setdefault((table, key), before)

    def _take_changed_nodes(self) -> None:
        """Those that readings have changed until now, before others change them again."""
        self._changed_nodes.update(self._deferred.nodes.changed)
        self._deferred.nodes.changed.clear()

    def _pinpoint(self) -> StateFlaw:
        """The first batch of the stride that gives another state than its manifest."""
        cluster_state, digests = ClusterState(), self.digests
        for table, held in tables_of(cluster_state).items():
            held.update(tables_of(self._state)[table])
        for (table, key), before in self._values_before.items():
            if before is None:
                tables_of(cluster_state)[table].pop(key, None)
            else:
                tables_of(cluster_state)[table][key] = before
        for manifest, facts in self._stride:
            records = facts.records() if isinstance(facts, ColumnBatch) else facts
            draft = Draft(cluster_state)
            fold(draft, records, manifest.p_from - 1, self._set_aside)
            _, digests = changed_rows(draft.changed(), digests)
            draft.commit()
            if state_digest(digests) != manifest.state_digest:
                return StateFlaw(manifest.p_to, f"state at {manifest.p_to} differs")
        for _, facts in self._stride:
            if isinstance(facts, ColumnBatch):
                raise ArchiveBroken(facts.part.place, "its readings are not those of its messages")
        raise AssertionError(
            "folding the stride twice gave different states: the fold is not deterministic"
        )


def _bodies_of(facts: Facts) -> Sequence[bytes]:
    if isinstance(facts, ColumnBatch):
        return facts.bodies
    return [record.data for record in facts]


def rows_of(cluster_state: ClusterState) -> list[Row]:
    return [
        Row(table, key, encode(state))
        for table, held in tables_of(cluster_state).items()
        for key, state in held.items()
    ]
