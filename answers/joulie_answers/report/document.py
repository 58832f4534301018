"""The document of a report: energy, cost and carbon, and what another scheduler had used."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from msgspec.structs import asdict

from joulie_answers.report.form import DIVISIONS, Document
from joulie_answers.report.gather import Gathered
from joulie_answers.report.question import Asked, Measured, asked_of
from joulie_bus.core.formats import in_force
from joulie_projections.energy.ledger import RULE
from joulie_projections.energy.report import (
    NANO,
    UG_PER_KG,
    UJ_PER_KWH,
    EnergyReport,
    Reading,
    as_json,
    kwh,
    report_of,
)
from joulie_projections.energy.savings import Period, saved_in, savings_of
from joulie_simulator.energy.closed_loop import BASELINE
from joulie_simulator.energy.counterfactual import VARIANTS, Comparison, Interval, Run, compared
from joulie_simulator.energy.product import Product

FORMAT = f"joulie-energy-report/{in_force('report')}"
EXAMPLES = 50  # pods on another node than the best, those furthest behind
NO_PODS = "the log has no nodes or no pods of this time"


def document_of(got: Gathered, cluster: str) -> Document:
    reports = {by: got.ledger.report(by) for by in DIVISIONS}
    whole = reports["namespace"]
    asked = asked_of(got, whole.from_ms, whole.to_ms, Measured.of(got, whole))
    document: Document = {
        "format": FORMAT,
        "cluster": cluster,
        "asked": {"from": got.period.from_ms, "to": got.period.to_ms},
        "complete_to": got.ledger.complete_to_ms,
        "position": got.state.position,
        "rule": RULE,
        "entries": got.entries,
        "energy": {by: as_json(reports[by], by) for by in DIVISIONS},
        "power": _power(got.ledger),
        "placements": placements_of(got, whole),
        "counterfactual": _counterfactual(asked, whole),
    }
    return document | {"saved": _of_metered(document)}


def _of_metered(document: Document) -> Document | None:
    """The metered energy compared by the share per work, as the console's tiles are."""
    whole = document["energy"]["namespace"]
    metered = Period(*(whole[key] for key in ("from", "to", "meter_kwh", "cost", "kgco2e")))
    found = saved_in(metered, savings_of(document, 0, 0.0))
    named = {"kwh": found.kwh, "cost": found.cost, "kgco2e": found.kgco2e}
    return {key: each and asdict(each) for key, each in named.items()} if found.kwh else None


def _power(ledger: Reading) -> list[Document]:
    """The energy of each interval by namespace, oldest first. The last one ends with the ledger."""
    found = []
    for each in sorted(ledger.intervals, key=lambda interval: interval.start_ms):
        one = report_of([each], "namespace")
        found.append(
            {
                "from": each.start_ms,
                "to": min(each.end_ms, max(each.start_ms + 1, ledger.complete_to_ms)),
                "kwh": kwh(one.meter_uj),
                "namespaces": {name: kwh(share.energy_uj) for name, share in one.by.items()},
            }
        )
    return found


def placements_of(got: Gathered, whole: EnergyReport) -> Document:
    """Where pods of the period are, beside the best node of the answer for each. Their rank
    decides: a node that ties with the best one is on it."""
    from_ms = max(whole.from_ms, got.lives.first_ms)
    bound = {
        uid: life
        for uid, life in sorted(got.lives.pods.items())
        if from_ms <= life.start_ms < whole.to_ms
    }
    answered = [uid for uid in bound if uid in got.answers]
    ranked = {uid: got.ranks[uid] for uid in answered if uid in got.ranks}
    others = [uid for uid, each in ranked.items() if each.rank > 1]
    furthest = sorted(others, key=lambda uid: (-ranked[uid].behind, uid))[:EXAMPLES]
    return {
        "bound": len(bound),
        "answered": len(answered),
        "on_the_best_node": len(ranked) - len(others),
        "elsewhere": len(others),
        "without_a_rank": len(answered) - len(ranked),
        "furthest": [
            {
                "pod": f"{bound[uid].pod.namespace}/{bound[uid].pod.name}",
                "node": ranked[uid].node,
                "rank": ranked[uid].rank,
                "behind": ranked[uid].behind,
                "best": got.answers[uid].node,
                "position": got.answers[uid].position,
            }
            for uid in furthest
        ],
    }


