"""Users of one node or one replica, in each way that a nats-server knows users."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bus_kit import (
    CLUSTER,
    card,
    claim,
    connected,
    eco,
    node_seen,
    one_of_each,
    power,
    producer,
    running_broker,
    until,
)
from joulie_bus.errors import BrokerRefused
from joulie_bus.events import (
    AnyEvent,
    CapsApplied,
    CapsRefused,
    CapsSettable,
    InventoryRead,
    PodsUsed,
    TelemetrySampled,
    codec,
)
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.streams import ensure
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.records import Message
from joulie_bus.streams.roles import Role, agent_grant, grant_of, inbox, permissions
from joulie_bus.streams.subjects import Stream, agent_name
from joulie_cli.main import main
from nats_trust import Key, Operator, serving

pytestmark = pytest.mark.anyio
ADMIN = Address(url="", user="admin", password="a")


def storing(directory: Path) -> str:
    """Without a limit of its own, the broker may reserve only a share of the disk's free space."""
    return f'jetstream {{ store_dir: "{directory}/store", max_file_store: 32GB }}\n'


def user_of(printed: str) -> dict[str, object]:
    """What `joulie grant` printed, with a password added."""
    text = "\n".join(line for line in printed.splitlines() if not line.startswith("#"))
    user: dict[str, object] = json.loads(text)
    return user | {"password": "p"}


def granted(capsys: pytest.CaptureFixture[str], directory: Path, *asked: str) -> dict[str, object]:
    assert main(["grant", *asked, "--data", str(directory)]) == 0
    return user_of(capsys.readouterr().out)


@contextlib.asynccontextmanager
async def opened(url: str, user: Address) -> AsyncGenerator[Connection, None]:
    connection = await Connection.open(replace(user, url=url), "test", 5)
    try:
        yield connection
    finally:
        await connection.close()


async def is_taken(url: str, user: Address, message: Message) -> bool:
    async with opened(url, user) as connection, Publisher.on(connection) as publisher:
        try:
            async with asyncio.timeout(60):
                await publisher.publish([message])
        except BrokerRefused as refusal:
            return refusal.code != 403
    return True


def agent_address(user: object, node: str) -> Address:
    return Address(url="", user=str(user), password="p", inbox=inbox(Role.AGENT, node))


def others(node: str) -> list[Message]:
    """What no agent of this node may publish."""
    own, another = producer(agent_name(node)), producer(agent_name("n2"))
    events: list[AnyEvent] = [power("n2", 1), node_seen(node), card("GPU-1"), claim("GPU-1", "p")]
    measured = [another.stamp(power("n2", 1)), producer().stamp(power(node, 1))]
    return [*measured, *(own.stamp(event) for event in events)]


async def test_a_user_for_the_agent_of_a_node_reports_this_node_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = granted(capsys, tmp_path, "agent", "gpu-07.lab")
    admin = {"user": "admin", "password": "a"}
    users = f"authorization {{ users: {json.dumps([admin, user])} }}"
    agent = agent_address(user["user"], "gpu-07.lab")
    own = producer(agent_name("gpu-07.lab")).stamp(power("gpu-07.lab", 300))
    with serving(tmp_path, storing(tmp_path) + users) as url:
        async with opened(url, ADMIN) as admins:
            await ensure(admins, CLUSTER)

        assert await is_taken(url, agent, own)
        assert not any([await is_taken(url, agent, each) for each in others("gpu-07.lab")])


