"""Which card models a name stands for. Pure.

A name matches a model when all its words stand in the model's name, in order, and the model has all
traits that it tells: `A100` and `A100 40GB` are `NVIDIA-A100-SXM4-40GB`; `A10` is not, because
words are whole. Other names of a model come from the catalog; they count only as a whole, so that
no short one stands in for a longer. How a name is spelled makes no difference.
"""

from collections.abc import Iterable
from functools import lru_cache

from joulie_projections.hardware.catalog import Catalog, GpuModel
from joulie_projections.hardware.models import Words, card, memory_gb

Aliases = tuple[tuple[str, ...], ...]  # the names of one model together


def aliases_of(catalog: Catalog) -> Aliases:
    models = {model.model: model for model in catalog.gpus.values()}
    return tuple(tuple(_names(models[name])) for name in sorted(models))


def _names(model: GpuModel) -> Iterable[str]:
    """Those that leave out the memory, with it, too."""
    for name in model.names:
        yield name
        if not memory_gb(name):
            yield f"{name} {model.memory_gb}GB"


@lru_cache(maxsize=4096)
def is_model(asked: str, model: str, aliases: Aliases) -> bool:
    wanted, found = card(asked), card(model)
    if not wanted.words:
        return False
    is_part = wanted.traits <= found.traits and _in_order(wanted.words, found.words)
    return is_part or _known_as(asked, aliases) & _known_as(model, aliases) != 0


def _in_order(wanted: Words, found: Iterable[str]) -> bool:
    rest = iter(found)
    return all(word in rest for word in wanted)


def _known_as(name: str, aliases: Aliases) -> int:
    """A bit for each model of which this is a whole name."""
    whole = card(name)
    known = (any(card(alias) == whole for alias in names) for names in aliases)
    return sum(1 << at for at, is_it in enumerate(known) if is_it)


def written(aliases: Aliases) -> str:
    """As one text, which a declaration of settings can hold; `read` is its counterpart."""
    return "\n".join("\t".join(names) for names in aliases)


def read(text: str) -> Aliases:
    return tuple(tuple(line.split("\t")) for line in text.split("\n")) if text else ()
