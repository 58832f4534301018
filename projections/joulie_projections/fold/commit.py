"""What a projector holds between two transactions, and what one transaction writes. Values only."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.manifest import Manifest
from joulie_projections.state.rows import Digests, Row


class Input(msgspec.Struct, frozen=True, array_like=True):
    """How far one stream was read; `created` says which stream of that name, and `digest` which
    message was read last: a stream that was set back and grew again holds another one there.
    """

    created: str
    sequence: int
    digest: bytes = (
        b""  # joulie_bus.streams.records.digest_of; empty before the first, and in old databases
    )


Inputs = dict[Stream, Input]


class Checkpoint(NamedTuple):
    position: int
    epoch: int
    inputs: Inputs
    digests: Digests
    head: bytes
    incarnation: str  # of the database: a restored backup gets another one
    generation: int = 1  # of the rows that serve: a rebuild makes the next one


class Poison(NamedTuple):
    """A message that could not be read or folded; its position is taken all the same.

    Or many of them: see `setting_aside`.
    """

    position: int
    stream: str
    sequence: int
    why: str
    body: bytes
    subject: str = ""
    rest: bytes = b""  # positions of others that lie in the same row; then no body is kept


class FirstBinding(NamedTuple):
    """A pod that was seen bound for the first time: its outcome is to be told."""

    position: int
    at: int
    pod_uid: str
    namespace: str
    name: str
    node: str
    ordinal: int  # of the node, as the answers name it


class Cut(NamedTuple):
    """Up to where an archive holds the logs. Entry `pos` and the batch that ends at `p_to` stay."""

    number: int
    pos: int
    hash: bytes  # of the entry
    p_to: int
    manifest_head: bytes
    log_seal: str  # of the archive's parts that hold them
    facts_seal: str
    inputs: Inputs  # how far each stream of facts was read by then
    signed_at: int  # the head that signs the entry
    key_id: str
    signature: bytes
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
