"""Binds pods at the Kubernetes API server, the only place where the extender calls it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from joulie_bus.core.kube_names import path_segment
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BadName, BadQuantity, SettingsError
from joulie_extender.binding.binder import BindRequest, BindResult, LookupFailed, PodLookup
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.gpu_request import ASSIGNED_CARDS
from joulie_projections.pods.kubernetes_pod import Pod

IN_CLUSTER = "in-cluster"
CALL_S = 2.0  # one call; `bind` has a deadline for all of them together
_FINE, _NOT_FOUND, _CONFLICT, _TOO_MANY, _BROKEN = range(200, 300), 404, 409, 429, 500
_UNANSWERED = (aiohttp.ClientError, TimeoutError, OSError)


class _Status(msgspec.Struct):
    """A Status of Kubernetes; not every refusal has one."""

    message: str = ""


class _Outcome(msgspec.Struct, rename="camel"):
    """The reply to a Binding: a Status, or the Binding itself from older servers."""

    class Metadata(msgspec.Struct, frozen=True):
        name: str = ""
        uid: str = ""

    class Target(msgspec.Struct, frozen=True):
        name: str = ""

    kind: str = ""
    api_version: str = ""
    status: str = ""
    metadata: Metadata = Metadata()
    target: Target = Target()


class _Reply(NamedTuple):
    status: int
    body: bytes


_read_pod = msgspec.json.Decoder(Pod).decode
_read_outcome = msgspec.json.Decoder(_Outcome).decode
_read_status = msgspec.json.Decoder(_Status).decode


class KubeBinder:
    def __init__(self, client: ApiClient, gpu_resources: tuple[str, ...] = GPU_RESOURCES) -> None:
        self._client = client
        self._gpus = gpu_resources

    @classmethod
    @contextlib.asynccontextmanager
    async def of(
        cls, where: str, gpu_resources: tuple[str, ...] = GPU_RESOURCES
    ) -> AsyncGenerator["KubeBinder", None]:
        """`in-cluster`, or the path of a kubeconfig."""
        configuration = Configuration()
        try:
            if where == IN_CLUSTER:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                path = str(Path(where))
                await load_kube_config(path, client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError, ValueError) as error:
            raise SettingsError([f"EXTENDER_BINDS={where!r}: {error}"]) from error
        async with ApiClient(configuration) as client:
            yield cls(client, gpu_resources)

    async def bind(self, request: BindRequest) -> BindResult:
        try:
            path = f"{_path_of(request.namespace, request.name)}/binding"
            reply = await self._call("POST", path, _binding(request))
        except _UNANSWERED as error:
            return BindResult("unclear", str(error) or type(error).__name__)
        except BadName as error:
            return BindResult("gone", str(error))
        if reply.status not in _FINE:
            return _result_of(reply)
        if _confirms(reply.body, request):
            return BindResult("made")
        why = f"a reply of code {reply.status} that says nothing of this Binding"
        return BindResult("unclear", why)

    async def find(self, namespace: str, name: str, uid: str) -> PodLookup:
        try:
            reply = await self._call("GET", _path_of(namespace, name))
        except _UNANSWERED as error:
            raise LookupFailed(str(error) or type(error).__name__) from error
        except BadName:
            return PodLookup("gone")  # no pod has such a name
        if reply.status == _NOT_FOUND:
            return PodLookup("gone")
        if reply.status not in _FINE:
            raise LookupFailed(_why(reply))
        try:
            return _found(_read_pod(reply.body), uid, self._gpus)
        except (*UNDECODABLE, BadQuantity) as error:
            raise LookupFailed(str(error)) from error

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> _Reply:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        _, url, headers, *_ = await self._client.param_serialize(
            method, path, header_params=headers, auth_settings=["BearerToken"]
        )
        async with asyncio.timeout(CALL_S):
            answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
                method, url, headers=headers, body=body, _request_timeout=CALL_S
            )
            async with answer.response as response:
                return _Reply(response.status, await response.read())


def _path_of(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}"


def _confirms(body: bytes, request: BindRequest) -> bool:
    """Whether this is the API server's reply to this Binding, and not just any 2xx response."""
    try:
        outcome = _read_outcome(body)
    except UNDECODABLE:
        return False
    if outcome.api_version != "v1":
        return False
    if outcome.kind == "Status":
        return outcome.status == "Success"
    of_this_pod = (outcome.metadata.name, outcome.target.name) == (request.name, request.node)
    return outcome.kind == "Binding" and of_this_pod and outcome.metadata.uid in ("", request.uid)


def _binding(request: BindRequest) -> dict[str, Any]:
    """Cards and node in one write: the API server merges these annotations as it sets the node."""
    notes = {ASSIGNED_CARDS: ",".join(request.cards)} if request.cards else {}
    metadata = {"name": request.name, "namespace": request.namespace, "uid": request.uid}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**metadata, "annotations": notes},
        "target": {"apiVersion": "v1", "kind": "Node", "name": request.node},
    }


def _result_of(reply: _Reply) -> BindResult:
    match reply.status:
        case 409:
            return BindResult("conflict", _why(reply))
        case 404:
            return BindResult("gone", _why(reply))
        case status if status == _TOO_MANY or status >= _BROKEN:
            return BindResult("unclear", _why(reply))
        case _:
            return BindResult("refused", _why(reply))


def _why(reply: _Reply) -> str:
    try:
        message = _read_status(reply.body).message
    except UNDECODABLE:
        message = reply.body[:200].decode(errors="replace").strip()
    return f"{message} (code {reply.status})"


def _found(pod: Pod, uid: str, gpus: tuple[str, ...]) -> PodLookup:
    if pod.metadata.uid != uid:
        return PodLookup("gone")
    ask, node = ask_of(pod, gpu_resources=gpus), pod.spec.node_name or ""
    phase = pod.status.phase if pod.status else None
    if phase in ("Succeeded", "Failed"):
        return PodLookup("finished", node, ask.gpu.given, ask)
    return PodLookup("bound" if node else "waiting", node, ask.gpu.given, ask)
