"""list, rotate, retire and replace the keys that sign the log.

joulie keys
joulie keys rotate
joulie keys retire 2 --compromised-since 2026-11-21T10:30
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.chain.keyring import Key, Ring
    from joulie_projections.component.wiring import Wiring

ACTIONS = ("list", "rotate", "retire", "replace")


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="list")
    parser.add_argument(
        "key",
        nargs="?",
        metavar="KEY",
        help="number of the key to retire, or id of a lost key that this one replaces",
    )
    parser.add_argument(
        "--compromised-since", metavar="WHEN", help="an entry, a time, or -10m; valid before"
    )
    parser.add_argument(
        "--wait",
        type=shared.seconds,
        default=20.0,
        metavar="TIME",
        help="wait for the projector (20s)",
    )


LOOK_S = 0.2
HOW = "an entry's number, a time such as 2026-11-21T10:30, or -10m"
NOT_YET_TAKEN_UP = (
    "{file} was written; no projector has taken it up within {seconds:g} s. The projector that "
    "signs this log takes it up before its next head; if none runs, the next one does when it "
    "starts. `joulie keys list` shows it then."
)


def program() -> Program:
    return Program((), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_audit.access.kept_heads import public_key
    from joulie_projections.decision_log import key_change
    from joulie_projections.decision_log.heads import next_path, replaced_path

    if args.action == "list":
        return _list(args, public_key(wires))
    key = wires.data.key
    if args.action == "replace":
        return _replace(args, replaced_path(key))
    if args.action == "rotate":
        key_change.request_rotation(key)
        return _wait(args, wires, next_path(key))
    public = public_key(wires)
    key_id, since = _named(args, public), asyncio.run(_since(args, wires, public))
    key_change.request_retirement(key, key_id, since, wires.data.public_key)
    return _wait(args, wires, key_change.retirement_path(key))


def _list(args: argparse.Namespace, ring: Ring) -> int:
    from joulie_cli.display.output import show
    from joulie_projections.decision_log.tree import verifier_of

    listed = [_as_json(number, key, ring) for number, key in enumerate(ring.keys, 1)]
    lines = [_as_text(number, key, ring) for number, key in enumerate(ring.keys, 1)]
    lines.append(f"     for witnesses: {verifier_of(ring, ring.newest)}")
    show(args, listed, "\n".join(lines))
    return 0


def _replace(args: argparse.Namespace, file: Path) -> int:
    from joulie_bus.errors import KeyChangeRefused
    from joulie_bus.runtime.secret_files import keep_private

    if not args.key:
        raise KeyChangeRefused(
            "No key is named. Nothing was changed. The projector's error names it."
        )
    keep_private(file, f"{args.key}\n")
    print(f"{file} lets a projector continue the log of {args.key} with its own key.")
    return 0


def _wait(args: argparse.Namespace, wires: Wiring, file: Path) -> int:
    """Wait for the projector: it deletes the request file once the change is made."""
    from joulie_audit.access.kept_heads import public_key
    from joulie_bus.errors import KeyChangeRefused

    end = time.monotonic() + args.wait
    while file.exists():
        if time.monotonic() >= end:
            raise KeyChangeRefused(NOT_YET_TAKEN_UP.format(file=file, seconds=args.wait))
        time.sleep(LOOK_S)
    return _list(args, public_key(wires))


def _named(args: argparse.Namespace, ring: Ring) -> str:
    from joulie_bus.errors import KeyChangeRefused

    if not args.key or args.compromised_since is None:
        raise KeyChangeRefused(
            "A key and a time are required. Nothing was changed. Give "
            "`joulie keys retire KEY --compromised-since WHEN`; `joulie keys list` has the numbers."
        )
    if args.key.isdecimal() and 1 <= int(args.key) <= len(ring.keys):
        return ring.keys[int(args.key) - 1].id
    return str(args.key)


async def _since(args: argparse.Namespace, wires: Wiring, public: Ring) -> int:
    """The newest entry with an anchored head before that time, by the broker's clock: the time in
    a head itself can be forged with a leaked key."""
    from joulie_audit.access.past import broker_of
    from joulie_bus.errors import NotInTheLog
    from joulie_bus.log.whole_stream import everything
    from joulie_bus.streams.subjects import Stream
    from joulie_cli.display.times import as_time
    from joulie_projections.chain.head import Head, statement_in

    when: str = args.compromised_since
    if when.isdecimal():
        return int(when)
    try:
        until = as_time(when, time.time_ns())
    except ValueError as error:
        raise NotInTheLog(f"{when!r} is not {HOW}. Nothing was changed.") from error
    async with broker_of(wires) as bus:
        records = await everything(bus, Stream.HEADS)
    decoded = (statement_in(record.data) for record in records if record.at <= until)
    signed = public.signed_among(each for each in decoded if each is not None)
    return max((each.pos for each in signed if isinstance(each, Head)), default=0)


def _as_json(number: int, key: Key, ring: Ring) -> dict[str, Any]:
    from joulie_bus.core.times import MS, rfc3339
    from joulie_projections.chain.keyring import ENDLESS
    from joulie_projections.decision_log.tree import verifier_of

    return {
        "number": number,
        "key_id": key.id,
        "kind": "ed25519",
        "signs": key == ring.newest,
        "first": key.after + 1,
        "last": None if key.until == ENDLESS else key.until,
        "since": rfc3339(key.began_at // MS) if key.began_at else None,
        "until": rfc3339(key.ended_at // MS) if key.ended_at else None,
        "compromised_since": key.since if key.is_compromised else None,
        "verifier": str(verifier_of(ring, key)),
    }


def _as_text(number: int, key: Key, ring: Ring) -> str:
    from joulie_bus.core.times import MS, utc_text

    first = f"entry {key.after + 1}"
    began = f"{first} ({utc_text(key.began_at // MS)})" if key.began_at else first
    if key == ring.newest:
        span = f"signs from {began} on"
    else:
        span = f"signed from {began} to {key.until} ({utc_text(key.ended_at // MS)})"
    bad = f"; compromised since entry {key.since}" if key.is_compromised else ""
    return f"{number:>3}  {key.id}  {span}{bad}"
