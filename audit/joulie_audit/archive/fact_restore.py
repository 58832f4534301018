"""Restores the facts of an archive by its plan: folded, or as their manifests up to a snapshot."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from joulie_audit.archive.part_tables import SNAPSHOTS, Batch, Outline
from joulie_audit.archive.parts import Archive, Part
from joulie_audit.archive.restore_plan import RestorePlan, Skip, Start, is_start, start_at
from joulie_bus.errors import ArchiveBroken
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Checkpoint, Commit, Poison
from joulie_projections.fold.comparison import DigestComparison
from joulie_projections.fold.joins import Joins
from joulie_projections.fold.manifest import Manifest, rechained
from joulie_projections.fold.quarantine_quota import all_positions
from joulie_projections.fold.sequence import FoldCursor, SequencedBatch, sequence
from joulie_projections.fold.snapshots import frozen_state_of, pack
from joulie_projections.state.rows import Row, cluster_state_of, encode, tables_of
from joulie_projections.state.state import ClusterState
from joulie_projections.store.store import Store
from joulie_projections.twin.row_names import RowName

SNAPSHOT_EVERY = 25_000  # positions
SNAPSHOTS_KEPT = 400
Tell = Callable[[int, int], None]


class FactRestorer:
    def __init__(self, archive: Archive, store: Store, held: Checkpoint, plan: RestorePlan) -> None:
        """`held` is the lease of the empty database."""
        self._archive = archive
        self._store = store
        self._epoch = held.epoch
        self._plan = plan
        self._skips = list(plan.skips)
        self._cluster_state = ClusterState()
        self._kept_at = 0
        self.comparison = DigestComparison()
        self._joins = Joins(held.inputs)
        self._cursor = FoldCursor(held.position, held.inputs, held.digests, held.head)

    @property
    def position(self) -> int:
        return self._cursor.position

    def run(self, tell: Tell | None = None) -> None:
        """Raises ArchiveBroken at facts that fold to another state. `tell` gets the number of
        restored facts and that of all.
        """
        parts = [each for each in self._archive.facts if each[1].first <= self._plan.end]
        for left, (place, part) in zip(range(len(parts), 0, -1), parts, strict=True):
            if tell is not None:
                tell(part.first - 1, self._plan.end)
            if (
                self._skips
                and self._skips[0].first <= part.first
                and part.last < self._skips[0].last
            ):
                without = () if left <= SNAPSHOTS_KEPT else (SNAPSHOTS,)
                outline = self._archive.read_outline(place, part, without)
                self._pass_over(str(place), outline, outline.manifests)
            else:
                self._put(place, part)

    def _put(self, place: Path, part: Part) -> None:
        """A part of which facts are folded."""
        found = self._archive.read_facts(place, part)
        created = {Stream(stream): value for stream, value in part.created.items()}
        aside = _Aside(found.aside)
        outline = Outline(found.manifests, found.aside, found.snapshots, found.lost, found.names)
        passed: list[Manifest] = []
        for batch in found.batches():
            manifest = batch.manifest
            if manifest.p_to > self._plan.end:
                break
            skip = self._skip_at(manifest)
            if skip is None and self._can_resume(outline, manifest):
                self._jump(str(place), outline, manifest)
                continue
            if skip is None:
                self._fold(str(place), batch, created, aside)
                continue
            if manifest.p_to < skip.last:
                passed.append(manifest)
                continue
            self._pass_over(str(place), outline, passed)
            self._jump(str(place), outline, manifest)
            passed = []
        self._pass_over(str(place), outline, passed)

    def _skip_at(self, manifest: Manifest) -> Skip | None:
        while self._skips and self._skips[0].last < manifest.p_from:
            self._skips.pop(0)
        is_inside = bool(self._skips) and self._skips[0].first <= manifest.p_from
        return self._skips[0] if is_inside else None

    def _can_resume(self, part: Outline, manifest: Manifest) -> bool:
        """Whether another fold version left another state, and a snapshot has the recorded one."""
        return not self.comparison.is_recorded and is_start(part, manifest)

    # --- facts that are folded ----------------------------------------------------------------

    def _fold(
        self, place: str, batch: Batch, created: Mapping[Stream, str], aside: "_Aside"
    ) -> None:
        manifest, now = batch.manifest, batch.manifest.committed_at
        self._require_joined(place, manifest)
        cursor, records = self._cursor, batch.records
        done = sequence(self._cluster_state, cursor, records, created, now, aside.positions)
        self._require_recorded(place, done, manifest)
        poison = sorted([*aside.within([manifest]), *done.commit.poison])
        self._store.commit(self._epoch, done.commit._replace(manifest=manifest, poison=poison))
        done.draft.commit()
        self._cursor = done.cursor._replace(head=manifest.head)
        self._keep_snapshot_when_due(now)

    def _require_joined(self, place: str, manifest: Manifest) -> None:
        if what := self._joins.flaw(manifest):
            raise ArchiveBroken(place, what)

    def _require_recorded(self, place: str, done: SequencedBatch, manifest: Manifest) -> None:
        """Raises unless the facts are those of the manifest, and fold to its state."""
        made, end = done.commit.manifest, manifest.p_to
        ours = made._replace(state_digest=manifest.state_digest, fold_version=manifest.fold_version)
        if rechained(ours) != manifest:
            raise ArchiveBroken(place, f"its facts and its manifest at {end} differ")
        positions = end - manifest.p_from + 1
        if not self.comparison.accepts(manifest, made.state_digest, positions):
            raise ArchiveBroken(place, f"its facts fold to another state at {end}")

    def _keep_snapshot_when_due(self, now: int) -> None:
        """Keeps snapshots like the old database, so that time travel does not fold everything."""
        is_due = self.position - self._kept_at >= SNAPSHOT_EVERY
        if is_due and self.comparison.is_recorded:
            self._kept_at = self.position
            made = pack(frozen_state_of(self._cluster_state, self._cursor), now)
            self._store.save_snapshot(self._epoch, made, SNAPSHOTS_KEPT)

    # --- facts that are not -------------------------------------------------------------------

    def _pass_over(self, place: str, part: Outline, manifests: Sequence[Manifest]) -> None:
        """Writes the manifests of whole batches, in one transaction. The rows stay as they are."""
        if not manifests:
            return
        for manifest in manifests:
            self._require_joined(place, manifest)
            if manifest.prev != self._cursor.head or rechained(manifest) != manifest:
                what = f"the manifest at {manifest.p_from} does not match its chain hash"
                raise ArchiveBroken(place, what)
            self._cursor = self._cursor._replace(position=manifest.p_to, head=manifest.head)
        poison, named = _Aside(part.aside).within(manifests), _names_within(part, manifests)
        self._store.append_manifests(self._epoch, manifests, poison, named)
        for snapshot in part.snapshots:
            if manifests[0].p_from <= snapshot.position <= manifests[-1].p_to:
                self._store.save_snapshot(self._epoch, snapshot, SNAPSHOTS_KEPT)

    def _jump(self, place: str, part: Outline, manifest: Manifest) -> None:
        """Continues with the state of the snapshot at this manifest."""
        self._require_joined(place, manifest)
        starts = ((each, start_at(each, manifest)) for each in part.snapshots)
        snapshot, start = next((each, start) for each, start in starts if start is not None)
        self._cluster_state, rows = _replaced(self._cluster_state, start)
        poison, named = _Aside(part.aside).within([manifest]), _names_within(part, [manifest])
        inputs, digests = start.cursor.inputs, start.cursor.digests
        commit = Commit(manifest, rows, inputs, digests, poison, named=named)
        self._store.commit(self._epoch, commit)
        self._store.save_snapshot(self._epoch, snapshot, SNAPSHOTS_KEPT)
        self._cursor, self._kept_at = start.cursor, manifest.p_to
        self.comparison.resume()


class _Aside:
    """The messages of a part that are in quarantine."""

    def __init__(self, aside: Sequence[Poison]) -> None:
        self.positions = all_positions(aside)
        self._aside = sorted(aside)

    def within(self, manifests: Sequence[Manifest]) -> list[Poison]:
        first, last = manifests[0].p_from, manifests[-1].p_to
        return [each for each in self._aside if first <= each.position <= last]


def _names_within(part: Outline, manifests: Sequence[Manifest]) -> list[RowName]:
    first, last = manifests[0].p_from, manifests[-1].p_to
    inside = (each for each in part.names if first <= each.position <= last)
    return [*{each[:2]: each for each in inside}.values()]  # of a row and position the newest


def _replaced(before: ClusterState, start: Start) -> tuple[ClusterState, list[Row]]:
    """The state of a snapshot, and the rows by which it differs from the one before."""
    held = {
        (table, key): encode(state)
        for table, states in tables_of(before).items()
        for key, state in states.items()
    }
    rows = [row for row in start.rows if held.pop((row.table, row.key), None) != row.body]
    rows += [Row(table, key, None) for table, key in held]
    return cluster_state_of(start.rows), rows
