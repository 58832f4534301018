"""Which card models a name stands for. Pure.

A name matches a model when all its words stand in the model's name, in order: `A100` and `A100
40GB` are `NVIDIA-A100-SXM4-40GB`; `A10` is not, because words are whole. Other names of a model
come from the catalog; they count only as a whole, so that no short one stands in for a longer.
"""

from collections.abc import Iterable
from functools import lru_cache

from joulie_projections.catalog import Catalog, Words, words

Aliases = tuple[tuple[str, ...], ...]  # the names of one model together
_MAKERS = frozenset({"nvidia", "amd", "intel", "tesla", "instinct"})


def aliases_of(catalog: Catalog) -> Aliases:
    models = {model.model: model for model in catalog.gpus.values()}
    return tuple((name, *models[name].aliases) for name in sorted(models))


@lru_cache(maxsize=4096)
def is_model(asked: str, model: str, aliases: Aliases) -> bool:
    wanted, found = _plain(asked), _plain(model)
    if not wanted:
        return False
    return _in_order(wanted, found) or _known_as(wanted, aliases) & _known_as(found, aliases) != 0


def _in_order(wanted: Words, found: Iterable[str]) -> bool:
    rest = iter(found)
    return all(word in rest for word in wanted)


def _known_as(name: Words, aliases: Aliases) -> int:
    """A bit for each model of which this is a whole name."""
    known = (any(_plain(alias) == name for alias in names) for names in aliases)
    return sum(1 << at for at, is_it in enumerate(known) if is_it)


@lru_cache(maxsize=4096)
def _plain(name: str) -> Words:
    """Without the maker, which nobody means by it."""
    found = words(name)
    return tuple(word for word in found if word not in _MAKERS) or found


def written(aliases: Aliases) -> str:
    """As one text, which a declaration of settings can hold; `read` is its counterpart."""
    return "\n".join("\t".join(names) for names in aliases)


def read(text: str) -> Aliases:
    return tuple(tuple(line.split("\t")) for line in text.split("\n")) if text else ()
