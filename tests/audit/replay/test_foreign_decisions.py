"""A decision that no replica signed makes no replay fail: it is named, and counted."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from audit_kit import NAMES, RecordedLog
from bus_kit import CLUSTER, ask, hardware, node_seen
from joulie_audit.replay.replay import ReplayReport, replay
from joulie_audit.replay.signed_decisions import SignedDecisions
from joulie_bus.events import FilterDecided, Promise, codec
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Message
from joulie_cli.audit.replay import as_json, as_text
from joulie_extender.catalogue.declaration import declaration
from joulie_extender.decide.decide import DecisionContext, decide_filter
from joulie_projections.chain.entry import entry_of
from joulie_projections.chain.promise import hash_of
from joulie_projections.twin.columns import TwinColumns
from promising import Replica

pytestmark = pytest.mark.anyio
UNKNOWN = "its settings are not in the log"


class Site:
    """A log, and a replica that signs its decisions about four nodes."""

    def __init__(self, recorded: RecordedLog, directory: Path) -> None:
        self.recorded, self.builder = recorded, recorded.builder
        self.directory = directory

    async def begin(self) -> None:
        await self.builder.facts(*map(node_seen, NAMES), *map(hardware, NAMES))

    def decided(self, pod: str) -> FilterDecided:
        columns = TwinColumns.of_state(self.builder.cluster_state)
        moment = DecisionContext(columns, self.builder.position, 3, self.builder.clock())
        return decide_filter(ask(pod), NAMES, moment, self.builder.weights)

    def with_other_settings(self, pod: str) -> FilterDecided:
        found = self.decided(pod)
        return replace(found, basis=replace(found.basis, settings="unknown"))

    async def write(self, messages: Sequence[Message]) -> None:
        await self.builder.write(messages, entry_of)

    async def replica_decides(
        self, *decisions: FilterDecided, boot: str = "b1", signs: bool = True
    ) -> None:
        with Replica.living(self.directory, boot) as replica:
            replica.promised.append(declaration(self.builder.weights))
            for decision in decisions:
                replica.promised.append(decision)
            if signs:
                replica.promised.sign(at_once=True)
            messages = replica.published
            replica.ships(len(messages))
        await self.write(messages)

    async def replayed(self) -> ReplayReport:
        async with self.recorded.reading() as (history, facts):
            return await replay(history, facts)


@pytest.fixture
async def site(recorded: RecordedLog, tmp_path: Path) -> Site:
    made = Site(recorded, tmp_path / "spool")
    await made.begin()
    return made


def message(decision: FilterDecided | Promise, event_id: str, prev: bytes = b"") -> Message:
    """Of another program that has the credential of the replicas."""
    made = Producer("extender-0", CLUSTER, lambda: 1, "b9").stamp(decision, prev=prev)
    envelope = replace(codec.open_envelope(made.data, "here"), id=event_id)
    return Message(made.subject, event_id, codec.seal(envelope))


async def test_a_decision_with_unknown_settings_that_no_replica_signed_is_named(
    site: Site,
) -> None:
    await site.replica_decides(site.decided("own"))
    await site.write([message(site.with_other_settings("foreign"), "extender-0:x:1")])

    done = await site.replayed()

    assert (done.mismatches, done.reported) == (0, [])
    assert (done.foreign, [miss.what for miss in done.foreign_ones]) == (1, [UNKNOWN])
    text = as_text(as_json(done))
    assert "no mismatch" in text
    assert "FOREIGN: 1 decisions that no replica signed" in text
    assert f"entry {done.foreign_ones[0].entry}: {UNKNOWN}" in text


async def test_a_decision_of_a_replica_that_cannot_be_computed_again_is_a_mismatch(
    site: Site,
) -> None:
    await site.replica_decides(site.decided("own"), site.with_other_settings("own too"))

    done = await site.replayed()

    assert ([miss.what for miss in done.reported], done.foreign) == ([UNKNOWN], 0)


async def test_what_a_killed_replica_had_not_signed_yet_is_its_own(site: Site) -> None:
    await site.replica_decides(site.with_other_settings("own"), signs=False)
    await site.replica_decides(site.decided("of the next run"), boot="b2")

    done = await site.replayed()

    assert ([miss.what for miss in done.reported], done.foreign) == ([UNKNOWN], 0)


async def test_in_a_log_in_which_no_replica_signs_each_decision_counts(site: Site) -> None:
    await site.builder.declare()
    await site.builder.publish(site.with_other_settings("own"))

    done = await site.replayed()

    assert ([miss.what for miss in done.reported], done.foreign) == ([UNKNOWN], 0)


@pytest.mark.parametrize("reads", [False, True], ids=["guessed", "with the hash before it"])
async def test_a_decision_under_the_id_of_a_replica_is_foreign_if_the_replica_signed_another_one(
    site: Site, reads: bool
) -> None:
    with Replica.living(site.directory) as replica:
        replica.promised.append(declaration(site.builder.weights))
        for pod in ("first", "second", "third"):
            replica.promised.append(site.decided(pod))
        replica.promised.sign(at_once=True)
        key, declared, first, second, *rest = replica.published
    prev = hash_of(first.data) if reads else b""
    taken = message(site.with_other_settings("foreign"), second.id, prev)
    await site.write([key, declared, first, taken, *rest])

    done = await site.replayed()

    assert (done.reported, [miss.entry for miss in done.foreign_ones]) == ([], [4])
    async with site.recorded.reading() as (history, _):
        signed = SignedDecisions(history)
        assert [pos for pos in range(1, 7) if signed.is_foreign(pos)] == [4]


async def test_a_promise_of_another_key_signs_nothing(site: Site) -> None:
    await site.replica_decides(site.decided("own"))
    forged = message(site.with_other_settings("foreign"), "extender-0:b1:90")
    over = Promise(last="extender-0:b1:90", covers=bytes(32), at=1, signature=bytes(64))
    signs = message(over, "extender-0:b1:91", hash_of(forged.data))
    await site.write([forged, signs])

    done = await site.replayed()

    assert (done.mismatches, done.foreign) == (0, 1)
