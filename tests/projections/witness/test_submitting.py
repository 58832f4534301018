"""Submitting checkpoints while the database cannot be reached."""

import asyncio

import pytest
from structlog.testing import capture_logs

from bus_kit import until
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.note import WITNESS_KEY, VerifierKey
from joulie_projections.witness.policy import WitnessPlace, at_least
from joulie_projections.witness.settings import WitnessSettings
from joulie_projections.witness.submitting import Submitter

pytestmark = pytest.mark.anyio
NOWHERE = "postgresql://u@127.0.0.1:9/joulie"


def no_ring() -> Ring:
    raise AssertionError("nothing was read that a key could have signed")


async def test_a_database_that_cannot_be_reached_is_one_log_line_and_not_the_end() -> None:
    key = VerifierKey("w1.example.com", WITNESS_KEY, bytes(32))
    named = (WitnessPlace(key, "https://w1.example.com:9880"),)
    with capture_logs() as lines:
        settings = WitnessSettings(policy=at_least(named))
        running = asyncio.create_task(Submitter(NOWHERE, settings, no_ring).run())
        await until(lambda: bool(lines))

        assert not running.done()
        running.cancel()
    assert [line["event"] for line in lines] == ["not_cosigned"]
