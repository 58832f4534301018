"""Keeps the newest signed heads of the log in a ConfigMap, which has to exist.

It is bounded, because the API server keeps every version of it for a while. A head is replaced by
newer ones only, and a write that another one preceded is refused by the API server.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from joulie_bus.errors import HeadsNotKept
from joulie_operator.cluster_settings import IN_CLUSTER
from joulie_operator.kube.api_client import ApiServer, object_path
from joulie_projections.chain.head import Head, decode, encode
from joulie_projections.witness.settings import ConfigMapPlace

KEPT = 50
KEY = "heads.jsonl"
Opened = Callable[[], AbstractAsyncContextManager[ApiServer]]


class ConfigMapKeeper:
    """Each call is a connection of its own, in a thread without an event loop."""

    is_bounded = True

    def __init__(self, place: ConfigMapPlace, opened: Opened) -> None:
        self._place = place
        self._path = object_path(f"/api/v1/namespaces/{place.namespace}/configmaps", place.name)
        self._opened = opened

    @classmethod
    def of(cls, place: ConfigMapPlace, kubeconfig: str) -> "ConfigMapKeeper":
        """`kubeconfig` is a file, or in-cluster."""
        file = None if kubeconfig in ("", IN_CLUSTER) else Path(kubeconfig)

        @asynccontextmanager
        async def opened() -> AsyncGenerator[ApiServer, None]:
            async with ApiServer.of(file) as api:
                yield api

        return cls(place, opened)

    def newest(self) -> int:
        lines = self.kept()
        return self._head(lines[-1]).pos if lines else 0

    def append(self, heads: Sequence[Head]) -> None:
        asyncio.run(self._append(heads))

    def kept(self) -> list[bytes]:
        return _lines(asyncio.run(self._read()))

    async def _append(self, heads: Sequence[Head]) -> None:
        async with self._opened() as api:
            found = await self._found(api)
            kept = _lines(found)
            after = self._head(kept[-1]).pos if kept else 0
            fresh = [encode(head) for head in heads if head.pos > after]
            text = b"".join(line + b"\n" for line in [*kept, *fresh][-KEPT:]).decode()
            found["data"] = {**(found.get("data") or {}), KEY: text}
            await api.replace(self._path, found)  # with the version that was read

    async def _read(self) -> dict[str, Any]:
        async with self._opened() as api:
            return await self._found(api)

    async def _found(self, api: ApiServer) -> dict[str, Any]:
        content = await api.get(self._path)
        if content is None:
            raise HeadsNotKept(str(self._place), "there is no such ConfigMap")
        return msgspec.json.decode(content, type=dict[str, Any])

    def _head(self, line: bytes) -> Head:
        try:
            return decode(line)
        except msgspec.DecodeError as error:
            raise HeadsNotKept(str(self._place), f"it holds no head ({error})") from error


def _lines(found: dict[str, Any]) -> list[bytes]:
    return str((found.get("data") or {}).get(KEY, "")).encode().splitlines()
