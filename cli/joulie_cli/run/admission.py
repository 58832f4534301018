"""`joulie admission`: the webhook that gives pods of labelled namespaces their scheduler."""

import argparse
from pathlib import Path

from joulie_bus.core.certificate_names import certificate_names
from joulie_bus.errors import SettingsError
from joulie_bus.runtime.settings import address
from joulie_cli.wiring import Wiring, serve_part
from joulie_operator.cluster_settings import IN_CLUSTER, ClusterSettings

SETTINGS = (ClusterSettings,)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    cluster = args.kubeconfig or wires.source.load(ClusterSettings).kubeconfig
    if not cluster:
        raise SettingsError(["KUBECONFIG: the webhook reads namespaces; name a cluster"])
    return serve_part(wires, "admission", _admit(args, cluster))


async def _admit(args: argparse.Namespace, cluster: str) -> None:
    from joulie_operator.admission.webhook import Serving, serve
    from joulie_operator.kube.api_client import ApiServer

    try:
        at = address(args.listen)
    except ValueError as error:
        raise SettingsError([f"--listen={args.listen!r}: {error}"]) from error
    names = certificate_names(args.client_names)
    serving = Serving(at, args.cert, args.key, args.scheduler, args.client_ca, names)
    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        await serve(api, serving)
