"""Quantities, node affinity and what pods request, compared with Kubernetes' own code on thousands
of generated cases."""

import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from joulie_answers.doctor.judgement.versions import numbers
from joulie_bus.errors import BadQuantity
from joulie_projections.pods.classify import PROFILE_LABEL, admits, placement_of
from joulie_projections.pods.demand import demand_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.quantities import LARGEST, parse, rounded_up
from kube_real import RULES, SCHEDULER, program_or_skip
from kube_rules import Answer, Tree, asked, requested
from kube_versions import reported

QUANTITIES, PODS = 10_000, 5_000
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
WRONG = ["K", "ki", "gi", "mi", "i", "e", "GiB", "Mb", "mm", "kk", "Ee5", "e5m", "m5", "-5", "e+-5"]
NUMBER = re.compile(r"[+-]?\.?\d", re.ASCII)
LONG_EXPONENT = re.compile(r"[eE][+-]?0*[1-9]\d{3}")
LETTERS = "0123456789+-.eEinumkKMGTP _,\n٣"
NODES: list[dict[str, str]] = [
    {PROFILE_LABEL: "eco", "zone": "a"},
    {PROFILE_LABEL: "performance", "zone": "a"},
    {"zone": "a"},
]
PROFILES = ["eco", "performance", None]


@pytest.fixture(scope="module")
def rules() -> Path:
    return program_or_skip(RULES)


# --- quantities -------------------------------------------------------------------------------


def test_quantities_are_parsed_as_kubernetes_parses_them(rules: Path) -> None:
    texts = list(quantities(random.Random(7)))
    answers = asked(rules, ({"quantity": text} for text in texts))

    differ = {
        text: (answer, found)
        for text, answer in zip(texts, answers, strict=True)
        if (found := read(text)) != expected(text, answer)
    }
    assert differ == {}
    assert sum(answer.valid for answer in answers) > QUANTITIES / 2
    assert sum(not answer.valid for answer in answers) > QUANTITIES / 10


def read(text: str) -> tuple[int, int] | None:
    try:
        value = parse(text)
    except BadQuantity:
        return None
    return rounded_up(value), thousandths(rounded_up(value), rounded_up(value * 1000))


def expected(text: str, answer: Answer) -> tuple[int, int] | None:
    """The result of Kubernetes, except that requests are never negative, values beyond int64 are
    the largest int64 (Kubernetes caps only binary ones), and a text without a digit is invalid.
    """
    if not answer.valid or answer.sign < 0 or not NUMBER.match(text):
        return None
    if answer.large:
        return int(LARGEST), 0
    return answer.value, thousandths(answer.value, answer.milli)


def thousandths(value: int, milli: int) -> int:
    """0 where they do not fit into int64: Kubernetes overflows there."""
    return milli if value * 1000 <= LARGEST else 0


def quantities(dice: random.Random) -> Iterable[str]:
    """Without longer exponents: Kubernetes computes them and does not terminate."""
    count = 0
    while count < QUANTITIES:
        text = number(dice) + suffix(dice)
        text = text if dice.random() < 0.7 else spoilt(dice, text)
        if not LONG_EXPONENT.search(text):
            count += 1
            yield text


def number(dice: random.Random) -> str:
    digits = "".join(dice.choices("0123456789", k=dice.randint(0, dice.choice([2, 4, 12, 20]))))
    zeros = "0" * dice.choice([0, 0, 0, 1, 3])
    fraction = "".join(dice.choices("0123456789", k=dice.randint(0, dice.choice([1, 3, 12]))))
    point = dice.choice(["", "", ".", f".{fraction}"])
    return dice.choice(["", "", "", "", "+", "-"]) + zeros + digits + point


def suffix(dice: random.Random) -> str:
    if dice.random() < 0.7:
        return dice.choice(SUFFIXES)
    sign, zeros = dice.choice(["", "+", "-"]), "0" * dice.choice([0, 0, 1, 2])
    return f"{dice.choice('eE')}{sign}{zeros}{dice.randint(0, dice.choice([3, 12, 40]))}"


def spoilt(dice: random.Random, text: str) -> str:
    at = dice.randint(0, len(text))
    match dice.randrange(4):
        case 0:
            return text + dice.choice(WRONG)
        case 1:
            return text[:at] + dice.choice(LETTERS) + text[at:]
        case 2:
            return text[:at] + text[at + 1 :]
        case _:
            return text[:at] + dice.choice(LETTERS) + text[at + 1 :]


# --- node affinity ----------------------------------------------------------------------------


def test_node_affinity_matches_as_in_kube_scheduler(rules: Path) -> None:
    pods = list(constrained(random.Random(7)))
    answers = asked(rules, ({"pod": pod, "labels": NODES} for pod in pods))

    differ = {
        msgspec.json.encode(pod).decode(): (answer.matches, found)
        for pod, answer in zip(pods, answers, strict=True)
        if (found := allowed(msgspec.convert(pod, Pod))) != answer.matches
    }
    assert differ == {}
    assert len({tuple(answer.matches or ()) for answer in answers}) == 8, "all combinations"


def allowed(pod: Pod) -> list[bool]:
    found = [admits(pod, profile) for profile in PROFILES]
    excludes_eco = not found[0]
    assert (placement_of(pod) == "performance-only") == excludes_eco
    assert (placement_of(pod) == "eco-only") == (found == [True, False, False])
    return found


