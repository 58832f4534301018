"""The answer to `joulie try --from kubeconfig` in sentences."""

from collections.abc import Iterator, Mapping

from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_bus.errors import one_line
from joulie_simulator.trial.packing import Run, Trial
from joulie_simulator.trial.rated import ASLEEP_W, IDLE_CARD_W, IDLE_CPU

SHOWN = 20  # names of nodes
ROWS = 15
IF = "if the pods that run now were placed again by Joulie's score"


def as_text(found: Trial) -> TextWithTables:
    return TextWithTables.of(
        [
            *_headline(found),
            "",
            _names(found.pinned),
            "",
            *_holders(found),
            "",
            "What this assumes:",
            *(f"- {each}" for each in assumed(found)),
            "",
            "What it cannot know:",
            *(f"- {each}" for each in not_known(found)),
        ]
    )


def _headline(found: Trial) -> Iterator[str]:
    yield f"{_could_sleep(found.pinned, found.candidates)}, {IF}."
    if found.unknown_pods:
        free = _could_sleep(found.free, found.candidates)
        yield (
            f"{free}, if {_count(found.unknown_pods, 'pod')} may move too of which something is "
            f"not modelled: {_reasons(found.unknown)}."
        )
    if found.left_out:
        yield (
            f"{_count(sum(found.left_out.values()), 'node')} of {found.nodes} are left out: "
            f"{_reasons(found.left_out)}."
        )


def _could_sleep(run: Run, candidates: int) -> str:
    return f"{len(run.nodes)} of {_count(candidates, 'node')} could sleep now{_watts(run)}"


def _watts(run: Run) -> str:
    """Of an unknown figure nothing is said here, but its nodes are counted."""
    if not run.nodes:
        return ""
    if run.watts_low is None or run.watts_high is None:
        return " (of none of them is the power known)"
    unrated = f" (without {run.unrated_nodes} of unknown power)" if run.unrated_nodes else ""
    return f": {_kilowatts(run.watts_low)} to {_kilowatts(run.watts_high)} kW less{unrated}"


def _kilowatts(watts: float) -> str:
    kilowatts = watts / 1000
    return f"{kilowatts:.0f}" if kilowatts >= 10 else f"{kilowatts:.1f}"


def _names(run: Run) -> str:
    if not run.nodes:
        return "No node could sleep."
    shown = ", ".join(map(one_line, run.nodes[:SHOWN]))
    more = len(run.nodes) - SHOWN
    return f"Could sleep: {shown}{f' and {more} more (-o json has all)' if more > 0 else ''}"


def _holders(found: Trial) -> Iterator[str | TextTable]:
    awake = found.candidates - len(found.pinned.nodes)
    if not awake:
        return
    yield f"What holds the other {awake} awake (a node may have several reasons):"
    rows = [
        (one_line(each.why), f"{each.nodes}", f"{each.pods}") for each in found.pinned.awake[:ROWS]
    ]
    yield TextTable(("REASON", "NODES", "PODS"), rows, {"NODES", "PODS"}, indent=2)
    if len(found.pinned.awake) > ROWS:
        yield f"  ... and {len(found.pinned.awake) - ROWS} more reasons (-o json has all)"


def assumed(found: Trial) -> Iterator[str]:
    yield (
        "Pods are placed one after the other in the order of their creation, on nodes with room "
        "for what they request, by the constraints that they have now; some are moved for it. "
        "Pods of DaemonSets and static pods stay, and hold no node awake."
    )
    yield (
        "The plan is that of PRESET=savings: 2 % of the nodes with and without GPUs stay empty and "
        "awake, and one node of each hardware family and zone."
    )
    yield (
        f"kube-scheduler is modelled as of 1.{found.minor}, with its default profile and without "
        "the score of images."
    )
    yield from _assumed_watts(found)
    if not found.knows_budgets:
        yield "PodDisruptionBudgets could not be listed: this takes their pods as movable."
    if not found.knows_namespaces:
        yield "Namespaces could not be listed: this takes their pods as of class standard."


def _assumed_watts(found: Trial) -> Iterator[str]:
    low, high = IDLE_CPU
    yield (
        f"No watts are measured: an idle node is taken to draw {100 * low:.0f} to "
        f"{100 * high:.0f} % of what its processors are rated at, and {IDLE_CARD_W[0]:.0f} to "
        f"{IDLE_CARD_W[1]:.0f} W for each GPU; a sleeping one {ASLEEP_W[0]:.0f} W, or "
        f"{ASLEEP_W[1]:.0f} W with GPUs, at most."
    )
    unknown = found.candidates - found.rated_candidates
    if unknown:
        low, high = found.per_thread_w
        yield (
            f"Of {_count(unknown, 'node')} the processors are not known: {low:.1f} to {high:.1f} W "
            "for each CPU of Kubernetes are taken, as most processors of the catalog are rated."
        )


def not_known(found: Trial) -> Iterator[str]:
    yield (
        "How long pods would wait, and what a month would save: that needs arrivals and ends, and "
        "this is one moment."
    )
    yield "What the nodes draw, whether they can be switched off and on, and how long that takes."
    yield (
        "What pods use, as against what they request, and the devices that DRA gives out; on "
        "virtual machines the watts are those of a part of the host."
    )
    waiting = found.pinned.without_place
    if waiting:
        yield f"When {_count(waiting, 'pod')} will find a node: before and after, none passes."


def _reasons(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{one_line(why)} ({count})" for why, count in counts.items())


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
