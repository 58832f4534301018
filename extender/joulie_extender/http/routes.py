"""Routes: verbs for kube-scheduler, debug pages for people, health probes for the kubelet."""

from collections.abc import Awaitable, Callable
from functools import partial

from joulie_bus.events import Duty
from joulie_bus.http.exchange import Handler, Reply, Request, refusal
from joulie_bus.runtime.vital_tasks import why_not_ready
from joulie_extender.answering.extender import Extender
from joulie_extender.verbs.openapi import DOCUMENT

EXPLAIN = "/explain/"
# For the kubelet, which has no certificate. They hold no data.
PROBES = frozenset({"/healthz", "/readyz"})
# A cluster may register its duties apart, with their own `ignorable`, or all of them at once.
PREFIXES: tuple[tuple[str, Duty], ...] = (("", "all"), ("/energy", "energy"), ("/gpu", "gpu"))
_NO_BIND = (
    "Pods are bound under /gpu/bind, or without a prefix. Take bindVerb out of this block of "
    "kube-scheduler's extenders, and kube-scheduler binds by itself."
)
_NOTHING = (
    "Nothing has this path. kube-scheduler posts to /filter, /prioritize and /preempt, without a "
    "prefix or under /energy or /gpu, and to /gpu/bind. GET answers /explain/POD-UID, "
    "/debug/scoring, /healthz, /readyz and /openapi.json."
)
_TEXT = b"text/plain; charset=utf-8"
VerbCall = Callable[[Request], Reply | Awaitable[Reply]]
Page = Callable[[], Reply]


def routed(extender: Extender, is_draining: Callable[[], bool]) -> Handler:
    verbs: dict[str, VerbCall] = {
        f"{prefix}/{name}": answer
        for prefix, duty in PREFIXES
        for name, answer in (
            ("filter", partial(extender.filter, duty=duty)),
            ("prioritize", partial(extender.prioritize, duty=duty)),
            ("preempt", partial(extender.preempt, duty=duty)),
        )
    }
    verbs["/bind"] = verbs["/gpu/bind"] = extender.bind

    def readiness() -> Reply:
        if is_draining():
            return Reply(503, b"this replica is leaving\n", media=_TEXT)
        if not extender.is_ready():
            return Reply(503, b"the projection is not loaded yet\n", media=_TEXT)
        if why := why_not_ready():
            return Reply(503, f"{why}\n".encode(), media=_TEXT)
        return Reply(200, b"ok\n", media=_TEXT)

    health: dict[str, Page] = {
        "/healthz": lambda: Reply(200, b"ok\n", media=_TEXT),
        "/readyz": readiness,
    }
    pages: dict[str, Page] = {
        "/debug/scoring": lambda: Reply(200, extender.scoring()),
        "/openapi.json": lambda: Reply(200, DOCUMENT),
    }

    def handle(request: Request) -> Reply | Awaitable[Reply]:
        verb = verbs.get(request.path)
        if verb is not None:
            return _method(request, ("POST",)) or verb(request)
        if (page := health.get(request.path)) is not None:
            return _method(request, ("GET", "HEAD")) or page()
        return _page(extender, pages, request)

    return handle


def _page(extender: Extender, pages: dict[str, Page], request: Request) -> Reply:
    page = pages.get(request.path)
    if page is not None:
        return _method(request, ("GET", "HEAD")) or page()
    if request.path.startswith(EXPLAIN):
        return _method(request, ("GET", "HEAD")) or _explained(extender, request.path)
    return refusal(404, _NO_BIND if request.path.endswith("/bind") else _NOTHING)


def _explained(extender: Extender, path: str) -> Reply:
    found = extender.explain(path.removeprefix(EXPLAIN))
    if found is None:
        why = (
            "This replica has no answer about a pod of that UID in memory. It keeps only the "
            "newest ones, and another replica may have answered. `joulie explain UID` reads the "
            "decision log, which has all of them."
        )
        return refusal(404, why)
    return Reply(200, found)


def _method(request: Request, methods: tuple[str, ...]) -> Reply | None:
    if request.method in methods:
        return None
    allowed = ", ".join(methods)
    why = f"{request.method} is not answered here, only {allowed}."
    return refusal(405, why, b"Allow: %b\r\n" % allowed.encode())
