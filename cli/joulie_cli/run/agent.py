"""read the power, the hardware and the cards of this node, and publish them.

joulie agent --once
joulie agent --node node-17
joulie agent --caps --dry-run
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_agent.report import NodeReport, Reading
    from joulie_agent.sources.host import Host
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--once", action="store_true", help="read everything once, print it and publish nothing"
    )
    parser.add_argument(
        "--caps",
        action="store_true",
        help="set the limits that the operator orders for this node, and read nothing else",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --caps: report what would be set"
    )
    parser.add_argument(
        "--kept",
        type=Path,
        metavar="FILE",
        help="keep readings of an outage of the broker in this file as well (default: in memory)",
    )
    shared.limits_of_node(parser)
    parser.add_argument(
        "--node",
        default=os.environ.get("NODE_NAME", ""),
        metavar="NAME",
        help="the node that this is (the variable NODE_NAME, else the name of the host)",
    )


def program() -> Program:
    from joulie_agent.component import SETTINGS

    return Program(SETTINGS, run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import socket

    from joulie_agent.caps.memory import BadMemory
    from joulie_agent.caps.release import memory_in
    from joulie_agent.component import enforce, serve
    from joulie_agent.sources.host import Host
    from joulie_bus.errors import SettingsError
    from joulie_projections.component.process import serve_part

    node = args.node or socket.gethostname().lower()
    host = Host(_root(args.host_root), node)
    if args.once:
        return _show_once(args, node, host)
    if args.caps:
        try:
            memory = memory_in(args.limits)
        except BadMemory as error:
            raise SettingsError([f"--limits {error}"]) from error
        work = enforce(wires, node, host, memory, dry_run=args.dry_run)
        return serve_part(wires, "agent-caps", work)
    return serve_part(wires, "agent", serve(wires, node, host, args.kept))


def _show_once(args: argparse.Namespace, node: str, host: Host) -> int:
    import asyncio

    import msgspec

    from joulie_agent.once import read_once
    from joulie_cli.display.output import show

    report = asyncio.run(read_once(node, host))
    show(args, msgspec.to_builtins(report), _text(report))
    return 0


def _root(root: Path) -> Path:
    from joulie_bus.errors import SettingsError

    if not root.is_dir():
        raise SettingsError([f"--host-root {root} is no directory"])
    return root


def _text(report: NodeReport) -> str:
    cpu = report.hardware.cpu
    lines = [
        f"{report.node}: {cpu.sockets} x {cpu.model or 'unknown processor'}, {cpu.cores} cores, "
        f"{report.hardware.memory_bytes / 2**30:.1f} GiB"
        f"{', a virtual machine' if report.hardware.virtual else ''}"
    ]
    lines += [f"  {_reading(each)}" for each in report.readings]
    lines += [
        f"  card {card.uuid}: {card.model}, {card.memory_mb} MiB, "
        f"{'healthy' if card.healthy else '; '.join(card.problems)}"
        for card in report.cards
    ]
    lines += [
        f"  limit of {cap.source} {cap.component}: {cap.watts:.0f} W"
        for cap in report.caps
        if cap.watts is not None
    ]
    lines += [f"  not available: {each.source}: {each.why}" for each in report.not_available]
    return "\n".join(lines)


def _reading(reading: Reading) -> str:
    amounts = []
    if reading.watts is not None:
        amounts.append(f"{reading.watts:.1f} W")
    if reading.joules is not None:
        amounts.append(f"{reading.joules:.0f} J counted")
    return f"{reading.source} {reading.component}: {', '.join(amounts)} ({reading.accuracy})"
