"""The console, through the API server's proxy of Services.

The API server removes `Authorization` before it forwards a request, so the token of the console
travels in a header of its own. It is in a Secret: reading it is the right that lets a user in.
"""

import base64
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from joulie_answers.schema.requests import TOKEN_HEADER
from joulie_bus.errors import ConsoleRefused, ConsoleUnavailable, KubernetesRefused
from joulie_operator.kube.api_client import NOT_FOUND, ApiServer

SERVICE, PORT = "joulie-console", "http"
SECRET = "joulie-console-token"
NAMESPACE = "joulie-system"


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


class Place(NamedTuple):
    """Where the console is in a cluster."""

    namespace: str = NAMESPACE
    secret: str = SECRET

    def path(self, below: str) -> str:
        services = f"/api/v1/namespaces/{quote(self.namespace, safe='')}/services"
        return f"{services}/{SERVICE}:{PORT}/proxy{below}"

    def secret_path(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/secrets/{self.secret}"


class ProxyConnection:
    """A console behind an API server. `ProxyConnection.of` reads the token first."""

    def __init__(self, api: ApiServer, place: Place, token: str) -> None:
        self._api = api
        self._place = place
        self.url = f"{place.namespace}/{SERVICE}"
        self._headers = {TOKEN_HEADER: token}

    @classmethod
    async def of(cls, api: ApiServer, place: Place) -> "ProxyConnection":
        path = place.secret_path()
        try:
            found = (await api.fetch(path)).body
        except KubernetesRefused as error:
            raise ConsoleUnavailable(place.namespace, str(error), _hint(error)) from error
        data = msgspec.json.decode(found, type=_Secret).data
        if "token" not in data:
            why = f"the Secret {place.secret} has no key `token`"
            raise ConsoleUnavailable(place.namespace, why, "Name another one with --token-secret.")
        return cls(api, place, base64.b64decode(data["token"]).decode().strip())

    async def json(
        self,
        path: str,
        parameters: Mapping[str, str],
        timeout_s: float,
        body: str | None = None,
        /,
    ) -> bytes:
        """The reply of a path such as /v1/plans; with a body, to a POST."""
        place, headers = self._place.path(path), self._headers
        try:
            if body is None:
                return (await self._api.fetch(place, parameters, headers, timeout_s)).body
            return await self._api.post(place, parameters, body, headers, timeout_s)
        except KubernetesRefused as error:
            if error.by_service:
                raise ConsoleRefused(self.url, path, error.code, error.why) from error
            raise ConsoleUnavailable(self._place.namespace, str(error), _hint(error)) from error


def _hint(error: KubernetesRefused) -> str:
    if error.code == NOT_FOUND:
        return "Is Joulie installed there, with the console (console.enabled)? Give --namespace."
    if error.code == 403:
        return "Bind the ClusterRole joulie-viewer to your user in that namespace."
    return "Does a pod of the console run there?"
