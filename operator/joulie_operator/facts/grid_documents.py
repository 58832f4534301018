"""Reads prices and carbon intensities from documents: our own CSV and JSON, and the responses of
Electricity Maps and WattTime.

Our own documents have the columns `from`, `to`, `zone`, `price`, `currency`, `gco2_per_kwh` and
`source`; a row needs `from` and one of both values. A document is read whole or not at all.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec

from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.events import GridFact, GridIntensity, GridPriced
from joulie_bus.events.grid import EVERY_ZONE, MOST_MG_PER_KWH, MOST_NANO_PER_KWH

HOUR_NS = 3_600_000_000_000
SECOND_NS = 1_000_000_000
LONGEST = 4_000_000  # bytes of a document
MOST_ROWS = 20_000
NANO, MG_PER_G = Decimal(10**9), Decimal(1000)
MG_PER_KWH_OF_LB_PER_MWH = Decimal("453.59237")
COLUMNS = frozenset({"zone", "from", "to", "price", "currency", "gco2_per_kwh", "source"})
_PRICE_UNIT = re.compile(r"([A-Za-z]{1,8})/([Mk])Wh")
_GRANULARITY = {"5_minutes": 300, "15_minutes": 900, "hourly": 3600, "daily": 86_400}
_INTENSITY_UNIT = "gCO2eq/kWh"
_SIGNALS = {"co2_moer": "marginal", "co2_aoer": "average"}  # of WattTime, in pounds per MWh


class GridUnreadable(Exception):
    """A document that cannot be read; the message has the place and the cause."""


class Point(NamedTuple):
    """One value. The zone of our own documents is that of the nodes; else it is the provider's."""

    zone: str
    fact: GridFact
    is_ours: bool = False


class Span(NamedTuple):
    starts: int
    ends: int


def read_document(text: str) -> list[Point]:
    if len(text) > LONGEST:
        raise GridUnreadable(f"the document has more than {LONGEST} characters")
    if not text.lstrip().startswith(("{", "[")):
        return _from_rows(csv.DictReader(io.StringIO(text)), first=2)
    try:
        tree = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise GridUnreadable(f"not JSON: {error}") from error
    if isinstance(tree, list):
        return _from_rows(tree, first=1)
    return _from_provider(tree)


# --- our own ----------------------------------------------------------------------------------


def _from_rows(rows: Iterable[Any], first: int) -> list[Point]:
    points: list[Point] = []
    for number, row in enumerate(rows, first):
        if number > MOST_ROWS:
            raise GridUnreadable(f"more than {MOST_ROWS} rows")
        try:
            points += _of_row(row)
        except ValueError as error:
            raise GridUnreadable(f"row {number}: {error}") from error
    if not points:
        raise GridUnreadable("it has no rows")
    return points


def _of_row(row: Any) -> list[Point]:
    if not isinstance(row, Mapping):
        raise ValueError("not an object")
    given = {str(key): "" if value is None else str(value).strip() for key, value in row.items()}
    if unknown := sorted(set(given) - COLUMNS):
        raise ValueError(f"unknown column {unknown[0]!r}; known: {', '.join(sorted(COLUMNS))}")
    ends = given.get("to", "")
    span = Span(time_of(given.get("from", "")), time_of(ends) if ends else 0)
    zone, source = given.get("zone", "") or EVERY_ZONE, given.get("source", "") or "file"
    found: list[GridFact] = []
    if price := given.get("price", ""):
        if not (currency := given.get("currency", "")):
            raise ValueError("a price without a currency")
        found.append(priced(zone, span, _number(price), currency, source))
    if intensity := given.get("gco2_per_kwh", ""):
        found.append(weighed(zone, span, _number(intensity) * MG_PER_G, source))
    if not found:
        raise ValueError("neither price nor gco2_per_kwh")
    return [Point(zone, fact, is_ours=True) for fact in found]


# --- providers --------------------------------------------------------------------------------


def _from_provider(tree: Any) -> list[Point]:
    if not isinstance(tree, Mapping):
        raise GridUnreadable("neither a list nor an object")
    try:
        if "zone" in tree:
            return _electricity_maps(tree)
        if "meta" in tree or "moer" in tree:
            return _watttime(tree)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else f"{error}"
        raise GridUnreadable(why) from error
    raise GridUnreadable("the object is of neither Electricity Maps nor WattTime")


