"""A hostile client with the credential of each role, at each broker that Joulie is installed with.

JOULIE_DRILL_SECONDS sets how long each role attacks; by default everything is sent once.
"""

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from broker_attacks import Holdings, attack, grown, holdings, overhearing
from broker_installations import INSTALLATIONS, Installation, flat
from bus_kit import CLUSTER, stored
from joulie_bus.jetstream.batch import append
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.publisher import MANY, Publisher
from joulie_bus.streams.batch_limits import MAX_BATCH, MAX_OPEN
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import CORE_ROLES, GRANTS, Role
from joulie_bus.streams.subjects import PATTERNS, Stream
from one_broker import anyio_backend

__all__ = ["anyio_backend"]  # a fixture
pytestmark = pytest.mark.anyio
SECONDS = float(os.environ.get("JOULIE_DRILL_SECONDS", "0"))
OUTSIDE = [role for role in Role if role not in CORE_ROLES]
READERS = [Role.AUDITOR, Role.ARCHIVIST, Role.CONSOLE]


@pytest.fixture(scope="module", params=INSTALLATIONS)
async def installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Installation, None]:
    make = INSTALLATIONS[request.param]
    async with make(tmp_path_factory.mktemp("broker") / "broker") as installed:
        await fill(installed)
        yield installed


async def fill(installed: Installation) -> None:
    """One message in each family of subjects."""
    subjects = [
        pattern.format(cluster=CLUSTER.cluster).replace("*", "first")
        for pattern in PATTERNS.values()
    ]
    async with installed.connected(Role.ADMIN) as connection, Publisher.on(connection) as publisher:
        await publisher.publish([Message(subject, subject, b"a fact") for subject in subjects])


async def attacked(installed: Installation, role: Role) -> tuple[Holdings, Holdings, list[bytes]]:
    """What the broker held before and after, and what arrived at the live view of the core."""
    async with installed.connected(Role.ADMIN) as admin, overhearing(admin) as heard:
        before = await holdings(admin)
        async with installed.connected(role) as hostile:
            await attack(hostile, GRANTS[role], SECONDS)
        await admin.flush()
        return before, await holdings(admin), heard


@pytest.mark.parametrize("role", OUTSIDE)
async def test_a_role_outside_of_the_core_makes_the_broker_keep_nothing_but_its_own_messages(
    installation: Installation, role: Role
) -> None:
    before, after, heard = await attacked(installation, role)

    assert grown(before, after, GRANTS[role]) == {}
    assert heard == []


async def test_batches_that_are_never_committed_are_few_and_keep_no_writer_out(
    installation: Installation,
) -> None:
    """An agent takes all batches of telemetry, which others then publish one by one. It reaches no
    other stream, so plans and claims stay atomic."""
    own = f"joulie.agent.{CLUSTER.cluster}.own"
    honest = f"joulie.tel.{CLUSTER.cluster}.honest"
    async with (
        installation.connected(Role.ADMIN) as admin,
        installation.connected(Role.AGENT) as hostile,
        installation.connected(Role.OPERATOR) as operator,
        installation.connected(Role.EXTENDER) as extender,
        Publisher.on(operator) as publisher,
    ):
        before = await holdings(admin)
        opened = [await staged(hostile, own, f"evil-{batch}", 1) for batch in range(3 * MAX_OPEN)]
        await publisher.publish(facts(honest, 3 * MANY))
        for connection, stream, subject in (
            (operator, Stream.PLAN, CLUSTER.plan_meta),
            (extender, Stream.CLAIM, CLUSTER.claim("card")),
        ):
            expected = {subject: before.messages[stream].get(subject, 0)}
            await append(connection, stream, facts(subject, 2), expected)
        after = await holdings(admin)

    assert opened.count("") == MAX_OPEN
    assert set(opened[MAX_OPEN:]) == {"atomic publish too many inflight"}
    assert grown(before, after, GRANTS[Role.AGENT]) == {
        str(Stream.TEL): {honest: 3 * MANY},
        str(Stream.PLAN): {CLUSTER.plan_meta: 2},
        str(Stream.CLAIM): {CLUSTER.claim("card"): 2},
    }
    counts = [held.messages[Stream.TEL].get(own) for held in (before, after)]
    assert counts[0] == counts[1]


async def test_a_batch_that_is_never_committed_holds_few_messages(
    installation: Installation,
) -> None:
    own = f"joulie.claim.{CLUSTER.cluster}.own"
    async with installation.connected(Role.EXTENDER) as hostile:
        first = await staged(hostile, own, "long", 1)
        for number in range(2, MAX_BATCH):
            head = {"Nats-Batch-Id": "long", "Nats-Batch-Sequence": str(number)}
            await hostile.send(own, b"evil", headers=head)
        last = [await staged(hostile, own, "long", MAX_BATCH + more) for more in (0, 1, 2)]

    too_large = f"atomic publish batch is too large: {MAX_BATCH}"
    assert [first, *last] == ["", "", too_large, too_large]


async def staged(connection: Connection, subject: str, batch: str, number: int) -> str:
    """Sends one message of a batch that it does not commit; returns why it was refused."""
    head = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
    answer = (await connection.request(subject, b"evil", head)).data
    return json.loads(answer)["error"]["description"] if answer else ""


def facts(subject: str, count: int) -> list[Message]:
    return [Message(subject, f"{subject}-{number}", b"a fact") for number in range(count)]


@pytest.mark.parametrize("role", READERS)
async def test_a_reader_reads_every_stream(installation: Installation, role: Role) -> None:
    async with installation.connected(role) as reader:
        first = [(await stored(reader, stream))[0].data for stream in Stream]

    assert set(first) == {b"a fact"}


@pytest.mark.parametrize("role", [Role.AGENT, Role.AUDITOR, Role.VIEWER])
async def test_with_all_users_in_one_account_the_same_attack_succeeds(
    tmp_path: Path, role: Role
) -> None:
    """It is the accounts that contain it, and the drill would see an attack that is not."""
    async with flat(tmp_path / "broker") as installed:
        await fill(installed)
        before, after, heard = await attacked(installed, role)

    assert CLUSTER.heads in json.dumps(grown(before, after, GRANTS[role]))
    assert heard
