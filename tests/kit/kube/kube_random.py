"""Random nodes and pods with every constraint that the model of kube-scheduler has."""

from collections.abc import Sequence
from random import Random
from typing import Any

Tree = dict[str, Any]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APPS = ("web", "db", "etl", "cache")
NAMESPACES = {"default": {}, "blue": {"team": "blue"}, "red": {"team": "red", "prod": ""}}
HEAVY = "heavy"  # a RuntimeClass with an overhead
SYSTEM_LABEL = "kubernetes.io/metadata.name"  # which the API server gives each namespace


class RandomWorld:
    def __init__(self, seed: str, number: int) -> None:
        self._draw = Random(f"{seed}/{number}")
        self.prefix = f"w{number}"
        self.names = [f"{self.prefix}-n{at}" for at in range(self._draw.randint(5, 12))]

    def _is(self, chance: float) -> bool:
        return self._draw.random() < chance

    def _one(self, *values: Any) -> Any:
        return self._draw.choice(values)

    def nodes(self) -> list[Tree]:
        return [self._node(name) for name in self.names]

    def _node(self, name: str) -> Tree:
        labels = {HOST: name, "size": str(self._one(2, 8, 16))}
        labels |= {ZONE: self._one("a", "b", "c")} if self._is(0.9) else {}
        labels |= {"disk": self._one("ssd", "hdd")} if self._is(0.5) else {}
        labels |= {"team": self._one("blue", "red")} if self._is(0.4) else {}
        room = {
            "cpu": labels["size"],
            "memory": self._one("4Gi", "8Gi", "16Gi", "64Gi"),
            "pods": str(self._one(4, 12, 110)),
            "ephemeral-storage": "100Gi",
        }
        room |= {"nvidia.com/gpu": str(self._one(4, 8))} if self._is(0.3) else {}
        room |= {"hugepages-2Mi": "256Mi"} if self._is(0.3) else {}
        taints = [
            {"key": "dedicated", "value": self._one("red", "blue"), "effect": effect}
            for effect in ("NoSchedule", "PreferNoSchedule")
            if self._is(0.2)
        ]
        taints += [{"key": "broken", "effect": "NoExecute"}] * self._is(0.08)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints} | ({"unschedulable": True} if self._is(0.1) else {}),
            "status": {
                "allocatable": room,
                "capacity": room,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def pod(self, name: str, owners: Sequence[Tree]) -> Tree:
        """`owners` are references to the ReplicaSets of the app in the pod's namespace."""
        namespace, app = self._one("default", "default", *NAMESPACES), self._one(*APPS)
        metadata: Tree = {
            "name": f"{self.prefix}-{name}",
            "namespace": namespace,
            "labels": {"app": app, "rev": self._one("1", "2")},
        }
        mine = [each for each in owners if each["name"] == f"{app}-{namespace}"]
        metadata |= {"ownerReferences": mine} if self._is(0.3) else {}
        spec: Tree = {"terminationGracePeriodSeconds": 0, "containers": self._containers()}
        spec |= {"initContainers": self._starters()} if self._is(0.3) else {}
        spec |= {"runtimeClassName": HEAVY} if self._is(0.1) else {}
        if self._is(0.1):
            spec["resources"] = {"requests": {"cpu": "4", "memory": "5Gi"}}
        spec |= self._of_nodes()
        if self._is(0.06):
            self._be_near_itself(metadata, spec)
        spec |= {"tolerations": self._tolerations()} if self._is(0.4) else {}
        spec |= {"topologySpreadConstraints": self._spreads()} if self._is(0.3) else {}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _be_near_itself(self, metadata: Tree, spec: Tree) -> None:
        """The first of its kind goes anywhere, and the next ones near it."""
        label = {"kind": self._one("x", "y")}
        metadata["labels"] |= label
        term = {"topologyKey": self._one(ZONE, HOST), "labelSelector": {"matchLabels": label}}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = spec.get("affinity", {}) | {"podAffinity": required}

    # --- requests -----------------------------------------------------------------------------

    def _containers(self) -> list[Tree]:
        return [self._container(f"c{at}") for at in range(self._one(1, 1, 2))]

    def _starters(self) -> list[Tree]:
        made = [self._container(f"i{at}") for at in range(self._one(1, 2, 3))]
        return [each | ({"restartPolicy": "Always"} if self._is(0.5) else {}) for each in made]

    def _container(self, name: str) -> Tree:
        asked: Tree = {}
        asked |= {"cpu": self._one("100m", "250m", "1", "1500m")} if self._is(0.8) else {}
        asked |= {"memory": self._one("100Mi", "512Mi", "1.5Gi", "3Gi")} if self._is(0.7) else {}
        asked |= {"ephemeral-storage": "60Gi"} if self._is(0.05) else {}
        limits: Tree = {}
        if name == "c0" and self._is(0.1):
            limits["nvidia.com/gpu"] = self._one("1", "2", "4")
        if name == "c0" and self._is(0.06):
            limits |= {"hugepages-2Mi": "128Mi"}
            asked |= {"cpu": "100m", "memory": "100Mi"}
        made: Tree = {
            "name": name,
            "image": "x",
            "resources": {"requests": asked, "limits": limits},
        }
        if name[0] != "i" and self._is(0.2):
            made["ports"] = [self._port()]
        return made

    def _port(self) -> Tree:
        port = self._one(8080, 9090)
        made: Tree = {"containerPort": port, "hostPort": port}
        made |= {"hostIP": self._one("127.0.0.1", "127.0.0.2")} if self._is(0.4) else {}
        return made | ({"protocol": "UDP"} if self._is(0.2) else {})

    # --- nodes and other pods -----------------------------------------------------------------

    def _of_nodes(self) -> Tree:
        made: Tree = {}
        if self._is(0.2):
            made["nodeSelector"] = {"disk": "ssd"} if self._is(0.5) else {"team": "blue"}
        affinity: Tree = {}
        of_nodes: Tree = {}
        if self._is(0.25):
            terms = [self._node_term() for _ in range(self._one(1, 2))]
            of_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {
                "nodeSelectorTerms": terms
            }
        if self._is(0.25):
            of_nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self._draw.randint(1, 100), "preference": self._node_term()}
                for _ in range(self._one(1, 2))
            ]
        affinity |= {"nodeAffinity": of_nodes} if of_nodes else {}
        for kind, chance in (("podAffinity", 0.2), ("podAntiAffinity", 0.2)):
            if self._is(chance):
                affinity[kind] = self._of_pods()
        return made | ({"affinity": affinity} if affinity else {})

    def _node_term(self) -> Tree:
        if self._is(0.1):
            operator = self._one("In", "NotIn")
            field = {
                "key": "metadata.name",
                "operator": operator,
                "values": [self._one(*self.names)],
            }
            return {"matchFields": [field]}
        made = [
            {"key": "disk", "operator": self._one("In", "NotIn"), "values": ["ssd"]},
            {"key": ZONE, "operator": "In", "values": ["a", self._one("b", "c")]},
            {"key": "team", "operator": self._one("Exists", "DoesNotExist")},
            {"key": "size", "operator": self._one("Gt", "Lt"), "values": ["8"]},
        ]
        return {"matchExpressions": self._draw.sample(made, self._one(1, 1, 2))}

    def _of_pods(self) -> Tree:
        if self._is(0.5):
            return {"requiredDuringSchedulingIgnoredDuringExecution": [self._pod_term()]}
        return {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": self._draw.randint(1, 100), "podAffinityTerm": self._pod_term()}
                for _ in range(self._one(1, 2))
            ]
        }

    def _pod_term(self) -> Tree:
        made: Tree = {
            "topologyKey": self._one(ZONE, HOST, "disk"),
            "labelSelector": self._selector(),
        }
        if self._is(0.15):
            made["namespaces"] = [self._one("blue", "red")]
        if self._is(0.15):
            made["namespaceSelector"] = self._one({}, {"matchLabels": {"team": "blue"}})
        return made

    def _selector(self) -> Tree:
        if self._is(0.2):
            values = self._draw.sample(APPS, 2)
            expression = {"key": "app", "operator": self._one("In", "NotIn"), "values": values}
            return {"matchExpressions": [expression]}
        return {"matchLabels": {"app": self._one(*APPS)}}

    def _spreads(self) -> list[Tree]:
        keys = self._draw.sample((ZONE, HOST, "team"), self._one(1, 1, 2))
        return [self._spread(key) for key in keys]

    def _spread(self, key: str) -> Tree:
        made = {
            "maxSkew": self._one(1, 1, 2),
            "topologyKey": key,
            "whenUnsatisfiable": self._one("DoNotSchedule", "ScheduleAnyway"),
            "labelSelector": self._selector(),
        }
        if made["whenUnsatisfiable"] == "DoNotSchedule" and self._is(0.2):
            made["minDomains"] = self._one(2, 4)
        made |= {"nodeTaintsPolicy": "Honor"} if self._is(0.2) else {}
        made |= {"nodeAffinityPolicy": "Ignore"} if self._is(0.2) else {}
        return made | ({"matchLabelKeys": ["rev"]} if self._is(0.15) else {})

    def _tolerations(self) -> list[Tree]:
        return [
            self._one(
                {"operator": "Exists"},
                {"key": "dedicated", "operator": "Exists"},
                {"key": "dedicated", "value": "red", "effect": "NoSchedule"},
                {"key": "dedicated", "value": "blue"},
                {"key": "dedicated", "operator": "Exists", "effect": "PreferNoSchedule"},
                {"key": "broken", "operator": "Exists", "effect": "NoExecute"},
                {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
            )
            for _ in range(self._one(1, 2))
        ]

    def bound_to(self) -> str:
        name: str = self._one(*self.names)
        return name

    def is_ending(self) -> bool:
        return self._is(0.1)
