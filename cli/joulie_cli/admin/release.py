"""remove labels, NodeTwins and statuses from the cluster, before an uninstall.

joulie release --kubeconfig ~/.kube/config
"""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_operator.apply.release import Released
    from joulie_operator.cluster_settings import LeaseSettings
    from joulie_projections.component.wiring import Wiring


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="DEPLOYMENT",
        help="scale this Deployment of POD_NAMESPACE to 0 first; may be given again",
    )
    parser.add_argument(
        "--scheduler",
        default="",
        metavar="NAME",
        help="give pods that wait for this scheduler back to that of the cluster",
    )
    parser.add_argument(
        "--wait",
        type=shared.seconds,
        default=60.0,
        metavar="TIME",
        help="wait for the Lease (60s)",
    )


SCHEDULER_LEASE = "joulie-scheduler"  # of the kube-scheduler of the chart, as its policy


def program() -> Program:
    from joulie_operator.cluster_settings import ClusterSettings, LeaseSettings

    return Program((ClusterSettings, LeaseSettings), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    import asyncio

    from joulie_bus.errors import SettingsError
    from joulie_operator.cluster_settings import ClusterSettings, LeaseSettings

    cluster = args.kubeconfig or wires.source.load(ClusterSettings).kubeconfig
    if not cluster:
        raise SettingsError(["KUBECONFIG: a release needs a cluster; name one with --kubeconfig"])
    lease = wires.source.load(LeaseSettings)
    done = asyncio.run(_release(cluster, lease, args))
    print(
        f"Removed the labels of {done.labels} nodes, {done.twins} NodeTwins and the status of "
        f"{done.cards} cards."
    )
    if done.requests.pods:
        print(f"Gave {done.requests.pods} pods their own requests back.")
    for named in done.requests.left:
        print(f"{named} does not have its own requests yet; delete it to have them at once.")
    if args.scheduler:
        asyncio.run(_hand_back(cluster, args.scheduler))
    return 0


async def _release(cluster: str, settings: LeaseSettings, args: argparse.Namespace) -> Released:
    """Works as the holder of the operator's Lease, so that no operator writes meanwhile."""
    import asyncio

    from joulie_bus.errors import LeaseHeld
    from joulie_operator.apply.handing_back import stop_changing_pods
    from joulie_operator.apply.release import release, stop_deployment
    from joulie_operator.cluster_settings import IN_CLUSTER
    from joulie_operator.kube.api_client import ApiServer
    from joulie_operator.kube.lease import Lease, lease_path
    from joulie_operator.resources.rights import LEASE

    done: list[Released] = []

    async def work() -> None:
        done.append(await release(api))

    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        if args.scheduler:
            await stop_changing_pods(api, SCHEDULER_LEASE)
        for name in args.stop:
            await stop_deployment(api, settings.namespace, name)
        lease = Lease(api, settings, f"joulie-release-{secrets.token_hex(3)}")
        try:
            async with asyncio.timeout(args.wait):
                await lease.lead(work)
        except TimeoutError as error:
            raise LeaseHeld(LEASE, settings.namespace, args.wait) from error
        for name in (LEASE, SCHEDULER_LEASE):
            await api.delete(lease_path(settings.namespace, name))
    return done[0]


async def _hand_back(cluster: str, scheduler: str) -> None:
    """No scheduler of the chart holds the Lease any more."""
    from joulie_operator.apply.handing_back import hand_back
    from joulie_operator.cluster_settings import IN_CLUSTER
    from joulie_operator.kube.api_client import ApiServer

    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        done = await hand_back(api, scheduler)
    print(
        f"Deleted {done.replaced} pods that waited for {scheduler}; their controllers create them."
    )
    for name in done.waiting:
        print(f"{name} waits for {scheduler}: create it again, for another scheduler.")
