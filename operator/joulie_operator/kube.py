"""The Kubernetes API server, by lists and watches of raw bytes. Nothing is written to it here.

The client library brings credentials, TLS and their refresh; its models are not used, because
decoding a list of 150,000 pods into them takes minutes and gigabytes.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import msgspec
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from joulie_bus.errors import KubernetesRefused, SettingsError

PAGE = 500
WATCH_S = 300  # the server ends a watch after so long, and it is opened again from where it was
LIST_TIMEOUT_S = 60
GONE = 410


class ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "more": "continue"}):
    resource_version: str = ""
    more: str = ""


class RawList(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Problem(msgspec.Struct):
    """Kubernetes' Status, as an answer or as the object of an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""


class VersionMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class Versioned(msgspec.Struct):
    metadata: VersionMeta


_read_list = msgspec.json.Decoder(RawList).decode
_read_event = msgspec.json.Decoder(RawEvent).decode
_read_problem = msgspec.json.Decoder(Problem).decode
_read_version = msgspec.json.Decoder(Versioned).decode


class ApiServer:
    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, kubeconfig: Path | None) -> AsyncGenerator["ApiServer", None]:
        """From outside by a kubeconfig; without one, as a pod with its service account."""
        configuration = Configuration()
        try:
            if kubeconfig is not None:
                await load_kube_config(str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError, ValueError) as error:
            named = kubeconfig or "in-cluster"
            raise SettingsError([f"KUBECONFIG={str(named)!r}: {error}"]) from error
        async with ApiClient(configuration) as client:
            yield cls(client)

    async def list(self, path: str) -> tuple[list[msgspec.Raw], str]:
        """All objects of one moment, page by page, and the version of that moment."""
        items: list[msgspec.Raw] = []
        more = ""
        while True:
            query = {"limit": str(PAGE)} | ({"continue": more} if more else {})
            page = _read_list(await self._get(path, query))
            items.extend(page.items or [])
            more = page.metadata.more
            if not more:
                return items, page.metadata.resource_version

    async def watch(self, path: str, version: str) -> AsyncIterator[tuple[RawEvent, str]]:
        """What happens after `version`, each with its own. Ends when the server ends it."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
            "resourceVersion": version,
        }
        response = await self._request(path, query, timeout_s=WATCH_S + 30)
        try:
            while line := await response.content.readline():
                event = _read_event(line)
                if event.type == "ERROR":
                    raise _refused(path, event.object)
                yield event, _read_version(event.object).metadata.resource_version
        finally:
            response.close()

    async def _get(self, path: str, query: dict[str, str]) -> bytes:
        response = await self._request(path, query, LIST_TIMEOUT_S)
        async with response:
            body: bytes = await response.read()
            return body

    async def _request(self, path: str, query: dict[str, str], timeout_s: float):  # type: ignore[no-untyped-def]
        method, url, headers, *_ = await self._client.param_serialize(
            "GET",
            path,
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
            method, f"{url}?{urlencode(query)}", headers=headers, _request_timeout=timeout_s
        )
        if answer.status != 200:
            async with answer.response:
                raise _refused(path, await answer.response.read(), answer.status)
        return answer.response


def _refused(path: str, body: bytes | msgspec.Raw, status: int = 0) -> KubernetesRefused:
    """Not every refusal is a Status: a kind that is not installed is plain text."""
    try:
        problem = _read_problem(body)
    except msgspec.DecodeError:
        problem = Problem(message=bytes(body)[:200].decode(errors="replace").strip())
    return KubernetesRefused(path, problem.code or status, problem.message or problem.reason)
