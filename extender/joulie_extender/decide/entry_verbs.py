"""The kinds of entries of the decision log, as one word each. Light: clients import it."""

from typing import Literal

from joulie_bus.events import (
    BindDecided,
    DecisionsDropped,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    SettingsDeclared,
    StateSetBack,
)

EntryVerb = Literal[
    "filter", "prioritize", "preempt", "bind", "outcome", "fallback", "dropped", "settings",
    "set-back", "unreadable",
]  # fmt: skip
VERBS: dict[str, EntryVerb] = {
    FilterDecided.TYPE: "filter",
    PrioritizeDecided.TYPE: "prioritize",
    PreemptDecided.TYPE: "preempt",
    BindDecided.TYPE: "bind",
    OutcomeSeen.TYPE: "outcome",
    FallbackAnswered.TYPE: "fallback",
    DecisionsDropped.TYPE: "dropped",
    SettingsDeclared.TYPE: "settings",
    StateSetBack.TYPE: "set-back",
}
