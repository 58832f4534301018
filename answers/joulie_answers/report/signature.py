"""Signs a report with the key of the log's heads, and checks the signature."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from joulie_answers.report.form import Document
from joulie_bus.errors import NotInTheLog
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.signed import has_signed
from joulie_projections.decision_log.heads import Signer

NO_KEY = (
    "{} is missing: only the writer of the log can sign a report. Run the command where the "
    "projector runs, or give --unsigned."
)


def canonical(document: Document) -> bytes:
    """The bytes that are signed: everything but the signature, in a fixed order."""
    body = {key: value for key, value in document.items() if key != "signature"}
    return msgspec.json.encode(body, order="deterministic")


def text_of(document: Document) -> bytes:
    return f"{document['format']}\n{hashlib.sha256(canonical(document)).hexdigest()}\n".encode()


def signed(document: Document, key: Path) -> Document:
    if not key.exists():
        raise NotInTheLog(NO_KEY.format(key))
    signer = Signer.of(key)
    signature = signer.signature(text_of(document)).hex()
    return {**document, "signature": {"key_id": signer.key_id, "signature": signature}}


def flaw_of(document: Document, ring: Ring) -> str:
    """Why the signature is not valid; "" if it is."""
    found: dict[str, Any] = document.get("signature") or {}
    if not found:
        return "the report is not signed"
    key = ring.key(str(found.get("key_id")))
    try:
        signature = bytes.fromhex(str(found.get("signature")))
    except ValueError:
        return "its signature is not hexadecimal"
    if key is None or not has_signed(key.checker, signature, text_of(document)):
        return "the report is not signed by a key of this log, or was changed after it was signed"
    return ""


def head_json(head: Head | None) -> Document | None:
    if head is None:
        return None
    return {"pos": head.pos, "hash": head.hash.hex(), "note": head.note}
