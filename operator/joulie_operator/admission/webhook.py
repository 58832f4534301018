"""The mutating webhook, over TLS. It refuses no pod: one that it cannot read stays as it is."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import PortTaken, SettingsError
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.settings import HostPort
from joulie_bus.runtime.vital_tasks import VitalTask, living, why_not_ready
from joulie_operator.admission.client_limits import ClientLimits, Limits
from joulie_operator.desired.pod_patch import Patch, pod_patch
from joulie_operator.facts.facts_from_objects import Namespace, class_of
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.kube.object_cache import ObjectCache
from joulie_operator.observe.resource_watcher import Watcher, decoder_of

NAMESPACES = "/api/v1/namespaces"
RELOAD_S = 30.0
log = get_logger("admission")


class Serving(NamedTuple):
    """Where and as what the webhook answers."""

    at: HostPort
    cert: Path
    key: Path
    scheduler: str
    client_ca: Path | None = None  # of the API server's client certificate, if it sends one
    client_names: frozenset[str] = frozenset()
    limits: Limits = Limits()


class Request(msgspec.Struct):
    """The part of an AdmissionRequest that Joulie reads."""

    uid: str
    namespace: str = ""
    object: dict[str, Any] = {}


class Review(msgspec.Struct):
    request: Request


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
    async with living(VitalTask.WATCH, watcher.run), _listening(namespaces, serving):
        log.info("serving", at=f"https://{serving.at}")
        await asyncio.Event().wait()


def _patched(namespaces: ObjectCache[Namespace], scheduler: str, request: Request) -> Patch:
    found = namespaces.get(request.namespace)
    try:
        patch = pod_patch(request.object, class_of(found) if found else None, scheduler)
    except UNDECODABLE as error:
        log.warning("pod_unreadable", namespace=request.namespace, error=str(error))
        metrics.ADMITTED.labels(result="unreadable").inc()
        return []
    metrics.ADMITTED.labels(result="changed" if patch else "unchanged").inc()
    return patch


@contextlib.asynccontextmanager
async def _listening(
    namespaces: ObjectCache[Namespace], serving: Serving
) -> AsyncGenerator[None, None]:
    async def mutate(request: web.Request) -> web.Response:
        try:
            asked = _read(await request.read()).request
        except UNDECODABLE as error:
            raise web.HTTPBadRequest(text=f"not an AdmissionReview: {error}\n") from error
        patch = _patched(namespaces, serving.scheduler, asked)
        return web.json_response(answer(asked.uid, patch))

    async def ready(_: web.Request) -> web.Response:
        is_complete = namespaces.complete.is_set()
        why = why_not_ready() if is_complete else "the namespaces are not listed yet"
        return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)

    clients = ClientLimits(
        serving.limits, None if serving.client_ca is None else serving.client_names
    )
    app = web.Application(client_max_size=serving.limits.body, middlewares=[clients.ends])
    app.add_routes([web.post("/mutate", clients.answering(mutate)), web.get("/readyz", ready)])
    runner = web.AppRunner(app, access_log=None)
    context = _context(serving)
    await runner.setup()
    try:
        async with (
            _bound(runner, clients, serving.at, context),
            living(VitalTask.CERTIFICATES, lambda: _reload(context, serving)),
        ):
            yield
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _bound(
    runner: web.AppRunner, clients: ClientLimits, at: HostPort, context: ssl.SSLContext
) -> AsyncGenerator[None, None]:
    http = runner.server
    assert http is not None
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: clients.guarded(http()),
            *at,
            ssl=context,
            ssl_handshake_timeout=clients.limits.request_s,
            reuse_address=True,
        )
    except OSError as error:
        raise PortTaken(str(at), error.strerror or str(error)) from error
    try:
        yield
    finally:
        server.close()


def _context(serving: Serving) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(serving.cert, serving.key)
    except OSError as error:
        raise SettingsError([f"--cert={serving.cert} --key={serving.key}: {error}"]) from error
    if serving.client_ca is not None:
        # Optional: the kubelet's probes have none. Reviews without one are refused.
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(serving.client_ca)
        except OSError as error:
            raise SettingsError([f"--client-ca={serving.client_ca}: {error}"]) from error
    return context


async def _reload(context: ssl.SSLContext, serving: Serving) -> None:
    """New connections get the certificate that the files hold now, as rotation replaces them."""
    seen = serving.cert.stat().st_mtime_ns
    while True:
        await asyncio.sleep(RELOAD_S)
        with contextlib.suppress(OSError):  # replaced just now: the next time
            if (now := serving.cert.stat().st_mtime_ns) != seen:
                context.load_cert_chain(serving.cert, serving.key)
                seen = now
