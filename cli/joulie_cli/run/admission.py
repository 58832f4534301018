"""set the scheduler of pods in labelled namespaces, as a mutating webhook.

joulie admission --kubeconfig FILE --cert tls.crt --key tls.key
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring

LISTEN = "127.0.0.1:9443"


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument("--listen", default=LISTEN, metavar="ADDRESS", help=LISTEN)
    parser.add_argument("--cert", type=Path, required=True, metavar="FILE", help="PEM, with chain")
    parser.add_argument("--key", type=Path, required=True, metavar="FILE", help="PEM")
    parser.add_argument(
        "--client-ca",
        type=Path,
        metavar="FILE",
        help="PEM; only clients with a certificate of it get reviews answered",
    )
    parser.add_argument(
        "--client-names",
        default="",
        metavar="NAMES",
        help="common or DNS names of these clients, with commas between (any)",
    )
    parser.add_argument(
        "--scheduler", default="joulie", metavar="NAME", help="the pods' schedulerName (joulie)"
    )


def program() -> Program:
    from joulie_operator.cluster_settings import ClusterSettings

    return Program((ClusterSettings,), run)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    from joulie_bus.errors import SettingsError
    from joulie_operator.cluster_settings import ClusterSettings
    from joulie_projections.component.process import serve_part

    cluster = args.kubeconfig or wires.source.load(ClusterSettings).kubeconfig
    if not cluster:
        raise SettingsError(["KUBECONFIG: the webhook reads namespaces; name a cluster"])
    return serve_part(wires, "admission", _admit(args, cluster))


async def _admit(args: argparse.Namespace, cluster: str) -> None:
    from joulie_bus.core.certificate_names import certificate_names
    from joulie_bus.errors import SettingsError
    from joulie_bus.runtime.settings import address
    from joulie_operator.admission.webhook import Serving, serve
    from joulie_operator.cluster_settings import IN_CLUSTER
    from joulie_operator.kube.api_client import ApiServer

    try:
        at = address(args.listen)
    except ValueError as error:
        raise SettingsError([f"--listen={args.listen!r}: {error}"]) from error
    names = certificate_names(args.client_names)
    serving = Serving(at, args.cert, args.key, args.scheduler, args.client_ca, names)
    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        await serve(api, serving)
