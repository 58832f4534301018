"""`joulie operator`: assigns power profiles to nodes; watches the cluster and writes to it."""

import argparse
import asyncio
import secrets
import socket
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from joulie_bus.errors import SettingsError
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.vital_tasks import VitalTask, Work, vital
from joulie_bus.streams.roles import Role
from joulie_operator.cluster_settings import (
    IN_CLUSTER,
    ApplierSettings,
    ClusterSettings,
    FacilitySettings,
    GpuLabelSettings,
    GridSettings,
    LeaseSettings,
    PowerSettings,
    RequestSettings,
)
from joulie_operator.observe.cluster_visibility import (
    ClusterVisibility,
    WatchStatuses,
    full_visibility,
)
from joulie_operator.planning.eligible import selector
from joulie_operator.planning.sleep import evictions_allowed
from joulie_operator.service import Operator
from joulie_operator.settings import OperatorSettings
from joulie_projections.catalog_file import CatalogSettings, GpuResourceSettings
from joulie_projections.component.opening import await_migration
from joulie_projections.component.process import serve_part
from joulie_projections.component.wiring import Wiring
from joulie_projections.history.history import History
from joulie_projections.view.view import View
from joulie_projections.view.viewing import viewing

if TYPE_CHECKING:
    from joulie_operator.controllers.controller_file import Entry
    from joulie_operator.facts.hardware_inventory import Inventory
    from joulie_operator.kube.api_client import ApiServer

SETTINGS = (
    OperatorSettings,
    ClusterSettings,
    ApplierSettings,
    LeaseSettings,
    FacilitySettings,
    GridSettings,
    PowerSettings,
    CatalogSettings,
    GpuResourceSettings,
    GpuLabelSettings,
    RequestSettings,
)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    cluster = args.kubeconfig or wires.source.load(ClusterSettings).kubeconfig
    # A mistake in the file ends the command before anything starts.
    entries = _controllers(wires.source.load(PowerSettings))
    await_migration(wires)
    return serve_part(wires, "operator", _operate(wires, cluster, entries, shadow=args.shadow))


def _controllers(power: PowerSettings) -> "Sequence[Entry]":
    if not power.controllers:
        return ()
    from joulie_operator.controllers.controller_file import read_controllers

    try:
        return read_controllers(Path(power.controllers))
    except ValueError as error:
        raise SettingsError([f"POWER_CONTROLLERS {error}"]) from error


async def _operate(
    wires: Wiring, cluster: str, entries: "Sequence[Entry]", *, shadow: bool
) -> None:
    async with viewing(wires, Role.OPERATOR) as (bus, view):
        if shadow:
            await _observe(wires, bus, view, cluster, entries)
        elif cluster:
            await _take_turns(wires, bus, view, cluster, entries)
        else:  # a simulated cluster has no API server
            await _plan(wires, bus, view, entries)


async def _take_turns(
    wires: Wiring, bus: Log, view: View, cluster: str, entries: "Sequence[Entry]"
) -> None:
    """Leader election: one operator works; the others stand by with a warm view."""
    from joulie_operator.kube.api_client import ApiServer
    from joulie_operator.kube.lease import Lease

    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        identity = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        lease = Lease(api, wires.source.load(LeaseSettings), identity)
        await lease.lead(lambda: _lead(wires, bus, view, api, entries))


async def _observe(
    wires: Wiring, bus: Log, view: View, cluster: str, entries: "Sequence[Entry]"
) -> None:
    """Reads the cluster and the meters; plans nothing and writes nothing to the API server."""
    async with asyncio.TaskGroup() as tasks:
        if cluster:
            watching = vital(VitalTask.WATCH, lambda: _watch(wires, bus, view, cluster))
            tasks.create_task(watching)
        _start(tasks, _polling(wires, bus, view, entries))
        await asyncio.Event().wait()  # until cancelled


def _inventory(wires: Wiring) -> "Inventory":
    from joulie_operator.facts.hardware_inventory import GpuNames, Inventory

    load = wires.source.load
    gpus = GpuNames(load(GpuResourceSettings).resources, load(GpuLabelSettings).model_labels)
    return Inventory(load(CatalogSettings).catalog, gpus)


async def _watch(wires: Wiring, bus: Log, view: View, cluster: str) -> None:
    from joulie_operator.kube.api_client import ApiServer
    from joulie_operator.observe.watch import ObservedCluster, watch_cluster

    observed, inventory = ObservedCluster.empty(), _inventory(wires)
    async with ApiServer.of(None if cluster == IN_CLUSTER else Path(cluster)) as api:
        await watch_cluster(api, bus, wires.subjects, view, observed, inventory)


