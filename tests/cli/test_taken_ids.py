"""A replica proves an answer whose id another program took at the broker, although it and the
projector were killed in between."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from joulie_bus.broker.embedded import address_within
from joulie_bus.events import FilterDecided, codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_demo import Running, demo, told_by
from joulie_projections.history.history import EntryQuery, History
from promising import changed

SUBJECTS = Subjects("local")
AHEAD = 12  # messages of the replica that come before the taken id


async def take_an_id(running: Running) -> str:
    """Publishes a decision of another pod under an id that the replica will use, as any program
    with the user of the extenders can: numbers are predictable."""
    with History.of(running.data.database) as history:
        newest = next(history.find(EntryQuery(kinds=(FilterDecided.TYPE,)), 1))
    life, _, number = newest.event_id.rpartition(":")
    taken = f"{life}:{int(number) + AHEAD}"
    envelope = codec.open_envelope(changed(newest.message), "here")
    message = codec.seal(replace(envelope, id=taken, prev=b""))
    beside = running.data.running()
    assert beside is not None
    address = address_within(running.data.path, beside.nats_url, Role.EXTENDER)
    async with JetStreamLog.open(address, "beside") as bus:
        await bus.publish([Message(SUBJECTS.decisions("extender-0"), taken, message)])
    return taken


def has_written_beyond(running: Running, event_id: str) -> bool:
    life, _, number = event_id.rpartition(":")
    with History.of(running.data.database) as history:
        return history.position_of(f"{life}:{int(number) + AHEAD}") is not None


@pytest.mark.long
def test_an_answer_whose_id_was_taken_is_proved_across_kills(tmp_path: Path) -> None:
    with demo(tmp_path, "--nodes", "30") as running:
        running.await_decisions(20)
        taken = asyncio.run(take_an_id(running))
        running.wait_until(lambda: has_written_beyond(running, taken))
        running.kill("extender")
        running.kill("projector")
        proofs = tmp_path / "spool" / "extender-0" / "missing"
        running.wait_until(lambda: any(proofs.glob("*.json")))
        _, status = told_by("status", "--data", tmp_path)
        running.end()

    code, judged = told_by("prove", "--missing", "--data", tmp_path)
    verified, log = told_by("verify", "--data", tmp_path)

    [proof] = judged["items"]
    assert (code, proof["id"], proof["verdict"]) == (1, taken, "other")
    assert proof["signer"]["id"].rpartition(":")[0] == taken.rpartition(":")[0]
    assert "`joulie prove --missing`" in str(status["stale"])
    # What a replica says is no proof that the log was changed.
    assert (verified, "first_bad" in log) == (1, False)
    assert {each["life"] for each in log["unkept"]} == {taken.rpartition(":")[0]}
