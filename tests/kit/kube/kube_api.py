"""A small kube-apiserver over HTTP, for tests. It responds as recorded in tests/data/kube-api.

It supports lists in pages, watches with bookmarks, server-side apply with field ownership, leases,
bindings, evictions and rights; and faults: injected errors, outages, slow and interrupted streams.
"""

import asyncio
import bisect
import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from aiohttp import web

from joulie_bus.runtime.ports import free_port
from kube_fields import Kind, Patch, Refused, Tree
from kube_objects import Objects
from kube_requests import (
    VERBS,
    Asked,
    Place,
    answered,
    body_of,
    check_watch,
    encode,
    forbidden,
    partial,
    place_of,
    selector_of,
    token_of,
    token_read,
    verb_of,
)
from kube_watch import Watch

ADMIN = "secret"  # the token of the administrator
SUCCESS: Tree = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
EXPIRED_LIST = "The resourceVersion for the provided list is too old."


# Support of sendInitialEvents: as in 1.34; with the feature gate off; as before 1.27, which ignores
# the parameter and does not mark the end; with an etcd that is too old.
InitialEvents = Literal["sent", "refused", "unknown", "unsupported"]
OLD_ETCD = "a watch stream was requested by the client but the required storage feature is disabled"


class Fault(NamedTuple):
    """An error response to requests that `to` selects, for the next `times` of them; with a body,
    that body as a success."""

    to: Callable[[Asked], bool]
    status: int = 500
    reason: str = "InternalError"
    headers: Mapping[str, str] = MappingProxyType({})
    times: int = 1
    body: bytes = b""


