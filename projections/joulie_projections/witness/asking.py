"""Asks a witness to cosign a checkpoint, and names what its answer means for the log."""

import http.client
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

from joulie_bus.errors import NotInTheLog
from joulie_projections.chain.note import (
    WITNESS_KEY,
    LogCheckpoint,
    NotANote,
    Submission,
    VerifierKey,
    parse_signatures,
)
from joulie_projections.witness.server import PATH

TIMEOUT_S = 5.0
MAX_REPLY = 64 * 1024
ROUNDS = 4  # with 409 a witness names the size from which it needs a proof; others may submit too
Consistency = Callable[[int, int], Sequence[bytes]]  # the proof from an old size to a size


class WitnessPlace(NamedTuple):
    key: VerifierKey
    url: str


def witness_places(text: str) -> tuple[WitnessPlace, ...]:
    """witnesses as KEY@URL, separated by spaces"""
    return tuple(map(witness_place, text.split()))


def witness_place(text: str) -> WitnessPlace:
    """a witness as KEY@URL; `joulie witness` prints its KEY"""
    key, _, url = text.partition("@")
    parsed = VerifierKey.parse(key)
    if parsed.kind != WITNESS_KEY:
        raise ValueError(f"{parsed.name} is the key of a log, not of a witness")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ValueError("not a witness as KEY@URL, such as w1+8d3a6f6c+BKz...@http://w1:9880")
    return WitnessPlace(parsed, url)


class Finding(Enum):
    COSIGNED = "cosigned"
    AHEAD = "ahead"  # the witness saw a larger tree: the log was rolled back
    FORKED = "forked"  # the tree does not extend the one that the witness saw
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
    with ThreadPoolExecutor(len(places)) as pool:
        pending, answers = {place: checkpoint.size for place in places}, dict[str, Answer]()
        for _ in range(ROUNDS):
            submissions = {
                place: _submission(old, checkpoint, consistency) for place, old in pending.items()
            }
            replies = pool.map(_post, submissions, submissions.values())
            read = [_answer(*each) for each in zip(submissions.items(), replies, strict=True)]
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
    url = urlsplit(place.url)
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(url.netloc, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(url.netloc, timeout=TIMEOUT_S)
    try:
        connection.request("POST", url.path.rstrip("/") + PATH, submission.body)
        reply = connection.getresponse()
        return _Reply(reply.status, reply.read(MAX_REPLY))
    except (OSError, http.client.HTTPException) as error:
        return error
    finally:
        connection.close()


def _answer(
    asked: tuple[WitnessPlace, Submission | NotInTheLog], reply: _Reply | Exception
) -> Answer:
    place, submission = asked
    if isinstance(submission, NotInTheLog) or isinstance(reply, Exception):
        why = str(reply) or type(reply).__name__
        return Answer(place, Finding.SILENT, f"did not cosign: {why}", -1)
    new, old = submission.checkpoint, submission.old
    if reply.status == 200:
        return _cosigned(place, new, reply.body)
    if reply.status == 422:
        what = f"saw {old} entries, which this log does not contain"
        return Answer(place, Finding.FORKED, what, old)
    size = reply.body.strip()
    if reply.status == 409 and size.isdigit() and len(size) < 20:
        return _conflict(place, new, old, int(size))
    return Answer(place, Finding.SILENT, f"answered {reply.status}: {_short(reply.body)}", -1)


def _conflict(place: WitnessPlace, new: LogCheckpoint, old: int, size: int) -> Answer:
    if size > new.size:
        return Answer(place, Finding.AHEAD, f"saw {size} entries, and the log has {new.size}", size)
    if size == old:
        what = f"saw {size} entries with another root, which this log does not contain"
        return Answer(place, Finding.FORKED, what, size)
    return Answer(place, Finding.SILENT, "was asked at once by several", size)


def _cosigned(place: WitnessPlace, new: LogCheckpoint, body: bytes) -> Answer:
    try:
        signatures = parse_signatures(body.decode())
    except (NotANote, UnicodeDecodeError) as error:
        return Answer(place, Finding.SILENT, f"answered no cosignature: {error}", -1)
    own = [each for each in signatures if each.hash == place.key.hash]
    made = new.with_signatures(own)
    if made.cosigned_at(place.key) is None:
        return Answer(place, Finding.SILENT, "answered no valid cosignature of its key", -1)
    return Answer(place, Finding.COSIGNED, "cosigned", new.size, made)


def _short(body: bytes) -> str:
    return body[:200].decode("utf-8", "replace").strip()
