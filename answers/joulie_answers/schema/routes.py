"""The routes of the API: what a query of each is, and its response.

The console serves them, its OpenAPI document describes them, and `joulie.client` calls them.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from joulie_answers.schema import requests as q
from joulie_answers.schema import responses as a

Q = TypeVar("Q", bound=q.Query)
A = TypeVar("A", bound=a.Answer)

TEXT_PARAMETER = {"type": "string", "minLength": 1}
ENTRY_PARAMETER = {"type": "integer", "minimum": 1, "maximum": q.MAX_INTEGER}


@dataclass(frozen=True)
class Route(Generic[Q, A]):
    name: str
    path: str
    summary: str
    query_type: type[Q]
    answer: type[A] | None = None  # None: a stream of events
    path_parameter: tuple[str, dict[str, Any]] | None = None  # the part of the path that varies
    body: str = ""  # the field of the query that the body of a POST is; empty: it is a GET


def _collection(name: str, summary: str, query_type: type[Q], answer: type[A]) -> Route[Q, A]:
    return Route(name, f"/v1/{name}", summary, query_type, answer)


def _item(
    name: str, summary: str, query_type: type[Q], answer: type[A], parameter: str = "name"
) -> Route[Q, A]:
    """One item of a collection."""
    schema = ENTRY_PARAMETER if parameter == "entry" else TEXT_PARAMETER
    path = f"/v1/{name}s/{{{parameter}}}"
    return Route(name, path, summary, query_type, answer, (parameter, schema))


CLUSTER = _collection("cluster", "The cluster at a glance", q.SnapshotQuery, a.Cluster)
POWER = _collection("power", "Watts over time", q.Power, a.PowerSeries)
MAP = _collection("map", "Every node, in columns", q.SnapshotQuery, a.Map)
NODES = _collection("nodes", "Nodes", q.Nodes, a.NodeList)
NODE = _item("node", "One node: twin, caps, transitions", q.Node, a.NodeDetail)
PODS = _collection("pods", "Pods", q.Pods, a.PodList)
POD = _item("pod", "One pod, explained", q.Pod, a.PodDetail, "uid")
PENDING = _collection("pending", "Pending pods with the reason", q.Pending, a.PendingList)
ENERGY = _collection("energy", "The energy of a period", q.Energy, a.Energy)
SAVED = _collection("saved", "Saved today and this month", q.NoParameters, a.Saved)
WORKLOAD_REQUESTS = Route(
    "workload_requests",
    "/v1/workload-requests",
    "What pods use of what they request",
    q.WorkloadRequests,
    a.WorkloadRequestList,
)
REPORT = _collection("report", "What `joulie report` computes of a period", q.Report, a.Report)
GPUS = _collection("gpus", "GPU cards", q.Gpus, a.GpuList)
DECISIONS = _collection("decisions", "Decisions, newest first", q.Decisions, a.DecisionList)
DECISION = _item("decision", "One decision with its terms", q.Decision, a.DecisionDetail, "entry")
PLANS = _collection("plans", "Plans and transitions, newest first", q.Plans, a.PlanList)
PLAN = _item("plan", "One plan in full", q.NoParameters, a.PlanDetail, "plan")
NEXT_PLAN = Route(
    "next_plan", "/v1/next-plan", "What the operator would plan next", q.NextPlan, a.NextPlan
)
DEFRAGMENT = _collection(
    "defragment", "Which pods to move so that free GPUs are of use", q.Defragment, a.DefragmentPlan
)
PLACE = Route(
    "place", "/v1/place", "What would happen to a manifest", q.Place, a.Foretold, body="manifest"
)
STATUS = _collection("status", "What runs, and how old the data is", q.NoParameters, a.Status)
HEADS = _collection("heads", "Signed heads of the decision log", q.Heads, a.HeadList)
REACH = _collection("reach", "How far back in time queries can go", q.NoParameters, a.Reach)
STREAM = Route[q.Stream, a.Answer]("stream", "/v1/stream", "Events as they happen", q.Stream)
