"""print a proof that an entry is in the log, or that one is missing.

joulie prove 4050 > proof.txt
joulie prove --missing
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_audit.verify.missing_answers import Judged
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "position", nargs="?", type=shared.count, metavar="ENTRY", help="number of the entry"
    )
    what.add_argument(
        "--missing",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="PLACE",
        help="judge proofs of replicas that the log lacks what they published: a file, or a "
        "directory of them; without one those in the spools of this data directory",
    )
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace
    from joulie_extender.settings import ServerSettings

    return Program((ArchivePlace, ServerSettings), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    if args.missing is not None:
        return _judge_missing(args, wires)
    from joulie_audit.access.kept_heads import public_key
    from joulie_audit.access.past import archive_of, history_of
    from joulie_audit.verify.proof import prove, require_entry
    from joulie_cli.display.output import show

    with history_of(wires, archive_of(args, wires)) as history:
        require_entry(history, args.position)
        proof = prove(history, args.position, public_key(wires))
    checkpoint = proof.checkpoint
    known = {"entry": args.position, "index": proof.at, "of": checkpoint.size}
    result = {**known, "origin": checkpoint.origin, "proof": proof.text}
    show(args, result, proof.text.removesuffix("\n"))
    return 0


def _judge_missing(args: argparse.Namespace, wires: Wiring) -> int:
    """The exit code is 1 if the log lacks something that a replica can prove."""
    from joulie_audit.access.kept_heads import public_key
    from joulie_audit.access.past import archive_of, history_of
    from joulie_audit.verify.missing_answers import judged, proofs_in
    from joulie_cli.display.output import show
    from joulie_extender.settings import ServerSettings

    usual = wires.source.load(ServerSettings).spool_in(wires.data.spool)
    place = usual if args.missing == Path() else args.missing
    files = proofs_in(place)
    with history_of(wires, archive_of(args, wires)) as history:
        found = list(judged(files, history, public_key(wires)))
    none = f"There is no proof in {place}: no replica has found that the log lacks its answers."
    text = "\n".join(map(_text, found)) or none
    show(args, {"items": [_as_json(each) for each in found]}, text)
    return 1 if any(each.is_broken for each in found) else 0


def _text(one: Judged) -> str:
    match one.verdict:
        case "unproved":
            return f"{one.id}: NOT proved: {one.why}\n  proof     {one.file}"
        case "found":
            return f"{one.id}: in the log by now, as entry {one.entry}\n  proof     {one.file}"
        case "missing":
            what = "MISSING: no entry of the log has it"
        case "other":
            what = f"OTHER: entry {one.entry} has its id, and another content"
    assert one.signer is not None
    at = f" at {_time(one.signer.at)}" if one.signer.at is not None else ""
    announced = f"entry {one.key_entry}" if one.key_entry is not None else "no entry"
    return "\n".join(
        [
            f"{one.id}: {what}",
            f"  promised  by {one.signer.id}{at}",
            f"  key       {one.signer.public.hex()}, announced in {announced}",
            f"  head      {one.head}, signed at {_time(one.head_at)}, which has read its message",
            f"  proof     {one.file}",
        ]
    )


def _time(ns: int) -> str:
    from joulie_cli.display.times import instant

    return f"{instant(ns):%Y-%m-%d %H:%M:%S} UTC"


def _as_json(one: Judged) -> dict[str, object]:
    signer = one.signer
    return {
        **one._asdict(),
        "file": str(one.file),
        "signer": None
        if signer is None
        else {"id": signer.id, "at": signer.at, "public": signer.public.hex()},
    }
