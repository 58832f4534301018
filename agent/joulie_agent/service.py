"""`joulie agent`: publishes the power, the hardware and the cards of this node."""

import asyncio
import time
from collections.abc import Mapping

from msgspec.structs import replace

from joulie_agent.delivery import Delivery
from joulie_agent.inventory import Inventory, without_counts
from joulie_agent.measure.node_power import node_power
from joulie_agent.measure.pods import PUBLISHED_EACH_S, READ_EACH_S, Energy
from joulie_agent.measure.processors import MODELLED, processors_mw, with_processors
from joulie_agent.pods import PodMeter
from joulie_agent.sampler import Clock, Sampler
from joulie_agent.use import UseMeter
from joulie_bus.events import InventoryRead, TelemetrySampled
from joulie_bus.metering.energy import EnergyMeter
from joulie_bus.metering.meters import Meter, NodePower, Part
from joulie_bus.metering.pace import Pace
from joulie_bus.metering.reporter import Moment, Reporter
from joulie_bus.runtime import metrics

INVENTORY_S = 5.0
INVENTORY_AGAIN_S = 600.0
COUNTS_AGAIN_S = 300.0  # only how long cards were slowed down has changed


class Agent:
    """Samples each second, and publishes on a change and once per interval."""

    def __init__(
        self,
        delivery: Delivery,
        node: str,
        sampler: Sampler,
        inventory: Inventory,
        clock: Clock = time.monotonic,
    ) -> None:
        self._delivery = delivery
        self._sampler = sampler
        self._inventory = inventory
        self._pace = Pace()
        self._clock = clock
        self._reporter = Reporter(node, self._pace)
        self._pods = PodMeter(sampler.host)
        self._use = UseMeter(sampler.host, node)
        self._pods_s = self._pods_published_s = -PUBLISHED_EACH_S
        self._modelled = EnergyMeter()  # the processors, where nothing meters them
        self._newest: InventoryRead | None = None
        self._found: InventoryRead | None = None  # as it was published last
        self._inventory_s = -INVENTORY_S
        self._inventory_published_s = 0.0

    async def run(self) -> None:
        """Runs until cancelled. A broker that does not answer delays no sample."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sample_forever())
            tasks.create_task(self._delivery.run())

    async def _sample_forever(self) -> None:
        following = time.monotonic()
        while True:
            await self.sample()
            following = max(following + self._pace.shortest_s, time.monotonic())
            await asyncio.sleep(following - time.monotonic())

    async def sample(self) -> None:
        """Reads the meters once; what is to be published waits for its delivery."""
        await self._take_inventory()
        self._sample_power()
        used = self._use.observe(self._clock())
        if used is not None:
            self._delivery.put_use(used)

    async def _take_inventory(self) -> None:
        """Published when something changed, and now and then for a log that has lost it, or for
        how long cards were slowed down."""
        now = self._clock()
        if now - self._inventory_s < INVENTORY_S:
            return
        self._inventory_s = now
        found = self._newest = await self._inventory.read(self._sampler.library())
        if not self._is_news(found, now - self._inventory_published_s):
            return
        self._delivery.put_inventory(found)
        self._found, self._inventory_published_s = found, now

    def _is_news(self, found: InventoryRead, since_s: float) -> bool:
        known = self._found
        if known is None or without_counts(found) != without_counts(known):
            return True
        return since_s >= (INVENTORY_AGAIN_S if found == known else COUNTS_AGAIN_S)

    def _sample_power(self) -> None:
        readings = self._sampler.sample()
        power, now = self._completed(node_power(readings, self._sampler.missing)), self._clock()
        metrics.AGENT_METERS.set(len(readings))
        metrics.AGENT_POWER.clear()
        if power is not None:
            metrics.AGENT_POWER.labels(covers=power.covers).set(power.power_mw / 1000)
        if power is None:
            self._reporter.missed()
            self._modelled.lost()
            self._pods.lost()
            return
        totals = {**self._sampler.totals_uj(), MODELLED: self._modelled.total_uj}
        self._count_pods(now, power, totals)
        reading = self._reporter.observe(Moment(now, time.time_ns()), power, totals)
        if reading is not None:
            self._delivery.put(self._with_pods(reading, now))

    def _count_pods(self, now: float, power: NodePower, totals: Mapping[Meter, int]) -> None:
        if now - self._pods_s < READ_EACH_S:
            return
        self._pods_s = now
        cards = {meter.component: uj for meter, uj in totals.items() if meter.part is Part.CARD}
        node_uj = sum(totals[meter] for meter in power.meters)
        energy = Energy(node_uj, cards, frozenset(power.meters))
        self._pods.observe(now, energy, self._inventory.devices)

    def _with_pods(self, reading: TelemetrySampled, now: float) -> TelemetrySampled:
        if now - self._pods_published_s < PUBLISHED_EACH_S:
            return reading
        self._pods_published_s = now
        return replace(reading, pod_uj=self._pods.totals_uj())

    def _completed(self, power: NodePower | None) -> NodePower | None:
        """Cards alone are less than the node. Without the load of its processors nothing is known
        of the whole, and the twin has its own model."""
        if power is None or power.covers != "cards":
            return power
        busy = self._sampler.busy()  # the kernel takes long for it on large machines
        if busy is None or self._newest is None:
            return None
        modelled_mw = processors_mw(self._newest.hardware, busy)
        self._modelled.saw_power(self._clock(), modelled_mw)
        return with_processors(power, modelled_mw)
