"""Checks a report's signature and head, and computes it again."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from joulie_answers.report.document import (
    FORMAT,
    differences,
    document_of,
)
from joulie_answers.report.form import Document, Period
from joulie_answers.report.gather import gathered
from joulie_answers.report.page import document_in, page_of
from joulie_answers.report.signature import canonical, flaw_of, head_json
from joulie_audit.access.kept_heads import public_key
from joulie_audit.access.past import facts_of, history_of
from joulie_audit.archive.parts import Archive
from joulie_audit.ledger.refold import refolded
from joulie_audit.verify.verify import verify
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.core.times import utc_text
from joulie_bus.errors import NotInTheLog
from joulie_bus.runtime.system_errors import reason_of
from joulie_projections.component.opening import require_readable
from joulie_projections.component.wiring import Wiring
from joulie_projections.energy.ledger import RULE
from joulie_projections.history.history import History

NOT_A_REPORT = (
    "{} is not a report: {}. Nothing was checked. Name a file that `joulie report --out` wrote."
)
VALID = "the signature, the head and every figure are what the log gives"
MOST_NAMED, LONGEST = 5, 80  # differences in one message, and characters of a value


class Verified(NamedTuple):
    flaw: str  # empty: none
    text: str


async def verified(file: Path, wires: Wiring, archive: Path | None) -> Verified:
    try:
        text = file.read_text()
        document = document_in(text)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise NotInTheLog(NOT_A_REPORT.format(file, reason_of(error))) from error
    flaw = _flaw_of_file(text, document) or await _flaw(document, wires, archive)
    text = f"{file} is NOT valid: {flaw}." if flaw else f"{file}: {VALID}{_ends(document)}."
    return Verified(flaw, text)


def _ends(document: Document) -> str:
    whole, asked = document["energy"]["namespace"], document["asked"]["to"]
    first, end, to = (utc_text(ms) for ms in (whole["from"], whole["to"], asked))
    return f", for {first} to {end}; it was asked for up to {to}"


def _flaw_of_file(text: str, document: Document) -> str:
    if document.get("format") != FORMAT:
        return f"its format is {document.get('format')!r}, and this version reads {FORMAT}"
    if document.get("rule") != RULE:
        return f"its energy was counted by rule {document.get('rule')}, and here by rule {RULE}"
    try:
        is_same = not text.lstrip().startswith("<") or page_of(document) == text
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"its JSON is not that of a report ({error!r})"
    return "" if is_same else "the page shows other figures than its JSON"


async def _flaw(document: Document, wires: Wiring, archive: Path | None) -> str:
    require_readable(wires.data)
    if flaw := flaw_of(document, public_key(wires)) or _flaw_of_log(wires, archive):
        return flaw
    async with facts_of(wires, archive) as (history, facts):
        if flaw := _flaw_of_head(document, history, wires):
            return flaw
        period = Period(**{f"{end}_ms": document["asked"][end] for end in ("from", "to")})
        async with refolded(history, facts, int(document["position"])) as table:
            got = await gathered(table, history, facts, period, int(document["entries"]))
    return _difference(document, document_of(got, str(document["cluster"])))


def _flaw_of_log(wires: Wiring, archive: Path | None) -> str:
    """The chains that the report rests on: of the decisions, and of the batches of facts."""
    ring = public_key(wires)
    with history_of(wires) as history:
        flaw = verify(history, ring, ()).flaw
        if flaw is not None:
            return f"the log that it rests on is corrupted: {flaw.what}"
        if archive is None:
            return ""
        found = verify_archive(Archive.of(archive), ring, history, ()).flaw
    return f"the archive that it rests on is corrupted: {found}" if found is not None else ""


def _difference(document: Document, again: Document) -> str:
    """Compared as JSON, in which numbers have one form."""
    reported: Any = msgspec.json.decode(canonical({**document, "head": None}))
    computed: Any = msgspec.json.decode(canonical({**again, "head": None}))
    found = list(differences(reported, computed))
    if not found:
        return ""
    named = [
        f"{each.path} is {_short(each.reported)}, and the log gives {_short(each.computed)}"
        for each in found[:MOST_NAMED]
    ]
    more = f"; and {len(found) - MOST_NAMED} more differ" if len(found) > MOST_NAMED else ""
    return "; ".join(named) + more


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _flaw_of_head(document: Document, history: History, wires: Wiring) -> str:
    """The head is one of the log's, and the entry that it signs has the hash that it names."""
    reported = document.get("head")
    if reported is None:
        return ""
    known = [head for head in history.heads() if head.pos == reported.get("pos")]
    if not any(head_json(head) == reported for head in known):
        return "its head is not a head of this log"
    ring = public_key(wires)
    if flaw := next(filter(None, map(ring.flaw_of, known)), ""):
        return flaw
    entry = history.entry(int(reported["pos"]))
    if entry is not None and entry.hash.hex() != reported["hash"]:
        return f"the log has another entry {reported['pos']} than its head"
    return ""
