"""review the tokens of agents for `joulie signer`.

joulie callout --kubeconfig FILE
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_cli.command_line import options as shared
from joulie_cli.command_line.commands import Program

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring

ACCOUNT, AUDIENCE = "joulie-system:joulie-agent", "joulie-broker"


def options(parser: argparse.ArgumentParser) -> None:
    shared.cluster(parser)
    parser.add_argument(
        "--account",
        default=ACCOUNT,
        metavar="NAMESPACE:NAME",
        help=f"the service account of the agents ({ACCOUNT})",
    )
    parser.add_argument(
        "--audience", default=AUDIENCE, metavar="TEXT", help=f"of their tokens ({AUDIENCE})"
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
        raise SettingsError(["KUBECONFIG: the API server reviews tokens; name a cluster"])
    return serve_part(wires, "callout", _serve(args, wires, cluster))


async def _serve(args: argparse.Namespace, wires: Wiring, cluster: str) -> None:
    from joulie_bus.jetstream.connection import Connection
    from joulie_operator.cluster_settings import IN_CLUSTER
    from joulie_operator.identity.service import Callout
    from joulie_operator.identity.token_reviews import Expected, TokenReviews
    from joulie_operator.kube.api_client import ApiServer
    from joulie_projections.component.connecting import broker_of_settings

    expected = Expected(f"system:serviceaccount:{args.account}", args.audience)
    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        connection = await Connection.open(broker_of_settings(wires), "joulie-callout")
        try:
            reviews = TokenReviews(api, expected, time.monotonic)
            await Callout(connection, reviews).run()
        finally:
            await connection.close()
