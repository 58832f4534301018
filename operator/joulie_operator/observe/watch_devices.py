"""Watches the objects of DRA, if the API server has them, and publishes the facts about them.

Joulie needs none of this: without the API, or without the right to read it, devices are unknown
and everything else is as before.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from joulie_bus.errors import KubernetesRefused
from joulie_bus.events import Fact
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.logging import get_logger
from joulie_operator.facts.devices import (
    AskedKind,
    CardKind,
    DeviceObjects,
    Touched,
    logged_asked,
    logged_devices,
)
from joulie_operator.facts.facts_from_objects import ChangeFilter, NodeFilter, PodFilter
from joulie_operator.facts.hardware_inventory import NodeHardwareFilter
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable
from joulie_operator.kube.served import allocates_in_order, served_version, taint_rule_version
from joulie_operator.observe.fact_messages import report_left_out, to_messages
from joulie_operator.observe.resource_watcher import Watcher, decoder_of
from joulie_operator.resources.device_objects import (
    CLAIMS,
    CLASSES,
    GROUP,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from joulie_projections.state.state import ClusterState

RETRY_S = 60.0  # the API may be switched on later, and the right be granted
UNREACHABLE_S = 2.0
LISTED_TIMEOUT_S = 10.0  # then facts are published without devices, and again with them
WINDOW = 500  # facts that are compared and published at once
KINDS = (CLASSES, TEMPLATES, SLICES, CLAIMS)
K = TypeVar("K")
log = get_logger("devices")


class _Due(NamedTuple):
    """What is compared with what was published."""

    by: ChangeFilter[Any]
    change: Callable[[str], Fact | None]
    key: str


class Filters(NamedTuple):
    """What is published about nodes and pods depends on devices, too."""

    nodes: NodeFilter
    hardware: NodeHardwareFilter
    pods: PodFilter


class DevicePublisher:
    """Publishes what changed once every kind has been listed: until then, holders are unknown."""

    def __init__(
        self,
        objects: DeviceObjects,
        filters: Filters,
        bus: Log,
        producer: Producer,
        state: ClusterState,
    ) -> None:
        self.objects = objects
        self.unlisted = {*KINDS, TAINT_RULES}
        self._filters = filters
        self._bus = bus
        self._producer = producer
        self._cards = ChangeFilter[str](CardKind(objects), logged_devices(state))
        self._asked = ChangeFilter[str](AskedKind(objects), logged_asked(state))
        self._is_first = True
        self._turn = asyncio.Lock()

    async def publish(self) -> None:
        """In windows: what a window says is compared and stored before the next one is looked at,
        so that neither the lease nor another watch waits for all cards of a large cluster.
        """
        async with self._turn:
            if self.unlisted:
                return
            touched = self.objects.take_touched()
            try:
                await self._publish_due(touched)
            except BaseException:
                self.objects.touched.add(touched)
                self._is_first = True  # everything is compared again
                raise

    async def _publish_due(self, touched: Touched) -> None:
        due = self._due(touched)
        for first in range(0, len(due), WINDOW):
            window = due[first : first + WINDOW]
            changes = ((each.by, each.change(each.key)) for each in window)
            await self._send([(by, fact) for by, fact in changes if fact is not None])
            await asyncio.sleep(0)
        if self._is_first:
            self._is_first = False
            filters = (self._cards, self._asked)
            await self._send([(by, fact) for by in filters for fact in by.missing()])

    async def _send(self, found: Sequence[tuple[ChangeFilter[Any], Fact]]) -> None:
        if not found:
            return
        try:
            await self._bus.publish(to_messages(self._producer, [fact for _, fact in found]))
        except BaseException:
            for by, fact in found:
                by.mark_unknown([fact])
            raise

    async def go_without(self, kind: str) -> None:
        """It cannot be read."""
        if kind in self.unlisted:
            self.unlisted.discard(kind)
            await self.publish()

    def _due(self, touched: Touched) -> list[_Due]:
        """Cards before the pods that hold them."""
        filters, cards, asked = self._filters, touched.cards, touched.asked
        if self._is_first:
            self._cards.begin_list()
            self._asked.begin_list()
            cards, asked = cards | self.objects.cards(), asked | self.objects.all_asked()
        keys, nodes = sorted("/".join(each) for each in asked), sorted(touched.nodes - {""})
        return [
            *(_Due(self._cards, self._cards.seen_or_gone, card) for card in sorted(cards)),
            *(_Due(filters.nodes, filters.nodes.renewed, node) for node in nodes),
            *(_Due(filters.hardware, filters.hardware.renewed, node) for node in nodes),
            *(_Due(self._asked, self._asked.seen_or_gone, key) for key in keys),
            *(_Due(filters.pods, filters.pods.renewed, uid) for uid in sorted(touched.pods)),
        ]


class _Kind(Generic[K], NamedTuple):
    """How the objects of a kind are put and dropped."""

    key: Callable[[K], Hashable]
    put: Callable[[K], None]
    drop: Callable[[Any], None]
    known: Callable[[], set[Any]]


class DeviceSink(Generic[K]):
    def __init__(self, name: str, kind: _Kind[K], publisher: DevicePublisher) -> None:
        self._name = name
        self._kind = kind
        self._publisher = publisher
        self._listed = set[Hashable]()

    def begin_list(self) -> None:
        self._listed = set()

    async def add_listed(self, objects: Sequence[K]) -> None:
        for each in objects:
            self._listed.add(self._kind.key(each))
            self._put(each)

    async def end_list(self) -> None:
        for key in sorted(self._kind.known() - self._listed):
            self._drop(key)
        self._publisher.unlisted.discard(self._name)
        await self._publisher.publish()

    async def apply_events(self, events: Sequence[tuple[str, K]]) -> None:
        for what, each in events:
            if what == "DELETED":
                self._drop(self._kind.key(each))
            else:
                self._listed.add(self._kind.key(each))
                self._put(each)
        await self._publisher.publish()

    def _put(self, each: K) -> None:
        with self._reported(self._kind.key(each)):
            self._kind.put(each)

    def _drop(self, key: Hashable) -> None:
        with self._reported(key):
            self._kind.drop(key)

    @contextlib.contextmanager
    def _reported(self, key: Hashable) -> Generator[None]:
        try:
            yield
        except Exception as error:  # any: one object must not block the others
            report_left_out(self._name, str(key), f"{type(error).__name__}: {error}")


class DeviceWatch:
    def __init__(self, api: ApiServer, publisher: DevicePublisher) -> None:
        self._api = api
        self._publisher = publisher
        self.known = asyncio.Event()  # every kind is listed, or cannot be read

    async def run(self) -> None:
        version = await self._readable_version()
        base = f"/apis/{GROUP}/{version}"
        async with asyncio.TaskGroup() as tasks:
            watchers = [*self._watchers(base)]
            for watcher in watchers:
                tasks.create_task(watcher.run())
            tasks.create_task(self._watch_taint_rules())
            for watcher in watchers:
                await watcher.watch_status.listed.wait()
            self.known.set()

    async def wait_known(self) -> None:
        """Nodes and pods are published with their devices at once, if these are known in time."""
        try:
            async with asyncio.timeout(LISTED_TIMEOUT_S):
                await self.known.wait()
        except TimeoutError:
            log.warning("devices_unknown", what="nodes and pods are published without them for now")

    async def _readable_version(self) -> str:
        """Waits until the API is there and may be read."""
        told = ""
        while True:
            pause_s = RETRY_S
            try:
                version = await served_version(self._api)
                why = "" if version else f"the API server has no known version of {GROUP}"
                for kind in KINDS if version else ():
                    await self._api.fetch(f"/apis/{GROUP}/{version}/{kind}", {"limit": "1"})
                if not why:
                    in_order = await allocates_in_order(self._api)
                    self._publisher.objects.pools.order(is_kept=in_order)
                    return version
            except KubernetesRefused as error:
                why = str(error)
            except ApiUnreachable as error:
                why, pause_s = str(error) or type(error).__name__, UNREACHABLE_S
            if why != told:
                log.info("devices_not_read", why=why, what="devices of DRA are not known")
                told = why
            if pause_s == RETRY_S:
                self.known.set()
            await asyncio.sleep(pause_s)

    async def _watch_taint_rules(self) -> None:
        """As soon as they are there and may be read."""
        told = ""
        while True:
            pause_s, why = RETRY_S, ""
            try:
                if version := await taint_rule_version(self._api):
                    break
            except KubernetesRefused as error:
                why = str(error)
            except ApiUnreachable:
                pause_s = UNREACHABLE_S
            if why != told:
                log.info("taint_rules_not_read", why=why, what="devices they taint count as free")
                told = why
            if pause_s == RETRY_S:
                await self._publisher.go_without(TAINT_RULES)
            await asyncio.sleep(pause_s)
        objects = self._publisher.objects
        kind = _Kind(
            _name, objects.put_taint_rule, objects.drop_taint_rule, objects.taint_rules.names
        )
        base = f"/apis/{GROUP}/{version}"
        await self._watcher(base, TAINT_RULES, DeviceTaintRule, kind).run()

    def _watchers(self, base: str) -> Sequence[Watcher[Any]]:
        objects = self._publisher.objects
        return (
            self._watcher(
                base,
                CLASSES,
                DeviceClass,
                _Kind(_name, objects.put_class, objects.drop_class, objects.classes),
            ),
            self._watcher(
                base,
                TEMPLATES,
                ResourceClaimTemplate,
                _Kind(_named, objects.put_template, objects.drop_template, objects.templates),
            ),
            self._watcher(
                base,
                SLICES,
                ResourceSlice,
                _Kind(_name, objects.put_slice, objects.drop_slice, objects.pools.names),
            ),
            self._watcher(
                base,
                CLAIMS,
                ResourceClaim,
                _Kind(_uid, objects.put_claim, objects.drop_claim, objects.claims),
            ),
        )

    def _watcher(self, base: str, name: str, shape: type[K], kind: _Kind[K]) -> Watcher[K]:
        sink = DeviceSink(name, kind, self._publisher)
        return Watcher(self._api, f"{base}/{name}", decoder_of(shape), sink)


def _name(each: DeviceClass | ResourceSlice | DeviceTaintRule) -> str:
    return each.metadata.name


def _named(each: ResourceClaimTemplate) -> tuple[str, str]:
    return each.metadata.namespace, f"template/{each.metadata.name}"


def _uid(each: ResourceClaim) -> str:
    return each.metadata.uid
