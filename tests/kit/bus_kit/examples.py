"""One example of every event type."""

from typing import TypeVar

from bus_kit.cards import claim, confirmed, released
from bus_kit.clock import NOON
from bus_kit.grid import intensity, price
from bus_kit.nodes import hardware, inventory, node_seen
from bus_kit.plans import caps, completed, draining, eco
from bus_kit.pods import ask
from joulie_bus.events import (
    AnyEvent,
    Basis,
    BindDecided,
    Candidates,
    CapsApplied,
    CapsMeasured,
    CapsRefused,
    CapsSettable,
    ContainerRequest,
    DecisionsDropped,
    DeviceClaim,
    DeviceGone,
    DevicesAsked,
    DeviceSeen,
    EvictionOrdered,
    FacilityPolled,
    FallbackAnswered,
    FilterDecided,
    GpuGone,
    GpuSeen,
    NamespaceSeen,
    NodeGone,
    OutcomeSeen,
    PlacementClosed,
    PlacementOpened,
    PlanMade,
    PodAsk,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    PodsUsed,
    PodUse,
    PreemptDecided,
    PrioritizeDecided,
    Promise,
    PromiseKey,
    Resized,
    ResizeOrdered,
    ResizeRefused,
    SettingsDeclared,
    SleepOrdered,
    StateSetBack,
    TargetSet,
    TelemetrySampled,
    Terms,
    UseBasis,
    WakeOrdered,
)

E = TypeVar("E", bound=AnyEvent)


def example_of(kind: type[E], node: str = "n1", uid: str = "pod-1", _: int = 0) -> E:
    return next(event for event in one_of_each(node, uid) if isinstance(event, kind))


def one_of_each(node: str = "n1", uid: str = "pod-1") -> list[AnyEvent]:
    """An example of every event type."""
    pod = ask(uid, gpus=0.5)
    return [
        *_nodes_and_cards(node, uid),
        *_devices(node, uid),
        *_pods(pod, node),
        *_plan(node),
        *_resizes(node, uid),
        claim("GPU-5ab1", uid, node=node),
        confirmed("GPU-5ab1", uid),
        released("GPU-5ab1", uid),
        SettingsDeclared(settings="s1", code="0.1.0", values={"neutral": 50.0, "memory": True}),
        *_answers(pod, node),
        *_aftermath(node, uid),
    ]


def _of_agents(node: str) -> list[AnyEvent]:
    return [
        TelemetrySampled(
            node=node,
            power_mw=412_500,
            card_mw={"GPU-5ab1": 68_250},
            min_mw=398_000,
            mean_mw=405_250,
            max_mw=431_000,
            counted_from=NOON,
            energy_uj=4_052_500_000,
            card_uj=(682_500_000,),
            pod_uj={"pod-1": 1_317_000_000},
            late_ms=1500,
        ),
        inventory(node),
        CapsApplied(node=node, plan="p1", cpu_mw_per_socket=210_000, gpu_mw=420_000),
        CapsRefused(node=node, plan="p1", because="nvml/GPU-5ab1: another program has set it"),
        PodsUsed(
            node=node,
            source="cgroup-v2",
            pods=(PodUse(b"pod-1", 60, 412, 1_310, 1_402, cpu_wait=17, memory_wait=0, io_wait=3),),
        ),
        CapsSettable(node=node, cpu=True, because="the cards of this node have no such limit"),
    ]


def _nodes_and_cards(node: str, uid: str) -> list[AnyEvent]:
    return [
        *_of_agents(node),
        node_seen(node, gpus=8, power_profile="eco"),
        NodeGone(node=node),
        hardware(node, gpus=8),
        FacilityPolled(facility="hall-1", ambient_mdeg=24_500, it_mw=30_000_000),
        price(0.25, ends=NOON + 3_600_000_000_000),
        intensity(302.5, estimated=True),
        TargetSet(
            target="evening",
            power_mw=400_000_000,
            feed="a",
            starts_at=NOON,
            ends_at=NOON + 7_200_000_000_000,
            because="demand response",
        ),
        CapsMeasured(
            workload="standard",
            low_permille=-109,
            mid_permille=-71,
            high_permille=-32,
            capped_pods=412,
            other_pods=388,
            to_ms=NOON // 1_000_000,
        ),
        GpuSeen(
            uuid="GPU-5ab1",
            node=node,
            model="NVIDIA H100 SXM5",
            total_mb=81_559,
            allocated_mb=20_000,
            nvlink_group="0",
            owner=uid,
            source="agent",
        ),
        GpuGone(uuid="GPU-5ab1"),
    ]


