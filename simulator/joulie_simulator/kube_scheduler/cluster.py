"""The nodes of a cluster and the pods bound to them, as kube-scheduler's snapshot has them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from joulie_projections.twin.arrays import Bools, Ints
from joulie_simulator.kube_scheduler.node_columns import NodeColumns
from joulie_simulator.kube_scheduler.objects import Node
from joulie_simulator.kube_scheduler.pod_counts import Held, PodCounts
from joulie_simulator.kube_scheduler.requests import ANY_ADDRESS, CPU, MEMORY, PODS
from joulie_simulator.kube_scheduler.terms import Asked

PortKey = tuple[str, int]  # the protocol and the port


class Cluster:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = NodeColumns(nodes)
        size = self.nodes.size
        self._allocatable: dict[str, Ints] = {}
        self._requested: dict[str, Ints] = {}
        # CPU and memory with the least amount of each container: only for scores.
        self.scored: tuple[Ints, Ints] = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.pods: Ints = np.zeros(size, np.int64)
        self.counts = PodCounts(size)
        self.apart = Held(size)  # required anti-affinity
        self.near = Held(size)  # required affinity
        self.prefers = Held(size)
        self._ports: dict[PortKey, Counter[tuple[int, str]]] = {}
        self._on: dict[str, tuple[Asked, int]] = {}

    # --- pods ---------------------------------------------------------------------------------

    def bind(self, pod: Asked, row: int) -> None:
        assert pod.uid not in self._on, f"the pod {pod.uid} is bound already"
        self._on[pod.uid] = pod, row
        self._book(pod, row, 1)

    def remove(self, uid: str) -> int:
        """Returns the row of the node that it was on."""
        pod, row = self._on.pop(uid)
        self._book(pod, row, -1)
        return row

    def row_of(self, uid: str) -> int:
        return self._on[uid][1]

    def _book(self, pod: Asked, row: int, sign: int) -> None:
        for name, amount in pod.requests.amounts.items():
            self.requested(name)[row] += sign * amount
        for column, amount in zip(self.scored, pod.requests.held, strict=True):
            column[row] += sign * amount
        self.pods[row] += sign
        self.counts.add(pod.kind, row, sign)
        self.apart.add(pod.apart, row, sign)
        self.near.add(pod.near, row, sign)
        self.prefers.add(pod.prefers, row, sign)
        for address, protocol, port in pod.ports:
            self._ports.setdefault((protocol, port), Counter())[row, address] += sign

    # --- resources ----------------------------------------------------------------------------

    def allocatable(self, resource: str) -> Ints:
        found = self._allocatable.get(resource)
        if found is None:
            found = self._allocatable[resource] = self.nodes.allocatable(resource)
        return found

    def requested(self, resource: str) -> Ints:
        found = self._requested.get(resource)
        if found is None:
            found = self._requested[resource] = np.zeros(self.nodes.size, np.int64)
        return found

    @property
    def capacity(self) -> tuple[Ints, Ints]:
        return self.allocatable(CPU), self.allocatable(MEMORY)

    @property
    def most_pods(self) -> Ints:
        return self.allocatable(PODS)

    def with_port(self, address: str, protocol: str, port: int) -> Bools:
        """Nodes where a pod has this port already."""
        taken = np.zeros(self.nodes.size, np.bool_)
        for (row, used), pods in self._ports.get(
            (protocol, port), Counter[tuple[int, str]]()
        ).items():
            if pods and (ANY_ADDRESS in (address, used) or used == address):
                taken[row] = True
        return taken
