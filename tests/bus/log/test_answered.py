"""A component that starts while the broker elects a leader waits for it."""

import pytest

from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.log import answered
from joulie_bus.log.answered import NO_LEADER, until_answered

pytestmark = pytest.mark.anyio
FORBIDDEN = 403


class Broker:
    """Raises these errors in turn, and answers then."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.asked = 0

    async def ask(self) -> str:
        self.asked += 1
        if self._errors:
            raise self._errors.pop(0)
        return "answer"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answered, "PAUSE_S", 0.0)


async def test_what_passes_is_asked_again() -> None:
    broker = Broker(BrokerRefused("s", NO_LEADER, "no leader"), Unreachable("nats://b", "silent"))

    assert await until_answered(broker.ask) == "answer"
    assert broker.asked == 3


async def test_what_does_not_pass_is_raised() -> None:
    broker = Broker(BrokerRefused("s", FORBIDDEN, "not allowed"))

    with pytest.raises(BrokerRefused):
        await until_answered(broker.ask)

    assert broker.asked == 1
