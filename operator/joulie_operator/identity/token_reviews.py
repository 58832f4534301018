"""Asks the API server whose token it is: TokenReview."""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from joulie_operator.kube.api_client import ApiServer

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
NODE_NAME = "authentication.kubernetes.io/node-name"
KEPT_S = 300.0  # so long a token that was good is good without the API server
MOST_KEPT = 20_000


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
    """Good answers are kept for some minutes: all agents connect at once when a broker is back."""

    def __init__(self, api: ApiServer, expected: Expected, clock: Callable[[], float]) -> None:
        self._api = api
        self._expected = expected
        self._clock = clock
        self._kept: dict[bytes, tuple[str, float]] = {}

    async def node_of(self, token: str) -> str:
        """The node of the pod that the token is bound to. Raises NotAnAgent, KubernetesRefused and
        what a call to the API server raises."""
        if not token:
            raise NotAnAgent("it showed no token")
        key, now = hashlib.sha256(token.encode()).digest(), self._clock()
        node, until = self._kept.get(key, ("", 0.0))
        if node and now < until:
            return node
        node = node_in(await self._reviewed(token), self._expected)
        while len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept.pop(key, None)
        self._kept[key] = node, now + KEPT_S
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
