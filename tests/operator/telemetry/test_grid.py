"""Prices and carbon intensities: from documents, from a server, to the log."""

import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from bus_kit import CLUSTER, NOON, memory_log, until
from bus_kit.grid import intensity, price
from http_server import serving
from joulie_bus.events import GridFact, GridIntensity, GridPriced, codec
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_operator.cluster_settings import GridSettings, grid_sources
from joulie_operator.facts.grid_documents import HOUR_NS, GridUnreadable, read_document
from joulie_operator.telemetry.grid import GridPoller, current, poll_grid

pytestmark = pytest.mark.anyio
TEN = 1_763_719_200 * 10**9  # 2025-11-21T10:00Z
LATER = TEN + 600 * 10**9
# As the providers document their responses: https://app.electricitymaps.com/docs/reference and
# https://docs.watttime.org, read in November 2026.
ELECTRICITY_MAPS = {
    "zone": "DE",
    "carbonIntensity": 302,
    "datetime": "2025-11-21T10:00:00.000Z",
    "updatedAt": "2025-11-21T10:07:31.219Z",
    "createdAt": "2025-11-18T10:50:13.419Z",
    "emissionFactorType": "lifecycle",
    "flowTraced": True,
    "isEstimated": True,
    "estimationMethod": "FORECASTS_HIERARCHY",
    "temporalGranularity": "hourly",
}
DAY_AHEAD = {
    "zone": "DE",
    "data": [
        {
            "datetime": "2025-11-21T10:00:00.000Z",
            "value": 84.21,
            "unit": "EUR/MWh",
            "source": "entsoe.eu",
            "temporalGranularity": "hourly",
        },
        {
            "datetime": "2025-11-21T11:00:00.000Z",
            "value": -3.5,
            "unit": "EUR/MWh",
            "source": "entsoe.eu",
            "temporalGranularity": "hourly",
        },
    ],
}
FORECAST = {
    "zone": "DE",
    "forecast": [
        {"carbonIntensity": 302, "datetime": "2025-11-21T10:00:00.000Z"},
        {"carbonIntensity": None, "datetime": "2025-11-21T11:00:00.000Z"},
        {"carbonIntensity": 290, "datetime": "2025-11-21T12:00:00.000Z"},
    ],
    "temporalGranularity": "hourly",
    "updatedAt": "2025-11-21T10:07:31.219Z",
}
WATTTIME = {
    "data": [{"point_time": "2025-11-21T10:05:00+00:00", "value": 870.0}],
    "meta": {
        "data_point_period_seconds": 300,
        "region": "CAISO_NORTH",
        "signal_type": "co2_moer",
        "units": "lbs_co2_per_mwh",
        "model": {"date": "2025-01-15"},
    },
}
WATTTIME_2 = {
    "freq": "300",
    "ba": "CAISO_NORTH",
    "percent": "53",
    "moer": "850.743982",
    "point_time": "2025-11-21T10:05:00.00Z",
}


def facts_of(document: object) -> list[GridFact]:
    text = document if isinstance(document, str) else json.dumps(document)
    return [point.fact for point in read_document(text)]


def test_an_intensity_of_electricity_maps_holds_for_its_hour_and_one_more() -> None:
    assert facts_of(ELECTRICITY_MAPS) == [
        GridIntensity(
            zone="DE",
            starts=TEN,
            ends=TEN + 2 * HOUR_NS,
            mg_per_kwh=302_000,
            source="Electricity Maps DE",
            estimated=True,
        )
    ]


def test_prices_of_electricity_maps_are_per_kwh_and_may_be_negative() -> None:
    assert [(fact.starts, fact.nano_per_kwh, fact.currency) for fact in _prices(DAY_AHEAD)] == [
        (TEN, 84_210_000, "EUR"),
        (TEN + HOUR_NS, -3_500_000, "EUR"),
    ]


def test_a_forecast_is_an_estimate_and_its_empty_rows_say_nothing() -> None:
    found = [(f.starts, f.mg_per_kwh, f.estimated) for f in _intensities(FORECAST)]

    assert found == [(TEN, 302_000, True), (TEN + 2 * HOUR_NS, 290_000, True)]


