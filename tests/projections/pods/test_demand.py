"""How much a pod asks for, as Kubernetes itself counts it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_bus.errors import BadAnnotation, BadQuantity
from joulie_bus.events import GpuAsk, PodAsk
from joulie_projections.pods import demand
from joulie_projections.pods.classify import classify, exemption
from joulie_projections.pods.demand import Demand, ask_of, demand_of
from joulie_projections.pods.gpu_request import gpu_ask_of
from joulie_projections.pods.kubernetes_pod import Pod

Wants = dict[str, object]


def running(wants: Wants, name: str = "main") -> dict[str, object]:
    return {"name": name, "resources": {"requests": wants}}


def limited(limits: Wants) -> dict[str, object]:
    return {"name": "main", "resources": {"limits": limits}}


def sidecar(wants: Wants) -> dict[str, object]:
    return running(wants, "sidecar") | {"restartPolicy": "Always"}


def pod(*containers: dict[str, object], **spec: object) -> Pod:
    return msgspec.convert({"spec": {"containers": list(containers), **spec}}, Pod)


def cpu(of: Pod) -> int:
    return demand_of(of).cpu_milli


def gpu(of: Pod) -> int:
    return demand_of(of).gpu_milli


def test_containers_run_side_by_side_so_their_requests_add_up() -> None:
    two = pod(
        running({"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}),
        running({"cpu": 1.5, "memory": "512Mi", "nvidia.com/gpu": 2}),
    )

    assert demand_of(two) == Demand(
        cpu_milli=2000, memory_bytes=3 * 2**29, gpu_milli=3000, gpu_cards=3
    )


@pytest.mark.parametrize(
    ("init", "milli"),
    [
        pytest.param([running({"cpu": 1})], 2000, id="a small start hides behind the run"),
        pytest.param([running({"cpu": 5})], 5000, id="a hungry start counts instead"),
        pytest.param([running({"cpu": 3}), running({"cpu": 4})], 4000, id="starts follow another"),
        pytest.param([sidecar({"cpu": 1})], 3000, id="a sidecar stays beside the run"),
        pytest.param(
            [sidecar({"cpu": 1}), running({"cpu": 4})], 5000, id="a sidecar runs during the start"
        ),
        pytest.param(
            [running({"cpu": 4}), sidecar({"cpu": 1})], 4000, id="but not before it was started"
        ),
        pytest.param(
            [sidecar({"cpu": 1}), sidecar({"cpu": 1}), running({"cpu": 1})], 4000, id="two sidecars"
        ),
    ],
)
def test_init_containers_count_as_kubernetes_counts_them(
    init: list[dict[str, object]], milli: int
) -> None:
    assert cpu(pod(running({"cpu": 2}), initContainers=init)) == milli


def test_overhead_comes_on_top() -> None:
    assert cpu(pod(running({"cpu": 2}), overhead={"cpu": "250m"})) == 2250


def test_what_the_pod_itself_asks_for_stands_for_all_its_containers() -> None:
    whole = pod(
        running({"cpu": 2, "memory": "1Gi"}),
        resources={"requests": {"cpu": "6"}},
        overhead={"cpu": "250m"},
    )

    assert demand_of(whole) == Demand(cpu_milli=6250, memory_bytes=2**30, gpu_milli=0)


def test_a_limit_stands_in_for_a_missing_request_only() -> None:
    only_limits = limited({"cpu": "3", "memory": "2Gi", "amd.com/gpu": "1"})
    both: dict[str, object] = {
        "name": "x",
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
    }

    assert demand_of(pod(only_limits, both)) == Demand(4000, 2**31, 1000, 1)


def test_nothing_asked_for_is_nothing() -> None:
    assert demand_of(Pod()) == demand_of(pod({"name": "x", "resources": None})) == Demand(0, 0, 0)


@pytest.mark.parametrize(
    ("name", "milli"),
    [
        ("nvidia.com/gpu", 2000),
        ("amd.com/gpu", 2000),
        ("gpu.intel.com/i915", 2000),
        ("nvidia.com/mig-1g.10gb", 286),
        ("nvidia.com/mig-3g.20gb", 858),
        ("nvidia.com/mig-7g.80gb", 2000),
        ("nvidia.com/mig-1g.10gb.me", 286),
        ("nvidia.com/mig-1g.10gb+me", 286),
        ("nvidia.com/mig-1c.3g.20gb", 286),
        ("nvidia.com/mig-2c.7g.80gb", 572),
        ("nvidia.com/mig-7g.40gb", 2000),
        ("nvidia.com/mig-4g.24gb", 2000),
        ("nvidia.com/mig-2g.12gb", 1000),
        ("nvidia.com/mig-1g.6gb", 500),
        ("nvidia.com/mig-1g.24gb", 500),
        ("nvidia.com/mig-4g.20gb", 1143),
        ("example.com/fpga", 0),
    ],
)
def test_cards_count_whole_and_mig_slices_as_their_share_of_a_card_rounded_up(
    name: str, milli: int
) -> None:
    assert gpu(pod(limited({name: "2"}))) == milli


def test_slices_of_one_card_add_up_before_they_are_rounded() -> None:
    seven = pod(*(running({"nvidia.com/mig-1g.10gb": 1}) for _ in range(7)))

    assert gpu(seven) == 1000


def test_the_names_of_gpu_resources_are_a_setting() -> None:
    asking = pod(limited({"example.com/npu": "3", "nvidia.com/gpu": "1"}))

    assert demand_of(asking, ("example.com/npu",)).gpu_milli == 3000


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        pytest.param(pod(running({"cpu": "lots"}, "web")), "container web, cpu", id="container"),
        pytest.param(
            pod(initContainers=[running({"memory": "1GB"}, "init")]),
            "container init, memory",
            id="init container",
        ),
        pytest.param(pod(overhead={"cpu": "?"}), "overhead cpu", id="overhead"),
        pytest.param(
            pod(resources={"limits": {"memory": ""}}), "the pod's own resources, memory", id="pod"
        ),
        pytest.param(
            pod(limited({"nvidia.com/gpu": "-1"})), "container main, nvidia.com/gpu", id="gpu"
        ),
    ],
)
def test_a_quantity_that_cannot_be_read_is_an_error_and_never_nothing(
    broken: Pod, where: str
) -> None:
    with pytest.raises(BadQuantity, match=where):
        demand_of(broken)


def test_a_quantity_that_nobody_asks_about_harms_nobody() -> None:
    assert cpu(pod(running({"cpu": 1, "ephemeral-storage": "??"}))) == 1000


def test_an_ask_holds_all_that_facts_say_of_a_pod() -> None:
    metadata = {
        "uid": "u1",
        "namespace": "team",
        "name": "web",
        "annotations": {"joulie.io/workload-class": "performance"},
    }
    spec = {
        "priorityClassName": "system-node-critical",
        "priority": 2_000_001_000,
        "containers": [running({"cpu": "100m", "memory": "64Mi", "nvidia.com/gpu": 1})],
    }

    assert ask_of(msgspec.convert({"metadata": metadata, "spec": spec}, Pod)) == PodAsk(
        uid="u1",
        namespace="team",
        name="web",
        workload="performance",
        rule="annotation",
        exempt="critical",
        cpu_milli=100,
        memory_bytes=2**26,
        gpu_milli=1000,
        gpu_cards=1,
    )


# --- what is asked for, once for all pods of one kind -------------------------------------------

# One of each that any rule looks at, and one that none does.
FACETS: dict[str, list[dict[str, Any]]] = {
    "metadata": [
        {"annotations": {"joulie.io/workload-class": "performance"}},
        {"annotations": {"joulie.io/gpu-vram-mb": "30000", "note": "of a user"}},
        {"annotations": {"joulie.io/gpu-share": "a half"}},
        {"annotations": {"kubernetes.io/config.mirror": "9f"}},
        {"annotations": {"note": "of a user"}, "labels": {"app": "web"}},
        {"labels": {"joulie.io/team": "weather"}},
        {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": True}]},
        {"ownerReferences": [{"kind": "Node", "name": "n1", "controller": True}]},
        {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]},
    ],
    "spec": [
        {"containers": [running({"cpu": "500m", "memory": "1Gi"})]},
        {"containers": [running({"nvidia.com/gpu": "1"}), limited({"cpu": 3})]},
        {"initContainers": [running({"cpu": 9})]},
        {"overhead": {"cpu": "250m"}},
        {"resources": {"requests": {"cpu": 7}}},
        {"nodeSelector": {"joulie.io/power-profile": "eco"}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "joulie.io/power-profile", "operator": "NotIn", "values": ["eco"]}
            ]}]
        }}}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["n1"]}
            ]}]
        }}}},
        {"priorityClassName": "system-node-critical", "priority": 2_000_001_000},
        {"priorityClassName": "system-node-critical"},
        {"priority": 2_000_000_001},
        {"nodeName": "n1"},
    ],
}  # fmt: skip
pods = st.builds(
    lambda who, metadata, spec: msgspec.convert(
        {
            "metadata": {"uid": who, "name": f"web-{who}"} | merged(metadata),
            "spec": merged(spec),
        },
        Pod,
    ),
    st.sampled_from("abc"),
    st.lists(st.sampled_from(FACETS["metadata"]), max_size=2),
    st.lists(st.sampled_from(FACETS["spec"]), max_size=3),
)


def merged(facets: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for facet in facets for name, value in facet.items()}


@given(st.lists(pods, min_size=1, max_size=6), st.sampled_from([None, "performance"]))
@settings(deadline=None, max_examples=300)
def test_what_a_pod_asks_for_is_its_own_though_it_is_looked_up_by_its_kind(
    asked: list[Pod], namespace_class: str | None
) -> None:
    for pod in asked:
        ask = ask_of(pod, namespace_class)

        wanted = demand_of(pod)
        assert (ask.uid, ask.name) == (pod.metadata.uid, pod.metadata.name)
        assert (ask.workload, ask.placement, ask.rule) == classify(pod, namespace_class)
        assert ask.exempt == exemption(pod)
        assert (ask.cpu_milli, ask.memory_bytes) == (wanted.cpu_milli, wanted.memory_bytes)
        assert ask.gpu_cards == wanted.gpu_cards
        assert ask.gpu == wish(pod)
        assert ask.gpu_milli == wanted.gpu_milli
        assert ask.team == (pod.metadata.labels or {}).get("joulie.io/team", "")


def wish(pod: Pod) -> GpuAsk:
    try:
        return gpu_ask_of(pod.metadata.annotations or {})
    except BadAnnotation as error:
        return GpuAsk(unreadable=error.name)


def test_pods_that_differ_by_who_they_are_are_understood_once() -> None:
    demand._cached_ask.cache_clear()

    for number in range(20):
        metadata = {"uid": str(number), "name": f"web-{number}", "annotations": {"at": str(number)}}
        told = {"metadata": metadata, "spec": {"nodeName": f"n{number}", "containers": []}}
        ask_of(msgspec.convert(told, Pod))

    assert demand._cached_ask.cache_info().misses == 1
