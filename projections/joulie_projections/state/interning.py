"""Interns equal values of decoded rows, which halves the memory of a large cluster.

A decoder creates new strings and numbers for every row, though 50,000 pods name 5,000 nodes and a
few namespaces. The states are frozen; they are changed here before any other code has a reference
to them, and they stay equal.

The encoding stays the same too, because digests depend on it. The encoder omits a field that
holds the default object and writes one that only equals it, so interning never replaces one by
the other.
"""

import sys
from functools import lru_cache

import msgspec
from msgspec.structs import fields, force_setattr

from joulie_bus.events import GpuAsk, HardwareDiscovered, PodAsk
from joulie_projections.state.cards import CardState, Claim
from joulie_projections.state.state import NodeState, PodState, State

CACHE_SIZE = 4096  # interned numbers and GPU asks; others are not shared
_POD_TEXTS = ("namespace", "rule", "exempt", "team")
_POD_NUMBERS = ("cpu_milli", "memory_bytes", "gpu_milli")
_CARD_TEXTS = ("node", "model", "nvlink_group", "source")


def intern_state(key: str, state: State) -> None:
    """Interns the values of a state that was just decoded from the row with this key."""
    match state:
        case PodState():
            _share_texts(state, ("node",))
            _share_pod(key, state.pod)
        case CardState():
            _share_texts(state, _CARD_TEXTS)
            _share_numbers(state, ("total_mb", "allocated_mb"))
            for claim in state.claims.values():
                _share_claim(claim)
        case NodeState():
            if state.hardware is not None:
                _share_hardware(key, state.hardware)
        case _:
            pass


def _share_pod(uid: str, pod: PodAsk) -> None:
    force_setattr(pod, "uid", uid)
    _share_texts(pod, _POD_TEXTS)
    _share_numbers(pod, _POD_NUMBERS)
    if pod.gpu is not _NO_GPU_ASK and not pod.gpu.given:
        force_setattr(pod, "gpu", _same_gpu_ask(pod.gpu))


def _share_claim(claim: Claim) -> None:
    _share_texts(claim, ("namespace", "node"))
    _share_numbers(claim, ("mb",))


def _share_hardware(node: str, hardware: HardwareDiscovered) -> None:
    force_setattr(hardware, "node", node)
    _share_texts(hardware, ("cpu_model", "gpu_model", "gpu_vendor"))


def _share_texts(struct: msgspec.Struct, names: tuple[str, ...]) -> None:
    """Uses the interpreter's table, which drops strings without references."""
    defaults = _defaults_of(type(struct))
    for name in names:
        text: str = getattr(struct, name)
        if text != defaults[name]:
            force_setattr(struct, name, sys.intern(text))


def _share_numbers(struct: msgspec.Struct, names: tuple[str, ...]) -> None:
    for name in names:
        force_setattr(struct, name, _same_number(getattr(struct, name)))


@lru_cache
def _defaults_of(kind: type[msgspec.Struct]) -> dict[str, object]:
    return {field.name: field.default for field in fields(kind)}


@lru_cache(maxsize=CACHE_SIZE)
def _same_number(value: int) -> int:
    return value


@lru_cache(maxsize=CACHE_SIZE)
def _same_gpu_ask(gpu: GpuAsk) -> GpuAsk:
    return gpu


_NO_GPU_ASK = _defaults_of(PodAsk)["gpu"]
