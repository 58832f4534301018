"""run a past period again under other settings, or pack a cluster again; changes nothing.

joulie try
joulie try --last 24h --set reserve=0.02,0.05,0.1
joulie try --from kubeconfig --kubeconfig ~/.kube/config --context production -o json
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_bus.errors import SettingsError
from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring

USUAL = "~/.kube/config"
WEEK = "7d"
DAY_S = 86_400.0
OF_A_CLUSTER = ("kubeconfig", "context")
OF_A_LOG = ("archive", "last", "to", "set", "seeds")


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    parser.add_argument(
        "--from",
        dest="origin",
        choices=("kubeconfig",),
        help="kubeconfig: nodes and pods of a cluster, listed once (the log)",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help=f"how to reach the cluster (KUBECONFIG, or {USUAL})"
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (the current)")
    parser.add_argument(
        "--last", type=long_time, metavar="TIME", help=f"log: length of the period ({WEEK})"
    )
    parser.add_argument("--to", metavar="TIME", help="log: its end (the newest reading)")
    parser.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE[,VALUE]",
        help="log: a row with this setting, for each value",
    )
    parser.add_argument(
        "--seeds", type=shared.count, metavar="N", help="log: orders of equal nodes (1)"
    )
    shared.archive(parser)


def long_time(text: str) -> float:
    days = re.fullmatch(r"(\d{1,4})d", text)
    return int(days[1]) * DAY_S if days and int(days[1]) else shared.some_seconds(text)


def program() -> Program:
    from joulie_audit.access.past import ArchivePlace
    from joulie_operator.cluster_settings import ClusterSettings
    from joulie_projections.catalog_file import CatalogSettings

    return Program((ClusterSettings, CatalogSettings, ArchivePlace), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    _require_of(args, OF_A_LOG if args.origin else OF_A_CLUSTER)
    if args.origin:
        return _run_over_cluster(args, wires)
    from joulie_cli.ask import try_log

    args.last = args.last or long_time(WEEK)
    args.seeds, args.set = args.seeds or 1, args.set or []
    return try_log.run(args, wires)


def _require_of(args: argparse.Namespace, others: tuple[str, ...]) -> None:
    """No option of the other source is given."""
    given = [name for name in others if getattr(args, name) is not None]
    if given:
        why = "not with --from kubeconfig" if args.origin else "only with --from kubeconfig"
        raise SettingsError([f"--{name}: {why}" for name in given])


def _run_over_cluster(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_answers.text.trial import as_text, assumed, not_known
    from joulie_answers.trial_of_cluster import trial_of_cluster
    from joulie_cli.display.output import show
    from joulie_operator.cluster_settings import IN_CLUSTER, ClusterSettings
    from joulie_projections.catalog_file import CatalogSettings

    named = args.kubeconfig or wires.source.load(ClusterSettings).kubeconfig or USUAL
    file = None if named == IN_CLUSTER else Path(named).expanduser()
    catalog = wires.source.load(CatalogSettings).catalog
    found = asyncio.run(trial_of_cluster(file, args.context, catalog))
    said = {"assumed": list(assumed(found)), "not_known": list(not_known(found))}
    show(args, {"trial": found, **said}, as_text(found))
    return 0
