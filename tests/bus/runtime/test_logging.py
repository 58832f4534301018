import asyncio
import gc
import io
import json
import sys
from io import TextIOWrapper
from logging import WARNING, LogRecord, getLogger
from pathlib import Path

import pytest

from joulie_bus.runtime import logging
from joulie_bus.runtime.metrics import shown_by


@pytest.fixture(autouse=True)
def quiet_again() -> object:
    yield
    logging.configure("warning", "console", "test")


def test_a_line_for_machines_is_one_json_object_with_its_context(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.configure("info", "json", "projector")
    logging.get_logger("bus").warning("resent", messages=3)

    told = json.loads(capsys.readouterr().err)
    assert {key: told[key] for key in ("event", "level", "component", "package", "messages")} == {
        "event": "resent",
        "level": "warning",
        "component": "projector",
        "package": "bus",
        "messages": 3,
    }


def test_a_line_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure("warning", "json", "projector")
    logging.get_logger("bus").info("nobody wants to know")

    assert capsys.readouterr().err == ""


def test_a_logger_made_before_the_settings_were_read_obeys_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    early = logging.get_logger("bus")
    logging.configure("debug", "json", "late")
    early.debug("now")

    assert json.loads(capsys.readouterr().err)["component"] == "late"


def test_a_warning_of_a_library_is_a_line_like_all_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.configure("info", "json", "extender")
    library = getLogger("aiohttp.client")
    library.info("connected")
    library.warning("no answer of %s", "nats://joulie:hunter2@broker:4222")

    line = capsys.readouterr().err
    told = json.loads(line)
    assert {key: told[key] for key in ("event", "level", "component", "package")} == {
        "event": "library_message",
        "level": "warning",
        "component": "extender",
        "package": "aiohttp",
    }
    assert told["text"].startswith("no answer of nats://")
    assert "hunter2" not in line


def test_a_library_with_the_wrong_arguments_is_not_stopped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.configure("info", "json", "operator")
    # Directly, as the handlers of pytest raise the error.
    wrong = LogRecord("aiohttp", WARNING, "client.py", 1, "no answer of %d", ("broker",), None)
    logging._OF_LIBRARIES.handle(wrong)

    assert json.loads(capsys.readouterr().err)["text"] == "no answer of %d ('broker',)"


def test_a_failed_task_that_nothing_awaits_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def lose_a_failure() -> None:
        failing = asyncio.create_task(asyncio.wait_for(asyncio.Event().wait(), 0))
        await asyncio.wait([failing])

    logging.configure("info", "json", "operator")
    asyncio.run(lose_a_failure())
    gc.collect()

    told = json.loads(capsys.readouterr().err)
    assert (told["level"], told["package"]) == ("error", "asyncio")
    assert told["text"].startswith("Task exception was never retrieved")
    assert "TimeoutError" in told["exception"]


def test_a_connection_with_tls_ends_without_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure("info", "json", "operator")
    getLogger("asyncio").warning("returning true from eof_received() has no effect when using ssl")

    assert capsys.readouterr().err == ""


def test_a_line_for_people_shows_event_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure("info", "console", "up")
    logging.get_logger("up").info("fell", who="projector")

    told = capsys.readouterr().err
    assert "fell" in told
    assert "who=projector" in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="wants Linux's /dev/full")
def test_a_full_disk_loses_log_lines_and_stops_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    before = shown_by("extender").get_sample_value("joulie_log_lines_lost_total") or 0.0
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stderr", TextIOWrapper(full, write_through=True))
        logging.configure("info", "json", "projector")
        logging.get_logger("bus").warning("resent", messages=3)
        lost = shown_by("extender").get_sample_value("joulie_log_lines_lost_total") or 0.0

    assert lost > before


HOSTILE = "n1\nlevel=error event=forged\r\x1b[2J\u2028\u202e\x85\0"


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_text_of_a_client_makes_no_line_of_its_own(
    style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.configure("info", style, "up")
    log = logging.get_logger("extender")
    log.warning(
        "refused", name=HOSTILE, names=[HOSTILE], by={HOSTILE: HOSTILE}, error=OSError(HOSTILE)
    )
    log.warning(HOSTILE)

    told = capsys.readouterr().err
    assert len(told.splitlines()) == 2
    assert "forged" in told
    assert not set("\x1b\u2028\u202e\x85\0\r") & set(told)


def test_a_traceback_has_lines_and_none_of_them_looks_like_one_of_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.configure("info", "console", "up")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.get_logger("extender").exception("failed")

    first, *others = capsys.readouterr().err.rstrip("\n").split("\n")
    assert "failed" in first
    assert "Traceback" in others[0]
    assert [line for line in others[1:] if not line.startswith("  ")] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert logging.has_colours(Terminal())
    assert not logging.has_colours(io.StringIO())

    monkeypatch.setenv("NO_COLOR", "1")
    assert not logging.has_colours(Terminal())
