"""The webhook itself: decodes, asks `decide`, writes down, encodes. It decides nothing."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from joulie_bus import metrics
from joulie_bus.errors import BadQuantity, BadRequest
from joulie_bus.events import DecisionEntry, PodAsk
from joulie_extender import decide
from joulie_extender.contract import Asked, filter_reply, prioritize_reply, read_args
from joulie_extender.decide import Moment
from joulie_extender.scoring import Weights, fresh_rows, score, standing_of
from joulie_projections.board import Board
from joulie_projections.classify import UNKNOWN_ANNOTATION
from joulie_projections.demand import ask_of
from joulie_projections.power import Coefficients
from joulie_projections.twins import NodeClass
from joulie_projections.view import Snapshot

Look = Callable[[], Snapshot]
Record = Callable[[DecisionEntry], None]
Clock = Callable[[], int]
Answer = Callable[[bytes], bytes]


class Extender:
    """Answers from one snapshot per request; every answer is recorded before it is given."""

    def __init__(self, look: Look, record: Record, weights: Weights, clock: Clock) -> None:
        self._look = look
        self._record = record
        self._weights = weights
        self._clock = clock

    def filter(self, body: bytes) -> bytes:
        asked, pod, moment = self._read(body)
        decision = decide.decide_filter(pod, asked.names, moment, self._weights)
        self._record(decision)
        return filter_reply(asked, decide.passed(decision), decision.reason)

    def prioritize(self, body: bytes) -> bytes:
        asked, pod, moment = self._read(body)
        decision = decide.decide_prioritize(pod, asked.names, moment, self._weights)
        self._record(decision)
        return prioritize_reply(asked.names, decide.answered_scores(decision))

    def debug(self) -> dict[str, Any]:
        position, board, age_ms = self._look()
        names, now = sorted(board.rows), self._clock()
        rows = decide.rows_by_name(board, names)
        scores = score(_NOBODY, board, rows, now, age_ms, _without_pod(self._weights))
        stale = ~fresh_rows(board, now, age_ms, self._weights)[rows]
        assumed_w = standing_of(board, now, age_ms, self._weights).assumed_w[rows]
        return {
            "position": position,
            "viewAgeMs": age_ms,
            "settings": decide.settings_id(self._weights),
            "coefficients": _coefficients(self._weights),
            "nodes": [
                {**_row(board, name), "assumedPowerW": assumed, "baseScore": base, "stale": old}
                for name, assumed, base, old in zip(
                    names,
                    assumed_w.tolist(),
                    scores.score.tolist(),
                    stale.tolist(),
                    strict=True,
                )
            ],
        }

    def _read(self, body: bytes) -> tuple[Asked, PodAsk, Moment]:
        asked = read_args(body)
        pod = ask_of(asked.pod)
        if pod.rule == UNKNOWN_ANNOTATION:
            metrics.UNKNOWN_CLASS.inc()
        position, board, age_ms = self._look()
        return asked, pod, Moment(board, position, age_ms, self._clock())


def make_app(extender: Extender, is_ready: Callable[[], bool], body_limit: int) -> Starlette:
    def verb(name: str, answer: Answer) -> Route:
        return Route(f"/{name}", _endpoint(name, answer, body_limit), methods=["POST"])

    async def healthz(_: Request) -> Response:
        return Response("ok\n")

    async def readyz(_: Request) -> Response:
        if is_ready():
            return Response("ok\n")
        return Response("the projection is not loaded yet\n", 503)

    async def debug(_: Request) -> Response:
        return JSONResponse(extender.debug())

    return Starlette(
        routes=[
            verb("filter", extender.filter),
            verb("prioritize", extender.prioritize),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/debug/scoring", debug),
        ]
    )


def _endpoint(
    name: str, answer: Answer, body_limit: int
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await _body(request, body_limit)
        if isinstance(body, Response):
            return body
        started = time.perf_counter()
        try:
            reply = answer(body)
        except (BadRequest, BadQuantity) as error:
            metrics.ANSWERS.labels(verb=name, outcome="bad_request").inc()
            return _refusal(400, str(error))
        metrics.ANSWER_SECONDS.labels(verb=name).observe(time.perf_counter() - started)
        metrics.ANSWERS.labels(verb=name, outcome="answered").inc()
        return Response(reply, media_type="application/json")

    return endpoint


async def _body(request: Request, limit: int) -> bytes | Response:
    """Stops reading at the limit, whatever the header promised."""
    too_large = f"The body is larger than {limit} bytes (EXTENDER_BODY_LIMIT)."
    if int(request.headers.get("content-length", 0)) > limit:
        return _refusal(413, too_large)
    parts, size = [], 0
    try:
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > limit:
                return _refusal(413, too_large)
    except ClientDisconnect:
        return _refusal(400, "The connection ended before the body did.")
    return b"".join(parts)


def _refusal(status: int, why: str) -> Response:
    return Response(msgspec.json.encode({"error": why}), status, media_type="application/json")


# What a node scores before any pod: no marginal power, no bonus, no pressure.
_NOBODY = PodAsk(uid="", namespace="", name="", workload="performance")


def _without_pod(weights: Weights) -> Weights:
    return weights._replace(coefficients=Coefficients(0.0, 0.0, 0.0, False))


def _coefficients(weights: Weights) -> dict[str, float | bool]:
    return {
        "cpuUtilCoeff": weights.coefficients.cpu,
        "gpuUtilCoeffStandard": weights.coefficients.gpu_standard,
        "gpuUtilCoeffPerformance": weights.coefficients.gpu_performance,
        "memoryFactor": weights.coefficients.memory_factor,
    }


def _row(board: Board, name: str) -> dict[str, Any]:
    at = board.rows[name]

    def value(column: str) -> float:
        return float(board.floats(column)[at])

    return {
        "nodeName": name,
        "schedulableClass": NodeClass(int(board.columns["node_class"][at])).name.lower(),
        "headroom": value("headroom"),
        "coolingStress": value("cooling"),
        "measuredPowerW": value("measured_w"),
        "cappedPowerW": value("capped_w"),
        "nodeTdpW": value("tdp_w"),
        "powerTrendWPerMin": value("trend_w_per_min"),
        "cpuTotalCores": value("cores"),
        "cpuMaxWattsTotal": value("cpu_max_w"),
        "gpuCount": int(value("gpus")),
        "gpuMaxWattsPerGpu": value("gpu_max_w"),
        "hasGpu": value("gpus") > 0,
    }
