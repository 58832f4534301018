"""`joulie up`: all parts against a real cluster, from outside it or inside."""

import asyncio

from joulie_bus.errors import SettingsError
from joulie_bus.logging import get_logger
from joulie_cli.parts import PlaceSettings, Wiring
from joulie_cli.supervisor import Supervisor
from joulie_extender.settings import ServerSettings

PARTS = ["projector", "operator", "extender"]
log = get_logger("up")


async def run_up(wires: Wiring, kubeconfig: str | None, told: asyncio.Event) -> None:
    """Until Ctrl-C."""
    cluster = kubeconfig or wires.source.load(PlaceSettings).kubeconfig
    if not cluster:
        raise SettingsError(
            ["KUBECONFIG: no cluster is named; give --kubeconfig FILE, or try `joulie demo`"]
        )
    addresses = {
        "extender": wires.source.load(ServerSettings).addr,
        "metrics": wires.bus.metrics_addr,
    }
    extra = {"KUBECONFIG": cluster, "JOULIE_CLUSTER": wires.bus.cluster}
    async with Supervisor.over(wires.data, PARTS, addresses, extra) as supervisor:
        log.info("up", data=str(wires.data.path), **supervisor.endpoints)
        await told.wait()
        log.info("stopping")
