"""The maximum length of texts and the range of numbers in events.

Every number fits a column of 63 bits. The sums of summed quantities over a million pods, or a
million nodes, fit it too. Producers and readers check the same bounds: `codec`.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta, inspect

from joulie_bus.core.kube_names import LONGEST_SUBDOMAIN, LONGEST_UID

LARGEST = 2**63 - 1
MOST_CPU_MILLI = 10**9  # of one pod or node: a million cores
MOST_BYTES = 2**53  # of memory: exact as a float too
MOST_GPU_MILLI = 10**9  # of one pod: a million cards
MOST_CARDS = 10**6
MOST_CARD_MB = 10**8  # a hundred terabytes
MOST_MW = 10**12  # of one node or one part of it: a gigawatt
MOST_FACILITY_MW = 10**14
MOST_READ_CARDS = 256  # of one node, in one reading
MOST_METERED_PODS = 1000  # of one node, in one reading
MOST_USE_S = 3600  # of one line about the use of a pod
MOST_LATE_MS = 31 * 86_400_000  # of a reading that was kept during an outage
MOST_GIVEN = 1000  # cards that one Binding names
MOST_DEVICE_ASKS = 64  # claims of one pod
MOST_VALUES = 10_000  # in one plan, or in one declaration of settings
NAME, UID, WORD, TEXT = LONGEST_SUBDOMAIN, LONGEST_UID, 256, 65_536  # characters
AGENT = 6 + 3 * NAME  # `agent-` and a name of which each byte is escaped
PRODUCER, BOOT, SEQ_DIGITS = AGENT, UID, 18
EVENT_ID = PRODUCER + 1 + BOOT + 1 + SEQ_DIGITS

# Texts. A Text may have several lines; the others have no control characters at all.
Name = Annotated[str, Meta(max_length=NAME)]  # of an object of Kubernetes, of a card
# Of a card, as agents report it. In lower case it is the name of an object of Kubernetes, and no
# two names are the same in lower case: only the prefixes of UUIDs have capitals.
_PART = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
CARD_NAME = rf"^(GPU-|MIG-|(?!gpu-|mig-)){_PART}(\.{_PART})*$"
CardName = Annotated[str, Meta(max_length=NAME, pattern=CARD_NAME)]
Uid = Annotated[str, Meta(max_length=UID)]
Word = Annotated[str, Meta(max_length=WORD)]  # a model, a version, the name of a rule
Holder = Annotated[str, Meta(max_length=2 * NAME + 1)]  # namespace/name of a pod
Text = Annotated[str, Meta(max_length=TEXT, extra={"lines": True})]  # for people
EventId = Annotated[str, Meta(max_length=EVENT_ID)]
LabelKey = Annotated[str, Meta(max_length=NAME + 64)]  # prefix/name
Labels = Annotated[dict[LabelKey, Word], Meta(max_length=500)]
DeviceAsks = Annotated[tuple[Holder, ...], Meta(max_length=MOST_DEVICE_ASKS)]
GivenCards = Annotated[tuple[Name, ...], Meta(max_length=MOST_GIVEN)]

# Bytes.
Sha256 = Annotated[bytes, Meta(max_length=32)]
PublicKey = Annotated[bytes, Meta(min_length=32, max_length=32)]  # Ed25519
PackedUid = Annotated[bytes, Meta(min_length=1, max_length=UID)]
Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]

# Numbers.
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Milliwatts = Annotated[int, Meta(ge=0, le=MOST_MW)]
FacilityMilliwatts = Annotated[int, Meta(ge=0, le=MOST_FACILITY_MW)]
CardPowers = Annotated[dict[Name, Milliwatts], Meta(max_length=MOST_READ_CARDS)]
CardEnergies = Annotated[tuple[Count, ...], Meta(max_length=MOST_READ_CARDS)]
PodEnergies = Annotated[dict[Uid, Count], Meta(max_length=MOST_METERED_PODS)]
Lateness = Annotated[int, Meta(ge=0, le=MOST_LATE_MS)]  # milliseconds
Millidegrees = Annotated[int, Meta(ge=-(10**9), le=10**9)]
CpuMilli = Annotated[int, Meta(ge=0, le=MOST_CPU_MILLI)]
ShareMilli = Annotated[int, Meta(ge=0, le=1000)]
GpuMilli = Annotated[int, Meta(ge=0, le=MOST_GPU_MILLI)]
Bytes = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
Mib = Annotated[int, Meta(ge=0, le=MOST_BYTES >> 20)]
UseSeconds = Annotated[int, Meta(ge=1, le=MOST_USE_S)]
CardCount = Annotated[int, Meta(ge=0, le=MOST_CARDS)]
CardMb = Annotated[int, Meta(ge=0, le=MOST_CARD_MB)]
Ordinal = Annotated[int, Meta(ge=0, lt=2**31)]  # of a node, among the rows of the twins
Score = Annotated[int, Meta(ge=-(2**31), le=2**31)]
Nanoseconds = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]  # since 1970, wall clock

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # and lone surrogates
_CONTROL_IN_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def clipped(text: str) -> str:
    """The text, cut to the length of a Text."""
    return text if len(text) <= TEXT else f"{text[: TEXT - 3]}..."


def has_control(text: str, *, lines: bool = False) -> bool:
    """With `lines`, line ends and tabs do not count."""
    if text.isprintable():
        return False
    return (_CONTROL_IN_LINES if lines else _CONTROL).search(text) is not None


def in_usual_case(uuid: str) -> str:
    """The UUID of a card as agents spell it: in lower case, but for its prefix."""
    lower = uuid.lower()
    return lower[:4].upper() + lower[4:] if lower.startswith(("gpu-", "mig-")) else lower


def is_card_name(text: str) -> bool:
    return len(text) <= NAME and re.fullmatch(CARD_NAME, text) is not None


def is_name(text: str) -> bool:
    return 0 < len(text) <= NAME and not has_control(text)


def control_in(event: msgspec.Struct) -> str:
    """The field that contains a control character; empty if none does."""
    texts, holders = _readers_of(type(event))
    if "".join(texts(event)).isprintable() and all(_is_plain(read(event)) for read in holders):
        return ""  # the usual case
    kinds = _kinds_of(type(event)).items()
    return next((name for name, kind in kinds if _is_odd(getattr(event, name), kind)), "")


def _is_plain(value: object) -> bool:
    """Whether all characters in it are printable."""
    if not value:
        return True
    if isinstance(value, list | tuple) and isinstance(value[0], msgspec.Struct):
        return not any(map(control_in, value))
    return "".join(_texts_in(value)).isprintable()


def _is_odd(value: object, kind: inspect.Type) -> bool:
    lines = any(isinstance(part, inspect.Metadata) for part in _parts_of(kind))
    return any(has_control(text, lines=lines) for text in _texts_in(value))


def _texts_in(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case msgspec.Struct():
            yield control_in(value) and "\0"  # joins all its texts
        case dict():
            yield from chain.from_iterable(map(_texts_in, (*value.keys(), *value.values())))
        case list() | tuple():
            yield from chain.from_iterable(map(_texts_in, value))
        case _:
            pass


FieldReader = Callable[[object], object]


@lru_cache
def _readers_of(
    cls: type[msgspec.Struct],
) -> tuple[Callable[[object], tuple[str, ...]], tuple[FieldReader, ...]]:
    """A getter for all text fields, including nested ones, and for other fields that hold texts."""
    paths = dict(_paths_of(cls))
    words = [path for path, is_text in paths.items() if is_text]
    holders = tuple(attrgetter(path) for path, is_text in paths.items() if not is_text)
    if len(words) < 2:  # attrgetter returns no tuple for a single name
        words = [*words, *words] if words else []
    return (attrgetter(*words) if words else _no_texts), holders


def _no_texts(_: object) -> tuple[str, ...]:
    return ()


def _paths_of(cls: type[msgspec.Struct], within: str = "") -> Iterator[tuple[str, bool]]:
    for name, kind in _kinds_of(cls).items():
        bare = kind.type if isinstance(kind, inspect.Metadata) else kind
        if isinstance(bare, inspect.StructType):
            yield from _paths_of(bare.cls, f"{within}{name}.")
        else:
            yield f"{within}{name}", isinstance(bare, inspect.StrType)


@lru_cache
def _kinds_of(cls: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {field.name: field.type for field in info.fields if _holds_text(field.type)}


def _holds_text(kind: inspect.Type) -> bool:
    return any(
        isinstance(part, inspect.StrType)
        or (isinstance(part, inspect.StructType) and bool(_kinds_of(part.cls)))
        for part in _parts_of(kind)
    )


def _parts_of(kind: inspect.Type) -> Iterator[inspect.Type]:
    yield kind
    match kind:
        case inspect.Metadata():
            yield from _parts_of(kind.type)
        case inspect.UnionType():
            yield from chain.from_iterable(map(_parts_of, kind.types))
        case inspect.DictType():
            yield from chain(_parts_of(kind.key_type), _parts_of(kind.value_type))
        case inspect.ListType() | inspect.VarTupleType():
            yield from _parts_of(kind.item_type)
        case _:
            pass
