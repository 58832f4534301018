"""`joulie callout`: says which node a client is the agent of, by the token that it showed."""

import asyncio

import msgspec

from joulie_bus.broker.answering import answering
from joulie_bus.broker.callout import REVIEW
from joulie_bus.broker.signer import Reviewed, Shown
from joulie_bus.errors import KubernetesRefused
from joulie_bus.jetstream.connection import Connection
from joulie_operator.identity.token_reviews import NotAnAgent, TokenReviews
from joulie_operator.kube.api_client import ApiUnreachable

_read = msgspec.json.Decoder(Shown).decode


class Callout:
    def __init__(self, connection: Connection, reviews: TokenReviews) -> None:
        self._connection = connection
        self._reviews = reviews

    async def run(self) -> None:
        """Runs until cancelled. Each question is for one of several replicas."""
        async with answering(self._connection, REVIEW, self._answer, group="reviewers"):
            await asyncio.Event().wait()

    async def _answer(self, data: bytes) -> bytes:
        return msgspec.json.encode(await self._reviewed(_read(data)))

    async def _reviewed(self, shown: Shown) -> Reviewed:
        try:
            return Reviewed(node=await self._reviews.node_of(shown.token, shown.address))
        except NotAnAgent as error:
            return Reviewed(why=str(error))
        except (KubernetesRefused, *ApiUnreachable) as error:
            return Reviewed(why=f"the API server did not review its token: {error}")
