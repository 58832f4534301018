"""Matches requested GPU model names with models.

A name matches a model when the model's name contains all of its words, in order, and all traits
that it gives: `A100` and `A100 40GB` match `NVIDIA-A100-SXM4-40GB`; `A10` does not, because words
match whole. Aliases come from the catalog and match only as a whole, so that a short alias cannot
match a longer name. Spelling (case, separators) does not matter.
"""

from collections.abc import Iterable
from functools import lru_cache

from joulie_projections.hardware.catalog import Catalog, GpuModel
from joulie_projections.hardware.models import Words, card_name, memory_gb

Aliases = tuple[tuple[str, ...], ...]  # the names of one model together


def aliases_of(catalog: Catalog) -> Aliases:
    models = {model.model: model for model in catalog.gpus.values()}
    return tuple(tuple(_names(models[name])) for name in sorted(models))


def _names(model: GpuModel) -> Iterable[str]:
    """Names that leave out the memory are included with it, too."""
    for name in model.names:
        yield name
        if not memory_gb(name):
            yield f"{name} {model.memory_gb}GB"


@lru_cache(maxsize=4096)
def is_model(asked: str, model: str, aliases: Aliases) -> bool:
    wanted, found = card_name(asked), card_name(model)
    if not wanted.words:
        return False
    is_part = wanted.traits <= found.traits and _in_order(wanted.words, found.words)
    return is_part or _known_as(asked, aliases) & _known_as(model, aliases) != 0


def _in_order(wanted: Words, found: Iterable[str]) -> bool:
    rest = iter(found)
    return all(word in rest for word in wanted)


def _known_as(name: str, aliases: Aliases) -> int:
    """A bit for each model that has this name as an alias."""
    whole = card_name(name)
    known = (any(card_name(alias) == whole for alias in names) for names in aliases)
    return sum(1 << at for at, is_it in enumerate(known) if is_it)


def written(aliases: Aliases) -> str:
    """One text, as a declaration of settings stores it; `read` is the inverse."""
    return "\n".join("\t".join(names) for names in aliases)


def read(text: str) -> Aliases:
    return tuple(tuple(line.split("\t")) for line in text.split("\n")) if text else ()