def _electricity_maps(tree: Mapping[str, Any]) -> list[Point]:
    """One value, or a list of them. A row without a value says nothing."""
    zone = str(tree["zone"])
    key = next((key for key in ("data", "history", "forecast") if key in tree), "")
    common = {"isEstimated": key == "forecast", **tree}
    rows = [{**common, **row} for row in tree[key]] if key else [common]
    facts = [_of_electricity_maps(zone, row) for row in rows if _value(row) is not None]
    if not facts:
        raise ValueError("it has no values")
    return [Point(zone, fact) for fact in facts]


def _value(row: Mapping[str, Any]) -> Any:
    return row["carbonIntensity"] if "carbonIntensity" in row else row["value"]


def _of_electricity_maps(zone: str, row: Mapping[str, Any]) -> GridFact:
    span, value = _held(row["datetime"], _seconds(row)), _value(row)
    source = f"Electricity Maps {zone}"
    if "carbonIntensity" in row or row.get("unit") == _INTENSITY_UNIT:
        is_guess = bool(row["isEstimated"])
        return weighed(zone, span, _number(value) * MG_PER_G, source, is_guess)
    currency, per_kwh = _price(value, row.get("unit"))
    return priced(zone, span, per_kwh, currency, source)


def _seconds(row: Mapping[str, Any]) -> int:
    named = str(row.get("temporalGranularity", "hourly"))
    if named not in _GRANULARITY:
        raise ValueError(f"the granularity {named!r} is none of {', '.join(_GRANULARITY)}")
    return _GRANULARITY[named]


def _price(value: Any, unit: Any) -> tuple[str, Decimal]:
    match = _PRICE_UNIT.fullmatch(str(unit))
    if match is None:
        raise ValueError(f"the unit {unit!r} is not that of a price, such as EUR/MWh")
    currency, size = match.groups()
    return currency, _number(value) / (1000 if size == "M" else 1)


def _watttime(tree: Mapping[str, Any]) -> list[Point]:
    signal = "co2_moer"
    if "moer" in tree:  # version 2: one value
        zone, seconds = str(tree["ba"]), int(tree.get("freq", 300))
        points: Sequence[Mapping[str, Any]] = [{**tree, "value": tree["moer"]}]
    else:
        meta = tree["meta"]
        zone, seconds = str(meta["region"]), int(meta.get("data_point_period_seconds", 300))
        points = tree["data"]
        if meta.get("units") != "lbs_co2_per_mwh":
            raise ValueError(f"the units {meta.get('units')!r} are not lbs_co2_per_mwh")
        signal = str(meta.get("signal_type", signal))
    if signal not in _SIGNALS:
        raise ValueError(f"the signal {signal!r} is none of {', '.join(_SIGNALS)}")
    source = f"WattTime {zone}, {_SIGNALS[signal]}"
    return [
        Point(
            zone,
            weighed(
                zone,
                _held(point["point_time"], seconds),
                _number(point["value"]) * MG_PER_KWH_OF_LB_PER_MWH,
                source,
            ),
        )
        for point in points
    ]


def _held(time: Any, seconds: int) -> Span:
    """A value of a provider holds for its time and an hour more, if no later one comes."""
    starts = time_of(str(time))
    return Span(starts, starts + seconds * SECOND_NS + HOUR_NS)


# --- values -----------------------------------------------------------------------------------


def priced(zone: str, span: Span, per_kwh: Decimal, currency: str, source: str) -> GridPriced:
    nano = int((per_kwh * NANO).to_integral_value())
    if abs(nano) > MOST_NANO_PER_KWH or len(currency) > 8:
        raise ValueError(f"a price of {per_kwh} {currency} per kWh is out of bounds")
    return GridPriced(
        zone=zone,
        starts=span.starts,
        ends=span.ends,
        nano_per_kwh=nano,
        currency=currency,
        source=source,
    )


def weighed(
    zone: str, span: Span, mg_per_kwh: Decimal, source: str, estimated: bool = False
) -> GridIntensity:
    mg = int(mg_per_kwh.to_integral_value())
    if not 0 <= mg <= MOST_MG_PER_KWH:
        raise ValueError(f"an intensity of {mg / 1000:g} gCO2e per kWh is out of bounds")
    return GridIntensity(
        zone=zone,
        starts=span.starts,
        ends=span.ends,
        mg_per_kwh=mg,
        source=source,
        estimated=estimated,
    )


def time_of(text: str) -> int:
    """Nanoseconds since 1970; a time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time such as 2026-11-21T10:30Z") from error
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return round(seconds) * SECOND_NS


def _number(value: Any) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not a number") from error
    if not number.is_finite() or abs(number) > Decimal(10**9):
        raise ValueError(f"{value!r} is out of bounds")
    return number
