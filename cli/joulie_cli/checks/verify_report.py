"""`joulie verify --report`: checks a report's signature and head, and computes it again."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

import msgspec

from joulie_audit.ledger.refold import refolded
from joulie_bus.errors import NotInTheLog
from joulie_cli.display.output import show
from joulie_cli.log_access.kept_heads import public_key
from joulie_cli.log_access.past import archive_of, facts_of, require_readable
from joulie_cli.reporting.document import FORMAT, Document, document_of, first_difference
from joulie_cli.reporting.gather import Period, gathered
from joulie_cli.reporting.page import document_in, page_of
from joulie_cli.reporting.signature import canonical, flaw_of, head_json
from joulie_cli.wiring import Wiring
from joulie_projections.history.history import History

NOT_A_REPORT = "{} is not a report: {}."
VALID = "the signature, the head and every figure are what the log gives"


def run(args: argparse.Namespace, wires: Wiring) -> int:
    file: Path = args.report
    try:
        text = file.read_text()
        document = document_in(text)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise NotInTheLog(NOT_A_REPORT.format(file, error)) from error
    flaw = _flaw_of_file(text, document) or asyncio.run(_flaw(args, wires, document))
    text = f"{file} is NOT valid: {flaw}." if flaw else f"{file}: {VALID}."
    show(args, {"report": str(file), "flaw": flaw or None}, text)
    return 1 if flaw else 0


def _flaw_of_file(text: str, document: Document) -> str:
    if document.get("format") != FORMAT:
        return f"its format is {document.get('format')!r}, and this version reads {FORMAT}"
    try:
        is_same = not text.lstrip().startswith("<") or page_of(document) == text
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"its JSON is not that of a report ({error!r})"
    return "" if is_same else "the page shows other figures than its JSON"


async def _flaw(args: argparse.Namespace, wires: Wiring, document: Document) -> str:
    require_readable(wires.data)
    if flaw := flaw_of(document, public_key(wires)):
        return flaw
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        if flaw := _flaw_of_head(document, history, wires):
            return flaw
        period = Period(**{f"{end}_ms": document["asked"][end] for end in ("from", "to")})
        async with refolded(history, facts, int(document["position"])) as table:
            got = await gathered(table, history, facts, period, int(document["entries"]))
    again = document_of(got, str(document["cluster"]))
    return _difference(document, again)


def _difference(document: Document, again: Document) -> str:
    """Compared as JSON, in which numbers have one form."""
    reported: Any = msgspec.json.decode(canonical({**document, "head": None}))
    computed: Any = msgspec.json.decode(canonical({**again, "head": None}))
    where = first_difference(reported, computed)
    return f"the log gives another value for {where.lstrip('.')}" if where else ""


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
