"""From messages of several streams to one order, one draft, one manifest. Pure."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.errors import Undecodable
from joulie_bus.events import DECISION_TYPES, Fact, NodeGone, PodBound, codec
from joulie_bus.streams.authority import measured_on, require_authority
from joulie_bus.streams.records import Record, digest_of
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Commit, FirstBinding, Input, Inputs, Poison
from joulie_projections.fold.manifest import Manifest, Range, chained, merkle_root
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

DECISIONS = frozenset(cls.TYPE for cls in DECISION_TYPES)
MAX_REASON_CHARS = 1000  # characters of a reason that are kept
HERE = "it"  # spelled out once something is wrong: most messages never need the place's name


class FoldCursor(NamedTuple):
    """Where the projector is between two commits."""

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


class _Broken(Exception):
    """A fold fell over a fact; what it had changed by then has to be taken back."""


def fold(
    draft: Draft,
    records: Iterable[Record],
    position: int,
    aside: Container[int] = (),
) -> FoldResult:
    """Every record takes the next position, whatever becomes of it: positions have no holes.

    What was set aside at a position stays aside there, though this code may be able to read it:
    the past is folded as it was. It comes in by being told again, at another position.
    """
    told = list(records)
    clean = {table: dict(overlay.changes) for table, overlay in draft.tables.items()}
    try:
        return _fold_all(draft, told, position, aside)
    except _Broken:
        for table, overlay in draft.tables.items():
            overlay.changes.clear()
            overlay.changes.update(clean[table])
        return fold_singly(draft, told, position, aside)


def fold_singly(
    draft: Draft,
    records: Sequence[Record],
    position: int,
    aside: Container[int] = (),
) -> FoldResult:
    """Each record in a draft of its own: one that cannot be folded, or whose rows cannot be
    encoded, is set aside and the others are folded. Gives what `fold` gives without it.
    """
    folded = FoldResult([], 0, [])
    for before, record in enumerate(records, position):
        own = Draft(draft)
        try:
            one = _fold_all(own, [record], before, aside)
            changed_rows(own.changed(), empty_digests())
        except Exception as error:  # any: the other facts of the batch must not suffer
            why = str(error) if isinstance(error, _Broken) else _unwritable(error)
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
    aside: Container[int],
) -> FoldResult:
    folded, counting = FoldResult([], 0, []), TelemetryCounter(draft)
    duplicates = 0
    for record in records:
        position += 1
        if position in aside:
            continue
        try:
            if record.stream is Stream.TEL and _goes_on(draft, record, counting):
                continue
            counting.flush()
            if not _fold_one(draft, record, position, folded.bound):
                duplicates += 1
        except Undecodable as error:
            folded.poison.append(poison_of(position, record, error.why))
        except Exception as error:
            raise _Broken(f"its fold failed: {error!r}") from error
    counting.flush()
    _note_claims(draft, records)
    return folded._replace(duplicates=duplicates)


def _note_claims(draft: Draft, records: Iterable[Record]) -> None:
    """Who writes a claim must know that no other is between it and what was looked at."""
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
    told = printable(str(Undecodable(f"{stream} #{number}", why)))
    return Poison(position, stream, number, told, record.data, record.subject)


def printable(text: str) -> str:
    """A reason may repeat what the message holds. No database refuses this form of it."""
    half = MAX_REASON_CHARS // 2
    cut = text if len(text) <= MAX_REASON_CHARS else f"{text[:half]} ... {text[-half:]}"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cut)


def _goes_on(draft: Draft, record: Record, counting: TelemetryCounter) -> bool:
    """The short way for nearly everything: the next reading of a producer. What it is not for
    is left as it was, and goes the long way, which gives the same.
    """
    sample = codec.open_sample(record.data)
    if sample is None:
        return False
    node, agent = measured_on(record.subject)
    fact = sample.data
    if fact.node != node or sample.key != node or not counting.is_next(sample.id, agent):
        return False
    evolve(draft, fact, record.at)
    return True


def _fold_one(draft: Draft, record: Record, position: int, bound: list[FirstBinding]) -> bool:
    """False for a repeat. A fact is read before anything is changed by it."""
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
    aside: Container[int] = (),
) -> SequencedBatch:
    """One batch: `records` lie in merge order, each stream's without a hole."""
    draft, folded, changes, rows, digests = step(cluster_state, cursor, records, aside)
    ranges = tuple(ranges_of(records))
    root = merkle_root([record.data for record in records])
    span = (cursor.position + 1, cursor.position + len(records))
    digest = state_digest(digests)
    manifest = Manifest(
        p_from=span[0],
        p_to=span[1],
        ranges=ranges,
        merkle_root=root,
        state_digest=digest,
        prev=cursor.head,
        head=chained(cursor.head, span, ranges, root, digest),
        committed_at=now,
    )
    newest = {record.stream: record for record in records}
    inputs = {**cursor.inputs, **{s: input_after(created[s], last) for s, last in newest.items()}}
    poison = within_quota(folded.poison)
    commit = Commit(manifest, rows, inputs, digests, poison, folded.bound)
    return SequencedBatch(draft, changes, rows, commit, folded.duplicates)


def quarantined_batch(
    cluster_state: ClusterState,
    cursor: FoldCursor,
    record: Record,
    created: Mapping[Stream, str],
    now: int,
    why: str,
) -> SequencedBatch:
    """A batch of the one record that the database refused: its position is taken, nothing else."""
    position = cursor.position + 1
    done = sequence(cluster_state, cursor, [record], created, now, frozenset((position,)))
    return done._replace(commit=done.commit._replace(poison=[poison_of(position, record, why)]))


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
    aside: Container[int] = (),
) -> Step:
    """Folds a batch, and encodes the rows that it changes."""
    draft = Draft(cluster_state)
    folded = fold(draft, records, cursor.position, aside)
    try:
        changes = list(draft.changed())
        rows, digests = changed_rows(changes, cursor.digests, cluster_state.fingerprints)
    except Exception:  # one of the facts gives a row that has no encoding; the others must not wait
        draft = Draft(cluster_state)
        folded = fold_singly(draft, records, cursor.position, aside)
        changes = list(draft.changed())
        rows, digests = changed_rows(changes, cursor.digests, cluster_state.fingerprints)
    return Step(draft, folded, changes, rows, digests)


def revert(cluster_state: ClusterState, changes: Sequence[Change]) -> None:
    """Undoes what a committed draft changed, as long as nothing was changed after it."""
    for table, key, before, _ in changes:
        held = tables_of(cluster_state)[table]
        if before is None:
            held.pop(key, None)
        else:
            held[key] = before


def input_after(created: str, last: Record) -> Input:
    return Input(created, last.sequence, digest_of(last))


def ranges_of(records: Sequence[Record]) -> Iterable[Range]:
    first = 0
    for here, record in enumerate(records):
        following = records[here + 1] if here + 1 < len(records) else None
        if following is None or following.stream != record.stream:
            yield Range(record.stream, records[first].sequence, record.sequence)
            first = here + 1
