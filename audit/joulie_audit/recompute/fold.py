"""Folds the cluster state again from the facts, position by position.

Compares the result with the manifests: Merkle roots batch by batch, state digests over a stride of
batches, because most rows change in every batch. If the digest of a stride differs, the stride is
folded once more, batch by batch, to name the first batch that differs.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

from joulie_bus.streams.records import Record
from joulie_projections.fold.manifest import Manifest, merkle_root
from joulie_projections.fold.sequence import fold
from joulie_projections.state.cards import CardState
from joulie_projections.state.rows import (
    Digests,
    Row,
    changed_rows,
    digests_of,
    encode,
    state_digest,
    tables_of,
)
from joulie_projections.state.state import ClusterState, NodeState, State
from joulie_projections.state.state_changes import Change, Draft
from joulie_projections.twin.columns import TwinColumns

STRIDE = 10_000  # events between two comparisons of state digests


class StateFlaw(NamedTuple):
    position: int
    what: str


class FoldedState:
    """A cluster state that advances batch by batch; `settle` at the end compares the rest."""

    def __init__(
        self,
        cluster_state: ClusterState | None = None,
        position: int = 0,
        digests: Digests | None = None,
        set_aside: Container[int] = (),
    ) -> None:
        """Positions in `set_aside` are left out, even if this code could read them."""
        self.cluster_state = cluster_state or ClusterState()
        self._set_aside = set_aside
        self.position = position
        self.digests = digests or digests_of(rows_of(self.cluster_state))  # at the last comparison
        self._digests_are_stale = False  # batches were folded since without updating the digests
        self._values_before: dict[tuple[str, str], State | None] = {}
        self._stride: list[tuple[Manifest, Sequence[Record]]] = []
        self._twin_columns = TwinColumns.empty()
        self._changed_nodes: dict[str, NodeState | None] = dict(self.cluster_state.nodes)
        self._changed_cards: dict[str, CardState | None] = dict(self.cluster_state.gpus)

    def skip(self, records: Sequence[Record]) -> None:
        """Folds records without comparing them."""
        self._fold(records).commit()
        self._digests_are_stale = True

    def advance(self, records: Sequence[Record], manifest: Manifest) -> list[StateFlaw]:
        """Folds one whole batch. A returned flaw may belong to an earlier batch of the stride."""
        if self._digests_are_stale:
            self.digests, self._digests_are_stale = digests_of(rows_of(self.cluster_state)), False
        draft = self._fold(records)
        for change in draft.changed():
            self._values_before.setdefault((change.table, change.key), change.before)
        draft.commit()
        self._stride.append((manifest, records))
        flaws: list[StateFlaw] = []
        if merkle_root([record.data for record in records]) != manifest.merkle_root:
            span = f"{manifest.p_from} to {manifest.p_to}"
            flaws.append(StateFlaw(manifest.p_to, f"facts at {span} differ"))
        if self.position - self._stride[0][0].p_from >= STRIDE:
            flaws += self.settle()
        return flaws

    def settle(self) -> list[StateFlaw]:
        if self._digests_are_stale:
            self.digests, self._digests_are_stale = digests_of(rows_of(self.cluster_state)), False
        if not self._stride:
            return []
        tables = tables_of(self.cluster_state)
        changes = [
            Change(table, key, before, tables[table].get(key))
            for (table, key), before in self._values_before.items()
        ]
        _, after = changed_rows(changes, self.digests)
        is_right = state_digest(after) == self._stride[-1][0].state_digest
        flaws = [] if is_right else [self._pinpoint()]
        self.digests = after
        self._values_before.clear()
        self._stride.clear()
        return flaws

    def twin_columns(self) -> TwinColumns:
        self._twin_columns = self._twin_columns.following(
            self.cluster_state, self._changed_nodes, self._changed_cards
        )
        self._changed_nodes, self._changed_cards = {}, {}
        return self._twin_columns

    def _fold(self, records: Sequence[Record]) -> Draft:
        draft = Draft(self.cluster_state)
        fold(draft, records, self.position, self._set_aside)
        self._changed_nodes.update(draft.nodes.changes)
        self._changed_cards.update(draft.gpus.changes)
        self.position += len(records)
        return draft

    def _pinpoint(self) -> StateFlaw:
        """The first batch of the stride that gives another state than its manifest."""
        cluster_state, digests = ClusterState(), self.digests
        for table, held in tables_of(cluster_state).items():
            held.update(tables_of(self.cluster_state)[table])
        for (table, key), before in self._values_before.items():
            if before is None:
                tables_of(cluster_state)[table].pop(key, None)
            else:
                tables_of(cluster_state)[table][key] = before
        for manifest, records in self._stride:
            draft = Draft(cluster_state)
            fold(draft, records, manifest.p_from - 1, self._set_aside)
            _, digests = changed_rows(draft.changed(), digests)
            draft.commit()
            if state_digest(digests) != manifest.state_digest:
                return StateFlaw(manifest.p_to, f"state at {manifest.p_to} differs")
        raise AssertionError(
            "folding the stride twice gave different states: the fold is not deterministic"
        )


def rows_of(cluster_state: ClusterState) -> list[Row]:
    return [
        Row(table, key, encode(state))
        for table, held in tables_of(cluster_state).items()
        for key, state in held.items()
    ]
