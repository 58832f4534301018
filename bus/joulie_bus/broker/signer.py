"""Answers the broker's auth callout: lets agents in that another service has recognized.

The key that signs can make any user of any account. So this program has no credential but that key
and its own user at the broker, speaks with nothing but the broker, and signs one thing: the rights
of the agent of one node. A client's token is passed on and not looked at.
"""

import asyncio
import time

import msgspec

from joulie_bus.broker.answering import answering
from joulie_bus.broker.callout import (
    ASKS,
    REVIEW,
    Admitted,
    Asked,
    Issuer,
    admitting,
    asked_by,
    refusing,
)
from joulie_bus.core.kube_names import is_subdomain
from joulie_bus.errors import BrokerRefused, BusError
from joulie_bus.jetstream.connection import NO_RESPONDERS, Connection
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.accounts import account_of
from joulie_bus.streams.roles import Role, agent_grant

CONNECTED_S = 3600  # then the broker ends the connection, and the agent shows its newest token
REVIEW_S = 12.0  # the broker waits for PATIENCE_S
log = get_logger("signer")


class Shown(msgspec.Struct, frozen=True):
    """What a client showed: the question to the service that reviews tokens."""

    token: str
    address: str


class Reviewed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer: the node of the agent, or why there is none."""

    node: str = ""
    why: str = ""


_read = msgspec.json.Decoder(Reviewed).decode


class Signer:
    def __init__(self, connection: Connection, issuer: Issuer) -> None:
        self._connection = connection
        self._issuer = issuer

    async def run(self) -> None:
        """Runs until cancelled."""
        async with answering(self._connection, ASKS, self._answer):
            await asyncio.Event().wait()

    async def _answer(self, data: bytes) -> bytes:
        asked = asked_by(data)
        found, now_s = await self._reviewed(asked), int(time.time())
        why = found.why or ("" if is_subdomain(found.node) else "its review names no node")
        if why:
            log.warning("client_refused", client=asked.name, why=why)
            return refusing(self._issuer, asked, why, now_s)
        agent, until_s = account_of(Role.AGENT), now_s + CONNECTED_S
        admitted = Admitted(found.node, agent, agent_grant(found.node), until_s)
        return admitting(self._issuer, asked, admitted, now_s)

    async def _reviewed(self, asked: Asked) -> Reviewed:
        question = msgspec.json.encode(Shown(asked.token, asked.address))
        try:
            return _read((await self._connection.request(REVIEW, question, None, REVIEW_S)).data)
        except BusError as error:
            is_alone = isinstance(error, BrokerRefused) and error.code == NO_RESPONDERS
            why = "no `joulie callout` is connected" if is_alone else str(error)
            return Reviewed(why=f"its token was not reviewed: {why}")
        except msgspec.DecodeError as error:
            return Reviewed(why=f"the answer of `joulie callout` cannot be read: {error}")
