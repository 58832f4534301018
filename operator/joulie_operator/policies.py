"""How many nodes supply performance, and which. Pure functions of nodes and settings."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from joulie_bus.events import Profile


class Candidate(NamedTuple):
    """An eligible node, as policies see it."""

    name: str
    family: str  # GPU model, or CPU model where there is no GPU
    density: float  # 0..1, against the densest hardware


class Wanted(NamedTuple):
    """A policy's answer, and the numbers that it rests on."""

    profiles: dict[str, Profile]
    inputs: dict[str, float]
    because: str


def rounded(value: float) -> int:
    """Half away from zero; Python's own round goes to the even number."""
    return math.floor(value + 0.5)


def static_partition(nodes: Sequence[Candidate], hp_frac: float) -> Wanted:
    """A fixed share of performance nodes, whatever happens."""
    count = min(len(nodes), max(0, rounded(len(nodes) * hp_frac)))
    return Wanted(
        profiles=assigned(nodes, count),
        inputs={"nodes": len(nodes), "static_hp_frac": hp_frac, "performance": count},
        because=f"static_partition: {count} of {len(nodes)} nodes supply performance",
    )


def assigned(nodes: Sequence[Candidate], count: int) -> dict[str, Profile]:
    """One node per hardware family first, then the densest; only as many as there are slots."""
    ordered = by_density(nodes)
    chosen = {node.name for node in one_per_family(ordered)[:count]}
    for node in ordered:
        if len(chosen) >= count:
            break
        chosen.add(node.name)
    return {node.name: "performance" if node.name in chosen else "eco" for node in ordered}


def by_density(nodes: Sequence[Candidate]) -> list[Candidate]:
    return sorted(nodes, key=lambda node: (-node.density, node.name))


def one_per_family(ordered: Sequence[Candidate]) -> list[Candidate]:
    first = {node.family: node for node in reversed(ordered)}
    return by_density(list(first.values()))
