"""print a proof that an entry is in the log, verifiable without Joulie."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("position", type=shared.count, metavar="ENTRY", help="number of the entry")
    shared.archive(parser)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace

    return Program((ArchivePlace,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_audit.access.past import archive_of, history_of
    from joulie_audit.verify.proof import prove
    from joulie_cli.display.output import show
    from joulie_projections.decision_log.heads import public_key

    with history_of(wires, archive_of(args, wires)) as history:
        has_keys = wires.data.public_key.exists()
        ring = public_key(wires.data.public_key) if has_keys else None
        proof = prove(history, args.position, ring)
    checkpoint = proof.checkpoint
    known = {"entry": args.position, "index": proof.at, "of": checkpoint.size}
    result = {**known, "origin": checkpoint.origin, "proof": proof.text}
    show(args, result, proof.text.removesuffix("\n"))
    return 0
