"""The loop that makes the power of the nodes follow the plan.

The plan is in the view and the actual state at the power controller, so a restart continues where
the last process ended. Nodes that are awake by the plan are never touched.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import BadName, KubernetesRefused, SwitchFailed
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_operator.controllers.controller_file import Controllers, Entry, controllers_of
from joulie_operator.desired.kubernetes_events import EVENTS, node_event
from joulie_operator.desired.objects import EXCLUSION_LABEL
from joulie_operator.facts.facts_from_objects import Node
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable
from joulie_operator.observe.watch import NODES, PODS
from joulie_operator.planning.rules import rules_of
from joulie_operator.planning.sleep import sleep_numbers
from joulie_operator.power.executors import Executor, executor_of
from joulie_projections.pods.classify import exemption
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.state.state import NodeState
from joulie_projections.view.view import View

CHECK_INTERVAL_S = 2.0
AT_ONCE = 16
SETTLE_S = 10.0  # from the cordon to the last check, for pods that were being bound
REPEAT_S = 60.0  # between two orders to one node, and between two reads of one that is as ordered
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
MAX_VIEW_AGE_S = 30.0
_SECOND = 1_000_000_000
_FINISHED = ("Succeeded", "Failed")
_BELONGS = ("daemonset", "mirror")
_FAILED = (SwitchFailed, KubernetesRefused, BadName, *UNDECODABLE, *ApiUnreachable)
_read_pod = msgspec.json.Decoder(Pod).decode
_read_node = msgspec.json.Decoder(Node).decode
log = get_logger("power")


class _Attempts(NamedTuple):
    """The orders to one node since the plan last changed its power state."""

    power_at: int
    not_before: float = 0.0  # monotonic seconds
    failures: int = 0


class PowerSwitch:
    """Switches the nodes of a view by the power controllers of the file."""

    def __init__(
        self,
        api: ApiServer,
        view: View,
        entries: Sequence[Entry],
        clock: Callable[[], int] | None = None,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._api, self._view, self._entries = api, view, entries
        self._clock, self._settle_s = clock or view.now_ns, settle_s
        self._attempts: dict[str, _Attempts] = {}
        self._reported: dict[str, int] = {}  # lost nodes, and the order that they did not follow
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                if self._view.is_ready and self._view.age_s <= MAX_VIEW_AGE_S:
                    await self.switch_once()
                await asyncio.sleep(CHECK_INTERVAL_S)
        finally:
            metrics.NODES_LOST.forget()  # another operator may lead from now on

    async def switch_once(self) -> None:
        nodes = self._view.cluster_state.nodes
        ordered = {name: node for name, node in nodes.items() if node.present and node.power_state}
        lost = {name for name, node in ordered.items() if self._is_lost(node)}
        metrics.NODES_LOST.set(len(lost))
        self._attempts = {n: each for n, each in self._attempts.items() if n in ordered}
        self._reported = {n: at for n, at in self._reported.items() if n in lost}
        due = {n: each for n, each in ordered.items() if n not in lost and self._is_due(n, each)}
        present = {name: node for name, node in nodes.items() if node.present} if due else {}
        controllers = controllers_of(self._entries, "switches", present)
        async with asyncio.TaskGroup() as tasks:
            for name in lost:
                tasks.create_task(self._report(name, ordered[name]))
            for name, node in due.items():
                tasks.create_task(self._follow(name, node, controllers))

    def _is_lost(self, node: NodeState) -> bool:
        """Such a node is left alone: another one is woken instead."""
        plan = self._view.cluster_state.plan
        if node.power_state != "waking" or plan is None:
            return False
        timeout_s = sleep_numbers(rules_of(plan.settings)).wake_timeout_s
        return self._clock() - node.power_at > timeout_s * _SECOND

    def _is_due(self, name: str, node: NodeState) -> bool:
        known = self._attempts.get(name)
        if known is None or known.power_at != node.power_at:
            self._attempts[name] = known = _Attempts(node.power_at)
        return time.monotonic() >= known.not_before

    async def _follow(self, name: str, node: NodeState, controllers: Controllers) -> None:
        wanted = "off" if node.power_state == "asleep" else "on"
        async with self._slots:
            try:
                executor = self._executor(name, controllers)
                if executor is not None:
                    await self._switch(executor, name, node)
            except _FAILED as error:
                self._failed(name, wanted, error)
            else:
                self._pause(name, REPEAT_S if executor is not None else LONGEST_PAUSE_S, 0)

    def _executor(self, name: str, controllers: Controllers) -> Executor | None:
        """None if no entry covers the node. Raises SwitchFailed for one that cannot be used."""
        if problem := controllers.problems.get(name):
            raise SwitchFailed(problem)
        entry = controllers.entries.get(name)
        return None if entry is None else executor_of(entry, self._api)

    async def _switch(self, executor: Executor, name: str, node: NodeState) -> None:
        is_on, known = await executor.is_on(name), self._attempts[name]
        if node.power_state == "waking":
            if is_on is not True:
                await executor.switch_on(name)
                self._done(name, "on")
            return
        if is_on is False:
            return
        if node.schedulable or self._clock() - node.power_at < self._settle_s * _SECOND:
            raise SwitchFailed("it was cordoned too short a while ago")
        if pod := await self._pod_that_stays(name):
            log.info("not_switched_yet", node=name, pod=pod)
            return
        if not await self._is_excluded(name):
            raise SwitchFailed(f"it has no label {EXCLUSION_LABEL} yet")
        now = self._view.cluster_state.nodes.get(name)
        if now is None or (now.power_state, now.power_at) != ("asleep", known.power_at):
            return  # woken meanwhile
        await executor.switch_off(name)
        self._done(name, "off")

    async def _pod_that_stays(self, node: str) -> str:
        """A pod that would be interrupted, as the API server knows it now; empty without one."""
        async for page in self._api.pages(PODS, {"fieldSelector": f"spec.nodeName={node}"}):
            for pod in map(_read_pod, page.items):
                phase = pod.status.phase if pod.status else None
                if phase not in _FINISHED and exemption(pod) not in _BELONGS:
                    return f"{pod.metadata.namespace}/{pod.metadata.name}"
        return ""

    async def _is_excluded(self, node: str) -> bool:
        """A node without the label that is off would count as broken: above a share of them, pods
        of nodes that really broke are not replaced."""
        pages = self._api.pages(NODES, {"fieldSelector": f"metadata.name={node}"})
        found = [_read_node(item) async for page in pages for item in page.items]
        return any(EXCLUSION_LABEL in (each.metadata.labels or {}) for each in found)

    def _done(self, name: str, order: str) -> None:
        metrics.POWER_SWITCHES.labels(order=order, outcome="done").inc()
        log.info("switched", node=name, order=order)

    def _failed(self, name: str, order: str, error: Exception) -> None:
        failures = self._attempts[name].failures + 1
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(10, failures - 1))
        self._pause(name, pause_s, failures)
        metrics.POWER_SWITCHES.labels(order=order, outcome="failed").inc()
        log.warning(
            "not_switched", node=name, order=order, why=str(error), retry_in_s=round(pause_s, 1)
        )

    def _pause(self, name: str, pause_s: float, failures: int) -> None:
        self._attempts[name] = self._attempts[name]._replace(
            not_before=time.monotonic() + pause_s, failures=failures
        )

    async def _report(self, name: str, node: NodeState) -> None:
        """Once for each order; best effort, because the log of plans is the record."""
        if self._reported.get(name) == node.power_at:
            return
        self._reported[name] = node.power_at
        log.warning("node_lost", node=name, what="it did not wake up in time and is left alone")
        note = "it did not wake up in time; another node is woken instead, and it is left alone"
        event = node_event(name, node.uid, "NodeDidNotWake", note, self._clock())
        try:
            await self._api.create(EVENTS, event)
        except (KubernetesRefused, *ApiUnreachable) as error:
            log.info("event_not_created", node=name, error=str(error))
