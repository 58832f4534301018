"""The objects of dynamic resource allocation (DRA), as far as Joulie reads them.

Fields of v1, v1beta2 and v1beta1 of resource.k8s.io are read alike: v1beta1 has a device's fields
under `basic`, and those of a request beside its name. Any field may be absent or null.
"""

import msgspec

from joulie_operator.resources.custom_resources import ObjectMeta
from joulie_projections.quantities import Quantity

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")  # those that are read, the preferred one first
SLICES, CLAIMS, TEMPLATES, CLASSES = (
    "resourceslices",
    "resourceclaims",
    "resourceclaimtemplates",
    "deviceclasses",
)
TAINT_RULES = "devicetaintrules"
TAINT_RULE_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
OF_TEMPLATE = "resource.kubernetes.io/pod-claim-name"  # an annotation of claims made for a pod
EXTENDED = "resource.kubernetes.io/extended-resource-claim"  # of those for an extended resource


class _Part(msgspec.Struct, rename="camel", gc=False):
    pass


# --- ResourceSlice ----------------------------------------------------------------------------


class Attribute(_Part):
    string: str | None = None
    version: str | None = None


class Capacity(_Part):
    value: Quantity = 0


class Taint(_Part):
    key: str = ""
    value: str | None = None
    effect: str = ""


class TaintSelector(_Part):
    """Empty ones match every device. A rule by class or expression is not evaluated."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    device_class_name: str | None = None
    selectors: list[object] | None = None


class TaintRuleSpec(_Part):
    device_selector: TaintSelector | None = None  # without one, no device matches
    taint: Taint = msgspec.field(default_factory=Taint)


class DeviceTaintRule(_Part):
    metadata: ObjectMeta
    spec: TaintRuleSpec = msgspec.field(default_factory=TaintRuleSpec)


class Consumed(_Part):
    counter_set: str = ""


class DeviceFields(_Part):
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    taints: list[Taint] | None = None
    consumes_counters: list[Consumed] | None = None
    node_name: str | None = None
    allow_multiple_allocations: bool | None = None


class SliceDevice(DeviceFields):
    name: str = ""
    basic: DeviceFields | None = None

    @property
    def fields(self) -> DeviceFields:
        return self.basic or self


class Pool(_Part):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(_Part):
    driver: str = ""
    pool: Pool = msgspec.field(default_factory=Pool)
    node_name: str | None = None
    devices: list[SliceDevice] | None = None


class ResourceSlice(_Part):
    metadata: ObjectMeta
    spec: SliceSpec = msgspec.field(default_factory=SliceSpec)


# --- ResourceClaim, ResourceClaimTemplate, DeviceClass ----------------------------------------


class ExactRequest(_Part):
    device_class_name: str | None = None
    count: int | None = None
    allocation_mode: str | None = None
    admin_access: bool | None = None
    selectors: list[object] | None = None
    tolerations: list[object] | None = None
    capacity: object | None = None


class DeviceRequest(ExactRequest):
    exactly: ExactRequest | None = None
    first_available: list[ExactRequest] | None = None

    @property
    def first(self) -> ExactRequest:
        """What is asked for first."""
        return self.exactly or next(iter(self.first_available or ()), self)


class Requests(_Part):
    requests: list[DeviceRequest] | None = None
    constraints: list[object] | None = None


class ClaimSpec(_Part):
    devices: Requests = msgspec.field(default_factory=Requests)


class AllocatedDevice(_Part):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    consumed_capacity: dict[str, Quantity] | None = None


class Allocated(_Part):
    results: list[AllocatedDevice] | None = None


class Allocation(_Part):
    devices: Allocated = msgspec.field(default_factory=Allocated)


class Consumer(_Part):
    resource: str = ""
    uid: str = ""


class ClaimState(_Part):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None


class NamespacedMeta(ObjectMeta, frozen=True, kw_only=True):
    namespace: str = ""
    annotations: dict[str, str] | None = None


class ResourceClaim(_Part):
    metadata: NamespacedMeta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimState | None = None


class TemplateSpec(_Part):
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)


class ResourceClaimTemplate(_Part):
    metadata: NamespacedMeta
    spec: TemplateSpec = msgspec.field(default_factory=TemplateSpec)


class CelSelector(_Part):
    expression: str = ""


class Selector(_Part):
    cel: CelSelector | None = None


class ClassSpec(_Part):
    selectors: list[Selector] | None = None


class DeviceClass(_Part):
    metadata: ObjectMeta
    spec: ClassSpec = msgspec.field(default_factory=ClassSpec)
