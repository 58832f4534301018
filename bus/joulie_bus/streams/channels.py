"""What each subject carries: the table of the reference and of the AsyncAPI document.

`{cluster}` and the other parts in braces are one token each (`subjects.escape`).
"""

from typing import NamedTuple

from joulie_bus.events import EVENT_TYPES, AnyEvent
from joulie_bus.streams.authority import EVENTS
from joulie_bus.streams.subjects import Family


class Channel(NamedTuple):
    address: str
    what: str

    @property
    def events(self) -> tuple[type[AnyEvent], ...]:
        """What its classes say that it carries; none if it carries something else than events."""
        _, family, _, *tail = self.address.split(".")
        carried = EVENTS[Family(family)] if family in list(Family) else frozenset()
        token = tail[0] if tail and not tail[0].startswith("{") else ""
        is_of_all = family == Family.DEC  # replicas and the projector share it
        return tuple(
            cls for cls in EVENT_TYPES if cls in carried and (is_of_all or token == cls.TOKEN)
        )


CHANNELS = (
    Channel("joulie.tel.{cluster}.{node}", "telemetry, inventory, by a program for many"),
    Channel("joulie.agent.{cluster}.{node}", "telemetry, inventory, by its own agent"),
    Channel("joulie.obs.{cluster}.node.{node}", "a node, as Kubernetes reports it"),
    Channel("joulie.obs.{cluster}.hardware.{node}", "a node's hardware"),
    Channel("joulie.obs.{cluster}.facility.{facility}", "temperature and power of the building"),
    Channel("joulie.obs.{cluster}.grid.{zone}", "price and carbon intensity of the grid in a zone"),
    Channel("joulie.obs.{cluster}.target.{name}", "the most power that the cluster may draw"),
    Channel("joulie.obs.{cluster}.caps.{class}", "what caps were measured to save"),
    Channel("joulie.obs.{cluster}.gpu.{card}", "a card, by its uuid"),
    Channel(
        "joulie.obs.{cluster}.device.{card}",
        "a card that kube-scheduler allocates by DRA, and its ResourceClaims",
    ),
    Channel(
        "joulie.obs.{cluster}.devices.{claim}",
        "number of GPUs that a ResourceClaim or its template requests",
    ),
    Channel("joulie.obs.{cluster}.namespace.{name}", "the default class for pods of a namespace"),
    Channel("joulie.obs.{cluster}.pod.{uid}", "a pod"),
    Channel("joulie.plan.{cluster}.{node}", "the planned profile and caps of a node"),
    Channel("joulie.plan.{cluster}._meta", "the plan that the node events belong to"),
    Channel("joulie.claim.{cluster}.{card}", "reservations of the memory of a card"),
    Channel(
        "joulie.dec.{cluster}.{replica}",
        "answers of one extender replica; outcomes, of the projector",
    ),
    Channel("joulie.caps.{cluster}.{node}", "caps of a node, for its writer (live, not stored)"),
    Channel("joulie.spool.{cluster}.{replica}", "what waits in a spool, each second (live)"),
    Channel("joulie.view.{cluster}.delta", "what a commit changed (live, not stored)"),
    Channel("joulie.view.{cluster}.beat", "position and digest, four times a second (live)"),
    Channel("joulie.heads.{cluster}", "signed heads of the decision log"),
    Channel(
        "joulie.cuts.{cluster}",
        "request of the archiver to delete what it holds (answered by the projector, not stored)",
    ),
)
