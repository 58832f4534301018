"""Asks the nats-server on this machine for its health, for the probes of a pod.

    python -m joulie_bus.broker.healthy js-server-only [PORT]    exits with 0 if it is healthy

The port of the monitoring is on loopback, because it has no password. Kubernetes runs this program
every few seconds, so it imports no more than it needs.
"""

import socket
import sys

HOST, PORT = "127.0.0.1", 8222
PATIENCE_S = 3.0
_LONGEST = 4096


def why_unhealthy(kind: str, port: int) -> str:
    """Empty if the server answers with 200."""
    try:
        with socket.create_connection((HOST, port), PATIENCE_S) as connection:
            connection.sendall(f"GET /healthz?{kind}=true HTTP/1.0\r\n\r\n".encode())
            with connection.makefile("rb") as file:
                answer = file.read(_LONGEST)
    except OSError as error:
        return f"nats-server does not answer at {HOST}:{port}: {error}"
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    return "" if status[1:2] == [b"200"] else repr(body or head)


def main(kind: str, port: str = str(PORT)) -> int:
    why = why_unhealthy(kind, int(port))
    if why:
        print(why, file=sys.stderr)
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