def _devices(node: str, uid: str) -> list[AnyEvent]:
    return [
        DeviceSeen(
            card="GPU-5ab1",
            node=node,
            pool=f"gpu.nvidia.com/{node}",
            model="NVIDIA H100 SXM5",
            total_mb=81_559,
            taint="gpu.nvidia.com/xid=79",
            claims=(
                DeviceClaim(uid="c1", namespace="team", name="train-gpu", pods=(uid,), milli=500),
            ),
        ),
        DeviceGone(card="GPU-5ab1"),
        DevicesAsked(by="template", namespace="team", name="eight", gpus=8),
    ]


def _pods(pod: PodAsk, node: str) -> list[AnyEvent]:
    return [
        NamespaceSeen(namespace="team", workload="performance"),
        PodPending(pod=pod),
        PodBound(pod=pod, node=node),
        PodFinished(uid=pod.uid),
        PodGone(uid=pod.uid),
    ]


def _plan(node: str) -> list[AnyEvent]:
    return [
        PlanMade(
            plan="p",
            policy="static",
            view=7,
            nodes=2,
            performance=1,
            changes=1,
            inputs={"share": 0.5},
        ),
        eco(node),
        draining(node),
        caps(node, cpu=60),
        completed(node),
        SleepOrdered(plan="p", node=node, because="nothing runs here"),
        WakeOrdered(plan="p", node=node, because="arrivals are forecast"),
        EvictionOrdered(plan="p", node=node, because="its pods fit elsewhere"),
        PlacementClosed(plan="p", node=node, because="the power target is not met by caps"),
        PlacementOpened(plan="p", node=node, because="the power target is met"),
    ]


def _resizes(node: str, uid: str) -> list[AnyEvent]:
    pod = f"team/{uid}"
    large, small = (ContainerRequest("c", cpu, 4 << 30) for cpu in (4000, 1500))
    use = UseBasis(
        seconds=1_209_600,
        history_s=1_209_600,
        cpu_milli_s=1_209_600_000,
        p95_milli=1471,
        position=4711,
    )
    return [
        ResizeOrdered(
            node=node,
            uid=uid,
            pod=pod,
            change="lower",
            original=(large,),
            before=(large,),
            after=(small,),
            use=use,
            because="it uses less than it requests",
        ),
        Resized(node=node, uid=uid, pod=pod, change="lower", after=(small,)),
        ResizeRefused(node=node, uid=uid, pod=pod, reason="qos", because="its class would change"),
    ]


BASIS = Basis(view=7, view_age_ms=3, now=NOON, settings="s1")
CANDIDATES = Candidates(ordinals=b"\x00\x00\x00\x00\xff\xff\xff\xff", strangers=["new"])


def _answers(pod: PodAsk, node: str) -> list[AnyEvent]:
    return [
        FilterDecided(
            pod=pod, basis=BASIS, candidates=CANDIDATES, verdicts=b"\x00\x02", reason="eco"
        ),
        PrioritizeDecided(
            pod=pod,
            basis=BASIS,
            candidates=CANDIDATES,
            scores=b"\x29\x00\x32\x00",
            terms_digest=bytes(32),
            cluster_trend_w_per_min=12.5,
            perf_pressure=3.25,
            top=[_terms(node)],
        ),
        PreemptDecided(pod=pod, basis=BASIS, candidates=CANDIDATES, verdicts=b"\x00\x02"),
    ]


def _terms(node: str) -> Terms:
    return Terms(
        node=node,
        score=41.25,
        headroom=50.5,
        cooling=20.0,
        trend=-1.5,
        bonus=0.0,
        pressure=0.0,
        draining=0.0,
        marginal_w=42.0,
        source="kepler",
    )


def _aftermath(node: str, uid: str) -> list[AnyEvent]:
    return [
        _fallback(uid),
        DecisionsDropped(count=3, why="No space left on device", promised=1),
        PromiseKey(public=bytes(32), last="extender-0:b0:41", covers=bytes(32)),
        Promise(last="extender-0:b1:7", covers=bytes(32), at=1, signature=bytes(64)),
        BindDecided(
            pod_uid=uid,
            namespace="team",
            name=uid,
            node=node,
            basis=BASIS,
            outcome="lost-race",
            cards=["GPU-5ab1"],
            error="another replica was first",
        ),
        OutcomeSeen(
            pod_uid=uid,
            namespace="team",
            name=uid,
            node=node,
            decision="extender-0:b1:7",
            rank=2,
            score=41,
            regret=9,
        ),
        StateSetBack(incarnation="i2", before="i1", position=4711),
    ]


def _fallback(uid: str) -> FallbackAnswered:
    return FallbackAnswered(
        pod_uid=uid,
        namespace="team",
        name=uid,
        verb="filter",
        why="overdue",
        answer="open",
        candidates=2,
        basis=BASIS,
    )
