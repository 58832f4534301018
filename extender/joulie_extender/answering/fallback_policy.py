"""What an extender replies when it has no answer."""

from typing import NamedTuple

from joulie_bus.events import Duty, FallbackAnswer, PodAsk
from joulie_extender.gpu.fit import asks


class FallbackPolicy(NamedTuple):
    """The reply when there is no answer: after a failure, past the deadline, or before the view is
    ready.
    """

    fails: FallbackAnswer = "open"
    gpu_fails: FallbackAnswer = "closed"  # for pods with a GPU request
    deadline_s: float = 0.1
    is_strict: bool = False  # no answer that the broker has not stored

    def fails_for(self, duty: Duty, pod: PodAsk) -> FallbackAnswer:
        """Pods with a GPU request fail closed: energy is a preference, a missing GPU is not."""
        return self.gpu_fails if duty != "energy" and asks(pod) else self.fails