def test_an_intensity_may_be_a_value_with_its_unit() -> None:
    document = {
        "zone": "DE",
        "datetime": "2025-11-21T10:00:00.000Z",
        "value": 302,
        "unit": "gCO2eq/kWh",
        "temporalGranularity": "15_minutes",
    }

    (fact,) = _intensities(document)

    assert (fact.mg_per_kwh, fact.ends) == (302_000, TEN + HOUR_NS // 4 + HOUR_NS)


def test_average_emissions_of_watttime_are_not_named_marginal() -> None:
    meta = {**WATTTIME["meta"], "signal_type": "co2_aoer"}  # type: ignore[dict-item]

    (fact,) = facts_of({**WATTTIME, "meta": meta})

    assert fact.source == "WattTime CAISO_NORTH, average"


def _intensities(document: object) -> list[GridIntensity]:
    return [fact for fact in facts_of(document) if isinstance(fact, GridIntensity)]


def _prices(document: object) -> list[GridPriced]:
    return [fact for fact in facts_of(document) if isinstance(fact, GridPriced)]


@pytest.mark.parametrize(("document", "mg"), [(WATTTIME, 394_625), (WATTTIME_2, 385_891)])
def test_pounds_per_megawatt_hour_of_watttime_become_grams_per_kilowatt_hour(
    document: object, mg: int
) -> None:
    (fact,) = facts_of(document)

    assert isinstance(fact, GridIntensity)
    assert (fact.zone, fact.mg_per_kwh) == ("CAISO_NORTH", mg)
    assert "marginal" in fact.source


def test_a_table_and_a_list_say_the_same() -> None:
    table = """zone,from,to,price,currency,gco2_per_kwh
eu-central-1a,2025-11-21T10:00Z,2025-11-21T11:00Z,0.25,EUR,302.5
,2025-11-21T11:00+01:00,,0.31,EUR,
"""
    rows = [
        {
            "zone": "eu-central-1a",
            "from": "2025-11-21T10:00Z",
            "to": "2025-11-21T11:00Z",
            "price": 0.25,
            "currency": "EUR",
            "gco2_per_kwh": 302.5,
        },
        {"from": "2025-11-21T10:00", "price": "0.31", "currency": "EUR"},
    ]

    assert facts_of(table) == facts_of(rows)
    assert [fact.zone for fact in facts_of(table)] == ["eu-central-1a", "eu-central-1a", "*"]
    assert {fact.starts for fact in facts_of(table)} == {TEN}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("from,price,currency\nyesterday,0.2,EUR\n", "row 2: 'yesterday' is not a time"),
        ("from,price\n2025-11-21T10:00Z,0.2\n", "row 2: a price without a currency"),
        ("from,price,currency\n2025-11-21,much,EUR\n", "row 2: 'much' is not a number"),
        ("from,price,currency\n2025-11-21,nan,EUR\n", "row 2: 'nan' is out of bounds"),
        ("from,price,currency\n2025-11-21,2000,EUR\n", "out of bounds"),
        ("from,gco2_per_kwh\n2025-11-21,-1\n", "out of bounds"),
        ("from,cost\n2025-11-21,1\n", "unknown column 'cost'"),
        ("from\n2025-11-21\n", "neither price nor gco2_per_kwh"),
        ("", "no rows"),
        ("{", "not JSON"),
        ("[1]", "row 1: not an object"),
        ({"error": "Invalid auth-token"}, "neither Electricity Maps nor WattTime"),
        ({"zone": "DE", "carbonIntensity": 3}, "no 'datetime'"),
        ({"zone": "DE", "datetime": "2025-11-21T10:00Z", "value": 3}, "not that of a price"),
        ({**WATTTIME, "meta": {"region": "X", "units": "kg"}}, "not lbs_co2_per_mwh"),
        (
            {**WATTTIME, "meta": {"region": "X", "units": "percentile", "signal_type": "co2_moer"}},
            "not lbs_co2_per_mwh",
        ),
        (
            {
                **WATTTIME,
                "meta": {"region": "X", "units": "lbs_co2_per_mwh", "signal_type": "health_damage"},
            },
            "'health_damage' is none of co2_moer",
        ),
        ({**ELECTRICITY_MAPS, "carbonIntensity": None}, "no values"),
        ({**ELECTRICITY_MAPS, "temporalGranularity": "monthly"}, "'monthly' is none of"),
    ],
)
def test_a_document_that_cannot_be_read_names_the_place(document: object, why: str) -> None:
    with pytest.raises(GridUnreadable, match=why):
        facts_of(document)


def test_only_rates_in_force_and_later_ones_are_published() -> None:
    old, now, later = (price(0.1 * n, starts=NOON + n * HOUR_NS) for n in range(3))
    ended = intensity(100, starts=NOON, ends=NOON + 1)

    assert current([later, now, ended, old], NOON + HOUR_NS) == [now, later]


