"""Facts from the objects of DRA: cards with their holders, and what claims ask for.

The facts follow from the objects that are there, so their order makes no difference. An object that
changes touches cards, nodes, claims and pods; the facts about these are compared with those that
were published.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.events import (
    DeviceClaim,
    DeviceGone,
    DeviceRequester,
    DevicesAsked,
    DeviceSeen,
    Fact,
    PodAsk,
)
from joulie_bus.events.bounds import MOST_CARDS, WORD
from joulie_operator.facts.device_claims import (
    Held,
    driver_asked,
    driver_of_class,
    gpus_asked,
    held_by,
    is_gpu_class,
    is_named_by_pods,
    pods_of,
    pools_of,
    require_readable,
    share_of,
)
from joulie_operator.facts.device_pools import (
    CARD_MILLI,
    Device,
    DevicePools,
    PoolKey,
    TaintRules,
)
from joulie_operator.resources.device_objects import (
    ClaimSpec,
    DeviceClass,
    DeviceTaintRule,
    NamespacedMeta,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from joulie_projections.pods.devices import claims_of, with_devices
from joulie_projections.pods.kubernetes_pod import ClaimStatus, Pod
from joulie_projections.state.state import ASKED, ClusterState

Named = tuple[str, str]  # a namespace, and "claim/NAME" or "template/NAME"


class CardsOnNode(NamedTuple):
    model: str
    cards: int


class Touched:
    """What changed objects are about."""

    def __init__(self) -> None:
        self.cards: set[str] = set()
        self.nodes: set[str] = set()
        self.asked: set[Named] = set()
        self.pods: set[str] = set()

    def add(self, other: "Touched") -> None:
        self.cards |= other.cards
        self.nodes |= other.nodes
        self.asked |= other.asked
        self.pods |= other.pods


class DeviceObjects:
    """The objects of DRA that are there, and the facts about them."""

    def __init__(self) -> None:
        self.pools = DevicePools()
        self.taint_rules = TaintRules()
        self.touched = Touched()
        self._devices: dict[PoolKey, Mapping[str, Device]] = {}
        self._cards: dict[str, dict[PoolKey, Device]] = defaultdict(dict)
        self._of_node: dict[str, dict[str, str]] = defaultdict(dict)  # models by card
        self._claims: dict[str, ResourceClaim] = {}
        self._by_name: dict[Named, str] = {}  # uids of claims
        self._held: dict[str, list[Held]] = {}  # by claim
        self._holders: dict[str, dict[str, Held]] = defaultdict(dict)  # by card and claim
        self._users: dict[PoolKey, set[str]] = defaultdict(set)  # claims by pool
        self._specs: dict[Named, ClaimSpec] = {}
        self._classes: dict[str, bool] = {}
        self._drivers: dict[str, str] = {}  # by class: the driver of which it takes each device
        self._pods: dict[str, Pod] = {}  # those with claims
        self._naming: dict[Named, set[str]] = defaultdict(set)  # pods by what they name

    def take_touched(self) -> Touched:
        touched, self.touched = self.touched, Touched()
        return touched

    # --- objects ------------------------------------------------------------------------------

    def put_slice(self, seen: ResourceSlice) -> None:
        self._pool_changed(self.pools.put(seen))

    def drop_slice(self, name: str) -> None:
        self._pool_changed(self.pools.drop(name))

    def put_claim(self, seen: ResourceClaim) -> None:
        """Raises BadQuantity, and keeps nothing of such a claim."""
        require_readable(seen)
        meta = seen.metadata
        named = _named("claim", meta)
        former = self._by_name.get(named)
        if former is not None and former != meta.uid:
            self.drop_claim(former)
        self._forget_users(meta.uid)
        self._claims[meta.uid], self._by_name[named] = seen, meta.uid
        if is_named_by_pods(seen):
            self._put_spec(named, seen.spec)
        for pool in pools_of(seen):
            self._users[pool].add(meta.uid)
        self._hold(meta.uid, seen)
        self.touched.pods |= self._naming.get(named, set())

    def drop_claim(self, uid: str) -> None:
        self._forget_users(uid)
        seen = self._claims.pop(uid, None)
        if seen is None:
            return
        named = _named("claim", seen.metadata)
        if self._by_name.get(named) == uid:
            del self._by_name[named]
        self._drop_spec(named)
        self._hold(uid, None)
        self.touched.pods |= self._naming.get(named, set())

    def put_template(self, seen: ResourceClaimTemplate) -> None:
        self._put_spec(_named("template", seen.metadata), seen.spec.spec)

    def drop_template(self, named: Named) -> None:
        self._drop_spec(named)

    def put_class(self, seen: DeviceClass) -> None:
        self._classes[seen.metadata.name] = is_gpu_class(seen)
        self._drivers[seen.metadata.name] = driver_of_class(seen)
        self._classes_changed()

    def drop_class(self, name: str) -> None:
        self._classes.pop(name, None)
        self._drivers.pop(name, None)
        self._classes_changed()

    def put_taint_rule(self, seen: DeviceTaintRule) -> None:
        self.taint_rules.put(seen)
        self._taint_rules_changed()

    def drop_taint_rule(self, name: str) -> None:
        self.taint_rules.drop(name)
        self._taint_rules_changed()

    def claims(self) -> set[str]:
        return set(self._claims)

    def templates(self) -> set[Named]:
        return {named for named in self._specs if named[1].startswith("template/")}

    def classes(self) -> set[str]:
        return set(self._classes)

    # --- facts --------------------------------------------------------------------------------

    def cards(self) -> set[str]:
        return {card for by in (self._cards, self._holders) for card, found in by.items() if found}

    def card(self, name: str) -> DeviceSeen | None:
        """None if no driver publishes it and no claim has it."""
        holders = self._holders.get(name) or {}
        claims = tuple(holders[uid].claim for uid in sorted(holders))
        if by_pool := self._cards.get(name):
            pool, device = min(by_pool.items())
            return _seen(name, pool, _on_one_node(device, by_pool.values()), claims)
        if not claims:
            return None
        pool = next(iter(holders.values())).pool
        return DeviceSeen(card=name, pool="/".join(pool), claims=claims)

    def on_node(self, node: str) -> CardsOnNode | None:
        """None if the node never had cards of DRA."""
        found = self._of_node.get(node)
        if found is None:
            return None
        models = Counter(model for model in found.values() if model)
        model = min(models, key=lambda name: (-models[name], name), default="")
        return CardsOnNode(model, len(found))

    def asked(self, named: Named) -> int | None:
        spec = self._specs.get(named)
        found = gpus_asked(spec, self._classes) if spec else None
        return None if found is None else min(found, MOST_CARDS)

    def driver_asked(self, named: Named) -> str:
        """The driver of which each device will do; empty if the claim chooses among them."""
        spec = self._specs.get(named)
        return driver_asked(spec, self._drivers) if spec else ""

    def all_asked(self) -> set[Named]:
        return set(self._specs)

    # --- pods ---------------------------------------------------------------------------------

    def ask_with_devices(self, ask: PodAsk, pod: Pod) -> PodAsk:
        """The ask with the devices that its claims have, or ask for; the pod is remembered."""
        if not ask.devices.claims:
            return ask
        self._remember(ask, pod)
        made = {status.name: status.resource_claim_name for status in _statuses(pod)}
        names = [claim.name for claim in pod.spec.resource_claims or ()]
        kept, milli, given = list[str](), 0, list[str]()
        for name, claim in zip(names, claims_of(pod), strict=False):
            own = made.get(name) if claim.startswith("template/") else None
            object_name = f"claim/{own}" if own else claim
            found = self._of_pod(ask, claim, object_name, given)
            milli += found or 0
            kept += [] if found == 0 and self.asked((ask.namespace, claim)) == 0 else [claim]
        asked = with_devices(ask, tuple(kept), milli)
        return replace(asked, gpu=replace(asked.gpu, given=tuple(given) or asked.gpu.given))

    def pod(self, uid: str) -> Pod | None:
        return self._pods.get(uid)

    def forget_pod(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        for named in _names_in(pod) if pod else ():
            self._naming[named].discard(uid)

    def _of_pod(self, ask: PodAsk, claim: str, object_name: str, given: list[str]) -> int | None:
        """Thousandths of cards that count for the pod; None: not known."""
        uid = self._by_name.get((ask.namespace, object_name), "")
        seen, held = self._claims.get(uid), self._held.get(uid, [])
        if seen is None or not held:
            gpus = self.asked((ask.namespace, claim))
            return None if gpus is None else CARD_MILLI * gpus
        pods = pods_of(seen)
        if ask.uid in pods:
            given += [each.card for each in held]
        milli = sum(each.claim.milli for each in held)
        return share_of(ask.uid, pods, milli) if pods else milli

    def _remember(self, ask: PodAsk, pod: Pod) -> None:
        self.forget_pod(ask.uid)
        self._pods[ask.uid] = pod
        for named in _names_in(pod):
            self._naming[named].add(ask.uid)

    def _forget_users(self, uid: str) -> None:
        for pool in pools_of(self._claims[uid]) if uid in self._claims else ():
            self._users[pool].discard(uid)

    # --- changes ------------------------------------------------------------------------------

    def _pool_changed(self, key: PoolKey | None) -> None:
        if key is None:
            return
        before = self._devices.get(key, {})
        after = {
            name: self.taint_rules.applied(key, name, device)
            for name, device in self.pools.devices(key).items()
        }
        for device in before.values():
            self._cards[device.card].pop(key, None)
            self._of_node[device.node].pop(device.card, None)
        for device in after.values():
            known = self._cards[device.card].get(key)
            self._cards[device.card][key] = _keeping_taint(known, device)
            self._of_node[device.node][device.card] = device.model
        self._devices[key] = after
        for device in (*before.values(), *after.values()):
            self.touched.cards.add(device.card)
            self.touched.nodes.add(device.node)
        for uid in sorted(self._users.get(key, ())):
            seen = self._claims[uid]
            self._hold(uid, seen)
            self.touched.pods |= set(pods_of(seen)) & self._pods.keys()

    def _hold(self, uid: str, seen: ResourceClaim | None) -> None:
        for held in self._held.pop(uid, ()):
            self._holders[held.card].pop(uid, None)
            self.touched.cards.add(held.card)
        for held in held_by(seen, self._devices) if seen else ():
            self._held.setdefault(uid, []).append(held)
            self._holders[held.card][uid] = held
            self.touched.cards.add(held.card)
        if seen is not None:
            self.touched.pods |= set(pods_of(seen)) & self._pods.keys()

    def _put_spec(self, named: Named, spec: ClaimSpec) -> None:
        self._specs[named] = spec
        self._spec_changed(named)

    def _drop_spec(self, named: Named) -> None:
        if self._specs.pop(named, None) is not None:
            self._spec_changed(named)

    def _spec_changed(self, named: Named) -> None:
        self.touched.asked.add(named)
        self.touched.pods |= self._naming.get(named, set())

    def _taint_rules_changed(self) -> None:
        for key in sorted(self._devices):
            self._pool_changed(key)

    def _classes_changed(self) -> None:
        for named in self._specs:
            self._spec_changed(named)


def _on_one_node(device: Device, published: Iterable[Device]) -> Device:
    """A card that drivers publish for several nodes is on none of them: a node may publish slices
    of its own pools only, and with the UUID of any card."""
    nodes = sorted({each.node for each in published if each.node})
    if len(nodes) < 2:
        return device
    taint = f"published for several nodes: {', '.join(nodes)}"[:WORD]
    return device._replace(node="", taint=taint, slice_name="", place=0)


def _keeping_taint(known: Device | None, device: Device) -> Device:
    """A taint of one partition counts for the whole card."""
    return device if known is None or device.taint else device._replace(taint=known.taint)


def _seen(name: str, pool: PoolKey, device: Device, claims: tuple[DeviceClaim, ...]) -> DeviceSeen:
    return DeviceSeen(
        card=name,
        node=device.node,
        pool="/".join(pool),
        model=device.model,
        total_mb=device.card_mb,
        taint=device.taint,
        claims=claims,
        slice_name=device.slice_name if device.name else "",
        place=device.place,
        device=device.name if device.slice_name else "",
    )


def _named(by: DeviceRequester, meta: NamespacedMeta) -> Named:
    return meta.namespace, f"{by}/{meta.name}"


def _statuses(pod: Pod) -> Sequence[ClaimStatus]:
    return (pod.status.resource_claim_statuses if pod.status else None) or ()


def _names_in(pod: Pod) -> Iterator[Named]:
    """What the pod's claims are, are made of, and were made for it."""
    namespace = pod.metadata.namespace or "default"
    for claim in claims_of(pod):
        yield namespace, claim
    for status in _statuses(pod):
        if status.resource_claim_name:
            yield namespace, f"claim/{status.resource_claim_name}"


