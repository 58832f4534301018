"""The custom resources NodeTwin, NodeHardware and GPU.

`crds` generates CustomResourceDefinitions from these types; the watchers decode with them and the
applier encodes with them. Every field is optional, because other components write these objects,
too.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from joulie_bus.events import Profile
from joulie_bus.events.bounds import MOST_CARDS, MOST_MW, NAME, WORD, Bytes, CardMb, Uid

GROUP, GPU_GROUP, VERSION = "joulie.io", "gpu.mle.com", "v1alpha1"
MANAGER = "joulie-operator"  # the field manager of what the operator applies
AGENT_MANAGER = "joulie-agent"  # of the objects that are written for what agents found
ANNOTATION_MANAGER = "joulie-power"  # of the annotations for autoscalers
NODETWINS = f"/apis/{GROUP}/{VERSION}/nodetwins"
NODEHARDWARES = f"/apis/{GROUP}/{VERSION}/nodehardwares"
GPUS = f"/apis/{GPU_GROUP}/{VERSION}/gpus"

# Types of status fields. Other writers may use other values, and none of them is refused.
Score = Annotated[float, Meta(description="0 to 100")]
Pct = Annotated[float, Meta(ge=0, le=100)]
Watts = Annotated[float, Meta(ge=0)]
Number = Annotated[int, Meta(ge=0)]
# Fields that become part of a fact have the bounds of facts, enforced by the API server.
ObjectName = Annotated[str, Meta(min_length=1, max_length=NAME)]
CardName = Annotated[str, Meta(min_length=1, max_length=NAME, pattern=r"^[!-~]+$")]
ShortText = Annotated[str, Meta(max_length=WORD)]
Few = Annotated[int, Meta(ge=0, le=MOST_CARDS)]
HardwareWatts = Annotated[float, Meta(ge=0, le=MOST_MW / 1000)]


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A part of an object; defaults are not written. `OPEN`: the schema keeps unknown fields."""

    OPEN: ClassVar[bool] = False


class ManagedFields(Part, frozen=True, kw_only=True):
    manager: str = ""


class ObjectMeta(Part, frozen=True, kw_only=True):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    managed_fields: list[ManagedFields] | None = None

    def is_managed_by(self, manager: str) -> bool:
        return any(entry.manager == manager for entry in self.managed_fields or [])

    def only_managed_by(self, manager: str) -> "ObjectMeta":
        """Without other managers: a cache of thousands of objects keeps none of them."""
        ours = [entry for entry in self.managed_fields or [] if entry.manager == manager]
        return replace(self, managed_fields=ours[:1] or None)


# --- NodeTwin ---------------------------------------------------------------------------------


class CpuCap(Part, frozen=True, kw_only=True):
    """A missing field means no cap."""

    package_power_cap_pct_of_max: Annotated[
        Pct | None, Meta(description="Share of what the packages can draw")
    ] = None
    package_power_cap_watts: Annotated[
        Watts | None, Meta(description="Watts of each package (socket)")
    ] = None


class GpuPowerCap(Part, frozen=True, kw_only=True):
    scope: Literal["perGpu"] | None = None
    cap_pct_of_max: Annotated[Pct | None, Meta(description="Share of what a card can draw")] = None
    cap_watts_per_gpu: Annotated[Watts | None, Meta(description="Watts of each card")] = None


class GpuCap(Part, frozen=True, kw_only=True):
    power_cap: GpuPowerCap | None = None


class PolicyName(Part, frozen=True, kw_only=True):
    name: str = ""


class Scheduling(Part, frozen=True, kw_only=True):
    draining: Annotated[
        bool, Meta(description="Performance pods still run here; the caps wait until they are gone")
    ] = False


class NodeTwinSpec(Part, frozen=True, kw_only=True):
    """The desired state of the node. The operator writes it, the agent enforces it."""

    node_name: ObjectName
    profile: Profile | None = None
    cpu: CpuCap | None = None
    gpu: GpuCap | None = None
    policy: PolicyName | None = None
    scheduling: Scheduling | None = None


class PowerMeasurement(Part, frozen=True, kw_only=True):
    source: Annotated[str, Meta(description="kepler, utilization or static")] | None = None
    provider: str = ""
    measured_node_power_w: Watts | None = None
    node_capped_power_w: Watts | None = None
    node_tdp_w: Watts | None = None
    cpu_capped_power_w: Watts | None = None
    gpu_capped_power_w: Watts | None = None
    cpu_tdp_w: Watts | None = None
    gpu_tdp_w: Watts | None = None
    power_trend_w_per_min: float | None = None
    measured_at: Annotated[
        str, Meta(description="RFC 3339, time of the last reading, used or not")
    ] = ""


class CapState(Part, frozen=True, kw_only=True):
    cpu_pct: Pct | None = None
    gpu_pct: Pct | None = None
    cpu_watts_per_socket: Watts | None = None
    gpu_watts: Annotated[Watts | None, Meta(description="Watts of each card")] = None


class ControlResult(Part, frozen=True, kw_only=True):
    backend: str = ""
    result: str = ""
    message: str = ""
    updated_at: str = ""


class ControlStatus(Part, frozen=True, kw_only=True):
    """The caps as the agent reports them. The operator does not write it."""

    cpu: ControlResult | None = None
    gpu: ControlResult | None = None


class Condition(Part, frozen=True, kw_only=True):
    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    observed_generation: Number = 0
    last_transition_time: str = ""


