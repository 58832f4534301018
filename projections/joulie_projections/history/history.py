"""Read-only queries on the history in the database, for the audit, the console and the CLI."""

import contextlib
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    func,
    literal_column,
    or_,
    select,
    text,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from joulie_bus.errors import Unreadable
from joulie_bus.events import (
    FilterDecided,
    PreemptDecided,
    PrioritizeDecided,
    SettingsDeclared,
    StateSetBack,
)
from joulie_projections.chain.cut_edge import edge_of
from joulie_projections.chain.entry import EntryFields, header_of, message_in
from joulie_projections.chain.head import Head, head_in
from joulie_projections.chain.merkle import Edge
from joulie_projections.decision_log import foreign
from joulie_projections.decision_log.foreign import ForeignRow
from joulie_projections.decision_log.position import decision_input, recorded_end
from joulie_projections.decision_log.refusals import (
    NewestAnswer,
    newest_answers_in,
    refusals_in,
)
from joulie_projections.fold.commit import Checkpoint, Cut, Input, Poison, Snapshot
from joulie_projections.fold.manifest import CODE_VERSION, Manifest, Range
from joulie_projections.fold.quarantine_quota import all_positions
from joulie_projections.pods.refusal import Refusal
from joulie_projections.state import rows
from joulie_projections.state.state import ClusterState
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.row_name_table import changes_after, names_between
from joulie_projections.store.store import read_checkpoint, read_cut, read_cuts, read_rows
from joulie_projections.store.tables import (
    batch,
    cosigned,
    decision,
    head,
    outcome_due,
    quarantine,
    rebuilt,
    snapshot,
    tree_tile,
)
from joulie_projections.twin.row_names import RowName, RowNames

PAGE = 1000  # rows in memory while a long table is read
FEW = 64  # rows read at once where the caller decides how many it takes
NEWEST = 2**63 - 1  # no upper bound
MAX_TIME_LOOKUP = 10_000  # entries that a query looks up by time before it scans the log instead
ANSWERS = (FilterDecided.TYPE, PrioritizeDecided.TYPE)
RECOMPUTED = (*ANSWERS, PreemptDecided.TYPE)


class StoredEntry(NamedTuple):
    """One row of the decision log."""

    pos: int
    event_id: str
    kind: str
    pod_uid: str
    pod: str
    view_position: int
    decided_at: int
    body: bytes
    prev: bytes
    hash: bytes

    @property
    def fields(self) -> EntryFields:
        return EntryFields(*self[1:7])

    @property
    def message(self) -> bytes:
        return message_in(self.body)


class EntryId(NamedTuple):
    pos: int
    event_id: str
    kind: str


EntryCheck: TypeAlias = Callable[
    [int, bytes, bytes, bytes], bool
]  # position, body, previous hash, hash


class EntryQuery(NamedTuple):
    """A query for entries; empty fields match everything."""

    pod: str = ""  # namespace/name, a uid, or a name alone
    pod_uid: str = ""
    namespace: str = ""
    kinds: Sequence[str] = ()
    since: int | None = None  # bounds of `decided_at`, both inclusive
    until: int | None = None
    after: int = 0  # position of an entry


class Counts(NamedTuple):
    entries: int
    answers: int
    signed_to: int
    quarantined: int
    committed_at: int | None


@lru_cache(maxsize=16)
def _reader(place: Place) -> Engine:
    """Kept for the statements that it has compiled. It keeps no connection."""
    return database.reader(place, NullPool)


