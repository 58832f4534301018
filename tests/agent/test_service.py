"""The agent over a log in memory: what it publishes, and when."""

from pathlib import Path

import pytest

import host_trees
from bus_kit import hardware
from joulie_agent.inventory import Inventory
from joulie_bus.events import CardRead, InventoryRead, TelemetrySampled, codec
from joulie_bus.streams.subjects import Stream
from one_agent import OneAgent

pytestmark = pytest.mark.anyio
ZONE = "sys/class/powercap/intel-rapl:0/energy_uj"


class Rig(OneAgent):
    """An agent over one package whose counter the test moves."""

    def __init__(self, root: Path) -> None:
        super().__init__(host_trees.rapl_zone(root, "intel-rapl:0", "package-0", 0))
        self.root = root
        self._energy_uj = 0

    async def second(self, watts: int) -> None:
        self.clock.now_s += 1
        self._energy_uj += watts * 1_000_000
        host_trees.write(self.root, {ZONE: self._energy_uj})
        await self.sample()

    async def silence(self, seconds: int) -> None:
        """The hardware counts on while its file is gone."""
        for _ in range(seconds):
            self.clock.now_s += 1
            self._energy_uj += 100_000_000
            await self.sample()

    async def published(self) -> list[TelemetrySampled]:
        newest = (await self.log.state(Stream.TEL)).last
        found = [await self.log.message(Stream.TEL, number + 1) for number in range(newest)]
        events = [codec.decoded(record.data, "the test") for record in found if record]
        return [event for event in events if isinstance(event, TelemetrySampled)]


async def test_the_first_reading_of_a_counter_is_no_power(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.sample()
    assert await rig.published() == []


async def test_how_long_cards_were_slowed_down_is_published_each_five_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rises all the time under a cap."""
    rig = Rig(tmp_path)

    async def slowed(_inventory: object, _library: object) -> InventoryRead:
        card = CardRead(uuid="g", model="m", total_mb=1, power_limited_s=int(rig.clock.now_s))
        return InventoryRead(node="n1", hardware=hardware("n1"), cards=(card,))

    monkeypatch.setattr(Inventory, "read", slowed)
    for _ in range(700):
        await rig.second(100)
    newest = (await rig.log.state(Stream.TEL)).last
    found = [await rig.log.message(Stream.TEL, number + 1) for number in range(newest)]
    events = [codec.decoded(record.data, "the test") for record in found if record]
    told = [event.cards[0].power_limited_s for event in events if isinstance(event, InventoryRead)]
    assert told == [1, 301, 601]


async def test_a_steady_node_is_published_each_ten_seconds(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for _ in range(22):
        await rig.second(200)
    assert [event.power_mw for event in await rig.published()] == [200_000] * 3


async def test_a_step_of_load_is_published_with_the_next_sample(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for watts in (100, 100, 100, 300, 300):
        await rig.second(watts)
    assert [event.power_mw for event in await rig.published()] == [100_000, 300_000]


async def test_a_counter_that_vanishes_publishes_nothing_and_comes_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    await rig.second(100)
    await rig.second(100)
    (rig.root / ZONE).unlink()
    await rig.silence(15)
    assert len(await rig.published()) == 1
    for _ in range(3):
        await rig.second(100)
    assert [event.power_mw for event in await rig.published()] == [100_000, 100_000]


class CardRig(Rig):
    """An agent whose only meters are two cards that draw 145 W each."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        (root / ZONE).unlink()
        host_trees.two_sockets(host_trees.instinct(root))
        self._ticks = 0

    async def load(self, busy_percent: int) -> None:
        """A second in which the eight threads were busy for this share."""
        self.clock.now_s += 1
        self._ticks += 1
        busy, idle = 8 * busy_percent * self._ticks, 8 * (100 - busy_percent) * self._ticks
        host_trees.write(self.root, {"proc/stat": f"cpu  {busy} 0 0 {idle} 0 0 0 0 9 9\ncpu0 1"})
        await self.sample()


async def test_a_node_whose_only_meters_are_its_cards_draws_more_than_they_do(
    tmp_path: Path,
) -> None:
    rig = CardRig(tmp_path)
    for _ in range(2):
        await rig.load(50)

    (event,) = await rig.published()
    # An unknown processor of eight threads: 150 W at most, half of it idle.
    assert (event.power_mw, event.source) == (290_000 + 112_500, "utilization")
    assert event.provider == "amdgpu card, processors by their load"
    assert sum(event.card_mw.values()) == 290_000


async def test_cards_without_the_load_of_the_processors_are_no_reading_of_the_node(
    tmp_path: Path,
) -> None:
    rig = CardRig(tmp_path)
    for _ in range(3):
        rig.clock.now_s += 1
        await rig.sample()

    assert await rig.published() == []


async def test_the_mean_load_over_a_pause_is_no_load_of_now(tmp_path: Path) -> None:
    rig = CardRig(tmp_path)
    for _ in range(2):
        await rig.load(50)
    rig.clock.now_s += 60
    await rig.load(50)
    assert len(await rig.published()) == 1
    await rig.load(50)

    assert len(await rig.published()) == 2


async def test_the_counters_of_two_readings_differ_by_what_the_hardware_counted(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    for watts in (100, 100, *([101] * 5), 400, *([110] * 12)):
        await rig.second(watts)

    first, *_, last = await rig.published()
    seconds = round(last.energy_uj - first.energy_uj)
    assert first.counted_from == last.counted_from
    assert seconds == (5 * 101 + 400 + 11 * 110) * 1_000_000
    assert last.min_mw == last.mean_mw == last.max_mw == 110_000


async def test_a_counter_of_the_node_begins_again_when_its_meter_was_away(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for _ in range(2):
        await rig.second(100)
    (rig.root / ZONE).unlink()
    await rig.silence(15)
    for _ in range(13):
        await rig.second(100)

    before, first, last = await rig.published()
    assert before.counted_from != first.counted_from == last.counted_from
    assert last.energy_uj - first.energy_uj == 1_000_000_000


POD = "0b6f3c1e-1111-4222-8333-0123456789ab"
GROUP = f"sys/fs/cgroup/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cpu.stat"


async def test_a_reading_has_the_energy_of_the_pods_once_a_minute(tmp_path: Path) -> None:
    """One pod uses half of two processors; all of the energy above idle is its own."""
    rig = Rig(tmp_path)
    for second in range(1, 125):
        host_trees.write(
            tmp_path,
            {
                "proc/stat": f"cpu {100 * second} 0 0 {100 * second} 0 0 0 0 0 0",
                GROUP: f"usage_usec {1_000_000 * second}",
            },
        )
        await rig.second(300)

    readings = await rig.published()
    first, second_one, third = (
        each.pod_uj for each in readings if each.pod_uj or each is readings[0]
    )
    assert first == {}
    used_uj = third[POD] - second_one[POD]
    assert used_uj == pytest.approx(60 * 300_000_000 / 3, rel=0.01)
