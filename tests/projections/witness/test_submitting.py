"""Submitting checkpoints while the database cannot be reached."""

import asyncio

import pytest
from structlog.testing import capture_logs

from joulie_bus.testing import until
from joulie_projections.chain.note import WITNESS_KEY, VerifierKey
from joulie_projections.witness.asking import WitnessPlace
from joulie_projections.witness.settings import WitnessSettings
from joulie_projections.witness.submitting import Submitter

pytestmark = pytest.mark.anyio
NOWHERE = "postgresql://u@127.0.0.1:9/joulie"


async def test_a_database_that_cannot_be_reached_is_one_log_line_and_not_the_end() -> None:
    key = VerifierKey("w1.example.com", WITNESS_KEY, bytes(32))
    named = (WitnessPlace(key, "https://w1.example.com:9880"),)
    with capture_logs() as lines:
        running = asyncio.create_task(Submitter(NOWHERE, WitnessSettings(witnesses=named)).run())
        await until(lambda: bool(lines))

        assert not running.done()
        running.cancel()
    assert [line["event"] for line in lines] == ["not_cosigned"]