class History:
    """One snapshot of the database: all queries see the same position.

    Entries behind the end that the writer of the log announced are no part of it.
    """

    def __init__(self, db: Connection, since: int = 0) -> None:
        """`since` is the first entry to return: a trim may have left older ones before its cut."""
        self._db = db
        self._first = since

    @cached_property
    def _shown(self) -> ColumnElement[bool]:
        return decision.c.pos.between(self._first, self.recorded_end)

    @classmethod
    @contextlib.contextmanager
    def of(cls, place: Place) -> Generator["History", None, None]:
        with database.connection_of(_reader(place)) as db, db.begin():
            yield cls(db)

    @classmethod
    @contextlib.contextmanager
    def readable(cls, place: Place) -> Generator["History", None, None]:
        """Like `of`, but raises Unreadable if the database fails, for callers that continue."""
        try:
            with cls.of(place) as history:
                yield history
        except SQLAlchemyError as error:
            raise Unreadable(
                database.without_password(place), str(error).splitlines()[0]
            ) from error

    @classmethod
    @contextlib.contextmanager
    def on(cls, engine: Engine) -> Generator["History", None, None]:
        with engine.connect() as db, db.begin():
            yield cls(db)

    @property
    def connection(self) -> Connection:
        """For another history on the same snapshot."""
        return self._db

    def cut(self) -> Cut | None:
        """The newest cut. Rows before it may be missing; an archive has them."""
        return read_cut(self._db)

    def entries(self, first: int = 1, last: int = NEWEST) -> Iterator[StoredEntry]:
        """The entries of the chain. Settings before the cut are kept, but not part of the chain."""
        held = self.cut()
        begin = max(first, held.pos) if held else first
        query = select(decision).where(decision.c.pos.between(begin, last), self._shown)
        return self._logged(query.order_by(decision.c.pos))

    def check_entries(self, first: int, last: int, look: EntryCheck) -> None:
        """Calls `look` with position, body, previous hash and hash of each entry until it fails.

        SQLite calls `look` itself, which is faster than fetching millions of rows. In PostgreSQL
        a difference between columns and header ends the check, too.
        """
        last = min(last, self.recorded_end)
        if self._has_generated_columns():
            self._check_in_sqlite(first, last, look)
            return
        kept = (*_LINKS, *_FOUND_BY)
        query = select(*kept).where(decision.c.pos.between(first, last)).order_by(decision.c.pos)
        for row in self._paged(query):
            link, fields = row[: len(_LINKS)], EntryFields._make(row[len(_LINKS) :])
            if not row.body.startswith(header_of(fields)) or not look(*link):
                return

    def _check_in_sqlite(self, first: int, last: int, look: EntryCheck) -> None:
        db = self._db.connection.driver_connection
        assert db is not None
        raised: list[BaseException] = []  # SQLite hides it

        def recorded(pos: int, body: bytes, prev: bytes, digest: bytes) -> bool:
            try:
                return look(pos, body, prev, digest)
            except BaseException as error:
                raised.append(error)
                raise

        db.create_function("is_right", len(_LINKS), recorded)
        try:
            db.execute(_REFUSED, (first, last)).fetchone()
        except sqlite3.Error:
            # A detailed verification reports an error of the database again, and a value that is
            # not bytes, on which `look` fails.
            if raised and not self._has_odd_value(first, last):
                raise raised[0] from None

    def _has_odd_value(self, first: int, last: int) -> bool:
        kinds = [func.typeof(column) != "blob" for column in _LINKS[1:]]
        odd = select(decision.c.pos).where(decision.c.pos.between(first, last), or_(*kinds))
        return self._db.scalar(odd.limit(1)) is not None

    def generated_columns(self) -> str | None:
        """The SQL of the table that generates columns; None if the columns are stored."""
        if not self._has_generated_columns():
            return None
        made = text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name")
        return self._db.scalar(made, {"name": decision.name}) or ""

    def _has_generated_columns(self) -> bool:
        return self._db.dialect.name == "sqlite"

    def find(self, query: EntryQuery, limit: int | None = None) -> Iterator[StoredEntry]:
        """Newest first."""
        later = decision.c.pos > query.after
        found = select(decision).where(later, self._shown, *self._all_of(query))
        return self._logged(found.order_by(decision.c.pos.desc()).limit(limit))

    def pod_names(self, limit: int) -> list[str]:
        """Pods with decisions, newest first."""
        named = select(decision.c.pod).where(decision.c.pod != "", self._shown)
        newest = named.group_by(decision.c.pod)
        return list(self._db.scalars(newest.order_by(func.max(decision.c.pos).desc()).limit(limit)))

    def answers_by_view(self, first: int = 0, last: int = NEWEST) -> Iterator[StoredEntry]:
        """Answers that can be recomputed, ordered by the position of their view."""
        answers = select(decision).where(
            decision.c.kind.in_(RECOMPUTED),
            decision.c.view_position.between(first, last),
            self._shown,
        )
        return self._logged(answers.order_by(decision.c.view_position, decision.c.pos))

    def count_answers(self, first: int = 0, last: int = NEWEST) -> int:
        views = decision.c.view_position.between(first, last)
        counted = select(func.count()).where(decision.c.kind.in_(RECOMPUTED), views, self._shown)
        return self._db.scalar(counted) or 0

    def filters(self) -> Iterator[StoredEntry]:
        of_filter = decision.c.kind == FilterDecided.TYPE
        return self._logged(select(decision).where(of_filter, self._shown))

    def asked_again(self, last: int) -> set[str]:
        """The uids of pods for which the filter was asked more than once up to this entry."""
        of_filter = decision.c.kind == FilterDecided.TYPE, decision.c.pos <= last, self._shown
        uids = select(decision.c.pod_uid).where(*of_filter).group_by(decision.c.pod_uid)
        return set(self._db.scalars(uids.having(func.count() > 1)))

    def declarations(self, after: int = 0) -> Iterator[StoredEntry]:
        return self._about_no_pod(SettingsDeclared.TYPE, after)

    def set_backs(self) -> Iterator[StoredEntry]:
        """The entries that record that the database lost its newest commits."""
        return self._about_no_pod(StateSetBack.TYPE)

    def _about_no_pod(self, kind: str, after: int = 0) -> Iterator[StoredEntry]:
        about_no_pod = decision.c.pod_uid == "", decision.c.kind == kind
        following = select(decision).where(*about_no_pod, decision.c.pos > after, self._shown)
        return self._logged(following.order_by(decision.c.pos))

    def tip(self) -> int:
        """The position of the newest entry; 0 if there is none."""
        return self._db.scalar(select(func.max(decision.c.pos)).where(self._shown)) or 0

    @cached_property
    def recorded_end(self) -> int:
        """The position of the newest entry according to the checkpoint of its writer."""
        return recorded_end(self._db)

    @cached_property
    def _committed_to(self) -> int:
        """The last position of the facts; manifests behind it are of other programs."""
        found = read_checkpoint(self._db)
        return found.position if found is not None else NEWEST

    def manifests_behind(self) -> int:
        """Manifests behind the last position: no projector wrote them."""
        behind = select(func.count()).where(batch.c.p_to > self._committed_to)
        return self._db.scalar(behind) or 0

    def rows_behind(self) -> int:
        """Rows behind the end of the log: its writer takes none of them over."""
        behind = select(func.count()).where(decision.c.pos > self.recorded_end)
        return self._db.scalar(behind) or 0

    def last_row(self) -> int:
        """The position of the last row, in the log or behind its end."""
        return self._db.scalar(select(func.max(decision.c.pos))) or 0

    def foreign_rows(self, limit: int) -> tuple[int, list[ForeignRow]]:
        """Rows that the writer of the log did not write and moved away: their number, and the first
        ones."""
        return foreign.count(self._db), foreign.first_rows(self._db, limit)

    def entry(self, pos: int) -> StoredEntry | None:
        here = select(decision).where(decision.c.pos == pos, self._shown)
        return next(self._logged(here), None)

    def entries_of(self, event_ids: Sequence[str], last: int) -> dict[str, StoredEntry]:
        """The entries with these ids, up to an entry."""
        found: dict[str, StoredEntry] = {}
        for at in range(0, len(event_ids), PAGE):
            ids = event_ids[at : at + PAGE]
            mine = decision.c.event_id.in_(ids) & (decision.c.pos <= last)
            query = select(decision).where(mine, self._shown)
            found |= {entry.event_id: entry for entry in self._logged(query)}
        return found

    def position_of(self, event_id: str) -> int | None:
        """The position of the entry with the event id."""
        found: int | None = self._db.scalar(
            select(decision.c.pos).where(decision.c.event_id == event_id, self._shown)
        )
        return found

    def entry_ids(self, first: int, last: int) -> list[EntryId]:
        columns = decision.c.pos, decision.c.event_id, decision.c.kind
        between = decision.c.pos.between(first, last)
        found = select(*columns).where(between, self._shown).order_by(decision.c.pos)
        return list(map(EntryId._make, self._db.execute(found)))

    def decisions_read(self) -> Input:
        """How far the stream of decisions was read."""
        return decision_input(self._db)

    def entries_after(self, pos: int, limit: int) -> list[StoredEntry]:
        following = select(decision).where(decision.c.pos > pos, self._shown)
        return list(self._logged(following.order_by(decision.c.pos).limit(limit)))

    def entries_before(self, pos: int, query: EntryQuery) -> Iterator[StoredEntry]:
        """Newest first, read lazily."""
        earlier = select(decision).where(decision.c.pos < pos, self._shown, *self._all_of(query))
        # Callers take a few: what the database returns at once, it has read and copied.
        return self._logged(earlier.order_by(decision.c.pos.desc()), FEW)

    def _all_of(self, query: EntryQuery) -> Iterator[ColumnElement[bool]]:
        """The conditions of the query; for few entries also the range of their positions.

        The range limits the scan. Replicas ship late, so entries are not in the order of time.
        """
        yield from _conditions(query)
        if query.since is None:
            return
        found = select(decision.c.pos).where(*_between(decision.c.decided_at, query))
        inside = found.limit(MAX_TIME_LOOKUP + 1).subquery().c.pos
        count, first, last = self._db.execute(
            select(func.count(inside), func.min(inside), func.max(inside))
        ).one()
        if count <= MAX_TIME_LOOKUP:
            yield decision.c.pos.between(first or 0, last or 0)

    def newest_answers(self, count: int) -> Sequence[StoredEntry]:
        answers = select(decision).where(decision.c.kind.in_(ANSWERS), self._shown)
        return list(self._logged(answers.order_by(decision.c.pos.desc()).limit(count)))

    # Any program with the right to insert can add a head: the ring tells which the log signed.

    def count_heads(self) -> int:
        """Rows, also those that hold no head."""
        return self._db.scalar(select(func.count()).where(head.c.pos >= self._first)) or 0

    def heads(self) -> list[Head]:
        return list(self._heads(select(head.c.note).order_by(head.c.pos)))

    def heads_after(self, pos: int) -> list[Head]:
        later = select(head.c.note).where(head.c.pos > pos)
        return list(self._heads(later.order_by(head.c.pos)))

    def heads_before(self, pos: int) -> Iterator[Head]:
        """Newest first, read lazily."""
        earlier = select(head.c.note).where(head.c.pos < pos)
        return self._heads(earlier.order_by(head.c.pos.desc()))

    def _heads(self, notes: Select[Any]) -> Iterator[Head]:
        made = (head_in(row.note) for row in self._paged(notes, FEW))
        return (each for each in made if each is not None)

    # --- the Merkle tree --------------------------------------------------------------------------

    def hashes(self, first: int, last: int) -> list[bytes]:
        """The hashes of entries: the leaves of the tree."""
        between = decision.c.pos.between(first, last)
        return list(
            self._db.scalars(select(decision.c.hash).where(between).order_by(decision.c.pos))
        )

    def tree_tiles(self) -> list[bytes]:
        return list(self._db.scalars(select(tree_tile.c.root).order_by(tree_tile.c.number)))

    def tree_edge(self, tiles: Sequence[bytes]) -> Edge:
        """The tree at the newest cut: entries before it are gone."""
        return edge_of(read_cuts(self._db), tiles)

    def cosigned(self) -> list[bytes]:
        """The newest checkpoint that each witness cosigned, as notes."""
        return list(self._db.scalars(select(cosigned.c.note).order_by(cosigned.c.witness)))

    # --- manifests --------------------------------------------------------------------------------

    def manifests(self, first: int = 1, last: int = NEWEST) -> Iterator[Manifest]:
        """The manifests that contain a position of the range."""
        touching = select(batch).where(
            batch.c.p_to.between(first, self._committed_to), batch.c.p_from <= last
        )
        return map(_manifest, self._paged(touching.order_by(batch.c.p_to)))

    def manifests_back(self, last: int = NEWEST) -> Iterator[Manifest]:
        """Newest first; the first one may extend beyond `last`."""
        holding = select(func.min(batch.c.p_to)).where(batch.c.p_to >= last).scalar_subquery()
        until = select(batch).where(
            batch.c.p_to <= func.coalesce(holding, last), batch.c.p_to <= self._committed_to
        )
        return map(_manifest, self._paged(until.order_by(batch.c.p_to.desc())))

    def manifest_by(self, time_ns: int) -> Manifest | None:
        """The last manifest that was committed at or before the time."""
        # In the order of the key: commit times are as monotonic as the clock of the writer.
        is_ours = batch.c.p_to <= self._committed_to
        known = select(batch).where(batch.c.committed_at <= time_ns, is_ours)
        row = self._db.execute(known.order_by(batch.c.p_to.desc()).limit(1)).first()
        return _manifest(row) if row else None

    def fold_versions(self) -> list[str]:
        """The versions of the code that folded the commits."""
        return list(self._db.scalars(select(batch.c.fold_version).distinct()))

    def position_by(self, time: int) -> int:
        """The newest position that was committed at or before the time; 0 if there is none."""
        is_ours = batch.c.p_to <= self._committed_to
        committed = select(func.max(batch.c.p_to)).where(batch.c.committed_at <= time, is_ours)
        return self._db.scalar(committed) or 0

    def commit_time_range(self) -> tuple[int, int] | None:
        """The times of the first and of the newest commit; None if there is none."""
        query = select(func.min(batch.c.committed_at), func.max(batch.c.committed_at))
        first, last = self._db.execute(query).one()
        return None if first is None else (first, last)

    def committed_at(self, position: int) -> int | None:
        holding = select(batch.c.committed_at).where(batch.c.p_to >= position)
        found: int | None = self._db.scalar(holding.order_by(batch.c.p_to).limit(1))
        return found

    def states(self, *tables: str) -> list[rows.Row]:
        """The rows of these state tables."""
        return read_rows(self._db, tables, self._generation())

    def refusals(self, uids: Sequence[str]) -> list[Refusal]:
        """Those of these pods that the newest answer refused every node."""
        return refusals_in(self._db, uids, self.recorded_end)

    def oldest_due(self) -> int | None:
        """The entry of the oldest answer that a pending outcome will refer to."""
        theirs = decision.c.pod_uid.in_(select(outcome_due.c.pod_uid))
        scored = theirs & (decision.c.kind == PrioritizeDecided.TYPE)
        found: int | None = self._db.scalar(select(func.min(decision.c.pos)).where(scored))
        return found

    def newest_about(self, uids: Sequence[str]) -> list[NewestAnswer]:
        """The newest answers about these pods."""
        return newest_answers_in(self._db, uids, self.recorded_end)

    def row_names(self, first: int = 0) -> RowNames:
        """The names of nodes by row, from a position to the newest one."""
        return names_between(self._db, first, self._position())

    def row_name_changes(self, first: int, last: int) -> list[RowName]:
        """The rows that commits of the range gave to nodes, in order."""
        return changes_after(self._db, first - 1, last)

    def row_names_after(self, known: RowNames) -> RowNames:
        """Known names, and those that were given since."""
        last = self._position()
        return known.extended(changes_after(self._db, known.last, last), last)

    def _position(self) -> int:
        held = self.checkpoint()
        return held.position if held else 0

    def checkpoint(self) -> Checkpoint | None:
        return read_checkpoint(self._db)

    def cluster_state(self) -> ClusterState:
        """The cluster state of the view."""
        return rows.cluster_state_of(read_rows(self._db, rows.VIEWED, self._generation()))

    def digests(self) -> rows.Digests:
        """The digests of the stored rows, computed again."""
        return rows.digests_of(read_rows(self._db, tuple(rows.STATES), self._generation()))

    def _generation(self) -> int:
        """The generation of the rows in use."""
        held = self.checkpoint()
        return held.generation if held else 1

    def set_aside(self) -> frozenset[int]:
        """Positions of messages that were not folded; a replay leaves them out, too."""
        held = select(quarantine.c.position).where(quarantine.c.rest == b"")
        return frozenset(self._db.scalars(held)) | all_positions(self._kept_in_short())

    def _kept_in_short(self) -> list[Poison]:
        found = self._db.execute(select(quarantine).where(quarantine.c.rest != b""))
        return [Poison._make(row) for row in found]

    def quarantined(self) -> list[Poison]:
        """The messages in quarantine, by position."""
        found = self._db.execute(select(quarantine).order_by(quarantine.c.position))
        return [Poison._make(row) for row in found]

    def snapshot_before(self, position: int) -> Snapshot | None:
        """The newest snapshot at or before the position that this code can start from."""
        usable = (snapshot.c.position <= position, snapshot.c.fold_version == CODE_VERSION)
        newest = select(snapshot).where(*usable).order_by(snapshot.c.position.desc()).limit(1)
        found = self._db.execute(newest).first()
        return Snapshot._make(found) if found else None

    def snapshot_positions(self) -> list[int]:
        return list(self._db.scalars(select(snapshot.c.position).order_by(snapshot.c.position)))

    def starts(self) -> list[int]:
        """Positions of the snapshots that this code can start from."""
        usable = select(snapshot.c.position).where(snapshot.c.fold_version == CODE_VERSION)
        return list(self._db.scalars(usable.order_by(snapshot.c.position)))

    def pure_starts(self) -> list[int]:
        """Of `starts`, those whose state the folds of this version alone made: no other version
        folded facts before, or a rebuild folded these again.
        """
        other = select(func.min(batch.c.p_to), func.max(batch.c.p_to))
        first, last = self._db.execute(other.where(batch.c.fold_version != CODE_VERSION)).one()
        if first is None:
            return self.starts()
        again = select(func.max(rebuilt.c.position)).where(rebuilt.c.fold_version == CODE_VERSION)
        pure_from = self._db.scalar(again.where(rebuilt.c.position >= last)) or NEWEST
        return [at for at in self.starts() if at < first or at > pure_from]

    def snapshots(self) -> Iterator[Snapshot]:
        """All snapshots, also those of other fold versions, one in memory at a time."""
        for position in self.snapshot_positions():
            found = self._db.execute(select(snapshot).where(snapshot.c.position == position)).one()
            yield Snapshot._make(found)

    def counts(self) -> Counts:
        is_answer = decision.c.kind.in_(ANSWERS) & self._shown
        return Counts(
            entries=self.tip(),
            answers=self._number(select(func.count()).where(is_answer).scalar_subquery()),
            signed_to=self.signed_to(),
            quarantined=len(self.set_aside()),
            committed_at=self._db.scalar(select(func.max(batch.c.committed_at))),
        )

    def signed_to(self) -> int:
        """The entry of the newest head."""
        signed = head.c.pos <= self.recorded_end
        return self._number(select(func.max(head.c.pos)).where(signed).scalar_subquery())

    def unsigned_since(self) -> int | None:
        """The time of the first entry that no head signs; None if all are signed."""
        first = self.entry(self.signed_to() + 1)
        return first.decided_at if first is not None else None

    def count_pods(self) -> int:
        """The number of pods with answers."""
        pods = func.count(decision.c.pod_uid.distinct())
        counted = select(pods).where(decision.c.kind.in_(ANSWERS), self._shown)
        return self._number(counted.scalar_subquery())

    def _number(self, what: Any) -> int:
        return self._db.scalar(select(what)) or 0

    def _logged(self, query: Select[Any], page: int = PAGE) -> Iterator[StoredEntry]:
        return (StoredEntry._make(row) for row in self._paged(query, page))

    def _paged(self, query: Select[Any], page: int = PAGE) -> Iterator[Row[Any]]:
        """Whatever reads may stop early, and forget the iterator after the history is closed: the
        cursor is closed then."""
        found = self._db.execute(query.execution_options(yield_per=page))
        try:
            yield from found
        finally:
            if not self._db.closed:
                found.close()


