"""Publishes the caps of nodes to the writers on them, again and again while they hold."""

import asyncio
import time

import msgspec

from joulie_bus.errors import BusError
from joulie_bus.events import CapOrder
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.subjects import Subjects
from joulie_operator.planning.cap_orders import cap_orders
from joulie_projections.view.view import View

CHECK_INTERVAL_S = 0.25
MOST_AGE_S = 30.0
REPEAT_S = 10.0  # a writer leaves the caps of the plan after six that it missed
encode = msgspec.msgpack.Encoder().encode
log = get_logger("caps")


class CapOrders:
    """An order is published when it changed, and again within the time of the lease."""

    def __init__(self, bus: Log, subjects: Subjects, view: View) -> None:
        self._bus = bus
        self._subjects = subjects
        self._view = view
        self._published: dict[str, tuple[CapOrder, float]] = {}

    async def run(self) -> None:
        """Runs until cancelled. Nothing is published from a view that lags: a writer then sets the
        safe caps of a power target, or gives the limits back, by itself."""
        while True:
            if self._view.is_ready and self._view.age_s <= MOST_AGE_S:
                await self._publish(time.monotonic())
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _publish(self, now_s: float) -> None:
        view = self._view
        found = cap_orders(view.cluster_state, view.position, view.now_ns())
        orders = {order.node: order for order in found}
        for node in self._published.keys() - orders.keys():
            last, _ = self._published[node]
            await self._send(CapOrder(node=node, plan=last.plan, view=self._view.position), now_s)
            del self._published[node]  # if this one is lost, the lease ends without another
        for order in orders.values():
            if self._is_due(order, now_s):
                await self._send(order, now_s)

    def _is_due(self, order: CapOrder, now_s: float) -> bool:
        last, at_s = self._published.get(order.node, (None, 0.0))
        return last is None or _caps(last) != _caps(order) or now_s - at_s >= REPEAT_S

    async def _send(self, order: CapOrder, now_s: float) -> None:
        try:
            await self._bus.send_live(self._subjects.caps(order.node), encode(order))
        except BusError as error:
            log.warning("order_not_published", node=order.node, why=str(error))
        self._published[order.node] = (order, now_s)


def _caps(order: CapOrder) -> tuple[object, ...]:
    """The safe caps hold for another time with each order: that alone is no change."""
    return (
        order.cpu_mw_per_socket,
        order.gpu_mw,
        order.safe_cpu_mw_per_socket,
        order.safe_gpu_mw,
        order.card_mw,
        order.safe_cards,
        order.clock_pct,
    )
