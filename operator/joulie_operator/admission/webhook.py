"""The mutating webhook, over TLS. It refuses no pod: one that it cannot read stays as it is."""

import asyncio
import base64
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from joulie_bus.core.http_head import HeadRule
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import SettingsError
from joulie_bus.http.certificates import Certificates
from joulie_bus.http.exchange import Body, Handler, Limits, Reply, Request, refusal
from joulie_bus.http.server import listening
from joulie_bus.http.tally import ADMISSION
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.settings import HostPort
from joulie_bus.runtime.system_errors import reason_of
from joulie_bus.runtime.vital_tasks import VitalTask, living, why_not_ready
from joulie_operator.desired.pod_patch import Patch, pod_patch
from joulie_operator.facts.facts_from_objects import Namespace, class_of
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.kube.object_cache import ObjectCache
from joulie_operator.observe.resource_watcher import Watcher, decoder_of

NAMESPACES = "/api/v1/namespaces"
MIB = 1024 * 1024
# An API server waits 2 s for an answer, and keeps a few connections. A review has two pods of
# 1.5 MiB, and the objects of the request.
LIMITS = Limits(
    body=8 * MIB, buffers=32 * MIB, connections=128, head_s=2.5, body_s=2.5, keep_alive_s=120.0
)
RULE = HeadRule(names=None, probes=frozenset({"/readyz"}))
_TEXT = b"text/plain; charset=utf-8"
log = get_logger("admission")


class Serving(NamedTuple):
    """Where and as what the webhook answers."""

    at: HostPort
    cert: Path
    key: Path
    scheduler: str
    client_ca: Path | None = None  # of the API server's client certificate, if it sends one
    client_names: frozenset[str] = frozenset()
    limits: Limits = LIMITS


class AdmissionRequest(msgspec.Struct):
    """The part of an AdmissionRequest that Joulie reads."""

    uid: str
    namespace: str = ""
    object: dict[str, Any] = {}


class Review(msgspec.Struct):
    request: AdmissionRequest


_read = msgspec.json.Decoder(Review).decode


def answer(uid: str, patch: Patch) -> dict[str, Any]:
    """The AdmissionReview that allows the pod, with its patch."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


async def serve(api: ApiServer, serving: Serving) -> None:
    """Runs until cancelled."""
    namespaces = ObjectCache[Namespace](lambda namespace: namespace.metadata)
    watcher = Watcher(api, NAMESPACES, decoder_of(Namespace), namespaces)
    certificates, handler = _certificates(serving), _handler(namespaces, serving.scheduler)
    async with (
        living(VitalTask.WATCH, watcher.run),
        listening(handler, serving.at, serving.limits, certificates, RULE, ADMISSION),
    ):
        log.info("serving", at=f"https://{serving.at}")
        await asyncio.Event().wait()


def _patched(
    namespaces: ObjectCache[Namespace], scheduler: str, request: AdmissionRequest
) -> Patch:
    found = namespaces.get(request.namespace)
    try:
        patch = pod_patch(request.object, class_of(found) if found else None, scheduler)
    except UNDECODABLE as error:
        log.warning("pod_unreadable", namespace=request.namespace, error=str(error))
        metrics.ADMITTED.labels(result="unreadable").inc()
        return []
    metrics.ADMITTED.labels(result="changed" if patch else "unchanged").inc()
    return patch


def _handler(namespaces: ObjectCache[Namespace], scheduler: str) -> Handler:
    def handle(request: Request) -> Reply:
        match request.method, request.path:
            case "POST", "/mutate":
                return _mutated(namespaces, scheduler, request.body)
            case "GET" | "HEAD", "/readyz":
                is_complete = namespaces.complete.is_set()
                why = why_not_ready() if is_complete else "the namespaces are not listed yet"
                return Reply(503 if why else 200, f"{why or 'ok'}\n".encode(), media=_TEXT)
            case _:
                return refusal(404, "only POST /mutate and GET /readyz are answered")

    return handle


def _mutated(namespaces: ObjectCache[Namespace], scheduler: str, body: Body) -> Reply:
    try:
        asked = _read(body).request
    except UNDECODABLE as error:
        return refusal(400, f"not an AdmissionReview: {error}")
    patch = _patched(namespaces, scheduler, asked)
    return Reply(200, msgspec.json.encode(answer(asked.uid, patch)))


def _certificates(serving: Serving) -> Certificates:
    """Reviews without a certificate of the authority are refused; probes have none."""
    found = Certificates(serving.cert, serving.key, serving.client_ca, serving.client_names)
    try:
        found.context()
    except OSError as error:
        authority = f" --client-ca={serving.client_ca}" if serving.client_ca else ""
        files = f"--cert={serving.cert} --key={serving.key}{authority}"
        raise SettingsError([f"{files}: {reason_of(error)}"]) from error
    return found
