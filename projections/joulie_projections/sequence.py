"""From messages of several streams to one order, one draft, one manifest. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus import codec
from joulie_bus.errors import Undecodable
from joulie_bus.events import DECISION_TYPES, Fact
from joulie_bus.records import Record
from joulie_bus.subjects import Stream
from joulie_projections.commit import Commit, Input, Inputs, Poison
from joulie_projections.draft import Draft
from joulie_projections.folds import evolve
from joulie_projections.manifest import Manifest, Range, chained, merkle_root
from joulie_projections.nodes import cluster_of
from joulie_projections.producers import is_news, is_overtaken
from joulie_projections.rows import Digests, Row, changed_rows, state_digest
from joulie_projections.world import CLUSTER, World

DECISIONS = frozenset(cls.TYPE for cls in DECISION_TYPES)
HERE = "it"  # spelled out once something is wrong: most messages never need the place's name


class Standing(NamedTuple):
    """Where the projector is between two commits."""

    position: int
    inputs: Inputs
    digests: Digests
    head: bytes


class Sequenced(NamedTuple):
    draft: Draft
    rows: list[Row]
    commit: Commit
    duplicates: int

    @property
    def standing(self) -> Standing:
        manifest = self.commit.manifest
        return Standing(manifest.p_to, self.commit.inputs, self.commit.digests, manifest.head)


class Folded(NamedTuple):
    poison: list[Poison]
    duplicates: int


def fold(draft: Draft, records: Iterable[Record], position: int) -> Folded:
    """Every record takes the next position, whatever becomes of it: positions have no holes."""
    poison: list[Poison] = []
    duplicates = 0
    for record in records:
        position += 1
        try:
            if not _fold_one(draft, record):
                duplicates += 1
        except Undecodable as error:
            stream, number = str(record.stream), record.sequence
            why = str(Undecodable(f"{stream} #{number}", error.why))
            poison.append(Poison(position, stream, number, why, record.data))
    _note_claims(draft, records)
    return Folded(poison, duplicates)


def _note_claims(draft: Draft, records: Iterable[Record]) -> None:
    """Who writes a claim must know that no other is between it and what was looked at."""
    read = max((each.sequence for each in records if each.stream is Stream.CLAIM), default=0)
    cluster = cluster_of(draft)
    if read > cluster.claims_read:
        draft.cluster.put(CLUSTER, replace(cluster, claims_read=read))


def _fold_one(draft: Draft, record: Record) -> bool:
    """False for a repeat. A fact is read before anything is changed by it."""
    envelope = codec.open_envelope(record.data, HERE)
    origin = codec.origin_of(envelope.id, HERE)
    if envelope.type in DECISIONS:
        raise Undecodable(HERE, f"{envelope.type} is a decision and no fact")
    fact: Fact = codec.read(envelope, HERE)  # type: ignore[assignment]
    if not is_news(draft, origin):
        return False
    if not is_overtaken(draft, origin, fact):
        evolve(draft, fact, record.at)
    return True


def sequence(
    world: World,
    standing: Standing,
    records: Sequence[Record],
    created: Mapping[Stream, str],
    now: int,
) -> Sequenced:
    """One batch: `records` lie in merge order, each stream's without a hole."""
    draft = Draft(world)
    folded = fold(draft, records, standing.position)
    rows, digests = changed_rows(draft.changed(), standing.digests)
    ranges = tuple(ranges_of(records))
    root = merkle_root([record.data for record in records])
    span = (standing.position + 1, standing.position + len(records))
    digest = state_digest(digests)
    manifest = Manifest(
        p_from=span[0],
        p_to=span[1],
        ranges=ranges,
        merkle_root=root,
        state_digest=digest,
        prev=standing.head,
        head=chained(standing.head, span, ranges, root, digest),
        committed_at=now,
    )
    read = {r.stream: Input(created[r.stream], r.last) for r in ranges}
    commit = Commit(manifest, rows, {**standing.inputs, **read}, digests, folded.poison)
    return Sequenced(draft, rows, commit, folded.duplicates)


def ranges_of(records: Sequence[Record]) -> Iterable[Range]:
    first = 0
    for here, record in enumerate(records):
        following = records[here + 1] if here + 1 < len(records) else None
        if following is None or following.stream != record.stream:
            yield Range(record.stream, records[first].sequence, record.sequence)
            first = here + 1
