"""The hardware catalog: power figures by model. `catalog_file` reads the file.

Components use the catalog where they publish discoveries, never in a fold: the figures that a score
depends on are in the log, so a replay needs no catalog.
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

BUSY = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)  # shares of the time that a measured card works
FIGURES = 1 + len(BUSY)  # of a measured card: without a process, and with one at each share
Watts = Annotated[int, msgspec.Meta(gt=0, le=100_000)]
Positive = Annotated[int, msgspec.Meta(gt=0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
Measured = Annotated[tuple[Watts, ...], msgspec.Meta(min_length=FIGURES, max_length=FIGURES)]


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
    threads: Annotated[int, msgspec.Meta(gt=0, le=8)] = 2  # of one core; 1 without SMT


class GpuModel(_Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    memory_gb: Positive
    fp16_tflops: Positive | None = None  # without sparsity
    # Without a process, and with one that works for the shares `BUSY` of the time.
    measured_w: Measured | None = None
    measured_by: Name | None = None  # as `source`


M = TypeVar("M", bound=_Model)
N = TypeVar("N")  # the normalized form of a name


class Catalog(NamedTuple):
    """Models by normalized name."""

    cpus: Mapping[Words, CpuModel]
    gpus: Mapping[CardName, GpuModel]

    def cpu(self, name: str) -> CpuModel | None:
        """The model with the longest name that occurs in this one as consecutive whole words."""
        wanted = processor(name)
        for length in range(len(wanted), 0, -1):
            for first in range(len(wanted) - length + 1):
                if (model := self.cpus.get(wanted[first : first + length])) is not None:
                    return model
        return None

    def gpu(self, name: str) -> GpuModel | None:
        """The model with a name that ends this one and with all traits of this one.

        Words before it, such as a vendor, are ignored; words after it name another card.
        """
        wanted = card_name(name)
        for first in range(len(wanted.words)):
            for traits in _largest_first(wanted.traits):
                model = self.gpus.get(CardName(wanted.words[first:], traits))
                if model is not None and _has(model, wanted.traits - traits):
                    return model
        return None

    def gpu_name(self, name: str) -> str:
        """The catalog's name of a known card; an unknown name is returned unchanged."""
        model = self.gpu(name)
        return model.model if model is not None else name


def _largest_first(traits: frozenset[str]) -> Iterator[frozenset[str]]:
    for size in range(len(traits), -1, -1):
        yield from map(frozenset, combinations(sorted(traits), size))


def _has(model: GpuModel, traits: frozenset[str]) -> bool:
    """Reports whether the model has this memory size and, where known, this form factor."""
    known = frozenset().union(*(card_name(name).traits for name in model.names)) & FORMS
    size = f"{model.memory_gb}gb"
    is_of_size = all(trait == size for trait in traits if trait.endswith("gb"))
    return is_of_size and (not known or traits & FORMS <= known)


EMPTY = Catalog({}, {})


# --- parsing ----------------------------------------------------------------------------------


