"""`joulie replay`: does the log say what was decided?"""

import argparse
import asyncio
import json
from typing import Any

from joulie_audit.replay import Replayed, replay
from joulie_cli.past import broker_of
from joulie_cli.wiring import Wiring
from joulie_projections.history import History

SETTINGS = ()


def run(args: argparse.Namespace, wires: Wiring) -> int:
    done = asyncio.run(_replay(wires))
    print(json.dumps(_as_json(done)) if args.json else _as_text(done))
    return 0 if not done.mismatches else 1


async def _replay(wires: Wiring) -> Replayed:
    wires.data.require()
    async with broker_of(wires) as bus:
        with History.of(wires.data.database) as history:
            return await replay(history, bus)


def _as_json(done: Replayed) -> dict[str, Any]:
    return {
        "events": done.events,
        "decisions": done.decisions,
        "mismatches": done.mismatches,
        "seconds": round(done.seconds, 3),
        "told": [mismatch._asdict() for mismatch in done.told],
    }


def _as_text(done: Replayed) -> str:
    lines = [
        f"{done.events} events folded and {done.decisions} decisions recomputed "
        f"in {done.seconds:.1f} s: {done.mismatches or 'no'} mismatch(es)."
    ]
    lines.extend(f"  entry {miss.entry}: {miss.kind}: {miss.what}" for miss in done.told)
    return "\n".join(lines)
