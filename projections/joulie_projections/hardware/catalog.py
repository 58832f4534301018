"""What hardware may draw, by model. Pure: text in, figures out; `catalog_file` reads the text.

A catalog is looked at where a discovery is published, never in a fold: the figures that a score
rests on are in the log, and a replay needs no catalog.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from joulie_bus.errors import BadCatalog
from joulie_bus.events import HardwareDiscovered, NodeSeen
from joulie_projections.hardware.gpu_resources import PRODUCT
from joulie_projections.hardware.models import (
    FORMS,
    CardName,
    Words,
    card_name,
    processor,
    vendor_of,
    whole_card,
)

Watts = Annotated[int, msgspec.Meta(gt=0, le=100_000)]
Positive = Annotated[int, msgspec.Meta(gt=0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: Name
    source: Name  # an id of the table `sources`, or the source itself
    tdp_w: Watts
    aliases: tuple[Name, ...] = ()
    cap_w: tuple[Watts, Watts] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.model, *self.aliases)


class CpuModel(_Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cores: Positive  # of one socket
    threads: Annotated[int, msgspec.Meta(gt=0, le=8)] = 2  # of one core, as it is sold


class GpuModel(_Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    memory_gb: Positive
    fp16_tflops: Positive | None = None  # without sparsity


M = TypeVar("M", bound=_Model)
N = TypeVar("N")  # what a name is known by


class Catalog(NamedTuple):
    """Models by each of their names."""

    cpus: Mapping[Words, CpuModel]
    gpus: Mapping[CardName, GpuModel]

    def cpu(self, name: str) -> CpuModel | None:
        """The longest of all known names that stands in this one as whole words, side by side."""
        asked = processor(name)
        for length in range(len(asked), 0, -1):
            for first in range(len(asked) - length + 1):
                if (model := self.cpus.get(asked[first : first + length])) is not None:
                    return model
        return None

    def gpu(self, name: str) -> GpuModel | None:
        """The model whose name this one ends with, that has all traits which this one tells.

        More may stand before it, such as a maker; what follows makes another card of it.
        """
        asked = card_name(name)
        for first in range(len(asked.words)):
            for traits in _largest_first(asked.traits):
                model = self.gpus.get(CardName(asked.words[first:], traits))
                if model is not None and _has(model, asked.traits - traits):
                    return model
        return None

    def gpu_name(self, name: str) -> str:
        """The one name of a card that is known; any other stays as it is."""
        model = self.gpu(name)
        return model.model if model is not None else name


def _largest_first(traits: frozenset[str]) -> Iterator[frozenset[str]]:
    for size in range(len(traits), -1, -1):
        yield from map(frozenset, combinations(sorted(traits), size))


def _has(model: GpuModel, traits: frozenset[str]) -> bool:
    """Memory of this size, and a form in which it is made, as far as that is known."""
    known = frozenset().union(*(card_name(name).traits for name in model.names)) & FORMS
    size = f"{model.memory_gb}gb"
    is_of_size = all(trait == size for trait in traits if trait.endswith("gb"))
    return is_of_size and (not known or traits & FORMS <= known)


EMPTY = Catalog({}, {})


# --- reading ----------------------------------------------------------------------------------


def parse_catalog(data: bytes, where: str, upon: Catalog = EMPTY) -> Catalog:
    """The catalog of this TOML text upon another one: it replaces models and adds to them."""
    try:
        table = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadCatalog(where, [f"it is not TOML: {error}"]) from error
    mistakes = [
        f"{key}: there is no such table; cpu, gpu and sources are"
        for key in sorted(table.keys() - {"cpu", "gpu", "sources"})
    ]
    sources = table.get("sources", {})
    cpus = list(_read(table, "cpu", CpuModel, sources, mistakes))
    gpus = list(_read(table, "gpu", GpuModel, sources, mistakes))
    found = Catalog(
        _named(upon.cpus, cpus, processor, mistakes), _named(upon.gpus, gpus, card_name, mistakes)
    )
    if mistakes:
        raise BadCatalog(where, mistakes)
    return found


def _read(
    table: Mapping[str, Any], kind: str, cls: type[M], sources: Any, mistakes: list[str]
) -> Iterator[M]:
    listed = table.get(kind, [])
    for number, entry in enumerate(listed if isinstance(listed, list) else [listed], 1):
        try:
            model = msgspec.convert(entry, cls)
        except msgspec.ValidationError as error:
            mistakes.append(f"{kind} number {number}: {error}")
            continue
        if model.cap_w is not None and not model.cap_w[0] <= model.cap_w[1]:
            mistakes.append(f"{kind} number {number} ({model.model}): cap_w goes from high to low")
        source = sources.get(model.source, model.source) if isinstance(sources, dict) else ""
        yield replace(model, source=str(source))


def _named(
    upon: Mapping[N, M], models: Sequence[M], known_by: Callable[[str], N], mistakes: list[str]
) -> Mapping[N, M]:
    new: dict[N, M] = {}
    for model in models:
        for name in dict.fromkeys(map(known_by, model.names)):
            if name in new:
                called = next(other for other in model.names if known_by(other) == name)
                mistakes.append(f"{called!r} is {new[name].model} and {model.model}: which one?")
            new[name] = model
    replaced = {known_by(model.model) for model in models}
    kept = {name: model for name, model in upon.items() if known_by(model.model) not in replaced}
    return {**kept, **new}


# --- resolving --------------------------------------------------------------------------------

CPU_MODEL = "joulie.io/hw.cpu-model"
CPU_SOCKETS = "joulie.io/hw.cpu-sockets"
GPU_COUNT = "joulie.io/hw.gpu-count"
# Ours; NVIDIA's GPU feature discovery; AMD's node labeller, of today and of earlier; Intel's.
GPU_MODELS = (
    "joulie.io/hw.gpu-model",
    "joulie.io/gpu.product",
    PRODUCT,
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "gpu.intel.com/product",
)


def with_catalog_figures(found: HardwareDiscovered, catalog: Catalog) -> HardwareDiscovered:
    """What was discovered, under the catalog's names and with its figures where there are none."""
    return _rated_gpu(_rated_cpu(found, catalog), catalog)


