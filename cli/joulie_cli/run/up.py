"""run all parts in one process group, for a real cluster or without one.

joulie up --kubeconfig ~/.kube/config
joulie up --kubeconfig ~/.kube/config --shadow --for 24h --report day.html
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    import asyncio

    from joulie_cli.supervisor.unfinished import Unfinished
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="answer for pods that another scheduler places; read the cluster only",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=shared.seconds,
        metavar="TIME",
        help="stop after this time, such as 24h",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="at the end write the report of this run"
    )


PARTS = ("projector", "operator", "extender", "console", "ledger")
SHADOW_PARTS = ("projector", "operator", "shadow", "console", "ledger")
NO_ARCHIVE = {
    "why": "ARCHIVE_DIR is not set",
    "what": "the broker and the database only grow until they are full, and readings leave the "
    "broker after 24 hours",
    "next": "set ARCHIVE_DIR, or run `joulie archive --dir DIR --every 1h`",
}


class UpOptions(NamedTuple):
    cluster: str
    shadow: bool
    seconds: float | None  # None: until Ctrl-C


def program() -> Program:
    from joulie_cli.command_line.all_settings import SETTINGS

    return Program(SETTINGS, run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_audit.ledger import component as ledger
    from joulie_cli.display.output import require_writable
    from joulie_cli.supervisor.start_checks import require_kubeconfig
    from joulie_cli.supervisor.unfinished import FAILED
    from joulie_operator.cluster_settings import IN_CLUSTER, ClusterSettings
    from joulie_projections.component.process import run_until_signalled

    require_writable("--report", args.report)
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
    unfinished, code = run_until_signalled(lambda stop: _up(wires, options, stop))
    for sentence in unfinished.sentences():
        print(sentence, file=sys.stderr)
    if args.report is not None:
        # Imported here: 10 MB in a process that otherwise only watches over others.
        from joulie_answers.report.write import report_now, write

        ledger.fold_once(wires)
        write(args.report, asyncio.run(report_now(wires, signs=True)))
        print(f"Wrote {args.report}.")
    return FAILED if unfinished.has_failed else code


def _parts(options: UpOptions) -> dict[str, Sequence[str]]:
    """Each with its command-line options."""
    if options.shadow:
        return {**dict.fromkeys(SHADOW_PARTS, ()), "operator": ("--shadow",)}
    return dict.fromkeys(PARTS, ())


async def _up(wires: Wiring, options: UpOptions, stop: asyncio.Event) -> Unfinished:
    import asyncio

    from joulie_audit.retention import writing as archive
    from joulie_bus.runtime.logging import get_logger
    from joulie_cli.supervisor.supervisor import Supervisor
    from joulie_cli.supervisor.unfinished import Unfinished
    from joulie_console.settings import ConsoleSettings
    from joulie_extender.settings import ServerSettings

    server = wires.source.load(ServerSettings)
    addresses = {
        "extender": server.addr,
        "console": wires.source.load(ConsoleSettings).addr,
        "metrics": wires.bus.metrics_addr,
    }
    extra = {
        **wires.source.from_file(),
        "KUBECONFIG": options.cluster,
        "JOULIE_CLUSTER": wires.bus.cluster,
    }
    parts = _parts(options)
    if options.shadow:
        del addresses["extender"]
    if wires.source.load(archive.ArchiveSettings).directory:
        parts["archive"] = ("--every",)
    else:
        get_logger("up").warning("no_archive", **NO_ARCHIVE)
    async with Supervisor.over(wires.data, parts, addresses, extra, wires.subjects) as supervisor:
        log = get_logger("up")
        log.info("up", data=str(wires.data.path), **supervisor.endpoints)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.seconds):
                await stop.wait()
        log.info("stopping")
    return Unfinished.after(supervisor, server.spool_in(wires.data.spool))
