"""What follows from the version of the API server."""

import pytest

from joulie_operator.kube.served import allocates_in_order


class Server:
    def __init__(self, version: bytes | None) -> None:
        self._version = version

    async def get(self, path: str) -> bytes | None:
        return self._version if path == "/version" else None


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (b'{"major": "1", "minor": "37"}', True),
        (b'{"major": "1", "minor": "36+"}', True),
        (b'{"major": "1", "minor": "35"}', False),
        (b'{"major": "1", "minor": ""}', False),
        (b"{}", False),
        (None, False),
    ],
)
async def test_devices_are_given_out_in_order_from_1_36_on(
    version: bytes | None, expected: bool
) -> None:
    assert await allocates_in_order(Server(version)) is expected  # type: ignore[arg-type]
