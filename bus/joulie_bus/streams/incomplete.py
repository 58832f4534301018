"""What is reported of copies of streams that lack messages, and what repairs them."""

from collections.abc import Iterable

from joulie_bus.streams.records import IncompleteCopy

REPAIR = (
    "stop this server, delete its JetStream store, and start it again: it fetches the streams "
    "from the others (docs/three-brokers.md)"
)


def described(copies: Iterable[IncompleteCopy]) -> dict[str, str]:
    """One text for each server."""
    lacks: dict[str, list[str]] = {}
    for server, stream, missing in copies:
        lacks.setdefault(server, []).append(f"{missing} of {stream}")
    return {
        server: f"the copy of server {server} lacks messages (at least {', '.join(each)}), which "
        f"readers fetch from other servers: {REPAIR}"
        for server, each in lacks.items()
    }
