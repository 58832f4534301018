"""`joulie prove`: a proof that an entry is in the log, for people who trust no code of ours."""

import argparse

import msgspec

from joulie_audit.proof import prove
from joulie_cli.past import history_of
from joulie_cli.wiring import Wiring

SETTINGS = ()


def run(args: argparse.Namespace, wires: Wiring) -> int:
    with history_of(wires) as history:
        proof = prove(history, args.position)
    print(msgspec.json.encode(proof).decode())
    return 0