async def test_the_agent_and_the_writer_of_caps_run_as_the_user_of_their_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also before the streams are there: what was read is kept until then."""
    user = granted(capsys, tmp_path, "agent", "n1")
    users = f"authorization {{ users: {json.dumps([{'user': 'admin', 'password': 'a'}, user])} }}"
    with serving(tmp_path, storing(tmp_path) + users) as url:
        async with (
            running_agent(tmp_path, url, str(user["user"])),
            running_agent(tmp_path, url, str(user["user"]), "--caps", "--dry-run"),
            opened(url, ADMIN) as admins,
        ):
            await asyncio.sleep(5)
            await ensure(admins, CLUSTER)
            found = set[str]()
            async with asyncio.timeout(90), JetStreamLog.over(admins) as log:
                while not found >= {"inventory.read", "caps.settable"}:
                    found = await types_of(log)
                    await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def running_agent(
    directory: Path, url: str, user: str, *options: str
) -> AsyncGenerator[None, None]:
    env = {
        "NATS_URL": url,
        "NATS_USER": user,
        "NATS_PASSWORD": "p",
        "NATS_INBOX": inbox(Role.AGENT, "n1"),
        "JOULIE_CLUSTER": CLUSTER.cluster,
        "METRICS_ADDR": f"127.0.0.1:{free_port()}",
    }
    limits = ("--limits", str(directory / "limits.json"))
    words = ("-m", "joulie_cli.main", "agent", "--node", "n1", *limits, *options)
    process = await asyncio.create_subprocess_exec(sys.executable, *words, env=os.environ | env)
    try:
        yield
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def types_of(log: JetStreamLog) -> set[str]:
    newest = (await log.state(Stream.TEL)).last
    records = [await log.message(Stream.TEL, at) for at in range(1, newest + 1)]
    return {codec.open_envelope(each.data, each.subject).type for each in records if each}


async def test_a_jwt_of_a_template_reports_the_node_that_it_names_and_nothing_else(
    tmp_path: Path,
) -> None:
    grant = agent_grant("{name}")
    publish, listen = (
        [text.replace("=7Bname=7D", "{{name()}}") for text in texts]
        for texts in (grant.publish, grant.subscribe)
    )
    operator = Operator({"pub": {"allow": publish}, "sub": {"allow": listen}})
    creds = tmp_path / "agent.creds"
    creds.write_text(operator.templated(Key.user(), "n1"))
    agent = Address(url="", creds_file=str(creds), inbox=inbox(Role.AGENT, "n1"))
    with serving(tmp_path, operator.config()) as url:
        async with opened(url, agent) as connection:
            subjects = ["joulie.agent.test.n1", *(each.subject for each in others("n1"))]
            may = [await may_publish(connection, subject) for subject in subjects]

    assert publish == ["joulie.agent.*.{{name()}}"]
    assert may == [True] + [False] * (len(subjects) - 1)


async def may_publish(connection: Connection, subject: str) -> bool:
    """Asked of a server without streams: no program answers a question that it may put."""
    with pytest.raises(BrokerRefused) as caught:
        await connection.request(subject, b"")
    return caught.value.code == 503


async def test_a_user_for_one_replica_decides_as_this_replica_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = granted(capsys, tmp_path, "extender", "r1")
    users = f"authorization {{ users: {json.dumps([{'user': 'admin', 'password': 'a'}, user])} }}"
    replica = Address(
        url="", user=str(user["user"]), password="p", inbox=inbox(Role.EXTENDER, "r1")
    )
    decision = next(event for event in one_of_each() if event.TYPE == "decision.filter")
    with serving(tmp_path, storing(tmp_path) + users) as url:
        async with opened(url, ADMIN) as admins:
            await ensure(admins, CLUSTER)
        taken = {
            name: await is_taken(url, replica, producer(name).stamp(decision))
            for name in ("r1", "r2", "projector")
        }

    assert taken == {"r1": True, "r2": False, "projector": False}


def test_a_name_makes_a_grant_smaller() -> None:
    assert grant_of(Role.AGENT, "n1").publish == ("joulie.agent.*.n1",)
    assert grant_of(Role.AGENT, "n1").subscribe == ("_INBOX_agent_n1.>", "joulie.caps.*.n1")
    assert grant_of(Role.EXTENDER, "r1").publish[3:6] == (
        *("joulie.dec.*.r1", "joulie.claim.*.*", "joulie.spool.*.r1"),
    )
    assert permissions(grant_of(Role.EXTENDER))["publish"]["deny"] == ("joulie.dec.*.projector",)


def test_a_role_that_is_not_granted_by_name_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["grant", "console", "c1", "--data", str(tmp_path)]) != 0
    assert "only `joulie grant` of agent and extender takes one" in capsys.readouterr().err


def test_the_events_of_an_agent_are_its_readings_alone() -> None:
    """Other facts of a node have other subjects, whatever the name of their producer."""
    subjects = {
        type(event): CLUSTER.of(event, agent_name("n1")) for event in one_of_each(node="n1")
    }

    agents = {kind for kind, subject in subjects.items() if subject.startswith("joulie.agent.")}
    reports = {TelemetrySampled, InventoryRead, CapsApplied, CapsSettable, CapsRefused, PodsUsed}
    assert agents == reports


@pytest.mark.parametrize(
    ("sender", "event", "listener"),
    [(Role.OPERATOR, eco("n1"), Role.VIEWER), (Role.EXTENDER, None, Role.VIEWER)],
    ids=["a plan of the operator", "a decision of an extender"],
)
async def test_a_viewer_hears_live_what_other_roles_publish(
    sender: Role, event: AnyEvent | None, listener: Role, tmp_path: Path
) -> None:
    """Between accounts outside of the core, as dashboards subscribe to decisions."""
    decision = next(each for each in one_of_each() if each.TYPE == "decision.filter")
    message = producer().stamp(event or decision)
    heard: list[bytes] = []
    async with (
        running_broker(tmp_path) as broker,
        connected(broker, "sender", sender) as speaking,
        connected(broker, "listener", listener) as listening,
        listening.listening(message.subject, heard.append),
        JetStreamLog.over(speaking) as bus,
    ):
        await listening.flush()
        await bus.publish([message])
        await until(lambda: heard == [message.data])


async def test_the_caps_of_a_node_reach_its_writer_and_no_other_node(tmp_path: Path) -> None:
    heard: list[bytes] = []
    async with (
        running_broker(tmp_path) as broker,
        connected(broker, "operator", Role.OPERATOR) as operator,
        connected(broker, "agent", Role.AGENT) as agent,
        JetStreamLog.over(operator) as bus,
        agent.listening(CLUSTER.caps("n1"), heard.append),
    ):
        await agent.flush()
        await bus.send_live(CLUSTER.caps("n2"), b"of n2")
        await bus.send_live(CLUSTER.caps("n1"), b"of n1")
        await until(lambda: heard == [b"of n1"])


async def test_what_waits_in_a_spool_reaches_the_console(tmp_path: Path) -> None:
    heard: list[bytes] = []
    async with (
        running_broker(tmp_path) as broker,
        connected(broker, "extender", Role.EXTENDER) as extender,
        connected(broker, "console", Role.CONSOLE) as console,
        JetStreamLog.over(extender) as bus,
        console.listening(CLUSTER.spools, heard.append),
    ):
        await console.flush()
        await bus.send_live(CLUSTER.spool("r1"), b"of r1")
        await until(lambda: heard == [b"of r1"])
