"""`joulie operator`: decides which nodes supply performance, and watches the cluster."""

import argparse
import asyncio
from dataclasses import dataclass
from pathlib import Path

from joulie_bus.log import Log
from joulie_bus.roles import Role
from joulie_bus.settings import setting, text
from joulie_cli.wiring import Wiring, serve_part, viewing
from joulie_operator.service import Operator
from joulie_operator.settings import OperatorSettings
from joulie_projections.view import View

IN_CLUSTER = "in-cluster"


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    kubeconfig: str = setting(
        text,
        "KUBECONFIG",
        "",
        "How to reach the cluster: a file, in-cluster for the service account, empty for none",
    )


SETTINGS = (OperatorSettings, ClusterSettings)


def run(_: argparse.Namespace, wires: Wiring) -> int:
    return serve_part(wires, _operate(wires))


async def _operate(wires: Wiring) -> None:
    settings = wires.source.load(OperatorSettings)
    kubeconfig = wires.source.load(ClusterSettings).kubeconfig
    async with viewing(wires, Role.OPERATOR) as (bus, view), asyncio.TaskGroup() as tasks:
        tasks.create_task(Operator(bus, wires.subjects, view, settings).run())
        if kubeconfig:
            tasks.create_task(_watch(wires, bus, view, kubeconfig))


async def _watch(wires: Wiring, bus: Log, view: View, kubeconfig: str) -> None:
    # Half a second and 40 MB that a simulated cluster does not need.
    from joulie_operator.kube import ApiServer
    from joulie_operator.watch import watch_cluster

    path = None if kubeconfig == IN_CLUSTER else Path(kubeconfig)
    async with ApiServer.of(path) as api:
        await watch_cluster(api, bus, wires.subjects, view)
