"""What the stream of heads holds that a key of this log signed.

A message that none of them signed proves nothing: the writer must neither wait for the entry that
it names nor store it. `joulie verify` reports such messages.
"""

from joulie_bus.log.answered import until_answered
from joulie_bus.log.protocol import Log
from joulie_bus.log.whole_stream import everything
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_projections.chain.signed import Head, Signed, statement_in
from joulie_projections.decision_log.heads import Signer, lost_key


async def newest(bus: Log, subjects: Subjects, signer: Signer) -> int:
    """The last entry that a statement in the stream names; 0 if there is none.

    If the newest message is not such a statement, all messages are read.
    """
    last = await until_answered(lambda: bus.last(Stream.HEADS, subjects.heads))
    if last is None:
        return 0
    statement = statement_in(last.data)
    if statement is not None and _counts(statement, signer):
        return statement.pos
    return max((each.pos for each in await _all(bus, signer)), default=0)


async def behind(bus: Log, pos: int, signer: Signer) -> list[Head]:
    """The heads of later entries."""
    return [each for each in await _all(bus, signer) if isinstance(each, Head) and each.pos > pos]


async def _all(bus: Log, signer: Signer) -> list[Signed]:
    decoded = (statement_in(record.data) for record in await everything(bus, Stream.HEADS))
    found = [each for each in decoded if each is not None]
    signed = set(signer.public.signed_among(found))
    return [each for each in found if each in signed or _is_of_lost_key(each, signer)]


def _counts(statement: Signed, signer: Signer) -> bool:
    return signer.public.has_signed(statement) or _is_of_lost_key(statement, signer)


def _is_of_lost_key(statement: Signed, signer: Signer) -> bool:
    """The key that `joulie keys replace` named can be missing altogether."""
    return isinstance(statement, Head) and statement.key_id == lost_key(signer.path)