async def _lead(
    wires: Wiring, bus: Log, view: View, api: "ApiServer", entries: "Sequence[Entry]"
) -> None:
    """The work of the leader; all of it is cancelled when the lease is lost."""
    from joulie_operator.apply.agent_objects import AgentObjectWriter
    from joulie_operator.apply.gpu_status import GpuStatusWriter
    from joulie_operator.apply.nominations import NominationWriter
    from joulie_operator.apply.writer import Applier
    from joulie_operator.observe.watch import ObservedCluster, watch_cluster

    cluster, load = ObservedCluster.empty(), wires.source.load
    nodes = selector(load(OperatorSettings).node_selector)
    applier = Applier(api, view, cluster, nodes, load(ApplierSettings), view.now_ns)
    inventory = _inventory(wires)
    nominations = NominationWriter(api, view, load(ApplierSettings))
    deadline_s = load(ApplierSettings).deadline_s
    gpu_status = GpuStatusWriter(api, view, cluster, deadline_s)
    found = AgentObjectWriter(api, view, cluster, deadline_s)

    def watch() -> Coroutine[None, None, None]:
        return watch_cluster(api, bus, wires.subjects, view, cluster, inventory)

    async with asyncio.TaskGroup() as tasks:
        writing = (
            (VitalTask.WATCH, watch),
            (VitalTask.APPLY, applier.run),
            (VitalTask.NOMINATE, nominations.run),
            (VitalTask.GPU_STATUS, gpu_status.run),
            (VitalTask.INVENTORY, found.run),
        )
        _start(tasks, writing)
        _start(tasks, _optional(wires, view, api, entries))
        _start(tasks, _resizing(wires, bus, view, api))
        _start(tasks, _planning(wires, bus, view, cluster.watches))
        _start(tasks, _polling(wires, bus, view, entries))


def _start(tasks: asyncio.TaskGroup, named: Iterable[tuple[VitalTask, Work]]) -> None:
    for task, work in named:
        tasks.create_task(vital(task, work), name=str(task))


def _optional(
    wires: Wiring, view: View, api: "ApiServer", entries: "Sequence[Entry]"
) -> Iterator[tuple[VitalTask, Work]]:
    """The work of the leader that settings and options ask for."""
    settings = wires.source.load(ApplierSettings)
    if settings.pod_events_share:
        from joulie_operator.apply.pod_event_writer import PodEventWriter

        place = wires.data.database
        writer = PodEventWriter(api, view, lambda: History.readable(place), settings)
        yield VitalTask.POD_EVENTS, writer.run
    if evictions_allowed(wires.source.load(OperatorSettings).rules()):
        from joulie_operator.power.evictions import Evictor

        yield VitalTask.EVICT, Evictor(api, view).run
    if any(entry.switches for entry in entries):
        from joulie_operator.power.switching import PowerSwitch

        yield VitalTask.SWITCH, PowerSwitch(api, view, entries).run


def _resizing(
    wires: Wiring, bus: Log, view: View, api: "ApiServer"
) -> Iterator[tuple[VitalTask, Work]]:
    """With every setting: what an earlier one allowed is given back."""
    if wires.source.load(OperatorSettings).dry_run:
        return
    from joulie_operator.apply.resizes import Resizer
    from joulie_projections.store.energy_table import EnergyTable

    place, mode = wires.data.database, wires.source.load(RequestSettings).mode
    resizer = Resizer(api, bus, wires.subjects, view, lambda: EnergyTable.readable(place), mode)
    yield VitalTask.RESIZE, resizer.run


async def _plan(wires: Wiring, bus: Log, view: View, entries: "Sequence[Entry]") -> None:
    async with asyncio.TaskGroup() as tasks:
        _start(tasks, _planning(wires, bus, view, None))
        _start(tasks, _polling(wires, bus, view, entries))


def _planning(
    wires: Wiring, bus: Log, view: View, watches: WatchStatuses | None
) -> Iterator[tuple[VitalTask, Work]]:
    load = wires.source.load
    settings = load(OperatorSettings).naming_models_as(load(CatalogSettings).catalog)

    def visibility() -> ClusterVisibility:
        return (
            watches.visibility(settings.max_view_age_s)
            if watches is not None
            else full_visibility()
        )

    from joulie_operator.apply.cap_orders import CapOrders

    yield VitalTask.CAP_ORDERS, CapOrders(bus, wires.subjects, view).run
    yield VitalTask.PLAN, Operator(bus, wires.subjects, view, settings, visibility).run


def _polling(
    wires: Wiring, bus: Log, view: View, entries: "Sequence[Entry]"
) -> Iterator[tuple[VitalTask, Work]]:
    """What reads meters, the building and the grid."""
    load = wires.source.load
    if (facility := load(FacilitySettings)).enabled:
        from joulie_operator.telemetry.facility import poll_facility

        yield VitalTask.FACILITY, lambda: poll_facility(bus, wires.subjects, facility)
    if (grid := load(GridSettings)).sources:
        from joulie_operator.telemetry.grid import poll_grid

        yield VitalTask.GRID, lambda: poll_grid(bus, wires.subjects, grid)
    power, are_read = load(PowerSettings), any(entry.reads for entry in entries)
    if power.address or are_read:
        from joulie_operator.telemetry.bmc import Bmcs
        from joulie_operator.telemetry.scrape import scrape_power

        bmcs = Bmcs(entries) if are_read else None
        yield VitalTask.POWER, lambda: scrape_power(bus, wires.subjects, view, power, bmcs)
