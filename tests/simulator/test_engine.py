from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import producer
from joulie_bus.events import (
    FacilityPolled,
    Fact,
    GpuSeen,
    HardwareDiscovered,
    NodeSeen,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
)
from joulie_bus.metering.reporter import Moment
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.fold.registry import evolve
from joulie_projections.hardware.catalog import with_catalog_figures
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from joulie_simulator.cluster.cluster import WAKE_S, SimCluster
from joulie_simulator.engine import MORNING_S, WAITING_LIMIT, Engine, Options, ask
from joulie_simulator.hardware.physics import Caps
from joulie_simulator.hardware.shapes import SHAPES
from joulie_simulator.meters import Meters
from joulie_simulator.workload.workload import Job, Workload


def engine_of(nodes: int = 20, seed: int = 1, **options: float) -> Engine:
    settings = Options(seed=seed)._replace(**options)  # type: ignore[arg-type]
    return Engine(SimCluster(nodes), Workload(seed, "run"), settings)


def job(uid: str = "u", cores: float = 1, gpus: int = 0, seconds: float = 10) -> Job:
    return Job(uid, uid, "team", "", cores, 1024, gpus, seconds, 0.5)


def placed(engine: Engine) -> list[Fact]:
    """Place all pending pods that fit, as kube-scheduler alone does."""
    facts: list[Fact] = []
    for _ in range(len(engine.waiting)):
        waiting = engine.waiting.popleft()
        names = engine.cluster.sample(waiting.job)
        if not names:
            engine.waiting.append(waiting)
            continue
        scores = engine.cluster.plugin_scores(names, waiting.job)
        facts += engine.bind(waiting.job, max(names, key=scores.__getitem__))
    return facts


def lived(engine: Engine, minutes: int) -> list[Fact]:
    """The facts of `minutes` minutes, in steps of ten seconds, with all readings."""
    facts, meters = engine.initial_facts(), Meters(1, 1.0)
    for step in range(minutes * 6):
        facts += engine.advance(MORNING_S + step * 10)
        facts += placed(engine)
        engine.cap((name, Caps(60, 60)) for name in list(engine.cluster.nodes)[: step % 9])
        moment = Moment(engine.now_s, round(engine.now_s * 1e9))
        facts += meters.readings(engine.sample(engine.cluster.nodes), moment)
        facts.append(engine.facility())
    return facts


def on_the_wire(facts: list[Fact]) -> list[bytes]:
    stamping = producer()
    return [stamping.stamp(fact).data for fact in facts]


@pytest.mark.long
def test_the_same_seed_gives_the_same_facts_byte_for_byte() -> None:
    first, second = (on_the_wire(lived(engine_of(), 20)) for _ in range(2))

    assert len(first) > 5_000
    assert first == second


def test_another_seed_gives_other_facts() -> None:
    assert on_the_wire(lived(engine_of(), 1)) != on_the_wire(lived(engine_of(seed=2), 1))


def test_the_length_of_steps_does_not_change_the_facts() -> None:
    often, seldom = engine_of(), engine_of()
    many = [fact for at in range(0, 600, 7) for fact in often.advance(MORNING_S + at)]
    many += often.advance(MORNING_S + 600)

    assert many == seldom.advance(MORNING_S + 600)


def test_the_initial_facts_have_nodes_hardware_and_cards() -> None:
    engine = engine_of(20)
    counted = Counter(type(fact) for fact in engine.initial_facts())

    cards = sum(node.shape.gpus for node in engine.cluster.nodes.values())
    assert counted == {NodeSeen: 20, HardwareDiscovered: 20, GpuSeen: cards}


def test_a_pod_lives_from_pending_to_gone() -> None:
    engine = engine_of(pods_per_s=1e-9)
    asked = job(gpus=1)
    name = engine.cluster.sample(asked)[0]
    started = engine.bind(asked, name)
    ended = engine.advance(MORNING_S + 10)

    card = engine.cluster.nodes[name].shape.card
    used_mb = engine.cluster.nodes[name].shape.used_mb(0)
    assert started == [PodBound(pod=ask(asked), node=name), card(name, 0, ["u"], used_mb)]
    assert ended == [PodFinished(uid="u"), PodGone(uid="u"), card(name, 0)]