def _counterfactual(asked: Asked, whole: EnergyReport) -> Document:
    question = asked.question
    said: Document = {
        "from": asked.from_ms,
        "to": asked.to_ms,
        "baseline": BASELINE,
        "policy": asked.policy,
        "as_it_ran": question.happened is not None,
        "assumed": _assumed(question.product),
        "nodes": len(question.nodes),
        "pods": len(question.pods),
        "waited_for_the_scheduler": question.happened.of_scheduler if question.happened else 0,
        "use_of_requests": question.use,
        "sleep": question.sleeps,
        "sleep_numbers": question.sleep._asdict(),
        "left_out": {
            "pods_never_bound": asked.never_bound,
            "pods_of_daemonsets": asked.fixed,
            "pods_on_unknown_nodes": asked.elsewhere,
            "nodes_of_unknown_size": asked.unknown_nodes,
        },
        "guessed_idle_power_of_nodes": asked.guessed_idle,
        "variants": [variant._asdict() for variant in VARIANTS],
    }
    is_empty = not question.nodes or not question.pods
    if why_not := asked.why_not or (NO_PODS if is_empty else ""):
        return said | {"saved": None, "why": why_not}
    return said | _saved(compared(question, asked.policy), whole)


def _assumed(product: Product | None) -> list[str]:
    """What the plans and decisions of a log without plans rest on, beside the log."""
    if product is None:
        return []
    rules = product.rules
    sleeps = ", and each node that they order to sleep is switched off" if product.sleeps else ""
    return [
        f"The log has no plans: they are made with the defaults of PRESET={rules.preset} "
        f"(POLICY_TYPE={rules.policy}){sleeps}.",
        "Plans cover all nodes. Those with cards are one hardware family and the others another "
        "one, because the ledger has no labels and models.",
        "No node is capped.",
        "Decisions know the power of a node by the model of its pods, without readings.",
        "A node is off and on again as in the simulation: it takes five minutes to wake up.",
    ]


def _saved(found: Comparison, whole: EnergyReport) -> Document:
    """Cost and carbon of the difference at the mean rates of the period."""
    worth = whole.worth
    cost = worth.cost_n / NANO / (worth.priced_uj / UJ_PER_KWH) if worth.priced_uj else None
    co2 = worth.co2_ug / UG_PER_KG / (worth.weighed_uj / UJ_PER_KWH) if worth.weighed_uj else None
    return {
        "runs": {policy: list(map(Run._asdict, runs)) for policy, runs in found.runs.items()},
        "saved": {
            "kwh": found.saved_kwh._asdict(),
            "share": found.saved_share._asdict(),
            "share_per_work": found.saved_per_work._asdict(),
            "cost": _times(found.saved_kwh, cost),
            "kgco2e": _times(found.saved_kwh, co2),
            "currency": whole.currency or None,
        },
    }


def _times(saved: Interval, per_kwh: float | None) -> Mapping[str, float] | None:
    return None if per_kwh is None else Interval.of([each * per_kwh for each in saved])._asdict()


class Difference(NamedTuple):
    path: str
    reported: Any
    computed: Any


MISSING = "nothing"


def differences(one: Any, other: Any, path: str = "") -> Iterator[Difference]:
    """Each value that differs, with its path."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            pair = one.get(key, MISSING), other.get(key, MISSING)
            yield from differences(*pair, f"{path}.{key}" if path else key)
    elif isinstance(one, list) and isinstance(other, list):
        for place, pair in enumerate(zip_longest(one, other, fillvalue=MISSING)):
            yield from differences(*pair, f"{path}.{place}")
    elif one != other:
        yield Difference(path, one, other)
