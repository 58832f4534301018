"""`joulie agent`: reads the meters, the hardware and the cards of one node."""

import argparse
import asyncio
import socket
import time
from pathlib import Path

import msgspec

from joulie_agent.caps.clocks import Locks
from joulie_agent.caps.memory import BadMemory, Memory
from joulie_agent.caps.release import all_limits, memory_in
from joulie_agent.caps.writer import Writer
from joulie_agent.once import read_once
from joulie_agent.report import NodeReport, Reading
from joulie_agent.sources.host import Host
from joulie_agent.sources.nvml import opened
from joulie_bus.errors import SettingsError
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.vital_tasks import VitalTask, living, vital
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import agent_name
from joulie_cli.connecting import connected
from joulie_cli.display.output import show
from joulie_cli.processes import serve_part
from joulie_cli.wiring import Wiring
from joulie_projections.catalog_file import CatalogSettings

SETTINGS = (CatalogSettings,)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    host = Host(_root(args.host_root))
    node = args.node or socket.gethostname().lower()
    if args.once:
        report = asyncio.run(read_once(node, host))
        show(args, msgspec.to_builtins(report), _text(report))
        return 0
    if args.caps:
        try:
            memory = memory_in(args.limits)
        except BadMemory as error:
            raise SettingsError([f"--limits {error}"]) from error
        return serve_part(wires, "agent", _enforce(wires, node, host, memory, dry_run=args.dry_run))
    return serve_part(wires, "agent", _serve(wires, node, host, args.kept))


async def _enforce(wires: Wiring, node: str, host: Host, memory: Memory, *, dry_run: bool) -> None:
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


def _root(root: Path) -> Path:
    if not root.is_dir():
        raise SettingsError([f"--host-root {root} is no directory"])
    return root


async def _serve(wires: Wiring, node: str, host: Host, kept: Path | None) -> None:
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


def _text(report: NodeReport) -> str:
    cpu = report.hardware.cpu
    lines = [
        f"{report.node}: {cpu.sockets} x {cpu.model or 'unknown processor'}, {cpu.cores} cores, "
        f"{report.hardware.memory_bytes / 2**30:.1f} GiB"
        f"{', a virtual machine' if report.hardware.virtual else ''}"
    ]
    lines += [f"  {_reading(each)}" for each in report.readings]
    lines += [
        f"  card {card.uuid}: {card.model}, {card.memory_mb} MiB, "
        f"{'healthy' if card.healthy else '; '.join(card.problems)}"
        for card in report.cards
    ]
    lines += [
        f"  limit of {cap.source} {cap.component}: {cap.watts:.0f} W"
        for cap in report.caps
        if cap.watts is not None
    ]
    lines += [f"  not available: {each.source}: {each.why}" for each in report.not_available]
    return "\n".join(lines)


def _reading(reading: Reading) -> str:
    amounts = []
    if reading.watts is not None:
        amounts.append(f"{reading.watts:.1f} W")
    if reading.joules is not None:
        amounts.append(f"{reading.joules:.0f} J counted")
    return f"{reading.source} {reading.component}: {', '.join(amounts)} ({reading.accuracy})"
