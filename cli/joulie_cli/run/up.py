"""`joulie up`: all parts in one process group, for a real cluster or without one."""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from joulie_bus.runtime.logging import get_logger
from joulie_cli.run import archive, console, extender, ledger, operator, projector
from joulie_cli.supervisor.start_checks import require_kubeconfig
from joulie_cli.supervisor.supervisor import Supervisor
from joulie_cli.wiring import Wiring, run_until_signalled
from joulie_console.settings import ConsoleSettings
from joulie_extender.settings import ServerSettings
from joulie_operator.cluster_settings import IN_CLUSTER, ClusterSettings

SETTINGS = (
    *projector.SETTINGS,
    *operator.SETTINGS,
    *extender.SETTINGS,
    *console.SETTINGS,
    *archive.SETTINGS,
    *ledger.SETTINGS,
)

PARTS = ("projector", "operator", "extender", "console", "ledger")
SHADOW_PARTS = ("projector", "operator", "shadow", "console", "ledger")
NO_ARCHIVE = {
    "why": "ARCHIVE_DIR is not set",
    "what": "the broker and the database only grow until they are full, and readings leave the "
    "broker after 24 hours",
    "next": "set ARCHIVE_DIR, or run `joulie archive --to DIR --every 1h`",
}
log = get_logger("up")


class UpOptions(NamedTuple):
    cluster: str
    shadow: bool
    seconds: float | None  # None: until Ctrl-C


def run(args: argparse.Namespace, wires: Wiring) -> int:
    cluster = args.kubeconfig or wires.source.load(ClusterSettings).kubeconfig
    if not cluster:
        print(
            "No cluster is named, so none is watched: only facts that other clients publish to "
            "the broker are used. For a cluster give --kubeconfig FILE; for a simulated one run "
            "`joulie demo`.",
            file=sys.stderr,
        )
    elif cluster != IN_CLUSTER:
        require_kubeconfig(Path(cluster))
    options = UpOptions(cluster, args.shadow, args.seconds)
    _, code = run_until_signalled(lambda stop: _up(wires, options, stop))
    if args.report is not None:
        # Imported here: 10 MB in a process that otherwise only watches over others.
        from joulie_cli.reporting.write import report_now, write

        ledger.fold_once(wires)
        write(args.report, asyncio.run(report_now(wires, signs=True)))
        print(f"Wrote {args.report}.")
    return code


async def _up(wires: Wiring, options: UpOptions, stop: asyncio.Event) -> None:
    addresses = {
        "extender": wires.source.load(ServerSettings).addr,
        "console": wires.source.load(ConsoleSettings).addr,
        "metrics": wires.bus.metrics_addr,
    }
    extra = {
        **wires.source.from_file(),
        "KUBECONFIG": options.cluster,
        "JOULIE_CLUSTER": wires.bus.cluster,
    }
    parts: dict[str, Sequence[str]] = dict.fromkeys(PARTS, ())
    if options.shadow:
        parts = {name: () for name in SHADOW_PARTS}
        parts["operator"] = ("--shadow",)
        del addresses["extender"]
    if wires.source.load(archive.ArchiveSettings).directory:
        parts["archive"] = ("--every",)
    else:
        log.warning("no_archive", **NO_ARCHIVE)
    async with Supervisor.over(wires.data, parts, addresses, extra, wires.subjects) as supervisor:
        log.info("up", data=str(wires.data.path), **supervisor.endpoints)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                await stop.wait()
        log.info("stopping")