def parse_catalog(data: bytes, where: str, base: Catalog = EMPTY) -> Catalog:
    """Parses TOML and merges it into another catalog: it replaces models and adds new ones."""
    try:
        table = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadCatalog(where, [f"it is not TOML: {error}"]) from error
    mistakes = [
        f"{key}: unknown table; the tables are cpu, gpu and sources"
        for key in sorted(table.keys() - {"cpu", "gpu", "sources"})
    ]
    sources = table.get("sources", {})
    cpus = list(_read(table, "cpu", CpuModel, sources, mistakes))
    gpus = list(_read(table, "gpu", GpuModel, sources, mistakes))
    found = Catalog(
        _with_models(base.cpus, cpus, processor, mistakes),
        _with_models(base.gpus, gpus, card_name, mistakes),
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
        mistakes += [f"{kind} number {number} ({model.model}): {why}" for why in _wrong(model)]
        source = sources.get(model.source, model.source) if isinstance(sources, dict) else ""
        yield replace(model, source=str(source))


def _wrong(model: _Model) -> Iterator[str]:
    if model.cap_w is not None and not model.cap_w[0] <= model.cap_w[1]:
        yield "cap_w has its minimum above its maximum"
    if not isinstance(model, GpuModel) or model.measured_w is None:
        return
    if list(model.measured_w) != sorted(model.measured_w):
        yield "measured_w falls although the card works more"
    if model.measured_by is None:
        yield "measured_w has no source: measured_by is missing"


def _with_models(
    base: Mapping[N, M], models: Sequence[M], normalize: Callable[[str], N], mistakes: list[str]
) -> Mapping[N, M]:
    new: dict[N, M] = {}
    for model in models:
        for name in dict.fromkeys(map(normalize, model.names)):
            if name in new:
                spelling = next(other for other in model.names if normalize(other) == name)
                mistakes.append(f"{spelling!r} names both {new[name].model} and {model.model}")
            new[name] = model
    replaced = {normalize(model.model) for model in models}
    kept = {name: model for name, model in base.items() if normalize(model.model) not in replaced}
    return {**kept, **new}


# --- resolving --------------------------------------------------------------------------------

CPU_MODEL = "joulie.io/hw.cpu-model"
CPU_SOCKETS = "joulie.io/hw.cpu-sockets"
GPU_COUNT = "joulie.io/hw.gpu-count"
# Joulie's; NVIDIA GPU feature discovery; AMD node labeller, current and beta; Intel's.
GPU_MODELS = (
    "joulie.io/hw.gpu-model",
    "joulie.io/gpu.product",
    PRODUCT,
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "gpu.intel.com/product",
)


def with_catalog_figures(found: HardwareDiscovered, catalog: Catalog) -> HardwareDiscovered:
    """The discovery with the catalog's model names, and its figures where they are missing."""
    return _rated_gpu(_rated_cpu(found, catalog), catalog)


def _rated_cpu(found: HardwareDiscovered, catalog: Catalog) -> HardwareDiscovered:
    model = catalog.cpu(found.cpu_model)
    if model is None:
        return found
    own_mw, high = found.cpu_max_mw_per_socket, model.cap_w[1] * 1000 if model.cap_w else 0
    figures = replace(
        found.figures,
        cores_per_socket=model.cores,
        cpu_cap_mw_per_socket=0 if own_mw else high,  # a discovered maximum is the highest cap
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
        figures=replace(
            found.figures,
            gpu_tflops=model.fp16_tflops or 0,
            gpu_curve_mw=tuple(watts * 1000 for watts in model.measured_w or ()),
        ),
    )


def _lowest_mw(model: CpuModel | GpuModel, max_mw: int) -> int:
    """The vendor's minimum cap; 0 if the node's maximum is below it."""
    lowest = model.cap_w[0] * 1000 if model.cap_w is not None else 0
    return lowest if lowest <= max_mw else 0


def from_labels(
    seen: NodeSeen, catalog: Catalog, gpu_models: Sequence[str] = GPU_MODELS
) -> HardwareDiscovered | None:
    """The hardware of a node from its labels, completed from what is allocatable.

    None if no label is set, because the node's own fact already carries what is allocatable. An
    empty label counts as not set. Without a label for the sockets, their number is computed from
    the allocatable CPUs and the model's threads per socket.
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
    """The first label that is set; for a shared or sliced card, the name of the whole card."""
    models = (whole_card(seen.labels.get(label, "")) for label in labels)
    return next((model for model in models if model), "")


def invalid_counts(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels that must hold a number and do not; callers of `from_labels` log them."""
    counts = {label: labels[label] for label in (CPU_SOCKETS, GPU_COUNT) if labels.get(label)}
    return {label: value for label, value in counts.items() if not _is_count(value)}


def _count(label: str | None) -> int:
    """The label's number; 0 if it is invalid, so that the allocatable amount is used."""
    return int(label) if label is not None and _is_count(label) else 0


def _is_count(label: str) -> bool:
    return label.isascii() and label.isdecimal() and len(label) < 6
