"""Binding: cards claimed by compare-and-set, then one Binding that names them; every way to fail.

Over a real broker, a real projector and an API server that answers as recorded.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, full, node_seen, producer, refusals, until
from bus_kit.cards import device
from joulie_bus.events import Fact, GpuSeen, PodBound, PodPending
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_extender.binding.bind import Bindings, BindTimeouts
from joulie_extender.binding.claim_log import ClaimLog
from joulie_extender.binding.claim_reconciler import ClaimReconciler
from joulie_extender.binding.kubernetes_binding import KubeBinder
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.fit import GpuVerdict, gpu_verdicts
from joulie_extender.protocol.kube_scheduler import Binding
from joulie_projections.decision_log.heads import Signer
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.view.view import View
from kube_api import ApiServer, Fault
from kube_builders import articles_pod
from kube_requests import Asked

pytestmark = pytest.mark.anyio
A100 = "NVIDIA-A100-SXM4-40GB"
PATIENCE = BindTimeouts(bind_s=1.5, claim_s=3)


class Place(NamedTuple):
    """What a replica lives in."""

    api: ApiServer
    bus: JetStreamLog
    view: View
    binder: KubeBinder
    tell: Callable[..., Any]

    def replica(self, name: str = "r0", patience: BindTimeouts = PATIENCE) -> Bindings:
        claim_log = ClaimLog(self.bus, CLUSTER, self.view, name)
        return Bindings(self.view, claim_log, self.binder, Weights(), time.time_ns, patience)

    def claim_reconciler(self) -> ClaimReconciler:
        claim_log = ClaimLog(self.bus, CLUSTER, self.view, "caretaker")
        return ClaimReconciler(self.view, claim_log, self.binder, time.time_ns, grace_s=0.1)

    def node_of(self, name: str) -> str:
        node: str = self.api.all("pods")[name]["spec"].get("nodeName", "")
        return node

    def named(self, name: str) -> str:
        """The cards that its Binding named."""
        notes = self.api.all("pods")[name]["metadata"].get("annotations", {})
        found: str = notes.get("joulie.io/gpus", "")
        return found

    def held(self) -> dict[str, list[str]]:
        """Which pods have claimed each card."""
        return {
            uuid: sorted(card.claims) for uuid, card in sorted(self.view.cluster_state.gpus.items())
        }


async def said_so_far(bus: JetStreamLog) -> int:
    """By all, claims of replicas among it: where a view is that knows all of it."""
    return sum([(await bus.state(stream)).last for stream in MERGE_ORDER])


@pytest.fixture
async def place(
    bus: JetStreamLog, writer: Engine, database_file: Path, tmp_path: Path
) -> AsyncGenerator[Place, None]:
    projector = Projector(bus, CLUSTER, writer, Signer.of(tmp_path / "key"), ProjectorSettings())
    engine, says = database.reader(database_file), producer("operator-obs")
    async with (
        background(projector.run(), "projector"),
        View.open(bus, engine, CLUSTER) as view,
        ApiServer().listening() as api,
        KubeBinder.of(str(api.kubeconfig(tmp_path))) as binder,
    ):
        await view.wait_ready(60)

        async def tell(*facts: Fact) -> None:
            await bus.publish([says.stamp(fact) for fact in facts])
            await view.wait_for(await said_so_far(bus), 60)

        yield Place(api, bus, view, binder, tell)
    engine.dispose()


async def waiting(place: Place, name: str = "training-job-resnet50", **notes: str) -> Binding:
    """A pod that exists, is seen, and for which kube-scheduler has chosen n1."""
    made = place.api.put("pods", articles_pod(name, A100, **notes), "default")
    await place.tell(PodPending(pod=ask_of(msgspec.convert(made, Pod))))
    return Binding(pod_name=name, pod_uid=made["metadata"]["uid"], node="n1")


async def cards(place: Place, *uuids: str, node: str = "n1") -> None:
    seen = [GpuSeen(uuid=uuid, node=node, model=A100, total_mb=40_960) for uuid in uuids]
    await place.tell(node_seen(node), *seen)


async def is_bound(place: Place, asked: Binding) -> None:
    """What a watch would say."""
    pod = ask_of(msgspec.convert(place.api.all("pods")[asked.pod_name], Pod))
    await place.tell(PodBound(pod=pod, node=place.node_of(asked.pod_name)))


def passes(place: Place, asked: Binding) -> bool:
    """The filter, for the node that kube-scheduler has chosen."""
    twin_columns, pod = (
        place.view.snapshot().twin_columns,
        place.view.cluster_state.pods[asked.pod_uid].pod,
    )
    row = np.array([twin_columns.rows[asked.node]])
    return bool(gpu_verdicts(pod, twin_columns, row, ())[0] == GpuVerdict.PASSED)


def binding(asked: Asked) -> bool:
    return asked.resource == "pods/binding"


@pytest.mark.parametrize("claims", [False, True], ids=["extended resource", "claim"])
async def test_a_pod_gets_its_node_without_a_claim_where_kube_scheduler_gives_out_cards(
    place: Place, *, claims: bool
) -> None:
    await place.tell(node_seen("n1"), device("g1", "n1", "another"))
    made = articles_pod("training", "H100")
    if claims:
        made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
        del made["spec"]["containers"][0]["resources"]
    made = place.api.put("pods", made, "default")
    await place.tell(PodPending(pod=ask_of(msgspec.convert(made, Pod))))
    asked = Binding(pod_name="training", pod_uid=made["metadata"]["uid"], node="n1")

    told = await place.replica().bind(asked)

    assert (told.outcome, told.error, told.cards) == ("bound", "", [])
    assert (place.node_of("training"), place.named("training")) == ("n1", "")
    assert place.held() == {"g1": []}


async def test_the_articles_own_pod_gets_its_card_and_its_node_in_one_write(place: Place) -> None:
    await cards(place, "g1")
    asked = await waiting(place)

    decided = await place.replica().bind(asked)

    assert (decided.outcome, decided.error, decided.cards) == ("bound", "", ["g1"])
    assert (place.node_of(asked.pod_name), place.named(asked.pod_name)) == ("n1", "g1")
    await until(lambda: place.held() == {"g1": [asked.pod_uid]})


async def test_edge_case_2_a_race_two_pods_of_two_replicas_and_one_card(place: Place) -> None:
    await cards(place, "g1")
    one, two = await waiting(place, "p1"), await waiting(place, "p2")

    both = await asyncio.gather(place.replica("r0").bind(one), place.replica("r1").bind(two))

    assert sorted(each.outcome for each in both) == ["bound", "lost-race"]
    loser = next(each for each in both if each.outcome == "lost-race")
    assert loser.error == "the node has not the cards any more that the pod asks for"
    assert place.node_of(loser.name) == ""


async def test_edge_case_2_a_race_both_pods_pass_the_filter_until_one_has_the_card(
    place: Place,
) -> None:
    await cards(place, "g1")
    one, two = await waiting(place, "p1"), await waiting(place, "p2")
    before = [passes(place, one), passes(place, two)]

    await place.replica().bind(one)

    await until(lambda: not passes(place, two))
    assert before == [True, True]
    assert passes(place, one), "asked again, its own claim is not in its way"


async def test_many_pods_at_once_get_as_many_cards_as_there_are(place: Place) -> None:
    await cards(place, *(f"g{number}" for number in range(8)))
    asked = [await waiting(place, f"p{number}") for number in range(12)]
    replicas = [place.replica(f"r{number}") for number in range(3)]

    decided = await asyncio.gather(
        *(replicas[number % 3].bind(each) for number, each in enumerate(asked))
    )
    # kube-scheduler tries a pod again whose bind failed: in a race, or too slowly.
    failed = [pod for pod, each in zip(asked, decided, strict=True) if each.error]
    decided_again = [await replicas[0].bind(pod) for pod in failed]

    every = [*decided, *decided_again]
    given = [each.cards[0] for each in every if each.outcome == "bound"]
    assert (len(given), len(set(given))) == (8, 8)
    assert {each.outcome for each in every if each.error} <= {"lost-race", "failed"}


async def test_a_pod_without_an_annotation_is_bound_without_cards(place: Place) -> None:
    """It comes because of managedResources."""
    await place.tell(node_seen("n1"))
    pod = articles_pod("plain", A100)
    pod["metadata"]["annotations"] = {}
    made = place.api.put("pods", pod, "default")

    decided = await place.replica().bind(
        Binding(pod_name="plain", pod_uid=made["metadata"]["uid"], node="n1")
    )

    assert (decided.outcome, decided.cards) == ("bound", [])
    assert (place.node_of("plain"), place.named("plain")) == ("n1", "")


async def test_nothing_is_bound_to_a_node_that_is_not_there(place: Place) -> None:
    asked = await waiting(place)

    decided = await place.replica().bind(asked)

    assert (decided.outcome, decided.error) == ("failed", "the node is not there any more")
    assert not any(binding(each) for each in place.api.asked)


async def test_a_conflict_because_the_pod_is_where_it_shall_be_is_a_success(place: Place) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    elsewhere = place.api.objects
    elsewhere.bind("default", asked.pod_name, {"target": {"name": "n1"}})

    decided = await place.replica().bind(asked)

    assert decided.error == ""
    await until(lambda: place.held() == {"g1": []})  # that Binding names no card


async def test_a_conflict_because_the_pod_is_elsewhere_gives_the_card_back(place: Place) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    place.api.objects.bind("default", asked.pod_name, {"target": {"name": "n2"}})

    decided = await place.replica().bind(asked)

    assert decided.error == "the pod is bound to another node already"
    await until(lambda: place.held() == {"g1": []})


async def test_a_conflict_because_the_name_is_another_pods_gives_the_card_back(
    place: Place,
) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    place.api.delete("pods", asked.pod_name, "default")
    place.api.put("pods", articles_pod(asked.pod_name, A100), "default")

    decided = await place.replica().bind(asked)

    assert decided.error == "the pod is not there any more"
    assert place.node_of(asked.pod_name) == ""
    await until(lambda: place.held() == {"g1": []})


async def test_a_pod_that_is_gone_gives_the_card_back(place: Place) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    place.api.delete("pods", asked.pod_name, "default")

    decided = await place.replica().bind(asked)

    assert decided.error == "the pod is not there any more"
    await until(lambda: place.held() == {"g1": []})


async def test_a_refusal_gives_the_card_back_and_says_why(place: Place) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    place.api.faults.append(Fault(binding, 403, "Forbidden"))

    decided = await place.replica().bind(asked)

    assert decided.error.startswith("the API server refused the Binding: ")
    await until(lambda: place.held() == {"g1": []})


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_short_outage_of_the_api_server_is_waited_out(place: Place, status: int) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    place.api.faults.append(Fault(binding, status, "Fault", times=2))

    assert (await place.replica().bind(asked)).error == ""


async def test_edge_case_1_an_outage_ends_in_an_error_in_time_and_the_claim_lapses(
    place: Place,
) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    place.api.faults.append(Fault(binding, 500, "Fault", times=1000))

    decided = await place.replica().bind(asked)

    assert decided.error == "the time of a binding was over before it was done"
    assert place.held() == {"g1": [asked.pod_uid]}
    claim_reconciler = place.claim_reconciler()
    async with background(claim_reconciler.run(), "claims"):
        await until(lambda: place.held() == {"g1": []})


async def test_a_success_that_was_answered_too_late_is_found_by_the_next_try(place: Place) -> None:
    await cards(place, "g1", "g2")
    asked = await waiting(place)
    made = place.api.objects.bind

    def made_and_broken(namespace: str, name: str, body: dict[str, Any]) -> None:
        place.api.objects.bind = made  # type: ignore[method-assign]
        made(namespace, name, body)
        raise ConnectionResetError

    place.api.objects.bind = made_and_broken  # type: ignore[method-assign]
    decided = await place.replica().bind(asked)

    assert decided.error == ""
    assert [place.named(asked.pod_name)] == decided.cards


async def test_another_try_of_the_same_pod_takes_its_claim_over(place: Place) -> None:
    await cards(place, "g1", "g2")
    asked = await waiting(place)
    place.api.faults.append(Fault(binding, 500, "Fault", times=1000))
    first = await place.replica("r0").bind(asked)
    place.api.faults.clear()

    again = await place.replica("r1").bind(asked)

    assert (first.outcome, again.outcome, again.cards) == ("failed", "bound", first.cards)
    await until(lambda: sorted(map(len, place.held().values())) == [0, 1])


async def test_another_node_for_the_same_pod_leaves_the_first_card(place: Place) -> None:
    await cards(place, "g1")
    await cards(place, "g2", node="n2")
    asked = await waiting(place)
    place.api.faults.append(Fault(binding, 500, "Fault", times=1000))
    await place.replica().bind(asked)
    place.api.faults.clear()

    elsewhere = Binding(pod_name=asked.pod_name, pod_uid=asked.pod_uid, node="n2")
    again = await place.replica().bind(elsewhere)

    assert again.cards == ["g2"]
    await until(lambda: place.held() == {"g1": [], "g2": [asked.pod_uid]})


async def test_an_annotation_that_cannot_be_read_is_the_answer(place: Place) -> None:
    await cards(place, "g1")
    asked = await waiting(place, **{"joulie.io/gpu-topology": "ring"})

    decided = await place.replica().bind(asked)

    assert decided.error == (
        "an annotation of the pod about GPUs cannot be read: joulie.io/gpu-topology"
    )


async def test_a_claim_is_confirmed_when_its_pod_is_seen_bound(place: Place) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    await place.replica().bind(asked)
    await is_bound(place, asked)

    async with background(place.claim_reconciler().run(), "claims"):
        await until(lambda: place.view.cluster_state.gpus["g1"].claims[asked.pod_uid].confirmed)


async def test_a_watch_that_lags_costs_no_running_pod_its_card(place: Place) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    await place.replica(patience=BindTimeouts(1.5, 1)).bind(asked)
    looked = len(place.api.asked)

    async with background(place.claim_reconciler().run(), "claims"):
        await until(lambda: len(place.api.asked) > looked + 2)

    assert place.held() == {"g1": [asked.pod_uid]}


async def test_while_the_stream_of_claims_is_full_nothing_is_bound_and_then_it_is(
    place: Place, connection: Connection
) -> None:
    await cards(place, "g1")
    asked, before = await waiting(place), refusals("claims")
    async with full(connection, Stream.CLAIM):
        refused = await place.replica().bind(asked)
    bound = await place.replica().bind(asked)

    why = "the claims on cards cannot be written right now"
    assert (refused.outcome, refused.error, refusals("claims")) == ("failed", why, before + 1)
    assert (bound.outcome, bound.cards) == ("bound", ["g1"])


async def test_a_claim_reconciler_outlives_a_full_stream_of_claims_and_tends_afterwards(
    place: Place, connection: Connection
) -> None:
    await cards(place, "g1")
    asked = await waiting(place)
    await place.replica().bind(asked)
    await is_bound(place, asked)
    before = refusals("claims")
    async with background(place.claim_reconciler().run(), "caretaker") as tending:
        async with full(connection, Stream.CLAIM):
            await until(lambda: refusals("claims") >= before + 2)
            assert not tending.done()
        claims = place.view.cluster_state.gpus["g1"].claims
        await until(lambda: place.view.cluster_state.gpus["g1"].claims[asked.pod_uid].confirmed)
    assert not claims[asked.pod_uid].confirmed