def test_a_simulated_pod_requests_cards_by_the_resources_of_the_settings() -> None:
    cluster = SimCluster(20)
    options = Options(pods_per_s=1e-9, gpu_resources=("vendor.example/gpu",))
    engine, asked = Engine(cluster, Workload(1, "run"), options), job(gpus=1)

    started = engine.bind(asked, cluster.sample(asked)[0])[0]

    assert isinstance(started, PodBound)
    assert (started.pod.gpu_cards, ask(asked).gpu_cards) == (0, 1)


def test_models_have_the_names_of_the_catalog() -> None:
    for shape in SHAPES:
        found = shape.discovered("n")
        assert (
            found.figures.gpu_tflops
            == with_catalog_figures(found, shipped_catalog()).figures.gpu_tflops
        )
        assert (found.cpu_model, found.gpu_model) == (
            with_catalog_figures(found, shipped_catalog()).cpu_model,
            with_catalog_figures(found, shipped_catalog()).gpu_model,
        )


def test_capped_work_takes_longer() -> None:
    engine = engine_of(pods_per_s=1e-9)
    name = next(iter(engine.cluster.nodes))
    engine.bind(job(cores=192, seconds=100)._replace(utilisation=1.0), name)
    engine.cap([(name, Caps(50, None))])

    assert engine.advance(MORNING_S + 110) == []
    assert engine.advance(MORNING_S + 1100) != []


def test_pods_stay_pending_until_they_are_placed() -> None:
    engine = engine_of(pods_per_s=2)
    facts = engine.advance(MORNING_S + 60)

    assert {type(fact) for fact in facts} == {PodPending}
    assert [each.job.uid for each in engine.waiting] == [
        fact.pod.uid for fact in facts if isinstance(fact, PodPending)
    ]


def test_the_queue_is_bounded() -> None:
    engine = engine_of(pods_per_s=50)
    facts = engine.advance(MORNING_S + 60)

    assert len(engine.waiting) == len(facts) == WAITING_LIMIT


def test_the_facility_power_is_the_sum_of_its_nodes() -> None:
    engine = engine_of(3)
    engine.sample(engine.cluster.nodes)
    reported = engine.facility()

    watts = [node.watts(21.4) for node in engine.cluster.nodes.values()]
    assert isinstance(reported, FacilityPolled)
    assert reported.it_mw == pytest.approx(sum(watts) * 1000, rel=0.001)
    assert reported.cooling_mw == pytest.approx(sum(watts) * 1000 / 3, rel=0.02)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000))
def test_the_folded_state_equals_the_simulated_cluster(seed: int) -> None:
    engine = engine_of(10, seed, pods_per_s=0.5)
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    for number, fact in enumerate(lived(engine, 4)):
        evolve(draft, fact, number)
    draft.commit()

    running = {name: len(node.running) for name, node in engine.cluster.nodes.items()}
    assert {name: node.pods for name, node in cluster_state.nodes.items()} == running
    owned = {uuid for uuid, card in cluster_state.gpus.items() if card.owner or card.holder}
    used = {
        f"GPU-{name}-{at}"
        for name, node in engine.cluster.nodes.items()
        for at in set(range(node.shape.gpus)) - set(node.free_cards)
    }
    assert owned == used


def test_a_profile_becomes_a_label_that_is_published_once() -> None:
    engine = engine_of(2)
    name = next(iter(engine.cluster.nodes))
    reported = [engine.label([(name, profile)]) for profile in ("eco", "eco", "performance")]
    labels = [[fact.labels for fact in facts if isinstance(fact, NodeSeen)] for facts in reported]

    assert labels == [
        [{"joulie.io/managed": "true", "joulie.io/power-profile": "eco"}],
        [],
        [{"joulie.io/managed": "true", "joulie.io/power-profile": "performance"}],
    ]


def test_a_node_without_a_plan_has_no_profile_label() -> None:
    engine = engine_of(1)

    assert engine.label([(name, "") for name in engine.cluster.nodes]) == []


def test_an_empty_node_sleeps_and_takes_no_pods_until_it_is_awake_again() -> None:
    engine = engine_of(1)
    (name, node) = next(iter(engine.cluster.nodes.items()))
    idle_w = node.watts(20.0)

    (fell,) = engine.order_power([(name, True)])
    assert isinstance(fell, NodeSeen)
    assert (fell.ready, fell.schedulable) == (False, False)
    assert engine.cluster.sample(job()) == []
    assert node.watts(20.0) < idle_w / 5

    assert engine.order_power([(name, False)]) == []
    assert node.watts(20.0) == idle_w
    seen = [fact for fact in engine.advance(engine.now_s + WAKE_S) if isinstance(fact, NodeSeen)]
    assert [(fact.ready, fact.schedulable) for fact in seen] == [(True, True)]
    assert engine.cluster.sample(job()) == [name]


