"""`joulie agent`: reads the meters, the hardware and the cards of one node."""

import time
from pathlib import Path

from joulie_agent.caps.clocks import Locks
from joulie_agent.caps.memory import Memory
from joulie_agent.caps.release import all_limits
from joulie_agent.caps.writer import Writer
from joulie_agent.sources.host import Host
from joulie_agent.sources.nvml import opened
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.vital_tasks import VitalTask, living, vital
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import agent_name
from joulie_projections.catalog_file import CatalogSettings
from joulie_projections.component.connecting import connected
from joulie_projections.component.wiring import Wiring

SETTINGS = (CatalogSettings,)


async def enforce(wires: Wiring, node: str, host: Host, memory: Memory, *, dry_run: bool) -> None:
    from joulie_agent.caps.holders import KubeletPods
    from joulie_agent.caps.service import CapService

    library = opened(host)
    writer = Writer(memory, dry_run=dry_run)
    locks = Locks(memory)
    pods, subjects = KubeletPods(host), wires.subjects
    service = CapService(subjects, node, writer, lambda: all_limits(host, library, locks), pods)

    async def follow() -> None:
        async with connected(wires, Role.AGENT, node) as bus:
            await service.follow(bus)

    async with living(VitalTask.ORDERS, follow):  # the bus outlives the last reports
        await vital(VitalTask.LIMITS, service.run)


async def serve(wires: Wiring, node: str, host: Host, kept: Path | None) -> None:
    from joulie_agent.backlog import Backlog, When
    from joulie_agent.delivery import Delivery
    from joulie_agent.inventory import Inventory
    from joulie_agent.sampler import Sampler
    from joulie_agent.service import Agent

    sampler = Sampler(host)
    inventory = Inventory(node, host, wires.source.load(CatalogSettings).catalog)
    try:
        async with connected(wires, Role.AGENT, node) as bus:
            producer = Producer(agent_name(node), wires.subjects, time.time_ns)
            delivery = Delivery(bus, producer, Backlog(kept, When.now().boot))
            agent = Agent(delivery, node, sampler, inventory)
            await vital(VitalTask.SAMPLE, agent.run)
    finally:
        sampler.close()
