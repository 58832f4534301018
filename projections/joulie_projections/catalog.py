"""What hardware may draw, by model. Pure: text in, figures out; `catalog_file` reads the text.

A catalog is looked at where a discovery is published, never in a fold: the figures that a score
rests on are in the log, and a replay needs no catalog.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from joulie_bus.errors import BadCatalog
from joulie_bus.events import HardwareDiscovered, NodeSeen

Watts = Annotated[int, msgspec.Meta(gt=0, le=100_000)]
Positive = Annotated[int, msgspec.Meta(gt=0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: Name
    source: Name  # an id of the table `sources`, or the source itself
    tdp_w: Watts
    aliases: tuple[Name, ...] = ()
    cap_w: tuple[Watts, Watts] | None = None


class CpuModel(_Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cores: Positive


class GpuModel(_Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    memory_gb: Positive
    fp16_tflops: Positive | None = None  # without sparsity


M = TypeVar("M", bound=_Model)
Words = tuple[str, ...]


class Catalog(NamedTuple):
    """Models by each of their names, in words."""

    cpus: Mapping[Words, CpuModel]
    gpus: Mapping[Words, GpuModel]

    def cpu(self, name: str) -> CpuModel | None:
        return _found(self.cpus, name)

    def gpu(self, name: str) -> GpuModel | None:
        return _found(self.gpus, name)


EMPTY = Catalog({}, {})
_NOISE = re.compile(r"\((?:r|tm|c)\)|®|™")
_BREAK = re.compile(r"[\s_,/-]+")


def words(name: str) -> Words:
    """`NVIDIA-A100-SXM4-40GB` is `nvidia a100 sxm4 40gb`; `A10` is never `A100`."""
    plain = _NOISE.sub(" ", name.lower())
    return tuple(word for word in _BREAK.split(plain) if word)


def _found(models: Mapping[Words, M], name: str) -> M | None:
    """The longest of all known names that stands in this one as whole words, side by side."""
    asked = words(name)
    for length in range(len(asked), 0, -1):
        for first in range(len(asked) - length + 1):
            if (model := models.get(asked[first : first + length])) is not None:
                return model
    return None


# --- reading ----------------------------------------------------------------------------------


def parsed(data: bytes, where: str, upon: Catalog = EMPTY) -> Catalog:
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
    found = Catalog(_named(upon.cpus, cpus, mistakes), _named(upon.gpus, gpus, mistakes))
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


def _named(upon: Mapping[Words, M], models: Sequence[M], mistakes: list[str]) -> Mapping[Words, M]:
    new: dict[Words, M] = {}
    for model in models:
        for name in dict.fromkeys(words(name) for name in (model.model, *model.aliases)):
            if name in new:
                called = " ".join(name)
                mistakes.append(f"{called!r} is {new[name].model} and {model.model}: which one?")
            new[name] = model
    replaced = {words(model.model) for model in models}
    kept = {name: model for name, model in upon.items() if words(model.model) not in replaced}
    return {**kept, **new}


# --- resolving --------------------------------------------------------------------------------

CPU_MODEL = "joulie.io/hw.cpu-model"
CPU_SOCKETS = "joulie.io/hw.cpu-sockets"
GPU_MODELS = ("joulie.io/hw.gpu-model", "joulie.io/gpu.product")
GPU_COUNT = "joulie.io/hw.gpu-count"


def rated(found: HardwareDiscovered, catalog: Catalog) -> HardwareDiscovered:
    """What was discovered, with the catalog's figures where the discovery has none."""
    cpu, gpu = catalog.cpu(found.cpu_model), catalog.gpu(found.gpu_model)
    cores, cpu_mw = found.cpu_cores, found.cpu_max_mw_per_socket
    if cpu is not None:
        cores = cores or cpu.cores * found.cpu_sockets
        cpu_mw = cpu_mw or cpu.tdp_w * 1000
    if gpu is not None and not found.gpu_max_mw:
        lowest_w = gpu.cap_w[0] if gpu.cap_w is not None else 0
        watts = {"gpu_max_mw": gpu.tdp_w * 1000, "gpu_min_mw": lowest_w * 1000}
        found = replace(found, **watts, gpu_by_catalog=True)
    return replace(found, cpu_cores=cores, cpu_max_mw_per_socket=cpu_mw)


def from_labels(seen: NodeSeen, catalog: Catalog) -> HardwareDiscovered | None:
    """What a node's labels say of its hardware, and what can be allocated where they say nothing.

    None without a model: what can be allocated needs no second fact.
    """
    cpu_model = seen.labels.get(CPU_MODEL, "")
    gpu_model = next((seen.labels[key] for key in GPU_MODELS if key in seen.labels), "")
    if not cpu_model and not gpu_model:
        return None
    cores = -(-seen.cpu_milli // 1000)
    cpu = catalog.cpu(cpu_model)
    sockets = -(-cores // cpu.cores) if cpu is not None else 1
    found = HardwareDiscovered(
        node=seen.node,
        cpu_model=cpu_model,
        cpu_sockets=_count(seen.labels.get(CPU_SOCKETS)) or max(1, sockets),
        cpu_cores=cores,
        cpu_max_mw_per_socket=0,
        gpu_model=gpu_model,
        gpu_count=_count(seen.labels.get(GPU_COUNT)) or seen.gpus,
        memory_bytes=seen.memory_bytes,
        source="labels",
    )
    return rated(found, catalog)


def unreadable(labels: Mapping[str, str]) -> dict[str, str]:
    """Those that should hold a number and do not: whoever uses `from_labels` has to say so."""
    counts = {label: labels[label] for label in (CPU_SOCKETS, GPU_COUNT) if label in labels}
    return {label: value for label, value in counts.items() if not _is_count(value)}


def _count(label: str | None) -> int:
    """0 if the label holds no number: what can be allocated tells more than a typing error."""
    return int(label) if label is not None and _is_count(label) else 0


def _is_count(label: str) -> bool:
    return label.isascii() and label.isdecimal() and len(label) < 6
