"""What the projector keeps between transactions, and what one transaction writes. Values only."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.manifest import Manifest
from joulie_projections.state.rows import Digests, Row
from joulie_projections.twin.row_names import RowName


class Input(msgspec.Struct, frozen=True, array_like=True):
    """How far one stream was read.

    `created` identifies the stream among streams of that name. `digest` identifies the last message
    read, so that a stream that was reset and grew again is detected.
    """

    created: str
    sequence: int
    digest: bytes = b""  # of `records.digest_of`; empty before the first, and in old databases


Inputs = dict[Stream, Input]


class Checkpoint(NamedTuple):
    position: int
    epoch: int
    inputs: Inputs
    digests: Digests
    head: bytes
    incarnation: str  # of the database; a restored backup gets a new one
    generation: int = 1  # of the rows in use; a rebuild creates the next one


class Poison(NamedTuple):
    """A message that could not be decoded or folded; it takes a position nevertheless.

    One row can stand for many messages: see `quarantine_quota`.
    """

    position: int
    stream: str
    sequence: int
    why: str
    body: bytes
    subject: str = ""
    rest: bytes = b""  # distances to further positions in this row, which then has no body


class FirstBinding(NamedTuple):
    """The first sighting of a pod's binding; the projector logs an outcome for it."""

    position: int
    at: int
    pod_uid: str
    namespace: str
    name: str
    node: str
    ordinal: int  # the row of the node, as in the logged decisions; -1 if unknown


class Cut(NamedTuple):
    """How far the logs are trimmed; entry `pos` and the batch ending at `p_to` are kept."""

    number: int
    pos: int
    hash: bytes  # of the entry
    p_to: int
    manifest_head: bytes
    log_seal: str  # of the archive's parts that contain them
    facts_seal: str
    inputs: Inputs  # how far each stream was read at `p_to`
    note: bytes  # the head that signs the entry
    edge: bytes  # of the Merkle tree there: entries before it are gone
    made_at: int
    made_by: str


class Commit(NamedTuple):
    """Everything that one transaction writes."""

    manifest: Manifest
    rows: Sequence[Row]
    inputs: Inputs
    digests: Digests
    poison: Sequence[Poison] = ()
    bound: Sequence[FirstBinding] = ()
    named: Sequence[RowName] = ()  # the rows that it gives to nodes


class Snapshot(NamedTuple):
    """A row of the table of snapshots. Only snapshots of the same fold version are used."""

    position: int
    fold_version: str
    made_at: int
    digest: bytes  # sha256 of the body
    body: bytes
