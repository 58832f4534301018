"""`joulie prove`: a proof that an entry is in the log, verifiable without Joulie's code."""

import argparse

from joulie_audit.verify.proof import prove
from joulie_cli.display.output import show
from joulie_cli.log_access.past import ArchivePlace, archive_of, history_of
from joulie_cli.wiring import Wiring
from joulie_projections.decision_log.heads import public_key

SETTINGS = (ArchivePlace,)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    with history_of(wires, archive_of(args, wires)) as history:
        has_keys = wires.data.public_key.exists()
        ring = public_key(wires.data.public_key) if has_keys else None
        proof = prove(history, args.position, ring)
    checkpoint = proof.checkpoint
    known = {"entry": args.position, "index": proof.at, "of": checkpoint.size}
    result = {**known, "origin": checkpoint.origin, "proof": proof.text}
    show(args, result, proof.text.removesuffix("\n"))
    return 0
