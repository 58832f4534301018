"""The HTTP interface of a witness: `POST /add-checkpoint` as C2SP's tlog-witness describes it."""

import hashlib
import time
from collections.abc import Callable, Iterable
from ssl import SSLContext
from typing import Any
from wsgiref.simple_server import WSGIServer

from joulie_bus.errors import PortTaken
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.metrics_server import listener
from joulie_bus.runtime.settings import HostPort
from joulie_bus.runtime.system_errors import reason_of
from joulie_projections.chain.note import MAX_NOTE, NotANote, Submission
from joulie_projections.witness.cosigner import Witness, cosigned_by
from joulie_projections.witness.seen import Refused, Seen

PATH = "/add-checkpoint"
SEEN = "/checkpoint/"  # and the SHA-256 of the origin: not of tlog-witness, which leaves it open
MAX_BODY = MAX_NOTE + 63 * 45 + 100
_REASONS = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
            409: "Conflict", 413: "Content Too Large", 422: "Unprocessable Entity"}  # fmt: skip
_TEXT = "text/plain; charset=utf-8"
log = get_logger("witness")
Start = Callable[..., Any]


def seen_path(origin: str) -> str:
    """Where a witness shows the newest checkpoint that it saw of a log."""
    return f"{SEEN}{hashlib.sha256(origin.encode()).hexdigest()}"


def bound(at: HostPort, witness: Witness, seen: Seen, tls: SSLContext | None = None) -> WSGIServer:
    """Bound, and not yet serving."""

    def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].startswith(SEEN):
            return _show(environ["PATH_INFO"], start, seen)
        if environ["PATH_INFO"] != PATH:
            return _refuse(start, Refused(404, f"only POST {PATH} is answered"))
        if environ["REQUEST_METHOD"] != "POST":
            return _refuse(start, Refused(405, f"only POST {PATH} is answered"))
        return _answer(environ, start, witness, seen)

    try:
        server = listener(*at, answer)
    except OSError as error:
        raise PortTaken(str(at), reason_of(error)) from error
    if tls is not None:  # the handshake is made in the thread of the request
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    return server


def _show(path: str, start: Start, seen: Seen) -> Iterable[bytes]:
    note = next((note for origin, note in seen.newest() if seen_path(origin) == path), None)
    if note is None:
        return _refuse(start, Refused(404, "no checkpoint of such a log was seen"))
    start("200 OK", [("Content-Type", _TEXT)])
    return [note]


def _answer(environ: dict[str, Any], start: Start, witness: Witness, seen: Seen) -> Iterable[bytes]:
    length = environ.get("CONTENT_LENGTH") or ""
    if not (length.isascii() and length.isdecimal()) or int(length) > MAX_BODY:
        return _refuse(start, Refused(413, f"a body of at most {MAX_BODY} bytes is expected"))
    try:
        submission = Submission.parse(environ["wsgi.input"].read(int(length)))
    except NotANote as error:
        return _refuse(start, Refused(400, str(error)))
    refused = seen.add(submission)
    new = submission.checkpoint
    if refused is not None:
        if refused.status == 422 or refused.size == submission.old:
            log.warning("not_cosigned", log=new.origin, size=new.size, why=refused.why)
        return _refuse(start, refused)
    start("200 OK", [("Content-Type", _TEXT)])
    return [f"{cosigned_by(witness, new, int(time.time()))}\n".encode()]


def _refuse(start: Start, refused: Refused) -> Iterable[bytes]:
    is_size = refused.size is not None
    kind = "text/x.tlog.size" if is_size else _TEXT
    start(f"{refused.status} {_REASONS[refused.status]}", [("Content-Type", kind)])
    return [f"{refused.size if is_size else refused.why}\n".encode()]
