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
    Promise,
    PromiseKey,
    SettingsDeclared,
    StateSetBack,
)

EntryVerb = Literal[
    "filter", "prioritize", "preempt", "bind", "outcome", "fallback", "dropped", "settings",
    "promise-key", "promise", "set-back", "unreadable",
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
    PromiseKey.TYPE: "promise-key",
    Promise.TYPE: "promise",
    StateSetBack.TYPE: "set-back",
}
