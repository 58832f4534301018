"""Versions side by side: a projector with the next version of the folds, beside one with ours.

The next version folds some facts to other rows. Which version runs depends on the process.
"""

import contextlib
import functools
from collections.abc import Callable, Generator
from typing import Any
from unittest import mock

from msgspec.structs import replace
from virtual_time import RUNNING

from joulie_bus.events import Fact, TelemetrySampled
from joulie_projections.fold import registry, sequence, snapshots
from joulie_projections.fold.manifest import CODE_VERSION, Manifest
from joulie_projections.projector import projector
from joulie_projections.state.state_changes import Draft
from joulie_projections.store import store
from joulie_projections.store.store import Store

NEXT = "next"
DOUBLED = "n1"  # the node whose watts the next version folds twice


def power_folded(by: str, node: str, power_mw: int) -> int:
    return power_mw * 2 if by == NEXT and node == DOUBLED else power_mw


def _evolve(draft: Draft, fact: Fact, at: int) -> None:
    if isinstance(fact, TelemetrySampled):
        fact = replace(fact, power_mw=power_folded(NEXT, fact.node, fact.power_mw))
    registry.evolve(draft, fact, at)


@contextlib.contextmanager
def each_by_its_own() -> Generator[None, None, None]:
    """What a projector runs is of the version of its process."""
    places = (
        (projector, "sequence"),
        (projector, "quarantined_batch"),
        (snapshots, "pack"),
        (Store, "newest_snapshot"),
    )
    with contextlib.ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(mock.patch.object(owner, name, _by_version(getattr(owner, name))))
        yield


def _by_version(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def called(*args: Any) -> Any:
        process = RUNNING.get()
        if process is None or process.fold_version == CODE_VERSION:
            return call(*args)
        with _next():
            return call(*args)

    return called


@contextlib.contextmanager
def _next() -> Generator[None, None, None]:
    made = functools.partial(Manifest, fold_version=NEXT)
    with (
        mock.patch.object(sequence, "evolve", _evolve),
        mock.patch.object(sequence, "Manifest", made),
        mock.patch.object(snapshots, "CODE_VERSION", NEXT),
        mock.patch.object(store, "CODE_VERSION", NEXT),
    ):
        yield
