from structlog.testing import capture_logs

from bus_kit import refusals
from joulie_bus.errors import BrokerRefused
from joulie_bus.log.refusals import LOG_EVERY_S, Refusals

FULL = BrokerRefused("joulie.dec.x", 10077, "maximum bytes exceeded")


def test_a_refusal_is_logged_at_once_then_now_and_then_and_at_its_end() -> None:
    now, before = [100.0], refusals("things")
    refused = Refusals("things", "kept", lambda: now[0])
    with capture_logs() as lines:
        refused.ended()
        for _ in range(10):
            refused.observe(FULL)
            now[0] += LOG_EVERY_S / 4
        refused.ended()
        refused.ended()
        refused.observe(FULL)

    told = [(line["event"], line.get("times", line.get("after_refusals"))) for line in lines]
    assert told == [
        ("not_published", 1),
        ("not_published", 5),
        ("not_published", 9),
        ("published_again", 10),
        ("not_published", 1),
    ]
    assert lines[0]["why"] == str(FULL)
    assert refusals("things") == before + 11
