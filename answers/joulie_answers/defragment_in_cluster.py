"""`joulie plans --defragment`: which pods to move so that free GPUs are of use to others."""

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from joulie_answers.text.defragment import outcome_text
from joulie_answers.views.defragment import ONLY_ADVICE, PLACES, carried_out, defragment_of
from joulie_audit.access.past import history_of
from joulie_extender.defragment.movable_pods import Judged
from joulie_extender.defragment.plan import DefragmentationPlan, PlannedMove, defragmentation_plan
from joulie_extender.defragment.search import Budget
from joulie_extender.gpu.models import aliases_of
from joulie_operator.cluster_settings import IN_CLUSTER
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.power.disruptions import Disruptions, disruptions
from joulie_operator.power.move_outcomes import Ordered, Outcome
from joulie_operator.power.moves import Mover
from joulie_projections.catalog_file import CatalogSettings
from joulie_projections.component.wiring import Wiring
from joulie_projections.state.state import ClusterState

Say = Callable[[str], None]
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CarriedOut(NamedTuple):
    report: dict[str, Any]
    is_complete: bool  # no pod waits for a place, none was left out, no node stays cordoned


def report_of(args: argparse.Namespace, wires: Wiring) -> dict[str, Any]:
    """With what the API server knows of budgets and volumes."""
    state = _state(wires)
    plan = asyncio.run(_planned(args, wires, state))
    return defragment_of(plan, [ONLY_ADVICE])


def carry_out(args: argparse.Namespace, wires: Wiring, say: Say) -> CarriedOut:
    """Evicts the pods of the plan; `say` gets a line for each as soon as it is known."""
    try:
        return asyncio.run(_carried_out(args, wires, say))
    except asyncio.CancelledError:  # before the first eviction
        raise KeyboardInterrupt from None


async def _carried_out(args: argparse.Namespace, wires: Wiring, say: Say) -> CarriedOut:
    state, notes = _state(wires), list[str]()

    def noted(line: str) -> None:
        notes.append(line)
        say(line)

    with _cancelled_by_signals():
        plan = await _planned(args, wires, state)
        async with _api_of(args) as api:
            mover = Mover(api, state.namespaces, noted)
            moves = {move.uid: move for move in plan.moves}

            def tell(ordered: Ordered, outcome: Outcome) -> None:
                move = moves[ordered.uid]._asdict()
                say(outcome_text({**move, "outcome": outcome._asdict()}))

            found = await mover.carry_out([ordered(move) for move in plan.moves], tell)
    report = carried_out(defragment_of(plan, [PLACES]), found, notes)
    is_complete = not (mover.cordons.is_left or any(each.ends_the_run for each in found))
    return CarriedOut(report, is_complete)


def ordered(move: PlannedMove) -> Ordered:
    namespace, _, name = move.pod.partition("/")
    note = (
        f"{move.pod} was evicted so that free GPUs are of use: {move.because}. "
        f"It would fit on {move.would_fit}"
    )
    return Ordered(move.uid, namespace, name, move.node, note)


@contextlib.contextmanager
def _cancelled_by_signals() -> Generator[None, None, None]:
    """Inside of the block a signal cancels this task, once: it has to remove a cordon."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        if not task.cancelling():
            task.cancel()

    for each in ENDS:
        loop.add_signal_handler(each, cancel)
    try:
        yield
    finally:
        for each in ENDS:
            loop.remove_signal_handler(each)


def _state(wires: Wiring) -> ClusterState:
    with history_of(wires) as history:
        return history.cluster_state()


async def _planned(
    args: argparse.Namespace, wires: Wiring, state: ClusterState
) -> DefragmentationPlan:
    aliases = aliases_of(wires.source.load(CatalogSettings).catalog)
    judged = judged_by(await _asked(args, state.namespaces))
    return defragmentation_plan(state, aliases, args.moves, judged)


def _api_of(args: argparse.Namespace) -> contextlib.AbstractAsyncContextManager[ApiServer]:
    return ApiServer.of(None if args.kubeconfig == IN_CLUSTER else Path(args.kubeconfig))


async def _asked(args: argparse.Namespace, namespaces: Mapping[str, str]) -> Disruptions:
    async with _api_of(args) as api:
        return await disruptions(api, namespaces)


def judged_by(found: Disruptions) -> Judged:
    return Judged(found.stays, [Budget(*each) for each in found.allowed])
