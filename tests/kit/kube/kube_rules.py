"""Asks Kubernetes' own code: kube_rules.go calls the modules of kube-scheduler, and `make kube`
builds it."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

Tree = dict[str, Any]


class Answer(msgspec.Struct):
    valid: bool
    value: int
    milli: int
    sign: int
    large: bool
    matches: list[bool] | None


def asked(rules: Path, questions: Iterable[Tree]) -> list[Answer]:
    body = b"\n".join(map(msgspec.json.encode, questions))
    done = subprocess.run([rules], input=body, capture_output=True, check=True, timeout=120)
    return [msgspec.json.decode(line, type=Answer) for line in done.stdout.splitlines()]


def requested(rules: Path, pods: Iterable[Tree]) -> list[tuple[int, int]]:
    """Thousandths of cores, and bytes, that kube-scheduler counts for each pod of a node."""
    answers = asked(rules, ({"requested": pod} for pod in pods))
    return [(answer.milli, answer.value) for answer in answers]
