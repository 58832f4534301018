"""The OpenAPI document: every request that it allows is answered as it declares."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from console_kit import ConsoleHarness
from joulie_answers.schema import routes

pytestmark = pytest.mark.anyio
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)


async def document(browser: httpx2.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await browser.get("/openapi.json")).json()
    return found


async def schemathesis(
    scenario: ConsoleHarness, directory: Path, phases: str, examples: int
) -> tuple[int, str]:
    """Runs schemathesis in a separate process, against the console of this process."""
    program = Path(sys.executable).parent / "schemathesis"
    process = await asyncio.create_subprocess_exec(
        *(str(program), "run", f"{scenario.url}/openapi.json"),
        *("--checks", ",".join(CHECKS), "--max-examples", str(examples)),
        *("--exclude-path", "/v1/stream"),  # its response does not end
        *("--phases", phases, "--seed", "1", "--no-color"),
        *("--request-timeout", "120"),  # a report computes for seconds on a busy machine
        cwd=directory,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@pytest.mark.long
async def test_requests_of_the_document_are_answered_as_declared(
    scenario: ConsoleHarness, tmp_path: Path
) -> None:
    code, output = await schemathesis(scenario, tmp_path, "fuzzing", 8)

    assert code == 0, output


@pytest.mark.drill
async def test_many_requests_of_the_document_are_answered_as_declared(
    scenario: ConsoleHarness, tmp_path: Path
) -> None:
    code, output = await schemathesis(scenario, tmp_path, "coverage,fuzzing", 100)

    assert code == 0, output


async def test_every_route_is_in_the_document(browser: httpx2.AsyncClient) -> None:
    found = await document(browser)
    api = {route.path for route in _routes() if route.path.startswith("/v1/")}

    assert {path.replace(":path", "") for path in api} == set(found["paths"])


def _routes() -> list[Any]:
    from joulie_answers.schema.routes import STREAM
    from joulie_console.api.app import operations

    return [*operations(_Anything()), STREAM]  # type: ignore[arg-type]


class _Anything:
    """A console whose handlers are never called."""

    def __getattr__(self, _: str) -> Any:
        return self


async def test_every_response_has_its_position_and_age(
    browser: httpx2.AsyncClient,
) -> None:
    found = await document(browser)
    stamps = {"position", "at_ms", "age_ms"}
    answers = [
        operation["responses"]["200"]["content"].get("application/json")
        for path in found["paths"].values()
        for operation in path.values()
    ]
    names = [answer["schema"]["$ref"].rpartition("/")[2] for answer in answers if answer]

    assert len(names) == len(found["paths"]) - 1
    assert all(stamps <= set(found["components"]["schemas"][name]["required"]) for name in names)


async def test_every_parameter_of_a_query_is_in_the_document(
    browser: httpx2.AsyncClient,
) -> None:
    paths = (await document(browser))["paths"]
    found = {
        path: [each["name"] for each in operation["parameters"] if each["in"] == "query"]
        for path, operations in paths.items()
        for operation in operations.values()
    }

    assert found == {
        route.path: [
            field.encode_name
            for field in msgspec.structs.fields(route.query_type)
            if field.name != route.body
        ]
        for route in vars(routes).values()
        if isinstance(route, routes.Route)
    }


async def test_every_path_is_in_the_documentation_of_the_console(
    browser: httpx2.AsyncClient,
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "console.md").read_text()

    assert [path for path in (await document(browser))["paths"] if path not in page] == []
