"""Why the system refused something, in its own words."""

import asyncio
import socket

import pytest

from joulie_bus.runtime.system_errors import reason_of

pytestmark = pytest.mark.anyio


async def test_a_refused_connection_has_no_numbers_and_no_objects() -> None:
    with pytest.raises(ConnectionRefusedError) as refused:
        await asyncio.open_connection("127.0.0.1", 1)

    assert reason_of(refused.value) == "Connection refused"


def test_of_several_addresses_the_first_reason_is_named() -> None:
    several = OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 99] Cannot")

    assert reason_of(several) == "Connection refused"


def test_an_unknown_name_and_a_missing_file_are_named_as_the_system_does() -> None:
    assert (
        reason_of(socket.gaierror(-2, "Name or service not known")) == "Name or service not known"
    )
    assert reason_of(FileNotFoundError(2, "No such file", "x")) == "No such file or directory"


def test_an_error_that_is_not_the_systems_keeps_its_text() -> None:
    assert reason_of(ValueError("not a number")) == "not a number"