def constrained(dice: random.Random) -> Iterable[Tree]:
    for _ in range(PODS):
        spec: Tree = {}
        if dice.random() < 0.3:
            spec["nodeSelector"] = {PROFILE_LABEL: dice.choice(["eco", "performance", "x", ""])}
        if dice.random() < 0.9:
            terms = [term(dice) for _ in range(dice.choice([0, 1, 1, 1, 2, 3]))]
            key = "requiredDuringSchedulingIgnoredDuringExecution"
            spec["affinity"] = {"nodeAffinity": {key: {"nodeSelectorTerms": terms}}}
        yield {"metadata": {"name": "p"}, "spec": spec}


def term(dice: random.Random) -> Tree:
    made: Tree = {}
    if dice.random() < 0.9:
        made["matchExpressions"] = [expression(dice) for _ in range(dice.choice([0, 1, 1, 2]))]
    if dice.random() < 0.2:
        values = dice.choice([["n"], ["n"], [], ["n", "m"]])
        field = {"key": "metadata.name", "operator": dice.choice(["In", "In", "Exists"])}
        made["matchFields"] = [field | {"values": values}]
    return made


def expression(dice: random.Random) -> Tree:
    operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "in", ""]
    operator = dice.choice(operators[:6] if dice.random() < 0.9 else operators)
    if dice.random() < 0.15:  # another label, which all nodes have
        return dice.choice(
            [
                {"key": "zone", "operator": "In", "values": ["a"]},
                {"key": "zone", "operator": "Exists"},
                {"key": "zone", "operator": "In", "values": []},
                {"key": "zone", "operator": "Exists", "values": ["a"]},
                {"key": "zone", "operator": "NotIn", "values": ["no value"]},
            ]
        )
    return {"key": PROFILE_LABEL, "operator": operator, "values": values_for(dice, operator)}


def values_for(dice: random.Random, operator: str) -> Sequence[str]:
    if operator in ("Exists", "DoesNotExist") and dice.random() < 0.8:
        return []
    if operator in ("Gt", "Lt"):
        return dice.choice([["5"], ["-1"], ["x"], [], ["1", "2"]])
    some = ["eco", "performance", "x", "", "eco performance", "-eco"]
    weights = [6, 6, 3, 1, 1, 1]
    return dice.choices(some, weights, k=dice.choice([0, 1, 1, 1, 2, 2, 3]))


# --- requests of pods that are resized in place ------------------------------------------------

COUNTED_BY_POD = (
    1,
    37,
)  # since this version the largest sum of a pod counts, not that of each part


def test_the_requests_of_pods_are_counted_as_in_kube_scheduler(rules: Path) -> None:
    if numbers(reported(program_or_skip(SCHEDULER))) >= COUNTED_BY_POD:
        pytest.skip("this version counts a pod as a whole while several containers are resized")
    pods = list(resized(random.Random(7)))

    differ = {
        msgspec.json.encode(pod).decode(): (answer, found)
        for pod, answer in zip(pods, requested(rules, pods), strict=True)
        if (found := count(pod)) != answer
    }
    assert differ == {}
    other = [pod for pod in pods if count(pod) != count({"spec": pod["spec"]})]
    assert len(other) > PODS / 2, "of most pods the spec alone does not count"


def count(pod: Tree) -> tuple[int, int]:
    found = demand_of(msgspec.convert(pod, Pod))
    return found.cpu_milli, found.memory_bytes


def resized(dice: random.Random) -> Iterable[Tree]:
    for _ in range(PODS):
        containers = [container(dice, f"c{at}") for at in range(dice.randint(1, 3))]
        starting = [container(dice, f"i{at}") for at in range(dice.choice([0, 0, 1, 2]))]
        for each in starting:
            each |= dice.choice([{}, {"restartPolicy": "Always"}])
        spec: Tree = {"containers": containers, "initContainers": starting}
        if dice.random() < 0.2:
            spec["resources"] = {"requests": dice.choice([{}, {"cpu": "5"}, {"memory": "9Gi"}])}
        if dice.random() < 0.2:
            spec["overhead"] = {"cpu": "250m"}
        yield {"metadata": {"name": "p"}, "spec": spec, "status": status_of(dice, spec)}


def container(dice: random.Random, name: str) -> Tree:
    return {"name": name, "resources": {"requests": amounts(dice)}}


def status_of(dice: random.Random, spec: Tree) -> Tree:
    reasons = [None, "Deferred", "Infeasible", "Infeasible"]
    kinds = ["PodResizePending", "PodResizePending", "PodResizeInProgress"]
    pending = [{"type": dice.choice(kinds), "status": "True", "reason": dice.choice(reasons)}]
    return {
        "phase": "Running",
        "conditions": dice.choice([[], pending]),
        "containerStatuses": statuses(dice, spec["containers"]),
        "initContainerStatuses": statuses(dice, spec["initContainers"]),
    }


def statuses(dice: random.Random, containers: Iterable[Tree]) -> list[Tree]:
    found = []
    for each in containers:
        made: Tree = {"name": each["name"]}
        if dice.random() < 0.8:
            made["resources"] = dice.choice([{}, {"requests": amounts(dice)}])
        if dice.random() < 0.8:
            made["allocatedResources"] = amounts(dice)
        if dice.random() < 0.9:
            found.append(made)
    return found


def amounts(dice: random.Random) -> dict[str, str]:
    made = {"cpu": dice.choice(["100m", "0.1", "1", "1000m", "2500m", "4"])}
    made |= {"memory": dice.choice(["64Mi", "1Gi", "1024Mi", "3e9", "8Gi"])}
    return {name: amount for name, amount in made.items() if dice.random() < 0.8}