class ApiServer:
    """Serves inside of `async with server.listening():`; `server.objects` is its content."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.port = free_port()
        self.tls: ssl.SSLContext | None = None
        self.asked: list[Asked] = []
        self.used: set[tuple[str, str, str]] = set()  # rights
        self.users: dict[str, tuple[str, set[tuple[str, str, str]] | None]] = {
            ADMIN: ("admin", None)  # None: no limits
        }
        self.faults: list[Fault] = []
        self.slowness_s = 0.0
        self.bookmark_s = 60.0
        self.initial_events: InitialEvents = "sent"
        self.midway: Callable[[Watch], None] | None = (
            None  # called once, in the middle of initial events
        )
        self.watches: set[Watch] = set()
        self.most_at_once = 0
        self._now = 0
        self._bodies: dict[int, bytes] = {}
        self._kept: tuple[object, list[str], list[Tree]] | None = None

    # --- for tests ----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator["ApiServer", None]:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.2, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=self.tls).start()
        try:
            yield self
        finally:
            self.cut_watches()
            await runner.cleanup()

    def kubeconfig(self, directory: Path, token: str = ADMIN) -> Path:
        path = directory / f"kubeconfig-{token}"
        path.write_text(
            f"""
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{self.port}"}}}}]
users: [{{name: me, user: {{token: {token}}}}}]
"""
        )
        return path

    def kind(self, plural: str) -> Kind:
        return next(kind for kind in self.objects.kinds.values() if kind.plural == plural)

    def put(self, plural: str, body: Tree, namespace: str = "") -> Tree:
        """Creates or merges the object; removes the taint of new nodes."""
        kind, name = self.kind(plural), body["metadata"]["name"]
        if (namespace, name) in self.objects.table(kind):
            return self.objects.merge(kind, namespace, name, body)
        made = self.objects.create(kind, namespace, body)
        if plural == "nodes":
            return self.objects.merge(kind, "", name, {"spec": {"taints": None}})
        if kind.schema is not None and "status" in body:
            return self.objects.merge(kind, namespace, name, {"status": body["status"]})
        return made

    def delete(self, plural: str, name: str, namespace: str = "") -> None:
        self.objects.delete(self.kind(plural), namespace, name)

    def all(self, plural: str) -> dict[str, Tree]:
        kind = self.kind(plural)
        return {name: tree for (_, name), tree in sorted(self.objects.table(kind).items())}

    def install(self, definitions: Iterable[Tree]) -> None:
        for definition in definitions:
            self.put("customresourcedefinitions", definition)

    def silence_watches(self) -> None:
        """Open watches stay open and deliver nothing, as behind a proxy that lost its server."""
        for watch in self.watches:
            watch.is_silent = True

    def cut_watches(self) -> None:
        for watch in self.watches:
            watch.cut()

    def compact(self) -> None:
        """Compacts the history: watches from older versions get 410."""
        self.objects.compacted_to = self.objects.version

    def count(self, verb: str, resource: str) -> int:
        return sum(asked.verb == verb and asked.resource == resource for asked in self.asked)

    def writes(self) -> list[Asked]:
        """All writes but those of Leases, which are renewed all the time."""
        return [
            asked
            for asked in self.asked
            if asked.verb in VERBS.values() and asked.resource != "leases"
        ]

    # --- answering ----------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            return await self._answered(request)
        except Refused as refused:
            return answered(refused.body, refused.code)
        finally:
            self._now -= 1

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        if (of_itself := self._of_itself(request.path)) is not None:
            return of_itself
        place = place_of(request, self.objects)
        if place is None:
            return web.Response(
                status=404, body=b"404 page not found\n", content_type="text/plain", charset="utf-8"
            )
        asked = self._authorized(request, place)
        if self.slowness_s:
            await asyncio.sleep(self.slowness_s)
        if (fault := self._fault(asked)) is not None:
            if fault.body:
                return web.Response(body=fault.body, content_type="application/json")
            refused = Refused(fault.status, fault.reason, "injected fault")
            return answered(refused.body, fault.status, fault.headers)
        if asked.verb == "watch":
            return await self._watch(request, place)
        if asked.verb == "list":
            return self._list(request, place)
        return await self._one(request, place)

    def _of_itself(self, path: str) -> web.Response | None:
        if path == "/readyz":
            return web.Response(text="ok")
        if path == "/version":
            return answered({"major": "1", "minor": "34"}, 200)
        versions = self._versions_of(path.removeprefix("/apis/"))
        return answered({"kind": "APIGroup", "versions": versions}, 200) if versions else None

    def _versions_of(self, group: str) -> list[Tree]:
        found = {kind.version for kind in self.objects.kinds.values() if kind.group == group}
        return [{"version": version} for version in sorted(found)] if group else []

    def _fault(self, asked: Asked) -> Fault | None:
        for number, fault in enumerate(self.faults):
            if fault.to(asked):
                left = fault.times - 1
                self.faults[number : number + 1] = [fault._replace(times=left)] if left else []
                return fault
        return None

    def _authorized(self, request: web.Request, place: Place) -> Asked:
        asked = self._allowed(request, place, verb_of(request, place))
        self.asked.append(asked)
        return asked

    def _allowed(self, request: web.Request, place: Place, verb: str) -> Asked:
        """Checks rights; applying a missing object also requires the right to create it."""
        asked = Asked(
            verb,
            place.kind.group,
            place.kind.plural + (f"/{place.sub}" if place.sub else ""),
            place.name,
            version=request.query.get("resourceVersion", ""),
            more="continue" in request.query,
            initial="sendInitialEvents" in request.query,
        )
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token:
            raise forbidden(asked, place.kind, "system:anonymous")
        if token not in self.users:
            raise Refused(401, "Unauthorized", "Unauthorized")
        user, rights = self.users[token]
        if rights is not None and asked.right not in rights:
            raise forbidden(asked, place.kind, user)
        self.used.add(asked.right)
        return asked._replace(user=user)

    async def _one(self, request: web.Request, place: Place) -> web.StreamResponse:
        objects, kind = self.objects, place.kind
        match request.method:
            case "GET":
                return answered(objects.get(kind, place.namespace, place.name), 200)
            case "POST":
                return self._create(request, place, await body_of(request))
            case "PUT":
                return answered(objects.replace(kind, place.namespace, await body_of(request)), 200)
            case "DELETE":
                return answered(objects.delete(kind, place.namespace, place.name), 200)
            case _:
                return await self._patch(request, place)

    def _create(self, request: web.Request, place: Place, body: Tree) -> web.StreamResponse:
        if place.sub == "binding":
            self.objects.bind(place.namespace, place.name, body)
            return answered(SUCCESS, 201)
        if place.sub == "eviction":
            self.objects.evict(place.namespace, place.name, body)
            return answered(SUCCESS, 201)
        validation = request.query.get("fieldValidation", "Warn")
        made = self.objects.create(place.kind, place.namespace, body, validation)
        unknown = [key for key in body.get("spec", {}) if key not in made.get("spec", {})]
        warnings = ", ".join(f'299 - "unknown field \\"spec.{key}\\""' for key in unknown)
        return answered(made, 201, {"Warning": warnings} if unknown and place.kind.schema else {})

    async def _patch(self, request: web.Request, place: Place) -> web.StreamResponse:
        body, query = await body_of(request), request.query
        if place.sub == "resize":
            return answered(self.objects.resize(place.namespace, place.name, body), 200)
        if request.content_type != "application/apply-patch+yaml":
            return answered(self.objects.merge(place.kind, place.namespace, place.name, body), 200)
        if not query.get("fieldManager"):
            why = "Required value: is required for apply patch"
            cause = {"reason": "FieldValueRequired", "message": why, "field": "fieldManager"}
            details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]}
            message = f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {why}'
            raise Refused(422, "Invalid", message, details)
        patch = Patch(
            query["fieldManager"], query.get("force") == "true", "dryRun" in query, place.sub
        )
        if not place.sub and (place.namespace, place.name) not in self.objects.table(place.kind):
            self._allowed(request, place, "create")
        status, tree = self.objects.apply(place.kind, place.namespace, place.name, body, patch)
        return answered(tree, status)

    # --- lists and watches --------------------------------------------------------------------

    def _list(self, request: web.Request, place: Place) -> web.Response:
        query, objects = request.query, self.objects
        version, start = objects.version, ""
        if more := query.get("continue"):
            version, start = token_read(more)
            if version < objects.compacted_to:
                raise Refused(410, "Expired", EXPIRED_LIST)
        elif query.get("resourceVersionMatch") == "Exact":
            version = int(query["resourceVersion"])
            if version < objects.compacted_to:
                raise Refused(410, "Expired", EXPIRED_LIST)
        keys, chosen = self._chosen(request, place)
        first = bisect.bisect_right(keys, start)
        page = chosen[first:][: int(query.get("limit", 0)) or None]
        meta: Tree = {"resourceVersion": str(version)}
        if left := len(chosen) - first - len(page):
            meta["continue"] = token_of(version, keys[first + len(page) - 1])
            meta["remainingItemCount"] = left
        return self._listed(request, place.kind, page, meta)

    def _chosen(self, request: web.Request, place: Place) -> tuple[list[str], list[Tree]]:
        """The objects of a list, in order; kept for further pages."""
        query, rows = request.query, self.objects.table(place.kind)
        picks = (query.get("labelSelector"), query.get("fieldSelector"))
        asked = (place, *picks, self.objects.version)
        if self._kept is None or self._kept[0] != asked:
            fits = selector_of(query)
            chosen = {
                f"{namespace}/{name}": tree
                for (namespace, name), tree in sorted(rows.items())
                if place.namespace in ("", namespace) and fits(tree)
            }
            self._kept = (asked, list(chosen), list(chosen.values()))
        return self._kept[1], self._kept[2]

    def _listed(
        self, request: web.Request, kind: Kind, page: list[Tree], meta: Tree
    ) -> web.Response:
        name, api_version, show = f"{kind.kind}List", kind.api_version, self._item
        if "as=PartialObjectMetadataList" in request.headers.get("Accept", ""):
            name, api_version, show = "PartialObjectMetadataList", "meta.k8s.io/v1", partial
        head = {"kind": name, "apiVersion": api_version, "metadata": meta}
        items = b",".join(show(tree) for tree in page)
        body = encode(head)[:-1] + b',"items":[' + items + b"]}"
        return web.Response(body=body, content_type="application/json")

    def _item(self, tree: Tree) -> bytes:
        """Cached; built-in kinds do not repeat kind and apiVersion in a list."""
        version = int(tree["metadata"]["resourceVersion"])
        found = self._bodies.get(version)
        if found is None:
            built_in = "." not in tree["apiVersion"] or ".k8s.io" in tree["apiVersion"]
            hidden = ("kind", "apiVersion") if built_in else ()
            found = encode({key: value for key, value in tree.items() if key not in hidden})
            self._bodies[version] = found
        return found

    async def _watch(self, request: web.Request, place: Place) -> web.StreamResponse:
        query, kind = request.query, place.kind
        wanted = query.get("resourceVersion", "")
        if wanted and not wanted.isdecimal():
            message = (
                f'resourceVersion: Invalid value: "{wanted}": strconv.ParseUint: '
                f'parsing "{wanted}": invalid syntax'
            )
            raise Refused(500, "", message)
        if self.initial_events != "unknown":
            check_watch(query, knows_initial_events=self.initial_events != "refused")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        watch = Watch(
            self.objects, self.bookmark_s, kind, place.namespace, selector_of(query), response
        )
        self.watches.add(watch)
        with contextlib.suppress(ConnectionResetError, ConnectionAbortedError, TimeoutError):
            await self._start(watch, query)
            async with asyncio.timeout(float(query.get("timeoutSeconds", 1800))):
                await watch.follow(bookmarks=query.get("allowWatchBookmarks") == "true")
        self.watches.discard(watch)
        if watch.is_cut and request.transport is not None:
            request.transport.abort()
        elif query.get("allowWatchBookmarks") == "true" and not watch.has_failed:
            with contextlib.suppress(ConnectionResetError):
                await watch.bookmark()
        return response

    async def _start(self, watch: Watch, query: Mapping[str, str]) -> None:
        """Without a version, existing objects come first, whether requested or not."""
        watch.version = int(query.get("resourceVersion") or 0)
        wants = query.get("sendInitialEvents") == "true"
        if wants and self.initial_events == "unsupported":
            await watch.fail(Refused(500, "InternalError", OLD_ETCD))
        elif wants or not watch.version:
            knows = wants and self.initial_events == "sent"
            mark_end = knows and query.get("allowWatchBookmarks") == "true"
            await watch.send_initial_events(
                mark_end=mark_end, midway=lambda: self._run_midway(watch)
            )

    def _run_midway(self, watch: Watch) -> None:
        hook, self.midway = self.midway, None
        if hook is not None:
            hook(watch)
