import json
import sys
from io import TextIOWrapper
from pathlib import Path

import pytest

from joulie_bus import logging
from joulie_bus.metrics import shown_by


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
    assert {key: told[key] for key in ("event", "level", "part", "room", "messages")} == {
        "event": "resent",
        "level": "warning",
        "part": "projector",
        "room": "bus",
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

    assert json.loads(capsys.readouterr().err)["part"] == "late"


def test_a_line_for_people_shows_event_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure("info", "console", "up")
    logging.get_logger("up").info("fell", who="projector")

    told = capsys.readouterr().err
    assert "fell" in told
    assert "who=projector" in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="wants Linux's /dev/full")
def test_a_full_disk_loses_lines_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    before = shown_by("extender").get_sample_value("joulie_log_lines_lost_total") or 0.0
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stderr", TextIOWrapper(full, write_through=True))
        logging.configure("info", "json", "projector")
        logging.get_logger("bus").warning("resent", messages=3)
        lost = shown_by("extender").get_sample_value("joulie_log_lines_lost_total") or 0.0

    assert lost > before
