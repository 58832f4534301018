"""Parses the GPU annotations of a pod: model, memory, topology, share, assigned cards.

Each annotation is optional, and some have two spellings. An invalid value is an error and never
ignored: a pod must not be placed on the wrong card because of a typing error.
"""

import re
from collections.abc import Mapping
from fractions import Fraction

from joulie_bus.errors import BadAnnotation
from joulie_bus.events import GpuAsk, GpuTopology
from joulie_bus.events.bounds import MOST_CARD_MB, MOST_GIVEN, WORD, has_control, is_name

MODEL = ("joulie.io/gpu-model", "gpu-extender.mle.com/model")
VRAM_MB = ("joulie.io/gpu-vram-mb", "gpu-extender.mle.com/vram-mb")
TOPOLOGY = ("joulie.io/gpu-topology",)
SHARE = ("joulie.io/gpu-share",)
ASSIGNED_CARDS = "joulie.io/gpus"  # the uuids that its Binding named, separated by commas

GPU_ANNOTATIONS = frozenset({*MODEL, *VRAM_MB, *TOPOLOGY, *SHARE, ASSIGNED_CARDS})
_NO_GPU_ASK = GpuAsk()  # the common case
_MB = re.compile(r"0*(\d{1,9})", re.ASCII)
_MAX_CHARS = 1000  # a longer number is invalid
_SHARE = re.compile(r"(?:0?\.\d{1,3}|1(?:\.0{1,3})?)", re.ASCII)


def gpu_ask_of(annotations: Mapping[str, str]) -> GpuAsk:
    """Parses all GPU annotations. Raises BadAnnotation."""
    if GPU_ANNOTATIONS.isdisjoint(annotations):
        return _NO_GPU_ASK
    return GpuAsk(
        model=_model(annotations),
        vram_mb=_vram_mb(annotations),
        topology=_topology(annotations),
        share_milli=_share_milli(annotations),
        given=assigned_cards(annotations),
    )


def assigned_cards(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The uuids of the assigned cards. Raises BadAnnotation if they are invalid."""
    text = annotations.get(ASSIGNED_CARDS, "")
    named = (name.strip() for name in text.split(",", MOST_GIVEN))
    names = tuple(dict.fromkeys(name for name in named if name))
    if len(names) > MOST_GIVEN or not all(map(is_name, names)):
        raise BadAnnotation(
            ASSIGNED_CARDS, text, f"at most {MOST_GIVEN} uuids of cards, commas between"
        )
    return names


def _model(annotations: Mapping[str, str]) -> str:
    name, text = _value_of(annotations, MODEL)
    if name and (not text or len(text) > WORD or has_control(text)):
        raise BadAnnotation(name, text, "the model of a card, such as NVIDIA-A100-SXM4-40GB")
    return text


def _vram_mb(annotations: Mapping[str, str]) -> int:
    name, text = _value_of(annotations, VRAM_MB)
    if not name:
        return 0
    found = _MB.fullmatch(text) if len(text) <= _MAX_CHARS else None
    mb = int(found[1]) if found else 0
    if not 0 < mb <= MOST_CARD_MB:
        raise BadAnnotation(name, text, "megabytes per card as a whole number, such as 30000")
    return mb


def _topology(annotations: Mapping[str, str]) -> GpuTopology:
    name, text = _value_of(annotations, TOPOLOGY)
    match text:
        case "nvlink":
            return "nvlink"
        case _ if name:
            raise BadAnnotation(name, text, "nvlink, or no such annotation")
        case _:
            return ""


def _share_milli(annotations: Mapping[str, str]) -> int:
    name, text = _value_of(annotations, SHARE)
    if not name:
        return 0
    milli = Fraction(text) * 1000 if _SHARE.fullmatch(text) else 0
    if not milli:
        raise BadAnnotation(name, text, "a share of one card above 0 and up to 1, such as 0.25")
    return int(milli)


def _value_of(annotations: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """The annotation that is set, and its text; both spellings may be set if they agree."""
    found = [(name, annotations[name].strip()) for name in names if name in annotations]
    if len({text for _, text in found}) > 1:
        (name, text), (other, another) = found
        raise BadAnnotation(name, text, f"the same value as {other}, which is {another[:40]!r}")
    return found[0] if found else ("", "")