class NodeTwinStatus(Part, frozen=True, kw_only=True):
    """The state and the predictions of the node's twin."""

    schedulable_class: (
        Annotated[str, Meta(description="performance, eco, draining or unknown")] | None
    ) = None
    predicted_power_headroom_score: Score | None = None
    predicted_cooling_stress_score: Score | None = None
    cooling_model: (
        Annotated[ShortText, Meta(description="the model of the cooling stress")] | None
    ) = None
    cooling_power: (
        Annotated[ShortText, Meta(description="cap or measured: the power that went in")] | None
    ) = None
    predicted_psu_stress_score: Score | None = None
    hardware_density_score: Score | None = None
    estimated_pue: float | None = field(default=None, name="estimatedPUE")
    estimated_pue_source: Annotated[str, Meta(description="facility or assumed")] | None = field(
        default=None, name="estimatedPUESource"
    )
    effective_cap_state: CapState | None = None
    power_measurement: PowerMeasurement | None = None
    performance_pods: Number | None = None
    control_status: ControlStatus | None = None
    conditions: list[Condition] | None = None
    observed_generation: Number | None = None
    last_updated: Annotated[str, Meta(description="RFC 3339, time of the newest fact")] | None = (
        None
    )


class NodeTwin(Part, frozen=True, kw_only=True):
    """A node's desired power state and what its twin predicts."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeTwinSpec | None = None
    status: NodeTwinStatus | None = None


class _Parts(msgspec.Struct):
    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: msgspec.Raw = msgspec.Raw(b"null")


_read_whole = msgspec.json.Decoder(NodeTwin).decode
_read_parts = msgspec.json.Decoder(_Parts).decode
_read_spec = msgspec.json.Decoder(NodeTwinSpec | None).decode
_read_status = msgspec.json.Decoder(NodeTwinStatus | None).decode
T = TypeVar("T")


def read_twin(raw: bytes | msgspec.Raw) -> NodeTwin:
    """Decodes a NodeTwin, which another version of the operator may have written.

    An unreadable spec or status counts as absent, so that the operator writes it anew. Raises
    msgspec.DecodeError without readable metadata.
    """
    try:
        return _read_whole(raw)
    except msgspec.ValidationError:
        parts = _read_parts(raw)
    spec, status = _or_none(_read_spec, parts.spec), _or_none(_read_status, parts.status)
    return NodeTwin(metadata=parts.metadata, spec=spec, status=status)


def _or_none(read: Callable[[msgspec.Raw], T], part: msgspec.Raw) -> T | None:
    try:
        return read(part)
    except msgspec.ValidationError:
        return None


# --- NodeHardware -----------------------------------------------------------------------------


class CapRangePerSocket(Part, frozen=True, kw_only=True):
    type: ShortText = ""
    min_watts_per_socket: HardwareWatts = 0
    max_watts_per_socket: HardwareWatts = 0


class HardwareCpu(Part, frozen=True, kw_only=True):
    OPEN: ClassVar[bool] = True
    vendor: ShortText = ""
    raw_model: ShortText = ""
    model: ShortText = ""
    sockets: Few = 0
    cores_per_socket: Few = 0
    total_cores: Few = 0
    driver_family: ShortText = ""
    cap_range: CapRangePerSocket | None = None
    control_available: bool = False
    telemetry_available: bool = False
    warnings: list[str] | None = None


class CapRangePerGpu(Part, frozen=True, kw_only=True):
    min_watts: HardwareWatts = 0
    max_watts: HardwareWatts = 0
    default_watts: HardwareWatts = 0


class HardwareGpu(Part, frozen=True, kw_only=True):
    OPEN: ClassVar[bool] = True
    present: bool = False
    vendor: ShortText = ""
    raw_model: ShortText = ""
    model: ShortText = ""
    count: Few = 0
    cap_range_per_gpu: CapRangePerGpu | None = None
    cap_range: CapRangePerGpu | None = None  # the same in the published documents
    current_cap_watts: HardwareWatts = 0
    control_available: bool = False
    telemetry_available: bool = False
    warnings: list[str] | None = None


class HardwareMemory(Part, frozen=True, kw_only=True):
    total_bytes: Bytes = 0


class HardwareQuality(Part, frozen=True, kw_only=True):
    overall: ShortText = ""
    warnings: list[str] | None = None


class NodeHardwareSpec(Part, frozen=True, kw_only=True):
    node_name: ObjectName


class NodeHardwareStatus(Part, frozen=True, kw_only=True):
    OPEN: ClassVar[bool] = True
    cpu: HardwareCpu | None = None
    gpu: HardwareGpu | None = None
    memory: HardwareMemory | None = None
    quality: HardwareQuality | None = None
    updated_at: ShortText = ""


class NodeHardware(Part, frozen=True, kw_only=True):
    """The hardware of a node, as its agent discovered it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeHardwareSpec | None = None
    status: NodeHardwareStatus | None = None


# --- GPU --------------------------------------------------------------------------------------


class GpuSpec(Part, frozen=True, kw_only=True):
    node_name: ObjectName
    uuid: CardName
    model: ShortText = ""
    total_vram_mb: CardMb = field(default=0, name="totalVRAMmb")
    nvlink_group: ShortText = ""


class GpuStatus(Part, frozen=True, kw_only=True):
    allocated_vram_mb: CardMb = field(default=0, name="allocatedVRAMmb")
    pod_namespace: ShortText = ""
    pod_name: ShortText = ""
    pod_uid: Uid = field(default="", name="podUID")
    phase: ShortText = ""  # Available, Allocated, or another word of its writer
    healthy: bool = True


class Gpu(Part, frozen=True, kw_only=True):
    """One physical GPU."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GpuSpec | None = None
    status: GpuStatus | None = None
