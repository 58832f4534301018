"""The Kubernetes API server: lists, watches and writes of raw bytes.

The client library provides credentials, TLS and their refresh. Its models are not used, because
decoding a list of 150,000 pods into them takes minutes and gigabytes.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config

from joulie_bus.core.kube_names import path_segment
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import KubernetesRefused, SettingsError
from joulie_operator.resources.custom_resources import MANAGER

PAGE = 500
WATCH_S = 300  # the server ends a watch after this time; the next one resumes at its version
LIST_TIMEOUT_S = 60
STALL_TIMEOUT_S = 30.0  # longest pause between initial events; then the list is read in pages
# The server sends a bookmark each minute, also if nothing changes. A watch without data for longer
# is dead, whatever the connection looks like.
WATCH_SILENCE_S = 75.0
WRITE_TIMEOUT_S = 10
APPLY = "application/apply-patch+yaml"
MERGE = "application/strategic-merge-patch+json"
JSON, YAML = "application/json", "application/yaml"

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE, TOO_MANY = 401, 403, 404, 409, 410, 429
_SUCCESS = frozenset({200, 201, 202})

Query = Mapping[str, str]
SEND_INITIAL_EVENTS: Query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
# What a call raises while the server is unreachable or broken.
ApiUnreachable = (aiohttp.ClientError, TimeoutError, OSError)


def object_path(kind: str, name: str, part: str = "") -> str:
    """The path of an object, or of a subresource such as its status. Raises BadName."""
    return "/".join(filter(None, (kind, path_segment(name), part)))


class InitialListStalled(TimeoutError):
    """The server stopped sending initial events before the list was complete."""


class WatchSilent(TimeoutError):
    """Neither events nor bookmarks: what happens in the cluster is not known."""


class WatchEmpty(ConnectionError):
    """The server ended the watch at once, before the first event or bookmark."""


class ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "more": "continue"}):
    resource_version: str = ""
    more: str = ""


class RawList(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Event(NamedTuple):
    """One event of a watch."""

    type: str
    object: msgspec.Raw
    version: str
    ends_list: bool = False  # the bookmark after the last initial event


class ApiStatus(msgspec.Struct):
    """A Kubernetes Status, as a response body or as the object of an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    detail: str = ""  # of a Service behind the server, which refused instead (RFC 9457)


class BookmarkAnnotations(msgspec.Struct, rename={"end": "k8s.io/initial-events-end"}):
    end: str = ""


class VersionMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class BookmarkMeta(VersionMeta):
    annotations: BookmarkAnnotations | None = None


class Versioned(msgspec.Struct):
    metadata: VersionMeta


class Bookmark(msgspec.Struct):
    metadata: BookmarkMeta


class Page(NamedTuple):
    """One page of a list."""

    items: list[msgspec.Raw]
    version: str  # the resource version of the whole list


class Fetched(NamedTuple):
    headers: Mapping[str, str]
    body: bytes


_read_list = msgspec.json.Decoder(RawList).decode
_read_event = msgspec.json.Decoder(RawEvent).decode
_read_status = msgspec.json.Decoder(ApiStatus).decode
_read_version = msgspec.json.Decoder(Versioned).decode
_read_bookmark = msgspec.json.Decoder(Bookmark).decode


def _on_one_line(error: Exception) -> str:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return " ".join((why or type(error).__name__).split())


