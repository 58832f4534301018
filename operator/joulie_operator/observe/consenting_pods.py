"""Lists the pods whose requests may change, and the autoscalers that forbid it."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple

import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import KubernetesRefused
from joulie_bus.runtime.logging import get_logger
from joulie_operator.facts.resizable_pods import (
    CONSENT,
    OFF,
    RESIZED,
    SizedPod,
    Surroundings,
    read_pod,
)
from joulie_operator.facts.scalers import HPAS, VPAS, Scaler, of_hpa, of_unreadable, of_vpa
from joulie_operator.kube.api_client import FORBIDDEN, NOT_FOUND, ApiServer, Query, object_path
from joulie_operator.observe.watch import NAMESPACES, PODS
from joulie_operator.planning.resizes import Mode
from joulie_projections.pods.kubernetes_pod import Pod

WITH_OTHER_REQUESTS: Query = {"labelSelector": RESIZED}
_read_namespace = msgspec.json.Decoder(Pod).decode  # its metadata alone
log = get_logger("resizes")


class Found(NamedTuple):
    pods: list[SizedPod]
    around: Surroundings


async def listed_pods(api: ApiServer, path: str, query: Query) -> AsyncIterator[SizedPod]:
    """Without those that cannot be read."""
    async for page in api.pages(path, query):
        for item in page.items:
            try:
                yield read_pod(item)
            except UNDECODABLE as error:
                log.warning("pod_left_out", why=str(error), what="its requests stay")


class ConsentingPods:
    def __init__(self, api: ApiServer, mode: Mode) -> None:
        self._api, self._mode = api, mode

    async def found(self, classes: Mapping[str, str]) -> Found:
        """With mode off only those with other requests than their own. Raises KubernetesRefused."""
        consents = await self._namespaces() if self._mode != "off" else {}
        asked: list[tuple[str, Query]] = [(PODS, WITH_OTHER_REQUESTS)]
        if self._mode != "off":
            asked.append((PODS, {"labelSelector": CONSENT}))
        asked += [(object_path(NAMESPACES, name, "pods"), {}) for name in consents]
        pods = {
            pod.metadata.uid: pod
            for path, query in asked
            async for pod in listed_pods(self._api, path, query)
        }
        scalers = await self._scalers() if pods else ()
        return Found(list(pods.values()), Surroundings(consents, classes, scalers))

    async def _namespaces(self) -> dict[str, str]:
        """The consents of namespaces."""
        consents = dict[str, str]()
        async for page in self._api.pages(NAMESPACES, {"labelSelector": CONSENT}):
            for item in page.items:
                meta = _read_namespace(item).metadata
                consents[meta.name or ""] = (meta.labels or {}).get(CONSENT, OFF)
        return {name: given for name, given in consents.items() if given != OFF}

    async def _scalers(self) -> list[Scaler] | None:
        """None without the right to list them."""
        try:
            hpas = await self._listed(HPAS, "HorizontalPodAutoscaler", of_hpa)
            return [*hpas, *await self._listed(VPAS, "VerticalPodAutoscaler", of_vpa)]
        except KubernetesRefused as error:
            if error.code != FORBIDDEN:
                raise
            return None

    async def _listed(
        self, path: str, kind: str, read: Callable[[msgspec.Raw], Scaler | None]
    ) -> list[Scaler]:
        """None of a kind that is not installed."""
        try:
            pages = [page async for page in self._api.pages(path)]
        except KubernetesRefused as error:
            if error.code != NOT_FOUND:
                raise
            return []
        raws = [raw for page in pages for raw in page.items]
        return [each for raw in raws if (each := _scaler(raw, kind, read)) is not None]


def _scaler(
    raw: msgspec.Raw, kind: str, read: Callable[[msgspec.Raw], Scaler | None]
) -> Scaler | None:
    try:
        return read(raw)
    except UNDECODABLE as error:
        scaler = of_unreadable(raw, kind, error)
        log.warning("autoscaler_unreadable", why=scaler.refusal.because, what="requests stay")
        return scaler
