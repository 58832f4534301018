"""Agents show the token of their pod: a real API server says whose it is, and a real nats-server
lets them publish for their own node alone."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from agent_pods import ACCOUNT, AUDIENCE, USERNAME, account, agent_token, token
from bus_kit import CLUSTER, power, producer, until
from joulie_bus.broker import signer
from joulie_bus.broker.answering import answering as replying
from joulie_bus.broker.callout import ASKS, REVIEW, REVIEWER, SIGNER, Issuer
from joulie_bus.broker.embedded import Embedded
from joulie_bus.broker.signer import Reviewed, Signer
from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.streams import ensure
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role, inbox
from joulie_bus.streams.subjects import Stream, agent_name
from joulie_operator.identity.accepted import KEPT_S
from joulie_operator.identity.refused import AT_FIRST
from joulie_operator.identity.service import Callout
from joulie_operator.identity.token_reviews import Expected, NotAnAgent, TokenReviews
from joulie_operator.kube.api_client import ApiServer
from kube_real import ASSETS, Running, program_or_skip, real_server

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]
EXPECTED = Expected(USERNAME, AUDIENCE)


@contextlib.asynccontextmanager
async def api_server(folder: Path) -> AsyncGenerator[Running, None]:
    programs = program_or_skip(ASSETS, "kube-apiserver", "etcd").parent
    async with real_server(folder / "server", programs, bare=True) as server:
        await account(server)
        yield server


@contextlib.asynccontextmanager
async def asking_broker(folder: Path) -> AsyncGenerator[Embedded, None]:
    broker = Embedded(folder / "broker", auth_callout=True)
    await broker.start()
    try:
        connection = await Connection.open(broker.address_of(Role.ADMIN), "test")
        await ensure(connection, CLUSTER)
        await connection.close()
        yield broker
    finally:
        await broker.stop()


@contextlib.asynccontextmanager
async def answering(broker: Embedded, reviews: TokenReviews) -> AsyncGenerator[None, None]:
    async with (
        signing(broker),
        connected_as(broker, REVIEWER) as connection,
        background(Callout(connection, reviews).run(), "callout"),
    ):
        await asyncio.sleep(0.2)  # it listens
        yield


@contextlib.asynccontextmanager
async def signing(broker: Embedded) -> AsyncGenerator[None, None]:
    async with (
        connected_as(broker, SIGNER) as connection,
        background(Signer(connection, broker.issuer).run(), "signer"),
    ):
        await asyncio.sleep(0.2)
        yield


@contextlib.asynccontextmanager
async def connected_as(broker: Embedded, user: str) -> AsyncGenerator[Connection, None]:
    connection = await Connection.open(broker.address_of_callout(user), user)
    try:
        yield connection
    finally:
        await connection.close()


def shown(folder: Path, broker: Embedded, text: str, node: str) -> Address:
    file = folder / f"token-{node}"
    file.write_text(text)
    return Address(url=broker.url, token_file=str(file), inbox=inbox(Role.AGENT, node))


async def published(address: Address, as_node: str, on: str) -> bool:
    connection = await Connection.open(address, "agent", 3)
    try:
        async with Publisher.on(connection) as publisher:
            message = producer(agent_name(on)).stamp(power(on, 1))
            assert message.subject.endswith(f".{on}")
            await publisher.publish([message])
    except BrokerRefused:
        return False
    finally:
        await connection.close()
    return as_node == on


async def test_the_token_of_a_pod_lets_its_agent_publish_for_its_own_node_alone(
    tmp_path: Path,
) -> None:
    async with api_server(tmp_path) as server, asking_broker(tmp_path) as broker:
        text = await agent_token(server, "n1")
        reviews = TokenReviews(server.api, EXPECTED, time.monotonic)
        async with answering(broker, reviews):
            agent = shown(tmp_path, broker, text, "n1")
            own = await published(agent, "n1", "n1")
            with pytest.raises(Unreachable):  # the inbox of another node
                await asking_as(replace(agent, inbox=inbox(Role.AGENT, "n2")))
            others = await published(agent, "n1", "n2")

    assert (own, others) == (True, False)


async def test_the_agent_itself_reports_with_the_token_of_its_pod(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server, asking_broker(tmp_path) as broker:
        token_file = tmp_path / "token"
        token_file.write_text(await agent_token(server, "n1"))
        env = {
            "NATS_URL": broker.url,
            "NATS_CREDS_FILE": str(token_file),
            "NODE_NAME": "n1",
            "JOULIE_CLUSTER": CLUSTER.cluster,
            "METRICS_ADDR": f"127.0.0.1:{free_port()}",
        }
        command = (sys.executable, "-m", "joulie_cli.main", "agent", "--node", "n1")
        async with answering(broker, TokenReviews(server.api, EXPECTED, time.monotonic)):
            agent = await asyncio.create_subprocess_exec(*command, env=os.environ | env)
            try:
                async with asyncio.timeout(90):
                    subjects = await reported(broker)
            finally:
                agent.terminate()
                await agent.wait()

    assert subjects == {f"joulie.agent.{CLUSTER.cluster}.n1"}


async def reported(broker: Embedded) -> set[str]:
    """The subjects of the stream once an agent has reported."""
    connection = await Connection.open(broker.address_of(Role.ADMIN), "test")
    try:
        async with JetStreamLog.over(connection) as log:
            while not (await log.state(Stream.TEL)).last:
                await asyncio.sleep(0.1)
            found = await log.message(Stream.TEL, 1)
            return {found.subject} if found else set()
    finally:
        await connection.close()


async def asking_as(address: Address) -> None:
    """A publisher that gets no acknowledgement."""
    connection = await Connection.open(address, "agent", 3)
    try:
        async with Publisher.on(connection) as publisher, asyncio.timeout(60):
            await publisher.publish([producer(agent_name("n1")).stamp(power("n1", 2))])
    except (BrokerRefused, TimeoutError) as error:
        raise Unreachable(address.safe_url, str(error)) from error
    finally:
        await connection.close()


async def test_a_connection_whose_time_is_over_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a time in which the service did not answer."""
    monkeypatch.setattr(signer, "CONNECTED_S", 2)
    async with api_server(tmp_path) as server, asking_broker(tmp_path) as broker:
        reviews = TokenReviews(server.api, EXPECTED, time.monotonic)
        agent = shown(tmp_path, broker, await agent_token(server, "n1"), "n1")
        async with answering(broker, reviews):
            connection = await Connection.open(agent, "agent", 10)
            await until(lambda: connection.lives >= 3, 60)
        await until(lambda: not connection.is_connected, 60)
        async with answering(broker, reviews):
            await until(lambda: connection.is_connected, 60)
            async with Publisher.on(connection) as publisher:
                await publisher.publish([producer(agent_name("n1")).stamp(power("n1", 1))])
        await connection.close()