# --- facts that are compared ------------------------------------------------------------------


class CardKind:
    """The facts of cards, by their names."""

    def __init__(self, objects: DeviceObjects) -> None:
        self._objects = objects

    def key(self, seen: str, /) -> str:
        return seen

    def version(self, _: str, /) -> str:
        return ""  # the name is not the content

    def fact(self, seen: str, /) -> Fact | None:
        return self._objects.card(seen)

    def gone(self, key: str, /) -> DeviceGone:
        return DeviceGone(card=key)


class AskedKind:
    """What claims and templates ask for, by the keys of the facts."""

    def __init__(self, objects: DeviceObjects) -> None:
        self._objects = objects

    def key(self, seen: str, /) -> str:
        return seen

    def version(self, _: str, /) -> str:
        return ""

    def fact(self, seen: str, /) -> Fact | None:
        namespace, _, claim = seen.partition("/")
        gpus = self._objects.asked((namespace, claim))
        driver = self._objects.driver_asked((namespace, claim))
        return None if gpus is None else _asked(seen, gpus, driver)

    def gone(self, key: str, /) -> DevicesAsked:
        return _asked(key, None)


def _asked(key: str, gpus: int | None, driver: str = "") -> DevicesAsked:
    namespace, by, name = key.split("/", 2)
    requester: DeviceRequester = "claim" if by == "claim" else "template"
    return DevicesAsked(by=requester, namespace=namespace, name=name, gpus=gpus, driver=driver)


# --- facts that the log contains already ------------------------------------------------------


def logged_devices(cluster_state: ClusterState) -> dict[str, Fact | None]:
    return {name: card.device for name, card in cluster_state.gpus.items() if card.device}


def logged_asked(cluster_state: ClusterState) -> dict[str, Fact | None]:
    rows = {key.removeprefix(ASKED): row for key, row in cluster_state.cluster.items()}
    return {
        key: _asked(key, row.gpus_asked, row.driver_asked)
        for key, row in rows.items()
        if row.gpus_asked is not None
    }
