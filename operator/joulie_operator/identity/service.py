"""`joulie callout`: tells the broker which node a client is the agent of."""

import asyncio
import time

from joulie_bus.broker.answering import answering
from joulie_bus.broker.callout import ASKS, Admitted, Asked, Issuer, admitting, asked_by, refusing
from joulie_bus.errors import KubernetesRefused
from joulie_bus.jetstream.connection import Connection
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.accounts import account_of
from joulie_bus.streams.roles import Role, agent_grant
from joulie_operator.identity.token_reviews import NotAnAgent, TokenReviews
from joulie_operator.kube.api_client import ApiUnreachable

CONNECTED_S = 3600  # then the broker ends the connection, and the agent shows its newest token
log = get_logger("callout")


class Callout:
    def __init__(self, connection: Connection, issuer: Issuer, reviews: TokenReviews) -> None:
        self._connection = connection
        self._issuer = issuer
        self._reviews = reviews

    async def run(self) -> None:
        """Runs until cancelled."""
        async with answering(self._connection, ASKS, self._answer):
            await asyncio.Event().wait()

    async def _answer(self, data: bytes) -> bytes:
        return await self._decided(asked_by(data))

    async def _decided(self, asked: Asked) -> bytes:
        now_s = int(time.time())
        try:
            node = await self._reviews.node_of(asked.token, asked.address)
        except NotAnAgent as error:
            why = str(error)
        except (KubernetesRefused, *ApiUnreachable) as error:
            why = f"the API server did not review its token: {error}"
        else:
            admitted = Admitted(
                node, account_of(Role.AGENT), agent_grant(node), now_s + CONNECTED_S
            )
            return admitting(self._issuer, asked, admitted, now_s)
        log.warning("client_refused", client=asked.name, why=why)
        return refusing(self._issuer, asked, why, now_s)