async def test_other_tokens_do_not_connect(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server, asking_broker(tmp_path) as broker:
        await account(server, "stranger")
        refused = {
            "audience": await agent_token(server, "n1", audience="another"),
            "account": await agent_token(server, "n2", of="stranger"),
            "no pod": await token(server, ACCOUNT, {"audiences": [AUDIENCE]}),
            "forged": "a.b.c",
            "none": "",
        }
        reviews = TokenReviews(server.api, EXPECTED, time.monotonic)
        why = dict[str, str]()
        async with answering(broker, reviews):
            for name, text in refused.items():
                address = shown(tmp_path, broker, text, name)
                with pytest.raises(Unreachable):
                    await Connection.open(address, "agent", 2)
                with pytest.raises(NotAnAgent) as caught:
                    await reviews.node_of(text, "10.0.0.1")
                why[name] = str(caught.value)

    assert "system:serviceaccount:default:stranger" in why["account"]
    assert "names no node" in why["no pod"]
    assert "showed no token" in why["none"]


async def test_without_the_service_no_agent_connects_and_the_parts_with_passwords_do(
    tmp_path: Path,
) -> None:
    async with asking_broker(tmp_path) as broker:
        for role in Role:
            connection = await Connection.open(broker.address_of(role), "part", 5)
            await connection.close()
        with pytest.raises(Unreachable):
            await Connection.open(shown(tmp_path, broker, "a.b.c", "n1"), "agent", 3)


async def is_known(reviews: TokenReviews, text: str) -> bool:
    try:
        await reviews.node_of(text, "10.0.0.1")
    except NotAnAgent:
        return False
    return True


async def test_a_token_is_reviewed_again_after_some_minutes(tmp_path: Path) -> None:
    """Meanwhile it needs no API server: after a restart of the broker all agents come at once."""
    now = [0.0]
    async with api_server(tmp_path) as server:
        text = await agent_token(server, "n1")
        reviews = TokenReviews(server.api, EXPECTED, lambda: now[0])
        first = await reviews.node_of(text, "10.0.0.1")
        await server.api.delete(
            f"/api/v1/namespaces/default/pods/{ACCOUNT}-n1?gracePeriodSeconds=0"
        )
        now[0] = KEPT_S - 1
        kept = await reviews.node_of(text, "10.0.0.1")
        async with asyncio.timeout(90):  # the API server keeps its own answers for ten seconds
            while await is_known(reviews, text):
                now[0] += KEPT_S + 1
                await asyncio.sleep(1)

    assert first == kept == "n1"


def test_a_seed_is_read_as_it_was_written_and_a_mistake_is_found() -> None:
    issuer = Issuer.new()
    assert issuer.seed.startswith("SA")
    assert issuer.public.startswith("A")
    assert Issuer.of(issuer.seed).public == issuer.public
    wrong = issuer.seed[:9] + ("A" if issuer.seed[9] != "A" else "B") + issuer.seed[10:]
    for text in (wrong, "SU", "", issuer.public):
        with pytest.raises(ValueError, match="nkey seed"):
            Issuer.of(text)


def test_a_key_that_helm_makes_is_an_issuer_and_another_one_is_not() -> None:
    key = Ed25519PrivateKey.generate()
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    text = key.private_bytes(*form).decode()
    other = X25519PrivateKey.generate().private_bytes(*form).decode()

    assert Issuer.of(text).public == Issuer(key.private_bytes_raw()).public
    for wrong in (other, text.replace("MC4", "AAA"), "-----"):
        with pytest.raises(ValueError, match="PEM"):
            Issuer.of(wrong)


class Counting:
    """Counts what reaches the API server."""

    def __init__(self, api: ApiServer) -> None:
        self.api, self.count = api, 0

    async def create(self, path: str, body: dict[str, Any]) -> bytes:
        self.count += 1
        return await self.api.create(path, body)


async def test_a_hostile_client_cannot_make_the_service_ask_the_api_server_at_its_will(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It shows one forged token again and again, then a new one each time; the agent of another
    node connects meanwhile."""
    async with api_server(tmp_path) as server, asking_broker(tmp_path) as broker:
        counting = Counting(server.api)
        reviews = TokenReviews(counting, EXPECTED, time.monotonic)  # type: ignore[arg-type]
        good = await agent_token(server, "n1")
        forged = f"{good[:-8]}AAAAAAAA"
        async with answering(broker, reviews):
            with pytest.raises(Unreachable):  # it tries several times
                await Connection.open(shown(tmp_path, broker, forged, "same"), "agent", 5)
            of_the_same = counting.count
            for number in range(100):
                with contextlib.suppress(NotAnAgent):
                    await reviews.node_of(f"{forged}{number}", "10.0.0.66")
            of_new_ones = counting.count - of_the_same
            admitted = await published(shown(tmp_path, broker, good, "n1"), "n1", "n1")

    assert of_the_same == 1
    assert of_new_ones <= AT_FIRST + 5
    assert admitted
    assert forged[:40] not in "".join(capfd.readouterr())


@pytest.mark.parametrize("said", ["admin", "n1.", "*", ">", "N1", "", "n1 n2"])
async def test_a_reviewer_that_lies_lets_clients_in_as_agents_and_as_nothing_else(
    said: str, tmp_path: Path
) -> None:
    """A holder of the credential of `joulie callout` names any node; the signer signs no more."""

    async def lying(_: bytes) -> bytes:
        return msgspec.json.encode(Reviewed(node=said))

    async with (
        asking_broker(tmp_path) as broker,
        signing(broker),
        connected_as(broker, REVIEWER) as connection,
        replying(connection, REVIEW, lying),
    ):
        address = shown(tmp_path, broker, "a.b.c", said if said == "admin" else "n1")
        if said != "admin":
            with pytest.raises(Unreachable):
                await Connection.open(address, "thief", 3)
            return
        thief = await Connection.open(address, "thief", 5)
        refused = [
            await is_denied(thief, subject)
            for subject in ("$JS.API.STREAM.LIST", "joulie.heads.c", "$SYS.REQ.SERVER.PING")
        ]
        await thief.close()

    assert refused == [True, True, True]


async def is_denied(connection: Connection, subject: str) -> bool:
    try:
        await connection.request(subject, b"", None, 2)
    except BrokerRefused as error:
        return error.code == 403
    return False


async def test_the_reviewer_neither_hears_the_broker_nor_answers_it(tmp_path: Path) -> None:
    heard = list[bytes]()

    async def listen(message: Msg) -> None:
        heard.append(message.data)

    async with asking_broker(tmp_path) as broker, connected_as(broker, REVIEWER) as connection:
        for subject in ("$SYS._INBOX.x", REVIEW, "joulie.heads.c"):
            with pytest.raises(BrokerRefused):
                await connection.request(subject, b"", None, 2)
        with contextlib.suppress(BrokerRefused):  # the denial, which comes later
            async with connection.subscribed(ASKS, listen):
                client = shown(tmp_path, broker, "a.b.c", "n1")
                with pytest.raises(Unreachable):
                    await Connection.open(client, "agent", 3)

    assert heard == []


async def test_without_a_reviewer_no_agent_connects_and_the_signer_says_why(
    tmp_path: Path,
) -> None:
    async with asking_broker(tmp_path) as broker, signing(broker):
        with capture_logs() as logs, pytest.raises(Unreachable):
            await Connection.open(shown(tmp_path, broker, "a.b.c", "n1"), "agent", 3)

    refused = {each["why"] for each in logs if each["event"] == "client_refused"}
    assert refused == {"its token was not reviewed: no `joulie callout` is connected"}
