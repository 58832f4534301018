"""docs/subscribe.py, run as it is."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bus_kit import ask, hardware, node_seen, power
from console_kit import ConsoleHarness
from joulie_bus.broker.embedded import Embedded
from joulie_bus.streams.roles import Role

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
EXAMPLE = Path(__file__).parents[3] / "docs" / "subscribe.py"


async def test_a_program_receives_scores_from_the_broker(
    spare_broker: Embedded, new_harness: NewHarness, tmp_path: Path
) -> None:
    address = spare_broker.address_of(Role.VIEWER)
    password = tmp_path / "viewer"
    password.write_text(address.password)
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 144))
        example = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLE), address.url, str(password), "test"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert example.stdout is not None
        async with asyncio.timeout(60):
            assert await example.stdout.readline() == b"listening\n"
            await harness.decide(ask("p1", performance=True))
            line = await example.stdout.readline()
        example.kill()
        await example.wait()

    assert line == b"team/p1 -> n1 68.3\n"


def test_the_example_is_short() -> None:
    code = EXAMPLE.read_text().partition('"""\n\n')[2].splitlines()

    assert len([line for line in code if line.strip()]) <= 22
