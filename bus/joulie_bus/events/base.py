"""What every event has, and the number types that several events share."""

import sys
from typing import Annotated, ClassVar

import msgspec

from joulie_bus.events.bounds import MOST_VALUES, Text, Word

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Values = Annotated[dict[Word, Finite | Text | bool], msgspec.Meta(max_length=MOST_VALUES)]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`TYPE` and `VERSION` identify it on the wire. Events with the same `key` have an order."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1

    @property
    def key(self) -> str:
        raise NotImplementedError
