"""Asks a witness to cosign a checkpoint, and names what its answer means for the log."""

import http.client
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

from joulie_bus.core.times import rfc3339
from joulie_bus.errors import NotInTheLog
from joulie_bus.runtime.http_deadline import within
from joulie_projections.chain.note import (
    LogCheckpoint,
    NotANote,
    Submission,
    parse_checkpoint,
    parse_signatures,
)
from joulie_projections.witness.policy import WitnessPlace
from joulie_projections.witness.server import PATH, seen_path

TIMEOUT_S = 5.0  # without a byte
WHOLE_S = 20.0
SKEW_S = 300  # of the clocks of witnesses
_LAST_S = 4_102_444_800  # 2100
MAX_REPLY = 64 * 1024
ROUNDS = 4  # with 409 a witness names the size from which it needs a proof; others may submit too
Consistency = Callable[[int, int], Sequence[bytes]]  # the proof from an old size to a size


class Finding(Enum):
    COSIGNED = "cosigned"
    SEEN = "seen"  # an older cosignature: what the witness saw since is not known
    ACCUSED = "accused"  # the witness says that it saw another tree, and signs nothing
    AHEAD = "ahead"  # it has a checkpoint of a larger tree that the log signed: a rollback
    FORKED = "forked"  # it has a checkpoint of another tree that the log signed
    SILENT = "silent"  # no answer that means anything for the log


class Answer(NamedTuple):
    witness: WitnessPlace
    finding: Finding
    what: str
    size: int = 0  # of the tree that the witness saw
    checkpoint: LogCheckpoint | None = None  # with the cosignature


def ask_all(
    places: Sequence[WitnessPlace], checkpoint: LogCheckpoint, consistency: Consistency
) -> list[Answer]:
    """Asks all witnesses at once. Proofs are computed in this thread."""
    if not places:
        return []
    asked_s = int(time.time())
    with ThreadPoolExecutor(len(places)) as pool:
        pending, answers = {place: checkpoint.size for place in places}, dict[str, Answer]()
        for _ in range(ROUNDS):
            submissions = {
                place: _submission(old, checkpoint, consistency) for place, old in pending.items()
            }
            replies = pool.map(_post, submissions, submissions.values())
            pairs = zip(submissions.items(), replies, strict=True)
            read = [_answer(asked, reply, asked_s) for asked, reply in pairs]
            answers |= {str(answer.witness.key): answer for answer in read}
            pending = {answer.witness: answer.size for answer in read if _is_behind(answer)}
            if not pending:
                break
    return [answers[str(place.key)] for place in places]


def _is_behind(answer: Answer) -> bool:
    return answer.finding is Finding.SILENT and answer.size >= 0


def _submission(
    old: int, checkpoint: LogCheckpoint, consistency: Consistency
) -> Submission | NotInTheLog:
    try:
        return Submission(old, consistency(old, checkpoint.size), checkpoint)
    except NotInTheLog as error:
        return error


class _Reply(NamedTuple):
    status: int
    body: bytes


def _post(place: WitnessPlace, submission: Submission | NotInTheLog) -> _Reply | Exception:
    if isinstance(submission, NotInTheLog):
        return submission
    if not place.url:
        return ValueError("it has no URL")
    return _request(place.url, "POST", PATH, submission.body)


def seen_by(place: WitnessPlace, origin: str) -> LogCheckpoint | None:
    """The newest checkpoint of this log that the witness has, with the signature of the log: the
    proof of what it says. None if it shows none; `tlog-witness` does not demand it."""
    reply = _request(place.url, "GET", seen_path(origin), None)
    if isinstance(reply, Exception) or reply.status != 200:
        return None
    try:
        found = parse_checkpoint(reply.body)
    except NotANote:
        return None
    return found if found.origin == origin else None


def _request(url: str, method: str, path: str, body: bytes | None) -> _Reply | Exception:
    """Without redirects. A reply that takes longer than WHOLE_S is cut, however it trickles in."""
    place = urlsplit(url)
    connection: http.client.HTTPConnection
    if place.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(place.netloc, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(place.netloc, timeout=TIMEOUT_S)
    try:
        with within(connection, WHOLE_S):
            connection.request(method, place.path.rstrip("/") + path, body)
            reply = connection.getresponse()
            return _Reply(reply.status, reply.read(MAX_REPLY))
    except (OSError, http.client.HTTPException) as error:
        return error
    finally:
        connection.close()


def _answer(
    asked: tuple[WitnessPlace, Submission | NotInTheLog],
    reply: _Reply | Exception,
    asked_s: int,
) -> Answer:
    place, submission = asked
    if isinstance(submission, NotInTheLog) or isinstance(reply, Exception):
        why = str(reply) or type(reply).__name__
        return Answer(place, Finding.SILENT, f"did not cosign: {why}", -1)
    new, old = submission.checkpoint, submission.old
    if reply.status == 200:
        return _cosigned(place, new, reply.body, asked_s)
    if reply.status == 422:
        what = f"saw {old} entries, which this log does not contain"
        return Answer(place, Finding.ACCUSED, what, old)
    size = reply.body.strip()
    if reply.status == 409 and size.isdigit() and len(size) < 20:
        return _conflict(place, new, old, int(size))
    return Answer(place, Finding.SILENT, f"answered {reply.status}: {_short(reply.body)}", -1)


def _conflict(place: WitnessPlace, new: LogCheckpoint, old: int, size: int) -> Answer:
    if size > new.size:
        what = f"saw {size} entries, and the log has {new.size}"
        return Answer(place, Finding.ACCUSED, what, size)
    if size == old:
        what = f"saw {size} entries with another root, which this log does not contain"
        return Answer(place, Finding.ACCUSED, what, size)
    return Answer(place, Finding.SILENT, "was asked at once by several", size)


def _cosigned(place: WitnessPlace, new: LogCheckpoint, body: bytes, asked_s: int) -> Answer:
    try:
        signatures = parse_signatures(body.decode())
    except (NotANote, UnicodeDecodeError) as error:
        return Answer(place, Finding.SILENT, f"answered no cosignature: {error}", -1)
    own = [each for each in signatures if each.hash == place.key.hash]
    made = new.with_signatures(own)
    at_s = made.cosigned_at(place.key)
    if at_s is None:
        return Answer(place, Finding.SILENT, "answered no valid cosignature of its key", -1)
    if at_s > asked_s + SKEW_S:
        return Answer(place, Finding.SILENT, f"cosigned at {_text(at_s)}, which is to come", -1)
    if at_s < asked_s - SKEW_S:
        what = f"saw these entries at {_text(at_s)}, and said nothing of what it saw since"
        return Answer(place, Finding.SEEN, what, -1, made)
    return Answer(place, Finding.COSIGNED, "cosigned", new.size, made)


def _text(seconds: int) -> str:
    return rfc3339(seconds * 1000, "seconds") if seconds < _LAST_S else "a time without end"


def _short(body: bytes) -> str:
    return body[:200].decode("utf-8", "replace").strip()
