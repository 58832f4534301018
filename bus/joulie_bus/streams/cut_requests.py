"""The request of the archiver for a cut, and the response of the projector.

Only the projector deletes. It compares the request with its own log. It does not read the archive:
whether the archive holds the data before the cut is checked by the archiver alone.
"""

from typing import Annotated

import msgspec

from joulie_bus.errors import NotTrimmed

MOST_SET_ASIDE = 10_000  # positions of one request; the next pass asks for the rest
_Position = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
_Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Seal = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class CutRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delete what lies before this entry and this position: an archive holds it."""

    pos: _Position
    hash: _Hash  # of the entry
    p_to: _Position
    manifest_head: _Hash
    log_seal: _Seal  # of the archive's parts that contain them
    facts_seal: _Seal
    by: _Name
    for_room: bool = False  # younger than was asked for, since a stream runs out of room
    # Quarantined positions that the archive holds, too.
    aside: Annotated[list[_Position], msgspec.Meta(max_length=MOST_SET_ASIDE)] = []


class CutAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    is_new: bool = False  # whether a cut was recorded; otherwise it was there already
    is_done: bool = False  # whether all of it is deleted; otherwise the projector still deletes
    rows: int = 0
    messages: dict[str, int] = {}  # purged, by stream
    freed: int = 0  # bytes of the database file
    refused: str = ""  # why nothing is deleted
    least_keep_s: float = 0.0  # with this age of what is kept, a request `for_room` is accepted


_requests = msgspec.json.Decoder(CutRequest)
_answers = msgspec.json.Decoder(CutAnswer)
encode = msgspec.json.encode


def request_in(data: bytes) -> CutRequest:
    try:
        return _requests.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotTrimmed(f"A request for a cut cannot be decoded: {error}. Ignored.") from error


def answer_in(data: bytes) -> CutAnswer:
    try:
        return _answers.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotTrimmed(
            f"The projector's answer cannot be decoded: {error}. Use the same version of Joulie "
            "for the archiver and the projector."
        ) from error
