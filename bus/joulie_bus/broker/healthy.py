"""Asks the nats-server on this machine for its health, for the probes of a pod.

    python -m joulie_bus.broker.healthy js-server-only    exits with 0 if the server is healthy

The port of the monitoring is on loopback, because it has no password. Kubernetes runs this program
every few seconds, so it imports no more than it needs.
"""

import socket
import sys

MONITORING = ("127.0.0.1", 8222)
PATIENCE_S = 3.0
_LONGEST = 4096


def why_unhealthy(kind: str, address: tuple[str, int] = MONITORING) -> str:
    """Empty if the server answers with 200."""
    try:
        with socket.create_connection(address, PATIENCE_S) as connection:
            connection.sendall(f"GET /healthz?{kind}=true HTTP/1.0\r\n\r\n".encode())
            with connection.makefile("rb") as file:
                answer = file.read(_LONGEST)
    except OSError as error:
        return f"nats-server does not answer at {address[0]}:{address[1]}: {error}"
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    return "" if status[1:2] == [b"200"] else repr(body or head)


if __name__ == "__main__":
    sys.exit(why_unhealthy(sys.argv[1]))
