"""What carries a secret along is shown without it."""

import io

import pytest

from joulie_bus.core import redaction
from joulie_bus.core.redaction import masked
from joulie_bus.runtime import logging

SHOWN = {
    "postgresql://owner:hunter22@db/joulie": "postgresql://owner:***@db/joulie",
    "postgresql://owner@/joulie?host=/tmp": "postgresql://owner@/joulie?host=/tmp",
    "postgresql://db/j?user=o&password=hunter22&x=1": "postgresql://db/j?user=o&password=***&x=1",
    "nats://hunter22@nats:4222,nats://b:4222": "nats://***@nats:4222,nats://b:4222",
    "Get 'https://u:hunter22@prom/q?query=up'": "Get 'https://u:***@prom/q?query=up'",
    "http://bmc/power?api_key=hunter22": "http://bmc/power?api_key=***",
    "team-b/web at 10:30, mail to a@example.com": "team-b/web at 10:30, mail to a@example.com",
}


@pytest.mark.parametrize(("text", "shown"), SHOWN.items(), ids=SHOWN.values())
def test_a_secret_in_a_url_is_hidden(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize("style", ["json", "console"])
def test_no_line_shows_what_a_library_quoted(style: str) -> None:
    redaction.remember("correct-horse")
    lines = io.StringIO()
    logging.configure("info", style, "test", lines)
    log = logging.get_logger("test")
    try:
        raise ValueError("nats://u:hunter22@nats refused correct-horse")
    except ValueError as error:
        log.warning("failed", error=str(error), nested={"why": str(error)}, exc_info=True)
    logging.configure("error", "console", "test")

    assert "failed" in lines.getvalue()
    assert "hunter22" not in lines.getvalue()
    assert "correct-horse" not in lines.getvalue()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://owner:correct%2Fbattery@db/joulie",
        "postgresql://owner:correct%2Fbattery@db1:5432,db2:5432/joulie",
        "postgresql://db/joulie?user=owner&password=correct%2Fbattery&x=1",
        "postgresql://db/joulie?password=correct%2Fbattery",
    ],
)
def test_a_password_of_a_url_is_hidden_wherever_a_server_quotes_it(url: str) -> None:
    redaction.remember(url)

    assert masked("FATAL: correct/battery is wrong") == "FATAL: (hidden) is wrong"


def test_secrets_as_short_as_a_word_are_not_redacted() -> None:
    redaction.remember("up")
    redaction.remember("")

    assert masked("the server is up") == "the server is up"
