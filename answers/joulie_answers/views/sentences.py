"""What happened, each event as one sentence: of the commands, and of the page."""

from joulie_answers.schema.responses import DecisionBrief, PlanBrief, Transition

NO_CAPS = "caps: CPU none, GPU none"


def transition_sentence(move: Transition) -> str:
    """Of one step of a plan about one node."""
    return f"{_what(move)}{f': {move.because}' if move.because else ''}."


_OF_NODES = {
    "sleep-ordered": "{node} falls asleep",
    "wake-ordered": "{node} wakes up",
    "eviction-ordered": "Pods are moved from {node}",
    "placement-closed": "{node} gets no more pods of class standard",
    "placement-opened": "{node} gets pods of class standard again",
    "draining-begun": "{node} gets no more pods of class performance, and becomes eco",
    "profile-assigned": "{node} becomes {to}",
    "transition-completed": "{node} becomes {to}",
    "caps-set": "{node} gets {to}",
}
_OF_PODS = {  # `to` names the pod, and what changes or why nothing does
    "resize-ordered": "The requests of {pod} on {node} are to change ({change})",
    "resized": "The requests of {pod} on {node} have changed ({change})",
    "resize-refused": "The requests of {pod} on {node} stay as they are ({change})",
}


def _what(move: Transition) -> str:
    if move.kind == "caps-set" and move.to == NO_CAPS:
        return f"{move.node} has no cap any more"
    pod, _, change = move.to.partition(", ")
    form = {**_OF_NODES, **_OF_PODS}.get(move.kind, "{node}: {to}")
    return form.format(node=move.node, to=move.to, pod=pod, change=change)


def plan_sentence(plan: PlanBrief) -> str:
    many = {0: "nothing", 1: "one thing"}.get(plan.changes, f"{plan.changes} things")
    because = f": {plan.because}" if plan.because else ""
    return f"Plan {plan.plan} changes {many}{because}."


def decision_sentence(brief: DecisionBrief) -> str:
    """Of an entry of the decision log."""
    text = f"{brief.text}: {brief.reason}" if brief.refused and brief.reason else brief.text
    if not brief.name:
        return f"{text[:1].upper()}{text[1:]}."
    pod = f"{brief.namespace}/{brief.name}"
    if brief.candidates and brief.refused == brief.candidates:
        nodes = "the only node" if brief.candidates == 1 else f"all {brief.candidates} nodes"
        return f"{pod} is refused on {nodes}: {brief.reason or text}."
    match brief.verb:
        case "outcome":
            return f"{pod} {text}."
        case "bind":
            return f"{pod} is {text}."
        case _:
            return f"For {pod}, {text}."