class Provider:
    """A server with recorded responses, which asks for a token."""

    def __init__(self, responses: dict[str, Any]) -> None:
        self.url = ""
        self.responses = responses
        self.headers: list[dict[str, str]] = []

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator["Provider", None]:
        async with serving(self._answer) as self.url:
            yield self

    async def _answer(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        if request.path == "/login":
            is_known = request.headers.get("Authorization") == "Basic dXNlcjpzZWNyZXQ="
            return web.json_response({"token": "jwt"}, status=200 if is_known else 401)
        if request.path not in self.responses:
            return web.Response(status=404, text="no such path")
        return web.json_response(self.responses[request.path])


def settings(*sources: object) -> GridSettings:
    return Source.of(GRID_SOURCE=" ".join(map(str, sources))).load(GridSettings)


async def polled(poller: GridPoller) -> list[GridFact]:
    async with aiohttp.ClientSession() as session:
        return await poller.fresh(session, LATER)


async def test_zones_of_the_grid_become_zones_of_nodes(tmp_path: Path) -> None:
    tariff = tmp_path / "tariff.csv"
    tariff.write_text("from,price,currency\n2025-01-01,0.2,EUR\n")
    async with Provider({"/latest": ELECTRICITY_MAPS, "/moer": WATTTIME}).listening() as provider:
        sources = (tariff, f"{provider.url}/latest?zone=DE", f"{provider.url}/moer")
        everywhere = await polled(GridPoller(settings(*sources)))
        zones = ("*", "eu-1a,eu-1b", "us-1a")
        pairs = zip(zones, sources, strict=True)
        mapped = await polled(GridPoller(settings(*(f"{zone}={it}" for zone, it in pairs))))

    assert [fact.zone for fact in everywhere] == ["*", "*", "*"]
    assert [fact.zone for fact in mapped] == ["*", "eu-1a", "eu-1b", "us-1a"]


async def test_a_rate_is_published_once() -> None:
    async with Provider({"/prices": DAY_AHEAD}).listening() as provider:
        poller = GridPoller(settings(f"{provider.url}/prices"))
        first = await polled(poller)
        poller.published(first)

        assert len(first) == 2
        assert await polled(poller) == []


def with_user(url: str, user: str) -> str:
    return url.replace("http://", f"http://{user}@")


async def test_a_user_logs_in_and_a_token_is_sent_as_it_is() -> None:
    async with Provider({"/v3/historical": WATTTIME}).listening() as provider:
        url = f"{provider.url}/v3/historical?region=CAISO_NORTH"
        assert len(await polled(GridPoller(settings(with_user(url, "user:secret"))))) == 1
        assert provider.headers[-1]["Authorization"] == "Bearer jwt"
        await polled(GridPoller(settings(with_user(url, "key"), url)))

    assert provider.headers[-2]["auth-token"] == "key"
    assert {"Authorization", "auth-token"}.isdisjoint(provider.headers[-1])


async def test_a_secret_of_a_url_is_not_in_the_log_line() -> None:
    url = with_user(f"http://127.0.0.1:{free_port()}/prices", "secret-token-of-mine")
    with capture_logs() as lines:
        await polled(GridPoller(settings(url)))

    assert "secret-token-of-mine" not in str(lines)
    assert [line["event"] for line in lines] == ["grid_unreadable"]


@pytest.mark.parametrize("text", ["=tariff.csv", "a,=tariff.csv", "a="])
def test_a_source_with_an_empty_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="zones without an address"):
        grid_sources(text)


async def test_a_source_that_fails_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    async with Provider({"/prices": DAY_AHEAD}).listening() as provider:
        sources = (tmp_path / "none.csv", f"{provider.url}/nothing", f"{provider.url}/prices")
        with capture_logs() as lines:
            found = await polled(GridPoller(settings(*sources)))

    assert len(found) == 2
    assert [line["event"] for line in lines] == ["grid_unreadable"] * 2
    assert [line["source"] for line in lines] == [
        "number 1 of GRID_SOURCE, none.csv",
        "number 2 of GRID_SOURCE, 127.0.0.1",
    ]
    assert "No such file" in lines[0]["why"]
    assert "answered 404" in lines[1]["why"]


async def test_what_was_polled_is_in_the_log(tmp_path: Path) -> None:
    tariff = tmp_path / "tariff.csv"
    tariff.write_text("from,price,currency,gco2_per_kwh\n2025-01-01,0.2,EUR,300\n")
    bus = memory_log()
    async with (
        background(poll_grid(bus, CLUSTER, settings(tariff)), "grid"),
        bus.reading(Stream.OBS, 0) as reader,
    ):
        await until(lambda: len(reader) == 2)
        records = reader.take(2)

    types = [codec.open_envelope(record.data, "").type for record in records]
    assert types == ["grid.price", "grid.intensity"]
