"""Asks the API server whose token it is: TokenReview."""

import hashlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from joulie_operator.identity.accepted import Accepted, ends_at
from joulie_operator.identity.refused import Refused
from joulie_operator.kube.api_client import ApiServer

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
LONGEST = 16_384  # characters of a token; those of pods have a thousand
NODE_NAME = "authentication.kubernetes.io/node-name"


class NotAnAgent(Exception):
    """The token is none of an agent's pod, with the reason."""


class _User(msgspec.Struct):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] = []
    error: str = ""


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class Expected(NamedTuple):
    """Whose tokens count."""

    account: str  # system:serviceaccount:NAMESPACE:NAME
    audience: str


class TokenReviews:
    """Answers are kept for a while, by the hash of the token: no client can make the service ask
    the API server as often as it likes."""

    def __init__(
        self,
        api: ApiServer,
        expected: Expected,
        clock: Callable[[], float],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._expected = expected
        self._clock = clock
        self._now = now
        self._accepted = Accepted()
        self._refused = Refused()

    async def node_of(self, token: str, address: str) -> str:
        """The node of the pod that the token is bound to; `address` is that of the client. Raises
        NotAnAgent, KubernetesRefused and what a call to the API server raises."""
        if not token:
            raise NotAnAgent("it showed no token")
        if len(token) > LONGEST:
            raise NotAnAgent(f"its token is longer than {LONGEST} characters")
        key, now = hashlib.sha256(token.encode()).digest(), self._clock()
        if node := self._accepted.node(key, now):
            return node
        if why := self._refused.why(key, address, now):
            raise NotAnAgent(why)
        try:
            node = node_in(await self._reviewed(token), self._expected)
        except NotAnAgent as error:
            self._refused.note(key, address, str(error), now)
            raise
        self._accepted.note(key, node, now, ends_at(token) - self._now())
        return node

    async def _reviewed(self, token: str) -> _Status:
        spec = {"token": token, "audiences": [self._expected.audience]}
        body: dict[str, Any] = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": spec,
        }
        return msgspec.json.decode(await self._api.create(REVIEWS, body), type=_Review).status


def node_in(status: _Status, expected: Expected) -> str:
    if not status.authenticated:
        raise NotAnAgent(f"the API server does not know its token: {status.error or 'no reason'}")
    if expected.audience not in status.audiences:
        raise NotAnAgent(f"its token is not for {expected.audience}")
    if status.user.username != expected.account:
        raise NotAnAgent(f"it is {status.user.username}, not {expected.account}")
    nodes = status.user.extra.get(NODE_NAME, [])
    if len(nodes) != 1 or not nodes[0]:
        raise NotAnAgent("its token names no node; tokens of pods do from Kubernetes 1.32 on")
    return nodes[0]