_LINKS = (decision.c.pos, decision.c.body, decision.c.prev, decision.c.hash)
_REFUSED = (
    "SELECT pos FROM decision WHERE pos BETWEEN ? AND ? AND NOT is_right(pos, body, prev, hash) "
    "ORDER BY pos LIMIT 1"
)
_FOUND_BY = [decision.c[name] for name in EntryFields._fields]


def _conditions(query: EntryQuery) -> Iterator[ColumnElement[bool]]:
    if "/" in query.pod:
        yield decision.c.pod == query.pod
    elif query.pod:
        ends = decision.c.pod.endswith(f"/{query.pod}", autoescape=True)
        yield or_(decision.c.pod_uid == query.pod, ends)
    if query.pod_uid:
        yield decision.c.pod_uid == query.pod_uid
    if query.namespace:
        yield decision.c.pod.startswith(f"{query.namespace}/", autoescape=True)
    if query.kinds:
        yield decision.c.kind.in_(query.kinds)
    yield from _between(_TIME, query)


# `+` keeps SQLite from using the index of time: it would sort all entries before the first one.
_TIME = literal_column(f"+{decision.name}.{decision.c.decided_at.name}", BigInteger)


def _between(time: ColumnElement[int], query: EntryQuery) -> Iterator[ColumnElement[bool]]:
    if query.since is not None:
        yield time >= query.since
    if query.until is not None:
        yield time <= query.until


def _manifest(row: Row[Any]) -> Manifest:
    ranges = msgspec.msgpack.decode(row.ranges, type=tuple[Range, ...])
    return Manifest(**row._mapping)._replace(ranges=ranges)