class ApiServer:
    """A client of the Kubernetes API server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    @contextlib.asynccontextmanager
    async def of(
        cls, kubeconfig: Path | None, context: str | None = None
    ) -> AsyncGenerator["ApiServer", None]:
        """Connects by a kubeconfig; without one, by the service account of the pod."""
        configuration = Configuration()
        try:
            if kubeconfig is not None:
                kubeconfig.read_bytes()  # the library reports a missing file as an empty one
                await load_kube_config(  # type: ignore[no-untyped-call]
                    str(kubeconfig), context=context, client_configuration=configuration
                )
            else:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except Exception as error:  # the library raises whatever the content makes it raise
            named, why = str(kubeconfig or "in-cluster"), _on_one_line(error)
            raise SettingsError([f"KUBECONFIG={named!r} cannot be used: {why}"]) from error
        # The session would read the environment and ~/.netrc again for each request.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or proxy_for(configuration.host)
        async with ApiClient(configuration) as client:
            yield cls(client)

    async def pages(self, path: str, query: Query | None = None) -> AsyncIterator[Page]:
        """All objects at one resource version, page by page, to bound memory."""
        more = ""
        while True:
            params = {**(query or {}), "limit": str(PAGE)} | ({"continue": more} if more else {})
            page = _read_list(await self._get(path, params))
            yield Page(page.items or [], page.metadata.resource_version)
            more = page.metadata.more
            if not more:
                return

    async def watch(
        self, path: str, version: str, query: Query | None = None
    ) -> AsyncGenerator[list[Event], None]:
        """Events after `version`, in batches as they arrive, until the server ends the watch.

        Without a version, initial events come first, up to an event that `ends_list`. The first
        batch is empty: the server has accepted the request.
        """
        start = {"resourceVersion": version} if version else SEND_INITIAL_EVENTS
        params = {
            **(query or {}),
            **start,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(WATCH_S * random.uniform(0.8, 1.2))),  # spreads reconnects
        }
        async with asyncio.timeout(LIST_TIMEOUT_S):
            response = await self._request("GET", path, params, timeout_s=WATCH_S * 1.3)
        is_listed = bool(version)
        try:
            yield []
            rest = b""
            while chunk := await _read(response, is_listed=is_listed):
                *lines, rest = (rest + chunk).split(b"\n")
                events = [_event(path, line) for line in lines if line.strip()]
                is_listed = is_listed or any(event.ends_list for event in events)
                if events:
                    yield events
        finally:
            response.close()

    async def get(self, path: str) -> bytes | None:
        """None if the object does not exist."""
        try:
            return await self._get(path, {})
        except KubernetesRefused as error:
            if error.code == NOT_FOUND:
                return None
            raise

    async def fetch(
        self,
        path: str,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = WRITE_TIMEOUT_S,
    ) -> Fetched:
        """The reply to a GET with its headers; `headers` are sent besides the usual ones."""
        response = await self._request("GET", path, query or {}, timeout_s, headers=headers)
        async with response:
            return Fetched(response.headers, await response.read())

    async def post(
        self,
        path: str,
        query: Query,
        text: str,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> bytes:
        """The reply to a POST of YAML, such as to a program behind a Service."""
        content = text, YAML
        response = await self._request("POST", path, query, timeout_s, content, headers)
        async with response:
            reply: bytes = await response.read()
            return reply

    async def apply(
        self, path: str, body: Mapping[str, Any], *, force: bool = True, manager: str = MANAGER
    ) -> bytes:
        """Server-side apply: fields that are no longer in `body` are removed.

        With `force`, values of other managers are overwritten; without it, they are a conflict.
        """
        query = {"fieldManager": manager, "force": str(force).lower()}
        return await self._send("PATCH", path, query, body, APPLY)

    async def merge(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Strategic merge patch: items of a list are found by their name; others stay."""
        return await self._send("PATCH", path, {"fieldManager": MANAGER}, body, MERGE)

    async def create(self, path: str, body: Mapping[str, Any]) -> bytes:
        return await self._send("POST", path, {"fieldManager": MANAGER}, body, JSON)

    async def replace(self, path: str, body: Mapping[str, Any]) -> bytes:
        return await self._send("PUT", path, {"fieldManager": MANAGER}, body, JSON)

    async def delete(self, path: str) -> None:
        """Succeeds if the object is gone already."""
        try:
            await self._send("DELETE", path, {}, None, JSON)
        except KubernetesRefused as error:
            if error.code != NOT_FOUND:
                raise

    async def _get(self, path: str, query: Query) -> bytes:
        response = await self._request("GET", path, query, LIST_TIMEOUT_S)
        async with response:
            body: bytes = await response.read()
            return body

    async def _send(
        self, method: str, path: str, query: Query, body: Mapping[str, Any] | None, what: str
    ) -> bytes:
        response = await self._request(method, path, query, WRITE_TIMEOUT_S, (body, what))
        async with response:
            answer: bytes = await response.read()
            return answer

    async def _request(
        self,
        method: str,
        path: str,
        query: Query,
        timeout_s: float,
        content: tuple[Mapping[str, Any] | str | None, str] = (None, JSON),
        headers: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        sent = {"Accept": JSON, "Content-Type": content[1], **(headers or {})}
        _, url, all_headers, *_ = await self._client.param_serialize(
            method,
            path,
            header_params=sent,
            auth_settings=["BearerToken"],
        )
        if query:
            url = f"{url}?{urlencode(query)}"
        answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
            method, url, headers=all_headers, body=content[0], _request_timeout=timeout_s
        )
        response: aiohttp.ClientResponse = answer.response
        if response.status not in _SUCCESS:
            async with response:
                retry_after = response.headers.get("Retry-After", "")
                body = await response.read()
            raise _refused(path, body, response.status, retry_after)
        return response


def proxy_for(url: str) -> str | None:
    """The proxy of the environment: HTTPS_PROXY and NO_PROXY."""
    server = urlsplit(url)
    if proxy_bypass(server.hostname or ""):
        return None
    return getproxies_environment().get(server.scheme)


async def _read(response: aiohttp.ClientResponse, *, is_listed: bool) -> bytes:
    """Before the end of the initial events a pause is shorter than between bookmarks."""
    longest_s = WATCH_SILENCE_S if is_listed else STALL_TIMEOUT_S
    timeout = asyncio.timeout(longest_s)
    try:
        async with timeout:
            chunk: bytes = await response.content.readany()
            return chunk
    except TimeoutError as error:
        if not timeout.expired():
            raise
        why = f"no data for {longest_s:g} s"
        raise (
            WatchSilent(f"{why}, not even a bookmark") if is_listed else InitialListStalled(why)
        ) from error


def _event(path: str, line: bytes) -> Event:
    event = _read_event(line)
    if event.type == "ERROR":
        raise _refused(path, event.object)
    if event.type == "BOOKMARK":
        meta = _read_bookmark(event.object).metadata
        ends_list = meta.annotations is not None and meta.annotations.end == "true"
        return Event(event.type, event.object, meta.resource_version, ends_list)
    version = _read_version(event.object).metadata.resource_version
    return Event(event.type, event.object, version)


def _refused(
    path: str, body: bytes | msgspec.Raw, status: int = 0, retry_after: str = ""
) -> KubernetesRefused:
    """Not every error body is a Status: for an unknown resource it is plain text."""
    try:
        problem = _read_status(body)
    except UNDECODABLE:
        problem = ApiStatus(message=bytes(body)[:200].decode(errors="replace").strip())
    code = problem.code or status
    retry_after_s = float(retry_after) if retry_after.isdecimal() else 0.0
    why = problem.message or problem.reason or problem.detail
    return KubernetesRefused(path, code, why, retry_after_s, by_service=bool(problem.detail))
