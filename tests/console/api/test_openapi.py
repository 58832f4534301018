"""The document is the program's own: everything that it allows is answered, and as it says."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from joulie_console.testing import Stage

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


async def schemathesis(past: Stage, directory: Path, phases: str, examples: int) -> tuple[int, str]:
    """In a process of its own: the console answers in ours."""
    program = Path(sys.executable).parent / "schemathesis"
    process = await asyncio.create_subprocess_exec(
        *(str(program), "run", f"{past.url}/openapi.json"),
        *("--checks", ",".join(CHECKS), "--max-examples", str(examples)),
        *("--exclude-path", "/v1/stream"),  # it is answered for ever
        *("--phases", phases, "--seed", "1", "--no-color"),
        cwd=directory,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await process.communicate()
    return process.returncode or 0, told.decode()


async def test_whatever_the_document_allows_is_answered_as_declared(
    past: Stage, tmp_path: Path
) -> None:
    code, told = await schemathesis(past, tmp_path, "fuzzing", 8)

    assert code == 0, told


@pytest.mark.drill
async def test_much_more_of_what_the_document_allows_is_answered_as_declared(
    past: Stage, tmp_path: Path
) -> None:
    code, told = await schemathesis(past, tmp_path, "coverage,fuzzing", 100)

    assert code == 0, told


async def test_every_route_is_in_the_document(browser: httpx2.AsyncClient) -> None:
    found = await document(browser)
    api = {route.path for route in _routes() if route.path.startswith("/v1/")}

    assert {path.replace(":path", "") for path in api} == set(found["paths"])


def _routes() -> list[Any]:
    from joulie_console.api.app import STREAM, operations

    return [*operations(_Anything()), STREAM]  # type: ignore[arg-type]


class _Anything:
    """A console whose every answer is never asked for."""

    def __getattr__(self, _: str) -> Any:
        return self


async def test_every_answer_says_which_position_it_is_of_and_how_old_that_is(
    browser: httpx2.AsyncClient,
) -> None:
    found = await document(browser)
    stamps = {"position", "at_ms", "age_ms"}
    answers = [
        get["responses"]["200"]["content"].get("application/json")
        for get in (path["get"] for path in found["paths"].values())
    ]
    names = [answer["schema"]["$ref"].rpartition("/")[2] for answer in answers if answer]

    assert len(names) == len(found["paths"]) - 1
    assert all(stamps <= set(found["components"]["schemas"][name]["required"]) for name in names)


async def test_every_parameter_of_a_question_is_in_the_document(
    browser: httpx2.AsyncClient,
) -> None:
    found = (await document(browser))["paths"]["/v1/nodes"]["get"]["parameters"]

    assert [parameter["name"] for parameter in found] == [
        *("at", "time", "q", "class", "rack", "sort", "order", "limit", "offset")
    ]


async def test_every_path_is_on_the_page_about_the_console(browser: httpx2.AsyncClient) -> None:
    page = (Path(__file__).parents[3] / "docs" / "console.md").read_text()

    assert [path for path in (await document(browser))["paths"] if path not in page] == []
