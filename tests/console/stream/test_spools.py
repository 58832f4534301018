"""What waits in spools, by the reports of their extenders."""

import msgspec
import pytest

from joulie_bus.streams.spool_report import SpoolReport
from joulie_console.stream.spools import FORGOTTEN_S, MOST_REPLICAS, SILENT_S, Spools

encode = msgspec.msgpack.encode


class Heard:
    """Spools, and a clock that tests turn."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.spools = Spools(lambda: self.now_s)

    def report(self, replica: str, waiting: int, *, ends: bool = False) -> None:
        report = SpoolReport(replica=replica, waiting=waiting, oldest_ms=0, ends=ends)
        self.spools.hear(encode(report))

    def known(self) -> dict[str, int | None]:
        return {each.name: each.waiting for each in self.spools.all()}


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_without_a_report_nothing_is_known(heard: Heard) -> None:
    assert heard.spools.waiting() is None


def test_the_newest_report_of_each_replica_counts(heard: Heard) -> None:
    heard.report("b", 7)
    heard.report("a", 2)
    heard.report("b", 3)

    assert (heard.known(), heard.spools.waiting()) == ({"a": 2, "b": 3}, 5)


def test_a_replica_that_is_silent_has_an_unknown_spool_and_so_has_the_sum(heard: Heard) -> None:
    heard.report("a", 0)
    heard.now_s += SILENT_S + 0.1
    heard.report("b", 3)

    assert (heard.known(), heard.spools.waiting()) == ({"a": None, "b": 3}, None)


def test_a_replica_that_was_removed_is_forgotten_in_the_end(heard: Heard) -> None:
    heard.report("a", 4)
    heard.now_s += FORGOTTEN_S
    heard.report("b", 3)

    assert heard.known() == {"b": 3}


def test_a_replica_that_stops_with_an_empty_spool_is_forgotten_at_once(heard: Heard) -> None:
    heard.report("a", 0, ends=True)
    heard.report("b", 4, ends=True)

    assert heard.known() == {"b": 4}


@pytest.mark.parametrize("data", [b"", b"\xc1", encode({"replica": "a"}), encode(7)])
def test_what_is_no_report_is_ignored(heard: Heard, data: bytes) -> None:
    heard.spools.hear(data)

    assert heard.known() == {}


def test_no_more_replicas_are_kept_than_there_can_be(heard: Heard) -> None:
    for number in range(MOST_REPLICAS + 5):
        heard.report(f"r{number}", 1)

    assert len(heard.known()) == MOST_REPLICAS
