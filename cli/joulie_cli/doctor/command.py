"""`joulie doctor`: examines an installation; each finding says what was seen and what to do."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from joulie_bus.runtime.settings import InForce
from joulie_cli.display.output import show
from joulie_cli.doctor.examination import Case, examine
from joulie_cli.doctor.judgement.findings import Finding, Level, as_text, exit_code
from joulie_cli.run import up
from joulie_cli.wiring import Wiring
from joulie_operator.cluster_settings import ClusterSettings, LeaseSettings

SETTINGS = up.SETTINGS  # those of all components
CHART_NAMESPACE = "joulie-system"


def run(args: argparse.Namespace, wires: Wiring) -> int:
    settings = wires.source.finish()
    cluster = args.kubeconfig or wires.source.load(ClusterSettings).kubeconfig
    certificates = Path(args.certificates) if args.certificates else None
    case = Case(wires, settings, cluster, _namespace(args, wires), certificates)
    findings = asyncio.run(examine(case))
    shown = [row for row in settings if args.settings or row.origin != "default"]
    text = "\n".join([as_text(findings), *_setting_lines(shown)])
    code = exit_code(findings, accepted=Level.WARN if args.accept_warnings else Level.OK)
    show(args, as_tree(findings, settings, code), text)
    return code


def _namespace(args: argparse.Namespace, wires: Wiring) -> str:
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


def _setting_lines(rows: Sequence[InForce]) -> list[str]:
    width = max((len(row.name) for row in rows), default=0)
    lines = [f"  {row.name:<{width}}  {row.value}  ({row.origin})" for row in rows]
    return ["", "Settings in force", *lines] if lines else []
