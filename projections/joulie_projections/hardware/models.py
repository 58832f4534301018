"""Normalizes the names of CPU and GPU models.

Device plugins, feature discovery, nvidia-smi, rocm-smi and users spell one card in many ways:
`NVIDIA-A100-SXM4-80GB`, `NVIDIA A100 80GB SXM`, `A100-SXM4-80GB-SHARED`. A name is split into words
without the vendor, and traits (form factor and memory), in any position. Only whole words match,
which keeps `A10` and `A100`, or `L4`, `L40` and `L40S`, distinct.
"""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

Words = tuple[str, ...]
Vendor = Literal["", "nvidia", "amd", "intel"]
CACHED_NAMES = 4096  # names; a cluster has a few dozen

_ASIDE = re.compile(r"\([^)]*\)|®|™")
_BREAK = re.compile(r"[\s_,/:\[\]-]+")
_LSPCI = re.compile(r".*\[([^\]]+)\]\s*$")  # `Aldebaran/MI200 [Instinct MI210]`
# The suffix that sharing and slicing append to a product name.
_SHARED = re.compile(r"[\s_-]+(?:shared|mig[\s_-]+(?P<profile>\d.*))$", re.IGNORECASE)
_PCIE = re.compile(r"\bpci[ -]?e(?:xpress)?(?![a-z])")
_GLUED = re.compile(r"(?<=\d)(sxm\d?|pcie|nvl)\b")  # `H100SXM5`
_SXM = re.compile(r"sxm\d?")
_MEMORY = re.compile(r"(\d+)(?:gb|gib|g)")
_HBM = re.compile(r"hbm\d\w*")

FORMS = frozenset({"sxm", "pcie", "nvl"})
_CORES = re.compile(r"\b\d+[ -]core\b")
_CLOCK = re.compile(r"@.*$")

# The first match wins; no known product name contains two vendors.
_VENDORS: tuple[tuple[Vendor, re.Pattern[str]], ...] = (
    ("nvidia", re.compile(r"\b(?:nvidia|tesla|geforce|quadro|(?:0x)?10de)\b")),
    (
        "amd",
        re.compile(
            r"\b(?:amd|advanced micro devices|instinct|radeon|mi\d{2,3}[ax]?|(?:0x)?1002)\b"
        ),
    ),
    ("intel", re.compile(r"\b(?:intel|habana|gaudi ?\d?|(?:0x)?8086)\b")),
)


class CardName(NamedTuple):
    words: Words  # in order
    traits: frozenset[str]  # form factor and memory

    @property
    def text(self) -> str:
        """One text for all spellings of the name."""
        return " ".join((*self.words, *sorted(self.traits)))


def words(name: str) -> Words:
    """`Intel(R)_Xeon(TM) Gold-6338` is `intel xeon gold 6338`."""
    plain = _ASIDE.sub(" ", name.lower())
    return tuple(word for word in _BREAK.split(plain) if word)


_NO_MODEL = frozenset(
    words(
        "NVIDIA AMD Intel Tesla Instinct GeForce Radeon Corporation Corp Inc Advanced Micro Devices"
        " GPU GPUs graphics card accelerator tensor core generation edition series data center"
        " datacenter HGX DGX OAM AC MBA MCM VF"
    )
)
_NO_PROCESSOR = frozenset(words("AMD Intel Xeon Scalable processor CPU with"))


def whole_card(product: str) -> str:
    """The product name without the suffixes of sharing and slicing."""
    while (match := _SHARED.search(product)) is not None:
        product = product[: match.start()]
    return product.strip()


def mig_profile(product: str) -> str:
    """`1g.5gb` for `NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`; empty for a product that is not sliced."""
    while (match := _SHARED.search(product)) is not None:
        if match["profile"]:
            return match["profile"].lower().partition("-shared")[0]
        product = product[: match.start()]
    return ""


@lru_cache(maxsize=CACHED_NAMES)
def card_name(name: str) -> CardName:
    """Normalizes the name of a GPU. A name that consists of a vendor alone is kept."""
    bracket = _LSPCI.match(name)
    plain = whole_card(bracket[1] if bracket else name).lower()
    plain = _GLUED.sub(r" \1", _PCIE.sub("pcie", plain))
    found = [_trait(word) for word in words(plain)]
    model = tuple(word for word, is_trait in found if not is_trait and word not in _NO_MODEL)
    traits = frozenset(word for word, is_trait in found if is_trait)
    return CardName(model, traits) if model else CardName(words(name), frozenset())


def _trait(word: str) -> tuple[str, bool]:
    if _SXM.fullmatch(word):
        return "sxm", True
    if (memory := _MEMORY.fullmatch(word)) is not None:
        return f"{int(memory[1])}gb", True
    return word, word in FORMS or _HBM.fullmatch(word) is not None


def memory_gb(name: str) -> int:
    """The memory size in a card's name; 0 if there is none."""
    sizes = [int(trait[:-2]) for trait in card_name(name).traits if trait.endswith("gb")]
    return max(sizes, default=0)


@lru_cache(maxsize=CACHED_NAMES)
def processor(name: str) -> Words:
    """Normalizes the name of a CPU: `Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz` is
    `platinum 8480`.

    A label value cannot contain a plus sign, and no two models differ by it alone.
    """
    plain = _CORES.sub(" ", _CLOCK.sub("", name.lower().replace("_", " "))).replace("+", " ")
    found = words(plain)
    return tuple(word for word in found if word not in _NO_PROCESSOR) or found


@lru_cache(maxsize=CACHED_NAMES)
def vendor_of(*names: str) -> Vendor:
    """The vendor of a card by the first of these names that identifies one."""
    for text in names:
        plain = " ".join(words(text))
        for vendor, pattern in _VENDORS:
            if pattern.search(plain):
                return vendor
    return ""
