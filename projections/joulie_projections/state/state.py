"""What is believed, table by table. Values only; `folds` says how a fact changes them."""

from collections.abc import Mapping

import msgspec

from joulie_bus.events import HardwareDiscovered, PlanMade, PodAsk, WorkloadClass
from joulie_projections.pods.load import NO_LOAD, Load
from joulie_projections.state.cards import CardState

CLUSTER = "cluster"  # the only key of its table


# Without `gc`: what is frozen and plain is part of no cycle, and every sample makes some of these
# anew, so that the collector would walk the world again and again; and 16 bytes less each.
class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: int
    power_mw: int


class Arrival(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod that was bound too late for the newest reading to show what it draws."""

    uid: str
    at: int
    load: Load


class NodeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Everything believed about one node. The board turns it into a twin."""

    ordinal: int  # its row on every board, for as long as it is known
    at: int  # when the broker stored the newest fact about it
    uid: str = ""
    present: bool = False  # Kubernetes has shown it
    labels: dict[str, str] = {}
    ready: bool = False
    schedulable: bool = False
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    hardware: HardwareDiscovered | None = None
    profile: str = ""  # performance or eco, once a plan has said so
    draining: bool = False
    power_state: str = ""  # awake; "asleep" or "waking" once a plan has said so
    cpu_cap_pct: int | None = None
    gpu_cap_pct: int | None = None
    cpu_cap_mw_per_socket: int | None = None  # beside the percentage, where watts were planned
    gpu_cap_mw: int | None = None
    class_at: int = 0  # when a plan last changed its class: its profile, or that it drains
    caps_at: int = 0  # when a plan last changed its caps
    samples: tuple[Sample, ...] = ()  # oldest first, the last one is the newest reading
    source: str = ""
    provider: str = ""
    pods: int = 0  # bound and not finished
    performance_pods: int = 0  # without those that are exempt: a drain does not wait for them
    load: Load = NO_LOAD  # what these pods ask for
    arrivals: tuple[Arrival, ...] = ()  # those of them that the last reading may lack
    gpu_units: int = 0  # that pods ask for, where one is less than a card
    gpu_vendor: str = ""


class PodState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    pod: PodAsk
    node: str = ""  # bound there
    bound_at: int = 0
    finished: bool = False


class Life(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One incarnation of a producer: how far it counted, and which numbers have not come."""

    boot: str
    high: int
    missing: tuple[int, ...] = ()
    lost: int = 0  # holes too many to remember
    later: dict[str, int] = {}  # while there are holes: what came last about each thing


class ProducerState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a producer has sent, kept by its family of subjects and its name: `tel:sim-tel`."""

    lives: tuple[Life, ...]  # newest last
    retired: tuple[str, ...] = ()  # boots of older lives: what comes from them was sent before


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    rows: int = 0  # that boards have; a node takes the smallest free one
    free_rows: tuple[int, ...] = ()  # left by nodes that are gone, ascending
    planned_at: int = 0  # when the operator last looked, whether it changed anything or not
    plan: PlanMade | None = None
    claims_read: int = 0  # the newest message about claims that the world has in it
    producers: dict[str, int] = {}  # how many names each family of subjects has
    claims_digest: bytes = b""  # of that very message
    namespaces: dict[str, WorkloadClass] = {}  # those that give their pods a class


class FacilityReading(msgspec.Struct, frozen=True, array_like=True):
    at: int
    value: int


class FacilityState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last reading of each kind, however old."""

    ambient_mdeg: FacilityReading | None = None
    it_mw: FacilityReading | None = None
    cooling_mw: FacilityReading | None = None


State = NodeState | PodState | CardState | FacilityState | ProducerState | ClusterRow


class ClusterState:
    """Owned by one folder; changes only by `Draft.commit` and by rows that are already true."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.pods: dict[str, PodState] = {}
        self.gpus: dict[str, CardState] = {}  # by the card's uuid
        self.facilities: dict[str, FacilityState] = {}
        self.producers: dict[str, ProducerState] = {}
        self.cluster: dict[str, ClusterRow] = {}  # one row, once there is something to say
        # What rows gave when they were last hashed, for rows.changed_rows; no part of the state.
        self.fingerprints: dict[tuple[str, str], tuple[State, int]] = {}

    @property
    def planned_at(self) -> int:
        return self.cluster[CLUSTER].planned_at if self.cluster else 0

    @property
    def claims_read(self) -> int:
        return self.cluster[CLUSTER].claims_read if self.cluster else 0

    @property
    def claims(self) -> tuple[int, bytes]:
        """The newest message about claims that was folded: its sequence and its digest."""
        cluster = self.cluster.get(CLUSTER)
        return (cluster.claims_read, cluster.claims_digest) if cluster else (0, b"")

    @property
    def namespaces(self) -> Mapping[str, WorkloadClass]:
        return self.cluster[CLUSTER].namespaces if self.cluster else {}
