"""What components have read, by their pages and by the database of a data directory."""

import asyncio
import contextlib
import json
import urllib.request
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from joulie_bus.errors import JoulieError
from joulie_projections.history.history import History
from joulie_projections.state.state import ClusterState


class Committed(NamedTuple):
    state: ClusterState
    position: int


async def read_by_extender(address: str) -> int:
    """The position of its view. `address` is host:port; raises OSError while it does not run."""
    return int(json.loads(await page(f"http://{address}/debug/scoring"))["position"])


async def page(url: str) -> bytes:
    return await asyncio.to_thread(_page, url)


def _page(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=2) as reply:
        content: bytes = reply.read()
    return content


def committed(data: Path) -> Committed:
    """Nothing at position 0 while the projector starts."""
    not_there_yet = contextlib.suppress(JoulieError, SQLAlchemyError)
    with not_there_yet, History.of(data / "joulie.db") as history:
        checkpoint = history.checkpoint()
        position = checkpoint.position if checkpoint is not None else 0
        return Committed(history.cluster_state(), position)
    return Committed(ClusterState(), 0)
