"""The API server of the tests in a process of its own, which counts the writes of clients."""

import asyncio
import contextlib
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

from joulie_bus.events import Fact
from joulie_projections.fold.registry import evolve
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from kube_api import ApiServer

Writes = Counter[tuple[str, str]]  # by verb and resource


class ServedCluster:
    def __init__(self, pipe: Any) -> None:  # its type has another name on each system
        self._pipe = pipe
        self.kubeconfig = Path(pipe.recv())

    def writes(self) -> Writes:
        self._pipe.send("count")
        found: Writes = self._pipe.recv()
        return found


@contextlib.contextmanager
def served(made: Callable[[], ApiServer]) -> Generator[ServedCluster, None, None]:
    """`made` runs in the process of the server, which is forked: make large clients afterwards,
    because the server inherits the memory of its parent.
    """
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(made, there))
    process.start()
    try:
        yield ServedCluster(here)
    finally:
        here.send("")
        process.join()


def _serve(made: Callable[[], ApiServer], pipe: Any) -> None:
    server = made()

    async def run() -> None:
        async with server.listening():
            pipe.send(str(server.kubeconfig(Path(tempfile.mkdtemp()))))
            while await asyncio.to_thread(pipe.recv):
                pipe.send(Counter((asked.verb, asked.resource) for asked in server.writes()))

    asyncio.run(run())


def folded(cluster_state: ClusterState, facts: Iterable[Fact], at: int) -> None:
    draft = Draft(cluster_state)
    for fact in facts:
        evolve(draft, fact, at)
    draft.commit()
