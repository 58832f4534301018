"""Bugs that a test puts into the product, to see that the simulation notices each of them.

Most are noticed by what the models around the product know. `mends.py` has mends that can be taken
out.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from joulie_audit.ledger import follow
from joulie_audit.ledger.follow import LedgerFollower
from joulie_audit.ledger.held_facts import Piece
from joulie_bus.events import PodGone
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.energy import meters
from joulie_projections.fold import comparison, node_facts, pod_facts, registry, sequence
from joulie_projections.projector.projector import Projector
from joulie_projections.state import rows
from joulie_projections.state.rows import Row
from joulie_projections.state.state import ClusterState, PodState

Patch = pytest.MonkeyPatch


def _keep_deleted_pods(patch: Patch) -> None:
    """The fold ignores that a pod is gone."""
    evolve: Any = pod_facts.evolve_pod

    def evolved(draft: Any, fact: Any, at: int) -> None:
        if not isinstance(fact, PodGone):
            evolve(draft, fact, at)

    patch.setattr(registry, "evolve_pod", evolved)


def _count_ended_pods(patch: Patch) -> None:
    """A node keeps the count of the pods that ended on it."""

    def finished(draft: Any, uid: str, _: int) -> None:
        known: PodState | None = draft.pods.get(uid)
        if known is not None:
            draft.pods.put(uid, known)

    patch.setattr(pod_facts, "_pod_finished", finished)


def _keep_the_first_reading(patch: Patch) -> None:
    """A reading does not replace the one before it."""
    patch.setattr(node_facts, "with_sample", lambda samples, new: samples or (new,))


def _pass_over_a_reading(patch: Patch) -> None:
    """A projector that takes over passes over the first reading that it gets."""
    merged: Any = vars(Projector)["_in_merge_order"]

    def without_the_first(self: Any, readers: Any) -> list[Record]:
        records: list[Record] = merged(self, readers)
        first = next((each for each in records if each.stream is Stream.TEL), None)
        if first is None or getattr(self, "has_passed", self._cursor.position == 0):
            return records
        self.has_passed = True
        return [each for each in records if each is not first]

    patch.setattr(Projector, "_in_merge_order", without_the_first)


def _fold_repeated_messages(patch: Patch) -> None:
    """A message that a producer sent again, and the broker stored again, is folded again."""
    is_new: Any = vars(sequence)["is_new"]

    def counted(draft: Any, origin: Any) -> bool:
        is_new(draft, origin)
        return True

    patch.setattr(sequence, "is_new", counted)


def _keep_deleted_rows(patch: Patch) -> None:
    """A view keeps rows that a change deletes."""
    apply_rows = rows.apply_rows

    def without_deletions(cluster_state: ClusterState, found: Iterable[Row]) -> None:
        apply_rows(cluster_state, [each for each in found if each.body is not None])

    patch.setattr(rows, "apply_rows", without_deletions)


def _count_the_later_power(patch: Patch) -> None:
    """The ledger counts the power of the later reading for the time between two."""
    patch.setattr(meters, "_by_power", lambda _, new, span: new.mw * span)


def _compare_other_versions(patch: Patch) -> None:
    """States that another version of the folds left are compared as if they were ours."""
    patch.setattr(comparison, "_is_ours", lambda _: True)


def _stop_at_a_hole(patch: Patch) -> None:
    """The ledger does not pass over messages that were never archived."""

    async def whole(facts: Any, manifest: Any) -> list[Piece]:
        return [Piece(manifest.p_from - 1, await facts.of(manifest))]

    patch.setattr(follow, "pieces_of", whole)


def _keep_the_state_of_the_ledger(patch: Patch) -> None:
    """The ledger folds on in memory after the database refused a pass, or was set back."""
    patch.setattr(LedgerFollower, "reload", lambda _: None)


def _count_an_hour_again(patch: Patch) -> None:
    """The sums of an hour of the ledger are those of all hours before it, too."""
    patch.setattr(meters.Meters, "clear", lambda *_: None)


# The bugs, each with a part of what the simulation reports, where that is always the same.
BUGS: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "a pod that is gone stays": (_keep_deleted_pods, "at the API server it does not exist"),
    "a node counts pods that ended": (_count_ended_pods, "pods; at the API server it has"),
    "a reading does not replace another": (_keep_the_first_reading, "its agent told"),
    "a takeover passes over a reading": (_pass_over_a_reading, ""),
    "a repeated message is folded again": (_fold_repeated_messages, "were left out as repeated"),
    "the ledger counts another power": (_count_the_later_power, "the ledger counts"),
    "a view keeps deleted rows": (_keep_deleted_rows, "differs from the rows"),
    "states of another version are compared": (_compare_other_versions, "replay: "),
    "the ledger stops at lost messages": (_stop_at_a_hole, "the ledger is at"),
    "the ledger keeps a state that was refused": (_keep_the_state_of_the_ledger, "the ledger"),
    "an hour of the ledger is counted again": (_count_an_hour_again, "the ledger counts"),
}
