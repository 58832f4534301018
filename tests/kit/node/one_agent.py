"""The agent of one node over a tree of files and a log in memory."""

from pathlib import Path

from bus_kit import CLUSTER, VirtualClock, memory_log
from bus_kit.clock import NOON
from bus_kit.memory_broker import MemoryLog
from joulie_agent.backlog import Backlog, When
from joulie_agent.delivery import Delivery
from joulie_agent.inventory import Inventory
from joulie_agent.sampler import Sampler
from joulie_agent.service import Agent
from joulie_agent.sources.host import Host
from joulie_bus.log.producer import Producer
from joulie_bus.streams.subjects import agent_name
from joulie_projections.hardware.catalog import EMPTY


class Clock:
    """Seconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class OneAgent:
    def __init__(self, root: Path) -> None:
        self.clock = Clock()
        self.log: MemoryLog = memory_log(VirtualClock())
        host = Host(root, "n1")
        producer = Producer(agent_name("n1"), CLUSTER, lambda: NOON)
        self.delivery = Delivery(self.log, producer, Backlog(None, "b"), self.now)
        inventory = Inventory("n1", host, EMPTY)
        self.agent = Agent(self.delivery, "n1", Sampler(host, self.clock), inventory, self.clock)

    def now(self) -> When:
        return When("b", round(self.clock.now_s * 1000))

    async def sample(self) -> None:
        await self.agent.sample()
        await self.delivery.deliver()
