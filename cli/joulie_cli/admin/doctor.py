"""check an installation; exit code 1 if a check warns or fails.

joulie doctor
joulie doctor --kubeconfig ~/.kube/config --accept-warnings
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_answers.doctor.judgement.calls import LastCall
    from joulie_answers.doctor.judgement.findings import Finding
    from joulie_answers.text.tables import TextTable
    from joulie_bus.runtime.settings import InForce
    from joulie_operator.kube.api_client import ApiServer
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.output(parser)
    shared.cluster(parser)
    parser.add_argument("--namespace", metavar="NAME", help="of the installation (joulie-system)")
    parser.add_argument(
        "--certificates", metavar="DIR", help="check the *.crt there, instead of the TLS Secrets"
    )
    parser.add_argument("--accept-warnings", action="store_true", help="exit with 0 for warnings")
    parser.add_argument("--settings", action="store_true", help="also list settings with defaults")


def program() -> Program:
    from joulie_cli.command_line.all_settings import SETTINGS

    return Program(SETTINGS, run)


CHART_NAMESPACE = "joulie-system"


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_answers.doctor.examination import Case, examine
    from joulie_answers.doctor.judgement.findings import Level, as_text, exit_code
    from joulie_answers.text.tables import TextWithTables
    from joulie_cli.display.output import show
    from joulie_operator.cluster_settings import ClusterSettings

    settings = wires.source.finish()
    cluster = args.kubeconfig or wires.source.load(ClusterSettings).kubeconfig
    certificates = _directory(args.certificates)
    case = Case(wires, settings, cluster, _namespace(args, wires), _last_call, certificates)
    findings = asyncio.run(examine(case))
    shown = [row for row in settings if args.settings or row.origin != "default"]
    text = TextWithTables.of([*as_text(findings).parts, *_setting_parts(shown)])
    code = exit_code(findings, accepted=Level.WARN if args.accept_warnings else Level.OK)
    show(args, as_tree(findings, settings, code), text)
    return code


def _directory(named: str | None) -> Path | None:
    from joulie_bus.errors import SettingsError

    found = Path(named) if named else None
    if found is not None and not found.is_dir():
        raise SettingsError([f"--certificates={named} is no directory"])
    return found


async def _last_call(api: ApiServer, namespace: str) -> LastCall:
    """From the console, through the proxy of its Service."""
    from joulie.client.console import ConsoleClient
    from joulie.client.proxy import Place, ProxyConnection
    from joulie_answers.doctor.judgement.calls import LastCall
    from joulie_answers.schema.requests import Decisions
    from joulie_bus.core.times import MS

    console = ConsoleClient.over(await ProxyConnection.of(api, Place(namespace)))
    found = await console.decisions(Decisions(verb="prioritize", limit=1))
    at_ms = found.items[0].at_ms if found.items else 0
    return LastCall(at_ms * MS, found.entries)


def _namespace(args: argparse.Namespace, wires: Wiring) -> str:
    from joulie_operator.cluster_settings import LeaseSettings

    if args.namespace:
        return str(args.namespace)
    if wires.source.names("POD_NAMESPACE"):
        return wires.source.load(LeaseSettings).namespace
    return CHART_NAMESPACE


def as_tree(
    findings: Sequence[Finding], settings: Sequence[InForce], code: int
) -> dict[str, object]:
    return {
        "findings": [finding._asdict() for finding in findings],
        "settings": [row._asdict() for row in settings],
        "exit_code": code,
    }


def _setting_parts(rows: Sequence[InForce]) -> list[str | TextTable]:
    from joulie_answers.text.tables import TextTable

    cells = [(row.name, row.value, row.origin) for row in rows]
    heads = ("SETTING", "VALUE", "FROM")
    return ["", "Settings in force", TextTable(heads, cells, indent=2)] if cells else []
