"""Folds a batch of messages from several streams into one draft and one manifest."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.errors import Undecodable
from joulie_bus.events import DECISION_TYPES, Fact, NodeGone, PodBound, codec
from joulie_bus.streams.authority import measured_on, require_authority
from joulie_bus.streams.records import Record, digest_of
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Commit, FirstBinding, Input, Inputs, Poison
from joulie_projections.fold.manifest import Manifest, Range, hash_of_all, rechained
from joulie_projections.fold.node_facts import cluster_of
from joulie_projections.fold.producers import (
    TelemetryCounter,
    by_producer_row,
    drop_agent,
    is_new,
    is_superseded,
)
from joulie_projections.fold.quarantine_quota import within_quota
from joulie_projections.fold.registry import evolve
from joulie_projections.state.rows import (
    Digests,
    Row,
    changed_rows,
    empty_digests,
    state_digest,
    tables_of,
)
from joulie_projections.state.state import CLUSTER, ClusterState
from joulie_projections.state.state_changes import Change, Draft
from joulie_projections.twin.row_names import row_names_in

DECISIONS = frozenset(cls.TYPE for cls in DECISION_TYPES)
MAX_REASON_CHARS = 1000  # a longer reason is shortened in the middle
HERE = "it"  # the place in errors; `poison_of` adds the real one, which is rarely needed


class FoldCursor(NamedTuple):
    """How far the fold has come: the state between two commits."""

    position: int
    inputs: Inputs
    digests: Digests
    head: bytes


class SequencedBatch(NamedTuple):
    draft: Draft
    changes: list[Change]
    rows: list[Row]
    commit: Commit
    duplicates: int

    @property
    def cursor(self) -> FoldCursor:
        manifest = self.commit.manifest
        return FoldCursor(manifest.p_to, self.commit.inputs, self.commit.digests, manifest.head)


class FoldResult(NamedTuple):
    poison: list[Poison]
    duplicates: int
    bound: list[FirstBinding]


class _FoldFailed(Exception):
    """The fold of a fact raised; its changes so far must be reverted."""


def fold(
    draft: Draft,
    records: Iterable[Record],
    position: int,
    quarantined: Container[int] = (),
) -> FoldResult:
    """Folds records in order. Every record takes the next position, valid or not.

    Positions in `quarantined` are skipped, even if this version could fold them, so that the
    past is folded as it was. Such a message takes effect when it is published again.
    """
    batch = list(records)
    unchanged = {table: dict(overlay.changes) for table, overlay in draft.tables.items()}
    try:
        return _fold_all(draft, batch, position, quarantined)
    except _FoldFailed:
        for table, overlay in draft.tables.items():
            overlay.changes.clear()
            overlay.changes.update(unchanged[table])
        return fold_singly(draft, batch, position, quarantined)


def fold_singly(
    draft: Draft,
    records: Sequence[Record],
    position: int,
    quarantined: Container[int] = (),
) -> FoldResult:
    """Folds each record in its own draft and quarantines those that cannot be folded or encoded.

    The result equals that of `fold` without these records.
    """
    folded = FoldResult([], 0, [])
    for before, record in enumerate(records, position):
        own = Draft(draft)
        try:
            one = _fold_all(own, [record], before, quarantined)
            changed_rows(own.changed(), empty_digests())
        except Exception as error:  # any error: the other facts of the batch must be folded
            why = str(error) if isinstance(error, _FoldFailed) else _unwritable(error)
            folded.poison.append(poison_of(before + 1, record, why))
            continue
        own.commit()
        folded.poison.extend(one.poison)
        folded.bound.extend(one.bound)
        folded = folded._replace(duplicates=folded.duplicates + one.duplicates)
    _note_claims(draft, records)
    return folded


def _unwritable(error: Exception) -> str:
    return f"its rows cannot be written: {error!r}"


def _fold_all(
    draft: Draft,
    records: Sequence[Record],
    position: int,
    quarantined: Container[int],
) -> FoldResult:
    folded, counter = FoldResult([], 0, []), TelemetryCounter(draft)
    duplicates = 0
    for record in records:
        position += 1
        if position in quarantined:
            continue
        try:
            if record.stream is Stream.TEL and _fold_next_reading(draft, record, counter):
                continue
            counter.flush()
            if not _fold_one(draft, record, position, folded.bound):
                duplicates += 1
        except Undecodable as error:
            folded.poison.append(poison_of(position, record, error.why))
        except Exception as error:
            raise _FoldFailed(f"its fold failed: {error!r}") from error
    counter.flush()
    _note_claims(draft, records)
    return folded._replace(duplicates=duplicates)


def _note_claims(draft: Draft, records: Iterable[Record]) -> None:
    """Records the newest claim message, which writers of claims compare and set against."""
    newest = max(
        (each for each in records if each.stream is Stream.CLAIM), key=_place, default=None
    )
    cluster = cluster_of(draft)
    if newest is not None and newest.sequence > cluster.claims_read:
        read, digest = newest.sequence, digest_of(newest)
        draft.cluster.put(CLUSTER, replace(cluster, claims_read=read, claims_digest=digest))


def _place(record: Record) -> int:
    return record.sequence


def poison_of(position: int, record: Record, why: str) -> Poison:
    stream, number = str(record.stream), record.sequence
    reason = printable(str(Undecodable(f"{stream} #{number}", why)))
    return Poison(position, stream, number, reason, record.data, record.subject)


def printable(text: str) -> str:
    """Escapes and shortens a reason, which may quote the message, for any database."""
    half = MAX_REASON_CHARS // 2
    cut = text if len(text) <= MAX_REASON_CHARS else f"{text[:half]} ... {text[-half:]}"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cut)


def _fold_next_reading(draft: Draft, record: Record, counter: TelemetryCounter) -> bool:
    """Folds the next reading of a producer without decoding the whole envelope.

    Most messages are such readings. Returns False without changes for any other message; the
    general path gives the same result.
    """
    sample = codec.open_sample(record.data)
    if sample is None:
        return False
    node, agent = measured_on(record.subject)
    fact = sample.data
    if fact.node != node or sample.key != node or not counter.is_next(sample.id, agent):
        return False
    evolve(draft, fact, record.at)
    return True


def _fold_one(draft: Draft, record: Record, position: int, bound: list[FirstBinding]) -> bool:
    """Folds one message; False for a duplicate. Decodes it fully before changing anything."""
    envelope = codec.open_envelope(record.data, HERE)
    codec.origin_of(envelope.id, HERE)
    if envelope.type in DECISIONS:
        raise Undecodable(HERE, f"{envelope.type} is a decision and no fact")
    fact: Fact = codec.read(envelope, HERE)  # type: ignore[assignment]
    origin = by_producer_row(record.stream, require_authority(record, envelope, fact, HERE))
    if not is_new(draft, origin):
        return False
    if is_superseded(draft, origin, fact):
        return True
    if isinstance(fact, PodBound) and _is_first_binding(draft, fact):
        evolve(draft, fact, record.at)
        bound.append(_bound(draft, fact, position, record.at))
    else:
        evolve(draft, fact, record.at)
    if isinstance(fact, NodeGone):
        drop_agent(draft, fact.node)
    return True


def _is_first_binding(draft: Draft, fact: PodBound) -> bool:
    known = draft.pods.get(fact.pod.uid)
    return known is None or not (known.node or known.finished)


def _bound(draft: Draft, fact: PodBound, position: int, at: int) -> FirstBinding:
    node = draft.nodes.get(fact.node)
    pod, ordinal = fact.pod, -1 if node is None else node.ordinal
    return FirstBinding(position, at, pod.uid, pod.namespace, pod.name, fact.node, ordinal)


def sequence(
    cluster_state: ClusterState,
    cursor: FoldCursor,
    records: Sequence[Record],
    created: Mapping[Stream, str],
    now: int,
    quarantined: Container[int] = (),
) -> SequencedBatch:
    """Folds one batch. `records` are in merge order, without gaps in any stream."""
    draft, folded, changes, rows, digests = step(cluster_state, cursor, records, quarantined)
    ranges = tuple(ranges_of(records))
    root = hash_of_all([record.data for record in records])
    span = (cursor.position + 1, cursor.position + len(records))
    digest = state_digest(digests)
    manifest = Manifest(
        p_from=span[0],
        p_to=span[1],
        ranges=ranges,
        facts_hash=root,
        state_digest=digest,
        prev=cursor.head,
        head=b"",
        committed_at=now,
    )
    newest = {record.stream: record for record in records}
    inputs = {**cursor.inputs, **{s: input_after(created[s], last) for s, last in newest.items()}}
    poison = within_quota(folded.poison)
    named = row_names_in(changes, span[1])
    commit = Commit(rechained(manifest), rows, inputs, digests, poison, folded.bound, named)
    return SequencedBatch(draft, changes, rows, commit, folded.duplicates)


def quarantined_batch(
    cluster_state: ClusterState,
    cursor: FoldCursor,
    record: Record,
    created: Mapping[Stream, str],
    now: int,
    why: str,
) -> SequencedBatch:
    """A batch of one record that the database rejected; it takes a position only."""
    position = cursor.position + 1
    result = sequence(cluster_state, cursor, [record], created, now, frozenset((position,)))
    return result._replace(commit=result.commit._replace(poison=[poison_of(position, record, why)]))


class Step(NamedTuple):
    draft: Draft
    folded: FoldResult
    changes: list[Change]
    rows: list[Row]
    digests: Digests


def step(
    cluster_state: ClusterState,
    cursor: FoldCursor,
    records: Sequence[Record],
    quarantined: Container[int] = (),
) -> Step:
    """Folds a batch and encodes the changed rows."""
    draft = Draft(cluster_state)
    folded = fold(draft, records, cursor.position, quarantined)
    try:
        changes = list(draft.changed())
        rows, digests = changed_rows(changes, cursor.digests, cluster_state.fingerprints)
    except Exception:  # a row cannot be encoded; fold the other facts without its fact
        draft = Draft(cluster_state)
        folded = fold_singly(draft, records, cursor.position, quarantined)
        changes = list(draft.changed())
        rows, digests = changed_rows(changes, cursor.digests, cluster_state.fingerprints)
    return Step(draft, folded, changes, rows, digests)


def revert(cluster_state: ClusterState, changes: Sequence[Change]) -> None:
    """Reverts the changes of a committed draft; no later changes may exist."""
    for table, key, before, _ in changes:
        states = tables_of(cluster_state)[table]
        if before is None:
            states.pop(key, None)
        else:
            states[key] = before


def input_after(created: str, last: Record) -> Input:
    return Input(created, last.sequence, digest_of(last))


def ranges_of(records: Sequence[Record]) -> Iterable[Range]:
    first = 0
    for here, record in enumerate(records):
        following = records[here + 1] if here + 1 < len(records) else None
        if following is None or following.stream != record.stream:
            yield Range(record.stream, records[first].sequence, record.sequence)
            first = here + 1
