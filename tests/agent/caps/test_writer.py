"""Limits are the writer's, or what they were before, or another program's: never anything else."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fake_card import HIGH, LOW, FakeCard
from joulie_agent.caps.memory import BadMemory, Memory
from joulie_agent.caps.rules import Remembered
from joulie_agent.caps.writer import NOTHING, Order, Writer


class Killed(Exception):
    """The process ends here."""


def test_a_cap_is_set_within_the_range_and_given_back(tmp_path: Path) -> None:
    card, memory = FakeCard(), Memory(tmp_path / "limits.json")
    (done,) = Writer(memory).carry_out(Order(gpu_mw=50_000), [card])
    assert (done.value, card.now, done.refused) == (LOW, LOW, "")
    memory.close()
    (done,) = Writer(Memory(tmp_path / "limits.json")).release([card])
    assert (card.now, done.refused) == (HIGH, "")
    assert json.loads((tmp_path / "limits.json").read_text()) == {"limits": {}}


def test_each_card_gets_its_own_cap_and_those_without_one_are_not_touched(tmp_path: Path) -> None:
    cards = [FakeCard(name) for name in ("GPU-1", "GPU-2", "GPU-3")]
    writer = Writer(Memory(tmp_path / "limits.json"))
    writer.carry_out(Order(gpu_mw=600_000, card_mw={"GPU-1": 300_000, "GPU-2": None}), cards)
    assert [card.now for card in cards] == [300_000, HIGH, 600_000]
    assert cards[1].writes == 0


def test_a_card_is_given_back_when_only_its_own_cap_ends(tmp_path: Path) -> None:
    cards = [FakeCard(name) for name in ("GPU-1", "GPU-2")]
    writer = Writer(Memory(tmp_path / "limits.json"))
    writer.carry_out(Order(card_mw={"GPU-1": 300_000, "GPU-2": 300_000}), cards)
    writer.carry_out(Order(card_mw={"GPU-2": 300_000}), cards)
    assert [card.now for card in cards] == [HIGH, 300_000]


def test_two_writers_of_one_node_are_refused(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "limits.json")
    with pytest.raises(BadMemory, match="another process sets the limits"):
        Memory(tmp_path / "limits.json")
    memory.close()
    Memory(tmp_path / "limits.json").close()


def test_a_node_without_an_order_is_never_touched(tmp_path: Path) -> None:
    card = FakeCard()
    assert Writer(Memory(tmp_path / "limits.json")).carry_out(NOTHING, [card]) == []
    assert card.writes == 0


def test_a_limit_that_somebody_set_before_is_refused(tmp_path: Path) -> None:
    card = FakeCard()
    card.now = 450_000
    (done,) = Writer(Memory(tmp_path / "limits.json")).carry_out(Order(gpu_mw=300_000), [card])
    assert "has set it" in done.refused
    assert (card.now, card.writes) == (450_000, 0)


def test_a_limit_that_is_changed_later_is_left_as_it_is(tmp_path: Path) -> None:
    card, memory = FakeCard(), Memory(tmp_path / "limits.json")
    writer = Writer(memory)
    writer.carry_out(Order(gpu_mw=300_000), [card])
    card.now = 450_000
    (done,) = writer.carry_out(Order(gpu_mw=250_000), [card])
    assert "left as it is" in done.refused
    writer.release([card])
    assert card.now == 450_000


def test_a_cap_is_applied_again_after_the_driver_was_reloaded(tmp_path: Path) -> None:
    card, writer = FakeCard(), Writer(Memory(tmp_path / "limits.json"))
    writer.carry_out(Order(gpu_mw=300_000), [card])
    card.now = HIGH
    writer.carry_out(Order(gpu_mw=300_000), [card])
    assert card.now == 300_000


def test_an_order_that_is_carried_out_writes_nothing_more(tmp_path: Path) -> None:
    card, writer = FakeCard(), Writer(Memory(tmp_path / "limits.json"))
    for _ in range(5):
        writer.carry_out(Order(gpu_mw=300_000), [card])
    assert card.writes == 1


def test_a_dry_run_touches_neither_hardware_nor_disk(tmp_path: Path) -> None:
    card, file = FakeCard(), tmp_path / "limits.json"
    (done,) = Writer(Memory(file), dry_run=True).carry_out(Order(gpu_mw=300_000), [card])
    assert (done.value, card.writes, file.exists()) == (HIGH, 0, False)


def test_a_card_that_refuses_is_named(tmp_path: Path) -> None:
    card = FakeCard()
    card.refuses = True
    (done,) = Writer(Memory(tmp_path / "limits.json")).carry_out(Order(gpu_mw=300_000), [card])
    assert (done.refused, card.now) == ("no", HIGH)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"limits": {"a": {"before": "x"}}}'])
def test_a_file_of_limits_that_is_damaged_stops_the_writer(tmp_path: Path, text: str) -> None:
    (tmp_path / "limits.json").write_text(text)
    with pytest.raises(BadMemory, match=r"limits\.json"):
        Memory(tmp_path / "limits.json")


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "limits.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(BadMemory):
        Memory(tmp_path / "limits.json")


class BurningMemory(Memory):
    """The process may also end before and after a note on disk."""

    def __init__(self, file: Path, card: FakeCard) -> None:
        super().__init__(file)
        self._card = card

    def put(self, name: str, remembered: Remembered) -> None:
        self._card.effect()
        super().put(name, remembered)
        self._card.effect()


class Interleavings(RuleBasedStateMachine):
    """Orders, kills at any effect, restarts, reloads of the driver and changes by others."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.card = FakeCard()
        self.allowed = {HIGH}  # what the limit may be now
        self.foreign: int | None = None

    @rule(
        wanted=st.none() | st.sampled_from([100_000, 300_000, 350_000, 400_000, 900_000]),
        fuse=st.none() | st.integers(0, 5),
    )
    def order(self, wanted: int | None, fuse: int | None) -> None:
        """A life of the process: it carries out one order, and is perhaps killed meanwhile."""
        self.card.effect = _burning(fuse)
        memory = BurningMemory(Path(self.folder.name) / "limits.json", self.card)
        ordered = set() if wanted is None else {min(max(wanted, LOW), HIGH)}
        self.allowed |= ordered
        try:
            Writer(memory).carry_out(Order(gpu_mw=wanted), [self.card])
        except Killed:
            return
        finally:
            self.card.effect = lambda: None
            memory.close()
        if self.foreign is None:
            assert self.card.now in (ordered or {HIGH})
            self.allowed = {HIGH, *ordered}

    @rule(value=st.sampled_from([210_000, 333_000, 555_000]))
    def somebody_sets_it(self, value: int) -> None:
        self.card.now = value
        self.foreign = value

    @rule()
    def the_driver_is_reloaded(self) -> None:
        self.card.now = HIGH
        self.foreign = None

    @invariant()
    def the_limit_is_ours_or_before_or_theirs(self) -> None:
        if self.foreign is not None:
            assert self.card.now == self.foreign
        else:
            assert self.card.now in self.allowed

    def teardown(self) -> None:
        """The next life gives back what is not another program's."""
        memory = Memory(Path(self.folder.name) / "limits.json")
        Writer(memory).release([self.card])
        memory.close()
        assert self.card.now == (HIGH if self.foreign is None else self.foreign)
        self.folder.cleanup()


def _burning(fuse: int | None) -> Callable[[], None]:
    left = fuse

    def effect() -> None:
        nonlocal left
        if left is None:
            return
        if left == 0:
            raise Killed
        left -= 1

    return effect


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