def test_a_node_with_jobs_is_cordoned_and_falls_asleep_when_they_have_ended() -> None:
    engine = engine_of(1, pods_per_s=1e-9)
    (name,) = engine.cluster.nodes
    engine.bind(job(), name)

    (seen,) = engine.order_power([(name, True)])

    assert isinstance(seen, NodeSeen)
    assert (seen.ready, seen.schedulable) == (True, False)
    assert engine.cluster.sample(job("another")) == []
    assert engine.order_power([(name, True)]) == []
    engine.advance(MORNING_S + 60)
    engine.order_power([(name, True)])
    assert engine.cluster.nodes[name].power == "asleep"


def test_a_node_that_was_to_become_empty_is_given_back() -> None:
    engine = engine_of(1)
    (name,) = engine.cluster.nodes
    engine.bind(job(), name)
    engine.order_power([(name, True)])

    (seen,) = engine.order_power([(name, False)])

    assert isinstance(seen, NodeSeen)
    assert (seen.ready, seen.schedulable) == (True, True)
    assert engine.cluster.sample(job("another")) == [name]


def test_a_pod_that_was_on_its_way_wakes_its_node() -> None:
    engine = engine_of(1)
    (name,) = engine.cluster.nodes
    engine.order_power([(name, True)])

    facts = engine.bind(job(), name)

    assert [type(fact) for fact in facts[:2]] == [NodeSeen, PodBound]
    assert engine.cluster.nodes[name].power == "awake"


def test_work_is_what_the_jobs_ask_for_wherever_and_however_fast_they_run() -> None:
    engines = [engine_of(pods_per_s=0.01), engine_of(pods_per_s=0.01)]
    engines[0].cluster.nodes["cpu-genoa-0000"].cap(Caps(cpu_pct=50), MORNING_S)
    for engine in engines:
        done = job("done", cores=2, seconds=100)
        engine.bind(done, "cpu-genoa-0000")
        engine.advance(MORNING_S + 1000)

    capped, free = (engine.achieved() for engine in engines)

    assert free.core_hours >= 2 * 100 / 3600
    assert (capped.core_hours, capped.work_kwh) == (free.core_hours, free.work_kwh)


def test_a_running_job_counts_for_the_part_that_is_done() -> None:
    engine = engine_of(pods_per_s=1e-9)
    engine.bind(job(cores=3, seconds=1000), "cpu-genoa-0000")

    engine.advance(MORNING_S + 250)

    done = engine.achieved()
    assert done.core_hours == pytest.approx(3 * 250 / 3600)
    assert done.work_kwh == pytest.approx(3 * 0.5 * 5.1 * 250 / 3.6e6)
    assert (done.pods.running, done.pods.finished) == (1, 0)


def test_a_pod_that_waits_counts_with_its_wait_until_now() -> None:
    engine = engine_of(pods_per_s=0.1)
    engine.advance(MORNING_S + 600)

    done = engine.achieved()

    assert done.pods.waiting == len(engine.waiting) > 0
    assert done.wait_p99_s > done.wait_p50_s > 0


def test_the_same_pods_arrive_wherever_they_are_placed() -> None:
    lazy, busy = engine_of(nodes=100, pods_per_s=0.2), engine_of(nodes=100, pods_per_s=0.2)
    arrived = []
    for engine, places in ((lazy, False), (busy, True)):
        facts: list[Fact] = []
        for step in range(120):
            facts += engine.advance(MORNING_S + 10 * step)
            if places:
                placed(engine)
        arrived.append([fact.pod for fact in facts if isinstance(fact, PodPending)])

    assert arrived[0] == arrived[1] != []


def test_the_cards_of_a_node_together_draw_what_its_power_says() -> None:
    engine = engine_of()
    name = next(name for name, node in engine.cluster.nodes.items() if node.shape.gpus == 8)
    engine.bind(job(gpus=2), name)
    node = engine.cluster.nodes[name]
    watts, cards = node.watts(22.0), node.card_watts()

    assert len(cards) == 8
    assert watts > sum(cards.values())
    idle = node.shape.cards.idle_w  # type: ignore[union-attr]
    assert sorted(each > idle for each in cards.values()) == [False] * 6 + [True] * 2