def _rated_cpu(found: HardwareDiscovered, catalog: Catalog) -> HardwareDiscovered:
    model = catalog.cpu(found.cpu_model)
    if model is None:
        return found
    own_mw, high = found.cpu_max_mw_per_socket, model.cap_w[1] * 1000 if model.cap_w else 0
    figures = replace(
        found.figures,
        cores_per_socket=model.cores,
        cpu_cap_mw_per_socket=0 if own_mw else high,  # its own maximum is the highest
    )
    max_mw = own_mw or model.tdp_w * 1000
    return replace(
        found,
        cpu_model=model.model,
        cpu_cores=found.cpu_cores or model.cores * found.cpu_sockets,
        cpu_max_mw_per_socket=max_mw,
        cpu_min_mw_per_socket=found.cpu_min_mw_per_socket or _lowest_mw(model, max_mw),
        figures=figures,
    )


def _rated_gpu(found: HardwareDiscovered, catalog: Catalog) -> HardwareDiscovered:
    vendor = found.gpu_vendor or vendor_of(found.gpu_model)
    model = catalog.gpu(found.gpu_model)
    if model is None:
        return replace(found, gpu_vendor=vendor)
    max_mw = found.gpu_max_mw or model.tdp_w * 1000
    return replace(
        found,
        gpu_model=model.model,
        gpu_vendor=vendor or vendor_of(model.model),
        gpu_max_mw=max_mw,
        gpu_min_mw=found.gpu_min_mw or _lowest_mw(model, max_mw),
        gpu_by_catalog=not found.gpu_max_mw,
        figures=replace(found.figures, gpu_tflops=model.fp16_tflops or 0),
    )


def _lowest_mw(model: CpuModel | GpuModel, max_mw: int) -> int:
    """0 for a node that draws less than the maker's range begins with: it is not as sold."""
    lowest = model.cap_w[0] * 1000 if model.cap_w is not None else 0
    return lowest if lowest <= max_mw else 0


def from_labels(
    seen: NodeSeen, catalog: Catalog, gpu_models: Sequence[str] = GPU_MODELS
) -> HardwareDiscovered | None:
    """What a node's labels say of its hardware, and what can be allocated where they say nothing.

    None if they say nothing: what can be allocated needs no second fact. A label without a value
    says nothing. Where no label tells the sockets, they are as many as have so many threads, as
    the model is sold: with SMT, if it has it.
    """
    cpu_model, gpu_model = seen.labels.get(CPU_MODEL, "").strip(), _gpu_model(seen, gpu_models)
    sockets, cards = _count(seen.labels.get(CPU_SOCKETS)), _count(seen.labels.get(GPU_COUNT))
    if not (cpu_model or gpu_model or sockets or cards):
        return None
    cores = -(-seen.cpu_milli // 1000)
    cpu = catalog.cpu(cpu_model)
    guessed = -(-cores // (cpu.cores * cpu.threads)) if cpu is not None else 1
    found = HardwareDiscovered(
        node=seen.node,
        cpu_model=cpu_model,
        cpu_sockets=sockets or max(1, guessed),
        cpu_cores=cores,
        cpu_max_mw_per_socket=0,
        gpu_model=gpu_model,
        gpu_count=cards or seen.gpus,
        memory_bytes=seen.memory_bytes,
        source="labels",
        gpu_vendor=vendor_of(gpu_model) or seen.gpu_vendor,
    )
    return with_catalog_figures(found, catalog)


def _gpu_model(seen: NodeSeen, labels: Sequence[str]) -> str:
    """The first that tells one; of a shared or sliced card, the card."""
    told = (whole_card(seen.labels.get(label, "")) for label in labels)
    return next((model for model in told if model), "")


def invalid_counts(labels: Mapping[str, str]) -> dict[str, str]:
    """Those that should hold a number and do not: whoever uses `from_labels` has to say so."""
    counts = {label: labels[label] for label in (CPU_SOCKETS, GPU_COUNT) if labels.get(label)}
    return {label: value for label, value in counts.items() if not _is_count(value)}


def _count(label: str | None) -> int:
    """0 if the label holds no number: what can be allocated tells more than a typing error."""
    return int(label) if label is not None and _is_count(label) else 0


def _is_count(label: str) -> bool:
    return label.isascii() and label.isdecimal() and len(label) < 6
