"""`joulie agent`: publishes the power of this node."""

import asyncio
import time

from joulie_agent.measure.node_power import NodePower, node_power
from joulie_agent.measure.pace import Pace, Published, is_due
from joulie_agent.sampler import Clock, Sampler
from joulie_bus.errors import BusError
from joulie_bus.events import TelemetrySampled
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.streams.subjects import Subjects, agent_name


class Agent:
    """Samples each second, and publishes on a change and once per interval."""

    def __init__(
        self,
        bus: Log,
        subjects: Subjects,
        node: str,
        sampler: Sampler,
        pace: Pace = Pace(),  # noqa: B008
        clock: Clock = time.monotonic,
    ) -> None:
        self._bus = bus
        self._node = node
        self._sampler = sampler
        self._pace = pace
        self._clock = clock
        self._producer = Producer(agent_name(node), subjects, time.time_ns)
        self._last: Published | None = None
        self._refused = Refusals("agent", "these readings are lost; the next ones follow")

    async def run(self) -> None:
        """Runs until cancelled."""
        following = time.monotonic()
        while True:
            await self.sample()
            following = max(following + self._pace.shortest_s, time.monotonic())
            await asyncio.sleep(following - time.monotonic())

    async def sample(self) -> None:
        """Reads the meters once, and publishes if it is time."""
        power = node_power(self._sampler.sample())
        now = self._clock()
        if power is None or not is_due(self._last, now, power.power_mw, self._pace):
            return
        self._last = Published(now, power.power_mw)
        await self._publish(_reading(self._node, power))

    async def _publish(self, reading: TelemetrySampled) -> None:
        try:
            await self._bus.publish([self._producer.stamp(reading)])
        except BusError as error:
            self._refused.saw(error)
        else:
            self._refused.ended()


def _reading(node: str, power: NodePower) -> TelemetrySampled:
    return TelemetrySampled(
        node=node, power_mw=power.power_mw, provider=power.provider, card_mw=power.card_mw
    )
